"""The flags that several commands share: the settings of a run, its folder, --json, and permission for a scheme."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

Command = Callable[..., None]

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout and nothing else there.")]
RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run.")]
Out = Annotated[Path | None, typer.Option(help="The run folder. (runs/<time>-<scheme>)")]
Force = Annotated[bool, typer.Option("--force", help="Replace an earlier run in that folder.")]
Verbose = Annotated[bool, typer.Option("--verbose", help="All tables and digests besides the first screen.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Say nothing while it works.")]
TrustScheme = Annotated[
    bool, typer.Option("--trust-scheme", help="Load the scheme that the file names, and run its code.")
]
ConfigFile = Annotated[Path | None, typer.Option(help="A TOML file with these flags, such as a run.toml.")]
NamedScheme = Annotated[
    str | None, typer.Option("--scheme", metavar="module:Class", help="Load this scheme, if the file names it.")
]


def reads_a_run(command: Command) -> Command:
    """Add --scheme and --trust-scheme to a command about a run; the scheme that they allow is loaded first."""

    @functools.wraps(command)
    def wrapper(run: Any, scheme: Any = None, trust_scheme: Any = False, **kwargs: Any) -> None:
        from sim.folder.folder import trust_scheme as allow

        allow(run, scheme, trust_scheme)
        command(run=run, **kwargs)

    return _taking([*_own(command), _parameter("scheme", NamedScheme), _TRUSTING], wrapper)


def takes_configuration(command: Command) -> Command:
    """Give a command all flags of a run; it receives the `RunConfig` that they and a file make."""
    from sim.plan.config import FLAGS

    flags = [_parameter("config", ConfigFile), _TRUSTING, *_options(FLAGS)]

    @functools.wraps(command)
    def wrapper(config: Path | None, trust_scheme: bool, **kwargs: Any) -> None:
        given = {name: kwargs.pop(name) for name in FLAGS}
        command(config=_configuration(config, trust_scheme, _parsed(given)), **kwargs)

    return _taking([*flags, *_own(command, "config")], wrapper)


def takes_flags(command: Command, names: Sequence[str]) -> Command:
    """Give a command some flags of a run by `names`; it receives those that are given as a dictionary `flags`."""

    @functools.wraps(command)
    def wrapper(**kwargs: Any) -> None:
        given = {name: kwargs.pop(name) for name in names}
        command(flags=_parsed(given), **kwargs)

    return _taking([*_options(names), *_own(command, "flags")], wrapper)


def _configuration(file: Path | None, trusted: bool, given: dict[str, Any]) -> Any:
    """Make the `RunConfig`: flags override the configuration file, which overrides the defaults."""
    from actors.own_scheme import load_scheme
    from sim.plan.config import RunConfig, read_config

    made = dataclasses.replace(read_config(file) if file else RunConfig(), **given)
    if "scheme" in given or trusted:  # a scheme that only the file names is not loaded
        load_scheme(made.scheme)
    return made


def _parsed(given: dict[str, Any]) -> dict[str, Any]:
    """Convert the flags that stand on the command line from their text."""
    from sim.plan.config import FLAGS

    parsers = {name: FLAGS[name].parse for name, value in given.items() if value is not None}
    return {name: parse(given[name]) if parse else given[name] for name, parse in parsers.items()}


def _options(names: Iterable[str]) -> list[inspect.Parameter]:
    """Make the options of the flags from the table."""
    from sim.plan.config import FLAGS

    made = []
    for name in names:
        flag = FLAGS[name]
        text: Any = list[str] if flag.kind == dict[str, Any] else str
        option = typer.Option(flag.option, help=flag.summary, metavar=flag.metavar)
        made.append(_parameter(name, Annotated[(text if flag.parse else flag.kind) | None, option]))
    return made


def _own(command: Command, made: str = "") -> list[inspect.Parameter]:
    """List the parameters of a command but for the one that is `made` from others."""
    return [one for one in inspect.signature(command, eval_str=True).parameters.values() if one.name != made]


def _parameter(name: str, annotation: Any, default: Any = None) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _taking(parameters: list[inspect.Parameter], wrapper: Command) -> Command:
    """Show typer these `parameters` as those of the `wrapper`."""
    keyword = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in parameters]
    wrapper.__signature__ = inspect.Signature(keyword)  # type: ignore[attr-defined]
    wrapper.__annotations__ = {one.name: one.annotation for one in keyword}
    return wrapper


_TRUSTING = _parameter("trust_scheme", TrustScheme, False)
