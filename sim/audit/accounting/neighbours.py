"""Neighbouring data: one rating goes to the other end of the scale, and what the proofs hold fixed moves with it.

* `covariance` and its variants: sums are published, and `neighbour_sums.py` measures how far one record moves them.
* `trusted`: U is trained on the ratings. The loss is |log p(V | ratings) − log p(V | one rating flipped)|, each with
  the U that training gives; the proof bounds it by ε for a fixed U. It is computed for the V of this run, the result of
  T steps, and for the exact minimiser of (6) with the same η, whose loss is much larger: where an item has fewer raters
  than V has dimensions, its factors are large, and they depend on U through the inverse of nearly singular matrices.
* `direct`, `masked`, `dynamic`: u_i(t) follows the user's own ratings. The user's role runs with either rating on the
  same arriving factors. The figure is the L1 change of all its gradients of one iteration, against 2Δ√d, the bound of
  Lemma 1 (the noise of that iteration covers ε for a change of that length). The figure of a flip is the mean over the
  iterations; the largest iteration is given too. The change of the flipped item alone stays below the bound.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import stats

from protocol.arithmetic.factors import Matrix
from protocol.errors import Rejected
from protocol.params import Params
from protocol.party.role import RECOMMENDER, UserInput, user_index
from protocol.schemes.covariance.options import CovarianceParams
from protocol.schemes.factorization.static_users import JoiningUser
from protocol.schemes.factorization.trusted import RatingBook, Trusted, objective_noise, train
from protocol.wire.messages import Publication
from sim.audit.accounting.neighbour_sums import sums_moved
from sim.audit.accounting.trusted_noise import NoiseMap, Published, read_publication
from sim.audit.findings import Finding
from sim.views.evidence import Case
from sim.views.exhibits import Exhibits

FLIPS = 300  # ratings to flip in users' roles
RETRAININGS = 24
MOST_WORK = 2_000_000_000  # factors that retraining may process: about ten seconds

Floats = npt.NDArray[np.float64]
Audited = tuple[dict[str, Any], list[Finding]]


def sensitivity(case: Case, sample: int | None = None) -> Audited:
    """Return (the figures, findings); the figures may be {}. `sample` is the number of ratings to flip."""
    params = case.card.params
    draw = np.random.default_rng([*case.card.run_id, *b"sensitivity"])
    if math.isinf(params.epsilon):
        return {}, []
    if isinstance(params, CovarianceParams):
        return sums_moved(case, FLIPS if sample is None else sample, draw)
    if not case.card.scheme.factorizes:  # numbers are noisy before any sum is made
        return {}, []
    if isinstance(case.card.scheme, Trusted):
        return _moving(case, sample, draw)
    return _reacting(case, FLIPS if sample is None else sample, draw)


def flipped(rating: float, params: Params, draw: np.random.Generator) -> float:
    """Return the farther end of the scale; from the middle, either end at random."""
    middle = (params.rating_min + params.rating_max) / 2
    down = draw.random() < 0.5 if rating == middle else rating > middle
    return params.rating_min if down else params.rating_max


def spread(values: Floats) -> dict[str, Any]:
    """Summarise `values`, with an interval of the median from two order statistics.

    It rests on the binomial number of values below the median. `level` is its exact confidence, 95 % or more; with
    fewer than six values not even the full range reaches that.
    """
    ordered, n = np.sort(values), len(values)
    low, high = (int(place) for place in stats.binom.interval(0.95, n, 0.5))
    low, high = max(low, 1), min(high, n - 1)
    return {
        "flips": n,
        "median": float(np.median(ordered)),
        "interval": [float(ordered[low - 1]), float(ordered[high])],
        "level": max(0.0, float(stats.binom.cdf(high, n, 0.5) - stats.binom.cdf(low - 1, n, 0.5))),
        "largest": float(ordered[-1]),
        "above": float((ordered > 1).mean()),
    }


# --- trusted: U moves -----------------------------------------------------------------------------------------------


def _moving(case: Case, sample: int | None, draw: np.random.Generator) -> Audited:
    if not case.path(RECOMMENDER).is_file() or (made := read_publication(case)) is None:
        return {}, []
    losses = moving_losses(made, _affordable(made) if sample is None else sample, draw)
    epsilon = case.card.params.epsilon
    document: dict[str, Any] = {"unit": "ε", **{name: spread(values / epsilon) for name, values in losses.items()}}
    run, bound, limit, frozen = (document[name] for name in ("published", "shift", "minimiser", "frozen"))
    weak = bound["median"] > 1 or run["largest"] > 1
    title = (
        f"One flipped rating moves U: what the proof bounds by ε is then {bound['median']:.3g} ε (median); the log "
        f"likelihood ratio of the published factors reaches {run['largest']:.3g} ε, that of the exact minimiser "
        f"{limit['median']:.3g} ε (median)."
    )
    finding = Finding(
        "moving-user-factors",
        title,
        ("user",),
        "weak" if weak else "info",
        claimed=1.0,
        measured={name: {key: document[name][key] for key in ("median", "largest")} for name in losses},
        chance=frozen["largest"],
        confidence=f"{run['flips']} flips; intervals of the medians at {run['level']:.1%} (order statistics): "
        f"published {_interval(run)}, shift {_interval(bound)}, minimiser {_interval(limit)}",
        evidence="in units of ε: published, the V of this run; shift, Σ|η' − η|₁/b at it; minimiser, the exact "
        "minimiser of (6) with the same η; chance is the largest with U frozen, as the proof assumes",
    )
    return document, [finding]


def _interval(figures: dict[str, Any]) -> str:
    low, high = figures["interval"]
    return f"[{low:.3g}, {high:.3g}]"


def _affordable(made: Published) -> int:
    work = sum(len(own.items) for own in made.handed.values()) * made.params.dim * made.params.iterations
    return int(min(RETRAININGS, max(5, MOST_WORK // work)))


def moving_losses(made: Published, sample: int, draw: np.random.Generator) -> dict[str, Floats]:
    """Compute |log likelihood ratio| of each flip: for the published V, the exact minimiser, and a frozen U."""
    params, tape = made.params, made.tape
    book = RatingBook(made.handed, params.n_items)
    users, _ = train(book, params, tape)
    here = NoiseMap(book, users, params, tape)
    minimiser = here.minimiser(objective_noise(params, tape))
    base, base_minimum = here.after_steps(made.item_factors), here.at_minimum(minimiser)
    losses: dict[str, list[float]] = {name: [] for name in ("published", "shift", "minimiser", "frozen")}
    for place in draw.choice(len(book.ratings), min(sample, len(book.ratings)), replace=False).tolist():
        other = RatingBook(made.handed, params.n_items)
        other.ratings = book.ratings.copy()
        other.ratings[place] = flipped(float(book.ratings[place]), params, draw)
        there = NoiseMap(other, train(other, params, tape)[0], params, tape)
        steps = there.after_steps(made.item_factors)
        moved = 2 * users[book.users[place]] * (other.ratings[place] - book.ratings[place])
        frozen = here.shifted(int(book.items[place]), moved).after_steps(made.item_factors)
        losses["published"].append(_ratio(base, steps, params))
        losses["shift"].append(float(np.abs(steps[0] - base[0]).sum()) / params.noise_scale)
        losses["minimiser"].append(_ratio(base_minimum, there.at_minimum(minimiser), params))
        losses["frozen"].append(_ratio(base, frozen, params))
    return {name: np.array(values) for name, values in losses.items()}


def _ratio(one: tuple[Matrix, Floats], other: tuple[Matrix, Floats], params: Params) -> float:
    """Compute |log p − log p'|, p = Π_j exp(−|η_j|₁/b) |det dη_j/dv_j|; per item, to avoid cancellation."""
    sizes = (np.abs(other[0]).sum(axis=1) - np.abs(one[0]).sum(axis=1)) / params.noise_scale
    return abs(float((sizes + one[1] - other[1]).sum()))


# --- direct, masked, dynamic: u_i reacts ---------------------------------------------------------------------------


def _reacting(case: Case, sample: int, draw: np.random.Generator) -> Audited:
    kept = [party for party in case.parties if user_index(party) >= 0 and case.path(party).is_file()]
    changes = reacting_changes(case, kept, sample, draw)
    if not len(changes):
        return {}, []
    mean, largest, first = (
        spread(np.array([pick(flip) for flip in changes])) for pick in (np.mean, np.max, lambda flip: flip[0])
    )
    document: dict[str, Any] = {"unit": "2Δ√d", "mean": mean, "largest_iteration": largest, "first_iteration": first}
    finding = Finding(
        "reacting-user-factors",
        f"One flipped rating moves the user's gradients of all its items: {mean['median']:.3g} times the bound of "
        f"Lemma 1 per iteration (median flip), at most {mean['largest']:.3g} on average over a run.",
        (RECOMMENDER,),
        "weak" if mean["above"] > 0 else "info",
        claimed=1.0,
        measured={name: document[name] for name in ("mean", "largest_iteration")},
        chance=first["largest"],
        confidence=f"{mean['flips']} flips; interval of the median at {mean['level']:.1%} {_interval(mean)} "
        "(order statistics)",
        evidence="L1 of the change of all gradients in an iteration, over 2Δ√d: mean and maximum over the iterations "
        "of a flip; the factors that arrive are those of the user's view; chance is the first iteration, before u_i "
        "reacts",
    )
    return document, [finding]


def reacting_changes(case: Case, parties: list[str], sample: int, draw: np.random.Generator) -> list[Floats]:
    """Compute, for each flip and iteration, the L1 change of the user's gradients over 2Δ√d."""
    made = []
    for place in draw.permutation(len(parties))[:sample].tolist():
        change = _change(case, parties[place], draw)
        if change is not None and len(change):
            made.append(change)
    return made


def _change(case: Case, party: str, draw: np.random.Generator) -> Floats | None:
    exhibits, card = Exhibits(case, (party,)), case.card
    brought = exhibits.brought(party)
    own, params = brought.inputs, card.params
    assert own is not None
    ratings, place = own.ratings.copy(), int(draw.integers(len(own.ratings)))
    ratings[place] = flipped(float(ratings[place]), params, draw)
    one, other = (
        card.scheme.make_role(party, card.setting, brought.tape, inputs)
        for inputs in (own, UserInput(own.items, ratings))
    )
    if not isinstance(one, JoiningUser) or not isinstance(other, JoiningUser):
        return None
    changes = []
    for seen in exhibits.received(party):
        if isinstance(seen.message, Publication) or not hasattr(seen.message, "factors"):  # not part of an iteration
            continue
        try:
            factors = one.check_factors(seen.iteration, seen.message.factors)
        except Rejected:  # the role did not answer this record
            continue
        before, after = one.step(seen.iteration, factors), other.step(seen.iteration, factors)
        changes.append(float(np.abs(after - before).sum()))
    return np.array(changes) / (2 * params.rating_span * math.sqrt(params.dim))
