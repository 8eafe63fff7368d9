"""The three ε of a row of the verdict: claimed by the scheme, accounted by calculation, measured by a canary.

Their units differ, so each has its own column, which names its unit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from protocol.party.role import RECOMMENDER, THIRD_PARTY, role_of
from sim.audit.findings import goes_beyond
from sim.audit.verdict import permitted, promised
from sim.console.console import counted, figure
from sim.views.evidence import Case

Document = dict[str, Any]
OUTSIDER: tuple[str, ...] = ()  # an observer that sees what is released, and nothing else


@dataclass(frozen=True, slots=True)
class EpsilonEntry:
    """A cell of the table; `why` stands in place of a figure, or beside it."""

    figure: str = "–"
    why: str = ""
    style: str = ""


def epsilon(value: Any) -> str:
    return "∞" if value == "inf" else figure(value)


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
    if "all_releases" in accounting:
        return _by_envelopes(accounting, members)
    if "theta" in accounting["composed"]:
        return _by_budget(accounting, case, members)
    return _by_uploads(accounting, members)


def _by_envelopes(accounting: Document, members: Sequence[str]) -> EpsilonEntry:
    """Account for `masked` and `dynamic`: with the envelopes known, with noise shares known too, or with neither."""
    composed, users = accounting["composed"], _users_beside_the_recommender(members)
    if members == OUTSIDER:
        return EpsilonEntry(
            epsilon(composed["tight"]), f"a rating in all {composed['releases']} releases, no envelope known"
        )
    row = accounting["all_releases"]["even"]
    if users is None and RECOMMENDER in members and row is not None:
        least = f"≥ {epsilon(row['median'])} median item, {epsilon(row['worst'])} worst"
        return EpsilonEntry(least, "of the recommender alone")
    if users is None:
        return EpsilonEntry(why="accounted for the recommender only")
    whom = "it knows the envelopes"
    if users:
        row = (accounting["colluders"].get(str(users)) or {}).get("all_releases")
        whom = f"with any {users} of the contributors of a sum"
    if row is None:
        return EpsilonEntry(why="accounted for other numbers of colluding users")
    return EpsilonEntry(f"{epsilon(row['median'])} median item, {epsilon(row['worst'])} worst", whom)


def _by_budget(accounting: Document, case: Case, members: Sequence[str]) -> EpsilonEntry:
    """Account for `covariance` and similar schemes: all that is published, given the noise shares that users know."""
    tight, shares = accounting["composed"]["tight"], accounting.get("colluders", {})
    if RECOMMENDER in members and THIRD_PARTY not in case.card.scheme.servers:
        return EpsilonEntry("not bounded", "it receives a number for every rating")
    if THIRD_PARTY in members:
        return EpsilonEntry(why="not accounted with masked parts")
    known = 0  # shares of the noise
    if THIRD_PARTY in case.card.scheme.servers:
        known = sum(role_of(member) == "user" for member in members)
    if not known:
        return EpsilonEntry(epsilon(tight), "all that is published together")
    if str(known) not in shares:
        return EpsilonEntry(why="not accounted for this many known shares of the noise")
    whose = "its own share" if known == 1 else f"{known} shares"
    return EpsilonEntry(f"≤ {epsilon(shares[str(known)])}", f"all noisy sums, {whose} of the noise known")


def _by_uploads(accounting: Document, members: Sequence[str]) -> EpsilonEntry:
    """Account for `direct` and collections: what users upload to the recommender; `trusted` has no figure at all."""
    composed = accounting["composed"]
    if composed.get("tight") is None:
        return EpsilonEntry(why="no figure: see Findings")
    if RECOMMENDER not in members:
        return EpsilonEntry(why="accounted for the recommender only")
    if len(members) > 1:
        return EpsilonEntry(f"≥ {epsilon(composed['tight'])}", "of the recommender alone")
    if "vector" in composed:
        return EpsilonEntry(
            f"{epsilon(composed['tight'])} per entry", f"{epsilon(composed['vector'])} for a whole vector"
        )
    uploads = composed["releases"]
    return EpsilonEntry(
        epsilon(composed["tight"]), f"{counted(uploads, 'upload')} of a rating's gradient"
    )


def _users_beside_the_recommender(members: Sequence[str]) -> int | None:
    """Count the users that collude with the recommender; None without the recommender, or with the third party."""
    if RECOMMENDER not in members or THIRD_PARTY in members:
        return None
    return len(members) - 1


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
        goes_beyond(finding["severity"], finding["id"], document["known_weaknesses"])
        for finding in document["findings"]
        if finding["coalition"] == row["coalition"] and finding["measured"] == row["lower_bound"]
    ]
    return "bad" if any(of_row) else "weak"


def _excess(row: Document) -> tuple[bool, float]:
    """Rank `row` by bound over claim, as claims differ; a row without a claim ranks below those with one."""
    claim, bound = row["claimed"], float(row["lower_bound"])
    return claim is not None, bound / claim if claim else bound
