"""Canaries of noisy sums over users, and the statistics that each coalition computes from them.

| arm | neighbours | what is measured |
|---|---|---|
| `release` | one rating, or one user, is present or not | all noisy sums together, at the run's budget |
| `parts` | the same | each of the three measurements alone, each with a budget of 1, and all together |
| `perturbation` | the value of one rating | hybrid's r' alone, for which no ε is claimed |
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from protocol.arithmetic.tape import derive
from protocol.party.role import RECOMMENDER, THIRD_PARTY
from protocol.schemes.base import DELTA
from protocol.schemes.composition import gaussian_epsilon
from protocol.schemes.covariance.options import CovarianceParams, HybridParams
from protocol.schemes.covariance.sensitivity import gaussian_mu, kappa, whole_epsilon
from sim.audit.canary.bound_rows import Asked, Found, Statistic
from sim.audit.canary.chunks import cut, spread
from sim.audit.families.collection.randomized_entries import ENTRIES, PAIRS, receive, vectors_of
from sim.audit.families.covariance.canary_sums import (
    ITEMS,
    USERS,
    Neighbours,
    Ratios,
    joined,
    neighbours_of,
    play_chunk,
)
from sim.audit.findings import ALL_BUT_ONE

BUDGETS = {"budget_global": 1 / 3, "budget_items": 1 / 3, "budget_covariance": 1 / 3}
EACH_ONE = 3.0  # θ that gives each measurement a budget of 1
RELEASE, PARTS = 0.25, 0.5  # fractions of the requested repetitions: each of them is a run of its own
OUTSIDER = "every other rating, and the noisy sums of which everything that is published is made"


def of_totals(asked: Asked) -> Iterator[Found]:
    assert asked.params is None or isinstance(asked.params, CovarianceParams)
    release = neighbours_of(asked.scheme, asked.params, asked.claim)
    parts = neighbours_of(asked.scheme, asked.params, EACH_ONE, **BUDGETS)
    played = (("release", release, RELEASE), ("parts", parts, PARTS))
    work = []
    for arm, problem, part in played:
        seed = derive(asked.seed, "canary", arm, repr(problem.params.epsilon))
        work.append(cut(problem, seed, round(part * asked.repetitions)))
    whole, each = (joined(chunks) for chunks in spread(play_chunk, work, asked.workers, asked.tell, asked.played))
    all_sums = whole.overall + whole.items + whole.covariance
    yield "release", release, whole, _together(release.params, all_sums)
    for statistic in of_parts(parts, each):
        yield "parts", parts, each, statistic
    if isinstance(parts.params, HybridParams) and parts.params.gamma:
        yield _perturbation(asked, parts.params.gamma)


def _who(params: CovarianceParams) -> tuple[str, ...]:
    """Name the party that the noise is for: a recommender that learns only the sums, else any receiver of results."""
    return (RECOMMENDER,) if getattr(params, "form", "") == "dense" else ()


def _together(params: CovarianceParams, values: Any) -> Statistic:
    who, name = _who(params), "all noisy sums together"
    if params.gaussian:
        claimed, mu = whole_epsilon(params, DELTA), gaussian_mu(params)
        return Statistic(who, OUTSIDER, name, "noise", values, claimed=claimed, claimed_mu=mu, ratio=values)
    # θ, even if pairs spend more
    return Statistic(who, OUTSIDER, name, "noise", values, claimed=params.epsilon, ratio=values)


def of_parts(problem: Neighbours, seen: Ratios) -> Iterator[Statistic]:
    params, words = problem.params, ("global sum and count", "item sums and counts", "covariances and weights")
    who, columns = _who(params), (seen.overall, seen.items, seen.covariance)
    for name, budget, values in zip(words, params.budgets, columns, strict=True):
        mu = math.sqrt(2) * budget / kappa(params) if params.gaussian else None
        claimed = budget if mu is None else gaussian_epsilon(mu, DELTA)
        yield Statistic(who, OUTSIDER, name, "noise", values, claimed=claimed, claimed_mu=mu, ratio=values)
    together = _together(params, sum(columns))
    yield together
    if seen.own_shares.size:
        coalition = (RECOMMENDER, ALL_BUT_ONE)
        knows = "every other part, and the shares of the noise that are in them"
        name = "all that the last user added"
        known = replace(together, kind="others", values=seen.own_shares, ratio=seen.own_shares)
        yield replace(known, coalition=coalition, knows=knows, name=name)
    if seen.masked.size:
        knows = "the masked parts of the last user, and every other rating"
        name = "masked parts, read as signed numbers"
        yield Statistic((THIRD_PARTY,), knows, name, "mask", seen.masked, releases=0, claimed=0.0)
    if seen.told.size:
        told = replace(together, kind="counts", coalition=("user",), values=seen.told - (USERS - 0.5), ratio=None)
        yield replace(told, name="number of raters", knows="every other rating, and what it is dealt as a rater itself")


def _perturbation(asked: Asked, gamma: float) -> Found:
    """Measure r' of the least or the greatest rating: for each, some values are impossible."""
    arm = "perturbation"
    problem = vectors_of(asked.scheme, asked.params, asked.claim, PAIRS[0], gamma=gamma)
    received = receive(problem, derive(asked.seed, "canary", arm), asked.repetitions * ENTRIES)
    knows, name = "the upload, and that the rating is one of two", f"perturbed rating alone, γ = {gamma:g}"
    return arm, problem, received, Statistic((RECOMMENDER,), knows, name, "uniform", received.entries, claimed=math.inf)


def total_problem(asked: Asked) -> dict[str, Any]:
    there = "is there" if getattr(asked.params, "unit_of", "rating") == "user" else "has rated the last item"
    return {
        "users": USERS,
        "items": ITEMS,
        "dim": 1,
        "neighbours": f"the last user, who gives everything the greatest rating, {there} or not",
        "other_rating": "the middle of the range",
        "unit": asked.scheme.unit,
    }
