"""The command line: `keyhole`, or `python -m sim`. Names, fields and exit codes are a contract with scripts.

A command's module is imported when the command is called; `commands.py` lists them all.
"""

from __future__ import annotations

import importlib
import os
from typing import Annotated, Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before numpy is imported: no command is faster with more threads

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from sim.cli import flags
from sim.cli.commands import COMMANDS, WHAT, print_overview, print_version
from sim.cli.endings import DONE, guarded

SETTINGS = {"help_option_names": ["-h", "--help"]}


def load(name: str) -> Any:
    """Import the module of the command `name`, and make the object that typer calls."""
    entry = COMMANDS[name]
    module = importlib.import_module(f"sim.cli.{entry.module}")
    command = getattr(module, name)
    command = getattr(flags, entry.wrap)(command) if entry.wrap else command
    wrapped = guarded(flags.takes_flags(command, entry.flags) if entry.flags else command)
    cls = {"cls": getattr(module, entry.cls)} if entry.cls else {}
    alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="rich")
    alone.command(name, epilog=f"Example: keyhole {entry.example}", context_settings=SETTINGS, **cls)(wrapped)
    return get_command(alone)


class Commands(TyperGroup):
    """Import each command when it is called; list, suggest and complete their names without importing any."""

    def __init__(self, **settings: Any) -> None:
        listed = {name: TyperCommand(name, help=entry.summary) for name, entry in COMMANDS.items()}
        super().__init__(**{**settings, "commands": listed})

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, listed, rest = super().resolve_command(ctx, args)
        return name, load(name) if name else listed, rest

    def format_help(self, ctx: Any, formatter: Any) -> None:
        print_overview()


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
        print_version()
        raise typer.Exit(DONE)


@app.callback()
def common(
    version: Annotated[bool, typer.Option("--version", callback=_show_version, is_eager=True)] = False,
) -> None:
    """Take the flags that need no command."""


def main() -> None:
    app()
