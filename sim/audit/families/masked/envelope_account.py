"""The accounting of `masked` and `dynamic`: what the envelopes, known to the recommender, leave of the claimed ε."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from protocol.arithmetic.tape import exponential
from protocol.arrays import Floats, Matrix
from protocol.party.role import RECOMMENDER, user_name
from protocol.schemes.factorization.dynamic_recommender import DynamicParams, DynamicRecommender
from protocol.schemes.factorization.masked_roles import MaskedRecommender
from sim.audit.accounting.account_findings import noise_finding
from sim.audit.accounting.noise_test import NORMAL_MEDIAN, NoiseTest
from sim.audit.families.factorization.to_a_user import ALL, to_a_user
from sim.audit.families.masked.dealt_envelopes import dealt_too_small
from sim.audit.families.masked.envelope_sums import EnvelopeSums
from sim.audit.families.masked.releases import RecommenderReading, Release
from sim.audit.findings import Audited, Finding
from sim.console.console import counted, figure
from sim.views.evidence import Case


def seeded(case: Case, purpose: str) -> np.random.Generator:
    """Create a generator that makes the same draws in every audit of a run."""
    return np.random.default_rng([*case.card.run_id, *purpose.encode()])


def account_envelopes(case: Case, head: dict[str, Any]) -> Audited:
    reading = RecommenderReading(case)
    role = reading.role
    params = role.params
    test, ledger, guess = NoiseTest(params.n_items), None, None
    thin: list[tuple[int, int, float]] = []  # (iteration, item, strength) of sums with less noise than Lemma 1 requires
    ratios: list[Any] = []  # k/k'
    others: list[Matrix] = []  # envelopes that users were told in place of those of the tape
    for release in reading.releases():
        if ledger is None:
            ledger = EnvelopeSums(params, role.supports, seeded(case, "accounting"))
            guess = _Guess(len(ledger.items), params.dim)
        mine, places = ledger.pick(release)
        keys = [role.item_keys[item] for item in release.items[mine]]
        envelope = exponential(keys, params.dim, "rho", release.iteration).astype(np.float64)
        if release.dealt is not None:
            envelope = release.dealt[mine]
            others.append(envelope)
        ledger.add(release, mine, places, envelope)
        assert guess is not None
        guess.test(test, reading, release, mine, places, envelope, params.noise_scale)
        thin += _thin(release)
        ratios.append(ledger.raters[release.items] / release.contributors)
    if ledger is None or not ledger.n_releases.any():
        return {**head, "method": "no sum was released, so nothing is accounted"}, []
    document = {**head, "method": _method(ledger), **_figures(ledger), "noise": test.result()}
    commits = isinstance(role, DynamicRecommender)
    whole = commits or all((ratio == 1).all() for ratio in ratios)
    document["to_a_user"] = to_a_user(params, document, whole)
    document["rows"] = list(_rows(document))
    if commits:
        document["dilution"] = _dilution_of(np.concatenate(ratios))
        envelopes = reading.eta_envelopes(ledger.items).astype(np.float64)
        document["to_a_user"]["committed"] = _to_a_committer(ledger, envelopes, document["composed"]["tight"])
    return document, [*_findings_of(document, thin, _rater_of(ledger.table(), role)), *dealt_too_small(others)]


def _to_a_committer(ledger: EnvelopeSums, envelopes: Matrix, tight: float) -> dict[str, Any] | None:
    """Summarise ε over the items that a user committed to and did not rate; `envelopes` are those of η."""
    params = ledger.params
    if not isinstance(params, DynamicParams) or params.publish != ALL:
        return None
    left = 1 - 1 / params.committers
    even = ledger.directions_of(np.where(ledger.first > 0, 1 / (envelopes * left), 0.0))["even"]
    return {**even, **{name: min(even[name], tight) for name in ("median", "p99", "worst")}}


def _rater_of(table: list[dict[str, Any]], role: MaskedRecommender) -> str:
    """Name a rater of the worst item that has at least two raters."""
    item = next((row["item"] for row in table if row["raters"] > 1), None)
    return next((user_name(user) for user, items in role.supports.items() if item in items), user_name(0))


def _figures(ledger: EnvelopeSums) -> dict[str, Any]:
    return {
        "sums": {"released": ledger.sums, "iterations": ledger.iterations, "contributors": ledger.contributors()},
        "composed": ledger.composed(),
        "one_release": {**ledger.directions_of(ledger.first), "any_sum": ledger.any_sum()},
        "all_releases": ledger.directions_of(ledger.inverse),
        "ratings": ledger.ratings(),
        "colluders": ledger.colluders(),
        "items": ledger.table(),
        "quantiles": ledger.quantiles(),
        "curve": ledger.curve(),
    }


def _rows(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the lines of a table for the person: to whom, and ε for the median item, for 99 % and for the worst."""
    composed = document["composed"]
    others = f"(basic composition {figure(composed['basic'])}, advanced {figure(composed['advanced'])})"
    released = counted(composed["releases"], "release")
    yield {"to": f"without the envelopes, {released} {others}", "median": None, "p99": None, "worst": composed["tight"]}
    lines = {"with the envelopes, one release": document["one_release"]["even"]}
    lines["with the envelopes, all releases"] = document["all_releases"]["even"]
    for count, figures in document["colluders"].items():
        if (left := figures["one_release"]) is not None:
            lines[f"and {count} colluding, one release ({left['items']} items where a user is left)"] = left
    yield from ({"to": words, **_short(row)} for words, row in lines.items() if row is not None)


def _method(ledger: EnvelopeSums) -> str:
    some = "" if len(ledger.items) == ledger.rated else f"a random sample of {len(ledger.items)} of "
    return (
        f"to the recommender, from its own view and the envelopes of ρ that it dealt, over {some}{ledger.rated} "
        "rated items: Gaussian releases of one rating's value for a fixed u_i. Directions of the change: even over the "
        "coordinates (Lemma 1 holds with equality), random, and along the least noisy coordinate. The constant η is "
        "not counted on. composed: to a party without the envelopes, of the rating that is in the most sums; items: "
        "every release of an item; ratings: only the sums that the rating is in"
    )


def _thin(release: Release) -> list[tuple[int, int, float]]:
    """List the sums with fewer contributors than the floor, or whose contributors were told a floor not reached."""
    few = (release.strength < 1 - 1e-9) | (release.contributors < release.floors)
    return [
        (release.iteration, int(item), float(strength))
        for item, strength in zip(release.items[few], release.strength[few], strict=True)
    ]


class _Guess:
    """The mean of an item's earlier sums, weighted by 1/H: it predicts the next sum, except for its new noise."""

    def __init__(self, n_items: int, dim: int) -> None:
        self._weights = np.zeros((n_items, dim))
        self._weighted = np.zeros((n_items, dim))

    def test(
        self,
        test: NoiseTest,
        reading: RecommenderReading,
        release: Release,
        mine: Any,
        places: Any,
        envelope: Matrix,
        b: float,
    ) -> None:
        items, k, sums = release.items[mine].astype(np.int64), release.contributors[mine], release.sums[mine]
        new = ~self._weights[places].any(axis=1)
        if new.any():
            both = envelope[new] + reading.eta_envelopes(release.items[mine][new]).astype(np.float64)
            test.add("first sums", items[new], np.abs(sums[new]) / (NORMAL_MEDIAN * b * np.sqrt(2 * both)), k[new])
        old = ~new
        guesses = self._weighted[places[old]] / self._weights[places[old]]
        size = NORMAL_MEDIAN * b * np.sqrt(2 * envelope[old])
        test.add("later sums", items[old], np.abs(sums[old] - guesses) / size, k[old])
        self._weights[places] += 1 / envelope
        self._weighted[places] += sums / envelope


# --- findings ---------------------------------------------------------------------------------------------------------


def _dilution_of(ratios: Floats) -> dict[str, Any]:
    """Summarise the ratios k/k' of the released sums."""
    if not len(ratios):
        return {"sums": 0}
    return {
        "sums": len(ratios),
        "mean": float(ratios.mean()),
        "median": float(np.median(ratios)),
        "max": float(ratios.max()),
    }


def _findings_of(document: dict[str, Any], thin: list[tuple[int, int, float]], rater: str) -> list[Finding]:
    found = [_known_envelope(document), _known_shares(document, rater), _composition(document)]
    if "dilution" in document:
        found.append(_diluted(document["dilution"]))
    return [*found, *noise_finding(document["noise"], thin, "item")]


def _known_envelope(document: dict[str, Any]) -> Finding:
    figures, claim = document["one_release"], document["claimed"]
    even = figures["even"]
    return Finding(
        "known-envelope",
        f"The recommender knows the envelopes: one release leaves it ε {even['median']:.3g} for the median item and "
        f"{even['worst']:.3g} for the worst (row {even['item']} of V) at δ = 1e-05, where {claim:g} is claimed.",
        (RECOMMENDER,),
        "weak" if even["worst"] > claim else "info",
        claimed=claim,
        measured={way: _short(figures[way]) for way in ("even", "random", "worst", "any_sum")},
        confidence="exact: the envelopes follow from the recommender's own tape",
        evidence=f"the first release of each of {even['items']} items; any_sum: each of {figures['any_sum']['items']}",
    )


def _short(figures: dict[str, Any]) -> dict[str, Any]:
    return {name: figures[name] for name in ("median", "p99", "worst")}


def _known_shares(document: dict[str, Any], rater: str) -> Finding:
    claim, colluders, sums = document["claimed"], document["colluders"], document["sums"]["contributors"]
    measured = {
        name: None if made["one_release"] is None else _short(made["one_release"]) for name, made in colluders.items()
    }
    last = colluders["all but one"]["one_release"]
    return Finding(
        "known-shares",
        f"Contributors know their shares: c of k leave 1 − c/k of the variance, and k − 1 of them leave ε "
        f"{last['median']:.3g} (median over items) of one release, not {claim:g}.",
        (RECOMMENDER, rater),
        "weak" if last["worst"] > claim else "info",
        claimed=claim,
        measured=measured,
        confidence="exact, for any c of the contributors of a sum",
        evidence=f"first releases in which an honest contributor is left; {sums['single']} of "
        f"{document['sums']['released']} sums have one contributor only; {rater} is one of the raters",
    )


def _composition(document: dict[str, Any]) -> Finding:
    claim, composed, ratings = document["claimed"], document["composed"], document["ratings"]
    more = composed["releases"] > 1 and max(composed["tight"], ratings["worst"]) > claim
    return Finding(
        "composition",
        f"A rating is in up to {composed['releases']} releases: together ε {composed['tight']:.3g} to a party without "
        f"the envelopes and up to {ratings['worst']:.3g} to the recommender, not {claim:g}.",
        (RECOMMENDER,),
        "weak" if more else "info",
        claimed=claim,
        measured={**composed, "recommender": _short(ratings)},
        confidence="exact, at δ = 1e-05; tight is the privacy loss distribution, rounded up",
        evidence=f"{ratings['ratings']} ratings, each through the released sums that its user contributed to (by item, "
        "the accounting counts every sum of the item)",
    )


def _diluted(dilution: dict[str, Any]) -> Finding:
    mean = dilution.get("mean", 1.0)
    return Finding(
        "diluted-sum",
        f"The whole objective noise is added to the gradients of only some raters: their weight in a sum against it is "
        f"smaller than published by a factor of {mean:.3g} on average.",
        (RECOMMENDER,),
        "weak" if mean > 1 else "info",
        claimed=1.0,
        measured=dilution,
        confidence="exact: every released sum",
        evidence="k_j, all who joined with the item, over k'_j, who contributed to the sum",
    )
