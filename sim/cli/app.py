"""The command line: `keyhole`, or `python -m sim`. Names, fields and exit codes are a contract with scripts.

`COMMANDS` is the list of all commands. A command's module is imported when the command is called, so that the list
itself, and every command that needs little, starts at once.
"""

from __future__ import annotations

import importlib
import os
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata
from typing import Annotated, Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before numpy: nothing here is faster with more

import typer
from typer.core import TyperGroup
from typer.main import get_command

from sim.cli.endings import DONE, guarded
from sim.cli.flags import reads_a_run, takes_configuration

SETTINGS = {"help_option_names": ["-h", "--help"]}


@dataclass(frozen=True, slots=True)
class Entry:
    """A command: where its function is, what stands in the list, and an example."""

    module: str
    summary: str
    example: str
    wrap: Callable[[Any], Any] | None = None
    cls: str | None = None  # of typer's command, in the same module
    function: str | None = None  # if it is not called as the command is

    def load(self, name: str) -> Any:
        """Import the command and make what typer calls."""
        module = importlib.import_module(f"sim.cli.{self.module}")
        command = getattr(module, self.function or name)
        alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="rich")
        made = guarded(self.wrap(command) if self.wrap else command)
        cls = {"cls": getattr(module, self.cls)} if self.cls else {}
        alone.command(name, epilog=f"Example: keyhole {self.example}", context_settings=SETTINGS, **cls)(made)
        return get_command(alone)


COMMANDS: dict[str, Entry] = {
    "run": Entry(
        "run_command",
        "Run a scheme with one process per party, and keep every party's view. Defaults stand in parentheses.",
        "run --data synthetic:100x80 --epsilon 4 --seed 1 --out runs/first",
        takes_configuration,
    ),
    "resume": Entry(
        "run_command",
        "Go on with a run that was stopped or aborted, from the views of its parties.",
        "resume runs/first",
        reads_a_run,
    ),
    "view": Entry(
        "views_command",
        "Show what a party saw, record by record, with the unit of every field.",
        "view runs/first user:3 --iteration 0 --kind ItemFactors",
        reads_a_run,
    ),
    "verify": Entry(
        "views_command",
        "Check that views, model and summary are what the parties wrote; findings name file and record.",
        "verify runs/first --anchor 71c3…",
        reads_a_run,
    ),
    "replay": Entry(
        "views_command",
        "Run every role again from its view: byte for byte the same, or the first difference.",
        "replay runs/first --party user:3",
        reads_a_run,
    ),
    "datasets": Entry(
        "runs_command",
        "List the data sets that --data knows by name; it also takes any path.",
        "datasets",
    ),
    "fetch": Entry(
        "runs_command",
        "Download a data set into the cache folder.",
        "fetch ml-100k",
    ),
    "prepare": Entry(
        "manual_command",
        "Make the roster and the keys of a run whose parties are started by hand.",
        "prepare --seed 1 --out runs/by-hand",
        takes_configuration,
    ),
    "actor": Entry(
        "manual_command",
        "Run one party, or a host of users, in this process.",
        "actor user:0-39 --roster runs/by-hand/roster.json --keys runs/by-hand/keys",
    ),
    "bandwidth": Entry(
        "bandwidth_command",
        "Show what every iteration cost in bytes: by sender, receiver and kind, counted beside the scheme's formula.",
        "bandwidth runs/first --by kind, or keyhole bandwidth --predict --scheme masked",
        takes_configuration,
    ),
    "audit": Entry(
        "audit_command",
        "What each party saw, what coalitions can work out from it, and what is left of the claimed ε.",
        "audit runs/first --coalition recommender+user:3 --strict=claims",
        reads_a_run,
        cls="Auditing",
    ),
    "recommend": Entry(
        "recommend_command",
        "Show what a user would be shown: the items that it has not rated, with the stars that it predicts itself.",
        "recommend runs/first user:3 --top 5",
        reads_a_run,
    ),
    "report": Entry(
        "report_command",
        "One HTML file that shows the run: who saw what, who can work out what, what it cost. It needs no network.",
        "report runs/first --out first.html",
        reads_a_run,
    ),
    "bench": Entry(
        "experiments_command",
        "Measure something beside its floor, interleaved in one run; the ratio is what counts.",
        "bench inprocess --json",
    ),
    "evaluate": Entry(
        "experiments_command",
        "Run a grid of schemes and parameters, and compare the errors with plain; a second call runs what is missing.",
        "evaluate --schemes masked --epsilon 1,8 --data demo --iterations 20",
    ),
    "compare": Entry(
        "experiments_command",
        "Run all schemes on the same ratings: errors, ε with its unit, what the recommender sees, bytes and seconds.",
        "compare --data ml-100k --schemes trusted,masked --seeds 3 --out compared.csv",
    ),
    "reproduce": Entry(
        "reproduce_command",
        "Make the figures of the paper again, its claims beside ours: PNG, SVG, CSV. A second call goes on.",
        "reproduce all --quick",
    ),
    "ls": Entry(
        "runs_command",
        "List runs, newest first: scheme, data, ε, RMSE on held-out ratings, verdict, age.",
        "ls runs",
    ),
    "diff": Entry(
        "runs_command",
        "Put two runs side by side: configuration, accuracy, ε, bytes by edge and kind, who learns what.",
        "diff runs/compact runs/paper",
    ),
    "watch": Entry(
        "runs_command",
        "Show a run while it goes on: who is online, error, bytes, ε so far. It ends with the run, or with Ctrl-C.",
        "watch runs/first",
    ),
    "explain": Entry(
        "runs_command",
        "Explain a word of Keyhole or a finding of an audit: what it means, also for you, and which command shows it.",
        "explain canary",
    ),
    "schemes": Entry(
        "runs_command",
        "List the schemes, or show one with its claims, weaknesses and options.",
        "schemes masked",
    ),
    "new": Entry(
        "runs_command",
        "Write a scheme of your own that runs, and its test: two files to change.",
        "new my_scheme",
    ),
}


class Commands(TyperGroup):
    """All commands, each imported when it is called; the list of them is printed without importing any."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return COMMANDS[cmd_name].load(cmd_name) if cmd_name in COMMANDS else None

    def format_help(self, ctx: Any, formatter: Any) -> None:
        width = min(ctx.terminal_width or formatter.width, 100)
        print("\n".join(overview(ctx.command_path, width)))


def overview(path: str, width: int) -> Iterator[str]:
    """List the commands with a sentence each, in lines of at most `width`."""
    yield f"Usage: {path} [OPTIONS] COMMAND [ARGS]..."
    yield ""
    yield from textwrap.wrap(f"{WHAT} Flags of a command: {path} COMMAND --help.", width)
    yield ""
    rows = [
        ("--version", "Print the version and exit."),
        ("--install-completion", "Install completion for the current shell."),
        ("--show-completion", "Print completion for the current shell, to copy or change it."),
        ("-h, --help", "Show this message and exit."),
    ]
    for title, table in (("Options", rows), ("Commands", [(name, one.summary) for name, one in COMMANDS.items()])):
        yield f"{title}:"
        first = max(len(name) for name, _ in table) + 4
        for name, summary in table:
            begun = f"  {name}".ljust(first)
            yield from textwrap.wrap(summary, width, initial_indent=begun, subsequent_indent=" " * first)
        yield ""


WHAT = "Runs privacy-preserving recommender protocols as processes; shows what each party saw and what it cost."

app = typer.Typer(
    name="keyhole",
    cls=Commands,
    help=WHAT,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings=SETTINGS,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"keyhole {metadata.version('keyhole')}")
        raise typer.Exit(DONE)


@app.callback()
def common(
    version: Annotated[bool, typer.Option("--version", callback=_show_version, is_eager=True)] = False,
) -> None:
    """Take the flags that need no command."""


def main() -> None:
    app()
