"""`covariance-masked`: the sums of `covariance` without a party that sees a rating."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from scipy import stats
from support.basics import small_run
from support.runs import play

from protocol.arithmetic.tape import Tape
from protocol.errors import BadInput, Rejected
from protocol.party.role import Role
from protocol.schemes.covariance import triangle
from protocol.schemes.covariance.averages import averages_of
from protocol.schemes.covariance.covariance_masked import CovarianceMasked
from protocol.schemes.covariance.covariance_masked_roles import MaskedCovarianceRecommender, PartHolder, places_of
from protocol.schemes.covariance.model import model_of
from protocol.schemes.covariance.parts import second_part
from protocol.schemes.covariance.round_noise import noise_share, reach_of, round_length, scales_for
from protocol.schemes.covariance.sensitivity import covariance_sensitivity
from protocol.schemes.covariance.totals import Book, first_total, second_total
from protocol.wire.messages import Join, MaskedPart, MaskWelcome, OpenPairs, PartTotal
from sim.api import bandwidth, replay, verify
from sim.drivers.inprocess import InProcess
from sim.plan.config import RunConfig
from sim.plan.plan import make_plan
from sim.run.run import run

FORMS = ("dense", "sparse")
NOISES = ("gaussian", "laplace")


class Listening(MaskedCovarianceRecommender):
    """A recommender that remembers the noisy sums that it opened."""

    def _opened(self, words):
        noisy = super()._opened(words)
        self.sums = [*getattr(self, "sums", []), noisy]
        return noisy


class Listened(CovarianceMasked):
    def make_role(self, party, setting, tape, inputs):
        return Listening(setting, tape) if party == "recommender" else super().make_role(party, setting, tape, inputs)


def played(**options):
    card, seats = small_run("covariance-masked", n_users=7, n_items=6, **options)
    made = play(dataclasses.replace(card, scheme=Listened()), seats)
    return card.params, made, [seat.inputs for seat in seats if seat.inputs is not None], seats


def summed_shares(params, seats, round_, averages):
    """Draw the users' noise of a round again; return its sums and the number of users for each place."""
    total, covered = np.zeros(round_length(params, round_)), None if averages is None else averages.covered
    spread = 0.0 if averages is None else averages.spread
    users = [seat for seat in seats if seat.inputs is not None]
    places = [places_of(params, round_ - 1, seat.inputs.items, covered) for seat in users]
    counts = np.bincount(np.concatenate(places), minlength=len(total)).astype(np.float64)
    for seat, mine in zip(users, places, strict=True):
        total[mine] += noise_share(params, round_, Tape(seat.tape_seed), mine, counts[mine], spread)
    return total, counts


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("noise", [*NOISES, "none"])
@pytest.mark.parametrize("unit_of", ["rating", "user"])
def test_for_the_same_noise_it_is_what_a_trusted_recommender_makes(form, noise, unit_of):
    epsilon = math.inf if noise == "none" else 3.0
    chosen = "gaussian" if noise == "none" else noise
    params, made, inputs, seats = played(form=form, noise=chosen, unit_of=unit_of, epsilon=epsilon)
    role = made.parties["recommender"].role
    book = Book.of([(own.items, own.ratings) for own in inputs])
    first, counts = summed_shares(params, seats, 1, None)
    resolution = [params.n_users * 2.0**-bits for bits in (params.first_fraction_bits, params.fraction_bits)]
    used = counts > 0
    assert np.abs(role.sums[0] - first_total(params, book) - first)[used].max() <= resolution[0]
    averages = averages_of(params, role.sums[0])
    second, counts = summed_shares(params, seats, 2, averages)
    used = counts > 0
    exact = second_total(params, averages, book)
    assert np.abs(role.sums[1] - exact - second)[used].max() <= resolution[1]
    if noise == "none":
        assert not second.any() and np.abs(role.sums[1] - exact).max() <= resolution[1]
    else:
        assert np.abs(second[used]).max() > 100 * resolution[1]
    trusted = model_of(params, averages, np.where(used, exact + second, role.sums[1]))
    published = made.outcome.item_factors[:, 1:][averages.covered]
    assert np.abs(published @ published.T - trusted.factors @ trusted.factors.T).max() < 1e-3


def test_every_place_that_nobody_adds_to_has_the_noise_of_the_recommender():
    lonely = [{0: 5.0, 1: 1.0}, {2: 4.0}, {2: 3.0, 3: 2.0}]
    card, seats = small_run("covariance-masked", n_items=6, ratings=lonely, form="sparse", epsilon=1.0)
    made = play(dataclasses.replace(card, scheme=Listened()), seats)
    sums = made.parties["recommender"].role.sums
    assert all((np.abs(vector) > 1e-3).all() for vector in sums), "no sum is free of noise"


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("k", [1, 2, 40])
def test_k_shares_sum_to_the_whole_noise(noise, k):
    """A Kolmogorov–Smirnov test at 1e-4 over the places of round 1, each scaled to 1."""
    card, _ = small_run("covariance-masked", n_users=4, n_items=800, ratings=[{0: 3.0}] * 4, noise=noise, epsilon=1.0)
    params, places = card.params, np.arange(2 * 800 + 2)
    counts = np.full(len(places), float(k))
    total = sum(noise_share(params, 1, Tape(bytes([user]) * 32), places, counts) for user in range(k))
    law = stats.norm if noise == "gaussian" else stats.laplace
    assert stats.kstest(total / scales_for(params, 1), law.cdf).pvalue > 1e-4
    too_little = sum(noise_share(params, 1, Tape(bytes([user]) * 32), places, 2 * counts) for user in range(k))
    assert stats.kstest(too_little / scales_for(params, 1), law.cdf).pvalue < 1e-4


def test_the_reach_covers_the_noise():
    card, _ = small_run("covariance-masked", n_items=50, ratings=[{0: 3.0}] * 4, noise="laplace", epsilon=1.0)
    params, places = card.params, np.arange(102)
    counts = np.ones(102)
    draws = [np.abs(noise_share(params, 1, Tape(seed.to_bytes(32, "big")), places, counts)) for seed in range(200)]
    beyond = sum((draw > reach_of(params, 1, 0.1)).any() for draw in draws)
    assert 5 <= beyond <= 40  # 20 are expected


# --- what the servers see --------------------------------------------------------------------------------------------


def heard(form):
    card, seats = small_run("covariance-masked", form=form)
    frames = []

    class Spy(InProcess):
        def _hand(self, sender, receiver, frame):
            frames.append((sender, receiver, card.codec.decode(frame)[1]))
            return super()._hand(sender, receiver, frame)

    Spy(card, seats).run()
    return frames, {seat.party: seat.inputs for seat in seats}


def test_the_dense_form_names_no_item_of_a_user_and_is_equally_long_for_all():
    frames, _ = heard("dense")
    named = [message.items for _, _, message in frames if isinstance(message, (Join, MaskedPart))]
    assert named and not any(len(items) for items in named)
    for iteration in (0, 1):
        sizes = {len(m.values) for _, _, m in frames if isinstance(m, MaskedPart) and m.iteration == iteration}
        assert len(sizes) == 1


def test_the_sparse_form_shows_the_support_to_both_servers():
    frames, inputs = heard("sparse")
    for kind in (Join, MaskedPart):
        seen = [(sender, message.items) for sender, _, message in frames if isinstance(message, kind)]
        assert seen and all(np.array_equal(items, inputs[sender].items) for sender, items in seen)


# --- refusals --------------------------------------------------------------------------------------------------------


def refused(role: Role, sender: str, message) -> str:
    with pytest.raises(Rejected) as caught:
        role.receive(sender, message)
    return caught.value.reason.name


def test_the_third_party_refuses_what_does_not_fit():
    card, _ = small_run("covariance-masked", n_items=5)
    holder = PartHolder(card.setting)
    rows, nothing = card.setting.ring.zeros(12, 1), np.zeros(0, np.uint32)
    good = MaskedPart(0, nothing, rows)
    assert refused(holder, "recommender", good) == "UNKNOWN_SENDER"
    assert refused(holder, "user:9", good) == "UNKNOWN_SENDER"
    assert refused(holder, "user:0", MaskedPart(1, nothing, rows)) == "WRONG_ITERATION"
    assert refused(holder, "user:0", MaskedPart(0, nothing, rows[:5])) == "WRONG_LENGTH"
    assert refused(holder, "user:0", MaskedPart(0, np.array([1], np.uint32), rows)) == "WRONG_LENGTH"
    assert refused(holder, "recommender", OpenPairs(1, np.arange(5, dtype=np.uint32))) == "WRONG_ITERATION"
    assert holder.receive("user:0", good) == []
    assert refused(holder, "user:0", good) == "DUPLICATE"
    assert refused(holder, "user:1", Join(nothing)) == "WRONG_KIND"


def test_the_recommender_refuses_what_does_not_fit():
    card, seats = small_run("covariance-masked", n_items=5)
    role = MaskedCovarianceRecommender(card.setting, Tape(seats[0].tape_seed))
    nothing, total = np.zeros(0, np.uint32), card.setting.ring.zeros(12, 1)
    assert refused(role, "user:0", Join(np.array([0], np.uint32))) == "WRONG_LENGTH"
    assert refused(role, "third_party", PartTotal(0, total)) == "WRONG_ITERATION"
    for user in range(4):
        role.receive(f"user:{user}", Join(nothing))
    assert refused(role, "user:0", Join(nothing)) == "WRONG_KIND"
    assert refused(role, "user:0", PartTotal(0, total)) == "UNKNOWN_SENDER"
    assert refused(role, "third_party", PartTotal(0, total[:3])) == "OUT_OF_RANGE"


def test_a_ring_that_is_too_small_is_refused_and_a_wider_one_is_taken_in_words():
    with pytest.raises(BadInput, match="could wrap mod 2\\^16"):
        small_run("covariance-masked", ring_bits=16)
    assert small_run("covariance-masked")[0].params.ring_bits == 32
    card, _ = small_run("covariance-masked", epsilon=1e-4)
    assert card.params.ring_bits == 64
    with pytest.raises(BadInput, match="form must be one of dense, sparse"):
        small_run("covariance-masked", form="thin")


# --- whole runs ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("predictor", ["svd", "knn"])
def test_processes_give_what_one_process_gives_and_bytes_are_those_of_the_formula(tmp_path, form, predictor):
    options = {"form": form, "predictor": predictor, "items": 12}
    made = {}
    for transport in ("tcp", "inprocess"):
        settings = {"data": "demo-small", "users": 6, "seed": 4, "epsilon": 2.0, "options": options}
        config = RunConfig(scheme="covariance", trust="masked", transport=transport, **settings)
        made[transport] = run(config, out=tmp_path / transport)
        assert made[transport]["completed"], made[transport]["abort"]
        assert made[transport]["scheme"] == "covariance-masked"
        told = bandwidth(tmp_path / transport)
        assert told["match"] and told["total"]["predicted_bytes"] == told["total"]["wire_bytes"]
    assert made["tcp"]["item_factors_sha256"] == made["inprocess"]["item_factors_sha256"]
    assert made["tcp"]["accuracy"] == made["inprocess"]["accuracy"]
    assert made["tcp"]["accuracy"]["plain"]["test_rmse"] is not None
    assert verify(tmp_path / "tcp")["verified"]
    assert replay(tmp_path / "tcp")["identical"]


def test_every_order_of_arrival_gives_the_same_sums():
    card, seats = small_run("covariance-masked", form="sparse", n_users=6)
    results = [play(card, seats, order=order).outcome.item_factors for order in (None, 1, 2, 3, 4)]
    assert all(np.array_equal(results[0], other) for other in results[1:])


# --- rounding --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("noise", NOISES)
def test_the_sensitivity_covers_what_rounding_adds(noise):
    """Each of many equal weights is rounded separately: with few fraction bits the exact bound can be exceeded."""
    everything = dict.fromkeys(range(40), 3.0)
    card, _ = small_run("covariance-masked", n_items=40, ratings=[everything] * 4, noise=noise, epsilon=1.0)
    coarse = dataclasses.replace(card.params, fraction_bits=8)
    exact = dataclasses.replace(card.params, fraction_bits=50)
    averages = averages_of(coarse, np.zeros(82))
    size = 1 if noise == "laplace" else 2
    worst = 0.0
    for rated in range(1, 40):
        encoded = []
        for count in (rated, rated + 1):
            items = np.arange(count, dtype=np.uint32)
            part = second_part(coarse, averages, items, np.full(count, 3.0))
            weights = unpack(np.rint(part * 2**8) / 2**8, 2 * 40 * 41 // 2, 40)
            encoded.append(weights)
        worst = max(worst, float((np.abs(encoded[1] - encoded[0]) ** size).sum() ** (1 / size)))
    assert worst <= covariance_sensitivity(coarse, 0.0).count
    if noise == "laplace":
        assert worst > covariance_sensitivity(exact, 0.0).count, "what the exact bound would have missed"


def unpack(part, length, size):
    return triangle.unpack(part[length // 2 : length], size)


def test_coarse_rounding_takes_a_wider_ring_and_says_so():
    ratings = [dict.fromkeys(range(60), 3.0)] * 4
    card, _ = small_run("covariance-masked", n_items=60, ratings=ratings, noise="laplace", epsilon=1e-3)
    assert card.params.ring_bits == 64
    settings = {"data": "demo-small", "epsilon": 1e-3, "options": {"noise": "laplace"}}
    plan = make_plan(RunConfig(scheme="covariance-masked", seed=1, **settings))
    assert any("64" in note for note in plan.notes)


@pytest.mark.parametrize("noise", NOISES)
def test_what_nobody_rated_cannot_be_told_by_its_digits(noise):
    lonely = [{0: 5.0, 1: 1.0}, {2: 4.0}, {2: 3.0, 3: 2.0}]
    card, seats = small_run("covariance-masked", n_items=6, ratings=lonely, form="sparse", epsilon=1.0, noise=noise)
    made = play(dataclasses.replace(card, scheme=Listened()), seats)
    for iteration, sums in enumerate(made.parties["recommender"].role.sums):
        units = sums * 2.0 ** card.params.fraction_bits_of(iteration)
        assert np.array_equal(units, np.rint(units))


@pytest.mark.parametrize("settings", [{"epsilon": 1e-5}, {"rating_range": (0.0, 10000.0)}])
def test_neighbours_of_any_size_are_accepted(tmp_path, settings):
    settings = {"data": "demo-small", "users": 5, "options": {"predictor": "knn"}, **settings}
    config = RunConfig(scheme="covariance-masked", transport="inprocess", seed=1, **settings)
    assert run(config, out=tmp_path / "run")["completed"]


def test_a_count_above_all_users_is_refused_and_printed_forms_are_warned_of():
    card, seats = small_run("covariance-masked", form="sparse")
    user = next(seat for seat in seats if seat.inputs is not None)
    role = card.scheme.make_role(user.party, card.setting, Tape(user.tape_seed), user.inputs)
    role.start()
    many = np.full(len(user.inputs.items), 5, np.uint32)
    assert refused(role, "recommender", MaskWelcome(bytes(32), many)) == "OUT_OF_RANGE"
    plan = make_plan(RunConfig(scheme="covariance-masked", data="demo-small", seed=1, options={"joint": False}))
    assert any("joint=false" in note for note in plan.notes)
    with pytest.raises(BadInput, match="whole number"):
        make_plan(RunConfig(scheme="covariance-masked", data="demo-small", seed=1, options={"items": 2.5}))


def test_the_account_has_the_unit_and_the_delta_of_its_noise():
    for unit in ("rating", "user"):
        for noise, delta in (("gaussian", 1e-5), ("laplace", 0.0)):
            card, seats = small_run("covariance-masked", unit_of=unit, noise=noise)
            found = card.scheme.account(card.params, Tape(seats[0].tape_seed), None)
            assert found["unit"] == f"{unit} added or removed" and found["delta"] == delta
            assert found["claimed"] == 8.0 and found["epsilon"] > 0
