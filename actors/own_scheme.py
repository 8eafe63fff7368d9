"""Loading a scheme of one's own, once a person has named it: nothing that stands in a file comes here by itself.

A module is looked up among those that are installed and, last, in the current folder: there only the one module or
package that was named, so that a `random.py` which lies beside it is nothing to anybody.
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
    """Import the module of `module:Class`; a name without a colon is one of Keyhole's own and needs no loading."""
    module, colon, attribute = name.partition(":")
    if not colon or name in own_schemes():
        return
    try:
        _find_in_current_folder(module.partition(".")[0])
        found = getattr(importlib.import_module(module), attribute)
    except Exception as error:  # whatever a person's module raises, from a missing name to a syntax error
        raise BadInput(f"The scheme {name} cannot be imported: {type(error).__name__}: {error}.") from error
    add_scheme(name, found)


def load_schemes(names: Iterable[str]) -> None:
    for name in names:
        load_scheme(name)


def _find_in_current_folder(top: str) -> None:
    """Import this module from the current folder if it is installed nowhere."""
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
