"""Where the command begins, before anything is imported that takes a while: Ctrl-C means the same there."""

from __future__ import annotations

import os
import sys

INTERRUPTED = 5


def main() -> None:
    os.environ["PYTHONSAFEPATH"] = "1"  # no Python that is started from here looks into the current folder first
    try:
        from sim.cli.app import main as command
    except KeyboardInterrupt:
        print("keyhole: Interrupted.", file=sys.stderr)
        raise SystemExit(INTERRUPTED) from None
    command()
