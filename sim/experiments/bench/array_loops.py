"""The two loops over all users that every iteration needs, `sum` and `masks`, on arrays in one process."""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from scipy.sparse import csc_matrix

from protocol.arithmetic.ring import Ring
from protocol.arrays import Ids, RingArray
from protocol.errors import Bug
from protocol.schemes.factorization.masked_sum import mask_rows
from sim.experiments.bench.measuring import Seconds, interleaved, processor_seconds
from sim.experiments.bench.processes import CATALOGUE, DIM, ITEMS, USERS

ROUNDS, WARM = 31, 3  # rounds that count, and rounds before them that do not
SEED, RUN_ID = 1, bytes(32)


def bench_sum(users: int = USERS, dim: int = DIM, items: int = ITEMS, rounds: int = ROUNDS) -> dict[str, Any]:
    """The third party's sum of all users' rows by item, over one sparse product of arrays that are ready for it."""
    ring, parts, opened = Ring(32), *_parts(users, dim, items)
    ids = np.concatenate([ids for ids, _ in parts])
    rows = np.concatenate([rows for _, rows in parts])
    places = np.searchsorted(opened, ids)
    which = csc_matrix((np.ones(len(ids), np.uint32), places, np.arange(len(ids) + 1)), shape=(len(opened), len(ids)))

    def one_by_one() -> RingArray:
        total = ring.zeros(len(opened), dim)
        np.add.at(total, places, rows)
        return total

    works: list[Callable[[], Any]] = [lambda: ring.sum_by_item(parts, opened, dim), lambda: which @ rows, one_by_one]
    for work in works[1:]:
        if not np.array_equal(works[0](), work()):
            raise Bug("The sums by item are not those of the other way to add up.")
    peers: Seconds = []

    def both() -> tuple[Seconds, Seconds]:
        own, floor, peer = map(processor_seconds, works)
        peers.append(peer)
        return [own], [floor]

    config = _config(users, dim, items, rounds, "one sparse product of arrays that are ready for it")
    result = interleaved(config | {"items": len(opened), "peer": "np.add.at into zeros"}, both, rounds, WARM)
    peer = statistics.median(peers[WARM:])
    return result | {"peer_median": peer, "peer_ratio": result["median"] / peer}


def bench_masks(users: int = USERS, dim: int = DIM, items: int = ITEMS, rounds: int = ROUNDS) -> dict[str, Any]:
    """One iteration's masks of all users, over as many bytes of one ChaCha20 stream for each of them."""
    ring = Ring(32)
    keys = [os.urandom(32) for _ in range(users)]
    zeros = bytes(items * dim * ring.width)

    def own_masks() -> None:
        for key in keys:
            mask_rows(ring, key, RUN_ID, 7, items, dim)

    def streams() -> None:
        for key in keys:
            stream = Cipher(ChaCha20(key, bytes(16)), mode=None).encryptor().update(zeros)
            np.frombuffer(stream, "<u4").reshape(-1, dim)

    floor = "one ChaCha20 stream for each user and iteration (a peer: no name goes into its key)"
    return interleaved(
        _config(users, dim, items, rounds, floor),
        lambda: ([processor_seconds(own_masks)], [processor_seconds(streams)]),
        rounds,
        WARM,
    )


def _parts(users: int, dim: int, items: int) -> tuple[list[tuple[Ids, RingArray]], Ids]:
    """Make what each user sent (increasing items, uniform rows), and collect the items that any user named."""
    random = np.random.default_rng(SEED)
    catalogue = max(items, CATALOGUE * users)
    parts = []
    for _ in range(users):
        chosen = np.sort(random.choice(catalogue, items, replace=False)).astype(np.uint32)
        parts.append((chosen, random.integers(0, 1 << 32, (items, dim), np.uint32)))
    return parts, np.unique(np.concatenate([ids for ids, _ in parts]))


def _config(users: int, dim: int, items: int, rounds: int, floor: str) -> dict[str, Any]:
    return {
        "data": "uniform rows",
        "note": None,
        "users": users,
        "dim": dim,
        "items_per_user": items,
        "ring_bits": 32,
        "rounds": rounds,
        "cores": len(os.sched_getaffinity(0)),
        "floor": floor,
        "unit": "CPU seconds for all users together",
    }
