"""The flags that several commands share: the settings of a run, its folder, --json, and permission for a scheme."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

Command = TypeVar("Command", bound=Callable[..., None])

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout and nothing else there.")]
RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run.")]
Out = Annotated[Path | None, typer.Option(help="The run folder. (runs/<time>-<scheme>)")]
Force = Annotated[bool, typer.Option("--force", help="Replace an earlier run in that folder.")]
Verbose = Annotated[bool, typer.Option("--verbose", help="All tables and digests besides the first screen.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Say nothing while it works.")]
TrustScheme = Annotated[
    bool, typer.Option("--trust-scheme", help="Load the scheme that the file names, and run its code.")
]
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


def configuration(
    config: Annotated[Path | None, typer.Option(help="A TOML file with these flags, such as a run.toml.")] = None,
    scheme: Annotated[str | None, typer.Option(help="A name from keyhole schemes, or module:Class. (dynamic)")] = None,
    trust_scheme: TrustScheme = False,
    trust: Annotated[str | None, typer.Option(help="Of covariance: recommender or masked. (recommender)")] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", metavar="OPTION=VALUE", help="Of the scheme.")] = None,
    data: Annotated[str | None, typer.Option(help="A name from keyhole datasets, or a path. (demo)")] = None,
    rating_range: Annotated[str | None, typer.Option(metavar="LOW:HIGH", help="Of a file's ratings. (1:5)")] = None,
    columns: Annotated[str | None, typer.Option(metavar="USER,ITEM,RATING", help="In a file's header. (found)")] = None,
    on_duplicate: Annotated[str | None, typer.Option(help="A pair twice: refuse, last or mean. (refuse)")] = None,
    on_missing: Annotated[str | None, typer.Option(help="No user, item or rating: refuse or drop. (refuse)")] = None,
    epsilon: Annotated[float | None, typer.Option(help="The scheme's published parameter; inf: no noise. (8)")] = None,
    dim: Annotated[int | None, typer.Option(help="Of the factors. (10)")] = None,
    iterations: Annotated[int | None, typer.Option(help="(60 on demo, 20 on demo-small, else 100)")] = None,
    users: Annotated[int | None, typer.Option(help="Only the first N users of the data. (all)")] = None,
    users_per_process: Annotated[str | None, typer.Option(help="A number packs; auto: 1 if it fits. (auto)")] = None,
    transport: Annotated[str | None, typer.Option(help="tcp, ipc or inprocess. (tcp)")] = None,
    wire: Annotated[str | None, typer.Option(help="compact or paper. (compact)")] = None,
    ring_bits: Annotated[int | None, typer.Option(help="Of masked values: 16, 24 … 64. (32, or 64 if need be)")] = None,
    factor_bits: Annotated[int | None, typer.Option(help="Of each factor sent to users: 32 or 16. (32)")] = None,
    publish: Annotated[str | None, typer.Option(help="At the end, to every user: all items or rated. (all)")] = None,
    online: Annotated[int | None, typer.Option(help="The most users in an iteration. (all)")] = None,
    join: Annotated[float | None, typer.Option(help="Probability to come online. (.005; .2 on demo)")] = None,
    leave: Annotated[float | None, typer.Option(help="Probability to go offline. (.01; .02 on demo)")] = None,
    no_rho: Annotated[bool | None, typer.Option("--no-rho", help="Leave the iteration noise out (direct).")] = None,
    on_death: Annotated[str | None, typer.Option(help="Of a user's process: restart or drop. (restart)")] = None,
    deadline: Annotated[float | None, typer.Option(help="Seconds that an iteration may wait for users. (60)")] = None,
    faults: Annotated[str | None, typer.Option(metavar="SEED[:RATE]", help="Lost frames, ended processes.")] = None,
    views: Annotated[str | None, typer.Option(help="Kept for: full, servers, sample:K, none. (full)")] = None,
    test_fraction: Annotated[float | None, typer.Option(help="Of each user's ratings, held out. (.2)")] = None,
    seed: Annotated[int | None, typer.Option(help="Repeat a run; its masks are then not private. (fresh)")] = None,
) -> Any:
    """Make the `RunConfig`: flags override the configuration file, which overrides the defaults."""
    given = {name: value for name, value in locals().items() if value is not None}
    given.pop("config", None)
    from actors.own_scheme import load_scheme
    from sim.plan.config import RunConfig, parse_assignments, parse_packing, parse_range, read_config

    trusted = given.pop("trust_scheme")
    if "set_" in given:
        given["options"] = parse_assignments(given.pop("set_"))
    if "rating_range" in given:
        given["rating_range"] = parse_range(given["rating_range"])
    if "users_per_process" in given:
        given["users_per_process"] = parse_packing(given["users_per_process"])
    made = dataclasses.replace(read_config(config) if config else RunConfig(), **given)
    if scheme is not None or trusted:  # a scheme that only the file names is not loaded
        load_scheme(made.scheme)
    return made


def takes_configuration(command: Command) -> Command:
    """Add all flags of `configuration` to a command, which receives the `RunConfig` made from them."""
    own = [p for p in inspect.signature(command, eval_str=True).parameters.values() if p.name != "config"]
    flags = list(inspect.signature(configuration, eval_str=True).parameters.values())
    names = {flag.name for flag in flags}

    @functools.wraps(command)
    def wrapper(**kwargs: Any) -> None:
        flagged = {name: kwargs.pop(name) for name in names}
        command(config=configuration(**flagged), **kwargs)

    keyword = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in [*flags, *own]]
    wrapper.__signature__ = inspect.Signature(keyword)  # type: ignore[attr-defined]
    wrapper.__annotations__ = {p.name: p.annotation for p in keyword}
    return wrapper  # type: ignore[return-value]
