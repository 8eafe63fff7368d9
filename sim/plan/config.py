"""The configuration of a run: flags and configuration file, checked and resolved against a scheme and its data."""

from __future__ import annotations

import dataclasses
import math
import secrets
import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from msgspec import UNSET, Meta, UnsetType, defstruct

from protocol.cheats.cheat import check_cheat
from protocol.errors import BadInput, did_you_mean
from protocol.params import require
from protocol.schemes import Scheme, find_scheme
from protocol.schemes.base import DELTA
from sim.data.rating_table import ON_DUPLICATE, ON_MISSING, ReadingRules
from sim.foreign import untrusted
from sim.plan.flag import ALL, DECLARED, FACTORIZATIONS, Flag, flag, table, words_of

AUTO = "auto"
_ALWAYS = ("scheme", "data", "seed")  # in a command, even if they are the default
SEED_BITS = 128  # of a fresh seed; no mask of the run is stronger than that


def parse_assignments(assignments: list[str]) -> dict[str, str]:
    options = {}
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        require(bool(equals and name), f"--set takes OPTION=VALUE, not {assignment!r}.")
        options[name] = value
    return options


def parse_range(text: str) -> tuple[float, float]:
    low, _, high = text.partition(":")
    try:
        return float(low), float(high)
    except ValueError:
        raise BadInput(f"--rating-range takes LOW:HIGH such as 1:5, not {text!r}.") from None


def parse_packing(value: Any) -> int | None:
    """Parse the number of users that share a process; None for `auto`."""
    if value == AUTO or type(value) is int:
        return None if value == AUTO else value
    if type(value) is str and value.isdecimal():
        return int(value)
    raise BadInput(f"--users-per-process takes {AUTO} or a whole number, not {value!r}.")


_OPTIONS = Flag(
    help="An option of the scheme. May be given several times.", metavar="OPTION=VALUE", parse=parse_assignments,
    kept=dict[str, bool | int | float | str],
)  # fmt: skip
_Digits = Annotated[str, Meta(pattern=r"^[0-9]{1,100}\Z")]
_PROBABILITY = (lambda value: 0 <= value <= 1, "a probability between 0 and 1")


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """The table of the flags of `keyhole run`. Command line, configuration file and Python calls follow from it.

    None means that a flag was not given, so the scheme or the data decides.
    """

    scheme: str = flag("dynamic", "A name from keyhole schemes, or module:Class.")
    trust: str | None = flag(
        None, "Who is trusted with the ratings (covariance): recommender or masked.", shown="recommender"
    )
    data: str = flag("demo", "A name from keyhole datasets, or a path.")
    rating_range: tuple[float, float] | None = flag(
        None, "The lowest and highest rating in a file.", shown="1:5", metavar="LOW:HIGH", parse=parse_range,
        kept=tuple[float, float],
    )  # fmt: skip
    columns: str | None = flag(
        None, "The columns in a file's header. A fourth is the time.", shown="found", metavar="USER,ITEM,RATING"
    )
    on_duplicate: str = flag("refuse", "A pair twice: refuse, last or mean.", among=ON_DUPLICATE)
    on_missing: str = flag("refuse", "No user, item or rating: refuse or drop.", among=ON_MISSING)
    epsilon: float | None = flag(
        None, "The scheme's published parameter; inf: no noise.", otherwise=8.0, taken_by=DECLARED, seen=True,
        must=(lambda value: not math.isnan(value), "a number"),
    )  # fmt: skip
    delta: float | None = flag(
        None, "The δ at which ε is of the whole run (hardened).", otherwise=DELTA, taken_by=DECLARED, seen=True,
        must=(lambda value: 0 < value < 0.5, "above 0 and below 0.5"),
    )  # fmt: skip
    unit: str | None = flag(
        None, "Whom ε protects (hardened): user, rating, value.", otherwise="user", taken_by=DECLARED, seen=True
    )
    item_features: str | None = flag(
        None, "Public item facts (hardened): auto, none or a CSV.", otherwise="auto", taken_by=DECLARED, seen=True
    )
    budget: float | None = flag(
        None, "Refuse a run whose accounted ε is above this.", must=(lambda value: value > 0, "above 0")
    )
    dim: int | None = flag(None, "Dimension of the factors.", otherwise=10, taken_by=FACTORIZATIONS, seen=True)
    iterations: int | None = flag(
        None, "Number of iterations.", otherwise=100, on={"demo": 60, "demo-small": 20}, taken_by=FACTORIZATIONS,
        seen=True,
    )  # fmt: skip
    users: int | None = flag(None, "Only the first N users of the data.", shown="all")
    users_per_process: int | None = flag(  # None: one, or more if that is needed to fit on this machine
        None, "A number packs; auto: 1 if it fits.", shown=AUTO, parse=parse_packing, kept=Any, read=parse_packing,
        must=(lambda value: type(value) is int and value >= 1, "auto, or 1 or more"),
    )  # fmt: skip
    transport: str = flag("tcp", "tcp, ipc or inprocess.", among=("tcp", "ipc", "inprocess"))
    wire: str | None = flag(None, "compact or paper.", otherwise="compact", taken_by=DECLARED, seen=True)
    ring_bits: int | None = flag(
        None, "Bits of a masked value: 16, 24 … 64.", shown="32, or 64 if need be", taken_by=DECLARED, seen=True
    )
    factor_bits: int | None = flag(
        None, "Bits of each factor sent to users: 32 or 16.", otherwise=32, taken_by=DECLARED, seen=True
    )
    publish: str | None = flag(
        None, "What every user gets at the end: all items or rated.", otherwise="all", taken_by=DECLARED, seen=True
    )
    online: int | None = flag(
        None, "The most users in an iteration.", shown="all", taken_by=DECLARED, seen=True
    )
    join: float | None = flag(
        None, "Probability to come online.", otherwise=0.005, on={"demo": 0.2}, taken_by=DECLARED, must=_PROBABILITY
    )
    leave: float | None = flag(
        None, "Probability to go offline.", otherwise=0.01, on={"demo": 0.02}, taken_by=DECLARED, must=_PROBABILITY
    )
    no_rho: bool = flag(False, "Leave the iteration noise out (direct).", taken_by=DECLARED)
    on_death: str = flag("restart", "When a user's process ends: restart or drop.", among=("restart", "drop"))
    deadline: float = flag(
        60.0, "Seconds that an iteration may wait for users.", must=(lambda value: value > 0, "above 0 seconds")
    )
    cheat: str | None = flag(
        None, "A party that cheats, such as recommender:isolate.", metavar="PARTY:KIND"
    )
    faults: str | None = flag(None, "Lose frames and end processes, as the seed decides.", metavar="SEED[:RATE]")
    views: str = flag("full", "Parties that keep a view: full, servers, sample:K, none.")
    test_fraction: float = flag(
        0.2, "Share of each user's ratings that is held out.", must=(lambda value: 0 <= value < 1, "in [0, 1)")
    )
    seed: int | None = flag(  # text in a file, because integers in TOML have at most 64 bits
        None, "Repeat a run; its masks are then not private.", shown="fresh", kept=int | _Digits, read=int, write=str,
        must=(lambda value: value >= 0, "0 or more"),
    )  # fmt: skip
    options: dict[str, Any] = field(default_factory=dict, metadata={"flag": _OPTIONS})

    def check(self) -> None:
        for name, one in FLAGS.items():
            one.check(getattr(self, name))
        self.reading()
        chosen_views(self.views, [])

    def reading(self) -> ReadingRules:
        """Return the rules by which the file of ratings is read."""
        names = tuple(name.strip() for name in self.columns.split(",")) if self.columns is not None else ()
        distinct = len(set(names)) == len(names) and all(names)
        fits = not names or (len(names) in (3, 4) and distinct)
        require(fits, f"--columns takes USER,ITEM,RATING or USER,ITEM,RATING,TIME, not {self.columns!r}.")
        return ReadingRules(names, self.on_duplicate, self.on_missing)


FLAGS = table(RunConfig)
_FORM = defstruct("Settings", [(name, one.form | UnsetType, UNSET) for name, one in FLAGS.items()])


def resolve(config: RunConfig) -> tuple[RunConfig, Scheme, bool]:
    """Return (`config` with the defaults filled in, the scheme, whether the person gave the seed)."""
    config.check()
    config, scheme = _trusting(config)
    simulation = config.seed is not None
    filled = {name: _filled(one, config, scheme) for name, one in FLAGS.items() if one.taken_by != ALL}
    if config.cheat is not None:
        check_cheat(config.cheat, scheme.name, filled.get("wire"))
    drops = config.on_death == "drop"
    require(not drops or scheme.goes_on_without, f"{scheme.name} waits for every user: leave --on-death drop out.")
    filled["seed"] = config.seed if config.seed is not None else secrets.randbits(SEED_BITS)
    options = check_options(scheme, config.options)
    if "ring_bits" in scheme.flags and "ring_bits" in options:  # the same setting by another name
        filled["ring_bits"] = _same("--ring-bits", filled["ring_bits"], "--set ring_bits", options.pop("ring_bits"))
    return dataclasses.replace(config, **filled, options=options), scheme, simulation


def _filled(one: Flag, config: RunConfig, scheme: Scheme) -> Any:
    """Return the value of the flag: given or by default if `scheme` takes it, else fixed or not set."""
    given = getattr(config, one.name)
    if one.takes(scheme):
        return one.on.get(config.data, one.otherwise) if given is None else given
    fixed = {"dim": 1, "iterations": scheme.rounds}.get(one.name)
    require(given in (one.default, fixed), f"The scheme {scheme.name} does not take {one.option}: leave it out.")
    return given if fixed is None else fixed


def _trusting(config: RunConfig) -> tuple[RunConfig, Scheme]:
    """Return the scheme that `--trust` chooses, and `config` with the name of that scheme."""
    scheme = find_scheme(config.scheme)
    if config.trust is None:
        return config, scheme
    require(bool(scheme.trust), f"The scheme {scheme.name} does not take --trust: leave it out.")
    known = config.trust in scheme.trust
    require(known, f"--trust must be one of {', '.join(scheme.trust)} with {scheme.name}, not {config.trust!r}.")
    chosen = find_scheme(scheme.trust[config.trust])
    return dataclasses.replace(config, scheme=chosen.name, trust=None), chosen


def _same(flag: str, given: Any, option: str, other: Any) -> Any:
    require(given in (None, other), f"{flag} {given} and {option}={other} contradict each other: give one of them.")
    return other


def check_options(scheme: Scheme, options: dict[str, Any]) -> dict[str, Any]:
    """Convert values of `--set` to the type of the scheme's default; an option without a default is a number."""
    checked = {}
    for name, value in options.items():
        if name not in scheme.options:
            takes = ", ".join(scheme.options) or "none"
            near = did_you_mean(name, scheme.options)
            raise BadInput(f"The scheme {scheme.name} has no option {name!r}; it takes {takes}{near}.")
        checked[name] = _typed(name, value, scheme.options[name])
    return checked


def _typed(name: str, value: Any, default: Any) -> Any:
    if default is None:
        default = 0 if isinstance(value, int) or str(value).lstrip("-").isdecimal() else 0.0
    try:
        if isinstance(default, bool):
            return {"true": True, "false": False}[str(value).lower()]
        return type(default)(value)
    except (ValueError, KeyError):
        kind = {bool: "true or false", int: "a whole number", float: "a number"}.get(type(default), "a text")
        raise BadInput(f"The option {name} must be {kind}, not {value!r}.") from None


def chosen_views(policy: str, parties: list[str]) -> frozenset[str]:
    """Return the `parties` that keep a view; `sample:K` means the servers and K users at even distances."""
    servers = [party for party in parties if not party.startswith("user:")]
    users = [party for party in parties if party.startswith("user:")]
    kind, _, number = policy.partition(":")
    if policy == "full":
        return frozenset(parties)
    if policy == "servers":
        return frozenset(servers)
    if policy == "none":
        return frozenset()
    if kind == "sample" and number.isdecimal() and len(number) < 19 and int(number) >= 1:
        count = min(int(number), len(users))
        return frozenset(servers) | {users[at * len(users) // count] for at in range(count)}
    raise BadInput(f"--views must be full, servers, sample:K or none, not {policy!r}.")


def read_config(path: Path) -> RunConfig:
    """Read a TOML file with the flags of `run` (dashes or underscores) at its top level or in a table [run]."""
    try:
        with untrusted.open_regular(path) as file:
            document = untrusted.parse_toml(untrusted.read_at_most(file, untrusted.MOST_TOML_BYTES))
    except OSError as error:
        raise BadInput(f"Cannot read the configuration {path}: {error.strerror}.") from error
    except ValueError as error:
        raise BadInput(f"{path} is not valid TOML: {error}.") from error
    return config_of(document, path)


def config_of(document: dict[str, Any], path: Path) -> RunConfig:
    """Make the configuration from the TOML `document` that was read from the file `path`."""
    given = document.get("run", document)
    require(type(given) is dict, f"{path}: run must be a table of settings.")
    values = {name.replace("-", "_"): value for name, value in given.items()}
    unknown = [f"{name}{did_you_mean(name, FLAGS)}" for name in sorted(set(values) - set(FLAGS))]
    require(not unknown, f"{path} has unknown settings {', '.join(unknown)}; it may have {', '.join(sorted(FLAGS))}.")
    try:
        made = untrusted.fit(values, _FORM)
    except ValueError as error:
        raise BadInput(f"{path}: {str(error).replace('$.', '$.run.' if given is not document else '$.')}.") from None
    return RunConfig(**{name: FLAGS[name].from_file(getattr(made, name)) for name in values})


def flags_of(config: RunConfig) -> str:
    """Write the shortest list of flags that gives `config`, which is resolved, as in a run.toml.

    `users_per_process` counts as 1 by default: it decides how a run is laid out, and no result.
    """
    bare = RunConfig(**{name: getattr(config, name) for name in _ALWAYS})
    default, _, _ = resolve(bare)
    default = dataclasses.replace(default, users_per_process=1)
    given = {name: getattr(config, name) for name in FLAGS}
    asked = [(name, value) for name, value in given.items() if name in _ALWAYS or value != getattr(default, name)]
    return shlex.join(word for name, value in asked for word in words_of(name, value))


def settings_for_file(config: RunConfig) -> dict[str, Any]:
    """Return the settings as `read_config` reads them; those that are not set are left out."""
    return {name: FLAGS[name].to_file(value) for name, value in vars(config).items() if value is not None}
