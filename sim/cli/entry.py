"""The entry point of the command. Ctrl-C is handled even during imports, and the simplest calls import little."""

from __future__ import annotations

import os
import sys

INTERRUPTED = 5
QUICK: dict[tuple[str, ...], str] = {
    ("--help",): "overview",
    ("-h",): "overview",
    ("--version",): "version",
    ("schemes",): "schemes",
}


def main() -> None:
    os.environ["PYTHONSAFEPATH"] = "1"  # a Python process started from here does not search the current folder first
    try:
        if quick := QUICK.get(tuple(sys.argv[1:])):  # these calls need no parser of flags, which is slow to import
            from sim.cli import commands

            getattr(commands, f"print_{quick}")()
            sys.stdout.flush()
            return
        from sim.cli.app import main as command
    except KeyboardInterrupt:
        print("keyhole: Interrupted.", file=sys.stderr)
        raise SystemExit(INTERRUPTED) from None
    except BrokenPipeError:  # the reader of stdout, such as head, has stopped reading
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return
    command()
