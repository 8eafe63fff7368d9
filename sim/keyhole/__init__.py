"""`import keyhole`: the verbs of the command line for a notebook or a script, imported from `sim.api` on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sim.api import (
        audit,
        bandwidth,
        bench,
        compare,
        datasets,
        diff,
        evaluate,
        explain,
        fetch,
        load,
        ls,
        new,
        predict_bandwidth,
        recommend,
        replay,
        report,
        reproduce,
        resume,
        run,
        schemes,
        verify,
        view,
        watch,
    )

__all__ = [
    "audit",
    "bandwidth",
    "bench",
    "compare",
    "datasets",
    "diff",
    "evaluate",
    "explain",
    "fetch",
    "load",
    "ls",
    "new",
    "predict_bandwidth",
    "recommend",
    "replay",
    "report",
    "reproduce",
    "resume",
    "run",
    "schemes",
    "verify",
    "view",
    "watch",
]


if not TYPE_CHECKING:  # a type checker takes the names from the imports above, and so finds a misspelt one

    def __getattr__(name: str) -> Any:
        if name in __all__:
            from sim import api

            return getattr(api, name)
        if name == "__version__":
            from importlib import metadata

            return metadata.version("keyhole")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
