"""The commands `keyhole audit` and `keyhole report`."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from protocol.errors import BadInput
from protocol.party.view import Broken
from sim.cli.flags import AsJson, Quiet, RunFolder
from sim.console.console import emit, say
from sim.folder.folder import read_run
from sim.foreign.plain_text import jsonable

BEYOND = 3  # the exit code of --strict
STRICT_CLAIMS = "--strict-claims"  # the hidden flag for --strict=claims: an option cannot have an optional value


class Canary(enum.Enum):
    """Where canaries are played."""

    own = "own"
    small = "small"


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
    _, card = read_run(Path(summary["run"]))
    from sim.tables import first_screen
    from sim.tables.audit_tables import show_verdict
    from sim.tables.run_figures import show_figures

    if not summary["completed"]:
        first_screen.show_abort(summary, card.scheme)
        return
    first_screen.show_screen(summary, card.scheme, audited, counted)
    if verbose:
        show_figures(summary, card)
        if isinstance(audited, dict):
            show_verdict(audited)


def pair(
    run: RunFolder,
    user: Annotated[str | None, typer.Option(metavar="USER", help="Whose rating, by any name. (likely worst)")] = None,
    item: Annotated[int | None, typer.Option(help="Which of its items, by number. (the likely worst)")] = None,
    json_: AsJson = False,
) -> None:
    """Change one rating and run all roles again with the same tapes: what differs in whose view, and its ε.

    The rating goes to the other end of the scale. Every difference is caused by it, as roles are pure.

    Kinds, order, lengths and counts must stay.

    The ε of the pair follows from the shifts: a lower bound on that of the scheme.
    """
    from sim.audit.pairs.one_pair import pair_of  # slow to import
    from sim.tables.pair_tables import show_pair

    emit(pair_of(run, user, item), json_, lambda found: show_pair(jsonable(found)))


def audit(
    run: RunFolder,
    coalition: Annotated[
        list[str] | None, typer.Option(metavar="A+B", help="Such as recommender+user:3, besides the default ones.")
    ] = None,
    strict: Annotated[
        bool,
        typer.Option("--strict", help="Exit 3 if a leak is undeclared or something not shown; =claims: or refuted."),
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
            metavar="QUESTION", help="inventory, algebra, attacks, accounting, pairs, empirical or statistics. (all)"
        ),
    ] = None,
    colluders: Annotated[int, typer.Option(min=1, help="Users in a default coalition.")] = 3,
    repetitions: Annotated[int, typer.Option(min=1000, help="Repetitions of the canary, for the measured ε.")] = 8000,
    canary: Annotated[
        Canary, typer.Option(help="own: also among the run's own ratings; small: the small problem alone.")
    ] = Canary.own,
    canaries: Annotated[int, typer.Option(min=10, help="Most canaries among the run's own ratings.")] = 2000,
    pairs: Annotated[int, typer.Option(min=2, help="Neighbouring data sets that are tried for each coalition.")] = 12,
    all_: Annotated[bool, typer.Option("--all", help="Show checks that found nothing too, and the evidence.")] = False,
    json_: AsJson = False,
) -> None:
    """Say what each party saw, what coalitions can work out from it, and what is left of the claimed ε.

    Seven questions are put to the views: is every received field declared (inventory)?

    What follows from them, exactly (algebra)? What do attacks on the bytes get (attacks)?

    What does the accountant say (accounting)? What does one changed rating change (pairs)?

    What does a canary show (empirical)?

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
            pairs=pairs,
            canaries=canaries if canary is Canary.own else 0,
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
    if strict and document["not_shown"]:
        questions = ", ".join(dict.fromkeys(row["question"] for row in document["not_shown"]))
        say(f"Nothing was found, but not everything was shown: {questions}. Ask the rest alone with --only.")
        raise typer.Exit(BEYOND)


def report(
    run: RunFolder,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="The page. (report.html in the run folder)")] = None,
    open_: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
    quiet: Quiet = False,
) -> None:
    """Write one HTML file about the run: who saw what, who can work out what, what it cost. It needs no network."""
    from sim.audit.audit import Audit
    from sim.report.page import page_path, report_page, write_page
    from sim.report.reported_run import ask_for_page
    from sim.tables.audit_tables import Asking  # slow to import

    read_run(run)  # refuses a folder that is not a run, before anything slow begins
    path = page_path(run, out)
    with Asking(quiet) as asking:
        page = report_page(ask_for_page(Audit(run), on_question=asking, tell=asking.to))
    write_page(path, page)
    print(path)
    if open_:
        import webbrowser

        if not webbrowser.open(path.absolute().as_uri()):
            say(f"No browser could be started: open {path} in one.")
