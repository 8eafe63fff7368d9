"""Audit every planted fault and forty honest runs, and write the page: `python tests/audit/fault_table.py`.

It takes about five minutes on two cores. Each fault also has a test of its own, with the question that must find it.
"""

from __future__ import annotations

import importlib
import inspect
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from support.audit import audited  # noqa: E402

from protocol.schemes.base import Scheme  # noqa: E402
from sim.audit.audit import audit  # noqa: E402
from sim.audit.findings import QUESTIONS  # noqa: E402

ABOUT = {
    "broken": "roles that tell too much",
    "leaky": "leaks that the algebra must follow",
    "telltale": "metadata, and randomness that protects nothing",
    "quiet": "what only one question can see",
    "noise_faults": "noise that is not there, or not fresh",
    "uneven_noise": "noise that is there for most",
    "unmasked": "masks that are no masks",
}
BASES = {"Broken", "Faulty", "Telltale"}  # no faults of their own
SOUND = {"Sound", "ManyAlone", "TellsTheSums"}  # no leak: a correct scheme, one that fails, one that tells what it may
FLAGS = {"DealsHalfTheEnvelopes": {"wire": "paper"}}  # the wire form that has the fault
ELSEWHERE = {"ReusesAlpha": "needs users who commit late: `test_algebra_more.py`"}
RATINGS = [{0: 5, 1: 3, 2: 1, 3: 2}, {0: 4, 1: 2, 4: 5}, {0: 2, 1: 5, 4: 2}, {0: 2, 2: 4, 3: 4}, {0: 1, 2: 5, 4: 3}]
CHURN = {"join": 0.5, "leave": 0.3}
SIZED: dict[str, Any] = {"dim": 2, "iterations": 8}
ONCE: dict[str, Any] = {"dim": None, "iterations": None}


def faults() -> Iterator[tuple[str, str]]:
    """Yield (module, class) of every broken scheme."""
    for module in ABOUT:
        held = importlib.import_module(f"support.schemes.{module}")
        for name, kind in vars(held).items():
            made_here = inspect.isclass(kind) and kind.__module__ in (held.__name__, "abc")
            if made_here and issubclass(kind, Scheme) and not inspect.isabstract(kind) and name not in BASES:
                yield module, name


def honest() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield forty runs (scheme, flags) of correct schemes: options, wires, churn, drop-outs, ε."""
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


def ask(scheme: str, **flags: Any) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        return audit(audited(Path(folder), RATINGS, scheme, **flags).folder, repetitions=2000)


def found_by(document: dict[str, Any]) -> set[str]:
    """Return the questions that call the run beyond its claims."""
    return {one["question"] for one in document["findings"] if one["beyond"] or one["severity"] == "break"}


def doubts(document: dict[str, Any]) -> str:
    """Name the questions besides the canary that said what they could not show."""
    rows = {row["question"] for row in document["not_shown"]} - {"empirical"}
    return f"not shown: {', '.join(sorted(rows))}" if rows else ""


PAGE = """# tests/audit/

Does the audit find what is wrong, and only that? The broken schemes of `tests/support/schemes/`, each in a run of five
users, five items and eight iterations at ε = 1, and which question of `keyhole audit` calls the run beyond its claims
(2,000 canaries; larger runs show more):

{rooms}

`python tests/audit/fault_table.py` makes this page: {caught} of {count} faults are found. Of {honest} honest runs (all
schemes, both wires, churn, options, ε from .5 to ∞), {alarms} are called beyond their claims.

{table}
"""


def main() -> None:
    head = ["fault", "where", *QUESTIONS, "found"]
    lines = [" | ".join(head), " | ".join("---" for _ in head)]
    count = caught = 0
    for module, name in faults():
        document = ask(f"support.schemes.{module}:{name}", epsilon=1.0, iterations=8, **FLAGS.get(name, {}))
        hits = found_by(document)
        said = "yes" if hits else ELSEWHERE.get(name) or doubts(document) or "**no**"
        if name in SOUND:
            said = "**alarm**" if hits else "sound"
        else:
            count, caught = count + 1, caught + bool(hits)
        lines.append(" | ".join([name, module, *("x" if question in hits else "" for question in QUESTIONS), said]))
        print(lines[-1], flush=True)
    runs = list(honest())
    alarms = [(scheme, flags) for scheme, flags in runs if found_by(ask(scheme, **flags))]
    print(len(runs), "honest runs, alarms:", alarms)
    rooms = "\n".join(f"* `{module}`: {words}" for module, words in ABOUT.items())
    table = "\n".join(f"| {line} |" for line in lines)
    page = PAGE.format(rooms=rooms, caught=caught, count=count, honest=len(runs), alarms=len(alarms), table=table)
    (Path(__file__).parent / "README.md").write_text(page, "utf-8")


if __name__ == "__main__":
    main()
