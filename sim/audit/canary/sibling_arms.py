"""Canaries of the schemes that do not factorize, and the statistics that each coalition computes from them.

| arm | neighbours | what is measured |
|---|---|---|
| `release` (entries) | one entry of a vector | the received entry, for each pair of its possible values |
| `beside` | the same, in a vector whose other entry is known | draws that two entries share |
| `release` (totals) | one rating, or one user, is present or not | all noisy sums together, at the run's budget |
| `parts` | the same | each of the three measurements alone, each with a budget of 1, and all together |
| `perturbation` | the value of one rating | hybrid's r' alone, for which no ε is claimed |
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from protocol.arithmetic.tape import derive
from protocol.params import Params
from protocol.party.role import RECOMMENDER, THIRD_PARTY
from protocol.schemes.base import DELTA, Scheme
from protocol.schemes.collection.collecting import CollectingParams
from protocol.schemes.composition import gaussian_epsilon
from protocol.schemes.covariance.options import CovarianceParams, HybridParams
from protocol.schemes.covariance.sensitivity import gaussian_mu, kappa, whole_epsilon
from sim.audit.canary.arms import Statistic
from sim.audit.canary.bound_rows import BoundRow, Found, make_row
from sim.audit.canary.canary import CannotBeMeasured
from sim.audit.canary.canary_sums import ITEMS, USERS, Neighbours, Ratios, joined, neighbours_of, play_chunk
from sim.audit.canary.randomized_entries import VECTOR, beside_known, log_ratio, receive, vectors_of
from sim.audit.canary.repeat import cut, spread
from sim.console.progress import Tell

ENTRIES = 20  # per requested repetition: entries are cheap
PAIRS = (("least", "greatest"), ("missing", "greatest"), ("missing", "least"))
# In this range entries can tell too little noise from enough and show the claimed ε; outside, ε = 1 is measured too.
MEASURABLE = (0.1, 6.0)
STAND_IN = 1.0

BUDGETS = {"budget_global": 1 / 3, "budget_items": 1 / 3, "budget_covariance": 1 / 3}
EACH_ONE = 3.0  # θ that gives each measurement a budget of 1
RELEASE, PARTS = 0.5, 1.0  # fractions of the requested repetitions
OUTSIDER = "every other rating, and the noisy sums of which everything that is published is made"


@dataclass(frozen=True)
class Asked:
    """The arguments of `empirical.measure`."""

    scheme: Scheme
    params: Params | None
    claim: float
    repetitions: int
    seed: bytes
    workers: int | None
    confidence: float
    tell: Tell = lambda done, total: None


@dataclass(frozen=True)
class NamedArm:
    name: str


def measure_sibling(asked: Asked) -> tuple[list[BoundRow], dict[str, Any]]:
    """Return (rows, the problem in words); raise `CannotBeMeasured` for a scheme of another kind."""
    kind = asked.scheme.params_class
    if issubclass(kind, CollectingParams):
        found, problem = list(of_entries(asked)), _entry_problem(asked)
    elif issubclass(kind, CovarianceParams):
        found, problem = list(of_totals(asked)), _total_problem(asked)
    else:
        raise CannotBeMeasured(f"{asked.scheme.name} cannot be measured: nothing is known of what its users send.")
    each = 1 - (1 - asked.confidence) / len(found)  # so that all rows hold jointly with the stated confidence
    claims = [one[1].params.epsilon if one[3].claimed is None else one[3].claimed for one in found]
    rows = [make_row(one, claimed, each) for one, claimed in zip(found, claims, strict=True)]
    return rows, problem | {"epsilons": sorted({row.problem.params.epsilon for row in rows})}


# --- entries ---------------------------------------------------------------------------------------------------------


def of_entries(asked: Asked) -> Iterator[Found]:
    measurable = MEASURABLE[0] <= asked.claim <= MEASURABLE[1]
    for epsilon in (asked.claim,) if measurable else (STAND_IN, asked.claim):
        for pair in PAIRS:
            yield of_entry(asked, epsilon, pair)
        if epsilon == asked.claim and not measurable:
            continue
        for pair in PAIRS[:2]:
            yield of_entry(asked, epsilon, pair, beside=True)


def of_entry(asked: Asked, epsilon: float, pair: tuple[str, str], beside: bool = False) -> Found:
    arm, words = NamedArm("beside" if beside else "release"), " or ".join(pair)
    problem = vectors_of(asked.scheme, asked.params, epsilon, pair, beside)
    seed = derive(asked.seed, "canary", arm.name, words, repr(epsilon))
    received = receive(problem, seed, asked.repetitions * (1 if beside else ENTRIES))
    if beside:
        knows, name = "the other entry of a vector of two", f"entry beside a known one, {words}"
        values = beside_known(problem, received)
    else:
        knows, name = "that the entry is one of two (likelihood ratio by the exact law)", f"entry, {words}"
        values = log_ratio(problem, received)
    return arm, problem, received, Statistic((RECOMMENDER,), f"the upload, and {knows}", name, "noise", values)


def _entry_problem(asked: Asked) -> dict[str, Any]:
    return {
        "users": 1,
        "items": VECTOR,
        "dim": 1,
        "neighbours": "one entry of a user's vector is the least rating, the greatest, or missing; each entry of a "
        "vector is a repetition, and of a vector of two the first",
        "other_rating": None,
        "unit": asked.scheme.unit,
    }


# --- totals ----------------------------------------------------------------------------------------------------------


def of_totals(asked: Asked) -> Iterator[Found]:
    assert asked.params is None or isinstance(asked.params, CovarianceParams)
    release = neighbours_of(asked.scheme, asked.params, asked.claim)
    parts = neighbours_of(asked.scheme, asked.params, EACH_ONE, **BUDGETS)
    played = ((NamedArm("release"), release, RELEASE), (NamedArm("parts"), parts, PARTS))
    work = []
    for arm, problem, part in played:
        seed = derive(asked.seed, "canary", arm.name, repr(problem.params.epsilon))
        work.append(cut(problem, seed, round(part * asked.repetitions)))
    whole, each = (joined(chunks) for chunks in spread(play_chunk, work, asked.workers, asked.tell))
    all_sums = whole.overall + whole.items + whole.covariance
    yield NamedArm("release"), release, whole, _together(release.params, all_sums)
    for statistic in of_parts(parts, each):
        yield NamedArm("parts"), parts, each, statistic
    if isinstance(parts.params, HybridParams) and parts.params.gamma:
        yield _perturbation(asked, parts.params.gamma)


def _who(params: CovarianceParams) -> tuple[str, ...]:
    """Name the party that the noise is for: a recommender that learns only the sums, else any receiver of results."""
    return (RECOMMENDER,) if getattr(params, "form", "") == "dense" else ()


def _together(params: CovarianceParams, values: Any) -> Statistic:
    who, name = _who(params), "all noisy sums together"
    if params.gaussian:
        claimed, mu = whole_epsilon(params, DELTA), gaussian_mu(params)
        return Statistic(who, OUTSIDER, name, "noise", values, claimed=claimed, claimed_mu=mu)
    return Statistic(who, OUTSIDER, name, "noise", values, claimed=params.epsilon)  # θ, even if pairs spend more


def of_parts(problem: Neighbours, seen: Ratios) -> Iterator[Statistic]:
    params, words = problem.params, ("global sum and count", "item sums and counts", "covariances and weights")
    who, columns = _who(params), (seen.overall, seen.items, seen.covariance)
    for name, budget, values in zip(words, params.budgets, columns, strict=True):
        mu = math.sqrt(2) * budget / kappa(params) if params.gaussian else None
        claimed = budget if mu is None else gaussian_epsilon(mu, DELTA)
        yield Statistic(who, OUTSIDER, name, "noise", values, claimed=claimed, claimed_mu=mu)
    together = _together(params, sum(columns))
    yield together
    if seen.own_shares.size:
        coalition = (RECOMMENDER, "all users but one")
        knows = "every other part, and the shares of the noise that are in them"
        name = "all that the last user added"
        yield replace(together, coalition=coalition, knows=knows, name=name, kind="others", values=seen.own_shares)
    if seen.masked.size:
        knows = "the masked parts of the last user, and every other rating"
        name = "masked parts, read as signed numbers"
        yield Statistic((THIRD_PARTY,), knows, name, "mask", seen.masked, releases=0, claimed=0.0)
    if seen.told.size:
        told = replace(together, kind="counts", coalition=("user",), values=seen.told - (USERS - 0.5))
        yield replace(told, name="number of raters", knows="every other rating, and what it is dealt as a rater itself")


def _perturbation(asked: Asked, gamma: float) -> Found:
    """Measure r' of the least or the greatest rating: for each, some values are impossible."""
    arm = NamedArm("perturbation")
    problem = vectors_of(asked.scheme, asked.params, asked.claim, PAIRS[0], gamma=gamma)
    received = receive(problem, derive(asked.seed, "canary", arm.name), asked.repetitions * ENTRIES)
    knows, name = "the upload, and that the rating is one of two", f"perturbed rating alone, γ = {gamma:g}"
    return arm, problem, received, Statistic((RECOMMENDER,), knows, name, "uniform", received.entries, claimed=math.inf)


def _total_problem(asked: Asked) -> dict[str, Any]:
    there = "is there" if getattr(asked.params, "unit_of", "rating") == "user" else "has rated the last item"
    return {
        "users": USERS,
        "items": ITEMS,
        "dim": 1,
        "neighbours": f"the last user, who gives everything the greatest rating, {there} or not",
        "other_rating": "the middle of the range",
        "unit": asked.scheme.unit,
    }
