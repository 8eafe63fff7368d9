"""The commands `keyhole prepare` and `keyhole actor`: parties that are started by hand, on one machine or several."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from actors.launch.reports import Ended, Finished, Listens, Replaying, Resumed
from sim.cli.flags import Force, NamedScheme, Out, TrustScheme
from sim.cli.run_command import interrupt
from sim.console.console import say
from sim.plan.config import RunConfig
from sim.run import manual_start


def prepare(
    config: RunConfig,
    out: Out = None,
    force: Force = False,
    host: Annotated[str, typer.Option(help="The address at which the servers will listen.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port of the first server; the others follow.")] = manual_start.FIRST_PORT,
) -> None:
    """Make the roster and the keys of a run whose parties are started by hand."""
    folder, roster, notes = manual_start.prepare(config, out, force, host, port)
    for note in notes:
        say(note)
    print("Start each of these in a terminal of its own, in any order:")
    trust = " --trust-scheme" if ":" in roster.scheme_name else ""
    for parties in (*roster.card.scheme.servers, "users"):
        print(f"  keyhole actor {parties} --roster {folder}/roster.json --keys {folder}/keys{trust}")


def actor(
    party: Annotated[list[str], typer.Argument(metavar="PARTY...", help="recommender, user:3, user:0-9, users.")],
    roster: Annotated[Path, typer.Option(metavar="FILE", help="Who takes part, from keyhole prepare.")],
    keys: Annotated[Path, typer.Option(metavar="DIR", help="The folder with the keys of these parties.")],
    out: Annotated[Path | None, typer.Option(help="Where views and model go. (beside the roster)")] = None,
    deadline: Annotated[float, typer.Option(help="Seconds that an iteration may wait for users.")] = 60.0,
    patience: Annotated[float, typer.Option(help="Seconds without a step, then it gives up.")] = manual_start.PATIENCE,
    scheme: NamedScheme = None,
    trust_scheme: TrustScheme = False,
) -> None:
    """Run one party, or a host of users, in this process."""
    signal.signal(signal.SIGTERM, interrupt)
    read = manual_start.read_trusted(roster, scheme, trust_scheme)
    manual_start.act(party, read, keys, out or roster.parent, deadline, patience, _tell)


def _tell(report: tuple[Any, ...]) -> None:
    """Print the progress of a server that was started by hand."""
    match report:
        case Listens(party, endpoint):
            print(f"{party} listens at {endpoint}", file=sys.stderr)
        case Replaying(party, iteration):
            print(f"{party} is reading back its view, at iteration {iteration}", file=sys.stderr)
        case Resumed(party, iteration):
            print(f"{party} goes on from its view, at iteration {iteration}", file=sys.stderr)
        case Finished(party, iteration, float(seconds)) if iteration >= 0:
            print(f"{party} finished iteration {iteration} in {seconds:.3f} s", file=sys.stderr)
        case Ended(party, _, result):
            print(f"{party} is done" + (f", item factors {result}" if result else ""))
