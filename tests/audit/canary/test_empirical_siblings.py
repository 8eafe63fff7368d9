"""Canaries of the schemes that do not factorize: correct ones keep their claim, planted faults exceed it."""

from __future__ import annotations

import dataclasses
import json
import math

import numpy as np
import pytest
from example_shares import Shares

from protocol.arithmetic.tape import Tape
from protocol.party.role import RECOMMENDER, Send, role_of
from protocol.schemes import Shape
from protocol.schemes.collection.laplace_ratings import LaplaceRatings, LaplaceUser
from protocol.schemes.collection.mechanisms import ModifiedLaplace, RandomizedResponse
from protocol.schemes.collection.randomized_response import RandomizedResponseRatings, RespondingUser
from protocol.schemes.covariance.covariance import Covariance
from protocol.schemes.covariance.covariance_masked import CovarianceMasked
from protocol.schemes.covariance.covariance_masked_roles import MaskedCovarianceUser, masks_of
from protocol.schemes.covariance.hybrid import Hybrid
from protocol.wire.messages import MaskedPart, PerturbedRatings, RandomizedLevels
from sim.audit.canary.bound_rows import Asked, make_row
from sim.audit.canary.empirical import findings_of, measure
from sim.audit.canary.epsilon_bound import gaussian_attainable, gaussian_bound
from sim.audit.families.collection.randomized_entries import Received, log_ratio, of_entry, receive, vectors_of
from sim.audit.families.covariance.canary_sums import neighbours_of, play_chunk
from sim.audit.families.covariance.sum_arms import BUDGETS, EACH_ONE, of_parts
from sim.audit.families.registry import family_of
from sim.audit.findings import verdict
from sim.foreign.plain_text import jsonable

SEED = bytes(range(32))
COLLECTING = [LaplaceRatings, RandomizedResponseRatings]
PAIRS = [("least", "greatest"), ("missing", "greatest"), ("missing", "least")]


def rows_of(scheme, epsilon=1.0, repetitions=1000):
    return family_of(scheme).measure(Asked(scheme, None, epsilon, repetitions, SEED, 1, 0.995))[0]


def parts_of(scheme, repetitions=600, **options):
    """Measure the arm `parts` alone."""
    params = None
    if options:
        shape = Shape(4, 8, (1.0, 5.0), (6,) * 4, np.full(8, 3, np.int64), 1.0)
        params, _ = scheme.make_params(shape, epsilon=1.0, **options)
    problem = neighbours_of(scheme, params, EACH_ONE, **BUDGETS)
    seen = play_chunk(problem, SEED, 0, repetitions)
    found = [("parts", problem, seen, statistic) for statistic in of_parts(problem, seen)]
    return [make_row(one, one[3].claimed, 1 - 0.005 / len(found)) for one in found]


def exceeding(rows):
    return {row.statistic.name for row in rows if row.exceeds}


def found_in(rows, name, arm="parts"):
    (row,) = [row for row in rows if (row.statistic.name, row.arm) == (name, arm)]
    return row


def severities(rows):
    return {(finding.id, finding.severity) for finding in findings_of(rows)}


# ---- faults: a role with other parameters than claimed, or with other draws


def changed(scheme, whose, **changes):
    """Make a `scheme` in which the role `whose` has other parameters; `changes` map the old value to the new."""

    class Changed(scheme):
        def make_role(self, party, setting, tape, inputs):
            if role_of(party) == whose:
                values = {name: new(getattr(setting.params, name)) for name, new in changes.items()}
                setting = dataclasses.replace(setting, params=dataclasses.replace(setting.params, **values))
            return super().make_role(party, setting, tape, inputs)

    return Changed()


def twice(value):
    return 2 * value


def infinite(value):
    return math.inf


class SameLaplaceUser(LaplaceUser):
    """A user that takes the same draw for all entries."""

    def upload(self):
        mechanism, scaled = ModifiedLaplace(self.params.epsilon), self.params.grid.scaled(self.inputs.ratings)
        sent, values = [], []
        for item in range(self.params.n_items):
            rated = self.inputs.items == item
            here, numbers = mechanism.answer(self.tape, np.zeros(rated.sum(), np.uint32), scaled[rated], 1)
            sent += [item] * len(here)
            values += list(numbers)
        return PerturbedRatings(np.array(sent, np.uint32), np.array(values, np.float32).reshape(-1, 1))


class SameRespondingUser(RespondingUser):
    def upload(self):
        entries = self.params.grid.vector(self.inputs.items, self.inputs.ratings, self.params.n_items)
        mechanism = RandomizedResponse(self.params.epsilon, self.params.grid.levels)
        answers = [mechanism.answer(self.tape, entries[item : item + 1])[0] for item in range(len(entries))]
        return RandomizedLevels(np.array(answers, np.float32)[:, None])


class SameLaplace(LaplaceRatings):
    def make_role(self, party, setting, tape, inputs):
        return SameLaplaceUser(setting, tape, inputs)


class SameResponse(RandomizedResponseRatings):
    def make_role(self, party, setting, tape, inputs):
        return SameRespondingUser(setting, tape, inputs)


class HalfQuietTape(Tape):
    """A tape without noise in the second round."""

    def normal(self, rows, dim, *name):
        return super().normal(rows, dim, *name) * (name[-1] != 2)


class HalfQuiet(Covariance):
    def make_role(self, party, setting, tape, inputs):
        if party == RECOMMENDER:
            tape = HalfQuietTape(tape.key("quiet"))
        return super().make_role(party, setting, tape, inputs)


class UnmaskedUser(MaskedCovarianceUser):
    def receive(self, sender, message):
        return [self._bare(effect) for effect in super().receive(sender, message)]

    def _bare(self, effect):
        if not (isinstance(effect, Send) and isinstance(effect.message, MaskedPart)):
            return effect
        part = effect.message
        masks = masks_of(self.setting, self.mask_key, part.iteration, len(part.values))
        return Send(effect.to, MaskedPart(part.iteration, part.items, self.setting.ring.subtract(part.values, masks)))


class Unmasked(CovarianceMasked):
    def make_role(self, party, setting, tape, inputs):
        if role_of(party) == "user":
            return UnmaskedUser(setting, tape, inputs)
        return super().make_role(party, setting, tape, inputs)


# ---- the bound for Gaussian noise


def draws(mu, seed, n=4000):
    random, truth = np.random.default_rng(seed), np.arange(n) % 2 == 1
    return random.normal(size=n) + mu * truth - mu / 2, truth


def test_a_gaussian_bound_holds_is_nearly_tight_and_finds_half_the_noise():
    bounds = [gaussian_bound(*draws(1.0, seed), 0.95, 1e-5).mu for seed in range(40)]
    assert sum(bound > 1 for bound in bounds) <= 2, "5 % of forty"
    assert np.median(bounds) > 0.85
    assert min(gaussian_bound(*draws(2.0, seed), 0.95, 1e-5).mu for seed in range(5)) > 1
    shown = np.median([gaussian_bound(*draws(1.0, seed), 0.95, 1e-5).epsilon for seed in range(40)])
    assert gaussian_attainable(1.0, 2000, 0.95, 1e-5) == pytest.approx(shown, rel=0.1)


def test_of_nothing_a_gaussian_bound_shows_nothing_and_of_everything_what_can_be_certified():
    nothing = gaussian_bound(*draws(0.0, 1), 0.995, 1e-5)
    assert nothing.mu == nothing.epsilon == 0
    everything = gaussian_bound(*draws(100.0, 1), 0.995, 1e-5)
    assert everything.epsilon == pytest.approx(everything.certifiable) and everything.at_delta < everything.epsilon


# ---- entries of a vector


@pytest.mark.parametrize("scheme", COLLECTING)
@pytest.mark.parametrize("pair", PAIRS)
def test_the_statistic_is_the_log_likelihood_ratio_of_the_exact_law(scheme, pair):
    problem = vectors_of(scheme(), None, 1.3, pair)
    said = np.array([math.nan, 1, 2, 3, 4, 5]) if scheme is RandomizedResponseRatings else np.linspace(-3, 3, 13)
    received = receive(problem, SEED, 400)
    found = log_ratio(problem, dataclasses.replace(received, entries=said))
    if scheme is RandomizedResponseRatings:
        law = RandomizedResponse(1.3, 5)
        one, other = (0 if entry is None else int(entry) for entry in problem.pair)
        expected = [math.log(law.mass(other, answer) / law.mass(one, answer)) for answer in range(6)]
    else:
        law = ModifiedLaplace(1.3)
        one, other = (None if entry is None else (entry - 3) / 2 for entry in problem.pair)
        expected = [law.log_density(other, z) - law.log_density(one, z) for z in said]
    assert found == pytest.approx(expected, abs=1e-8)
    assert np.max(np.abs(found)) == pytest.approx(1.3, abs=1e-6), "the claim is attained"


@pytest.mark.parametrize("scheme", COLLECTING)
def test_a_collecting_mechanism_keeps_its_claim_and_is_nearly_tight(scheme):
    rows = rows_of(scheme(), 1.0, 2000)
    assert not exceeding(rows) and len(rows) == 5
    release = [row for row in rows if row.arm == "release"]
    assert len(release) == 3 and min(row.bound.epsilon for row in release) > 0.8
    assert all(len(row.observed) == 40_000 for row in release)
    assert severities(rows) == {("missing-noise", "info")}


@pytest.mark.parametrize("scheme", COLLECTING)
@pytest.mark.parametrize("epsilon", [0.05, 8.0])
def test_a_claim_that_is_hard_to_measure_is_measured_beside_one(scheme, epsilon):
    rows = rows_of(scheme(), epsilon, 400)
    assert {row.problem.params.epsilon for row in rows} == {1.0, epsilon} and not exceeding(rows)


@pytest.mark.parametrize("scheme", COLLECTING)
@pytest.mark.parametrize(("epsilon", "factor"), [(0.3, 2), (1.0, 1.25), (4.0, 1.25), (1.0, math.inf)])
def test_too_little_noise_or_none_is_found(scheme, epsilon, factor):
    rows = rows_of(changed(scheme, "user", epsilon=lambda claim: claim * factor), epsilon, 2000)
    assert len([row for row in rows if row.exceeds and row.arm == "release"]) == 3
    assert severities(rows) == {("missing-noise", "break")}
    assert verdict(findings_of(rows), scheme.known_weaknesses) == "beyond-claims"


@pytest.mark.parametrize("scheme", [SameLaplace, SameResponse])
def test_draws_that_entries_share_are_found_beside_a_known_entry(scheme):
    asked = Asked(scheme(), None, 1.0, 600, SEED, 1, 0.995)
    for pair in PAIRS[:2]:
        row = make_row(of_entry(asked, 1.0, pair, beside=True), 1.0, 0.995)
        assert row.exceeds and row.bound.epsilon > 2


def test_what_is_received_is_of_the_role_and_repeats_itself():
    problem = vectors_of(LaplaceRatings(), None, math.inf, ("missing", "greatest"))
    received = receive(problem, SEED, 1000)
    assert isinstance(received, Received) and 400 < received.greatest.sum() < 600
    assert np.array_equal(np.isnan(received.entries), ~received.greatest)
    assert set(received.entries[received.greatest]) == {1}
    noisy = vectors_of(LaplaceRatings(), None, 1.0, ("missing", "greatest"))
    assert np.array_equal(*(receive(noisy, SEED, 1000).entries for _ in range(2)), equal_nan=True)


# ---- sums over users


def test_the_log_likelihood_ratio_of_gaussian_sums_has_the_mean_that_the_budgets_give():
    """μ²/2 with the record, −μ²/2 without: 1/2 where the sensitivity is attained."""
    budgets = dict.fromkeys(("budget_global", "budget_items", "budget_covariance"), 1 / 3)
    shape = Shape(3, 6, (1.0, 5.0), (6,) * 3, np.full(6, 3, np.int64), 1.0)
    params, _ = Covariance().make_params(shape, epsilon=3.0, unit_of="user")
    seen = play_chunk(neighbours_of(Covariance(), params, 3.0, **budgets), SEED, 0, 1000)
    for values in (seen.overall, seen.items):
        signed = np.where(seen.greatest, values, -values)
        assert signed.mean() == pytest.approx(0.5, abs=4 / math.sqrt(1000)) and 0.9 < signed.std() < 1.1
    assert 0.1 < np.where(seen.greatest, seen.covariance, -seen.covariance).mean() < 0.5, "averages are noisy"


@pytest.mark.parametrize("scheme", [Covariance, CovarianceMasked, Hybrid])
def test_with_hardly_any_noise_every_sum_tells_the_record(scheme):
    seen = play_chunk(neighbours_of(scheme(), None, 1e5), SEED, 0, 40)
    for values in (seen.overall, seen.items, seen.covariance):
        assert np.array_equal(values > 0, seen.greatest) and np.abs(values).min() > 20


@pytest.mark.parametrize(
    ("scheme", "options", "least"),
    [
        (Covariance, {"noise": "laplace"}, 0.0),
        (Covariance, {"unit_of": "user", "predictor": "knn"}, 2.0),
        (CovarianceMasked, {"form": "sparse"}, 2.0),
        (CovarianceMasked, {"unit_of": "user"}, 2.0),
        (Hybrid, {"gamma": 0.5}, 0.0),
    ],
)
def test_noisy_sums_keep_their_claim_with_every_option(scheme, options, least):
    rows = parts_of(scheme(), **options)
    told = {"number of raters"} if options.get("form") == "sparse" else set()
    assert exceeding(rows) == told and len(rows) == 4 + len(told)
    assert found_in(rows, "all noisy sums together").bound.epsilon > least
    assert severities(rows) == {("missing-noise", "info")} | ({("support", "weak")} if told else set())
    assert verdict(findings_of(rows), scheme.known_weaknesses) == "within-claims"


def test_noisy_sums_keep_their_claim_at_the_budget_of_the_run_and_part_by_part():
    rows = rows_of(Covariance(), 1.0, 1600)
    assert not exceeding(rows)
    assert found_in(rows, "all noisy sums together", "release").claimed == pytest.approx(3.449, abs=0.001)
    for name in ("global sum and count", "item sums and counts"):
        row = found_in(rows, name)
        assert row.statistic.claimed_mu == pytest.approx(1) and 0.6 < row.bound.mu <= 1
    assert severities(rows) == {("missing-noise", "info")}


def test_perturbed_ratings_alone_show_as_much_as_can_be_shown():
    rows = rows_of(Hybrid(), 1.0, 400)
    row = found_in(rows, "perturbed rating alone, γ = 1", "perturbation")
    assert row.bound.epsilon == pytest.approx(row.bound.certifiable, abs=0.05) and row.bound.epsilon > 5
    assert not row.exceeds and row.document()["claimed"] is None
    assert ("uniform-noise", "info") in severities(rows)


@pytest.fixture(scope="module")
def masked():
    return parts_of(CovarianceMasked(), 1000)


def test_a_masked_sum_keeps_its_claim_to_either_server(masked):
    assert exceeding(masked) == {"all that the last user added"}
    assert found_in(masked, "masked parts, read as signed numbers").claimed == 0
    assert {row.statistic.coalition for row in masked if row.statistic.kind == "noise"} == {(RECOMMENDER,)}


def test_who_knows_all_other_shares_learns_more_which_is_a_declared_weakness(masked):
    row = found_in(masked, "all that the last user added")
    assert row.bound.mu > math.sqrt(3), "a third of the variance is left"
    assert ("known-shares", "weak") in severities(masked)
    assert verdict(findings_of(masked), CovarianceMasked.known_weaknesses) == "within-claims"


@pytest.mark.parametrize(
    ("scheme", "name"),
    [
        (changed(Covariance, RECOMMENDER, epsilon=twice), "global sum and count"),
        (changed(Covariance, RECOMMENDER, joint=lambda joint: False), "item sums and counts"),
        (changed(Covariance, RECOMMENDER, epsilon=infinite), "all noisy sums together"),
        (changed(Hybrid, RECOMMENDER, epsilon=lambda claim: 3 * claim), "global sum and count"),
        (changed(CovarianceMasked, "user", epsilon=twice), "item sums and counts"),
        (HalfQuiet(), "covariances and weights"),
    ],
)
def test_too_little_noise_in_sums_is_found(scheme, name):
    rows = parts_of(scheme, 1000 if name == "item sums and counts" else 500)
    assert found_in(rows, name).exceeds and ("missing-noise", "break") in severities(rows)
    assert verdict(findings_of(rows), scheme.known_weaknesses) == "beyond-claims"


def test_the_printed_reading_with_laplace_noise_is_beyond_its_claim():
    """A pair spends twice its budget."""
    rows = parts_of(Covariance(), 1800, noise="laplace", joint=False)
    assert exceeding(rows) and found_in(rows, "item sums and counts").exceeds


def test_a_part_without_its_mask_is_found():
    row = found_in(parts_of(Unmasked(), 400), "masked parts, read as signed numbers")
    assert row.exceeds and severities([row]) == {("mask-uniformity", "break")}


# ---- the document


def test_the_document_has_the_shape_of_the_other_schemes_and_repeats_itself():
    documents = [measure(None, RandomizedResponseRatings(), epsilon=1.0, repetitions=400, workers=1)[0] for _ in "ab"]
    other = measure(None, changed(LaplaceRatings, "user"), epsilon=1.0, repetitions=400, workers=1)[0]
    assert [row["lower_bound"] for row in documents[0]["rows"]] == [row["lower_bound"] for row in documents[1]["rows"]]
    document = json.loads(json.dumps(jsonable(documents[0]), allow_nan=False))
    assert set(document) == set(other) and document["problem"]["unit"] == "entry of the rating vector"
    assert document["repetitions_in_all"] == 3 * 20 * 400 + 2 * 400
    assert {"lower_bound", "lower_bound_mu", "claimed", "claimed_mu", "attainable"} <= set(document["rows"][0])


def test_a_scheme_of_another_kind_says_why_it_cannot_be_measured():
    class Other(Shares):
        flags = frozenset({"epsilon"})

    document, found = measure(None, Other(), epsilon=1.0)
    assert found == [] and "cannot be measured" in document["note"]
