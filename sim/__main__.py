"""`python -m sim` is `keyhole`."""

import sys

# Python has put the current folder first, before its own library: a `random.py` in it must not be imported.
if not sys.flags.safe_path:
    del sys.path[0]

import importlib.util
import os

_ROOT = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
_FOUND = importlib.util.find_spec("actors")

if _FOUND is None:  # a clone that is not installed: exactly that folder, and last
    sys.path.append(_ROOT)
elif os.path.realpath(_FOUND.origin or "") != os.path.join(_ROOT, "actors", "__init__.py"):  # of another Keyhole
    packages = (place for place, folder in enumerate(sys.path) if folder.endswith("-packages"))
    sys.path.insert(next(packages, len(sys.path)), _ROOT)

from sim.cli.entry import main

main()
