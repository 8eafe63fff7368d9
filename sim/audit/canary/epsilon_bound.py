"""Lower bounds on ε from a statistic of many repetitions.

For any statistic of an adversary and any threshold, (ε, δ)-differential privacy requires of the event S that its
probability under one data set is at most e^ε times that under the neighbouring data set, plus δ. So

    ε ≥ ln( (P(S | one) − δ) / P(S | other) ),

with the lower Clopper–Pearson limit of the first and the upper limit of the second, each at half of the allowed error.
The threshold and the direction are chosen on the first half of the repetitions; the limits come from the second, so
that the choice costs no confidence. A poor statistic gives a low bound, never a false one.

A claim of Gaussian noise says more: that no test beats the one that tells N(0, 1) from N(μ, 1), at any rates. So

    μ ≥ Φ⁻¹(P(S | one)) − Φ⁻¹(P(S | other)),

from the same limits, and the ε at δ of this μ is compared with the claimed one. (At a δ of 1e-5 the rates alone show
nothing of the tail in which that ε lies; `at_delta` says what they show without the claim about the noise.) There the
statistic is a log likelihood ratio and its threshold is 0, where both rates tell most about μ: nothing has to be
chosen, so all repetitions count.

Where the log likelihood ratio under the claimed law is known, `sharp_bound` asks more of the same repetitions: it
guesses where the ratio is saturated (`guesses.py`), or compares the means of Gaussian values (`known_law.py`). The line
keeps a tenth of the error, because it also sees what no law foretells.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import expit, ndtr, ndtri

from protocol.arrays import Flags, Floats
from protocol.schemes.composition import gaussian_epsilon
from sim.audit.canary.gaussian_run import many_runs_mu, one_run_mu
from sim.audit.canary.guesses import Guesses, expected_guesses, guess, sure_of
from sim.audit.canary.known_law import measured_mu
from sim.audit.canary.one_run import one_run_epsilon
from sim.audit.scoring import lower_limit, upper_limit

THRESHOLDS = 100  # candidate thresholds, at even steps of rank
LINES = 0.1  # part of the error that is kept for a line where a law is supposed
CANDIDATES = 24  # numbers of guesses that are tried for a Gaussian bound
CAUTION = 10  # divides the error for choosing the threshold: a lucky tail of the first half does not recur


@dataclass(frozen=True, slots=True)
class Bound:
    epsilon: float  # at δ = 0; 0 if nothing is shown
    at_delta: float  # at the requested δ
    true_rate: float  # lower limit of P(S | one)
    false_rate: float  # upper limit of P(S | other)
    event: str  # S, in words
    certifiable: float  # the bound if S always happened under one and never under the other
    mu: float | None = None  # set if Gaussian noise is claimed: `epsilon` is its ε at δ
    method: str = "line"  # or "guesses", "means"

    @property
    def reading(self) -> str:
        """Say what was observed: the rates that the bound rests on."""
        if self.method == "guesses":
            return f"{self.event}, so a guess is right with a probability of {self.true_rate:.4g} or more"
        if self.method == "means":
            return f"{self.event} by {self.mu:.3g} standard deviations or more"
        return (
            f"{self.event} has a rate of at least {self.true_rate:.4g} with one data set and of at most "
            f"{self.false_rate:.4g} with the other"
        )


def lower_bound(statistic: Floats, greatest: Flags, confidence: float = 0.95, delta: float = 0.0) -> Bound:
    """Bound ε; `statistic` should be larger for the greatest rating, and `greatest` says where it was given."""
    half, error = len(statistic) // 2, (1 - confidence) / 2
    above, threshold = _choose(statistic[:half], greatest[:half], error / CAUTION)
    true_rate, false_rate, trials = _rates(statistic[half:], greatest[half:], threshold, above, error)
    return Bound(
        epsilon=_log_ratio(true_rate, false_rate),
        at_delta=_log_ratio(true_rate - delta, false_rate),
        true_rate=true_rate,
        false_rate=false_rate,
        event=f"statistic {'≥' if above else '<'} {threshold:.6g}",
        certifiable=certifiable(trials, confidence),
    )


def gaussian_bound(ratio: Floats, greatest: Flags, confidence: float, delta: float) -> Bound:
    """Bound ε by a log likelihood ratio if Gaussian noise is claimed."""
    true_rate, false_rate, trials = _rates(ratio, greatest, 0.0, True, (1 - confidence) / 2)
    missed, false = int((ratio < 0)[greatest].sum()), int((ratio >= 0)[~greatest].sum())
    mu = many_runs_mu(missed, int(greatest.sum()), false, int((~greatest).sum()), confidence)
    return Bound(
        epsilon=gaussian_epsilon(mu, delta),
        at_delta=_log_ratio(true_rate - delta, false_rate),
        true_rate=true_rate,
        false_rate=false_rate,
        event="statistic ≥ 0",
        certifiable=gaussian_certifiable(trials, confidence, delta),
        mu=mu,
    )


def sharp_bound(
    values: Floats,
    ratio: Floats | None,
    greatest: Flags,
    confidence: float,
    delta: float,
    *,
    gaussian: bool = False,
    reacting: bool = False,
) -> Bound:
    """Bound ε by all that applies, jointly; `ratio` is the log likelihood ratio by the claimed law, if one is known.

    `reacting` canaries influence each other: only the one-run theorem holds then, because a line needs independence.
    """
    if reacting and ratio is not None:
        return (guessed_mu_bound if gaussian else guessed_bound)(ratio, greatest, confidence, delta)
    by_line = gaussian_bound if gaussian else lower_bound
    if ratio is None:
        return by_line(values, greatest, confidence, delta)
    error = 1 - confidence
    by_law = (mean_bound if gaussian else guessed_bound)(ratio, greatest, 1 - (1 - LINES) * error, delta)
    line = by_line(values, greatest, 1 - LINES * error, delta)
    return line if by_law is None or line.epsilon > by_law.epsilon else by_law


def guessed_bound(ratio: Floats, greatest: Flags, confidence: float, delta: float) -> Bound:
    """Bound ε by the canaries of which the adversary is surest; the choice of these costs no confidence."""
    number, made = len(ratio), guess(ratio, greatest, 1 - confidence)
    epsilon = one_run_epsilon(number, made.number, made.right, confidence)
    rate = 1 / (1 + math.exp(-epsilon))
    return Bound(
        epsilon=epsilon,
        at_delta=one_run_epsilon(number, made.number, made.right, confidence, delta),
        true_rate=rate,
        false_rate=1 - rate,
        event=f"{made.right} of {made.number} guesses about {number} canaries are right",
        certifiable=guesses_certifiable(number, confidence),
        method="guesses",
    )


def guessed_mu_bound(ratio: Floats, greatest: Flags, confidence: float, delta: float) -> Bound:
    """Bound ε at δ by the guesses about one run, if Gaussian noise is claimed."""
    number, made = len(ratio), surest_for_mu(ratio, greatest, confidence)
    mu = one_run_mu(number, made.number, made.right, confidence)
    epsilon, rate = gaussian_epsilon(mu, delta), made.right / max(1, made.number)
    return Bound(
        epsilon=epsilon,
        at_delta=epsilon,
        true_rate=rate,
        false_rate=1 - rate,
        event=f"{made.right} of {made.number} guesses about {number} canaries are right",
        certifiable=gaussian_epsilon(one_run_mu(number, number, number, confidence), delta),
        mu=mu,
        method="guesses",
    )


def surest_for_mu(ratio: Floats, greatest: Flags, confidence: float, expected: bool = False) -> Guesses:
    """Guess the canaries of which the adversary is surest, as many as promise the largest μ; the coins choose nothing.

    `expected`: return the right guesses that the ratios foretell, instead of those that were right.
    """
    order = np.argsort(-np.abs(ratio), kind="stable")
    promised = np.cumsum(expit(np.abs(ratio)[order]))
    numbers = np.unique(np.geomspace(1, len(ratio), CANDIDATES).astype(np.int64))
    rights = np.rint(promised[numbers - 1]).astype(np.int64)
    mus = [one_run_mu(len(ratio), *pair, confidence) for pair in zip(numbers.tolist(), rights.tolist(), strict=True)]
    number = int(numbers[::-1][int(np.argmax(mus[::-1]))])
    right = ((ratio > 0) == greatest)[order[:number]].sum()
    return Guesses(number, round(float(promised[number - 1])) if expected else int(right))


def mean_bound(ratio: Floats, greatest: Flags, confidence: float, delta: float) -> Bound | None:
    """Bound ε at δ by the means of normal log likelihood ratios; None if they do not vary."""
    mu = measured_mu(ratio, greatest, confidence)
    if mu is None:
        return None
    rate = float(ndtr(mu / 2))
    return Bound(
        epsilon=gaussian_epsilon(mu, delta),
        at_delta=gaussian_epsilon(mu, delta),
        true_rate=rate,
        false_rate=1 - rate,
        event="the means of the log likelihood ratio differ",
        certifiable=max(gaussian_epsilon(mu, delta), gaussian_certifiable(len(ratio) // 2, confidence, delta)),
        mu=mu,
        method="means",
    )


def means_attainable(mu: float, repetitions: int, confidence: float, delta: float) -> float:
    """Compute the bound for Gaussian noise of exactly `mu`: its estimate has the variance (4 + μ²/2)/n."""
    least = mu - float(ndtri(confidence)) * math.sqrt((4 + mu**2 / 2) / repetitions)
    return gaussian_epsilon(max(0.0, least), delta)


def guesses_certifiable(canaries: int, confidence: float) -> float:
    """Compute the largest bound that guesses can show: all of them are right."""
    return one_run_epsilon(canaries, canaries, canaries, confidence)


def guesses_attainable(epsilon: float, canaries: int, confidence: float) -> float:
    """Compute the bound for a Laplace mechanism of exactly `epsilon`, at the expected numbers of guesses."""
    expected = expected_guesses(epsilon, canaries)
    return one_run_epsilon(canaries, expected.number, expected.right, confidence)


def ratios_attainable(ratio: Floats, confidence: float) -> float:
    """Compute the bound if as many guesses are right as the law that `ratio` supposes foretells."""
    sure = sure_of(ratio, 1 - confidence)
    number, right = int(sure.sum()), round(float(expit(np.abs(ratio[sure])).sum()))
    return one_run_epsilon(len(ratio), number, right, confidence)


def certifiable(trials: int, confidence: float = 0.95) -> float:
    """Compute the largest bound that `trials` of either data set can show: S in all of one, in none of the other."""
    error = (1 - confidence) / 2
    always, never = np.array(trials), np.array(0)
    return _log_ratio(float(lower_limit(always, trials, error)), float(upper_limit(never, trials, error)))


def gaussian_certifiable(trials: int, confidence: float, delta: float) -> float:
    return gaussian_attainable(math.inf, trials, confidence, delta)


def gaussian_attainable(mu: float, trials: int, confidence: float, delta: float) -> float:
    """Compute the bound for Gaussian noise of exactly `mu`, at the expected rates Φ(μ/2) and Φ(−μ/2)."""
    error, hits = (1 - confidence) / 2, round(trials * float(ndtr(mu / 2)))
    lower, upper = lower_limit(np.array(hits), trials, error), upper_limit(np.array(trials - hits), trials, error)
    return gaussian_epsilon(max(0.0, float(ndtri(lower) - ndtri(upper))), delta)


def attainable(epsilon: float, trials: int, confidence: float = 0.95) -> float:
    """Compute the bound for a Laplace mechanism of exactly `epsilon`, at the expected rates.

    With S = {x ≥ t}, t = ε + s in units of the noise's scale, and a shift of ε:

        P(S | one) = e^(−s)/2, or 1 − e^s/2 for s < 0,     P(S | other) = e^(−ε−s)/2.
    """
    error = (1 - confidence) / 2
    place = np.linspace(-min(epsilon, 10.0), 5.0, THRESHOLDS)
    one = np.where(place >= 0, np.exp(-place) / 2, 1 - np.exp(np.minimum(place, 0)) / 2)
    hits_one, hits_other = (np.rint(trials * rate).astype(np.int64) for rate in (one, np.exp(-epsilon - place) / 2))
    best = np.max(lower_limit(hits_one, trials, error) / upper_limit(hits_other, trials, error))
    return max(0.0, math.log(best)) if best > 0 else 0.0


def _log_ratio(one: float, other: float) -> float:
    return math.log(one / other) if one > other else 0.0


def _choose(statistic: Floats, greatest: Flags, error: float) -> tuple[bool, float]:
    """Choose (whether S lies above, the threshold) for the best bound on these repetitions."""
    ordered, high, low = np.sort(statistic), np.sort(statistic[greatest]), np.sort(statistic[~greatest])
    # between two draws; always include the threshold of a perfect statistic
    ranks = np.unique(np.append(np.linspace(1, len(ordered) - 1, THRESHOLDS).astype(np.int64), len(low)))
    lines = (ordered[ranks - 1] + ordered[ranks]) / 2
    over_high, over_low = len(high) - np.searchsorted(high, lines), len(low) - np.searchsorted(low, lines)
    upward = lower_limit(over_high, len(high), error) / upper_limit(over_low, len(low), error)
    downward = lower_limit(len(low) - over_low, len(low), error) / upper_limit(len(high) - over_high, len(high), error)
    best_up, best_down = int(np.argmax(upward)), int(np.argmax(downward))
    above = bool(upward[best_up] >= downward[best_down])
    return above, float(lines[best_up if above else best_down])


def _rates(statistic: Floats, greatest: Flags, threshold: float, above: bool, error: float) -> tuple[float, float, int]:
    """Return (lower limit of P(S | one), upper limit of P(S | other), the smaller number of trials)."""
    inside = statistic >= threshold if above else statistic < threshold
    one = greatest if above else ~greatest
    trials_one, trials_other = int(one.sum()), int((~one).sum())
    true_rate = float(lower_limit(inside[one].sum(), trials_one, error))
    false_rate = float(upper_limit(inside[~one].sum(), trials_other, error))
    return true_rate, false_rate, min(trials_one, trials_other)
