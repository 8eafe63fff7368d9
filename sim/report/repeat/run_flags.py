"""The shortest list of flags of `keyhole run` that gives a configuration."""

from __future__ import annotations

import dataclasses
import shlex
from typing import Any

from sim.plan.config import RunConfig, resolve

_ALWAYS = ("scheme", "data", "seed")  # given even if they are the default


def flags_of(config: RunConfig) -> str:
    """List the flags that give `config`, which is resolved, as in a run.toml.

    `users_per_process` counts as 1 by default: it decides how a run is laid out, and no result.
    """
    bare = RunConfig(**{name: getattr(config, name) for name in _ALWAYS})
    default, _, _ = resolve(bare)
    default = dataclasses.replace(default, users_per_process=1)
    words = []
    for entry in dataclasses.fields(RunConfig):
        value = getattr(config, entry.name)
        if entry.name != "options" and (entry.name in _ALWAYS or value != getattr(default, entry.name)):
            words += _flag(entry.name, value)
    for name, value in config.options.items():
        words += ["--set", f"{name}={_text(value)}"]
    return " ".join(map(shlex.quote, words))


def _flag(name: str, value: Any) -> list[str]:
    flag = f"--{name.replace('_', '-')}"
    if isinstance(value, bool):
        return [flag] if value else []
    if value is None:
        return []
    return [flag, f"{value[0]!r}:{value[1]!r}" if isinstance(value, tuple) else _text(value)]


def _text(value: Any) -> str:
    """Format `value` with every digit of a number."""
    return str(value).lower() if isinstance(value, bool) else value if isinstance(value, str) else repr(value)
