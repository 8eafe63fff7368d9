"""Read and write the roster and the keys of parties that are started by hand; what a file says is checked here."""

from __future__ import annotations

import json
import stat
import struct
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from msgspec import UNSET, Meta, Struct, UnsetType
from zmq.utils import z85

from actors.journal import write_private
from actors.keys import FORMAT, Roster, Secret
from protocol.card import all_parties
from protocol.cheats.cheat import check_cheat
from protocol.errors import BadInput
from protocol.party.role import user_index
from sim.foreign import untrusted
from sim.foreign.bounds import Digest, check_params

Key = Annotated[str, Meta(pattern=r"^[0-9a-zA-Z.:+=^!/*?&<>()\[\]{}@%$#-]{40}\Z")]
Packed = Annotated[str, Meta(pattern=r"^([0-9a-f]{24})*\Z")]  # items of 4 bytes, then their ratings of 8


class _Kept(Struct):
    format: int

    def __post_init__(self) -> None:
        if self.format != FORMAT:
            raise ValueError(f"it has format {self.format}, and this Keyhole reads format {FORMAT}")


class RosterFile(_Kept):
    scheme: str
    run_id: Digest
    simulation: bool
    params: dict[str, Any]
    endpoints: dict[str, str]
    public_keys: dict[str, Key]
    cheat: str = ""


class SecretFile(_Kept):
    party: str
    public_key: Key
    secret_key: Key
    tape_seed: Digest
    signer: tuple[Digest, Digest] | UnsetType = UNSET
    train: Packed | UnsetType = UNSET
    held_out: Packed | UnsetType = UNSET


def key_path(folder: Path, party: str) -> Path:
    return folder / (party.replace(":", "-") + ".key")


def write_secret(folder: Path, secret: Secret) -> None:
    write_private(key_path(folder, secret.seat.party), json.dumps(secret.to_dict()))


def read_secret(folder: Path, party: str, roster: Roster) -> Secret:
    _refuse_open_folder(folder)
    path = key_path(folder, party)
    try:
        secret = Secret.from_dict(_read(path, SecretFile))
        _check_secret(secret, party, roster.card.params.n_items)
        return secret
    except FileNotFoundError:
        raise BadInput(f"There is no key of {party} in {folder}: make one with keyhole prepare.") from None
    except OSError as error:
        raise BadInput(f"Cannot read {path}: {error.strerror}.") from error
    except ValueError as error:
        raise BadInput(f"{path} is not a key file ({error}): make one with keyhole prepare.") from error


def read_roster(path: Path, trusted: bool = False) -> Roster:
    """Read a roster; if the person said that it is `trusted`, the scheme that it names is loaded."""
    try:
        roster = Roster.from_dict(_read(path, RosterFile), trusted)
        check_params(roster.card.params)
        _check_roster(roster)
        return roster
    except OSError as error:
        raise BadInput(f"Cannot read the roster {path}: {error.strerror}.") from error
    except (ValueError, KeyError, TypeError) as error:  # the last two: parameters that are missing or unknown
        raise BadInput(f"{path} is not a roster ({error}): make one with keyhole prepare.") from error


def _read(path: Path, form: type[Struct]) -> Any:
    with untrusted.open_regular(path) as stream:
        document = untrusted.parse_json(untrusted.read_at_most(stream, untrusted.MOST_JSON_BYTES))
    untrusted.fit(document, form)
    return document


def _check_roster(roster: Roster) -> None:
    """Raise `ValueError` unless the roster has a key for every party and an endpoint for every server."""
    scheme, n_users = roster.card.scheme, roster.card.params.n_users
    if roster.public_keys.keys() != set(all_parties(scheme, n_users)):
        raise ValueError("it has other parties than its parameters say")
    if roster.card.cheat:
        check_cheat(roster.card.cheat, scheme.name)
    if roster.endpoints.keys() != set(scheme.servers):
        raise ValueError("it does not say where the servers listen")
    _check_curve_keys(*roster.public_keys.values())


def _check_secret(secret: Secret, party: str, n_items: int) -> None:
    """Raise `ValueError` if these are not secrets of `party`, or rate items beyond `n_items`."""
    inputs = secret.seat.inputs
    _check_curve_keys(secret.keys.public, secret.keys.secret)
    if secret.seat.party != party or (inputs is None) != (user_index(party) < 0):
        raise ValueError("it is of another party")
    for own in (inputs, secret.held_out):
        if own is None:
            continue
        if not (np.all(np.diff(own.items.astype(np.int64)) > 0) and np.all(own.items < n_items)):
            raise ValueError("its items are not those of the run")
        if not np.all(np.isfinite(own.ratings)):
            raise ValueError("its ratings are not numbers")


def _check_curve_keys(*keys: bytes) -> None:
    try:
        for key in keys:
            z85.decode(key)
    except struct.error:  # five of its characters stand for more than 32 bits
        raise ValueError("a key is not one of CURVE") from None


def _refuse_open_folder(folder: Path) -> None:
    try:
        mode = folder.stat().st_mode
    except OSError as error:
        raise BadInput(f"Cannot read the key folder {folder}: {error.strerror}.") from error
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise BadInput(f"Others can read the key folder {folder}: run chmod 700 on it.")
