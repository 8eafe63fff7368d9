"""Whole runs in one process on tiny data: `plain`, `masked` beside it, and changes that must not matter."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import reference as reference
from support.basics import received, small_run
from support.runs import by_item, factors_of, play, unit, with_skippers

from actors.own_scheme import load_scheme
from protocol.arithmetic.tape import Tape
from protocol.card import make_run_id
from protocol.errors import BadInput, Reason
from protocol.party.role import Done, Send, Timer
from protocol.schemes import SCHEMES, find_scheme
from protocol.schemes.factorization.masked import Masked
from protocol.schemes.factorization.masked_roles import ThirdParty
from protocol.wire.messages import Agreed, Contributors, Deadline, Finish, Gradient, Hello, MaskedGradient, OpenSum
from sim.drivers.inprocess import InProcess

ABSENT = {0: {1}, 1: {0, 2}, 3: {0, 1, 2, 3, 4}}  # iteration -> users


# ---- `plain`

PLAIN = [{}, {"dim": 3, "n_users": 5}, {"clip": 1.5}, {"item_regularisation": 0.3, "user_regularisation": 0.2}]


@pytest.mark.parametrize("options", PLAIN, ids=str)
def test_plain_is_gradient_descent_on_python_floats(options):
    card, seats = small_run("plain", iterations=4, **options)
    run = play(card, seats)
    params, tapes = card.params, {seat.party: Tape(seat.tape_seed) for seat in seats}
    setting = reference.Setting(
        0, 0, 0.0, params.clip, params.learning_rate, params.user_regularisation, params.item_regularisation
    )
    items = unit(tapes["recommender"].normal(params.n_items, params.dim, "item factors"))
    users = {
        seat.party: reference.User(
            {int(j): r for j, r in by_item(seat.inputs.items, seat.inputs.ratings).items()},
            unit(tapes[seat.party].normal(1, params.dim, "user factors"))[0],
            {},
        )
        for seat in seats
        if seat.inputs is not None
    }
    for _ in range(4):
        shown = {item: [reference.float32(x) for x in row] for item, row in enumerate(items)}
        sums: dict[int, list[float]] = {}
        raters: Counter[int] = Counter()
        for user in users.values():
            errors, clipped = reference.errors_of(user, shown, params.clip)
            user.clipped += clipped
            for item in user.ratings:
                gradient = [reference.float32(-2 * u * errors[item]) for u in user.factors]
                sums[item] = [a + b for a, b in zip(sums.get(item, [0.0] * params.dim), gradient, strict=True)]
                raters[item] += 1
            user.factors = reference.moved_user(user, shown, errors, setting)
        for item, row in sums.items():
            items[item] = [
                v - setting.learning_rate * (s / raters[item] + 2 * setting.item_regularisation * v)
                for v, s in zip(items[item], row, strict=True)
            ]
    assert run.outcome.item_factors == pytest.approx(np.array(items), abs=1e-12)
    for party, user in users.items():
        assert run.parties[party].role.user_factors == pytest.approx(np.array(user.factors), abs=1e-12)
        assert run.parties[party].role.clipped == user.clipped


@pytest.mark.parametrize("scheme", ["plain", "masked"])
def test_the_clip_counts_what_it_clips(scheme):
    """Unit factors predict between -1 and 1, so the first error for a rating of 5 is in [4, 6], of 3 in [2, 4]."""
    ratings = [{0: 5.0, 1: 3.0}, {1: 5.0}]
    card, seats = small_run(scheme, ratings=ratings, n_items=2, iterations=1, epsilon=math.inf, clip=4.0)
    users = [play(card, seats).parties[f"user:{number}"].role for number in range(2)]
    assert [user.clipped for user in users] == [1, 1]
    card, seats = small_run(scheme, ratings=ratings, n_items=2, iterations=1, epsilon=math.inf, clip=1.5)
    users = [play(card, seats).parties[f"user:{number}"].role for number in range(2)]
    assert [user.clipped for user in users] == [2, 1]
    card, seats = small_run(scheme, ratings=ratings, n_items=2, iterations=1, epsilon=math.inf)
    users = [play(card, seats).parties[f"user:{number}"].role for number in range(2)]
    assert [user.clipped for user in users] == [0, 0]


def largest_gradient(folder: Path, **options: Any) -> float:
    """Return the largest Euclidean norm of a gradient that the recommender of `plain` received."""
    card, seats = small_run("plain", iterations=5, **options)
    folder.mkdir()
    play(card, seats, folder, ["recommender"])
    gradients = [m.values for _, m in received(card, folder, "recommender") if isinstance(m, Gradient)]
    return max(float(np.sqrt((values.astype(np.float64) ** 2).sum(axis=1)).max()) for values in gradients)


def test_a_small_clip_bounds_every_gradient(tmp_path):
    """|-2 u e| ≤ 2 C, because |u| ≤ 1: reached in the first iteration, where |u| = 1."""
    assert largest_gradient(tmp_path / "free") > 4.0
    assert largest_gradient(tmp_path / "clipped", clip=0.5) == pytest.approx(1.0, rel=1e-6)


# ---- `masked` without noise against `plain`


@pytest.mark.parametrize(("ring_bits", "fraction_bits"), [(24, 16), (32, 24), (64, 24)])
def test_without_noise_one_masked_iteration_is_a_plain_one_up_to_rounding(tmp_path, ring_bits, fraction_bits):
    """Both begin with the same V and U, so they differ only in how a gradient g is sent:

    * `masked` rounds it to a multiple of 2^-f: an error of at most 2^-(f+1) for each of the k_j contributors,
    * `plain` rounds it to float32: an error of at most 2^-24 |g|,

    and v_j moves by γ/k_j times the sum. The rounding of float64 adds less than 2^-48 here. So

        |Δ v_j| ≤ γ/k_j ( k_j 2^-(f+1) + 2^-24 Σ_i |g_i| ) + 2^-48.
    """
    card, seats = small_run("plain", iterations=1, n_users=6)
    plain = play(card, seats, tmp_path, ["recommender"]).outcome.item_factors
    masked_card, masked_seats = small_run("masked", iterations=1, n_users=6, epsilon=math.inf, ring_bits=ring_bits)
    assert masked_card.params.fraction_bits == fraction_bits
    assert masked_card.params.clip == card.params.clip
    masked = factors_of(masked_card, masked_seats)

    size, raters = np.zeros_like(plain), np.zeros(card.params.n_items)
    inputs = {seat.party: seat.inputs for seat in seats}
    for sender, message in received(card, tmp_path, "recommender"):
        if isinstance(message, Gradient):
            size[inputs[sender].items] += np.abs(message.values) * (1 + 2.0**-23)
            raters[inputs[sender].items] += 1
    per_rater = card.params.learning_rate / raters[:, None]
    bound = per_rater * (raters[:, None] * 2.0 ** -(fraction_bits + 1) + 2.0**-24 * size) + 2.0**-48
    difference = np.abs(masked - plain)
    assert (difference <= bound).all()
    assert difference.max() > bound.max() / 1000  # the bound is not far too large


# ---- changes that must not change the factors


@pytest.mark.parametrize("options", [{}, {"ring_bits": 64}, {"epsilon": math.inf}, {"min_contributors": 4}], ids=str)
def test_both_wire_forms_give_the_same_factors(options):
    compact = factors_of(*small_run(wire="compact", **options))
    paper = factors_of(*small_run(wire="paper", **options))
    assert compact.tobytes() == paper.tobytes()


def test_both_wire_forms_give_the_same_factors_when_users_stay_away():
    options = {"iterations": 5, "n_users": 5, "dropout_allowance": 0.5}
    card, seats = small_run(wire="compact", **options)
    compact = factors_of(with_skippers(card, ABSENT), seats)
    other, other_seats = small_run(wire="paper", **options)
    paper = factors_of(with_skippers(other, ABSENT), other_seats)
    assert compact.tobytes() == paper.tobytes()
    assert compact.tobytes() != factors_of(card, seats).tobytes()  # their absence does matter


@pytest.mark.parametrize(("scheme", "wire"), [("plain", "compact"), ("masked", "compact"), ("masked", "paper")])
def test_every_order_of_arrival_gives_the_same_factors(scheme, wire):
    """21 orders; 5 users, so that frames of one iteration overtake each other and the opening."""
    card, seats = small_run(scheme, wire=wire, n_users=5, n_items=6)
    expected = factors_of(card, seats).tobytes()
    assert {factors_of(card, seats, order=order).tobytes() for order in range(21)} == {expected}


def test_some_order_of_arrival_brings_a_contribution_before_the_opening(tmp_path):
    """Otherwise the test above would not cover this case."""
    card, seats = small_run(n_users=5, n_items=6)
    play(card, seats, tmp_path, ["third_party"], order=0)
    early, is_open = 0, False
    for _, message in received(card, tmp_path, "third_party"):
        if isinstance(message, OpenSum | Agreed):
            is_open = isinstance(message, OpenSum)
        early += isinstance(message, MaskedGradient) and not is_open
    assert early > 0


@pytest.mark.parametrize("scheme", ["plain", "masked"])
def test_the_seed_decides_everything(scheme):
    first = factors_of(*small_run(scheme, seed=7))
    assert factors_of(*small_run(scheme, seed=7)).tobytes() == first.tobytes()
    other = factors_of(*small_run(scheme, seed=8))
    assert (np.abs(other - first) > 1e-6).all()


def test_the_run_id_tells_parameters_parties_and_nonces_apart():
    params, others = small_run()[0].params, small_run(dim=3)[0].params
    names = ["recommender", "user:0"]
    nonce, other_nonce = bytes(32), bytes(31) + b"1"
    runs = [(params, names, nonce), (others, names, nonce), (params, names[:1], nonce), (params, names, other_nonce)]
    assert len({make_run_id(*run) for run in runs}) == len(runs)
    assert make_run_id(*runs[0]) == make_run_id(*runs[0])


# ---- runs that cannot go on


@pytest.mark.parametrize("scheme", ["plain", "masked"])
def test_factors_that_grow_without_bound_end_the_run(scheme):
    """A rate of 2^70 moves a factor by about 2^70 in one step, beyond the 2^60 that may travel."""
    card, seats = small_run(scheme, learning_rate=2.0**70)
    outcome = InProcess(card, seats).run()
    assert outcome.abort is not None and outcome.abort.reason is Reason.DIVERGED
    assert "iteration 0" in str(outcome.abort)
    assert outcome.item_factors is None


# ---- the third party's clock


def third_party(**options: Any) -> ThirdParty:
    card, _ = small_run(ratings=[{0: 3.0, 1: 4.0}, {1: 5.0}, {1: 2.0}], n_items=2, **options)
    return ThirdParty(card.setting)


def opening(iteration: int = 0) -> OpenSum:
    return OpenSum(iteration, *(np.array(x, np.uint32) for x in ([0, 1, 2], [0, 1], [1, 2])))


def contribution(items: list[int], iteration: int = 0) -> MaskedGradient:
    return MaskedGradient(iteration, np.array(items, np.uint32), np.full((len(items), 2), 5, np.uint32))


def test_the_deadline_closes_with_who_is_there():
    role = third_party()
    assert role.receive("recommender", opening()) == [Timer(0)]
    assert role.receive("user:0", contribution([0, 1])) == []
    assert role.receive("user:2", contribution([1])) == []
    (send,) = role.tick(Deadline(0))
    assert send.to == "recommender"
    assert send.message.users.tolist() == [0, 2]
    assert send.message.counts.tolist() == [1, 2]
    (total,) = role.receive("recommender", Agreed(0, send.message.digest))
    assert by_item(total.message.items, total.message.values) == {0: [5, 5], 1: [10, 10]}


def test_a_deadline_does_nothing_before_the_opening_after_the_close_or_for_another_iteration():
    role = third_party()
    assert role.tick(Deadline(0)) == []
    role.receive("recommender", opening())
    assert role.tick(Deadline(1)) == []
    (send,) = role.tick(Deadline(0))
    assert role.tick(Deadline(0)) == []  # the contributor set never changes
    role.receive("recommender", Agreed(0, send.message.digest))
    assert role.tick(Deadline(0)) == []
    assert role.tick(Deadline(1)) == []
    role.receive("recommender", opening(1))
    assert role.tick(Deadline(0)) == []
    assert len(role.tick(Deadline(1))) == 1


def test_no_one_waits_for_the_clock_when_all_are_there():
    role = third_party()
    role.receive("user:1", contribution([1]))
    role.receive("recommender", opening())
    role.receive("user:0", contribution([0, 1]))
    (send,) = role.receive("user:2", contribution([1]))
    assert isinstance(send, Send) and isinstance(send.message, Contributors)
    role = third_party()
    for user, items in enumerate([[0, 1], [1], [1]]):
        assert role.receive(f"user:{user}", contribution(items)) == []
    (send,) = role.receive("recommender", opening())
    assert isinstance(send.message, Contributors)


def test_the_third_party_ends_with_the_last_iteration():
    role = third_party(iterations=1)
    role.receive("recommender", opening())
    (send,) = role.tick(Deadline(0))
    role.receive("recommender", Agreed(0, send.message.digest))
    assert role.receive("recommender", Finish(1)) == [Done()]


# ---- finding a scheme


def test_schemes_are_found_by_name_or_import():
    assert {name: type(find_scheme(name)) for name in SCHEMES} == SCHEMES
    load_scheme("protocol.schemes.factorization.masked:Masked")
    assert isinstance(find_scheme("protocol.schemes.factorization.masked:Masked"), Masked)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("morse", "There is no scheme 'morse': use plain, trusted, direct, masked, dynamic"),
        ("no.such.module:X", "cannot be imported"),
        ("protocol.schemes.factorization.masked:Absent", "cannot be imported"),
        (":", "cannot be imported"),
        ("protocol.schemes.factorization.masked:MaskedUser", "not a subclass"),
        ("protocol.schemes.factorization.masked_roles:Floats32", "not a subclass"),
    ],
)
def test_what_is_no_scheme_is_refused_in_words(name, words):
    find = load_scheme if ":" in name else find_scheme
    with pytest.raises(BadInput, match=words):
        find(name)


@pytest.mark.parametrize("scheme", ["plain", "masked"])
def test_the_leakage_policy_names_what_each_role_receives_and_nothing_else(tmp_path, scheme):
    seen = set()
    for wire in ("compact", "paper"):
        card, seats = small_run(scheme, wire=wire)
        folder = tmp_path / wire
        folder.mkdir()
        play(card, seats, folder, [seat.party for seat in seats])
        for party in (seat.party for seat in seats):
            for _, message in received(card, folder, party):
                fields = dataclasses.fields(message) if type(message) is not Hello else ()
                seen |= {(party.partition(":")[0], type(message).__name__, field.name) for field in fields}
    assert {(leak.receiver, leak.kind, leak.field) for leak in card.scheme.leakage} == seen
    assert all(leak.words for leak in card.scheme.leakage)
