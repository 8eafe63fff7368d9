"""Coalitions of parties that may combine their views: each party alone, servers, servers with users, users."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from protocol.errors import BadInput
from protocol.party.role import user_index, user_name
from sim.audit.algebra.knowledge import Library
from sim.folder.naming import Names, read_names
from sim.views.evidence import Case

COLLUDERS = 3  # users in a default coalition, unless the caller gives another number

Coalition = tuple[str, ...]


def parse(case: Case, text: str, names: Names | None = None) -> Coalition:
    """Parse `recommender+user:3+user-a`; raise `BadInput` for a party that this run does not have."""
    names = names or read_names(case.folder)
    try:
        members = [names.party(name.strip(), case.party_set, case.folder) for name in text.split("+")]
    except BadInput as refusal:
        raise BadInput(f"{text!r} is not a coalition of this run: {refusal}") from None
    return ordered(case, members)


def ordered(case: Case, members: Iterable[str]) -> Coalition:
    """Sort `members` without duplicates: servers first, then users by number."""
    servers = case.card.scheme.servers
    return tuple(sorted(set(members), key=lambda name: (name not in servers, user_index(name), name)))


def beyond_single(case: Case, library: Library, colluders: int) -> list[Coalition]:
    """List all servers together, each server with users, and the users; `worst_users` chooses the users."""
    servers = case.card.scheme.servers
    users = worst_users(case, library, colluders)
    found: list[Coalition] = [ordered(case, servers)] if len(servers) > 1 else []
    if users:
        found += [(server, *users) for server in servers]
        found += [users] if len(users) > 1 else []
    return found


def worst_users(case: Case, library: Library, colluders: int) -> Coalition:
    """Choose the users that can do most harm together.

    Among sums with at most `colluders` + 1 contributors, take the largest and choose all of its contributors but one,
    which isolates the last.
    """
    wanted = min(colluders, case.card.params.n_users - 1)
    chosen: Sequence[str] = ()
    counts = library.contributors
    if wanted > 0 and (counts > 1).any():
        small = np.where((counts > 1) & (counts <= wanted + 1), counts, 0)
        release = int(small.argmax()) if small.any() else int(np.where(counts > 1, counts, counts.max() + 1).argmin())
        chosen = sorted(library.contributors_of(release), key=user_index)[:-1][:wanted]
    others = (user_name(user) for user in range(case.card.params.n_users) if user_name(user) not in chosen)
    return ordered(case, [*chosen, *(name for name, _ in zip(others, range(wanted - len(chosen)), strict=False))])
