"""The audit of schemes that do not factorize: honest rows for correct runs, and every planted fault is found."""

from __future__ import annotations

import dataclasses
import json
import math

import numpy as np
import pytest
from support.audit import of

from protocol.arithmetic.ring import Label
from protocol.arithmetic.tape import Tape
from protocol.party.role import Send
from protocol.schemes.collection.grid import Grid
from protocol.schemes.collection.laplace_ratings import LaplaceRatings, LaplaceUser
from protocol.schemes.collection.mechanisms import ModifiedLaplace, RandomizedResponse
from protocol.schemes.collection.randomized_response import RandomizedResponseRatings, RespondingUser
from protocol.schemes.covariance import covariance_masked_roles as roles
from protocol.schemes.covariance import model, parts
from protocol.schemes.covariance.covariance import Covariance, CovarianceRecommender, column
from protocol.schemes.covariance.covariance_masked import CovarianceMasked
from protocol.schemes.covariance.hybrid import Hybrid, PerturbingUser
from protocol.wire.messages import PerturbedRatings, RandomizedLevels
from sim.api import audit, run
from sim.audit import audit as audit_module
from sim.audit import questions
from sim.audit.accounting.account import account
from sim.audit.accounting.neighbours import sensitivity
from sim.audit.algebra.solve import findings, solve
from sim.audit.attacks.attack import attack
from sim.audit.attacks.channels import UniformNoise
from sim.audit.attacks.perturbed import fresh_submissions
from sim.audit.families.collection.entry_channels import LaplaceEntries, ResponseEntries
from sim.audit.families.covariance.covariance_account import composition
from sim.audit.findings import QUESTIONS
from sim.audit.uniformity import uniformity
from sim.data.ratings import find, load
from sim.foreign.plain_text import jsonable
from sim.tables.audit_tables import show_audit
from sim.views.evidence import open_case

HERE = __name__
STARS = np.arange(1.0, 6.0)
MOVIES = np.array([0.06, 0.11, 0.27, 0.34, 0.22])  # about as frequent as on MovieLens


def ran(folder, scheme, **flags):
    """Run `scheme` on the demo data in this process."""
    run(scheme=scheme, out=folder / "run", data="demo-small", seed=1, transport="inprocess", **flags)
    return open_case(folder / "run")


def severities(found):
    return {(one.id, one.severity) for one in found}


def alone(found, name, severity):
    """Select the findings with this id and severity."""
    return [one for one in found if one.id == name and one.severity == severity]


# --- planted faults --------------------------------------------------------------------------------------------------


class Thrifty(CovarianceRecommender):
    """A recommender that multiplies all of its noise by `part`."""

    part = 0.0

    def _publish(self):
        whole = model.noise_for
        model.noise_for = lambda *given: whole(*given) * self.part
        try:
            return super()._publish()
        finally:
            model.noise_for = whole


class Halving(Thrifty):
    part = 0.5


class Deceitful(CovarianceRecommender):
    """Makes noisy totals, and publishes averages that do not follow from them."""

    def _factors(self, made_of):
        told = super()._factors(made_of)
        return dataclasses.replace(told, averages=column(made_of.averages.item_means - 0.01))


class Quiet(Covariance):
    role = Thrifty

    def make_role(self, party, setting, tape, inputs):
        return super().make_role(party, setting, tape, inputs) if inputs else self.role(setting, tape)


class Half(Quiet):
    role = Halving


class Lying(Quiet):
    role = Deceitful


class ShyUser(PerturbingUser):
    """Perturbs by a tenth of γ."""

    def __init__(self, setting, tape, inputs):
        super().__init__(setting, tape, inputs)
        self._noise = self._noise / 10


class Shy(Hybrid):
    def make_role(self, party, setting, tape, inputs):
        return ShyUser(setting, tape, inputs) if inputs else super().make_role(party, setting, tape, inputs)


class FrankUser(LaplaceUser):
    """Sends its ratings, and nothing else."""

    def upload(self):
        scaled = self.params.grid.scaled(self.inputs.ratings)
        marked = self.setting.reals.mark(scaled[:, None], _rating(self.inputs.items))
        return PerturbedRatings(self.inputs.items, self.setting.reals.narrow(marked))


class FrankLaplace(LaplaceRatings):
    def make_role(self, party, setting, tape, inputs):
        return FrankUser(setting, tape, inputs) if inputs else super().make_role(party, setting, tape, inputs)


class FrankResponder(RespondingUser):
    def upload(self):
        entries = self.params.grid.vector(self.inputs.items, self.inputs.ratings, self.params.n_items)
        every = np.arange(self.params.n_items, dtype=np.uint32)
        marked = self.setting.reals.mark(entries.astype(np.float64)[:, None], _rating(every))
        return RandomizedLevels(self.setting.reals.narrow(marked))


class FrankResponse(RandomizedResponseRatings):
    def make_role(self, party, setting, tape, inputs):
        return FrankResponder(setting, tape, inputs) if inputs else super().make_role(party, setting, tape, inputs)


def _rating(items):
    return Label("rating", 0, items)


class StingyUser(roles.MaskedCovarianceUser):
    """A user that adds no share of the noise: every share is multiplied by 0."""

    def _answer(self, iteration, part, counts, averages):
        whole = roles.noise_share
        roles.noise_share = lambda *given: 0 * whole(*given)
        try:
            return super()._answer(iteration, part, counts, averages)
        finally:
            roles.noise_share = whole


class Stingy(CovarianceMasked):
    def make_role(self, party, setting, tape, inputs):
        return StingyUser(setting, tape, inputs) if inputs else super().make_role(party, setting, tape, inputs)


class NakedUser(roles.MaskedCovarianceUser):
    """Sends its parts without their masks."""

    def _answer(self, iteration, part, counts, averages):
        (send,) = super()._answer(iteration, part, counts, averages)
        values = send.message.values
        masks = roles.masks_of(self.setting, self.mask_key, iteration, len(values))
        return [Send(send.to, dataclasses.replace(send.message, values=self.setting.ring.subtract(values, masks)))]


class Naked(CovarianceMasked):
    def make_role(self, party, setting, tape, inputs):
        return NakedUser(setting, tape, inputs) if inputs else super().make_role(party, setting, tape, inputs)


# --- correct runs ----------------------------------------------------------------------------------------------------

RUNS = {
    "covariance": ({"scheme": "covariance"}, "exact-individual"),
    "covariance, laplace, knn": (
        {"scheme": "covariance", "options": {"noise": "laplace", "predictor": "knn"}},
        "exact-individual",
    ),
    "covariance, user": ({"scheme": "covariance", "options": {"unit_of": "user"}}, "exact-individual"),
    "masked, dense": ({"scheme": "covariance-masked", "options": {"items": 12}}, "aggregate"),
    "masked, sparse": (
        {"scheme": "covariance-masked", "options": {"form": "sparse", "noise": "laplace", "predictor": "knn"}},
        "aggregate",
    ),
    "hybrid": ({"scheme": "hybrid"}, "noisy-individual"),
    "laplace-ratings": ({"scheme": "laplace-ratings"}, "noisy-individual"),
    "randomized-response": ({"scheme": "randomized-response"}, "noisy-individual"),
    "all levels stay": ({"scheme": "randomized-response", "epsilon": 30.0}, "noisy-individual"),
}


@pytest.mark.parametrize("name", RUNS)
def test_a_correct_run_is_not_called_broken(tmp_path, name, capsys):
    flags, level = RUNS[name]
    case = ran(tmp_path, **{"epsilon": 1.0, **flags})
    document = audit(case.folder, only=[question for question in QUESTIONS if question != "empirical"])
    assert not [one for one in document["findings"] if one["severity"] == "break"]
    assert not document["unanswered"]
    assert all(row["declared"] for row in document["inventory"] if row["plane"] == "message")
    rows = {"+".join(row["members"]): row for row in document["parties"]}
    assert rows["recommender"]["determines"] == rows["recommender"]["permitted"] == level
    grave = [one for one in document["findings"] if one["severity"] != "info"]
    supports = {one["coalition"][0] for one in grave if one["id"] == "support"}
    for party in ("recommender", "third_party"):
        if party in rows:
            assert rows[party]["saw"] and ("who rated what" in rows[party]["saw"]) == (party in supports)
    assert rows["user:0"]["determines"] == "aggregate"
    assert "per release" not in rows["recommender"]["claimed"]
    if "third_party" in rows:
        assert rows["third_party"]["determines"] == "nothing"
        assert rows["recommender+third_party"]["determines"] == "noisy-individual"
    show_audit(json.loads(json.dumps(jsonable(document), allow_nan=False)), True)
    assert "nothing beyond" in capsys.readouterr().out or document["verdict"] == "beyond-claims"


def test_the_claim_is_said_in_the_unit_of_the_scheme(tmp_path):
    for scheme, words in (
        ("covariance", "θ = 1 of all that is published, for a rating added or removed"),
        ("hybrid", "ε = 1 of all that is published, for a rating added or removed"),
        ("laplace-ratings", "ε = 1 per entry of the rating vector"),
    ):
        case = ran(tmp_path / scheme, scheme, epsilon=1.0)
        rows = audit(case.folder, only=["algebra"])["parties"]
        assert rows[0]["claimed"].endswith(words)


def test_single_contributors_of_the_sparse_form_are_counted_and_the_dense_form_has_none(tmp_path):
    for form, single in (("sparse", True), ("dense", False)):
        case = ran(tmp_path / form, "covariance-masked", epsilon=1.0, options={"form": form, "items": 12})
        found = severities(findings(case, solve(case)))
        assert (("single-contributor", "weak") in found) == single
        assert ("unmasking", "weak") in found  # both servers together
        supports = {one.coalition for one in attack(case, [("recommender",), ("third_party",)]) if one.id == "support"}
        assert supports == ({("recommender",), ("third_party",)} if single else set())


def test_the_algebra_says_so_where_masked_vectors_are_too_long_for_it(tmp_path, monkeypatch):
    case = ran(tmp_path, "covariance-masked", epsilon=1.0, options={"items": 12})
    monkeypatch.setattr(questions, "MOST_NUMBERS", 1000)
    document = audit(case.folder, only=["algebra"])
    assert "fewer" in document["unanswered"]["algebra"] and document["parties"] == []


def test_of_a_run_with_long_vectors_a_part_is_audited_in_passing(tmp_path, monkeypatch):
    case = ran(tmp_path, "randomized-response", epsilon=1.0)
    summary = {"run": str(case.folder), "ratings": {"train": 500}, "iterations": 1}
    assert audit_module.brief(summary)["verdict"] == "within-claims" and audit_module.brief(summary)["part"] is None
    monkeypatch.setattr(audit_module, "MOST_IN_VECTORS", case.card.params.cells - 1)
    assert "the servers' views alone" in audit_module.brief(summary)["part"]


def test_both_servers_read_ratings_that_neither_reads_alone(tmp_path):
    case = ran(tmp_path, "covariance-masked", epsilon=8.0, options={"items": 12})
    together = of(attack(case, [("recommender", "third_party")]), "unmasking")
    assert together.severity == "weak" and together.measured["interval"][0] > 2 * together.chance["accuracy"]
    assert attack(case, [("recommender",), ("third_party",)]) == []
    drowned = ran(tmp_path / "drowned", "covariance-masked", epsilon=0.01, options={"items": 12})
    assert of(attack(drowned, [("recommender", "third_party")]), "unmasking").severity == "info"


# --- covariance: noise, budget, sensitivity --------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["Quiet", "Half"])
def test_sums_with_too_little_noise_are_found(tmp_path, scheme):
    _, found = account(ran(tmp_path, f"{HERE}:{scheme}", epsilon=1.0))
    broken = of([one for one in found if one.severity == "break"], "missing-noise")
    assert broken.measured["ratio"] < 0.6


def test_numbers_that_are_published_beside_the_noisy_totals_are_found(tmp_path):
    _, found = account(ran(tmp_path, f"{HERE}:Lying", epsilon=1.0))
    assert of([one for one in found if one.severity == "break"], "missing-noise").measured == 60


def test_users_that_add_no_share_of_the_noise_are_found(tmp_path):
    case = ran(tmp_path, f"{HERE}:Stingy", epsilon=1.0, options={"items": 12})
    _, found = account(case)
    assert ("missing-noise", "break") in severities(found)


def test_users_that_send_no_mask_are_found(tmp_path):
    case = ran(tmp_path, f"{HERE}:Naked", epsilon=1.0, options={"items": 12}, views="full")
    _, found = uniformity.uniformity(case)
    assert ("mask-uniformity", "break") in severities(found)
    assert ("unmasking", "break") in {(one.id, one.severity) for one in findings(case, solve(case))}


def test_as_printed_the_budget_is_exceeded_and_corrected_it_is_kept(tmp_path):
    """θ = 1: exact ε 3.45 where a pair shares its budget, 5.15 as printed; with Laplace noise 1 and 2."""
    for noise, claimed, spent in (("gaussian", 3.45, 5.15), ("laplace", 1.0, 2.0)):
        for joint in (True, False):
            case = ran(
                tmp_path / f"{noise}{joint}", "covariance", epsilon=1.0, options={"noise": noise, "joint": joint}
            )
            document, found = account(case)
            assert of(found, "composition").severity == ("info" if joint else "weak")
            assert document["composed"]["claimed"] == pytest.approx(claimed, abs=0.005)
            assert document["composed"]["tight"] == pytest.approx(claimed if joint else spent, abs=0.005)


def test_the_printed_bound_spends_more_and_the_papers_formula_fails_for_a_large_budget(tmp_path):
    case = ran(tmp_path / "bound", "covariance", epsilon=1.0, options={"noise": "laplace", "printed_bound": True})
    document, found = account(case)
    assert document["composed"]["excess"] > 1 and of(found, "composition").severity == "weak"
    params = ran(tmp_path / "large", "covariance", epsilon=20.0).card.params
    composed = composition(params, 4.0)
    assert composed["tight"] == pytest.approx(201, abs=0.5)
    assert composed["published_formula"] == pytest.approx(103, abs=0.5)


@pytest.mark.parametrize("unit", ["rating", "user"])
@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
def test_no_record_moves_a_sum_further_than_its_sensitivity(tmp_path, noise, unit, monkeypatch):
    case = ran(tmp_path, "covariance", epsilon=1.0, options={"noise": noise, "unit_of": unit})
    document, (finding,) = sensitivity(case, 100)
    assert finding.severity == "info"
    assert 0.1 < document["largest"]["covariance, sum"] <= 1 and document["largest"]["items, sum"] > 0.5
    monkeypatch.setattr(parts, "clamped", lambda params, centred: 4 * centred)  # not clipped: no bound holds
    _, (finding,) = sensitivity(case, 100)
    assert finding.severity == "break"


# --- the perturbation of ratings by users ----------------------------------------------------------------------------


def test_a_perturbation_that_is_too_small_is_found(tmp_path):
    assert ("missing-noise", "break") not in severities(account(ran(tmp_path / "whole", "hybrid", epsilon=1.0))[1])
    broken = alone(account(ran(tmp_path / "shy", f"{HERE}:Shy", epsilon=1.0))[1], "missing-noise", "break")
    assert [one.measured["ratio"] for one in broken] == [pytest.approx(0.1, abs=0.02)]


@pytest.mark.parametrize("scheme", ["laplace-ratings", "randomized-response"])
def test_a_mechanism_that_is_left_out_is_found(tmp_path, scheme):
    frank = {"laplace-ratings": "FrankLaplace", "randomized-response": "FrankResponse"}[scheme]
    case = ran(tmp_path / "whole", scheme, epsilon=1.0)
    document, found = account(case)
    assert ("missing-noise", "break") not in severities([*found, *attack(case, [("recommender",)])])
    assert document["composed"]["vector"] == case.card.params.n_items
    case = ran(tmp_path / "frank", f"{HERE}:{frank}", epsilon=1.0)
    document, found = account(case)
    assert all(row["changed"] == 0 < row["expected"] for row in document["mechanism"])
    assert ("missing-noise", "break") in severities(found)
    assert {("rating-inference", "break"), ("support", "break")} <= severities(attack(case, [("recommender",)]))
    assert ("difference-attack", "break") in severities(findings(case, solve(case)))


def test_a_mechanism_that_changes_almost_nothing_is_not_said_to_be_tested(tmp_path):
    _, found = account(ran(tmp_path, "randomized-response", epsilon=12.0))
    assert "would not be noticed" in of(found, "missing-noise").title


@pytest.mark.parametrize("scheme", ["laplace-ratings", "randomized-response"])
def test_the_best_guess_is_about_as_good_as_the_law_permits(tmp_path, scheme):
    found = attack(ran(tmp_path, scheme, epsilon=4.0), [("recommender",)])
    for name in ("rating-inference", "support"):
        finding = of(found, name)
        low, high = finding.measured["interval"]
        assert low - 0.02 < finding.measured["permitted"] < high + 0.02
        assert finding.chance["accuracy"] <= finding.measured["permitted"] + 1e-9
    assert of(found, "rating-inference").severity == "weak" and of(found, "support").severity == "info"


@pytest.mark.parametrize(("gamma", "severity"), [(0.4, "break"), (1.0, "weak"), (3.5, "weak")])
def test_uniform_noise_rules_ratings_out(tmp_path, gamma, severity):
    case = ran(tmp_path, "hybrid", epsilon=1.0, options={"gamma": gamma})
    finding = of(attack(case, [("recommender",)]), "uniform-noise")
    found = finding.measured
    assert finding.severity == severity and found["fresh"]["simulated"]
    assert found["determined"] <= found["excluding"] <= found["uploads"] and found["excluding"] > 0
    assert (found["determined"] == found["uploads"]) == (gamma < 0.5)
    low, high = found["interval"]
    assert low - 0.02 <= found["expected"] <= high + 0.02 and found["fresh"]["accuracy"] >= found["accuracy"] - 0.02


def test_without_a_perturbation_none_is_claimed_and_none_is_missed(tmp_path):
    case = ran(tmp_path, "hybrid", epsilon=1.0, options={"gamma": 0.0})
    found = [*attack(case, [("recommender",)]), *findings(case, solve(case)), *account(case)[1]]
    assert "uniform-noise" not in {one.id for one in found} and "break" not in {one.severity for one in found}


# --- the laws --------------------------------------------------------------------------------------------------------


def test_the_rates_are_what_simulated_attackers_get():
    rng, n, grid = np.random.default_rng(3), 60_000, Grid(1.0, 5.0, 1.0)
    true = rng.choice(STARS, n, p=MOVIES)
    uniform = UniformNoise(STARS, 1.3)
    got = (uniform.best_rating(true + rng.uniform(-1.3, 1.3, n), MOVIES) == true).mean()
    assert uniform.rating_rate(MOVIES) == pytest.approx(got, abs=0.01)
    items = np.arange(n, dtype=np.uint32)
    law = ModifiedLaplace(3.0)
    channel, answers = LaplaceEntries(STARS, law, grid), np.full(n, np.nan)
    sent, numbers = law.answer(Tape(bytes(32)), items, grid.scaled(true), n)
    answers[sent] = numbers
    assert channel.rating_rate(MOVIES) == pytest.approx((channel.best_rating(answers, MOVIES) == true).mean(), abs=0.01)
    response = RandomizedResponse(2.0, 5)
    channel, answers = ResponseEntries(STARS, response, grid), response.answer(Tape(bytes(32)), grid.level_of(true))
    got = (channel.best_rating(answers.astype(float), MOVIES) == true).mean()
    assert channel.rating_rate(MOVIES) == pytest.approx(got, abs=0.01)


def test_densities_add_up_to_one_and_presence_is_guessed_by_the_base_rate_at_least():
    grid = Grid(1.0, 5.0, 1.0)
    for channel in (
        UniformNoise(STARS, 0.7),
        LaplaceEntries(STARS, ModifiedLaplace(0.5), grid),
        ResponseEntries(STARS, RandomizedResponse(0.5, 5), grid),
    ):
        answers, widths = channel.space()
        assert widths @ channel.density(answers) == pytest.approx(np.ones(6), abs=1e-4)
        assert channel.presence_rate(MOVIES, 0.2) >= 0.8 - 1e-4
    assert channel.rating_rate(MOVIES) < 1 / (1 + (1 - 0.34) / 0.34 * math.exp(-0.5))  # no more than e^ε on the odds


@pytest.mark.slow
@pytest.mark.skipif(find("ml-100k") is None, reason="ml-100k is absent: set KEYHOLE_DATA or run keyhole fetch ml-100k")
@pytest.mark.parametrize(
    ("gamma", "once", "ten"), [(0.5, 1.0, 1.0), (1.0, 0.67, 0.999), (2.0, 0.51, 0.96), (3.5, 0.44, 0.86)]
)
def test_perturbed_ratings_of_ml_100k_are_recovered_as_often_as_the_reference_says(gamma, once, ten):
    true = _ratings_of("ml-100k")
    values, counts = np.unique(true, return_counts=True)
    prior, channel = counts / counts.sum(), UniformNoise(values, gamma)
    rng = np.random.default_rng(1)
    assert prior.max() == pytest.approx(0.34, abs=0.005)
    assert channel.rating_rate(prior) == pytest.approx(once, abs=0.006)
    for times, reference in ((1, once), (10, ten)):
        assert fresh_submissions(channel, prior, true, times, rng)["accuracy"] == pytest.approx(reference, abs=0.006)


def _ratings_of(name):
    return load(name).values
