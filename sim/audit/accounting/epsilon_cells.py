"""Put what was accounted into a cell for one set of parties; families choose the form that fits what they release."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from protocol.party.role import RECOMMENDER, THIRD_PARTY, role_of
from protocol.schemes.base import Scheme
from sim.console.console import figure

Accounting = Mapping[str, Any]
OUTSIDER: tuple[str, ...] = ()  # an observer that sees what is released, and nothing else


@dataclass(frozen=True, slots=True)
class EpsilonEntry:
    """A cell of the table; `why` stands in place of a figure, or beside it."""

    figure: str = "–"
    why: str = ""
    style: str = ""


def epsilon(value: Any) -> str:
    return "∞" if value == "inf" else figure(value)


def uploads_cell(accounting: Accounting, members: Sequence[str], what: str, unit: str = "") -> EpsilonEntry:
    """Account for what users upload to the recommender, which `what` names; `unit` follows the figure."""
    composed = accounting["composed"]
    if composed.get("tight") is None:
        return EpsilonEntry(why="no figure: see Findings")
    if RECOMMENDER not in members:
        return EpsilonEntry(why="accounted for the recommender only")
    if len(members) > 1:
        return EpsilonEntry(f"≥ {epsilon(composed['tight'])}", "of the recommender alone")
    return EpsilonEntry(epsilon(composed["tight"]) + unit, what)


def published_cell(scheme: Scheme, accounting: Accounting, members: Sequence[str]) -> EpsilonEntry:
    """Account for all that is published, given the shares of its noise that users know."""
    tight, shares = accounting["composed"]["tight"], accounting.get("colluders", {})
    if RECOMMENDER in members and THIRD_PARTY not in scheme.servers:
        return EpsilonEntry("not bounded", "it receives a number for every rating")
    if THIRD_PARTY in members:
        return EpsilonEntry(why="not accounted with masked parts")
    known = 0  # shares of the noise
    if THIRD_PARTY in scheme.servers:
        known = sum(role_of(member) == "user" for member in members)
    if not known:
        return EpsilonEntry(epsilon(tight), "all that is published together")
    if str(known) not in shares:
        return EpsilonEntry(why="not accounted for this many known shares of the noise")
    whose = "its own share" if known == 1 else f"{known} shares"
    return EpsilonEntry(f"≤ {epsilon(shares[str(known)])}", f"all noisy sums, {whose} of the noise known")


def sums_cell(accounting: Accounting, members: Sequence[str]) -> EpsilonEntry:
    """Account for released sums: with their envelopes known, with noise shares known too, or with neither."""
    composed, users = accounting["composed"], _users_beside_the_recommender(members)
    if not members:
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


def _users_beside_the_recommender(members: Sequence[str]) -> int | None:
    """Count the users that collude with the recommender; None without the recommender, or with the third party."""
    if RECOMMENDER not in members or THIRD_PARTY in members:
        return None
    return len(members) - 1
