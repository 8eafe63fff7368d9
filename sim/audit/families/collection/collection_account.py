"""The accounting of `laplace-ratings` and `randomized-response`, and a test that their mechanism was used.

An entry is randomized once, independently of all others: ε for one entry, exactly, and nε for a vector of n. The
auditor knows the ratings, so it can count the kept, dropped, altered and created entries and compare them with the law
of the mechanism. Each count is binomial, exactly; a run is called faulty only if less was randomized than the law says.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from protocol.party.role import RECOMMENDER, UserInput, user_index
from protocol.schemes.base import DELTA
from protocol.schemes.collection import laplace_ratings, randomized_response
from protocol.schemes.collection.collecting import CollectingParams
from protocol.wire.messages import PerturbedRatings, RandomizedLevels
from sim.audit import truth
from sim.audit.accounting.account_findings import noise_finding
from sim.audit.accounting.noise_test import FALSE_ALARM, LAPLACE_MEDIAN, NoiseTest
from sim.audit.findings import Finding
from sim.audit.scoring import clopper_pearson
from sim.views.evidence import Case
from sim.views.exhibits import Exhibits

_HOW = "noises, which are what users sent less the entry that they brought"


class Count(NamedTuple):
    """Entries that the mechanism should change with probability `chance`, and the number that it changed."""

    what: str
    entries: int
    changed: int
    chance: float

    @property
    def p_value(self) -> float:
        """Compute the probability that this few entries or fewer are changed."""
        return float(stats.binom.cdf(self.changed, self.entries, self.chance))

    def row(self) -> dict[str, Any]:
        low, high = clopper_pearson(self.changed, self.entries)
        return {
            "what": self.what,
            "entries": self.entries,
            "changed": self.changed,
            "expected": self.entries * self.chance,
            "chance": self.chance,
            "measured": [low, high],
            "p": self.p_value,
        }


def account_collection(case: Case, head: dict[str, Any]) -> tuple[dict[str, Any], list[Finding]]:
    params = CollectingParams.of(case.card.params)
    sizes = sorted(len(own.items) for own in truth.all_ratings(case).values())
    composed = {
        "releases": 1,
        "entry": params.epsilon,
        "tight": params.epsilon,
        "vector": params.n_items * params.epsilon,
        "two_users_most": sum(sizes[-2:]) * params.epsilon if len(sizes) > 1 else None,
    }
    words = "every entry of a vector goes through the mechanism once, independently: exact, at δ = 0"
    document = {**head, "delta": 0.0, "method": words, "composed": composed}
    counts, test = (_laplace if case.card.scheme.messages[1] is PerturbedRatings else _response)(case, params)
    found = [_composition(params, composed)]
    if counts:
        document["mechanism"] = [count.row() for count in counts]
        found.append(_mechanism(params, counts))
    document["noise"] = test.result()
    return document, [*found, *noise_finding(document["noise"], [], "user", _HOW, "the mechanism")]


def _composition(params: CollectingParams, composed: dict[str, Any]) -> Finding:
    n = params.n_items
    return Finding(
        "composition",
        f"ε = {params.epsilon:g} is of one entry: a whole vector of {n} entries has {composed['vector']:.4g}.",
        (RECOMMENDER,),
        "weak" if n > 1 else "info",
        claimed=params.epsilon,
        measured=composed,
        confidence="exact, at δ = 0, and attained",
        evidence="independent entries: losses add. two_users_most: the two users with the most ratings, who differ at "
        f"most where either rated. Stated at δ = {DELTA:g} elsewhere; here δ is 0.",
    )


def _pairs(case: Case, kind: type) -> list[tuple[int, UserInput, Any]]:
    """List (user, its inputs, its message) for the users whose views were kept."""
    known = truth.all_ratings(case)
    seen = Exhibits(case, (RECOMMENDER,)).received(RECOMMENDER, kind.__name__)
    return [(user_index(one.sender), known[one.sender], one.message) for one in seen if one.sender in known]


def _laplace(case: Case, params: CollectingParams) -> tuple[list[Count], NoiseTest]:
    law, n = laplace_ratings.law(params), params.n_items
    test, rated, dropped, missing, created = NoiseTest(params.n_users), 0, 0, 0, 0
    for user, own, message in _pairs(case, PerturbedRatings):
        there, centres = np.zeros(n, np.bool_), np.zeros(n)
        there[own.items], centres[own.items] = True, params.grid.scaled(own.ratings)
        sent = message.items
        rated, missing = rated + len(own.items), missing + n - len(own.items)
        dropped += len(own.items) - int(there[sent].sum())
        created += int((~there[sent]).sum())
        noise = np.abs(message.values.astype(np.float64).reshape(-1) - centres[sent])
        test.add("numbers", np.full(len(noise), user), noise[:, None] / (LAPLACE_MEDIAN * law.scale))
    counts = [Count("ratings dropped", rated, dropped, law.flip), Count("ratings created", missing, created, law.flip)]
    return [count for count in counts if count.entries], test


def _response(case: Case, params: CollectingParams) -> tuple[list[Count], NoiseTest]:
    law, n = randomized_response.law(params), params.n_items
    chance, rated, altered, missing, created = law.levels * law.other, 0, 0, 0, 0
    for _, own, message in _pairs(case, RandomizedLevels):
        entries = params.grid.vector(own.items, own.ratings, n)
        changed, there = message.levels.reshape(-1) != entries, entries > 0
        rated, missing = rated + int(there.sum()), missing + int((~there).sum())
        altered, created = altered + int(changed[there].sum()), created + int(changed[~there].sum())
    counts = [Count("ratings altered or dropped", rated, altered, chance),
              Count("ratings created", missing, created, chance)]  # fmt: skip
    return [count for count in counts if count.entries], NoiseTest(1)


def _mechanism(params: CollectingParams, counts: list[Count]) -> Finding:
    """Test the counts and their sum, with Bonferroni's correction; all have the same chance."""
    whole = Count("entries changed", sum(c.entries for c in counts), sum(c.changed for c in counts), counts[0].chance)
    tests = [*counts, whole]
    p = min(1.0, len(tests) * min(count.p_value for count in tests))
    missing = p < FALSE_ALARM
    shown = min(1.0, len(tests) * float(stats.binom.pmf(0, whole.entries, whole.chance))) < FALSE_ALARM
    low, high = clopper_pearson(whole.changed, whole.entries)
    told = "; ".join(f"{c.what}: {c.changed} of {c.entries}, {c.entries * c.chance:.4g} expected" for c in counts)
    if missing:
        title = f"Less is randomized than ε = {params.epsilon:g} asks for: {told}."
    elif shown:
        title = f"What was dropped, altered and created is as the mechanism's law says: {told}."
    else:
        title = f"So few entries are to be changed that a missing mechanism would not be noticed: {told}."
    return Finding(
        "missing-noise",
        title,
        (RECOMMENDER,),
        "break" if missing else "info",
        claimed=whole.chance,
        measured={"changed": whole.changed / whole.entries, "interval": [low, high], "p": p},
        chance=whole.chance,
        confidence=f"95 % Clopper–Pearson: {low:.4g} to {high:.4g} of the entries changed; p = {p:.2g} over "
        f"{len(tests)} exact binomial tests (Bonferroni; the mechanism is missing below {FALSE_ALARM:g})",
        evidence="what the recommender received, entry by entry, against what users brought",
    )
