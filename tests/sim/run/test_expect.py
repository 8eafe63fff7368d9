"""The expected course of a run, checked against drawn courses and against counting by hand."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from typing import Any

import numpy as np
import pytest

from protocol.arithmetic.tape import Tape
from protocol.attendance import Course, draw_invited, spans
from protocol.card import tape_seed
from protocol.params import Params
from protocol.party.role import RECOMMENDER
from protocol.schemes import Scheme
from protocol.schemes.factorization.dynamic_recommender import DynamicParams
from protocol.schemes.factorization.machines.commitment import choose_committers
from sim.bandwidth.bandwidth import course_of
from sim.bandwidth.outline import outline
from sim.folder.byte_records import Ledger
from sim.plan.config import RunConfig
from sim.plan.expect import CountedItems, ExpectedUsers, LikelyItems, Turnout, at_least, crowd_of, expect, presence_of
from sim.plan.plan import Plan, make_plan

Totals = dict[tuple[Any, ...], float]


def drawn_course(plan: Plan) -> Course:
    """Draw the course that the servers of this run would report: presence and invitations as they draw them."""
    params, churn, tape = plan.card.params, plan.churn(), Tape(tape_seed(plan.run_seed, RECOMMENDER))
    ledger, before = Ledger(), np.zeros(params.n_users, np.bool_)
    for t in range(params.iterations if churn else 0):
        assert churn is not None and isinstance(params, DynamicParams)
        now = churn.online(t)
        users = np.flatnonzero(now).tolist()
        if t == 0:
            rated = np.flatnonzero(plan.shape.raters).astype(np.uint32)
            chosen = choose_committers(tape, 0, rated, users, params.committers)
            shares: dict[str, list[int]] = defaultdict(list)
            for user, items in chosen.items():
                shares[str(len(items))].append(user)
            asked = {items: spans(own) for items, own in shares.items()}
            ledger.setup["commitments"] = [{"opened": len(rated), "asked": asked, "sealed": len(rated)}]
            ledger.setup["answered"] = [spans(chosen)]
        invited = spans(draw_invited(tape, t, users, params.online))
        came, went = spans(np.flatnonzero(now & ~before)), spans(np.flatnonzero(before & ~now))
        ledger.turns.append({"invited": invited, "contributors": invited, "present": came, "absent": went})
        before = now
    if churn is None:
        ledger.turns = [{}] * params.iterations
    return course_of(plan.card.scheme, params, plan.data.train, ledger)


def totals(scheme: Scheme, params: Params, course: Course, *, by_row: bool = True) -> Totals:
    sums: Totals = defaultdict(float)
    for flow in scheme.predict(params, course):
        edge = (flow.sender, flow.receiver)
        key = (flow.iteration, *edge, flow.kind) if by_row else (flow.iteration < 0, *edge)
        sums[key] += flow.total()[2]
    return {key: count for key, count in sums.items() if count}


STAYS: dict[str, dict[str, Any]] = {
    "plain": {"scheme": "plain"},
    "direct": {"scheme": "direct"},
    "trusted": {"scheme": "trusted"},
    "masked": {"scheme": "masked"},
    "masked, long": {"scheme": "masked", "iterations": 300},
    "masked, floors": {"scheme": "masked", "options": {"min_contributors": 9}},
    "dynamic": {"join": 0.0, "leave": 0.0},
    "dynamic, nobody leaves": {"join": 0.1, "leave": 0.0},
    "dynamic, paper": {"join": 0.0, "leave": 0.0, "wire": "paper", "iterations": 140},
    "dynamic, floors": {"join": 0.0, "leave": 0.0, "options": {"min_contributors": 9, "committers": 4}},
    "dynamic, few commit": {"join": 0.0, "leave": 0.0, "data": "synthetic:90x12:.3", "iterations": 140},
}


@pytest.mark.parametrize("flags", STAYS.values(), ids=STAYS.keys())
def test_for_users_who_stay_groups_cost_what_single_users_cost(flags):
    plan = make_plan(RunConfig(**{"data": "demo-small", "seed": 5, "iterations": 4, **flags}))
    scheme, params = plan.card.scheme, plan.card.params
    expected = expect(scheme, params, crowd_of(plan.shape), plan.config.join, plan.config.leave)
    assert expected.stays and expected.doubt == 0
    assert len(expected.course.users) < params.n_users
    one_by_one = totals(scheme, params, drawn_course(plan))
    assert totals(scheme, params, expected.course) == pytest.approx(one_by_one, rel=1e-12)


CHURNS: dict[str, dict[str, Any]] = {
    "all who are there": {},
    "a few of them": {"online": 12},
    "floors, paper": {"wire": "paper", "options": {"min_contributors": 3}},
    "drawn, with floors": {"online": 20, "options": {"min_contributors": 3}},
    "seldom there": {"join": 0.3, "leave": 0.7, "online": 25},
}


@pytest.mark.parametrize("flags", CHURNS.values(), ids=CHURNS.keys())
def test_the_expectation_is_the_mean_over_courses_that_are_drawn(flags):
    """The means agree within half a per cent and two standard errors, for each edge, in set-up and in iterations."""
    config = {"data": "synthetic:60x50:.1", "iterations": 12, "join": 0.6, "leave": 0.4, **flags}
    found: dict[tuple[Any, ...], list[float]] = defaultdict(list)
    for seed in range(120):
        plan = make_plan(RunConfig(**config, seed=seed))
        for edge, count in totals(plan.card.scheme, plan.card.params, drawn_course(plan), by_row=False).items():
            found[edge].append(count)
    made = outline(RunConfig(**config))
    expected = expect(made.scheme, made.params, made.crowd, made.config.join, made.config.leave)
    assert not expected.stays
    forecast = totals(made.scheme, made.params, expected.course, by_row=False)
    assert set(forecast) == set(found) and len(found) == 11
    for edge, counts in found.items():
        mean, error = float(np.mean(counts)), float(np.std(counts)) / math.sqrt(len(counts))
        assert error < 0.005 * mean
        assert abs(forecast[edge] - mean) < 0.005 * mean + 2 * error, edge


def test_the_tail_of_a_binomial_law_is_its_sum():
    for n, p in ((6, 0.3), (1, 0.5), (4, 0.0), (4, 1.0)):
        law = [math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(n + 1)]
        for least in range(-1, n + 3):
            assert at_least(least, n, p) == pytest.approx(sum(law[max(least, 0) :]))


def test_how_many_are_invited_is_the_mean_of_what_the_law_says():
    for n, p, limit in ((7, 0.3, 7), (7, 0.3, 2), (7, 1.0, 3), (7, 1.0, 7), (50, 0.5, 30), (1000, 0.4, 380)):
        turnout = Turnout(n, p, limit)
        by_hand = sum(math.comb(n, k) * p**k * (1 - p) ** (n - k) * min(k, limit) for k in range(n + 1))
        values, weights = turnout.law()
        assert turnout.mean == pytest.approx(by_hand)
        assert weights.sum() == pytest.approx(1) and values @ weights == pytest.approx(by_hand, rel=1e-3)
        assert values.max() <= limit


@pytest.mark.parametrize("least", [1, 2, 3])
def test_items_with_invited_raters_are_counted_over_every_draw(least):
    """Five users, items with 0 to 4 raters; each subset of users is invited with the probability of its size."""
    census = np.array([2.0, 1.0, 0.0, 3.0, 1.0])
    for p, limit in ((0.4, 5), (0.4, 2), (1.0, 3), (0.9, 4)):
        by_hand = 0.0
        for there in itertools.product((False, True), repeat=5):
            online = [user for user in range(5) if there[user]]
            chance = p ** len(online) * (1 - p) ** (5 - len(online))
            draws = list(itertools.combinations(online, min(limit, len(online))))
            for invited, (raters, items) in itertools.product(draws, enumerate(census)):
                by_hand += chance / len(draws) * items * (sum(user < raters for user in invited) >= least)
        mean, doubt = CountedItems(census).reaching(least, Turnout(5, p, limit))
        assert mean == pytest.approx(by_hand) and (doubt > 0) == (by_hand > 0)


def test_items_that_are_only_likely_are_rated_by_each_user_alike():
    items = LikelyItems(6, np.array([0.5, 0.1]), np.array([3.0, 4.0]))
    assert items.reaching(1, None)[0] == pytest.approx(3 * (1 - 0.5**6) + 4 * (1 - 0.9**6))
    assert items.reaching(1, Turnout(6, 0.5, 6))[0] == pytest.approx(3 * (1 - 0.75**6) + 4 * (1 - 0.95**6))
    assert items.reaching(1, Turnout(6, 1.0, 2))[0] == pytest.approx(3 * (1 - 0.5**2) + 4 * (1 - 0.9**2))


def test_a_number_of_items_that_is_not_in_doubt_is_whole():
    """64 items of 4-byte values are a field of 256 bytes, which has a longer header than a field of 255.999 bytes."""
    made = outline(RunConfig(scheme="masked", data="synthetic:90x64:.5", dim=1, iterations=1))
    items = LikelyItems(90, np.full(1, 0.25), np.full(1, 64.0))
    assert 63.9 < items.reaching(1, None)[0] < 64
    sure = expect(made.scheme, made.params, ExpectedUsers(made.crowd.supports, made.crowd.users, items))
    (turn,) = sure.course.turns
    assert (turn.opened, turn.released) == (64.0, 64.0) and sure.doubt == 0


def test_who_is_never_there_never_greets_the_third_party():
    """A user that does not commit is never there with probability (1 − p)(1 − join)^(T − 1); all others greet it."""
    join, leave, iterations = 0.1, 0.3, 5
    config = RunConfig(data="synthetic:40x10:.2", join=join, leave=leave, iterations=iterations, seed=1)
    made = outline(config)
    p = presence_of(join, leave)
    assert p == pytest.approx(0.25)
    course = expect(made.scheme, made.params, made.crowd, join, leave).course
    assert course.greeted / course.users == pytest.approx(1 - (1 - p) * (1 - join) ** (iterations - 1))


def test_turns_of_the_circle_are_shared_out_evenly():
    """12 items with 3 committers each are 36 turns; of 10 users 6 get four and 4 get three."""
    crowd = ExpectedUsers(np.array([2, 5]), np.array([4.0, 6.0]), CountedItems(np.array([0.0, 12.0])))
    made = outline(RunConfig(data="synthetic:10x12:.2", join=0.0, leave=0.0, seed=1))
    (attempt,) = expect(made.scheme, made.params, crowd, 0.0, 0.0).course.attempts
    assert {share: attempt.asked[attempt.shares == share].sum() for share in (3, 4)} == pytest.approx({3: 4, 4: 6})
    assert attempt.opened == attempt.sealed == 12 and attempt.asked @ attempt.shares == pytest.approx(36)
