"""Print the result of `keyhole recommend`; the page uses the same words."""

from __future__ import annotations

from typing import Any

from sim.console import console
from sim.foreign.plain_text import shortened

OWN = 5  # of the user's own ratings, printed beside its recommendations
MOST_NAME = 40  # characters of an identifier or a title, where several stand in a line



def show_recommendations(document: dict[str, Any]) -> None:
    rows, titled = document["recommendations"], any(row["title"] for row in document["recommendations"])
    cells = []
    for row in rows:
        named = [shortened(identifier(row), MOST_NAME), *([row["title"] or ""] if titled else [])]
        cells.append((row["rank"], *named, console.number(row["predicted"], 2)))
    if rows:
        columns = ("rank", "item", *(["title"] if titled else []), "stars (predicted)")
        console.out.print(f"What {who(document)} would be shown", style="bold", markup=False)
        console.print_table("", columns, cells)
    else:
        console.out.print(f"{who(document)} has rated every item, so there is no item to be shown.", markup=False)
    liked = ", ".join(f"{shortened(called(row), MOST_NAME)} ({row['stars']:g})" for row in document["rated"][:OWN])
    count = "its only rating" if document["ratings"] == 1 else f"the best of its {document['ratings']:,} ratings"
    console.out.print(f"Rated by itself ({count}): {liked}.", markup=False)
    if cut := cut_words(document):
        console.out.print(cut, markup=False)
    ridge = "" if document["ridge"] is None else f" λ' = {document['ridge']:g}."
    console.out.print(f"{document['note']}{ridge}", markup=False)


def cut_words(document: dict[str, Any]) -> str:
    """Explain the order of items with equal stars, if several predictions were cut at the highest rating."""
    _, most = document["rating_range"]
    cut = sum(row["score"] > most for row in document["recommendations"])
    words = f"{cut} predictions are above {most:g} and are cut there; items stand in the order before the cut."
    return words if cut > 1 else ""


def who(document: dict[str, Any]) -> str:
    """Name the user as a party, and as the data calls it."""
    if document["name"] is None:
        return str(document["user"])
    return f"{document['user']} ({shortened(document['name'], MOST_NAME)!r} in the data)"


def identifier(row: dict[str, Any]) -> str:
    """Name the item as the data calls it, or by its number."""
    return f"item {row['item']}" if row["name"] is None else str(row["name"])


def called(row: dict[str, Any]) -> str:
    """Name the item by its title, or by its identifier."""
    return row["title"] or (f"item {row['name']}" if row["name"] is not None else identifier(row))
