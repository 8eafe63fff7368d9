"""The three ε of a row of the verdict: claimed by the scheme, accounted by calculation, measured by a canary.

Their units differ, so each has its own column, which names its unit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from protocol.party.role import THIRD_PARTY, role_of
from sim.audit.accounting.epsilon_cells import EpsilonEntry
from sim.audit.families.registry import family_of
from sim.audit.verdict import permitted, promised
from sim.views.evidence import Case

Document = dict[str, Any]


def claimed(case: Case, members: Sequence[str]) -> EpsilonEntry:
    level = permitted(case.card.scheme, members) if members else "aggregate"
    if level is None:
        return EpsilonEntry(why="assumes no collusion")
    if level == "nothing":
        return EpsilonEntry("learns nothing")
    if "epsilon" not in case.card.scheme.flags:
        return EpsilonEntry(why="the scheme has no ε")
    if math.isinf(case.card.params.epsilon):
        return EpsilonEntry(why="no noise was asked for: ε = ∞")
    if level == "exact-individual":
        return EpsilonEntry(why="it may see exact numbers")
    return EpsilonEntry(_split(case)[0])


def claimed_unit(case: Case) -> str:
    """Give the unit of the column, the same for every party of a run."""
    return _split(case)[1]


def _split(case: Case) -> tuple[str, str]:
    """Split the claim into figure and unit: ("ε = 8", "per release")."""
    name, _, words = promised(case).partition(" = ")
    value, _, unit = words.partition(" ")
    return f"{name}\u00a0=\u00a0{value}", unit


# --- accounted -------------------------------------------------------------------------------------------------------


def accounted_unit(document: Document) -> str:
    """Give the unit of the column: what ε is per, and at which δ."""
    accounting = document["accounting"] or {}
    if "composed" not in accounting:
        return ""
    delta = accounting["composed"].get("delta", accounting["delta"])
    return f"{accounting['unit'].partition(',')[0]}, whole run, δ\u00a0=\u00a0{delta:g}"


def accounted(document: Document, case: Case, members: Sequence[str]) -> EpsilonEntry:
    accounting = document["accounting"]
    if accounting is None:
        return EpsilonEntry(why="not asked")
    if "composed" not in accounting:
        claims = accounting["claimed"] not in (None, "inf")
        return EpsilonEntry(why="not accounted: see Findings" if claims else "nothing is claimed")
    if tuple(members) == (THIRD_PARTY,):
        return EpsilonEntry(why="no release reaches it")
    return family_of(case.card.scheme).accounted(accounting, members)


# --- measured --------------------------------------------------------------------------------------------------------


def measured(document: Document, members: Sequence[str], determines: str | None) -> EpsilonEntry:
    """Choose the canary's bound that exceeds its claim most, or comes nearest to it."""
    empirical = document["empirical"]
    if empirical is None:
        return EpsilonEntry(why="not asked")
    if not empirical["rows"]:
        return EpsilonEntry(
            why="nothing is claimed" if "Nothing is claimed" in empirical["note"] else empirical["note"]
        )
    roles = list(dict.fromkeys(role_of(member) for member in members))
    known_as = [list(members)] if determines == "nothing" else [list(members), roles]
    rows = [row for row in empirical["rows"] if row["coalition"] in known_as]
    if not rows:
        return EpsilonEntry(why="no canary for these")
    worst = max(rows, key=_excess)
    at = f"at δ = {empirical['delta']:g}, " if worst["lower_bound_mu"] is not None else ""
    claim = "none is claimed" if worst["claimed"] is None else f"claim {worst['claimed']:.3g}"
    where = f"{at}canary at ε\u00a0=\u00a0{worst['epsilon']:g}" + (
        f", {claim}" if worst["claimed"] != worst["epsilon"] else ""
    )
    if worst["exceeds"]:  # in words too: the claim of this row is that of the canary's ε, not of the run's beside it
        where += ": above the claim"
    return EpsilonEntry(f"≥ {worst['lower_bound']:.2f}", where, _style(document, worst))


def _style(document: Document, row: Document) -> str:
    """Style a bound above its claim as weak, or as bad where the audit says that it goes beyond the claims."""
    if not row["exceeds"]:
        return ""
    of_row = [
        finding["beyond"]
        for finding in document["findings"]
        if finding["coalition"] == row["coalition"] and finding["measured"] == row["lower_bound"]
    ]
    return "bad" if any(of_row) else "weak"


def _excess(row: Document) -> tuple[bool, float]:
    """Rank `row` by bound over claim, as claims differ; a row without a claim ranks below those with one."""
    claim, bound = row["claimed"], float(row["lower_bound"])
    return claim is not None, bound / claim if claim else bound
