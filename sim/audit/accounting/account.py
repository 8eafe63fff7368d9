"""The claimed ε beside what known envelopes, known shares and composition leave, from the recommender's view."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from protocol.arithmetic.factors import Matrix
from protocol.arithmetic.tape import exponential
from protocol.party.role import RECOMMENDER, user_index, user_name
from protocol.schemes.base import DELTA
from protocol.schemes.collection.collecting import CollectingParams
from protocol.schemes.composition import advanced_composition, basic_composition, tight_laplace
from protocol.schemes.covariance.options import CovarianceParams
from protocol.schemes.factorization.direct import DirectParams, DirectRecommender
from protocol.schemes.factorization.dynamic_recommender import DynamicRecommender
from protocol.schemes.factorization.masked import MaskedRecommender
from protocol.schemes.factorization.trusted import RatingBook, TrustedRecommender
from protocol.wire.messages import Join, NoisyGradient
from sim.audit.accounting.account_findings import dilution_of, findings_of_envelopes, no_claim, noise_finding
from sim.audit.accounting.collection_account import account_collection
from sim.audit.accounting.covariance_account import account_covariance
from sim.audit.accounting.envelope_sums import EnvelopeSums
from sim.audit.accounting.noise_test import LAPLACE_MEDIAN, NORMAL_MEDIAN, NoiseTest
from sim.audit.accounting.releases import RecommenderReading, Release
from sim.audit.accounting.to_a_user import to_a_committer, to_a_user
from sim.audit.accounting.trusted_noise import NoiseMap, read_publication
from sim.audit.findings import Finding
from sim.views.evidence import Case
from sim.views.exhibits import Exhibits

UPLOADS_TESTED = 20  # iterations of `direct` whose uploads are tested for noise: they are long

Accounted = tuple[dict[str, Any], list[Finding]]


def account(case: Case) -> Accounted:
    """Return (the `accounting` of `audit --json`, findings). Infinite figures are `math.inf`."""
    params, scheme = case.card.params, case.card.scheme
    head = {"unit": scheme.unit, "claimed": case.config.epsilon, "delta": DELTA}
    if not case.path(RECOMMENDER).is_file():
        return {**head, "method": "the recommender kept no view, so nothing can be accounted: see --views"}, []
    if isinstance(params, CovarianceParams):
        return account_covariance(case, head)
    if isinstance(params, CollectingParams):
        return account_collection(case, head)
    reading = RecommenderReading(case)
    role = reading.role
    if isinstance(role, MaskedRecommender) and not math.isinf(params.epsilon):
        return _account_envelopes(reading, case, head)
    if isinstance(role, DirectRecommender):
        return _account_direct(case, head)
    if isinstance(role, TrustedRecommender):
        return _account_trusted(case, head)
    return no_claim(head, scheme.name)


def seeded(case: Case, purpose: str) -> np.random.Generator:
    """Create a generator that makes the same draws in every audit of a run."""
    return np.random.default_rng([*case.card.run_id, *purpose.encode()])


# --- masked and dynamic ----------------------------------------------------------------------------------------------


def _account_envelopes(reading: RecommenderReading, case: Case, head: dict[str, Any]) -> Accounted:
    role = reading.role
    assert isinstance(role, MaskedRecommender)
    params = role.params
    test, ledger, guess = NoiseTest(params.n_items), None, None
    thin: list[tuple[int, int, float]] = []  # (iteration, item, strength) of sums with less noise than Lemma 1 requires
    ratios: list[Any] = []  # k/k'
    for release in reading.releases():
        if ledger is None:
            ledger = EnvelopeSums(params, role.supports, seeded(case, "accounting"))
            guess = _Guess(len(ledger.items), params.dim)
        mine, places = ledger.pick(release)
        keys = [role.item_keys[item] for item in release.items[mine]]
        envelope = exponential(keys, params.dim, "rho", release.iteration).astype(np.float64)
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
    if commits:
        document["dilution"] = dilution_of(np.concatenate(ratios))
        envelopes = reading.eta_envelopes(ledger.items).astype(np.float64)
        document["to_a_user"]["committed"] = to_a_committer(ledger, envelopes, document["composed"]["tight"])
    return document, findings_of_envelopes(document, thin, _rater_of(ledger.table(), role))


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


def _method(ledger: EnvelopeSums) -> str:
    some = "" if len(ledger.items) == ledger.rated else f"a random sample of {len(ledger.items)} of "
    return (
        f"to the recommender, from its own view and the envelopes of ρ that its tape deals, over {some}{ledger.rated} "
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


# --- direct and trusted ----------------------------------------------------------------------------------------------


def _account_direct(case: Case, head: dict[str, Any]) -> Accounted:
    params = case.card.params
    assert isinstance(params, DirectParams)
    if math.isinf(params.epsilon):
        return no_claim(head, case.card.scheme.name)
    uploads, test = _test_uploads(case)
    releases = max(uploads, default=0)
    if not releases:
        return {**head, "method": "nothing was uploaded, so nothing is accounted"}, []
    rho = "with a ρ that its user drew and nobody else knows, through the privacy loss distribution"
    words = (
        f"to the recommender: {releases} uploads of one rating's gradient, each {rho if params.rho else 'without ρ'}. "
        "The envelope of η is known, and so are the η shares of colluding raters; neither is counted on, because η is "
        "constant"
    )
    without_rho = math.inf if releases > 1 else None  # without ρ, the difference of two uploads has no noise
    composed: dict[str, Any] = {
        "releases": releases,
        "basic": basic_composition(params.epsilon, releases),
        "advanced": advanced_composition(params.epsilon, releases, DELTA),
        "tight": tight_laplace(params.epsilon, params.dim, releases, DELTA) if params.rho else without_rho,
    }
    document = {**head, "method": words, "composed": composed, "noise": test.result()}
    document["to_a_user"] = to_a_user(params, document, whole=min(uploads) == releases)
    finding = Finding(
        "composition",
        _uploaded(releases, composed["tight"], params.epsilon),
        (RECOMMENDER,),
        "weak" if composed["tight"] is None or composed["tight"] > params.epsilon else "info",
        claimed=params.epsilon,
        measured=composed,
        confidence="exact, at δ = 1e-05",
        evidence=words,
    )
    return document, [finding, *noise_finding(document["noise"], [], "user")]


def _uploaded(releases: int, tight: float | None, claim: float) -> str:
    if releases == 1:
        return "Every rating is in one upload, and the claim is for one."
    if tight is None or math.isinf(tight):
        return f"Every rating is in {releases} uploads, and without ρ nothing bounds ε of two or more of them."
    return f"Every rating is in {releases} uploads: together ε {tight:.3g} at δ = {DELTA:g}, not {claim:g}."


def _test_uploads(case: Case) -> tuple[list[int], NoiseTest]:
    """Count each user's uploads, and test whether the first ones carry ρ; the guess is the mean so far."""
    exhibits, params = Exhibits(case, (RECOMMENDER,)), case.card.params
    size = LAPLACE_MEDIAN * params.noise_scale
    test, sums, counts = NoiseTest(params.n_users), dict[int, Matrix](), dict[int, int]()
    for seen in exhibits.received(RECOMMENDER, Join.__name__, NoisyGradient.__name__):
        if isinstance(seen.message, Join):
            continue
        user = user_index(seen.sender)
        counts[user] = counts.get(user, 0) + 1
        if counts[user] > UPLOADS_TESTED:
            continue
        values = seen.message.values.astype(np.float64)
        if user in sums:
            whose = np.full(len(values), user)
            test.add("uploads", whose, np.abs(values - sums[user] / (counts[user] - 1)) / size)
        sums[user] = sums.get(user, 0) + values
    return list(counts.values()), test


def _account_trusted(case: Case, head: dict[str, Any]) -> Accounted:
    words = (
        "not bounded: one release has the claimed ε for user factors that do not depend on the ratings; these were "
        "trained on them. The published factors are one release whatever the number of steps, so nothing is composed; "
        "the recommender itself draws the noise and sees every rating"
    )
    document: dict[str, Any] = {**head, "method": words, "composed": {"releases": 1}}
    if math.isinf(case.card.params.epsilon):
        return no_claim(head, case.card.scheme.name)
    made = read_publication(case)
    if made is None:
        return {**head, "method": "nothing was published, so nothing is accounted"}, []
    book = RatingBook(made.handed, made.params.n_items)
    noise, _ = NoiseMap(book, made.user_factors, made.params, made.tape).after_steps(made.item_factors)
    test = NoiseTest(made.params.n_items)
    test.add("published factors", book.rated, np.abs(noise) / (LAPLACE_MEDIAN * made.params.noise_scale))
    document["noise"] = test.result()
    how = "values of η, worked back from the published factors and the ratings"
    return document, noise_finding(document["noise"], [], "item", how)
