"""The command `keyhole recommend`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sim.foreign.plain_text import json_text
from sim.runs.recommend import TOP
from sim.runs.recommend import recommend as find
from sim.tables.recommend_tables import show_recommendations


def recommend(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run.")],
    user: Annotated[
        str | None, typer.Argument(metavar="USER", help="user:17, or as the data calls it. (the first that finished)")
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="How many items.")] = TOP,
    json_: Annotated[
        bool, typer.Option("--json", help="Print one JSON document on stdout and nothing else there.")
    ] = False,
) -> None:
    """Show what a user would be shown: the items that it has not rated, with the stars that it predicts itself.

    With the user's view this is what the party computed at home, checked against the end of its view.

    Without it the profile is fitted again from the model and the data.
    """
    document = find(run, user, top)
    if json_:
        print(json_text(document))
    else:
        show_recommendations(document)


