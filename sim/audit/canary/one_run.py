"""A lower bound on ε from guesses about many canaries of one run (Steinke, Nasr, Jagielski 2023, arXiv 2305.08846).

An independent fair coin chooses the value of each of m canaries; flipping one coin is one unit of privacy. A guesser
that sees the output alone guesses r of the coins, and v guesses are right. If the mechanism keeps ε at δ = 0, then v is
stochastically at most Bin(r, q), q = e^ε/(1 + e^ε), however the canaries influence each other; and at δ > 0

    P[v or more are right] ≤ β + 2mδ · max_{1≤i≤v} (P[Bin(r, q) ≥ v − i] − β)/i,     β = P[Bin(r, q) ≥ v].
"""

from __future__ import annotations

import math

import numpy as np
from scipy.optimize import brentq
from scipy.special import betainc

from protocol.arrays import Floats
from sim.audit.scoring import lower_limit

TOLERANCE = 1e-10


def at_least(right: int, guesses: int, rate: float) -> float:
    """Compute P[Bin(`guesses`, `rate`) ≥ `right`]."""
    return 1.0 if right <= 0 else float(betainc(right, guesses - right + 1, rate))


def one_run_p_value(canaries: int, guesses: int, right: int, epsilon: float, delta: float) -> float:
    """Compute the largest probability of `right` or more right guesses that (ε, δ) allows."""
    rate = 1 / (1 + math.exp(-epsilon))
    beta = at_least(right, guesses, rate)
    if delta == 0 or right == 0:
        return beta
    fewer = np.arange(right - 1, 0, -1, dtype=np.float64)  # v − 1 … 1; P[Bin ≥ 0] = 1 comes last
    tails: Floats = np.append(betainc(fewer, guesses - fewer + 1, rate), 1.0)
    steps = (tails - beta) / np.arange(1, right + 1)
    return min(1.0, beta + 2 * canaries * delta * max(0.0, float(steps.max())))


def one_run_epsilon(canaries: int, guesses: int, right: int, confidence: float, delta: float = 0.0) -> float:
    """Compute the largest ε that `right` of `guesses` refute; 0 if they refute none."""
    error = 1 - confidence
    if right == 0 or one_run_p_value(canaries, guesses, right, 0.0, delta) > error:
        return 0.0
    rate = float(lower_limit(right, guesses, error))  # exact at δ = 0
    pure = math.log(rate) - math.log1p(-rate)
    if delta == 0:
        return pure

    def allowed(epsilon: float) -> float:
        return one_run_p_value(canaries, guesses, right, epsilon, delta) - error

    return float(brentq(allowed, 0.0, pure, xtol=TOLERANCE)) if allowed(pure) > 0 else pure
