"""Who saw what and can work out what: the rows that terminal, page, explorer and notebook show, in the same words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from protocol.schemes.base import LEVELS
from sim.console.console import counted

COLLUSION, WITHIN, DECLARED, BEYOND = "collusion", "within", "declared", "beyond"  # how a row stands to the claim
NOT_ASKED = "not asked"


@dataclass(frozen=True, slots=True)
class PartyRow:
    who: str
    saw: str  # empty: that was not asked
    works_out: str
    standing: str
    permitted: str
    measured: Sequence[str]

    @property
    def learned(self) -> str:
        return self.works_out + (" (declared)" if self.standing == DECLARED else "")


def party_rows(rows: Iterable[Mapping[str, Any]]) -> list[PartyRow]:
    """Put `rows`, those of an audit under `parties`, into words."""
    return [
        PartyRow(
            name_of(row),
            "these views together" if len(row["members"]) > 1 else _saw(row["saw"]),
            NOT_ASKED if row["determines"] is None else in_short(row),
            standing_of(row),
            row["permitted"] or "no collusion",
            row["measured"],
        )
        for row in rows
    ]


def _saw(words: Sequence[str] | None) -> str:
    return "" if words is None else "; ".join(words) or "no numbers"


def standing_of(row: Mapping[str, Any]) -> str:
    """Compare what `row` says is learned with what its party is permitted; of coalitions nothing is claimed."""
    if row["permitted"] is None:
        return COLLUSION
    if row["determines"] is None or LEVELS.index(row["determines"]) <= LEVELS.index(row["permitted"]):
        return WITHIN
    return DECLARED if row["declared"] else BEYOND


def in_short(row: Mapping[str, Any]) -> str:
    level, users = row["determines"], row["individuals"]
    whose = counted(users, "user")
    words = {
        "nothing": "nothing",
        "aggregate": f"sums of ≥ {row['smallest_group']} users" if row["smallest_group"] else "published figures",
        "noisy-individual": f"noisy {row['of']}s of {whose}",
        "exact-individual": f"exact {row['of']}s of {whose}",
    }[level]
    items = counted(row["items"], "place" if row["of"] == "part" else "item")
    return words + (f", {items} of one contributor" if row["items"] else "")


def name_of(row: Mapping[str, Any]) -> str:
    name = " + ".join(named(row))
    return name if row["stands_for"] == 1 else f"{row['stands_for']} users such as {name}"


def named(row: Mapping[str, Any]) -> list[str]:
    """Name each member as the data does, where its name there says more than its number."""
    names = row.get("names") or row["members"]
    pairs = zip(names, row["members"], strict=True)
    return [
        member if name == member.removeprefix("user:") or name == member else f"{name} ({member})"
        for name, member in pairs
    ]
