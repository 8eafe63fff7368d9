"""Parties and items by the identifiers of the data: `user-a` as well as `user:17`.

`names.json` of a run folder says which identifier is which number. The name of a party comes first: a user whom the
data call `recommender` is only reached by its number.
"""

from __future__ import annotations

import difflib
import functools
from collections.abc import Collection, Sequence
from pathlib import Path

from protocol.errors import BadInput
from protocol.roles import user_index, user_name
from protocol.seating import all_parties
from sim import untrusted
from sim.folder import read_run

NAMES = "names.json"
MOST_COMPARED = 20_000  # names among which those that look alike are searched for
NEAREST = 3


class Names:
    """The identifiers of one run; its numbers where the folder has none."""

    def __init__(self, users: Sequence[str] = (), items: Sequence[str] = ()) -> None:
        self._users, self._items = users, items

    def user(self, party: str) -> str:
        """The data's name of `user:17`; of any other party its own."""
        place = user_index(party)
        return self._users[place] if 0 <= place < len(self._users) else party

    def item(self, item: int) -> str:
        return self._items[item] if 0 <= item < len(self._items) else str(item)

    @functools.cached_property
    def _places(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for place, name in enumerate(self._users):
            found.setdefault(name, []).append(place)
        return found

    def party(self, text: str, parties: Collection[str], folder: Path) -> str:
        """The party that is meant; `BadInput` with the nearest names if there is none, or more than one."""
        if text in parties:
            return text
        places = [place for place in self._places.get(text, ()) if user_name(place) in parties]
        if len(places) == 1:
            return user_name(places[0])
        if places:
            which = ", ".join(map(user_name, places[:NEAREST]))
            raise BadInput(f"{text!r} is the name of several users of {folder}: say which, as {which} …")
        raise BadInput(f"{folder} has no party {text!r}: {self._nearest(text, parties)}.")

    def _nearest(self, text: str, parties: Collection[str]) -> str:
        servers = sorted(party for party in parties if user_index(party) < 0)
        known = [*servers, *self._users[:MOST_COMPARED]]
        if near := difflib.get_close_matches(text, known, NEAREST):
            return f"did you mean {' or '.join(near)}"
        users = len(parties) - len(servers)
        return f"there are {', '.join(servers)} and user:0 … user:{users - 1}, also by the names in {NAMES}"


def read_names(folder: Path) -> Names:
    """Read them; a run without them, or one whose file is no such thing, is known by its numbers alone."""
    try:
        document = untrusted.read_json(folder, NAMES)
        users, items = document["users"], document["items"]
    except (OSError, ValueError, KeyError, TypeError):
        return Names()
    if not all(isinstance(names, list) and all(isinstance(name, str) for name in names) for names in (users, items)):
        return Names()
    return Names(users, items)


def resolve(folder: Path, text: str) -> str:
    """The party of this run that a person means."""
    _, card = read_run(folder, unloaded=True)
    parties = all_parties(card.scheme, card.params.n_users)
    if user_index(text) >= 0 and text in parties:  # most often, and then no names are read
        return text
    return read_names(folder).party(text, frozenset(parties), folder)
