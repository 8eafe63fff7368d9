"""The command `keyhole audit`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from protocol.errors import BadInput
from sim.folder import jsonable

BEYOND = 3  # the exit code of --strict


def show_brief(summary: dict[str, Any]) -> bool:
    """At the end of a run: the verdict of the questions that take a moment; False: a sentence instead."""
    from sim.audit.brief import brief
    from sim.audit.show import show_verdict

    document = brief(summary)
    if isinstance(document, str):
        print(document)
        return False
    show_verdict(jsonable(document))
    return True


def audit(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run.")],
    coalition: Annotated[
        list[str] | None, typer.Option(metavar="A+B", help="Such as recommender+user:3, besides the default ones.")
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit 3 if something goes beyond the claims.")] = False,
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="QUESTION", help="inventory, algebra, attacks, accounting, empirical or statistics. (all)"
        ),
    ] = None,
    colluders: Annotated[int, typer.Option(min=1, help="Users in a default coalition.")] = 3,
    repetitions: Annotated[int, typer.Option(min=1000, help="Of the canary, for the measured ε.")] = 8000,
    all_: Annotated[bool, typer.Option("--all", help="Show checks that found nothing too, and the evidence.")] = False,
    json_: Annotated[
        bool, typer.Option("--json", help="Print one JSON document on stdout and nothing else there.")
    ] = False,
) -> None:
    """What each party saw, what coalitions can work out from it, and what is left of the claimed ε.

    Six questions are put to the views: is every received field declared (inventory)?

    What follows from them, exactly (algebra)? What do attacks on the bytes get (attacks)?

    What does the accountant say (accounting)? What does a canary show (empirical)?

    Are masked values uniform (statistics)?

    --coalition and --only may be given several times.
    """
    from sim.audit.audit import audit as ask  # not needed by any other command, and slow to import
    from sim.audit.show import Asking, show_audit

    with Asking(enabled=not json_) as asking:
        document = ask(
            run, coalition or (), only=only or (), colluders=colluders, repetitions=repetitions, on_question=asking
        )
    if json_:
        print(json.dumps(jsonable(document), indent=1, allow_nan=False, ensure_ascii=False))
    else:
        show_audit(jsonable(document), all_)
    if strict and document["verdict"] == "beyond-claims":
        raise typer.Exit(BEYOND)
    if strict and document["unanswered"]:
        unasked = ", ".join(document["unanswered"])
        raise BadInput(f"Nothing was found, but this could not be asked: {unasked}; ask the rest alone with --only.")
