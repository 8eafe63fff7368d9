"""`python -m sim` is `keyhole`."""

import sys

# Python has put the current folder first, before its own library: a `random.py` in it must not be imported.
if not sys.flags.safe_path:
    del sys.path[0]

import importlib.util
from pathlib import Path

if importlib.util.find_spec("actors") is None:  # a clone that is not installed: exactly that folder, and last
    sys.path.append(str(Path(__file__).resolve().parent.parent))

from sim.cli.entry import main

main()
