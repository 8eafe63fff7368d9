"""Audit every planted fault and all honest runs, and write the page: `python tests/audit/fault_table.py`.

It takes about ten minutes on two cores. Each fault also has a test of its own, with the question that must find it, and
`test_fault_page.py` holds the page to the lists here.
"""

from __future__ import annotations

import importlib
import inspect
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from support.audit import audited  # noqa: E402

from protocol.schemes.base import Scheme  # noqa: E402
from sim.audit.audit import audit  # noqa: E402
from sim.audit.findings import QUESTIONS  # noqa: E402
from sim.folder.folder import read_summary  # noqa: E402

ABOUT = {
    "broken": "roles that tell too much",
    "leaky": "leaks that the algebra must follow",
    "telltale": "metadata, and randomness that protects nothing",
    "quiet": "what only one question can see",
    "noise_faults": "noise that is not there, or not fresh",
    "uneven_noise": "noise that is there for most",
    "unmasked": "masks that are no masks",
    "derived": "keys that follow from others, or from ratings; sums in another form",
    "presence": "`hardened` with users that tell what they rated",
}
BASES = {"Broken", "Faulty", "Telltale", "Present"}  # no faults of their own
SOUND = {"Sound", "ManyAlone", "TellsTheSums", "HalfOfAKey"}  # no leak: correct, or fails, or tells what it may
ELSEWHERE = {"ReusesAlpha": "needs users who commit late: `test_algebra_more.py`"}
RATINGS = [{0: 5, 1: 3, 2: 1, 3: 2}, {0: 4, 1: 2, 4: 5}, {0: 2, 1: 5, 4: 2}, {0: 2, 2: 4, 3: 4}, {0: 1, 2: 5, 4: 3}]
CHURN = {"join": 0.5, "leave": 0.3}
DROPS = {"transport": "ipc", "on_death": "drop", "deadline": 1.0}  # processes that end are not started again
ALLOWING = {"options": {"dropout_allowance": 0.5}}
SIZED: dict[str, Any] = {"dim": 2, "iterations": 8}
ONCE: dict[str, Any] = {"dim": None, "iterations": None}


def many(count: int = 60, items: int = 20) -> list[dict[int, float]]:
    """Draw ratings of so many users, for faults that are those of a few."""
    draw = np.random.default_rng(5)
    sizes = draw.integers(4, 9, count).tolist()
    return [{int(i): float(draw.integers(1, 6)) for i in draw.choice(items, n, replace=False)} for n in sizes]


LATE: dict[str, Any] = {"ratings": many(), "iterations": 30}
FLAGS: dict[str, dict[str, Any]] = {  # what has the fault
    "DealsHalfTheEnvelopes": {"wire": "paper"},
    **dict.fromkeys(("TenthMissing", "TenthLate", "LateForOne", "TenthHalvedLate"), LATE),
    "LateForAnItem": {**LATE, "dim": 4},
    **dict.fromkeys(("JoinsWithItems", "JoinsWithACount", "LoudCounts"), ONCE),
    "LoudSecondRound": {**ONCE, "options": {"rounds": 2}},
}


def faults() -> Iterator[tuple[str, str]]:
    """Yield (module, class) of every broken scheme."""
    for module in ABOUT:
        held = importlib.import_module(f"support.schemes.{module}")
        for name, kind in vars(held).items():
            made_here = inspect.isclass(kind) and kind.__module__ in (held.__name__, "abc")
            if made_here and issubclass(kind, Scheme) and not inspect.isabstract(kind) and name not in BASES:
                yield module, name


def honest() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield runs (scheme, flags) of correct schemes: options, wires, ε, churn, users that are lost, packing, rings."""
    for epsilon in (0.5, 1.0, 8.0, float("inf")):
        for wire in ("compact", "paper"):
            yield "masked", {**SIZED, "wire": wire, "epsilon": epsilon}
            yield "dynamic", {**SIZED, "wire": wire, "epsilon": epsilon, **CHURN}
        yield "direct", {**SIZED, "epsilon": epsilon}
        yield "trusted", {**SIZED, "epsilon": epsilon}
    yield "masked", {**SIZED, "epsilon": 1.0, "publish": "rated"}
    yield "masked", {**SIZED, "epsilon": 1.0, "factor_bits": 16}
    yield "masked", {**SIZED, "epsilon": 1.0, "options": {"dropout_allowance": 0.5, "min_contributors": 2}}
    yield "direct", {**SIZED, "epsilon": 1.0, "seed": 2}
    yield "plain", SIZED
    for options in ({}, {"predictor": "knn"}, {"unit_of": "user", "noise": "laplace"}):
        yield "covariance", {**ONCE, "epsilon": 1.0, "options": options}
    yield "covariance-masked", {**ONCE, "epsilon": 1.0}
    yield "covariance-masked", {**ONCE, "epsilon": 1.0, "options": {"form": "sparse"}}
    yield "hybrid", {**ONCE, "epsilon": 1.0}
    yield "hardened", {**ONCE, "epsilon": 1.0}
    yield "hardened", {**ONCE, "epsilon": 4.0}
    yield "laplace-ratings", {**ONCE, "epsilon": 1.0}
    yield "randomized-response", {**ONCE, "epsilon": 1.0, "options": {"recovery": "means"}}
    yield "randomized-response", {**ONCE, "epsilon": 4.0, "options": {"recovery": "means"}}
    yield from honest_processes()
    for bits in (40, 48, 64):
        yield "masked", {**SIZED, "epsilon": 1.0, "ring_bits": bits}
    yield "dynamic", {**SIZED, "epsilon": 1.0, "ring_bits": 64, **CHURN}
    yield "masked", {**LATE, "epsilon": 1.0}
    yield "hardened", {**ONCE, "epsilon": 1.0, "unit": "rating"}
    yield "hardened", {**ONCE, "epsilon": 1.0, "options": {"rounds": 2}}


def honest_processes() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield those with a process for each user, or for some together; with drop-outs, frames and users are lost."""
    crowd: dict[str, Any] = {"ratings": 3 * RATINGS, "epsilon": 1.0}
    for scheme, faults in (("masked", "1:.05"), ("masked", "2:.05"), ("dynamic", "2:.1"), ("dynamic", "3:.1")):
        yield scheme, {**SIZED, **crowd, **DROPS, **ALLOWING, "faults": faults}
    for faults in ("5:.2", "9:.2"):
        yield "hardened", {**ONCE, **crowd, **DROPS, "options": {"spare": 0.4}, "faults": faults}
    yield "masked", {**SIZED, **crowd, "transport": "inprocess", "faults": "1:.1"}
    for scheme in ("masked", "dynamic", "direct"):
        yield scheme, {**SIZED, **crowd, "transport": "ipc", "users_per_process": 5}


def ask(scheme: str, **flags: Any) -> dict[str, Any]:
    """Run the scheme, and audit it; `lost` of the document counts the users that the run lost."""
    ratings = flags.pop("ratings", RATINGS)
    with tempfile.TemporaryDirectory() as folder:
        case = audited(Path(folder), ratings, scheme, **flags)
        summary = read_summary(case.folder)
        return {**audit(case.folder, repetitions=2000), "lost": summary["dropouts"] if summary else 0}


def found_by(document: dict[str, Any]) -> set[str]:
    """Return the questions that call the run beyond its claims."""
    return {one["question"] for one in document["findings"] if one["beyond"] or one["severity"] == "break"}


def doubts(document: dict[str, Any]) -> str:
    """Name the questions besides the canary that said what they could not show."""
    rows = {row["question"] for row in document["not_shown"]} - {"empirical"}
    return f"not shown: {', '.join(sorted(rows))}" if rows else ""


PAGE = """# tests/audit/

Does the audit find what is wrong, and only that? The broken schemes of `tests/support/schemes/`, each in a run of five
users, five items and eight iterations at ε = 1 (faults of few users: 60 users, 30 iterations), and which question of
`keyhole audit` calls the run beyond its claims (2,000 canaries; larger runs show more):

{rooms}

`python tests/audit/fault_table.py` makes this page: {caught} of {count} faults are found. Of {honest} honest runs (all
schemes, both wires, churn, options, ε from .5 to ∞, rings of 40 to 64 bits, users packed into processes; {lossy} of
them lost users on the way), {alarms} are called beyond their claims.

{table}
"""


class Row(NamedTuple):
    """What the audit said of one planted fault."""

    name: str
    module: str
    hits: list[str]
    doubts: str


def row_of(module: str, name: str) -> Row:
    given = {"epsilon": 1.0, "iterations": 8, **FLAGS.get(name, {})}
    document = ask(f"support.schemes.{module}:{name}", **given)
    return Row(name, module, sorted(found_by(document)), doubts(document))


def said(row: Row) -> str:
    """Write the last cell of a row."""
    if row.name in SOUND:
        return "**alarm**" if row.hits else "sound"
    return "yes" if row.hits else ELSEWHERE.get(row.name) or row.doubts or "**no**"


def page_of(rows: list[Row], alarms: int, lossy: int) -> str:
    head = ["fault", "where", *QUESTIONS, "found"]
    lines = [" | ".join(head), " | ".join("---" for _ in head)]
    for row in rows:
        hits = ("x" if question in row.hits else "" for question in QUESTIONS)
        lines.append(" | ".join([row.name, row.module, *hits, said(row)]))
    faulty = [row for row in rows if row.name not in SOUND]
    return PAGE.format(
        rooms="\n".join(f"* `{module}`: {words}" for module, words in ABOUT.items()),
        caught=sum(bool(row.hits) for row in faulty),
        count=len(faulty),
        honest=len(list(honest())),
        lossy=lossy,
        alarms=alarms,
        table="\n".join(f"| {line} |" for line in lines),
    )


def main() -> None:
    rows = [row_of(module, name) for module, name in faults()]
    documents = [ask(scheme, **flags) for scheme, flags in honest()]
    alarms, lossy = sum(bool(found_by(one)) for one in documents), sum(one["lost"] > 0 for one in documents)
    (Path(__file__).parent / "README.md").write_text(page_of(rows, alarms, lossy), "utf-8")


if __name__ == "__main__":
    main()
