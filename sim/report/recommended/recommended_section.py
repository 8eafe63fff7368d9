"""The section with the recommendations of one user, beside its own ratings."""

from __future__ import annotations

from typing import Any

from markupsafe import Markup

from protocol.errors import BadInput
from protocol.party.view import Broken
from sim.console.console import number
from sim.foreign.plain_text import shortened
from sim.report.reported_run import ReportedRun
from sim.report.section import Section, render, table
from sim.runs.recommend import median_user, recommend
from sim.tables.recommend_tables import cut_words, identifier, who

ROWS = 10
MOST_NAME = 60
TITLE = "Recommendations"


def section(run: ReportedRun) -> Section:
    """Show the user with the median number of ratings, neither the best known nor the least known."""
    try:
        user, among = median_user(run.folder)
        document = recommend(run.folder, user, ROWS)
    except (BadInput, Broken) as refusal:
        html = render("missing.html", title="Nothing can be shown to a user", words=str(refusal))
        return Section("recommendations", TITLE, html, "Lists")
    return Section("recommendations", TITLE, _lists(document, among), "Lists")


def _lists(document: dict[str, Any], among: str) -> Markup:
    shown, own = document["recommendations"], document["rated"][:ROWS]
    titled = any(row["title"] for row in [*shown, *own])
    named = ["item", *(["title"] if titled else [])]
    return render(
        "recommended.html",
        who=who(document),
        among=among,
        ratings=document["ratings"],
        note=document["note"],
        cut=cut_words(document),
        ridge=document["ridge"],
        shown=table(
            ["rank", *named, "stars, predicted"],
            [[row["rank"], *_names(row, titled), number(row["predicted"], 2)] for row in shown],
            caption=f"Would be shown: the best of {document['unrated']:,} items that it has not rated",
            numeric=1,
        ),
        own=table(
            [*named, "stars"],
            [[*_names(row, titled), f"{row['stars']:g}"] for row in own],
            caption=f"Rated by itself: the best {len(own)} of {document['ratings']:,}",
            numeric=1,
        ),
    )


def _names(row: dict[str, Any], titled: bool) -> list[str]:
    return [shortened(identifier(row), MOST_NAME), *([row["title"] or ""] if titled else [])]
