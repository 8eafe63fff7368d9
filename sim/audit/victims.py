"""The users about whom a coalition learns something: victims of findings, and what is known of one user."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from protocol.party.role import user_index
from sim.audit.algebra.solve import Solved
from sim.audit.findings import Finding
from sim.folder.naming import Names

MEMBER, EXACT, NOISY, SUMS, NOTHING = "member", "exact", "noisy", "sums", "nothing"
# findings about single users' numbers: the algebra can name these users
OF_NUMBERS = frozenset(
    {"difference-attack", "unmasking", "known-shares", "released-sums", "rating-inference", "missing-noise"}
)

Victims = list[dict[str, Any]]  # {"user", "party", "items", "what"}


def victims_of(solved: Solved, names: Names) -> Victims:
    """List the users of whom the coalition isolates a number, with the items and the kind of number."""
    answer = solved.answer
    noisy = "exact" if answer.determines == "exact-individual" else "noisy"
    found = [_victim(user, (), f"{answer.what}s in the clear", names) for user in answer.clear]
    found += [
        _victim(user, items, f"{noisy} {answer.what}s", names)
        for user, items in answer.isolated.items()
        if user not in answer.clear
    ]
    return [*_by_number(found), *_alone(solved, names)]


def _alone(solved: Solved, names: Names) -> Victims:
    words = f"{solved.answer.what}s in sums without anybody else"
    return _by_number([_victim(user, items, words, names) for user, items in solved.answer.lonely.items()])


def _victim(user: str, items: Iterable[int], what: str, names: Names) -> dict[str, Any]:
    return {"user": names.user(user), "party": user, "items": [names.item(item) for item in items], "what": what}


def _by_number(victims: Victims) -> Victims:
    return sorted(victims, key=lambda victim: user_index(victim["party"]))


def known_of_users(solved: Solved, names: Names) -> dict[str, Any]:
    """Return further keys for a row of `coalitions`: its members' names, its victims, users' smallest sums."""
    named = [names.user(member) for member in solved.members]
    return {"names": named, "victims": victims_of(solved, names), "smallest_sums": solved.answer.groups}


def name_victims(finding: Finding, solved: Sequence[Solved], names: Names) -> Victims:
    """List the users that `finding` concerns.

    The list is empty unless the finding is about single users and the algebra was asked.
    """
    if finding.severity == "info":
        return []
    one = next((each for each in solved if each.members == finding.coalition), None)
    if one is None:
        return []
    if finding.id == "single-contributor":
        return _alone(one, names)
    return victims_of(one, names) if finding.id in OF_NUMBERS else []


# --- what is known of one user ---------------------------------------------------------------------------------------


def about_user(document: dict[str, Any], party: str, names: Names) -> dict[str, Any]:
    """Build a row for each coalition in `document`; `rows` is null if the algebra was not asked."""
    coalitions = document["coalitions"]
    servers = {tuple(one["coalition"]) for one in document["findings"] if one["id"] == "support"}
    servers = {each for each in servers if len(each) == 1}
    rows = None if coalitions is None else [_row(one, party, servers) for one in coalitions]
    return {"user": names.user(party), "party": party, "rows": rows}


def _row(row: dict[str, Any], party: str, servers: set[tuple[str, ...]]) -> dict[str, Any]:
    mine = [victim for victim in row["victims"] if victim["party"] == party]
    items = sorted({item for victim in mine for item in victim["items"]})
    group = row["smallest_sums"].get(party)
    support = any((member,) in servers for member in row["members"])
    if party in row["members"]:
        knows, words = MEMBER, "everything: it is a member"
    elif mine:
        knows = EXACT if _is_exact(mine) else NOISY
        words = "; ".join(_told(victim) for victim in mine)
    elif group is not None:
        knows, words = SUMS, f"sums of {group} or more users that it is in"
    else:
        knows, words = NOTHING, "nothing"
    if support and knows != MEMBER:
        words = "which items it rated" if knows == NOTHING else f"{words}; which items it rated"
    return {
        "members": row["members"],
        "names": row.get("names"),
        "stands_for": row["stands_for"],
        "knows": knows,
        "items": items,
        "smallest_group": group,
        "support": support,
        "words": words,
    }


def _is_exact(mine: Victims) -> bool:
    """Tell whether a number is in the clear or noiseless; a sole contributor's sum still has its noise."""
    return any(victim["what"].startswith("exact") or victim["what"].endswith("in the clear") for victim in mine)


def _told(victim: dict[str, Any]) -> str:
    return f"its {victim['what']}" + (f", of {_few(victim['items'])}" if victim["items"] else "")


def _few(items: Sequence[str], most: int = 3) -> str:
    more = f" and {len(items) - most} more" if len(items) > most else ""
    return f"item{'s' if len(items) > 1 else ''} {', '.join(items[:most])}{more}"

