"""Is the noise there? Planted faults must be found, and correct runs must not be flagged."""

from __future__ import annotations

import math

import numpy as np
import pytest
from support.audit import made, of

from protocol.arithmetic.noise import laplace
from protocol.schemes.factorization import trusted
from protocol.schemes.factorization.direct import Direct, DirectUser
from protocol.schemes.factorization.dynamic import Dynamic, DynamicUser
from protocol.schemes.factorization.masked import Masked
from protocol.schemes.factorization.masked_roles import MaskedRecommender, MaskedUser
from protocol.schemes.factorization.trusted import Trusted, TrustedRecommender
from sim.audit.accounting.account import account
from sim.audit.accounting.noise_test import NoiseBin, NoiseTest
from sim.audit.findings import verdict

# ---- planted faults: schemes that a person wrote


class HalfOf:
    """A user whose shares have half the scale: √(2H/4) is half of √(2H)."""

    def _noise(self, envelope, floors, purpose, iteration):
        return super()._noise(envelope / 4, floors, purpose, iteration)


class HalfUser(HalfOf, MaskedUser):
    pass


class HalfDynamicUser(HalfOf, DynamicUser):
    pass


class ThriftyDirectUser(DirectUser):
    """Adds its own ρ, and takes half of it out again."""

    def _answer(self, offer):
        (send,) = super()._answer(offer)
        own = laplace(self.tape, self.params.noise_scale, *send.message.values.shape, "rho", offer.iteration)
        send.message.values[:] = send.message.values - own / 2
        return [send]


class BoastfulRecommender(MaskedRecommender):
    """Tells the users twice the true floor (at most the most raters of an item), and the third party the true one."""

    def welcome(self):
        return self._boast(super().welcome())

    def open_iteration(self):
        opening, *offers = super().open_iteration()
        return [opening, *self._boast(offers)]

    def _boast(self, sends):
        for send in sends:
            send.message.floors[:] = np.minimum(2 * send.message.floors, self.params.max_raters)
        return sends


class ThriftyRecommender(TrustedRecommender):
    def _publish(self):
        whole = trusted.objective_noise
        trusted.objective_noise = lambda params, tape: whole(params, tape) / 2
        try:
            return super()._publish()
        finally:
            trusted.objective_noise = whole


class Half(Masked):
    name = "half"

    def make_role(self, party, setting, tape, inputs):
        return HalfUser(setting, tape, inputs) if inputs else super().make_role(party, setting, tape, inputs)


class HalfDynamic(Dynamic):
    name = "half-dynamic"

    def make_role(self, party, setting, tape, inputs):
        return HalfDynamicUser(setting, tape, inputs) if inputs else super().make_role(party, setting, tape, inputs)


class ThriftyDirect(Direct):
    name = "thrifty-direct"

    def make_role(self, party, setting, tape, inputs):
        return ThriftyDirectUser(setting, tape, inputs) if inputs else super().make_role(party, setting, tape, inputs)


class Boastful(Masked):
    name = "boastful"

    def make_role(self, party, setting, tape, inputs):
        if party == "recommender":
            return BoastfulRecommender(setting, tape)
        return super().make_role(party, setting, tape, inputs)


class Thrifty(Trusted):
    name = "thrifty"

    def make_role(self, party, setting, tape, inputs):
        if party == "recommender":
            return ThriftyRecommender(setting, tape)
        return super().make_role(party, setting, tape, inputs)


# ---- is the noise there?


def test_noise_of_the_right_size_passes_and_too_little_is_found():
    """20,000 values per cell: nine tenths of the noise is found, all of it and more is not."""
    draw = np.random.default_rng(5)
    groups = np.repeat(np.arange(20), 100)
    results = {}
    for scale in (0.9, 1.0, 1.3):
        test = NoiseTest(20)
        test.add("values", groups, np.abs(draw.normal(size=(2000, 10))) * scale / 0.67449)
        results[scale] = test.result()
    assert [results[scale]["missing"] for scale in (0.9, 1.0, 1.3)] == [True, False, False]
    low, high = results[0.9]["least"]["interval"]
    assert low < 0.9 < high and high - low < 0.04
    assert 0.9 < results[1.0]["finds_below"] < 1


def test_a_poor_guess_hides_missing_noise_and_never_feigns_it():
    draw = np.random.default_rng(6)
    values = draw.normal(size=(2000, 10)) + draw.normal(size=(2000, 1)) * 3
    test = NoiseTest(1)
    test.add("values", np.zeros(2000, int), np.abs(values) / 0.67449)
    made = test.result()
    assert not made["missing"] and made["least"]["ratio"] > 1 and made["finds_below"] == 0


def test_one_item_without_noise_is_found_among_many():
    draw = np.random.default_rng(7)
    values, groups = np.abs(draw.normal(size=(5000, 2))) / 0.67449, np.repeat(np.arange(100), 50)
    values[groups == 42] /= 4
    test = NoiseTest(100)
    test.add("values", groups, values)
    made = test.result()
    assert made["missing"] and made["group"]["number"] == 42
    assert made["least"]["p"] > 1e-6  # not by all values together


def test_the_p_value_of_a_cell_is_binomial():
    """3 of 3 within the median: 1/8."""
    cell = NoiseBin("three")
    cell.add(np.array([0.2, 0.5, 1.0]))
    assert (cell.n, cell.inside, cell.p_value) == (3, 3, pytest.approx(1 / 8))


@pytest.mark.parametrize("scheme", ["Half", "HalfDynamic", "ThriftyDirect", "Thrifty"])
def test_half_the_noise_is_found(tmp_path, scheme):
    churn = {"join": 0.2, "leave": 0.2} if scheme == "HalfDynamic" else {}
    case = made(tmp_path / "run", f"{__name__}:{scheme}", **churn)
    finding = of(account(case)[1], "missing-noise")
    assert finding.severity == "break" and finding.measured["ratio"] < 0.85 and finding.measured["p"] < 1e-6
    assert verdict([finding], case.card.scheme.known_weaknesses) == "beyond-claims"


@pytest.mark.parametrize(("scheme", "seed"), [("masked", 2), ("dynamic", 3), ("direct", 1), ("trusted", 1)])
@pytest.mark.parametrize("epsilon", [1.0, 50.0])
def test_a_correct_run_is_not_flagged(tmp_path, scheme, seed, epsilon):
    """At ε = 50 the gradients are larger than the noise, which must not look like missing noise."""
    document, findings = account(made(tmp_path / "run", scheme, seed=seed, epsilon=epsilon))
    assert of(findings, "missing-noise").severity == "info"
    assert document["noise"]["p"] > 1e-4


def test_shares_for_more_contributors_than_there_are_leave_too_little_noise(tmp_path):
    """Told twice the floor, the users' shares add up to half of the variance."""
    document, findings = account(made(tmp_path / "run", f"{__name__}:Boastful", iterations=3))
    finding = of(findings, "missing-noise")
    assert finding.severity == "break" and "0.5 of the variance" in finding.evidence
    honest, _ = account(made(tmp_path / "honest", "masked", iterations=3))
    assert document["one_release"]["even"]["worst"] > 1.5 * honest["one_release"]["even"]["worst"]


def test_without_rho_nothing_is_left_of_the_claim(tmp_path):
    document, findings = account(made(tmp_path / "run", "direct", no_rho=True))
    assert document["composed"]["tight"] == math.inf
    assert of(findings, "missing-noise").severity == "break"
