"""The command `keyhole audit`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from protocol.errors import BadInput
from protocol.party.view import Broken
from sim.cli.flags import AsJson, Quiet, RunFolder
from sim.console.console import emit
from sim.folder.folder import read_run
from sim.foreign.plain_text import jsonable

BEYOND = 3  # the exit code of --strict
STRICT_CLAIMS = "--strict-claims"  # the hidden flag for --strict=claims: an option cannot have an optional value


class Auditing(TyperCommand):
    """The command, which takes `--strict` with and without a value."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        for text in args:
            if text.startswith("--strict=") and text != "--strict=claims":
                raise typer.BadParameter(f"'{text}': use --strict or --strict=claims.", ctx)
        return super().parse_args(ctx, [STRICT_CLAIMS if text == "--strict=claims" else text for text in args])


Answers = tuple[dict[str, Any] | str, dict[str, Any] | None]


def ask_briefly(summary: dict[str, Any]) -> Answers:
    """Answer the quick questions: (the short audit, or why it is not made; the bytes, or None if unreadable)."""
    if not summary["completed"]:
        return "The run did not complete.", None
    from sim.audit.audit import brief
    from sim.bandwidth.bandwidth import bandwidth

    answers = brief(summary)
    try:
        counted = bandwidth(Path(summary["run"]))
    except (BadInput, Broken):  # for example changed data; `keyhole bandwidth` says what is wrong
        counted = None
    return answers if isinstance(answers, str) else jsonable(answers), counted


def show_run(
    summary: dict[str, Any],
    verbose: bool,
    audited: dict[str, Any] | str,
    counted: dict[str, Any] | None,
) -> None:
    """Show the first screen of a run, or why it was aborted."""
    scheme = read_run(Path(summary["run"]))[1].scheme
    from sim.console import console
    from sim.tables import first_screen
    from sim.tables.audit_tables import show_verdict

    if not summary["completed"]:
        console.show_abort(summary, scheme)
        return
    first_screen.show_screen(summary, scheme, audited, counted)
    if verbose:
        console.show_summary(summary, scheme)
        if isinstance(audited, dict):
            show_verdict(audited)


def audit(
    run: RunFolder,
    coalition: Annotated[
        list[str] | None, typer.Option(metavar="A+B", help="Such as recommender+user:3, besides the default ones.")
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit 3 if a leak is not declared; =claims: or if the claim is refuted.")
    ] = False,
    strict_claims: Annotated[bool, typer.Option(STRICT_CLAIMS, hidden=True)] = False,
    about: Annotated[
        str | None, typer.Option(metavar="USER", help="What each coalition knows of this user, by any name.")
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Take no answer from the folder or the cache.")] = False,
    quiet: Quiet = False,
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="QUESTION", help="inventory, algebra, attacks, accounting, empirical or statistics. (all)"
        ),
    ] = None,
    colluders: Annotated[int, typer.Option(min=1, help="Users in a default coalition.")] = 3,
    repetitions: Annotated[int, typer.Option(min=1000, help="Repetitions of the canary, for the measured ε.")] = 8000,
    all_: Annotated[bool, typer.Option("--all", help="Show checks that found nothing too, and the evidence.")] = False,
    json_: AsJson = False,
) -> None:
    """Say what each party saw, what coalitions can work out from it, and what is left of the claimed ε.

    Six questions are put to the views: is every received field declared (inventory)?

    What follows from them, exactly (algebra)? What do attacks on the bytes get (attacks)?

    What does the accountant say (accounting)? What does a canary show (empirical)?

    Are masked values uniform (statistics)?

    --coalition and --only may be given several times.
    """
    from sim.audit.audit import audit as ask  # slow to import
    from sim.tables.audit_tables import Asking, show_audit

    with Asking(quiet) as asking:
        document = ask(
            run,
            coalition or (),
            only=only or (),
            colluders=colluders,
            repetitions=repetitions,
            about=about,
            fresh=fresh,
            on_question=asking,
            tell=asking.to,
        )
    emit(document, json_, lambda found: show_audit(jsonable(found), all_))
    strict = strict or strict_claims
    refuted = strict_claims and document["published_claim"]["status"] == "refuted"
    if strict and (document["verdict"] == "beyond-claims" or refuted):
        raise typer.Exit(BEYOND)
    if strict and document["verdict"] is None:
        raise BadInput("There is no verdict, as the scheme is not loaded: add --trust-scheme if you trust its code.")
    if strict and document["unanswered"]:
        unasked = ", ".join(document["unanswered"])
        raise BadInput(f"Nothing was found, but this could not be asked: {unasked}; ask the rest alone with --only.")
