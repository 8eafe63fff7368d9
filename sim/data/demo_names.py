"""Invented names of users and titles of films, for the data set `demo`."""

from __future__ import annotations

from collections.abc import Iterable

# Two shelves of words, one for each side of the taste by which users differ. The two lists of a shelf have lengths
# without a common divisor, so stepping through both at once gives 11 * 9 different titles.
_ADVENTURES = (
    ("Unlit", "Ninth", "Salt", "Copper", "Sunken", "Iron", "Crooked", "Hunted", "Thunder", "Nameless", "Burnt"),
    ("Harbour", "Convoy", "Expedition", "Signal", "Fortress", "Meridian", "Smuggler", "Avalanche", "Airship"),
)
_COMEDIES = (
    ("Borrowed", "Left-Handed", "Overdue", "Second-Best", "Unposted", "Paper", "Sunday", "Spare", "Forgetful", "Polite",
     "Upstairs"),
    ("Umbrella", "Bakery", "Bridesmaid", "Landlady", "Orchestra", "Postman", "Allotment", "Piano Tuner", "Cousin"),
)  # fmt: skip
_GIVEN = (
    "ada", "ben", "cleo", "dario", "elif", "femi", "greta", "hugo", "ines", "jonas", "kira", "lars", "mira",
    "nils", "olga", "pablo", "quinn", "rosa", "sven", "tara", "udo", "vera", "wim", "xenia", "yusuf",
)  # fmt: skip
_FAMILY = ("alder", "brook", "castle", "dale", "ember", "field", "grove", "hill")
MOST_TITLES, MOST_USERS = len(_COMEDIES[0]) * len(_COMEDIES[1]), len(_GIVEN) * len(_FAMILY)


def titles(adventurous: Iterable[bool]) -> tuple[str, ...]:
    """Make a title for each film from the words of its shelf; up to `MOST_TITLES` on a shelf, all differ."""
    made: list[str] = []
    walked = {True: 0, False: 0}
    for shelf in map(bool, adventurous):
        first, second = _ADVENTURES if shelf else _COMEDIES
        place = walked[shelf]
        made.append(f"The {first[place % len(first)]} {second[place % len(second)]}")
        walked[shelf] += 1
    return tuple(made)


def user_names(count: int) -> tuple[str, ...]:
    """Make a name for each of `count` users; up to `MOST_USERS`, all differ."""
    return tuple(f"{_GIVEN[k % len(_GIVEN)]}.{_FAMILY[k // len(_GIVEN)]}" for k in range(count))
