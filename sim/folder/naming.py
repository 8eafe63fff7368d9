"""Names of parties and items: by the identifiers of the data, such as `user-a`, as well as `user:17`.

`names.json` of a run folder lists the identifier of each number. Names of parties have priority: a user that is called
`recommender` in the data can only be named by its number.
"""

from __future__ import annotations

import difflib
import functools
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from protocol.card import all_parties
from protocol.errors import BadInput
from protocol.params import Params
from protocol.party.role import user_index, user_name
from sim.data.titles import clean
from sim.folder.folder import read_run
from sim.folder.forms import NamesFile
from sim.foreign import untrusted

NAMES = "names.json"
MOST_COMPARED = 20_000  # names that are searched for similar ones
MOST_SHOWN = 100  # characters of an unknown name in an error message
NEAREST = 3


class Names:
    """The identifiers of one run. Without an identifier, a user or an item is named by its number."""

    def __init__(self, users: Sequence[str] = (), items: Sequence[str] = (), titles: Sequence[str] = ()) -> None:
        self._users, self._items, self._titles = users, items, titles  # a title may be empty

    def user(self, party: str) -> str:
        """Return the data's name of a user such as `user:17`; the name of any other party is returned unchanged."""
        place = user_index(party)
        return self._users[place] if 0 <= place < len(self._users) else party

    def item(self, item: int) -> str:
        return self._items[item] if 0 <= item < len(self._items) else str(item)

    def identifier(self, user: int) -> str | None:
        """Return the data's name of the user with this number; None if the folder does not have it."""
        return self._users[user] if user < len(self._users) else None

    def describe(self, item: int) -> dict[str, Any]:
        """Describe an item for JSON: its number, its identifier in the data and its title."""
        title = clean(self._titles[item]) if item < len(self._titles) else ""
        return {"item": item, "name": self._items[item] if item < len(self._items) else None, "title": title or None}

    @functools.cached_property
    def _places(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for place, name in enumerate(self._users):
            found.setdefault(name, []).append(place)
        return found

    def party(self, text: str, parties: Collection[str], folder: Path) -> str:
        """Find the party that `text` names; `BadInput`, with the nearest names, unless there is exactly one."""
        if text in parties:
            return text
        places = [place for place in self._places.get(text, ()) if user_name(place) in parties]
        if len(places) == 1:
            return user_name(places[0])
        if places:
            which = ", ".join(map(user_name, places[:NEAREST]))
            raise BadInput(f"{text!r} is the name of several users of {folder}: say which, as {which} …")
        what = "party" if any(user_index(party) < 0 for party in parties) else "user"
        raise BadInput(f"{folder} has no {what} {text[:MOST_SHOWN]!r}: {self._nearest(text, parties)}.")

    def find_user(self, text: str, n_users: int, folder: Path) -> str:
        """Find the user that `text` names; servers are left out."""
        return self.party(text, frozenset(map(user_name, range(n_users))), folder)

    def _nearest(self, text: str, parties: Collection[str]) -> str:
        servers = sorted(party for party in parties if user_index(party) < 0)
        n_users = len(parties) - len(servers)
        there = " and ".join([*([", ".join(servers)] if servers else []), f"user:0 … user:{n_users - 1}"])
        known = [*servers, *self._users[:MOST_COMPARED], *map(user_name, range(min(n_users, MOST_COMPARED)))]
        near = difflib.get_close_matches(text[:MOST_SHOWN], known, NEAREST)
        hint = f"did you mean {' or '.join(near)}; " if near else ""
        return f"{hint}there are {there}, also by the names in {NAMES}"


def read_names(folder: Path) -> Names:
    """Read the names of a run; if the file is missing or damaged, users and items are named by their numbers."""
    try:
        return read_sound_names(folder)
    except BadInput:
        return Names()


def read_sound_names(folder: Path, params: Params | None = None) -> Names:
    """Read the names of a run; `BadInput` if the file is damaged or does not fit `params`.

    The names are empty if there is no file, as after a run whose parties were started by hand.
    """
    try:
        found = untrusted.fit(untrusted.read_json(folder, NAMES), NamesFile)
        if params is not None and len(found.users) != params.n_users:
            raise ValueError(f"`$.users` must be a list of {params.n_users} texts")
        if params is not None and not {len(found.items), len(found.titles or found.items)} == {params.n_items}:
            raise ValueError(f"`$.items` and `$.titles` must be lists of {params.n_items} texts")
    except FileNotFoundError:
        return Names()
    except (OSError, ValueError) as error:
        words = "remove it, and users and items are called by their numbers"
        raise BadInput(f"{folder}/{NAMES} is damaged ({error}): {words}.") from None
    return Names(found.users, found.items, found.titles)


def resolve(folder: Path, text: str) -> str:
    """Find the party of this run that the person named by `text`."""
    _, card = read_run(folder, unloaded=True)
    parties = all_parties(card.scheme, card.params.n_users)
    if user_index(text) >= 0 and text in parties:  # the usual case, in which no names need to be read
        return text
    return read_names(folder).party(text, frozenset(parties), folder)
