"""Load a person's own scheme, once the person has named it: no name that only stands in a file is loaded.

A module is looked up among those that are installed and, last, in the current folder. There only the named module or
package is found, so that a `random.py` beside it is never imported.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Iterable

from protocol.errors import BadInput
from protocol.schemes import add_scheme, own_schemes


def load_scheme(name: str) -> None:
    """Import the module of `name`, `module:Class`; without a colon it is one of Keyhole's own and needs no loading."""
    module, colon, attribute = name.partition(":")
    if not colon or name in own_schemes():
        return
    try:
        _find_in_current_folder(module.partition(".")[0])
        found = getattr(importlib.import_module(module), attribute)
    except Exception as error:  # a person's module may raise anything, from a missing name to a syntax error
        raise BadInput(f"The scheme {name} cannot be imported: {type(error).__name__}: {error}.") from error
    add_scheme(name, found)


def load_schemes(names: Iterable[str]) -> None:
    for name in names:
        load_scheme(name)


def _find_in_current_folder(top: str) -> None:
    """Import the module `top` from the current folder if it is not installed."""
    if top in sys.modules or importlib.util.find_spec(top) is not None:
        return
    spec = importlib.machinery.PathFinder.find_spec(top, [os.getcwd()])
    if spec is None or spec.loader is None or not spec.has_location:  # or a folder that is no package
        return
    module = sys.modules[top] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[top]
        raise
