"""A second implementation of the masked sum and of one iteration of `masked`, on plain Python integers and floats.

Nothing here is taken from the code under test. All random values (masks, envelopes, normal draws) are given as plain
lists, so a test can compare every intermediate number.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass

Vector = list[float]
Residues = list[int]
ByItem = dict[int, Residues]


def float32(x: float) -> float:
    return struct.unpack("<f", struct.pack("<f", x))[0]


def encode(x: float, fraction_bits: int, modulus: int) -> int:
    return round(x * 2**fraction_bits) % modulus


def decode(residue: int, fraction_bits: int, modulus: int) -> float:
    signed = residue - modulus if 2 * residue >= modulus else residue
    return signed / 2**fraction_bits


@dataclass
class MaskedSum:
    sent: dict[int, ByItem]  # user -> item -> what that user sends to the third party
    counts: dict[int, int]  # item -> contributors
    totals: ByItem  # what the third party releases
    sums: ByItem  # what the recommender is left with


def masked_sum(
    values: Mapping[int, ByItem], masks: Mapping[int, ByItem], floors: Mapping[int, int], modulus: int
) -> MaskedSum:
    """Compute the masked sum of `values[user][item]`, the residues before masking; `floors` has every opened item."""
    # each user: hide every number under its own mask
    sent: dict[int, ByItem] = {}
    for user in values:
        sent[user] = {}
        for item, row in values[user].items():
            sent[user][item] = [(x + mask) % modulus for x, mask in zip(row, masks[user][item], strict=True)]

    # third party: add up what it cannot read, and keep back the items below their floor
    counts: dict[int, int] = {}
    totals: ByItem = {}
    for item, floor in floors.items():
        rows = [rows_of_user[item] for rows_of_user in sent.values() if item in rows_of_user]
        counts[item] = len(rows)
        if len(rows) >= floor:
            totals[item] = [sum(column) % modulus for column in zip(*rows, strict=True)]

    # recommender: take away the masks of those who contributed
    sums: ByItem = {}
    for item, total in totals.items():
        hiding = zip(*[masks[user][item] for user in sent if item in sent[user]], strict=True)
        sums[item] = [(x - sum(column)) % modulus for x, column in zip(total, hiding, strict=True)]
    return MaskedSum(sent, counts, totals, sums)


@dataclass
class Setting:
    modulus: int
    fraction_bits: int
    noise_scale: float
    clip: float
    learning_rate: float
    user_regularisation: float
    item_regularisation: float


@dataclass
class User:
    ratings: dict[int, float]  # item -> rating
    factors: Vector
    objective_normal: dict[int, Vector]  # item -> N(0, 1) draws behind the share of η
    clipped: int = 0


@dataclass
class Dealt:
    """What belongs to one iteration: dealt by the recommender, or drawn by a user."""

    floors: dict[int, int]
    envelopes: dict[int, Vector]  # of ρ
    normal: dict[int, dict[int, Vector]]  # user -> item -> draws behind the share of ρ
    masks: dict[int, ByItem]


def noise_share(scale: float, envelope: Vector, floor: int, normal: Vector) -> Vector:
    """Compute b sqrt(2 H) C with C of variance 1 / floor."""
    return [scale * math.sqrt(2 * h) * (draw / math.sqrt(floor)) for h, draw in zip(envelope, normal, strict=True)]


def errors_of(user: User, received: Mapping[int, Vector], clip: float) -> tuple[dict[int, float], int]:
    """Compute e_ij clipped to ±C, and count how many were clipped."""
    errors, clipped = {}, 0
    for item, rating in user.ratings.items():
        error = rating
        for u, v in zip(user.factors, received[item], strict=True):
            error -= u * v
        clipped += abs(error) > clip
        errors[item] = max(-clip, min(clip, error))
    return errors, clipped


def moved_user(user: User, received: Mapping[int, Vector], errors: Mapping[int, float], setting: Setting) -> Vector:
    moved = []
    for coordinate, u in enumerate(user.factors):
        pull = sum(received[item][coordinate] * errors[item] for item in user.ratings)
        slope = -2 / len(user.ratings) * pull + 2 * setting.user_regularisation * u
        moved.append(u - setting.learning_rate * slope)
    length = math.sqrt(sum(x * x for x in moved))
    return [x / length for x in moved] if length > 1 else moved


def masked_iteration(
    setting: Setting,
    item_factors: list[Vector],
    users: dict[int, User],
    n_raters: Mapping[int, int],
    objective_floors: Mapping[int, int],
    objective_envelopes: Mapping[int, Vector],
    dealt: Dealt,
    present: set[int],
) -> MaskedSum:
    """Run one iteration with the users in `present`; change `item_factors` and the users' `factors` in place."""
    modulus, bits = setting.modulus, setting.fraction_bits
    received = {item: [float32(x) for x in row] for item, row in enumerate(item_factors)}

    values: dict[int, ByItem] = {}
    for number in sorted(present):
        user = users[number]
        errors, clipped = errors_of(user, received, setting.clip)
        user.clipped += clipped
        values[number] = {}
        for item in user.ratings:
            gradient = [-2 * u * errors[item] for u in user.factors]
            eta = noise_share(
                setting.noise_scale, objective_envelopes[item], objective_floors[item], user.objective_normal[item]
            )
            rho = noise_share(
                setting.noise_scale, dealt.envelopes[item], dealt.floors[item], dealt.normal[number][item]
            )
            values[number][item] = [
                (encode(g, bits, modulus) + encode(e, bits, modulus) + encode(r, bits, modulus)) % modulus
                for g, e, r in zip(gradient, eta, rho, strict=True)
            ]
        user.factors = moved_user(user, received, errors, setting)

    outcome = masked_sum(values, {number: dealt.masks[number] for number in present}, dealt.floors, modulus)
    for item, row in outcome.sums.items():
        for coordinate, residue in enumerate(row):
            v = item_factors[item][coordinate]
            slope = decode(residue, bits, modulus) / n_raters[item] + 2 * setting.item_regularisation * v
            item_factors[item][coordinate] = v - setting.learning_rate * slope
    return outcome
