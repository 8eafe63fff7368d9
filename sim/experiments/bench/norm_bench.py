"""`keyhole bench norm-proof`: what a proof of the norm costs a user of `hardened` and the servers, and what it refuses.

One user's messages are made, split and judged, all in one process without frames. The floor is what the same user and
the servers do without proofs: two masks, and the sum of vector, share and mask. Before anything is measured, a small
round is played with honest and hostile users: the honest ones must be accepted and their sum must be exact, and every
kind of hostile vector must be refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from protocol.arithmetic.prime_field import (
    PRIME,
    add,
    element,
    from_signed,
    subtract,
    to_signed,
    uniform_elements,
)
from protocol.arithmetic.ring import Ring
from protocol.arithmetic.tape import Tape, derive
from protocol.arrays import FieldArray, Ints
from protocol.errors import Bug
from protocol.schemes.base import DELTA, Setting, Shape
from protocol.schemes.hardened.hardened import Hardened
from protocol.schemes.hardened.hardened_params import HardenedParams
from protocol.schemes.hardened.hardened_roles import masks_of
from protocol.schemes.hardened.norm_proof.norm_prover import commit, mask_shares, split, told_by
from protocol.schemes.hardened.norm_proof.norm_statement import Challenges, NormStatement, ProofMessages, statement_of
from protocol.schemes.hardened.norm_proof.norm_verifier import (
    accepts,
    turned,
    verifier_share,
    well_formed,
)
from protocol.schemes.hardened.share_law import draw_shares
from protocol.schemes.hardened.unit_vectors import unit_vector
from sim.experiments.bench.measuring import Seconds, interleaved, processor_seconds

USERS, ITEMS, ROUNDS, WARM = 943, 1682, 15, 1
EPSILON, SEED, RUN_ID = 1.0, bytes(32), bytes(32)
HONEST, TRIES = 20, 5  # users of the small round: honest ones, and of each hostile kind


def is_accepted(statement: NormStatement, told: ProofMessages, mask_key: bytes, challenges: Challenges) -> bool:
    """Split the messages between the servers, and let these decide."""
    own, others = split(told, mask_key), mask_shares(statement.told_lengths, mask_key)
    return well_formed(statement, own) and accepts(
        statement,
        verifier_share(statement, own, challenges, constants=True),
        verifier_share(statement, others, challenges, constants=False),
    )


# --- hostile users ---------------------------------------------------------------------------------------------------


def forced(statement: NormStatement, vector: FieldArray) -> FieldArray:
    """Commit to any `vector`: the lowest digit of each slack is whatever the equation of the part needs."""
    digits, at = [], 0
    for length, square, count in zip(statement.lengths, statement.squares, statement.slack_digits, strict=True):
        left = (square - sum(value * value for value in vector[at : at + length].tolist())) % PRIME
        row = np.zeros(count, np.uint64)
        if left < 1 << count:
            row[:] = (np.uint64(left) >> np.arange(count, dtype=np.uint64)) & np.uint64(1)
        else:
            row[0] = left
        digits.append(row)
        at += length
    return np.concatenate([vector, *digits])


def hostile_vectors(statement: NormStatement, parts: list[Ints], key: bytes) -> Iterator[tuple[str, FieldArray]]:
    """Yield (words, a vector beyond its bound), made of an honest user's `parts`."""
    honest, length = np.concatenate([from_signed(part) for part in parts]), statement.lengths[0]
    whole = parts[0].copy()
    whole[:] = 0
    whole[0], whole[1] = math.isqrt(statement.squares[0]), 1
    yield "beyond the bound by 1", np.concatenate([from_signed(whole), honest[length:]])
    for times in (10, 1000):
        yield f"{times} times the bound", np.concatenate([from_signed(times * whole), honest[length:]])
    noise = np.zeros_like(parts[-1])
    noise[0] = 2 * math.isqrt(statement.squares[-1])
    yield "noise of twice its bound", np.concatenate([*map(from_signed, parts[:-1]), from_signed(noise)])
    yield "uniform elements", uniform_elements(key, len(honest), "uniform")
    root = pow(7, (PRIME - 1) // 4, PRIME)  # its square is −1
    for words, value in (
        ("large numbers whose squares cancel mod p", int(uniform_elements(key, 1, "large")[0])),
        ("halves mod p whose squares cancel", (PRIME + 1) // 2),
    ):
        wrapped = honest.copy()
        wrapped[:length] = 0
        wrapped[:2] = [value, value * root % PRIME]
        yield words, wrapped


def shifted(statement: NormStatement, told: ProofMessages, challenges: Challenges) -> ProofMessages:
    """Change P by the constant with which the opened sum is 0 again."""
    off = int(verifier_share(statement, told, challenges, constants=True)[-1])
    proof, at = told.proof.copy(), statement.height
    proof[at : at + 1] = subtract(proof[at : at + 1], element(off * pow(statement.order - 1, -1, PRIME)))
    return told._replace(proof=proof)


# --- the benchmark ---------------------------------------------------------------------------------------------------


def bench_norm(users: int = USERS, items: int = ITEMS, rounds: int = ROUNDS) -> dict[str, Any]:
    """Processor seconds of one user and both servers with a proof, over those of the same upload without."""
    params = _params(users, items)
    statement = statement_of(params, 0)
    challenges = statement.challenges(*(derive(SEED, name) for name in ("tests", "weights", "point")))
    parts, mask_key = _honest(params, 0), derive(SEED, "mask")
    refused = _small_round(params, statement, challenges)
    setting = Setting(params, RUN_ID, Ring(params.ring_bits))
    seconds: dict[str, Seconds] = {"user": [], "third_party": [], "recommender": []}

    def with_proof() -> float:
        made: list[Any] = []

        def user() -> None:
            made.append(split(told_by(statement, commit(statement, parts), challenges, SEED), mask_key))

        def third_party() -> None:
            made.append(verifier_share(statement, made[0], challenges, constants=True))

        def recommender() -> None:
            own = mask_shares(statement.told_lengths, mask_key)
            made.append(accepts(statement, made[1], verifier_share(statement, own, challenges, constants=False)))

        for name, work in (("user", user), ("third_party", third_party), ("recommender", recommender)):
            seconds[name].append(processor_seconds(work))
        if made[-1] is not True:
            raise Bug("An honest user's proof was refused.")
        return sum(each[-1] for each in seconds.values())

    def without() -> None:
        vector, share = (setting.ring.from_integers(each[:, None]) for each in (np.concatenate(parts[:-1]), parts[-1]))
        masked = setting.ring.add(vector, share, masks_of(setting, mask_key, 0))
        setting.ring.subtract(masked, masks_of(setting, mask_key, 0))

    result = interleaved({}, lambda: ([with_proof()], [processor_seconds(without)]), rounds, WARM)
    result["config"] = _config(params, users, items, rounds)
    result["proof"] = {
        "refused": refused,
        "error_bits": statement.error_bits,
        "bytes": _bytes(params, statement),
        "seconds": {name: float(np.median(each[WARM:])) for name, each in seconds.items()},
    }
    return result


def _params(users: int, items: int) -> HardenedParams:
    shape = Shape(users, items, (1.0, 5.0), (1,) * users, np.ones(items, np.int64))
    return Hardened().make_params(shape, epsilon=EPSILON, delta=DELTA, rounds=1)[0]


def _config(params: HardenedParams, users: int, items: int, rounds: int) -> dict[str, Any]:
    return {
        "data": "random unit vectors",
        "note": None,
        "scheme": "hardened",
        "users": users,
        "items": items,
        "items_per_user": items,
        "dim": 1,
        "epsilon": params.epsilon,
        "rounds": rounds,
        "floor": "the same upload without a proof: two masks, and the sum of vector, share and mask",
        "unit": "processor seconds of one user and both servers, without frames",
    }


def _bytes(params: HardenedParams, statement: NormStatement) -> dict[str, int]:
    """Count what one user sends and what the servers exchange about it; beside it, if servers made the noise."""
    alone = NormStatement(statement.lengths[:-1], statement.squares[:-1])
    return {
        "up": statement.upload_bytes,
        "up_without_proof": params.lengths[0] * params.ring_bits // 8,
        "between_servers": 2 * element(0).nbytes * statement.verifier_length,
        "up_if_servers_make_the_noise": alone.upload_bytes,
    }


def _honest(params: HardenedParams, user: int) -> list[Ints]:
    """Make the parts of an honest user: both unit vectors, and its noise."""
    tape, length = Tape(derive(SEED, "user", user)), params.lengths[0]
    values = tape.normal(2, length // 2, "vector")
    return [
        *(unit_vector(row, params.whole) for row in values),
        draw_shares(tape, params.scales[0], length, "share", 0),
    ]


def _small_round(params: HardenedParams, statement: NormStatement, challenges: Challenges) -> dict[str, list[int]]:
    """Let honest and hostile users take part; return (refused, tried) by kind; raise `Bug` if one is misjudged."""
    found: dict[str, list[int]] = {"honest": [0, HONEST]}
    accepted: list[tuple[FieldArray, bytes]] = []
    wanted = np.zeros(params.lengths[0], np.int64)
    for user in range(HONEST):
        parts, key = _honest(params, user), derive(SEED, "mask", user)
        told = told_by(statement, commit(statement, parts), challenges, derive(SEED, "tape", user))
        if not is_accepted(statement, told, key, challenges):
            raise Bug("An honest user's proof was refused.")
        accepted.append((split(told, key).committed, key))
        wanted += np.concatenate(parts[:-1]) + to_signed(_turned(from_signed(parts[-1]), derive(SEED, "turn", user)))
    for number in range(TRIES):
        key = derive(SEED, "hostile", number)
        for words, vector in hostile_vectors(statement, _honest(params, number), key):
            told = told_by(statement, forced(statement, vector), challenges, key)
            for way, sent in (("", told), (", and P made to fit", shifted(statement, told, challenges))):
                counts = found.setdefault(words + way, [0, 0])
                counts[0] += not is_accepted(statement, sent, key, challenges)
                counts[1] += 1
    if any(refused < tried for name, (refused, tried) in found.items() if name != "honest"):
        raise Bug(f"A hostile vector was accepted: {found}.")
    if not np.array_equal(_opened(params, accepted), wanted):
        raise Bug("The sum of the accepted vectors is not that of the honest users.")
    return found


def _turned(noise: FieldArray, key: bytes) -> FieldArray:
    return turned(Ring(64, prime=True), noise[:, None], key)[:, 0]


def _opened(params: HardenedParams, accepted: list[tuple[FieldArray, bytes]]) -> Ints:
    """Add up both servers' shares of the accepted vectors, with their noise turned."""

    def added(share: Callable[[int], FieldArray]) -> FieldArray:
        length = params.lengths[0]
        total = np.zeros(length, np.uint64)
        for user in range(len(accepted)):
            vector, noise = np.split(share(user)[: 2 * length], 2)
            total = add(total, add(vector, _turned(noise, derive(SEED, "turn", user))))
        return total

    size = len(accepted[0][0])
    third_party = added(lambda user: accepted[user][0])
    recommender = added(lambda user: mask_shares([size, 0, 0], accepted[user][1]).committed)
    return to_signed(add(third_party, recommender))
