"""A stand-in for a scheme whose code the person has not allowed to load: it has a name and parties, and does nothing.

Questions that the folder alone answers are still answered: chain, signatures, heads, bytes, number of frames by kind.
Those that need the scheme's code (roles, messages, formula, claims) are refused, and the message says how to allow it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import msgpack

from protocol.arithmetic.tape import Tape
from protocol.attendance import Course
from protocol.card import Card
from protocol.params import RING_WIDTH, Params, between, declared
from protocol.party.role import RECOMMENDER, THIRD_PARTY, Role, UserInput
from protocol.schemes import Scheme, Setting, UntrustedScheme
from protocol.wire.codec import Codec
from protocol.wire.framing import HEAD_BYTES, Flow
from protocol.wire.messages import Hello
from sim.foreign import untrusted
from sim.foreign.bounds import check_params

_SERVER = re.compile(r"[a-z][a-z0-9_]{0,63}")
_SERVER_FILE = re.compile(rf"({_SERVER.pattern})\.view")
_MOST_SERVERS = 100
_MOST_KINDS = 16  # fields of a frame


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedParams(Params):
    stated: dict[str, Any]  # [params] of run.toml, including entries that only the scheme knows
    dim: int = declared(between(1, untrusted.MOST_NUMBERS), otherwise=1)
    ring_bits: int = declared(*RING_WIDTH, otherwise=64)
    fraction_bits: int = declared(between(0, 64), otherwise=24)
    factor_bits: int = declared(lambda value: value in (16, 32), otherwise=32)

    def digest(self) -> bytes:
        return hashlib.sha256(msgpack.packb(self.stated)).digest()


class Unloaded(Scheme):
    title = source = claims = unit = "not known: the scheme is not loaded"
    messages = (Hello,)
    params_class = StatedParams

    def _refuse(self) -> NoReturn:
        words = "is not loaded, and this cannot be asked without it: add --trust-scheme if you trust its code"
        raise UntrustedScheme(f"The scheme {self.name!r} {words}.")

    def make_role(self, party: str, setting: Setting, tape: Tape, inputs: UserInput | None) -> Role:
        self._refuse()

    def formula(self, params: Params, course: Course) -> Iterator[Flow]:
        self._refuse()

    def make_codec(self, params: Params) -> Codec:
        self._refuse()


def is_loaded(card: Card) -> bool:
    return card.scheme.params_class is not StatedParams


def unloaded_card(folder: Path, stated: dict[str, Any], run_id: bytes, simulation: bool) -> Card:
    """Make a card with a stand-in; `KeyError` or `ValueError` if parameters that every scheme has are not sound."""
    known = {entry.name: stated[entry.name] for entry in dataclasses.fields(Params)}
    usual = StatedParams.defaults("dim", "ring_bits", "fraction_bits", "factor_bits")
    params = StatedParams(**known, **{name: stated.get(name, value) for name, value in usual.items()}, stated=stated)
    check_params(params)
    scheme = type("Unloaded", (Unloaded,), {"name": params.scheme, "servers": _servers(folder)})
    return Card(scheme(), params, run_id, simulation)


def _servers(folder: Path) -> tuple[str, ...]:
    """List the parties other than users that keep a view or that the summary names; the usual two without any."""
    usual, found = (RECOMMENDER, THIRD_PARTY), set()
    with contextlib.suppress(OSError):
        found = {match[1] for file in (folder / "views").iterdir() if (match := _SERVER_FILE.fullmatch(file.name))}
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        ends = "->".join(untrusted.read_json(folder, "summary.json")["bytes"]["edges"]).split("->")
        found |= {name for name in ends if name != "user" and _SERVER.fullmatch(name)}
    ordered = sorted(found, key=lambda name: (usual.index(name) if name in usual else len(usual), name))
    return tuple(ordered[:_MOST_SERVERS]) or usual


def kind_of_frame(frame: bytes) -> str:
    """Name the kind of a frame by its number on the wire, because only the scheme's code knows what it means."""
    try:
        body = msgpack.unpackb(frame[:-HEAD_BYTES], max_array_len=_MOST_KINDS, max_map_len=0, max_str_len=0)
    except (ValueError, msgpack.UnpackException):
        return "unreadable"
    return f"kind {body[0]}" if type(body) is list and body and type(body[0]) is int else "unreadable"
