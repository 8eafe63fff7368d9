"""The roster of parties and public keys that every party holds, and the secrets that each party holds alone.

Both are sent to a file or to the zygote as plain dictionaries of JSON types.
"""

from __future__ import annotations

import dataclasses
import json
import stat
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from zmq.utils import z85

from actors.journal import write_private
from actors.metering.observer import HeldOut
from actors.own_scheme import load_scheme
from actors.transport.zeromq import Address, KeyPair
from protocol.arithmetic.tape import SEED_BYTES
from protocol.card import Card, Seat, all_parties
from protocol.errors import BadInput
from protocol.party.role import UserInput, user_index
from protocol.party.signing import Signer
from protocol.schemes import find_scheme

FORMAT = 1
CURVE_KEY_BYTES = 32
MOST_BYTES = 1 << 26  # of a roster, which has about a hundred per user


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
        card = Card(scheme, params, bytes.fromhex(data["run_id"]), data["simulation"])
        keys = {party: key.encode() for party, key in data["public_keys"].items()}
        return cls(card, data["scheme"], keys, {server: str(at) for server, at in data["endpoints"].items()})

    def check(self) -> None:
        """Raise `ValueError` unless the roster has a key for every party and an endpoint for every server."""
        scheme, n_users = self.card.scheme, self.card.params.n_users
        if type(n_users) is not int or n_users != len(self.public_keys) - len(scheme.servers):
            raise ValueError("it has other parties than its parameters say")
        missing = set(all_parties(scheme, n_users)) - self.public_keys.keys()
        if missing or self.endpoints.keys() != set(scheme.servers):
            raise ValueError("it does not name every party and where the servers listen")
        for key in self.public_keys.values():
            _check_curve_key(key)


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

    def check(self, party: str, n_items: int) -> None:
        """Raise `ValueError` if these are not secrets of `party`, or rate items beyond `n_items`."""
        _check_curve_key(self.keys.public)
        _check_curve_key(self.keys.secret)
        inputs = self.seat.inputs
        users = (inputs is not None) == (user_index(party) >= 0)
        if self.seat.party != party or len(self.seat.tape_seed) != SEED_BYTES or not users:
            raise ValueError("it is of another party")
        for own in (inputs, self.held_out):
            if own is None:
                continue
            if not (np.all(np.diff(own.items.astype(np.int64)) > 0) and np.all(own.items < n_items)):
                raise ValueError("its items are not those of the run")
            if not np.all(np.isfinite(own.ratings)):
                raise ValueError("its ratings are not numbers")


def _check_curve_key(key: bytes) -> None:
    try:
        length = len(z85.decode(key))
    except (KeyError, ValueError, struct.error):
        length = 0
    if length != CURVE_KEY_BYTES:
        raise ValueError("a key is not one of CURVE")


def _pack(items: npt.NDArray[np.uint32], ratings: npt.NDArray[np.float64]) -> str:
    """Write ratings as one string: `items` (u32), then `ratings` (f64), little-endian, in hexadecimal."""
    return (items.astype("<u4").tobytes() + ratings.astype("<f8").tobytes()).hex()


def _unpack(text: str) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.float64]]:
    data = bytes.fromhex(text)
    count = len(data) // 12
    items = np.frombuffer(data, "<u4", count).astype(np.uint32)
    return items, np.frombuffer(data, "<f8", count, 4 * count).astype(np.float64)


def key_path(folder: Path, party: str) -> Path:
    return folder / (party.replace(":", "-") + ".key")


def write_secret(folder: Path, secret: Secret) -> None:
    write_private(key_path(folder, secret.seat.party), json.dumps(secret.to_dict()))


def read_secret(folder: Path, party: str, roster: Roster) -> Secret:
    _refuse_open_folder(folder)
    _refuse_pipe(key_path(folder, party))
    try:
        secret = Secret.from_dict(json.loads(key_path(folder, party).read_text("utf-8")))
        secret.check(party, roster.card.params.n_items)
        return secret
    except FileNotFoundError:
        raise BadInput(f"There is no key of {party} in {folder}: make one with keyhole prepare.") from None
    except OSError as error:
        raise BadInput(f"Cannot read {key_path(folder, party)}: {error.strerror}.") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise BadInput(f"{key_path(folder, party)} is not a key file: make one with keyhole prepare.") from error


def read_roster(path: Path, trusted: bool = False) -> Roster:
    """Read a roster; if the person said that it is `trusted`, the scheme that it names is loaded."""
    _refuse_pipe(path)
    try:
        roster = Roster.from_dict(json.loads(path.read_text("utf-8")), trusted)
        roster.check()
        return roster
    except OSError as error:
        raise BadInput(f"Cannot read the roster {path}: {error.strerror}.") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise BadInput(f"{path} is not a roster: make one with keyhole prepare.") from error


def _refuse_pipe(path: Path) -> None:
    """Refuse a `path` that is not a regular file of a sensible size: opening a FIFO blocks, a device never ends."""
    if path.exists() and (not path.is_file() or path.stat().st_size > MOST_BYTES):
        raise BadInput(f"{path} is not a file of roster or keys: make one with keyhole prepare.")


def _refuse_open_folder(folder: Path) -> None:
    try:
        mode = folder.stat().st_mode
    except OSError as error:
        raise BadInput(f"Cannot read the key folder {folder}: {error.strerror}.") from error
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise BadInput(f"Others can read the key folder {folder}: run chmod 700 on it.")
