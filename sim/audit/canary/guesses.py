"""Choose which canaries to guess, and how, from what an adversary sees alone; the coins are opened afterwards.

The adversary has a log likelihood ratio for each canary, under the law that it supposes, and its guess is right with
the probability σ(|ratio|). It guesses the k canaries of which it is surest, with the k for which the bound promises
most. The choice never looks at the coins, so it costs no confidence, whatever the true law is. For Laplace noise the
ratio is saturated in both tails, and exactly these are guessed: (1 + e^−ε)/2 of all canaries, each right with
probability e^ε/(1 + e^ε).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from protocol.arrays import Flags, Floats
from sim.audit.scoring import lower_limit

CANDIDATES = 120  # numbers of guesses that are tried
SAME = 1e-6  # relative difference at which two ratios are equally sure


@dataclass(frozen=True, slots=True)
class Guesses:
    number: int
    right: int


def sure_of(ratios: Floats, error: float) -> Flags:
    """Mark the canaries to guess: those with the largest |ratio|, as many as promise the best bound at `error`."""
    sizes = np.abs(ratios)
    order = np.sort(sizes)[::-1]
    promised = np.cumsum(expit(order))
    last = np.searchsorted(-order, -order * (1 - SAME), side="right")  # ties are guessed together
    ends = np.unique(last[np.unique(np.geomspace(1, len(order), CANDIDATES).astype(np.int64)) - 1])
    hits = np.rint(promised[ends - 1])
    limits = lower_limit(hits, ends, error)
    least = order[ends[int(np.argmax(limits))] - 1]
    sure: Flags = (sizes >= least * (1 - SAME)) & (sizes > 0)
    return sure


def guess(ratios: Floats, greatest: Flags, error: float) -> Guesses:
    """Guess the surest canaries by the sign of their ratio, and count how many are right."""
    sure = sure_of(ratios, error)
    return Guesses(int(sure.sum()), int(((ratios > 0) == greatest)[sure].sum()))


def laplace_ratio(place: Floats, epsilon: float) -> Floats:
    """Compute ln P(x | greatest)/P(x | least) for Laplace noise that keeps ε; `place` is 0 or 1 without noise."""
    ratios: Floats = epsilon * (np.abs(place) - np.abs(place - 1))
    return ratios


def expected_guesses(epsilon: float, canaries: int) -> Guesses:
    """Return the guesses to expect of a Laplace mechanism of exactly ε."""
    number = round(canaries * (1 + math.exp(-epsilon)) / 2)
    return Guesses(number, round(number * float(expit(epsilon))))
