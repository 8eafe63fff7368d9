"""The two flags with which a person allows a scheme of somebody's own to be loaded."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

import typer

from sim.folder.folder import trust_scheme

Command = TypeVar("Command", bound=Callable[..., None])

TrustScheme = Annotated[
    bool, typer.Option("--trust-scheme", help="Load the scheme that the file names, and run its code.")
]
NamedScheme = Annotated[
    str | None, typer.Option("--scheme", metavar="module:Class", help="Load this scheme, if the file names it.")
]


def reads_a_run(command: Command) -> Command:
    """Give a command about a run the two flags, and load what they allow before it begins."""

    @functools.wraps(command)
    def wrapper(run: Any, scheme: Any = None, trust_scheme: Any = False, **kwargs: Any) -> None:
        _allow(run, scheme, trust_scheme)
        command(run=run, **kwargs)

    own = [
        parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for parameter in inspect.signature(command, eval_str=True).parameters.values()
    ]
    flags = [
        inspect.Parameter("scheme", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=NamedScheme),
        inspect.Parameter("trust_scheme", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=TrustScheme),
    ]
    wrapper.__signature__ = inspect.Signature([*own, *flags])  # type: ignore[attr-defined]
    wrapper.__annotations__ = {parameter.name: parameter.annotation for parameter in [*own, *flags]}
    return wrapper  # type: ignore[return-value]


_allow = trust_scheme  # the flag has the same name
