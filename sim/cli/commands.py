"""The list of all commands, and the overview of it. This file imports no module that is slow to import."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass

WHAT = "Runs privacy-preserving recommender protocols as processes; shows what each party saw and what it cost."
MOST_COLUMNS = 100
READING = ("rating_range", "columns", "on_duplicate", "on_missing")  # how a file of ratings is read


@dataclass(frozen=True, slots=True)
class Entry:
    """A command: the place of its function, its line in the list, and an example."""

    module: str  # in sim.cli; its function has the name of the command
    summary: str
    example: str
    wrap: str | None = None  # a decorator in sim.cli.flags: it adds flags that several commands share
    flags: tuple[str, ...] = ()  # flags of a run that the command takes too, by their names in `RunConfig`
    cls: str | None = None  # a subclass of typer's command, in the same module


QUESTIONS: dict[str, dict[str, Entry]] = {  # the commands that answer each, in the order of the list
    "Launch a protocol": {
        "run": Entry(
            "run_command",
            "Run a scheme with one process per party, and keep every party's view. Defaults stand in parentheses.",
            "run --data synthetic:100x80 --epsilon 4 --seed 1 --out runs/first",
            "takes_configuration",
        ),
        "resume": Entry(
            "run_command",
            "Go on with a run that was stopped or aborted, from the views of its parties.",
            "resume runs/first",
            "reads_a_run",
        ),
        "watch": Entry(
            "runs_command",
            "Show a run while it goes on: who is online, error, bytes, ε so far. It ends with the run, or with Ctrl-C.",
            "watch runs/first",
        ),
        "prepare": Entry(
            "manual_command",
            "Make the roster and the keys of a run whose parties are started by hand.",
            "prepare --seed 1 --out runs/by-hand",
            "takes_configuration",
        ),
        "actor": Entry(
            "manual_command",
            "Run one party, or a host of users, in this process.",
            "actor user:0-39 --roster runs/by-hand/roster.json --keys runs/by-hand/keys",
        ),
    },
    "What did each party see?": {
        "view": Entry(
            "views_command",
            "Show what a party saw, record by record, with the unit of every field.",
            "view runs/first user:3 --iteration 0 --kind ItemFactors",
            "reads_a_run",
        ),
        "verify": Entry(
            "views_command",
            "Check that views, model and summary are what the parties wrote; findings name file and record.",
            "verify runs/first --anchor 71c3…",
            "reads_a_run",
        ),
        "replay": Entry(
            "views_command",
            "Run every role again from its view: byte for byte the same, or the first difference.",
            "replay runs/first --party user:3",
            "reads_a_run",
        ),
    },
    "What can be worked out from it?": {
        "audit": Entry(
            "audit_command",
            "Say what each party saw, what coalitions can work out from it, and what is left of the claimed ε.",
            "audit runs/first --coalition recommender+user:3 --strict=claims",
            "reads_a_run",
            cls="Auditing",
        ),
        "pair": Entry(
            "audit_command",
            "Change one rating and run all roles again with the same tapes: what differs in whose view, and its ε.",
            "pair runs/first --user user:3 --item 12",
            "reads_a_run",
        ),
        "report": Entry(
            "audit_command",
            "Write one HTML file about the run: who saw what, who can work out what, what it cost. It needs no "
            "network.",
            "report runs/first --out first.html",
            "reads_a_run",
        ),
        "explain": Entry(
            "runs_command",
            "Explain a word of Keyhole or a finding of an audit: what it means, also for you, and which command "
            "shows it.",
            "explain canary",
        ),
    },
    "What did it cost?": {
        "bandwidth": Entry(
            "bandwidth_command",
            "Show what every iteration cost in bytes: by sender, receiver and kind, counted beside the scheme's "
            "formula.",
            "bandwidth runs/first --by kind, or keyhole bandwidth --predict --scheme masked",
            "takes_configuration",
        ),
        "bench": Entry(
            "experiments_command",
            "Measure something beside its floor, interleaved in one run; the ratio is what counts.",
            "bench inprocess --json",
        ),
    },
    "What does a user get?": {
        "recommend": Entry(
            "runs_command",
            "Show what a user would be shown: the items that it has not rated, with the stars that it predicts itself.",
            "recommend runs/first user:3 --top 5",
            "reads_a_run",
        ),
    },
    "Which scheme?": {
        "schemes": Entry(
            "runs_command",
            "List the schemes, or show one with its claims, weaknesses and options.",
            "schemes masked",
        ),
        "compare": Entry(
            "experiments_command",
            "Run all schemes on the same ratings: errors, ε with its unit, what the recommender sees, bytes and "
            "seconds.",
            "compare --data ml-100k --schemes trusted,masked --seeds 3 --out compared.csv",
            flags=("data", "users", *READING, "unit", "dim", "iterations"),
        ),
        "evaluate": Entry(
            "experiments_command",
            "Run a grid of schemes and parameters, and compare the errors with plain; a second call runs what is "
            "missing.",
            "evaluate --schemes masked --epsilon 1,8 --data demo --iterations 20",
            flags=(*READING, "test_fraction"),
        ),
        "reproduce": Entry(
            "experiments_command",
            "Make the figures of the paper again, its claims beside ours: PNG, SVG, CSV. A second call goes on.",
            "reproduce all --quick",
        ),
        "new": Entry(
            "runs_command",
            "Write a scheme of your own that runs, and its test: two files to change.",
            "new my_scheme",
        ),
    },
    "Which runs and data are there?": {
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
    },
}
COMMANDS = {name: entry for listed in QUESTIONS.values() for name, entry in listed.items()}


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
    tables = {title: [(name, entry.summary) for name, entry in listed.items()] for title, listed in QUESTIONS.items()}
    for title, table in {"Options": rows, **tables}.items():
        yield title
        first = max(len(name) for name, _ in (rows if table is rows else COMMANDS.items())) + 4
        for name, summary in table:
            begun = f"  {name}".ljust(first)
            yield from textwrap.wrap(summary, width, initial_indent=begun, subsequent_indent=" " * first)
        yield ""


def print_overview() -> None:
    import shutil

    print("\n".join(overview("keyhole", min(shutil.get_terminal_size().columns, MOST_COLUMNS))))


def print_version() -> None:
    from importlib import metadata

    print(f"keyhole {metadata.version('keyhole')}")


def print_schemes() -> None:
    from sim.tables.run_tables import list_schemes

    list_schemes()
