"""Canaries among the run's own ratings: one rater of each item gives the lowest or the highest rating, by a coin.

The scheme's roles play one release of the real ratings with the run's parameters and fresh tapes. Then the sums tell
what an adversary knows that has every other rating and every first factor:

    x = s − Σ_others ∇ − ∇(lowest),     x is noise, or noise and d = ∇(highest) − ∇(lowest), |d|₁/b ≤ ε,

with the log likelihood ratio Σ_l (|x_l| − |x_l − d_l|)/b, and to the recommender, which dealt the envelopes H,
Σ_l d_l (x_l − d_l/2)/(2b²H_l). η is set to zero, because it cancels in two releases. A user's u_i follows all of its
coins as soon as factors move, so only the one-run theorem is asked, which needs no independence.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from protocol.arithmetic.factors import as_sent
from protocol.arithmetic.noise import floor_of
from protocol.arithmetic.ring import Ring
from protocol.arithmetic.tape import derive, exponential
from protocol.arrays import Counts, Flags, Floats, Matrix
from protocol.errors import Aborted, Rejected
from protocol.party.role import RECOMMENDER, Role, UserInput, user_index, user_name
from protocol.play import play
from protocol.schemes.base import DELTA, Setting
from protocol.schemes.composition import gaussian_epsilon
from protocol.schemes.factorization.factorization import GradientParams
from protocol.schemes.factorization.static_users import JoiningRecommender, JoiningUser
from sim.audit.canary.bound_rows import ALONE, BoundRow, Statistic, joint_rows
from sim.audit.canary.canary import CanaryProblem, CannotBeMeasured, Stage
from sim.audit.canary.chunks import coins
from sim.audit.canary.gaussian_run import one_run_mu
from sim.audit.canary.guesses import guess
from sim.audit.canary.known_law import shown_share
from sim.audit.canary.own_run import OWN, OWN_CONFIDENCE
from sim.audit.truth import all_ratings
from sim.views.evidence import Case

MOST_RATINGS = 2_000_000  # a minute or two
KNOWS = "every rating but the canaries', every first factor, and η"


@dataclass(frozen=True)
class FlatRatings:
    """All ratings of a run, one entry for each."""

    users: Counts
    items: Counts
    values: Floats


@dataclass(frozen=True)
class PlayedOnce:
    """What one release showed; rows are canaries whose item was released."""

    params: GradientParams
    greatest: Flags
    users: Counts
    items: Counts
    shifts: Matrix  # d
    sums: Matrix  # x, of the released sums
    uploads: Matrix | None  # x, of what the canary's user uploaded itself, where that is read as numbers
    spread: (
        Floats  # by how much the noise of an item exceeds its law, as more users add shares than the floor counts on
    )
    envelopes: Floats | None  # H of ρ
    seconds: float

    def __len__(self) -> int:
        return len(self.greatest)


class OwnStage(Stage):
    """The stage of a run's own users, whose inputs may be changed."""

    def __init__(self, problem: CanaryProblem, run_id: bytes, inputs: Mapping[str, UserInput]) -> None:
        super().__init__(problem, run_id)
        self.setting = Setting(self.params, run_id, Ring(self.params.ring_bits))
        self.brought = dict(inputs)

    def inputs(self, party: str, greatest: bool) -> UserInput | None:
        return self.brought.get(party)


def measure_own(case: Case, canaries: int, seed: bytes) -> tuple[list[BoundRow], dict[str, Any]]:
    """Play one release with at most `canaries` canaries; return (rows, the figures)."""
    name, params = case.card.scheme.name, dataclasses.replace(case.card.params, iterations=1)
    inputs = all_ratings(case)
    if len(inputs) < params.n_users:
        raise CannotBeMeasured("The views of some users are missing, so the ratings of the run are not all known.")
    if (number := sum(len(own.items) for own in inputs.values())) > MOST_RATINGS:
        raise CannotBeMeasured(f"The run has {number} ratings, and {MOST_RATINGS} at most are played again.")
    stage = OwnStage(CanaryProblem(case.card.scheme, params, frozenset({"eta"})), derive(seed, "run"), inputs)
    try:
        played = play_own(stage, inputs, canaries, seed)
    except (Rejected, Aborted) as error:
        raise CannotBeMeasured(f"{name} cannot be measured: one release with canaries ended with {error}.") from error
    if not len(played):
        raise CannotBeMeasured("No item of a canary was released.")
    return measured(case, played)


def play_own(stage: OwnStage, inputs: Mapping[str, UserInput], canaries: int, seed: bytes) -> PlayedOnce:
    began, params = time.process_time(), stage.params
    tapes = stage.tapes(seed, 0)
    first = first_factors_of(stage.roles(tapes, False), params)
    ratings = FlatRatings(
        np.concatenate([np.full(len(own.items), user_index(party)) for party, own in inputs.items()]),
        np.concatenate([own.items.astype(np.int64) for own in inputs.values()]),
        np.concatenate([own.ratings for own in inputs.values()]),
    )
    draw = np.random.default_rng(list(derive(seed, "items")))
    chosen = choose(ratings, np.abs(first).sum(axis=1), canaries, draw)
    greatest = coins(seed, 0, len(chosen))
    values = ratings.values.copy()
    values[chosen] = np.where(greatest, params.rating_max, params.rating_min)
    ends = np.cumsum([len(own.items) for own in inputs.values()])[:-1]
    for (party, own), changed in zip(inputs.items(), np.split(values, ends), strict=True):
        stage.brought[party] = UserInput(own.items, changed)
    roles = stage.roles(tapes, False)
    recommender = roles[RECOMMENDER]
    assert isinstance(recommender, JoiningRecommender)
    before, uploaded = recommender.item_factors.copy(), {}
    for party, sender, given, _ in play(roles, stage.events):
        if party == RECOMMENDER and sender is not None and user_index(sender) >= 0 and hasattr(given, "values"):
            uploaded[user_index(sender)] = given.values.astype(np.float64)
    moved = np.flatnonzero((recommender.item_factors != before).any(axis=1))
    kept = np.isin(ratings.items[chosen], moved)
    chosen, greatest = chosen[kept], greatest[kept]
    users, items = ratings.users[chosen], ratings.items[chosen]

    sent = as_sent(before, params.factor_bits).astype(np.float64)
    least, most = (
        gradients(params, first[users], sent[items], rating) for rating in (params.rating_min, params.rating_max)
    )
    known = np.delete(np.arange(len(values)), chosen)
    others = gradients(params, first[ratings.users[known]], sent[ratings.items[known]], ratings.values[known])
    summed = np.stack([np.bincount(ratings.items[known], column, params.n_items) for column in others.T], axis=1)
    raters = recommender.n_raters[items]
    shrunk = 1 - 2 * params.learning_rate * params.item_regularisation
    released = (before[items] * shrunk - recommender.item_factors[items]) / params.learning_rate * raters[:, None]
    own_rows = None
    if uploaded:
        places = [np.searchsorted(inputs[user_name(user)].items, item) for user, item in zip(users, items, strict=True)]
        own_rows = np.stack([uploaded[user][place] for user, place in zip(users.tolist(), places, strict=True)]) - least
    floors = floor_of(raters, params.dropout_allowance, params.min_contributors)
    keys = [tapes[RECOMMENDER].key("item", int(item)) for item in items]
    return PlayedOnce(
        params,
        greatest,
        users,
        items,
        most - least,
        released - summed[items] - least,
        own_rows,
        np.ones(len(raters)) if uploaded else raters / floors,
        None if uploaded else exponential(keys, params.dim, "rho", 0).astype(np.float64),
        time.process_time() - began,
    )


def first_factors_of(roles: Mapping[str, Role], params: GradientParams) -> Matrix:
    users = [roles[user_name(user)] for user in range(params.n_users)]
    if not isinstance(roles[RECOMMENDER], JoiningRecommender) or not all(isinstance(one, JoiningUser) for one in users):
        raise CannotBeMeasured("Its released sums do not follow from two item factors.")
    return np.stack([one.user_factors for one in users if isinstance(one, JoiningUser)])


def choose(ratings: FlatRatings, sizes: Floats, canaries: int, draw: np.random.Generator) -> Counts:
    """Choose one rating of each item, by the rater with the largest |u_i|₁, for at most `canaries` items."""
    order = np.lexsort((-sizes[ratings.users], ratings.items))
    _, at = np.unique(ratings.items[order], return_index=True)
    chosen: Counts = np.sort(draw.permutation(order[at])[:canaries])
    return chosen


def gradients(params: GradientParams, user_factors: Matrix, item_factors: Matrix, ratings: float | Floats) -> Matrix:
    """Compute −2 u e for one rating in each row, as users do."""
    errors = np.clip(ratings - np.einsum("jd,jd->j", item_factors, user_factors), -params.clip, params.clip)
    made: Matrix = -2.0 * errors[:, None] * user_factors
    return made


# --- statistics ------------------------------------------------------------------------------------------------------


def measured(case: Case, played: PlayedOnce) -> tuple[list[BoundRow], dict[str, Any]]:
    params, scheme = played.params, case.card.scheme
    claim = params.epsilon * (1 if "rating value" in scheme.unit else 2)
    scales = params.noise_scale * np.sqrt(played.spread)[:, None]
    found = [statistic((), KNOWS, "released sums", "noise", laplace_ratios(played.sums, played.shifts, scales), claim)]
    document: dict[str, Any] = {
        "canaries": len(played),
        "users": len(np.unique(played.users)),
        "items": len(np.unique(played.items)),
        "dim": params.dim,
        "releases": 1,
        "neighbours": f"one rater of each item gives {params.rating_min:g} or {params.rating_max:g}, by a coin",
        "confidence": OWN_CONFIDENCE,
        "largest_loss": {"median": float(np.median(losses := losses_of(played))), "most": float(losses.max())},
        "known_law": None,
    }
    if played.uploads is not None:
        ratio = laplace_ratios(played.uploads, played.shifts, params.noise_scale * np.ones((len(played), 1)))
        found.append(statistic((RECOMMENDER,), KNOWS, "uploads", "noise", ratio, claim))
    if played.envelopes is not None:
        variances = 2 * scales**2 * np.maximum(played.envelopes, np.finfo(np.float64).tiny)
        ratio = (played.shifts * (played.sums - played.shifts / 2) / variances).sum(axis=1)
        knows = f"{KNOWS}, and the envelopes that it dealt"
        found.append(statistic((RECOMMENDER,), knows, "likelihood ratio given the envelopes", "envelope", ratio, claim))
        mus = np.sqrt((played.shifts**2 / variances).sum(axis=1))
        document["known_law"] = known_law(ratio, mus, played.greatest)
    rows = joint_rows([(OWN, CanaryProblem(scheme, params), played, one) for one in found], OWN_CONFIDENCE)
    return rows, {**document, "seconds": played.seconds}


def statistic(who: tuple[str, ...], knows: str, name: str, kind: Any, ratio: Floats, claim: float) -> Statistic:
    subject = f"one run of these ratings with {len(ratio)} canaries"
    return Statistic(who, knows, name, kind, ratio, claimed=claim, ratio=ratio, subject=subject, reacting=True)


def laplace_ratios(values: Matrix, shifts: Matrix, scales: Floats) -> Floats:
    ratios: Floats = ((np.abs(values) - np.abs(values - shifts)) / scales).sum(axis=1)
    return ratios


def losses_of(played: PlayedOnce) -> Floats:
    """Compute |d|₁/b of each canary: the most that its ratio can be, which is ε at the most."""
    losses: Floats = np.abs(played.shifts).sum(axis=1) / played.params.noise_scale
    return losses


def known_law(ratio: Floats, mus: Floats, greatest: Flags) -> dict[str, Any]:
    """Measure the share of the shifts that is there, if the noise is Gaussian with the dealt envelopes.

    `without_law` takes no noise for granted: the ε of the μ that the guesses refute for all canaries together.
    """
    share, made = shown_share(ratio, mus, greatest, ALONE), guess(ratio, greatest, 1 - ALONE)
    least = one_run_mu(len(ratio), made.number, made.right, ALONE)
    at = {"median": float(np.median(mus)), "worst": float(mus.max())}
    return {
        "confidence": ALONE,
        "delta": DELTA,
        "shown_share": share,
        "shown": {item: gaussian_epsilon(share * mu, DELTA) for item, mu in at.items()},
        "without_law": gaussian_epsilon(least, DELTA),
        "true": {item: gaussian_epsilon(mu, DELTA) for item, mu in at.items()},
    }
