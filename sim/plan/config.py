"""The configuration of a run: flags and configuration file, checked and resolved against a scheme and its data."""

from __future__ import annotations

import dataclasses
import math
import secrets
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from protocol.errors import BadInput, did_you_mean
from protocol.params import require
from protocol.schemes import Scheme, find_scheme
from sim.data.rating_table import ON_DUPLICATE, ON_MISSING, ReadingRules
from sim.foreign import untrusted

TRANSPORTS = ("tcp", "ipc", "inprocess")
ON_DEATH = ("restart", "drop")
FLAG_DEFAULTS: dict[str, Any] = {  # flags that only some schemes take; online: all users
    "epsilon": 8.0,
    "wire": "compact",
    "ring_bits": None,  # 32 if that holds every sum, else 64
    "factor_bits": 32,
    "publish": "all",
    "online": None,
    "join": 0.005,
    "leave": 0.01,
    "no_rho": False,
}
DIM, ITERATIONS = 10, 100
# Defaults that differ by data set. A run on `demo` should take seconds, with most of its users online.
DATA_DEFAULTS: dict[str, dict[str, Any]] = {
    "demo": {"iterations": 60, "join": 0.2, "leave": 0.02},
    "demo-small": {"iterations": 20},
}
AUTO = "auto"
MOST_NUMBER, MOST_TEXT = 2**53, 4096  # in a configuration file
SEED_BITS = 128  # of a fresh seed; no mask of the run is stronger than that


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """The flags of `keyhole run`. None means that a flag was not given, so the scheme or the data decides."""

    scheme: str = "dynamic"
    trust: str | None = None
    data: str = "demo"
    rating_range: tuple[float, float] | None = None
    columns: str | None = None  # user,item,rating[,time], as named in the header of the file
    on_duplicate: str = "refuse"
    on_missing: str = "refuse"
    epsilon: float | None = None
    dim: int | None = None
    iterations: int | None = None
    users: int | None = None
    users_per_process: int | None = None  # None: one, or more if that is needed to fit on this machine
    transport: str = "tcp"
    wire: str | None = None
    ring_bits: int | None = None
    factor_bits: int | None = None
    publish: str | None = None
    online: int | None = None
    join: float | None = None
    leave: float | None = None
    no_rho: bool = False
    on_death: str = "restart"
    deadline: float = 60.0
    faults: str | None = None
    views: str = "full"
    test_fraction: float = 0.2
    seed: int | None = None
    options: dict[str, Any] = field(default_factory=dict)

    def check(self) -> None:
        require(self.transport in TRANSPORTS, f"--transport must be one of {', '.join(TRANSPORTS)}.")
        require(self.on_death in ON_DEATH, f"--on-death must be one of {', '.join(ON_DEATH)}, not {self.on_death!r}.")
        for flag, chosen, known in (
            ("duplicate", self.on_duplicate, ON_DUPLICATE),
            ("missing", self.on_missing, ON_MISSING),
        ):
            require(chosen in known, f"--on-{flag} must be one of {', '.join(known)}, not {chosen!r}.")
        self.reading()
        for name, value in (("join", self.join), ("leave", self.leave)):
            require(value is None or 0 <= value <= 1, f"--{name} must be a probability between 0 and 1, not {value}.")
        require(self.deadline > 0, f"--deadline must be above 0 seconds, not {self.deadline:g}.")
        packed = self.users_per_process
        whole = packed is None or (type(packed) is int and packed >= 1)
        require(whole, f"--users-per-process must be auto, or 1 or more, not {packed}.")
        require(0 <= self.test_fraction < 1, f"--test-fraction must be in [0, 1), not {self.test_fraction:g}.")
        require(self.seed is None or self.seed >= 0, "--seed must be 0 or more.")
        require(not (self.epsilon is not None and math.isnan(self.epsilon)), "--epsilon must be a number.")
        chosen_views(self.views, [])

    def reading(self) -> ReadingRules:
        """Return the rules by which the file of ratings is read."""
        names = tuple(name.strip() for name in self.columns.split(",")) if self.columns is not None else ()
        distinct = len(set(names)) == len(names) and all(names)
        fits = not names or (len(names) in (3, 4) and distinct)
        require(fits, f"--columns takes USER,ITEM,RATING or USER,ITEM,RATING,TIME, not {self.columns!r}.")
        return ReadingRules(names, self.on_duplicate, self.on_missing)


def resolve(config: RunConfig) -> tuple[RunConfig, Scheme, bool]:
    """Return (`config` with the defaults filled in, the scheme, whether the person gave the seed)."""
    config.check()
    config, scheme = _trusting(config)
    simulation = config.seed is not None
    given: dict[str, Any] = {flag: getattr(config, flag) for flag in FLAG_DEFAULTS}
    for flag, value in given.items():
        takes = flag in scheme.flags or value in (None, False)
        require(takes, f"The scheme {scheme.name} does not take --{flag.replace('_', '-')}: leave it out.")
    drops = config.on_death == "drop"
    require(not drops or scheme.goes_on_without, f"{scheme.name} waits for every user: leave --on-death drop out.")
    taken = scheme.flags & set(given)
    defaults = FLAG_DEFAULTS | DATA_DEFAULTS.get(config.data, {})
    filled = {flag: given[flag] if given[flag] is not None else defaults[flag] for flag in taken}
    seed = config.seed if config.seed is not None else secrets.randbits(SEED_BITS)
    options = check_options(scheme, config.options)
    if "ring_bits" in taken and "ring_bits" in options:  # the same setting by another name
        filled["ring_bits"] = _same("--ring-bits", filled["ring_bits"], "--set ring_bits", options.pop("ring_bits"))
    filled |= {"dim": _size(config, scheme, "dim"), "iterations": _size(config, scheme, "iterations")}
    return dataclasses.replace(config, **filled, seed=seed, options=options), scheme, simulation


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


def _size(config: RunConfig, scheme: Scheme, flag: str) -> int:
    """Return `dim` or `iterations`: given or by default for a factorization, fixed for every other scheme."""
    given: int | None = getattr(config, flag)
    if scheme.factorizes:
        defaults = {"dim": DIM, "iterations": ITERATIONS} | DATA_DEFAULTS.get(config.data, {})
        return given if given is not None else int(defaults[flag])
    fixed = {"dim": 1, "iterations": scheme.rounds}[flag]
    require(given in (None, fixed), f"The scheme {scheme.name} does not take --{flag}: leave it out.")
    return fixed


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


def parse_assignments(assignments: list[str]) -> dict[str, str]:
    options = {}
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        require(bool(equals and name), f"--set takes OPTION=VALUE, not {assignment!r}.")
        options[name] = value
    return options


def parse_range(text: str | None) -> tuple[float, float] | None:
    if text is None:
        return None
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
    table = document.get("run", document)
    require(type(table) is dict, f"{path}: run must be a table of settings.")
    known = {field.name for field in dataclasses.fields(RunConfig)}
    values = {name.replace("-", "_"): value for name, value in table.items()}
    unknown = [f"{name}{did_you_mean(name, known)}" for name in sorted(set(values) - known)]
    require(not unknown, f"{path} has unknown settings {', '.join(unknown)}; it may have {', '.join(sorted(known))}.")
    return _from_values(values, path)


def _from_values(values: dict[str, Any], path: Path) -> RunConfig:
    converters: dict[str, Any] = {
        "epsilon": float,
        "seed": int,  # written as text, because integers in TOML have at most 64 bits
        "deadline": float,
        "test_fraction": float,
        "join": float,
        "leave": float,
        "users_per_process": parse_packing,
        "rating_range": lambda pair: (float(pair[0]), float(pair[1])),
        "options": _check_options,
    }
    numbers = {"dim", "iterations", "users", "online", "ring_bits", "factor_bits"}
    texts = {"scheme", "trust", "data", "transport", "wire", "publish", "views", "on_death", "faults"}
    texts |= {"columns", "on_duplicate", "on_missing"}
    for name, value in values.items():
        try:
            if name in converters:
                values[name] = converters[name](value)
            wrong = (name in numbers and (type(value) is not int or abs(value) > MOST_NUMBER)) or (
                name in texts and (type(value) is not str or len(value) > MOST_TEXT or "\0" in value)
            )
            wrong = wrong or (name == "no_rho" and type(value) is not bool)
        except (TypeError, ValueError, IndexError, KeyError, OverflowError):
            wrong = True
        require(not wrong, f"{path}: the setting {name} cannot be {str(value)[:60]!r}.")
    return RunConfig(**values)


def _check_options(options: Any) -> dict[str, Any]:
    if type(options) is not dict or not all(type(value) in (bool, int, float, str) for value in options.values()):
        raise ValueError("options are a table of names and values")
    return options
