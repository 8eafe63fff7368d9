"""The publication of V in the audit: what it adds for each party in exact sums, weighted totals, ε and words."""

from __future__ import annotations

import math

import numpy as np
import pytest
from support.audit import audited, made, of

from protocol.arithmetic.factors import item_gradients, prediction_errors, step_items
from protocol.party.role import RECOMMENDER
from protocol.wire.messages import Publication
from sim.audit import inventory
from sim.audit.accounting.account import account
from sim.audit.algebra.grade import grade
from sim.audit.algebra.knowledge import Library
from sim.audit.algebra.solve import findings, row, solve
from sim.audit.algebra.symbolic_run import SymbolicRerun
from sim.audit.attacks.attack import attack
from sim.audit.audit import audit
from sim.audit.canary.empirical import measure
from sim.audit.families.factorization.to_a_user import to_a_user
from sim.audit.families.masked.releases import RecommenderReading
from sim.tables.audit_tables import show_audit
from sim.views.exhibits import Exhibits
from tests.audit.algebra.test_algebra import CHURN, RATINGS

STATIC = {"masked": {}, "direct": {}, "plain": {}}
ALL = {**STATIC, "dynamic": CHURN}


def both(folder, scheme, **flags):
    """Make the same run twice: all items published, and only those that each user rated."""
    cases = []
    for publish in ("all", "rated"):
        (folder / publish).mkdir()
        cases.append(audited(folder / publish, RATINGS, scheme, publish=publish, **flags))
    return cases


@pytest.mark.parametrize(("scheme", "flags"), ALL.items(), ids=ALL)
def test_publishing_all_items_changes_no_exact_answer_and_is_counted(tmp_path, scheme, flags):
    """A coalition sees the factors of an item that it did not rate once: an equation with the unknown v_j(0)."""
    every, own = (
        {one.members: row(one) for one in solve(case)} for case in both(tmp_path, scheme, **flags)
    )  # fmt: skip
    assert every.keys() == own.keys()
    more = 0
    for members, answer in every.items():
        other = own[members]
        assert {name: answer[name] for name in answer if name not in ("totals_under_first_factors", "detail")} == {
            name: other[name] for name in other if name not in ("totals_under_first_factors", "detail")
        }
        added = answer["totals_under_first_factors"] - other["totals_under_first_factors"]
        assert added >= 0 and (RECOMMENDER not in members or answer["totals_under_first_factors"] == 0)
        assert ("weighted total" in answer["detail"]) == (answer["totals_under_first_factors"] > 0)
        more += added
    assert more > 0
    if scheme in STATIC:  # every user saw its own items from the beginning
        assert all(answer["totals_under_first_factors"] == 0 for answer in own.values())
        alone = every["user:1",]  # rated two of five items
        assert alone["totals_under_first_factors"] == 3


@pytest.mark.parametrize("scheme", STATIC)
def test_the_last_sum_of_its_items_is_what_the_end_gives_a_user(tmp_path, scheme):
    """With T iterations a rater of an item holds T sums of it; without the publication it would hold T − 1."""
    case = audited(tmp_path, RATINGS, scheme, publish="rated")
    hearing, iterations = SymbolicRerun(case).run(), case.card.params.iterations
    with_end = grade(Library(hearing, case.card.params.ring_bits), ("user:1",)).sums
    for heard in hearing.heard.values():
        heard.sightings = [(t, items) for t, items in heard.sightings if t < iterations]
    without = grade(Library(hearing, case.card.params.ring_bits), ("user:1",)).sums
    assert (with_end, without) == (2 * iterations, 2 * (iterations - 1))  # user 1 rated two items


@pytest.mark.parametrize(("scheme", "flags"), [("masked", {}), ("dynamic", CHURN)], ids=["masked", "dynamic"])
def test_published_factors_are_the_weighted_total_of_the_sums_less_the_first_factors(tmp_path, scheme, flags):
    """v_j(T) = ω^n v_j(0) − (γ/k_j) Σ ω^(releases after it) s_j: v_j(0) gives the total; without it any total fits."""
    case = audited(tmp_path, RATINGS, scheme, **flags)
    params, reading = case.card.params, RecommenderReading(case)
    first = reading.role.item_factors.copy()
    omega = 1 - 2 * params.learning_rate * params.item_regularisation
    total, power = np.zeros_like(first), np.ones(len(first))
    for release in reading.releases():
        total[release.items] = omega * total[release.items] + release.sums
        power[release.items] *= omega
    raters = np.maximum(reading.role.n_raters, 1)[:, None]
    (published,) = Exhibits(case, ("user:1",)).received("user:1", Publication.__name__)
    expected = power[:, None] * first - params.learning_rate / raters * total
    assert np.abs(published.message.factors - expected).max() < 1e-6
    # another v_j(0) of length 1 fits the same published factors, with another total
    other = -first
    fitting = raters / params.learning_rate * (power[:, None] * other - published.message.factors)
    assert np.abs(power[:, None] * other - params.learning_rate / raters * fitting - expected).max() < 1e-6
    assert np.abs(fitting - total).max() > 1


def test_users_of_a_trusted_recommender_hold_published_figures(tmp_path):
    solved = {one.members: row(one) for one in solve(made(tmp_path / "run", "trusted"))}
    assert solved["user:0",]["determines"] == "aggregate" and "published figures" in solved["user:0",]["detail"]


def test_the_finding_says_what_the_publication_adds(tmp_path):
    for case, adds in zip(both(tmp_path, "masked"), (True, False), strict=True):
        found = [one for one in findings(case, solve(case)) if one.coalition == ("user:1",)]
        finding = of(found, "released-sums")
        assert finding.measured["totals_under_first_factors"] == (3 if adds else 0)
        assert ("--publish rated would not" in finding.evidence) == adds


@pytest.mark.parametrize("publish", ["all", "rated"])
def test_the_attack_reads_the_last_sum_too(tmp_path, publish):
    case = audited(tmp_path, RATINGS, "masked", publish=publish)
    finding = of(attack(case, [("user:1",)]), "released-sums")
    assert finding.measured["sums"] == finding.measured["sums_recovered"] == 2 * case.card.params.iterations


@pytest.mark.parametrize("scheme", ["masked", "direct", "plain", "trusted", "dynamic"])
def test_the_words_of_a_run_that_publishes_less_say_so(tmp_path, scheme):
    for publish, words in (("all", "all items"), ("rated", "its items")):
        rows, _ = inventory.take(made(tmp_path / publish, scheme, publish=publish, iterations=3))
        (entry,) = [one for one in rows if (one["kind"], one["field"]) == (Publication.__name__, "factors")]
        assert words in entry["words"] and entry["count"] == entry["parties"]


@pytest.mark.parametrize("scheme", ["masked", "dynamic", "direct", "trusted"])
def test_a_run_that_ends_with_a_publication_has_its_canary(tmp_path, scheme):
    case = made(tmp_path / "run", scheme, iterations=3)
    document, _ = measure(case, case.card.scheme, repetitions=400, workers=1)
    assert document["rows"]


# --- ε to a user -----------------------------------------------------------------------------------------------------


def steps(ratings, users, first, eta, rho):
    """Compute v(T) of one item whose raters have the factors `users[t]`."""
    factors = first.copy()
    for at, noise in zip(users, rho, strict=True):
        rows = [item_gradients(prediction_errors(np.array([r]), u, factors[None]), u)[0]
                for r, u in zip(ratings, at, strict=True)]  # fmt: skip
        sums = np.sum(rows, axis=0) + eta + noise
        factors = step_items(factors[None], sums[None], np.array([len(at)]), 1 / 32, 1e-3)[0]
    return factors


@pytest.mark.parametrize("moving", [False, True])
def test_a_flipped_rating_moves_the_end_as_another_eta_would(moving):
    """The change of η is 2Δu_i if u_i is fixed: the noise of one release covers the total, after 1 step or 100."""
    draw = np.random.default_rng(5)
    dim, span, ratings = 4, 4.0, np.array([5.0, 2.0, 3.0, 4.0])
    for count in (1, 3, 100):
        fixed = draw.normal(size=(4, dim))
        drift = draw.normal(size=(count, 4, dim)) * (0.2 if moving else 0.0)
        users = fixed + drift
        users /= np.linalg.norm(users, axis=2, keepdims=True)
        first, eta, rho = draw.normal(size=dim), draw.normal(size=dim), draw.normal(size=(count, dim))
        here = steps(ratings, users, first, eta, rho)
        there = steps(np.array([1.0, *ratings[1:]]), users, first, eta, rho)
        slopes = [steps(ratings, users, first, eta + unit, rho) - here for unit in np.eye(dim)]
        shift = np.linalg.solve(np.array(slopes).T, there - here)  # the change of η that does the same
        if not moving:
            assert shift == pytest.approx(2 * span * users[0, 0])
        assert np.abs(shift).sum() <= 2 * span * math.sqrt(dim) * (1 + 1e-9)


@pytest.mark.parametrize("scheme", ["masked", "dynamic", "direct"])
def test_accounting_to_a_user(tmp_path, scheme):
    case = made(tmp_path / "all", scheme)
    document, _ = account(case)
    found = document["to_a_user"]
    assert found["not_rated"] == min(document["claimed"], document["composed"]["tight"]) == document["claimed"]
    if scheme == "direct":
        assert found["rated"]["all_releases"] == document["composed"]["tight"]
    else:
        assert found["rated"] == document["colluders"]["1"]  # the envelopes, and its own share
        assert found["rated"]["all_releases"]["worst"] > document["all_releases"]["even"]["median"]
    assert ("committed" in found) == (scheme == "dynamic")
    if scheme == "dynamic":
        committed, tight = found["committed"], document["composed"]["tight"]
        assert 0 < committed["median"] <= committed["p99"] <= committed["worst"] <= tight
    less, _ = account(made(tmp_path / "rated", scheme, publish="rated"))
    assert less["to_a_user"]["not_rated"] == 0 and "sent nothing" in less["to_a_user"]["words"]


def test_where_shares_of_eta_are_missing_the_releases_are_composed(tmp_path):
    case = made(tmp_path / "run", "masked")
    document, _ = account(case)
    found = to_a_user(case.card.params, document, whole=False)
    assert found["not_rated"] == document["composed"]["tight"] > document["claimed"]
    assert "dropped out" in found["words"]


@pytest.mark.parametrize("scheme", ["masked", "dynamic", "direct", "trusted", "plain"])
def test_the_terminal_says_it_in_one_line(tmp_path, capsys, scheme):
    case = made(tmp_path / "run", scheme)
    show_audit(audit(case.folder, only=["accounting"]), everything=False)
    shown = " ".join(capsys.readouterr().out.split())
    assert ("To another user" in shown) == (scheme in ("masked", "dynamic", "direct"))
    assert ("where it committed" in shown) == (scheme == "dynamic")
