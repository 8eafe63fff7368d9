"""The command `keyhole bandwidth`."""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from protocol.errors import BadInput
from protocol.params import require
from sim.bandwidth import prediction
from sim.bandwidth.bandwidth import bandwidth as measure
from sim.bandwidth.projection import ITERATION_SECONDS
from sim.cli.flags import AsJson
from sim.console.console import emit
from sim.folder.folder import trust_scheme
from sim.folder.traffic import BY, COLUMNS, chosen_rows
from sim.foreign.plain_text import csv_cell
from sim.plan.config import RunConfig
from sim.tables import bandwidth_tables

_LINK_HELP = (
    "With --predict: one more link in Mbit/s and ms, or another speed for one of mobile=20/5/50, wifi=100/40/10 and "
    "datacentre=10000/10000/.5, which is the servers' own."
)
_OF_A_RUN = {"run", "by", "csv_", "json_", "scheme", "trust_scheme", "wire", "user", "top"}


def bandwidth(
    config: RunConfig,
    context: typer.Context,
    run: Annotated[Path | None, typer.Argument(metavar="RUN", help="The folder of a run.")] = None,
    predict: Annotated[bool, typer.Option("--predict", help="Without a run: with the flags of keyhole run.")] = False,
    by: Annotated[str | None, typer.Option(help=f"Only that table: {', '.join(BY)}.")] = None,
    iteration_seconds: Annotated[
        float | None, typer.Option(metavar="S", help="With --predict: an iteration every S seconds. (5)")
    ] = None,
    link: Annotated[list[str] | None, typer.Option(metavar="NAME=DOWN/UP/LATENCY_MS", help=_LINK_HELP)] = None,
    user: Annotated[
        str | None, typer.Option(metavar="USER", help="With RUN: only what this user sent and received.")
    ] = None,
    top: Annotated[int | None, typer.Option(min=1, metavar="N", help="Only the N largest rows.")] = None,
    csv_: Annotated[bool, typer.Option("--csv", help="Print the rows as comma-separated values.")] = False,
    json_: AsJson = False,
) -> None:
    """Show what every iteration cost in bytes: by sender, receiver and kind, counted beside the scheme's formula.

    With RUN, --wire paper or compact says by formula what the same run costs in the other form.

    With --predict no process is started and nothing is written.

    It is exact for users who stay (with --seed, where it matters which ratings are held out).

    For users who come and go it is an expectation. It is never by party.

    Its --data synthetic:USERSxITEMS:DENSITY may have 10^8 users and 10^6 items.
    """
    require(not (json_ and csv_), "--json and --csv are two forms of the same figures: give one of them.")
    given = _given(context)
    if predict:
        require(user is None, "A prediction knows how many users there are, not which: leave --user out.")
        require(run is None, f"--predict takes the flags of keyhole run and no folder: leave out {run}.")
        seconds = ITERATION_SECONDS if iteration_seconds is None else iteration_seconds
        document = prediction.predict(config, by, seconds, link or ())
        document |= chosen_rows(document["rows"], None, top)
    elif run is None:
        raise BadInput("Name the folder of a run, or ask for a prediction with --predict.")
    else:
        allowed = "--by, --wire, --user, --top, --json and --csv"
        require(not given - _OF_A_RUN, f"A run has its own settings: flags besides {allowed} need --predict.")
        trust_scheme(run, config.scheme if "scheme" in given else None, "trust_scheme" in given)
        document = measure(run, by, wire=config.wire if "wire" in given else None, user=user, top=top)
    emit(document, json_, _print_csv if csv_ else bandwidth_tables.show)


def _given(context: typer.Context) -> set[str]:
    """Return the names of the parameters that stand on the command line, whatever their values."""
    sources = {name: context.get_parameter_source(name) for name in context.params}
    return {name for name, source in sources.items() if source is not None and source.name == "COMMANDLINE"}


def _print_csv(document: dict[str, Any]) -> None:
    writer = csv.DictWriter(sys.stdout, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: csv_cell(value) for name, value in row.items()} for row in document["rows"])
