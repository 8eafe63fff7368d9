"""The command `keyhole recommend`."""

from __future__ import annotations

from typing import Annotated

import typer

from sim.cli.flags import AsJson, RunFolder
from sim.console.console import emit
from sim.runs.recommend import TOP
from sim.runs.recommend import recommend as find
from sim.tables.recommend_tables import show_recommendations


def recommend(
    run: RunFolder,
    user: Annotated[
        str | None, typer.Argument(metavar="USER", help="user:17, or as the data calls it. (the first that finished)")
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="Number of items.")] = TOP,
    json_: AsJson = False,
) -> None:
    """Show what a user would be shown: the items that it has not rated, with the stars that it predicts itself.

    With the user's view this is what the party computed at home, checked against the end of its view.

    Without it the profile is fitted again from the model and the data.
    """
    emit(find(run, user, top), json_, show_recommendations)


