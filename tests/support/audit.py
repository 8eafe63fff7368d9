"""Runs to be audited: a folder with real views from a few ratings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from actors.own_scheme import load_scheme
from protocol.party.role import RECOMMENDER, user_index, user_name
from protocol.schemes import find_scheme
from sim.api import run as run_with
from sim.audit.findings import Finding
from sim.plan.config import RunConfig
from sim.run.run import run
from sim.views.evidence import Case, open_case
from sim.views.exhibits import Exhibits


def audited(folder: Path, ratings: Sequence[Mapping[int, float]], scheme: str = "masked", **flags: Any) -> Case:
    """Make a run of these ratings (item -> rating, one mapping per user) that trains on all of them, and open it."""
    lines = [f"u{user:03},i{item:03},{value}" for user, rated in enumerate(ratings) for item, value in rated.items()]
    data = folder / "ratings.csv"
    data.write_text("user,item,rating\n" + "\n".join(lines) + "\n")
    given = {"transport": "inprocess", "test_fraction": 0.0, "seed": 1, "dim": 2, "iterations": 3, **flags}
    out = folder / "run"
    load_scheme(scheme)
    summary = run(RunConfig(scheme=scheme, data=str(data), **given), out=out)
    assert summary["completed"]
    return open_case(out)


def made(folder: Path, scheme: str, **flags: Any) -> Case:
    """Make a run on the demo data in this process, of twenty iterations if the scheme factorizes, and open it."""
    load_scheme(scheme)
    steps = {"iterations": 20} if find_scheme(scheme).factorizes else {}
    settings = {"data": "demo-small", **steps, "seed": 1, "transport": "inprocess", **flags}
    run_with(scheme=scheme, out=folder, **settings)
    return open_case(folder)


def of(findings: Iterable[Finding], name: str) -> Finding:
    """Return the finding with this id."""
    (found,) = [finding for finding in findings if finding.id == name]
    return found


def isolating_users(case: Case) -> tuple[str, ...]:
    """Find all raters but one of the item with the fewest raters, at least two: they isolate the last one. Else ()."""
    raters: dict[int, list[int]] = {}
    for seen in Exhibits(case, (RECOMMENDER,)).received(RECOMMENDER, "Join"):
        for item in map(int, seen.message.items):
            raters.setdefault(item, []).append(user_index(seen.sender))
    shared = [sorted(users) for users in raters.values() if len(users) >= 2]
    if not shared:
        return ()
    return tuple(map(user_name, min(shared, key=lambda users: (len(users), users))[:-1]))
