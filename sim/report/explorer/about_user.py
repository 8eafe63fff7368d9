"""The part of the explorer in which the reader chooses a user: what each coalition knows of that user."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup

from protocol.party.role import user_name
from sim.audit.victims import EXACT, MEMBER, NOISY, NOTHING, SUMS, about_user
from sim.folder.naming import Names, read_names
from sim.foreign.plain_text import one_line
from sim.tables.party_rows import name_of

MOST_USERS = 2000  # that can be chosen; the command answers for any other
_WEIGHT = {NOTHING: 0, MEMBER: 0, SUMS: 1, NOISY: 2, EXACT: 3}
_STYLES = {EXACT: "bad", NOISY: "weak", SUMS: "good", NOTHING: "good"}

Told = tuple[str, str]  # style, words


@dataclass(frozen=True, slots=True)
class About:
    first: str  # the user that is shown before the reader chooses: the best known user
    rows: list[tuple[str, Told]]  # coalition, what it knows of that user
    command: str  # to which the name of a user is appended
    data: Markup  # the same of all users, for the script
    left_out: int  # users that cannot be chosen


def known_of_each(folder: Path, document: dict[str, Any], n_users: int) -> About | None:
    """Collect what each coalition knows of each user; None if the algebra was not asked about single users."""
    coalitions = document["coalitions"]
    if not coalitions or "victims" not in coalitions[0]:
        return None
    names, users = read_names(folder), [user_name(place) for place in range(min(n_users, MOST_USERS))]
    found = {user: about_user(document, user, names)["rows"] for user in users}
    first = max(users, key=lambda user: _known(found[user]))
    whole = [name_of(row) for row in found[first]]
    told = [(who, _told(row)) for who, row in zip(whole, found[first], strict=True)]
    command = f"keyhole audit {shlex.quote(str(folder))} --about "
    return About(first, told, command, _data(found, whole, names), n_users - len(users))


def _known(rows: list[dict[str, Any]]) -> tuple[int, int, int]:
    """Rank what coalitions know of a user: the gravest level, how many reach it, and the number of items."""
    weights = [_WEIGHT[row["knows"]] for row in rows]
    return max(weights), weights.count(max(weights)), sum(len(row["items"]) for row in rows)


def _told(row: dict[str, Any]) -> Told:
    bare = row["support"] and row["knows"] == NOTHING  # no number, but which items
    return "" if bare else _STYLES.get(row["knows"], ""), str(row["words"])


def _data(found: dict[str, list[dict[str, Any]]], whole: list[str], names: Names) -> Markup:
    """Encode `found` as JSON in which equal texts stand once, and no text can end the HTML element around it."""
    places: dict[Told, int] = {}
    users = []
    for user, rows in found.items():
        known = [places.setdefault(_told(row), len(places)) for row in rows]
        users.append([user, names.user(user), known])
    text = one_line({"who": whole, "told": list(places), "users": users})
    return Markup(text.replace("<", "\\u003c"))  # inside a script element only "<" has a meaning in HTML
