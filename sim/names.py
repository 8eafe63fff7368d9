"""The names in a run folder: how the data calls users and items, and what an item's title is."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from protocol.errors import BadInput
from protocol.params import Params
from sim import untrusted
from sim.titles import clean


@dataclass(frozen=True, slots=True)
class Names:
    """By number; None where the folder does not say."""

    users: list[str] | None = None
    items: list[str] | None = None
    titles: list[str] | None = None  # "": that item has none

    def user(self, number: int) -> str | None:
        return self.users[number] if self.users else None

    def item(self, number: int) -> dict[str, Any]:
        """Number, identifier in the data and title of an item, as JSON has them."""
        title = clean(self.titles[number]) if self.titles else ""
        return {"item": number, "name": self.items[number] if self.items else None, "title": title or None}


def read_names(folder: Path, params: Params) -> Names:
    """Read `names.json`; parties that were started by hand leave none."""
    counts = {"users": params.n_users, "items": params.n_items, "titles": params.n_items}
    try:
        document = untrusted.read_json(folder, "names.json")
        if type(document) is not dict or not {"users", "items"} <= set(document):
            raise ValueError("it is no table of users and items")
        for name, count in counts.items():
            found = document.get(name, [""] * count if name == "titles" else None)
            if type(found) is not list or len(found) != count or not {str}.issuperset(map(type, found)):
                raise ValueError(f"{name} is no list of {count} texts")
    except FileNotFoundError:
        return Names()
    except ValueError as error:
        words = "remove it, and users and items are called by their numbers"
        raise BadInput(f"{folder}/names.json is damaged ({error}): {words}.") from None
    return Names(document["users"], document["items"], document.get("titles"))
