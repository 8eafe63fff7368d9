"""Where the command begins. Ctrl-C means the same before anything is imported, and the shortest calls import little."""

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
    os.environ["PYTHONSAFEPATH"] = "1"  # no Python that is started from here looks into the current folder first
    try:
        if quick := QUICK.get(tuple(sys.argv[1:])):  # a person who looks around waits for no parser of flags
            from sim.cli import commands

            getattr(commands, f"print_{quick}")()
            return
        from sim.cli.app import main as command
    except KeyboardInterrupt:
        print("keyhole: Interrupted.", file=sys.stderr)
        raise SystemExit(INTERRUPTED) from None
    command()
