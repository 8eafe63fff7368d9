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


def __getattr__(name: str) -> Any:
    if name in __all__:
        from sim import api

        return getattr(api, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
