"""The commands that are run on a folder, with their flags and the files that each of them reads."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.hostile.folders.seeds import Seed
from tests.hostile.folders.values import Chance

PARTIES = (
    "recommender",
    "third_party",
    "user:0",
    "user:1",
    "user:5",
    "user:6",
    "user:99",
    "nobody",
    "../run",
    "user:٣",
)
FEWEST = 400  # repetitions of the canary that are enough for a bound
QUESTIONS = ("inventory", "algebra", "attacks", "accounting", "pairs", "statistics")
ALL_FILES = (
    "run.toml", "summary.json", "bandwidth.json", "iterations.jsonl", "names.json", "lock", "model/item_factors.npy",
    "views/recommender.view", "views/third_party.view", "views/user-0.view", "views/user-1.view", "views/user-5.view",
    "views", "model", "audit.json",
)  # fmt: skip
Words = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Command:
    """One way to call Keyhole."""

    name: str
    weight: int
    argv: Callable[[Chance, Path], list[str]]  # (chance, folder) -> words
    reads: dict[str, int]  # file -> its weight when the file to change is drawn
    writes: Words = ()  # files that it may write in the folder; "*": any
    starts: bool = False  # it may start processes
    is_named: bool = False  # the person names the file, so a link in its place is the person's choice
    waits: bool = False  # it may run until it is stopped
    wants: Callable[[Seed], bool] = field(default=lambda seed: True)


def _some(chance: Chance, *flags: Words) -> list[str]:
    return [word for flag in flags if chance.one_in(4) for word in flag]


def _view(chance: Chance, folder: Path) -> list[str]:
    flags = [("--json",), ("--json", "--full"), ("--iteration", chance.of(("-1", "0", "99"))), ("--limit", "3")]
    flags += [("--kind", chance.of(("received", "event", "Join", "x"))), ("--sender", chance.of(PARTIES))]
    flags += [("--records", chance.of(("0:5", "3:", ":99", "1:2")))]
    party = chance.of(PARTIES[:4] if not chance.one_in(8) else PARTIES)
    return ["view", str(folder), party, *_some(chance, *(flag for flag in flags if chance.one_in(2)))]


def _verify(chance: Chance, folder: Path) -> list[str]:
    return ["verify", str(folder), *_some(chance, ("--json",), ("--anchor", "00" * 32))]


def _replay(chance: Chance, folder: Path) -> list[str]:
    return ["replay", str(folder), *_some(chance, ("--json",), ("--party", chance.of(PARTIES)))]


def _audit(chance: Chance, folder: Path) -> list[str]:
    flags = [("--json",), ("--strict",), ("--all",), ("--coalition", "recommender+user:1"), ("--colluders", "2")]
    return ["audit", str(folder), "--only", chance.of(QUESTIONS), *_some(chance, *flags)]


def _audit_whole(chance: Chance, folder: Path) -> list[str]:
    """Ask every question, or only the one that runs a canary, with few repetitions."""
    only = ["--only", "empirical"] if chance.one_in(2) else []
    return ["audit", str(folder), *only, "--repetitions", "1000", *_some(chance, ("--json",), ("--strict",))]


def _pair(chance: Chance, folder: Path) -> list[str]:
    flags = [("--user", chance.of(PARTIES)), ("--item", chance.of(("0", "1", "99999999", "-1"))), ("--json",)]
    return ["pair", str(folder), *_some(chance, *flags)]


def _bandwidth(chance: Chance, folder: Path) -> list[str]:
    form = chance.of(([], ["--json"], ["--csv"]))
    by = ["--by", chance.of(("iteration", "kind", "party", "edge", "x"))] if chance.one_in(2) else []
    flags = [("--wire", chance.of(("paper", "compact"))), ("--user", chance.of(PARTIES)), ("--top", "3")]
    return ["bandwidth", str(folder), *form, *by, *_some(chance, *flags)]


def _recommend(chance: Chance, folder: Path) -> list[str]:
    who = [chance.of(PARTIES[2:5] if not chance.one_in(8) else PARTIES)] if chance.one_in(2) else []
    return ["recommend", str(folder), *who, *_some(chance, ("--json",), ("--top", chance.of(("1", "99999999"))))]


def _report(chance: Chance, folder: Path) -> list[str]:
    return ["report", str(folder)]


def _ls(chance: Chance, folder: Path) -> list[str]:
    """List the folder that contains the run, or the run itself."""
    return ["ls", str(chance.of((folder, folder.parent))), *_some(chance, ("--json",))]


def _diff(chance: Chance, folder: Path) -> list[str]:
    return ["diff", str(folder), str(folder), *_some(chance, ("--json",))]


def _watch(chance: Chance, folder: Path) -> list[str]:
    return ["watch", str(folder)]


def _resume(chance: Chance, folder: Path) -> list[str]:
    return ["resume", str(folder), *_some(chance, ("--json",))]


def _run(chance: Chance, folder: Path) -> list[str]:
    """Run the configuration of run.toml, with data, transport and mostly sizes from flags."""
    sizes = ["--data", "synthetic:6x5:.6", "--transport", "inprocess" if not chance.one_in(15) else "tcp"]
    if not chance.one_in(3):
        sizes += ["--iterations", "2", "--dim", "2"]
    return ["run", "--config", f"{folder}/run.toml", *sizes, "--out", "made", *_some(chance, ("--json",))]


def _run_again(chance: Chance, folder: Path) -> list[str]:
    """Run the configuration of run.toml with the folder itself as its output."""
    words = _run(chance, folder)
    words[words.index("made")] = str(folder)
    return [*words, "--force"]


def _actor(chance: Chance, folder: Path) -> list[str]:
    who = chance.of((["recommender"], ["third_party"], ["users"], ["user:0"], ["user:0-3"], ["user:0-99999999"]))
    words = [*who, "--roster", f"{folder}/roster.json", "--keys", f"{folder}/keys", "--deadline", "0.3"]
    return ["actor", *words]


def _api(chance: Chance, folder: Path) -> list[str]:
    """Open the folder as a notebook does; `api` is not a command."""
    return ["api", str(folder), *(name for name in API if chance.one_in(3))]


API: dict[str, Callable[[Any], Any]] = {
    "views": lambda run: [(repr(view), len(view), view.kinds()) for view in run.views.values()],
    "frames": lambda run: [view.frame() for view in run.views.values()],
    "html": lambda run: run._repr_html_(),
    "view-html": lambda run: [view._repr_html_() for view in run.views.values()],
    "repr": lambda run: (repr(run), repr(run.views)),
    "iterations": lambda run: run.iterations,
    "item_factors": lambda run: run.item_factors,
    "bandwidth": lambda run: run.bandwidth(),
    "audit": lambda run: run.audit(only=["inventory", "accounting"])._repr_html_(),
    "audited": lambda run: (run.audit(only=["algebra"]).findings, run.audited.parties),
    "verify": lambda run: run.verify(),
    "replay": lambda run: run.replay(),
    "recommend": lambda run: run.recommend(),
}

_VIEWS = {"views/*": 8, "views": 1}
_RUN = {"run.toml": 4, "forge": 2}
_AUDITED = {"audit.json": 3}
_KEPT = ("audit.json", "audit.json.part")  # files that keep the answers of an audit
_SUMMARY = {"summary.json": 3}
_MODEL = {"model/item_factors.npy": 3, "model": 1}
_COUNTS = {"bandwidth.json": 5, "iterations.jsonl": 5}
_REST = {"lock": 1, "names.json": 1, "anything": 1, "name": 1}

COMMANDS = {
    command.name: command
    for command in (
        Command("view", 36, _view, {**_RUN, **_VIEWS, **_REST}),
        Command("verify", 32, _verify, {**_RUN, **_VIEWS, **_SUMMARY, **_MODEL, **_REST}),
        Command("replay", 28, _replay, {**_RUN, **_VIEWS, **_SUMMARY, **_REST}),
        Command("audit", 40, _audit, {**_RUN, **_VIEWS, **_SUMMARY, **_AUDITED, **_REST, "names.json": 3}, _KEPT),
        Command(
            "audit-whole", 1, _audit_whole, {**_RUN, **_VIEWS, **_SUMMARY, **_AUDITED, **_REST}, _KEPT, starts=True,
        ),
        Command("pair", 20, _pair, {**_RUN, **_VIEWS, **_SUMMARY, **_REST, "names.json": 3}),
        Command("bandwidth", 28, _bandwidth, {**_RUN, **_COUNTS, **_SUMMARY, **_REST, "views/*": 2}),
        Command("ls", 12, _ls, {**_RUN, **_SUMMARY, **_AUDITED, **_REST}),
        Command("diff", 12, _diff, {**_RUN, **_COUNTS, **_SUMMARY, **_AUDITED, **_REST}),
        Command("watch", 8, _watch, {**_RUN, "iterations.jsonl": 5, **_SUMMARY, **_REST}),
        Command(
            "recommend", 24, _recommend, {**_RUN, **_VIEWS, **_SUMMARY, **_MODEL, **_REST, "names.json": 8},
        ),
        Command(
            "report", 3, _report, {**_RUN, **_VIEWS, **_COUNTS, **_SUMMARY, **_REST, "names.json": 3, "report.html": 2},
            ("report.html", "report.html.part", *_KEPT), starts=True,
        ),
        Command(
            "resume", 16, _resume, {**_RUN, **_VIEWS, **_SUMMARY, **_REST, "iterations.jsonl": 3, "part": 2}, ("*",),
            starts=True, wants=lambda seed: seed.resumable,
        ),
        Command("run", 8, _run, {"run.toml": 10, "name": 1}, starts=True, is_named=True),
        Command("run-again", 4, _run_again, {"run.toml": 4, **_VIEWS, **_REST}, ("*",), starts=True, is_named=True),
        Command(
            "actor", 8, _actor, {"roster.json": 10, "keys/*": 8, "keys": 2, "anything": 1, "views": 1}, ("*",),
            is_named=True, waits=True, wants=lambda seed: seed.by_hand,
        ),
        Command("api", 24, _api, {**_RUN, **_VIEWS, **_COUNTS, **_SUMMARY, **_MODEL, **_AUDITED, **_REST}, _KEPT),
    )
}  # fmt: skip


def call(argv: list[str]) -> None:
    """Run `argv` as a command line would, and `api` as a notebook would, with the refusals that a notebook shows."""
    if argv[0] == "api":
        _call_api(argv[1], argv[2:])
        return
    from sim.cli.entry import main
    from sim.report import reported_run

    if argv[0] == "report":  # it has no flag for repetitions, and would take most of the time
        reported_run.ask_for_page = functools.partial(reported_run.ask_for_page, repetitions=FEWEST)
    sys.argv = ["keyhole", *argv]
    main()


def _call_api(folder: str, names: list[str]) -> None:
    from protocol.errors import Aborted, BadInput
    from protocol.party.view import Broken
    from sim.api import load

    worst = 0
    try:
        loaded = load(folder)
        for name in names:
            try:
                made = API[name](loaded)
            except (BadInput, Broken) as refusal:
                worst = 2 if isinstance(refusal, BadInput) else 4
                continue
            print(name, type(made).__name__, len(json.dumps(str(made))))
    except (BadInput, Broken, Aborted):
        worst = 2
    sys.stdout.flush()
    raise SystemExit(worst)
