"""Flip one rating in `trusted`: U is trained on the ratings, so that it moves, too.

The loss is |log p(V | ratings) − log p(V | one rating flipped)|, each with the U that training gives; the proof bounds
it by ε for a fixed U. It is computed for the V of this run, the result of T steps, and for the exact minimiser of (6)
with the same η, whose loss is much larger: where an item has fewer raters than V has dimensions, its factors are large,
and they depend on U through the inverse of nearly singular matrices.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from protocol.arrays import Floats, Matrix
from protocol.party.role import RECOMMENDER
from protocol.schemes.factorization.factorization import FactorizationParams
from protocol.schemes.factorization.trusted import RatingBook, objective_noise, train
from sim.audit.accounting.neighbours import flipped, interval, spread
from sim.audit.families.trusted.trusted_noise import NoiseMap, Published, read_publication
from sim.audit.findings import Audited, Finding
from sim.views.evidence import Case

Likelihood = tuple[Matrix, Floats]  # the noise that gives the published factors, and log |det| per item
RETRAININGS = 24
MOST_WORK = 2_000_000_000  # factors that retraining may process: about ten seconds


def factors_moved(case: Case, sample: int | None, draw: np.random.Generator) -> Audited:
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
        f"published {interval(run)}, shift {interval(bound)}, minimiser {interval(limit)}",
        evidence="in units of ε: published, the V of this run; shift, Σ|η' − η|₁/b at it; minimiser, the exact "
        "minimiser of (6) with the same η; chance is the largest with U frozen, as the proof assumes",
    )
    return document, [finding]


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
        losses["published"].append(likelihood_ratio(base, steps, params))
        losses["shift"].append(float(np.abs(steps[0] - base[0]).sum()) / params.noise_scale)
        losses["minimiser"].append(likelihood_ratio(base_minimum, there.at_minimum(minimiser), params))
        losses["frozen"].append(likelihood_ratio(base, frozen, params))
    return {name: np.array(values) for name, values in losses.items()}


def likelihood_ratio(one: Likelihood, other: Likelihood, params: FactorizationParams) -> float:
    """Compute |log p − log p'|, p = Π_j exp(−|η_j|₁/b) |det dη_j/dv_j|; per item, to avoid cancellation."""
    sizes = (np.abs(other[0]).sum(axis=1) - np.abs(one[0]).sum(axis=1)) / params.noise_scale
    return abs(float((sizes + one[1] - other[1]).sum()))
