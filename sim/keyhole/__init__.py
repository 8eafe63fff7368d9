"""`import keyhole`: the verbs of the command line for a notebook or a script, imported from `sim.api` on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sim.api import *  # noqa: F403


if not TYPE_CHECKING:  # a type checker takes the names from the import above, and so finds a misspelt one

    def __getattr__(name: str) -> Any:
        if name == "__version__":
            from importlib import metadata

            return metadata.version("keyhole")
        if name == "__all__" or not name.startswith("__"):
            from sim import api

            if name == "__all__" or name in api.__all__:
                return getattr(api, name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    from sim import api

    return api.__all__
