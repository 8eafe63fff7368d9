"""The roster of parties and public keys that every party holds, and the secrets that each party holds alone.

Both are sent to the zygote as plain dictionaries of JSON types; `sim/run/key_files.py` keeps the same in files.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from actors.metering.observer import HeldOut
from actors.own_scheme import load_scheme
from actors.transport.zeromq import Address, KeyPair
from protocol.card import Card, Seat
from protocol.party.role import UserInput
from protocol.party.signing import Signer
from protocol.schemes import find_scheme

FORMAT = 2


@dataclass(frozen=True, slots=True)
class Roster:
    card: Card
    scheme_name: str  # as given: a name or module:Class
    public_keys: dict[str, bytes]  # of every party
    endpoints: dict[str, str]  # of every server that can be reached already

    def address(self, server: str) -> Address:
        return Address(self.endpoints[server], self.public_keys[server])

    def to_dict(self) -> dict[str, Any]:
        params = dataclasses.asdict(self.card.params)
        return {
            "format": FORMAT,
            "scheme": self.scheme_name,
            "run_id": self.card.run_id.hex(),
            "simulation": self.card.simulation,
            "cheat": self.card.cheat,
            "params": params | {"epsilon": repr(params["epsilon"])},  # JSON knows no infinity
            "endpoints": self.endpoints,
            "public_keys": {party: key.decode() for party, key in self.public_keys.items()},
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any], trusted: bool = True) -> Roster:
        """Make a roster of `data`, which comes from the launcher or, if it is not `trusted`, from a file.

        A person's own scheme is loaded here if the roster is trusted, because the launcher has loaded it too.
        """
        if trusted:
            load_scheme(data["scheme"])
        scheme = find_scheme(data["scheme"])
        params = scheme.params_class(**data["params"] | {"epsilon": float(data["params"]["epsilon"])})
        card = Card(scheme, params, bytes.fromhex(data["run_id"]), data["simulation"], data.get("cheat", ""))
        keys = {party: key.encode() for party, key in data["public_keys"].items()}
        return cls(card, data["scheme"], keys, {server: str(at) for server, at in data["endpoints"].items()})


@dataclass(frozen=True, slots=True)
class Secret:
    """The secrets of one party, and the ratings that are held out for measuring."""

    seat: Seat
    keys: KeyPair
    held_out: HeldOut | None = None

    def to_dict(self) -> dict[str, Any]:
        data: dict[str, Any] = {
            "format": FORMAT,
            "party": self.seat.party,
            "public_key": self.keys.public.decode(),
            "secret_key": self.keys.secret.decode(),
            "tape_seed": self.seat.tape_seed.hex(),
        }
        if self.seat.signer is not None:
            data["signer"] = [self.seat.signer.secret.hex(), self.seat.signer.public.hex()]
        if self.seat.inputs is not None:
            data["train"] = _pack(self.seat.inputs.items, self.seat.inputs.ratings)
        if self.held_out is not None:
            data["held_out"] = _pack(self.held_out.items, self.held_out.ratings)
        return data

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Secret:
        inputs = UserInput(*_unpack(data["train"])) if "train" in data else None
        held_out = HeldOut(*_unpack(data["held_out"])) if "held_out" in data else None
        signer = Signer(*map(bytes.fromhex, data["signer"])) if "signer" in data else None
        seat = Seat(data["party"], bytes.fromhex(data["tape_seed"]), inputs, signer)
        return cls(seat, KeyPair(data["public_key"].encode(), data["secret_key"].encode()), held_out)


def _pack(items: npt.NDArray[np.uint32], ratings: npt.NDArray[np.float64]) -> str:
    """Write ratings as one string: `items` (u32), then `ratings` (f64), little-endian, in hexadecimal."""
    return (items.astype("<u4").tobytes() + ratings.astype("<f8").tobytes()).hex()


def _unpack(text: str) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.float64]]:
    data = bytes.fromhex(text)
    count = len(data) // 12
    items = np.frombuffer(data, "<u4", count).astype(np.uint32)
    return items, np.frombuffer(data, "<f8", count, 4 * count).astype(np.float64)
