"""Users that come, go, fall silent or end: presence, drop-outs, the emulator's plan, and the parameters of a run."""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import Any

import numpy as np
import pytest
from scipy import stats
from support.basics import FALSE_ALARM, shape_of, small_ratings, small_run, uniform_p
from support.meter import predicted_if_all_stay
from support.runs import Directed, factors_of
from support.snapshot import snapshot
from support.stage import Stage

from protocol.arithmetic.tape import Tape
from protocol.attendance import draw_invited
from protocol.errors import BadInput, Reason
from protocol.party.party import Step
from protocol.party.role import RECOMMENDER, THIRD_PARTY, user_name
from protocol.schemes import find_scheme
from protocol.wire.messages import (
    Absent,
    Churn,
    Deadline,
    Due,
    Event,
    Gone,
    MaskedGradient,
    Present,
    SealedTotal,
)
from sim.drivers.inprocess import InProcess
from sim.plan.churn import ChurnPlan
from sim.plan.config import RunConfig
from tests.protocol.schemes.test_dynamic import CHURNED, WIRES, Seen, churn, dropping
from tests.sim.bandwidth.test_traffic import metered

# ---- the same V for both wires and every order of arrival

AWAY = frozenset({2, 5})
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {  # settings of the run, and what happens in it
    "everyone stays": ({}, {}),
    "churn": ({}, {"churned": True}),
    "churn, at most four": ({"online": 4}, {"churned": True}),
    "silent from iteration 4 on": ({}, {"silent": dict.fromkeys(range(4, 15), AWAY)}),
    "silent, and half is enough": ({"dropout_allowance": 0.5}, {"silent": dict.fromkeys(range(4, 15), AWAY)}),
    "gone": ({}, {"gone": {2: frozenset({1}), 5: frozenset({0, 7})}}),
    "all of it": (
        {"online": 6, "dropout_allowance": 0.5},
        {"churned": True, "gone": {3: frozenset({1})}, "silent": dict.fromkeys(range(4, 15), AWAY)},
    ),
}


@pytest.mark.parametrize(("settings", "happens"), CASES.values(), ids=CASES.keys())
def test_both_wires_and_every_order_of_arrival_give_the_same_factors(settings, happens):
    found = set()
    for wire in WIRES:
        for order in (None, 1, 2):
            options = {name: value for name, value in happens.items() if name != "churned"}
            if "churned" in happens:
                options["events_for"] = churn().events
            factors = factors_of(*small_run("dynamic", wire=wire, **CHURNED, **settings), order=order, **options)
            found.add(factors.tobytes())
    assert len(found) == 1


# ---- drop-outs

SILENT = {2: {0}, 3: {0, 4, 7}, 6: {1, 10}, 9: set(range(0, 12, 2))}


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("allowance", [0.0, 0.5])
def test_silent_users_are_left_out_with_their_masks_and_pieces(tmp_path, wire, allowance):
    """`check_noise` computes every sum from the contributors alone, and the factors from these sums."""
    card, seats = small_run("dynamic", wire=wire, dropout_allowance=allowance, **CHURNED)
    seen = Seen(dropping(card, SILENT), seats, tmp_path)
    assert {t: set(range(12)) - set(users) for t, users in seen.contributors.items() if len(users) < 12} == SILENT
    seen.check_seals()
    seen.check_noise()
    for t, silent in SILENT.items():
        missed = {int(item) for user in silent for item in seen.inputs[user].items}
        reached = missed & set(seen.totals[t])
        if allowance == 0:
            assert missed and not reached
        else:
            assert reached
        for user in seen.inputs:  # an item below its floor does not move, not even by noise, -α or regularisation
            before, after = (seen.offers[at, user].factors for at in (t, t + 1))
            stays = [int(item) not in seen.totals[t] for item in seen.inputs[user].items]
            assert (before == after).all(axis=1).tolist() == stays


@pytest.mark.parametrize("wire", WIRES)
def test_users_that_are_gone_are_not_invited_again(tmp_path, wire):
    card, seats = small_run("dynamic", wire=wire, **CHURNED)
    seen = Seen(card, seats, tmp_path, gone={2: frozenset({1}), 5: frozenset({0, 7})})
    invited = [seen.openings[t].users.tolist() for t in range(15)]
    left = [set(range(12)), set(range(12)) - {1}, set(range(12)) - {0, 1, 7}]
    assert list(map(set, invited)) == [left[0]] * 3 + [left[1]] * 3 + [left[2]] * 9
    seen.check_seals()
    seen.check_noise()


def test_with_fewer_online_than_committers_the_run_ends():
    card, seats = small_run("dynamic", n_users=5)
    events: list[tuple[str, Event]] = [("user:0", Churn(0, True)), ("user:4", Churn(0, True))]
    outcome = InProcess(card, seats, events_for=lambda t: [*events, (RECOMMENDER, Due(0, (0, 4)))]).run()
    assert outcome.abort is not None and outcome.abort.reason is Reason.TOO_FEW_ONLINE
    assert outcome.item_factors is None


# ---- one delivery at a time

N = 4


def tick(stage: Stage, party: str, event: Event) -> Step:
    step = stage.parties[party].tick(event)
    stage._settle(party, step)
    return step


def stage_with_everyone(wire: str = "compact", online: tuple[int, ...] = tuple(range(N))) -> Stage:
    stage = Stage(*small_run("dynamic", n_users=N, n_items=5, wire=wire))
    for user in online:
        tick(stage, user_name(user), Churn(0, True))
    tick(stage, RECOMMENDER, Due(0, online))
    return stage


def kinds(step: Step) -> list[tuple[str, str]]:
    return [(out.to, out.kind) for out in step.sends if out.kind != "Hello"]


@pytest.mark.parametrize("event", [Gone(N - 1), Deadline(0)])
def test_a_user_that_ends_or_is_late_does_not_hold_up_the_iteration(event):
    """The third party has the opening, all commitments, the next opening, and all answers but the last."""
    stage = stage_with_everyone()
    stage.run_until(THIRD_PARTY, 1 + N + 1 + N - 1)
    assert kinds(tick(stage, THIRD_PARTY, Gone(0))) == []  # user 0 has answered
    assert kinds(tick(stage, THIRD_PARTY, Deadline(1))) == []  # of another iteration
    step = tick(stage, THIRD_PARTY, event)
    assert kinds(step) == [(RECOMMENDER, "Contributors")]
    assert stage.codec.decode(step.sends[-1].frame)[1].users.tolist() == [0, 1, 2]
    assert kinds(tick(stage, THIRD_PARTY, event)) == []
    role = stage.parties[THIRD_PARTY].role
    before = snapshot(role)
    own = stage.parties[user_name(N - 1)].role.inputs.items
    late = MaskedGradient(0, own, np.ones((len(own), 2), np.uint32))
    assert stage.hand(user_name(N - 1), THIRD_PARTY, late)[0].rejected is Reason.WRONG_ITERATION
    assert snapshot(role) == before


@pytest.mark.parametrize("event", [Gone(N - 1), Deadline(-1)])
@pytest.mark.parametrize("wire", WIRES)
def test_a_committer_that_ends_or_is_late_does_not_hold_up_the_commitment(wire, event):
    stage = stage_with_everyone(wire)
    stage.run_until(THIRD_PARTY, 1 + N - 1)
    assert kinds(tick(stage, THIRD_PARTY, Deadline(-2))) == []  # of the next attempt
    step = tick(stage, THIRD_PARTY, event)
    assert kinds(step) == [(RECOMMENDER, "SealedTotal")]
    total = stage.codec.decode(step.sends[-1].frame)[1]
    assert isinstance(total, SealedTotal) and 0 < len(total.items) < 5
    assert kinds(tick(stage, THIRD_PARTY, event)) == []
    if isinstance(event, Gone):
        assert kinds(tick(stage, RECOMMENDER, event)) == []
    again, _ = stage.hand(THIRD_PARTY, RECOMMENDER, total)
    asked = {party for party, kind in kinds(again) if kind.startswith("Commit")}
    assert len(asked) >= 3 and asked <= {user_name(user) for user in range(N - isinstance(event, Gone))}
    opening = stage.codec.decode(again.sends[0].frame)[1]
    assert opening.attempt == 1
    assert opening.items.tolist() == sorted(set(range(5)) - set(total.items.tolist()))


def test_wrong_words_about_presence_are_refused_and_change_nothing():
    stage = Stage(*small_run("dynamic", n_users=N, n_items=5))
    recommender = stage.parties[RECOMMENDER].role

    def refuse(sender: str, message: Present | Absent, reason: Reason) -> None:
        before = snapshot(recommender)
        step, _ = stage.hand(sender, RECOMMENDER, message)
        assert (step.rejected, step.sends) == (reason, [])
        assert snapshot(recommender) == before

    def accept(user: int, message: Present | Absent) -> Step:
        step, _ = stage.hand(user_name(user), RECOMMENDER, message)
        assert step.rejected is None
        return step

    refuse("user:0", Present(0), Reason.UNKNOWN_SENDER)  # has not joined
    stage.run_until(RECOMMENDER, N)
    refuse("user:9", Present(0), Reason.UNKNOWN_SENDER)
    refuse(THIRD_PARTY, Present(0), Reason.UNKNOWN_SENDER)
    refuse("user:0", Absent(0), Reason.DUPLICATE)  # is not online
    refuse("user:0", Present(1), Reason.WRONG_ITERATION)
    accept(0, Present(0))
    refuse("user:0", Present(0), Reason.DUPLICATE)
    refuse("user:0", Absent(0), Reason.DUPLICATE)  # one message before each iteration
    for user in (1, 2):
        assert accept(user, Present(0)).sends == []
    assert tick(stage, RECOMMENDER, Due(1, (0,))).sends == []
    assert tick(stage, RECOMMENDER, Due(0, (0, 1, 2))).sends != []
    refuse("user:3", Present(0), Reason.WRONG_ITERATION)  # the commitment runs
    while recommender.iteration < 0:
        stage.deliver()
    for iteration in (0, 1):  # the iteration runs
        refuse("user:3", Present(iteration), Reason.WRONG_ITERATION)
        refuse("user:0", Absent(iteration), Reason.WRONG_ITERATION)
    while recommender.iteration < 1:
        stage.deliver()
    assert recommender.roll.online == {0, 1, 2}
    refuse("user:0", Absent(0), Reason.WRONG_ITERATION)
    refuse("user:0", Present(1), Reason.DUPLICATE)
    refuse("user:3", Absent(1), Reason.DUPLICATE)
    accept(0, Absent(1))
    accept(3, Present(1))
    refuse("user:0", Absent(1), Reason.DUPLICATE)
    assert recommender.current.opened is None  # nothing begins before every due user has spoken
    tick(stage, RECOMMENDER, Due(1, (0, 3)))
    assert recommender.roll.online == {1, 2, 3} == set(recommender.current.opened.users.tolist())


def test_a_user_says_once_that_it_comes_or_goes():
    stage = Stage(*small_run("dynamic", n_users=N, n_items=5))
    told = [(Churn(0, False), []), (Churn(0, True), ["Present"]), (Churn(1, True), []), (Churn(2, False), ["Absent"])]
    for event, said in told:
        assert [kind for _, kind in kinds(tick(stage, "user:0", event))] == said


# ---- which users are invited


def test_as_many_as_may_are_drawn_anew_from_the_recommenders_tape(tmp_path):
    card, seats = small_run("dynamic", n_users=10, n_items=6, iterations=12, online=4)

    def invited(name: str, renewed: set[str]) -> list[list[int]]:
        (tmp_path / name).mkdir()
        with_tapes = [
            dataclasses.replace(seat, tape_seed=bytes([len(seat.party)]) * 32) if seat.party in renewed else seat
            for seat in seats
        ]
        return [opening.users.tolist() for opening in Seen(card, with_tapes, tmp_path / name).openings.values()]

    first = invited("first", set())
    assert {len(users) for users in first} == {4} and len({tuple(users) for users in first}) > 8
    assert set().union(*first) == set(range(10))
    assert invited("others", {seat.party for seat in seats} - {RECOMMENDER}) == first
    assert invited("recommender", {RECOMMENDER}) != first


def test_everyone_is_drawn_equally_often():
    """2000 draws of 4 out of 10, size below 1e-6 (without replacement counts scatter less than chi-square allows)."""
    tape, users = Tape(bytes(range(32))), [3 * user + 1 for user in range(10)]
    draws = [draw_invited(tape, t, users, 4) for t in range(2000)]
    assert all(len(set(drawn)) == 4 and drawn == sorted(drawn) and set(drawn) <= set(users) for drawn in draws)
    places = np.array([users.index(user) for drawn in draws for user in drawn])
    assert uniform_p(places, 10) > FALSE_ALARM
    biased = np.where(np.arange(len(places)) % 10 == 0, 0, places)  # every tenth goes to the first user
    assert uniform_p(biased, 10) < FALSE_ALARM
    assert draw_invited(tape, 0, users, 10) == draw_invited(tape, 0, users, 99) == users


@pytest.mark.parametrize("wire", WIRES)
def test_with_nobody_online_an_iteration_passes_and_nothing_moves(wire):
    online = [range(5), range(0), range(0), range(2)]
    card, seats = small_run("dynamic", n_users=5, iterations=4, wire=wire)
    factors, parts = [], []

    def events(t: int) -> list[tuple[str, Event]]:
        changed = sorted(set(online[t - 1] if t else ()) ^ set(online[t]))
        told: list[tuple[str, Event]] = [(user_name(user), Churn(t, user in online[t])) for user in changed]
        return [*told, (RECOMMENDER, Due(t, tuple(changed)))]

    def note(done: Any) -> None:
        parts.append((done.invited, done.contributors))
        factors.append(run.parties[RECOMMENDER].role.item_factors.tobytes())

    run = InProcess(card, seats, events_for=events, on_iteration=note)
    outcome = run.run()
    assert outcome.abort is None and not outcome.rejected
    assert parts[1:] == [(5, 5), (0, 0), (0, 0), (2, 2)]  # the first is the set-up
    assert factors[1] == factors[2] == factors[3] != factors[4] == outcome.item_factors.tobytes()


# ---- the plan of the emulator: tests of size 1e-6 on fixed seeds, each beside a wrong rate that it rejects


def agrees(hits: int, trials: int, rate: float) -> bool:
    return bool(stats.binomtest(int(hits), int(trials), rate).pvalue > FALSE_ALARM)


@pytest.mark.parametrize(("join", "leave"), [(0.3, 0.1), (0.005, 0.01), (0.5, 0.5)])
def test_users_start_come_and_go_at_the_rates_asked_for(join, leave):
    plan = ChurnPlan(100_000, join, leave, bytes(range(32)))
    online = [plan.online(t) for t in range(8)]
    start = join / (join + leave)
    for t in (0, 7):  # the start is the equilibrium
        assert agrees(online[t].sum(), 100_000, start)
        assert not agrees(online[t].sum(), 100_000, 0.96 * start)
    before, after = np.array(online[:-1]), np.array(online[1:])
    came, away = (after & ~before).sum(), (~before).sum()
    left, there = (before & ~after).sum(), before.sum()
    assert agrees(came, away, join) and not agrees(came, away, 0.8 * join)
    assert agrees(left, there, leave) and not agrees(left, there, 0.8 * leave)


def test_rates_of_zero_and_one():
    always = [(0.0, 0.0), (1.0, 0.0), (0.2, 0.0)]
    assert all(ChurnPlan(50, *rates, bytes(32)).online(t).all() for rates in always for t in range(5))
    assert not any(ChurnPlan(50, 0.0, 0.2, bytes(32)).online(t).any() for t in range(5))
    flipping = ChurnPlan(50, 1.0, 1.0, bytes(32))
    states = [flipping.online(t) for t in range(4)]
    assert 0 < states[0].sum() < 50
    assert all((a != b).all() for a, b in itertools.pairwise(states))


def test_the_events_of_an_iteration_are_exactly_the_changes():
    told, asked = churn(), churn()
    state = np.zeros(12, bool)
    for t in range(40):
        *events, (receiver, due) = told.events(t)
        now = asked.online(t)
        changed = [int(user) for user in np.flatnonzero(state != now)]
        assert [(name, event.iteration, event.online) for name, event in events] == [
            (f"user:{user}", t, bool(now[user])) for user in changed
        ]
        assert (receiver, due) == (RECOMMENDER, Due(t, tuple(changed)))
        state = now
    quiet = ChurnPlan(3, 0.0, 0.0, bytes(32))
    assert len(quiet.events(0)) == 4 and quiet.events(1) == [(RECOMMENDER, Due(1, ()))]


def test_the_plan_follows_from_the_seed():
    first, same, other = churn(1), churn(1), churn(2)
    assert first.online(9).tolist() == [same.online(t) for t in range(10)][9].tolist()  # directly or one by one
    assert [same.online(t).tolist() for t in range(10, 20)] != [other.online(t).tolist() for t in range(10, 20)]
    mine = first.online(10)
    mine[:] = False  # the array belongs to the caller
    assert first.online(10).any()


# ---- traffic, parameters, no noise


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("iterations", [3, 150])
def test_the_predicted_traffic_is_the_metered_traffic_when_everyone_stays(wire, iterations):
    card, seats = small_run("dynamic", n_users=6, n_items=9, wire=wire, iterations=iterations)
    predicted = predicted_if_all_stay(card, shape_of(small_ratings(6, 9), 9))
    assert predicted == metered(card, seats, handshakes=True)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"online": 0}, "--online must be between 1 and the 5 users, not 0"),
        ({"online": 6}, "--online must be between 1 and the 5 users, not 6"),
        ({"committers": 1}, "committers must be 2 or more"),
        ({"committers": 6}, r"needs 6 users and there are 5: set committers lower \(--set committers=5\)"),
    ],
)
def test_parameters_that_cannot_be_are_refused_in_words(options, words):
    with pytest.raises(BadInput, match=words):
        small_run("dynamic", n_users=5, **options)
    for fine in ({"online": 1}, {"online": 5}, {"committers": 2}, {"committers": 5}):
        small_run("dynamic", n_users=5, **fine)


def test_a_single_user_is_told_what_to_do_instead():
    """`--set committers=1` is refused, so it is not proposed."""
    with pytest.raises(BadInput, match=r"needs 3 users and there is 1, and 2 is the least: .*--scheme masked"):
        small_run("dynamic", n_users=1)
    small_run("masked", n_users=1)


@pytest.mark.parametrize("flag", ["join", "leave"])
def test_rates_that_are_no_probabilities_are_refused_in_words(flag):
    for value in (-0.1, 1.1, math.nan):
        with pytest.raises(BadInput, match=f"--{flag} must be a probability between 0 and 1"):
            RunConfig(**{flag: value}).check()
    for value in (0.0, 0.3, 1.0, None):
        RunConfig(**{flag: value}).check()


@pytest.mark.parametrize("wire", WIRES)
def test_without_noise_and_with_everyone_online_it_is_masked_bit_for_bit(wire):
    shape: dict[str, Any] = {"n_users": 6, "n_items": 9, "wire": wire, "iterations": 10}
    masked, dynamic = (factors_of(*small_run(name, epsilon=math.inf, **shape)) for name in ("masked", "dynamic"))
    assert masked.tobytes() == dynamic.tobytes()
    noisy = [factors_of(*small_run(name, epsilon=8.0, **shape)) for name in ("masked", "dynamic")]
    assert noisy[0].tobytes() != noisy[1].tobytes()
    assert find_scheme("dynamic").make_params(shape_of(small_ratings(6, 9), 9), dim=2, iterations=1)[0].online == 6


@pytest.mark.parametrize("wire", ["compact", "paper"])
def test_an_iteration_in_which_nobody_answers_passes(wire):
    """Nothing is released, so nothing moves, and the run goes on."""
    card, seats = small_run("dynamic", n_users=5, wire=wire)
    outcome = Directed(card, seats, silent={1: frozenset(range(5))}).run()
    assert outcome.abort is None and outcome.item_factors is not None
    assert outcome.rejected == {"WRONG_ITERATION": 5}  # their answers came too late


def test_a_user_who_was_late_once_is_heard_again():
    card, seats = small_run("dynamic", n_users=5, iterations=6)
    outcome = Directed(card, seats, silent={1: frozenset({2})}).run()
    assert outcome.abort is None and outcome.rejected == {"WRONG_ITERATION": 1}
