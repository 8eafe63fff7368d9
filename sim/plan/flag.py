"""A flag of a run: what the command line, a configuration file and a scheme must know of one setting.

The table of all flags is `RunConfig` in `config.py`; each of its fields is made by `flag`.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, get_args, get_type_hints

from msgspec import Meta

from protocol.params import require
from protocol.schemes import Scheme
from sim.foreign.bounds import Whole

ALL, DECLARED, FACTORIZATIONS = "all", "declared", "factorizations"  # the schemes that take a flag
_FORMS = {int: Whole, str: Annotated[str, Meta(max_length=4096, pattern=r"^[^\0]*\Z")]}  # in a configuration file


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """One setting of a run. `name`, `kind` and `default` are those of its field in the table."""

    help: str
    name: str = ""
    kind: Any = str
    default: Any = None
    otherwise: Any = None  # the value where none is given, of a flag that only some schemes take
    on: Mapping[str, Any] = field(default_factory=dict)  # data set -> the same for that data
    shown: str | None = None  # the default in words, where it is not a value
    metavar: str | None = None
    taken_by: str = ALL
    seen: bool = False  # roles see it: it goes to `Scheme.make_params`
    among: tuple[str, ...] = ()  # the only values
    must: tuple[Callable[[Any], bool], str] | None = None  # a condition, and what the value must be in words
    parse: Callable[[Any], Any] | None = None  # converts the text of the command line
    kept: Any = None  # its type in a configuration file, if that is not the type of its values
    read: Callable[[Any], Any] | None = None  # converts the value of a configuration file, which is of that type
    write: Callable[[Any], Any] | None = None  # the opposite of `read`

    @property
    def option(self) -> str:
        return option_of(self.name)

    @property
    def summary(self) -> str:
        """Write the help with the default in parentheses."""
        if self.shown is not None:
            return f"{self.help} ({self.shown})"
        value = self.default if self.otherwise is None else self.otherwise
        plain = value is None or isinstance(value, bool) or self.kind == dict[str, Any]
        differing = [f"{_short(other)} on {data}" for data, other in self.on.items()]
        last = f"else {_short(value)}" if differing else _short(value)
        return self.help if plain else f"{self.help} ({', '.join([*differing, last])})"

    def takes(self, scheme: Scheme) -> bool:
        return {DECLARED: self.name in scheme.flags, FACTORIZATIONS: scheme.factorizes}.get(self.taken_by, True)

    def check(self, value: Any) -> None:
        if value is None:
            return
        known = not self.among or value in self.among
        require(known, f"{self.option} must be one of {', '.join(self.among)}, not {value!r}.")
        if self.must is not None:
            fits, words = self.must
            require(fits(value), f"{self.option} must be {words}, not {_short(value)}.")

    @property
    def form(self) -> Any:
        """Return the type of its value in a configuration file."""
        return _FORMS.get(self.kind, self.kind) if self.kept is None else self.kept

    def from_file(self, value: Any) -> Any:
        return value if self.read is None else self.read(value)

    def to_file(self, value: Any) -> Any:
        return value if self.write is None else self.write(value)


def flag(default: Any, help: str, **rules: Any) -> Any:
    """Make a field of the table of flags with the given `default`, `help` and further fields of a `Flag`."""
    return field(default=default, metadata={"flag": Flag(help=help, **rules)})


def table(config: type) -> dict[str, Flag]:
    """List the flags of the dataclass `config` by name."""
    kinds = get_type_hints(config)
    return {
        entry.name: dataclasses.replace(
            entry.metadata["flag"], name=entry.name, kind=_kind(kinds[entry.name]), default=entry.default
        )
        for entry in dataclasses.fields(config)
    }


def option_of(name: str) -> str:
    return "--set" if name == "options" else f"--{name.replace('_', '-')}"


def words_of(name: str, value: Any) -> list[str]:
    """Write a setting as words of the command line, with every digit of its numbers; no words if it is not set."""
    if value is None or value is False:
        return []
    if value is True:
        return [option_of(name)]
    if isinstance(value, Mapping):
        return [word for option, one in value.items() for word in ("--set", f"{option}={_exact(one)}")]
    return [option_of(name), ":".join(map(_exact, value)) if isinstance(value, tuple) else _exact(value)]


def _exact(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else value if isinstance(value, str) else repr(value)


def _short(value: Any) -> str:
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return text[1:] if text.startswith("0.") else text


def _kind(hint: Any) -> Any:
    return get_args(hint)[0] if isinstance(hint, types.UnionType) else hint
