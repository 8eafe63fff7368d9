"""The statistics that an adversary computes from a canary: one number per repetition, larger for the greatest rating.

It knows every factor at the start and every other rating, and sees v(t); so it works out every gradient for either
rating, and what is left of a sum is noise, or noise and the difference of the two gradients:

    x(t) = (s(t) − Σ_others ∇ − ∇(least)) · sign(d(t)),     d(t) = ∇(greatest) − ∇(least),     |d(0)| = 2Δ

Noise with a known envelope H is Gaussian, so its holder uses the likelihood ratio |d| (x − |d|/2) / (2 b² H).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from protocol.arithmetic.factors import as_sent
from protocol.arrays import Counts, Floats
from protocol.schemes.factorization.factorization import GradientParams
from sim.audit.canary.canary import CanaryProblem
from sim.audit.families.factorization.repeat import Observed


@dataclass(frozen=True)
class AdversaryKnowledge:
    """The quantities that the adversary works out; one row per repetition, one column per iteration."""

    least: Floats  # ∇ of user 0 for the least rating
    shift: Floats  # d(t)
    others: Floats  # Σ ∇ of the other users


def work_out(problem: CanaryProblem, observed: Observed) -> AdversaryKnowledge:
    params, factors, middle = problem.params, observed.item_factors, problem.other_rating
    first, runs = observed.user_factors, np.cumsum(observed.first_of_run) - 1
    least, greatest = (gradients(params, first[:, 0], factors, rating, middle, runs) for rating in problem.ratings)
    others = [gradients(params, first[:, user], factors, middle, middle, runs) for user in range(1, params.n_users)]
    return AdversaryKnowledge(least, greatest - least, np.sum(others, axis=0))


def gradients(
    params: GradientParams, user_factors: Floats, item_factors: Floats, rating: float, middle: float, runs: Counts
) -> Floats:
    """Compute −2 u(t) e(t) of a user with one rating, and its steps in between, for all repetitions at once.

    Repetitions with the same number in `runs` are items of one run, so that u(t) follows all of them. The coins of the
    others are not known: `middle` stands for them, which is right on average.
    """
    own, columns, items = user_factors, [], np.bincount(runs)
    for sent in as_sent(item_factors[:, : params.iterations], params.factor_bits).astype(np.float64).T:
        error, expected = (np.clip(each - own * sent, -params.clip, params.clip) for each in (rating, middle))
        columns.append(-2 * own * error)
        others = np.bincount(runs, sent * expected)[runs] - sent * expected
        pull = (sent * error + others) / items[runs]
        own = own + params.learning_rate * (2 * pull - 2 * params.user_regularisation * own)
        own = np.clip(own, -1, 1)
    return np.stack(columns, axis=1)


def released_sums(params: GradientParams, item_factors: Floats) -> Floats:
    """Compute s(t) = (k/γ) (v(t) (1 − 2γμ) − v(t+1)), known to every holder of two successive item factors."""
    shrunk = 1 - 2 * params.learning_rate * params.item_regularisation
    sums: Floats = params.n_users / params.learning_rate * (item_factors[:, :-1] * shrunk - item_factors[:, 1:])
    return sums


def centred_sums(problem: CanaryProblem, observed: Observed) -> tuple[Floats, Floats]:
    """Compute (x(t), |d(t)|) of the released sums."""
    known = work_out(problem, observed)
    sums = released_sums(problem.params, observed.item_factors)
    return (sums - known.others - known.least) * np.sign(known.shift), np.abs(known.shift)


def centred_uploads(problem: CanaryProblem, observed: Observed) -> tuple[Floats, Floats]:
    """Compute (x(t), |d(t)|) of the uploads of user 0, which contain no other gradient."""
    known = work_out(problem, observed)
    return (observed.uploads - known.least) * np.sign(known.shift), np.abs(known.shift)


def difference(problem: CanaryProblem, observed: Observed, values: Floats, with_others: bool) -> Floats:
    """Score how much better the greatest rating predicts the difference of the first two releases.

    Constant noise, or noise used twice, cancels.
    """
    known = work_out(problem, observed)
    left = values - known.others if with_others else values
    for_least = left - known.least
    for_greatest = for_least - known.shift
    score: Floats = np.abs(for_least[:, 1] - for_least[:, 0]) - np.abs(for_greatest[:, 1] - for_greatest[:, 0])
    return score


def likelihood_ratio(
    params: GradientParams, centred: Floats, shift: Floats, envelope: Floats, unknown: float = 1.0
) -> Floats:
    """Compute the log ratio for Gaussian noise of variance 2 b² H, a part `unknown` of which the adversary lacks."""
    variance = 2 * params.noise_scale**2 * np.maximum(envelope, np.finfo(np.float64).tiny) * unknown
    ratio: Floats = shift * (centred - shift / 2) / variance
    return ratio


def own_share(params: GradientParams, envelope: Floats, normals: Floats) -> Floats:
    """Compute b sqrt(2H) C with C of variance 1/k: the share that a rater itself added to the sum."""
    share: Floats = params.noise_scale * np.sqrt(2 * envelope / params.n_users) * normals
    return share


def centred_publication(observed: Observed) -> Floats:
    """Place v(T) between its noiseless values for the least (0) and for the greatest (1) rating."""
    least, greatest = observed.quiet.T
    gap = greatest - least
    place: Floats = (observed.item_factors[:, -1] - least) / np.where(gap == 0, 1.0, gap)
    return place
