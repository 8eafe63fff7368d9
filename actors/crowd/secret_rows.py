"""The secrets of many users in one block of memory, so that a user that is not awake costs only its rows in it.

    users · keys (public, secret) · tape seeds · ratings by user, then held-out ratings by user

A host maps the block and makes the `Secret` of a user when it needs it.
"""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from typing import Any

import msgpack
import numpy as np

from actors.keys import Secret
from actors.metering.observer import HeldOut
from actors.transport.zeromq import KeyPair
from protocol.card import Seat
from protocol.party.role import UserInput, user_index, user_name
from protocol.party.signing import Signer

_KEY, _SEED = 40, 32
_SIZE = 8  # bytes that hold the length of the table of contents
_NONE = HeldOut(np.zeros(0, np.uint32), np.zeros(0, np.float64))


def pack_ranks(secrets: Sequence[Secret]) -> bytes:
    """Pack the `secrets` of users, with their ratings, into one block; servers have no place in it."""
    columns = {
        "users": np.array([user_index(secret.seat.party) for secret in secrets], "<u4"),
        "public": _joined([secret.keys.public for secret in secrets], _KEY),
        "secret": _joined([secret.keys.secret for secret in secrets], _KEY),
        "seeds": _joined([secret.seat.tape_seed for secret in secrets], _SEED),
    }
    trained: list[UserInput | HeldOut] = [secret.seat.inputs or _NONE for secret in secrets]
    kept: list[UserInput | HeldOut] = [secret.held_out or _NONE for secret in secrets]
    for name, ratings in (("train", trained), ("held_out", kept)):
        columns[f"{name}_ends"] = np.cumsum([len(own.items) for own in ratings]).astype("<u8")
        columns[f"{name}_items"] = np.concatenate([own.items for own in ratings]).astype("<u4")
        columns[f"{name}_values"] = np.concatenate([own.ratings for own in ratings]).astype("<f8")
    signers = {
        user_index(secret.seat.party): [secret.seat.signer.secret, secret.seat.signer.public]
        for secret in secrets
        if secret.seat.signer
    }
    contents = msgpack.packb([[[name, column.dtype.str, len(column)] for name, column in columns.items()], signers])
    start = bytes(-(_SIZE + len(contents)) % _SIZE)  # aligns the numbers to multiples of their size
    body = b"".join(column.tobytes() + bytes(-column.nbytes % _SIZE) for column in columns.values())
    return b"".join((len(contents).to_bytes(_SIZE, "little"), contents, start, body))


def _joined(values: list[bytes], width: int) -> np.ndarray:
    return np.frombuffer(b"".join(values), f"V{width}")


class Ranks:
    """The users of a block of `memory` that `pack_ranks` made."""

    def __init__(self, memory: mmap.mmap | bytes) -> None:
        size = int.from_bytes(memory[:_SIZE], "little")
        table, self._signers = msgpack.unpackb(memory[_SIZE : _SIZE + size], strict_map_key=False)
        at = _SIZE + size + -(_SIZE + size) % _SIZE
        self._columns: dict[str, np.ndarray] = {}
        for name, kind, count in table:
            self._columns[name] = np.frombuffer(memory, kind, count, at)
            at += self._columns[name].nbytes + -self._columns[name].nbytes % _SIZE
        self._place = {int(user): place for place, user in enumerate(self._columns["users"])}

    def users(self) -> list[int]:
        return list(self._place)

    def __len__(self) -> int:
        return len(self._place)

    def secret(self, user: int) -> Secret:
        place, columns = self._place[user], self._columns
        items, ratings = self._ratings("train", place)
        signer = self._signers.get(user)
        seat = Seat(
            user_name(user),
            columns["seeds"][place].tobytes(),
            UserInput(items, ratings),
            Signer(*signer) if signer else None,
        )
        keys = KeyPair(columns["public"][place].tobytes(), columns["secret"][place].tobytes())
        return Secret(seat, keys, HeldOut(*self._ratings("held_out", place)))

    def _ratings(self, name: str, place: int) -> tuple[Any, Any]:
        ends = self._columns[f"{name}_ends"]
        begin, end = int(ends[place - 1]) if place else 0, int(ends[place])
        return self._columns[f"{name}_items"][begin:end], self._columns[f"{name}_values"][begin:end]
