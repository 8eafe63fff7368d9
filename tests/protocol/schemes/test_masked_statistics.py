"""The noise that is released, and what the third party sees, in whole runs of `masked`.

Statistical tests have size 1e-6 (one seed in a million would raise a false alarm) and run on fixed seeds. Beside
each, the same test finds a planted error.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats
from support.basics import FALSE_ALARM, received, small_run, uniform_p
from support.runs import factors_of, play

from protocol.arithmetic.ring import Ring
from protocol.card import Card
from protocol.wire.messages import ItemFactorsInFull, MaskedGradient

# ---- noise, end to end


def released_noise(epsilon: float) -> np.ndarray:
    """Compute η_j + ρ_j(0): one iteration with noise minus one without, times -k/γ. Three users rate all items."""
    ratings = [{item: 1.0 + (user + item) % 5 for item in range(2500)} for user in range(3)]
    options = {"ratings": ratings, "n_items": 2500, "dim": 4, "iterations": 1}
    quiet = factors_of(*small_run(epsilon=math.inf, **options))
    noisy = factors_of(*small_run(epsilon=epsilon, **options))
    return (quiet - noisy).ravel() * 3 / 2.0**-5


def two_laplace(x: np.ndarray, scale: float) -> np.ndarray:
    """Compute the distribution function of a sum of two independent Laplace(0, b)."""
    tail = 0.5 * (1 + np.abs(x) / (2 * scale)) * np.exp(-np.abs(x) / scale)
    return np.where(x < 0, tail, 1 - tail)


def noise_p(samples: np.ndarray, scale: float) -> float:
    return float(stats.kstest(samples, lambda x: two_laplace(x, scale)).pvalue)


def test_a_released_sum_carries_the_noise_of_lemma_1_twice():
    """ε = 1, dim 4: b = 2 * 4 * 2 / 1 = 16 for η and for ρ, independent of each other."""
    samples = released_noise(1.0)
    assert noise_p(samples, 16.0) > FALSE_ALARM
    assert noise_p(samples, 16.0 * 1.15) < FALSE_ALARM
    assert noise_p(samples, 16.0 / math.sqrt(3)) < FALSE_ALARM
    assert stats.kstest(samples, stats.laplace(0, 16.0).cdf).pvalue < FALSE_ALARM  # the law of one of the two


# ---- what the third party sees


def seen_by_third_party(folder: Path, **options: Any) -> tuple[Card, list[np.ndarray], list[np.ndarray]]:
    """Return (card, values as received, the same without masks), one array per user and iteration in that order."""
    card, seats = small_run(wire="paper", n_users=6, n_items=40, dim=8, iterations=10, **options)
    play(card, seats, folder, [seat.party for seat in seats])
    masks = {
        (seat.party, message.iteration): message.masks
        for seat in seats
        for _, message in received(card, folder, seat.party)
        if isinstance(message, ItemFactorsInFull)
    }
    messages = [
        (sender, message)
        for sender, message in received(card, folder, "third_party")
        if isinstance(message, MaskedGradient)
    ]
    messages.sort(key=lambda pair: (pair[0], pair[1].iteration))
    modulus = 1 << card.params.ring_bits
    bare = []
    for sender, message in messages:
        mask = masks[sender, message.iteration].astype(object)  # Python integers
        bare.append(((message.values.astype(object) - mask) % modulus).astype(message.values.dtype))
    return card, [message.values for _, message in messages], bare


def byte_ps(card: Card, arrays: list[np.ndarray]) -> list[float]:
    """Compute one p-value of uniformity for each byte of a ring element."""
    values = np.concatenate(arrays).astype(np.uint64).ravel()
    places = range(0, card.params.ring_bits, 8)
    return [uniform_p(((values >> np.uint64(place)) & np.uint64(255)).astype(np.int64), 256) for place in places]


RINGS = [{"ring_bits": 16, "clip": 4.0, "epsilon": math.inf}, {"ring_bits": 24, "epsilon": 100.0}, {"epsilon": 1.0}]


@pytest.mark.parametrize("options", RINGS, ids=["16 bits", "24 bits", "32 bits"])
def test_what_the_third_party_receives_is_uniform_and_without_masks_it_is_not(tmp_path, options):
    card, masked, bare = seen_by_third_party(tmp_path, **options)
    assert min(byte_ps(card, masked)) > FALSE_ALARM
    assert byte_ps(card, bare)[-1] < FALSE_ALARM  # the highest byte of a small number is 0 or 255


def steps(card: Card, arrays: list[np.ndarray]) -> list[np.ndarray]:
    """Subtract each message of a user from its next one."""
    ring, T = Ring(card.params.ring_bits), card.params.iterations
    return [ring.subtract(arrays[n + 1], arrays[n]) for n in range(len(arrays) - 1) if (n + 1) % T]


def test_the_difference_of_two_messages_of_a_user_is_uniform_too(tmp_path):
    """If a mask were used twice, the difference would be that of the values without masks."""
    card, masked, bare = seen_by_third_party(tmp_path, **RINGS[0])
    assert min(byte_ps(card, steps(card, masked))) > FALSE_ALARM
    assert byte_ps(card, steps(card, bare))[-1] < FALSE_ALARM


@pytest.mark.parametrize("wire", ["compact", "paper"])
def test_no_masked_value_comes_twice(tmp_path, wire):
    """All 64-bit words differ (two agree by chance with probability 10^-11), and every byte of them is uniform."""
    card, seats = small_run(wire=wire, n_users=6, n_items=40, dim=8, iterations=10, ring_bits=64, epsilon=math.inf)
    play(card, seats, tmp_path, ["third_party"])
    seen = [message for _, message in received(card, tmp_path, "third_party") if isinstance(message, MaskedGradient)]
    words = [word for message in seen for word in message.values.ravel().tolist()]
    assert len(words) > 10_000
    assert len(set(words)) == len(words)
    assert min(byte_ps(card, [message.values for message in seen])) > FALSE_ALARM
