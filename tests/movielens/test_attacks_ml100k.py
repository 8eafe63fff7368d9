"""Attacks on runs with real ratings: the reference figures of the weaknesses. Skipped without ml-100k."""

from __future__ import annotations

import numpy as np
import pytest
from support.audit import isolating_users

from protocol.party.role import user_name
from sim.api import run
from sim.audit.attacks.attack import attack
from sim.audit.attacks.coalition_views import Scene, Truth
from sim.audit.attacks.difference import round_to
from sim.audit.attacks.difference_guesses import attack_difference, readings, recovered
from sim.audit.attacks.inference import attack_inference
from sim.audit.attacks.isolating import attack_by_users, attack_with_recommender
from sim.audit.attacks.single import attack_single
from sim.audit.attacks.support import attack_support
from sim.audit.families.masked.unmasking import attack_together
from sim.data.ratings import find
from sim.views.evidence import open_case

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        find("ml-100k") is None, reason="ml-100k is absent: set KEYHOLE_DATA or run keyhole fetch ml-100k"
    ),
]

MEMORY = {"data": "ml-100k", "transport": "inprocess", "test_fraction": 0.0, "seed": 1, "epsilon": 1.0}
BOTH = ("recommender", "third_party")


@pytest.fixture(scope="module")
def masked(tmp_path_factory):
    folder = tmp_path_factory.mktemp("masked") / "run"
    run(out=folder, scheme="masked", iterations=3, **MEMORY)
    case = open_case(folder)
    return case, Truth(case, 3)


def test_both_servers_read_three_hundred_thousand_rows_exactly(masked):
    (finding,) = attack_together(Scene(masked[0], BOTH, masked[1]))
    assert finding.measured["rows"] == finding.measured["rows_exact"] == 300_000
    assert finding.measured["max_error_ring_units"] == 0


@pytest.mark.parametrize("wire", ["compact", "paper"])
def test_both_servers_read_users_who_come_and_go(tmp_path, wire):
    flags = {"online": 100, "wire": wire, "iterations": 2}
    run(out=tmp_path / "run", scheme="dynamic", **{**MEMORY, **flags})
    case = open_case(tmp_path / "run")
    (finding,) = attack_together(Scene(case, BOTH, Truth(case, 2)))
    assert finding.measured["uploads"] == 200 and finding.measured["max_error_ring_units"] == 0
    assert finding.measured["rows"] == finding.measured["rows_exact"] > 10_000


def test_raters_isolate_the_last_one_with_the_recommender_and_without(masked):
    case, known = masked
    users = isolating_users(case)
    (exact,) = attack_with_recommender(Scene(case, ("recommender", *users), known))
    assert exact.measured["max_error_ring_units"] == 0 and exact.measured["sums"] >= 3
    (read,) = attack_by_users(Scene(case, users, known))
    print(f"released sums from float32 factors: {read.measured}")
    assert read.measured["sums_recovered"] == read.measured["sums"] and read.measured["median_error"] < 5e-4
    assert read.measured["single_user_sums_recovered"] >= 1


def test_141_items_have_one_rater(masked):
    (finding,) = attack_single(Scene(masked[0], ("recommender",), masked[1]))
    assert finding.measured["items"] == 141 and finding.measured["sums"] == 3 * 141
    assert finding.measured["fraction_of_sums"] == pytest.approx(141 / 1682)


def test_support_alone_predicts_gender_and_age(masked):
    """The reference has an AUC of .78 for gender and .87 for age."""
    (finding,) = attack_support(Scene(masked[0], ("recommender",), masked[1]))
    measured = finding.measured
    if "auc_gender" not in measured:
        pytest.skip("The ratings are here without u.user, which has the users' gender and age.")
    print(f"AUC gender {measured['auc_gender']:.3f}, age over 30 {measured['auc_age_over_30']:.3f}")
    assert measured["precision"] == measured["recall"] == 1.0 and measured["people"] == 943
    for trait, reference in (("gender", 0.78), ("age_over_30", 0.87)):
        low, high = measured[f"auc_{trait}_interval"]
        assert low <= reference <= high and high - low < 0.09


def test_at_epsilon_1_two_servers_guess_ratings_and_one_does_not(masked):
    case, known = masked
    (alone,) = attack_inference(Scene(case, ("recommender",), known))
    assert alone.severity == "info" and alone.measured["ratings"] == 141
    assert alone.measured["interval"][0] <= alone.chance["accuracy"]
    (together,) = attack_inference(Scene(case, BOTH, known))
    print(f"unmasked uploads: {together.measured}")
    assert together.id == "unmasking" and together.severity == "weak"
    (difference,) = attack_difference(Scene(case, BOTH, known))
    assert difference.severity == "info" and difference.measured["interval"][0] <= difference.chance["accuracy"]


def direct(folder, **flags):
    run(out=folder, scheme="direct", iterations=2, **MEMORY, **flags)
    return open_case(folder)


def test_without_rho_every_rating_is_recovered(tmp_path):
    """This holds for users with 20 ratings, for users with 100, and for the sample of the attack."""
    case = direct(tmp_path / "run", no_rho=True)
    scene = Scene(case, ("recommender",), Truth(case, 2))
    found = readings(scene)
    for size in (20, 100):
        users = [user for user, two in found.items() if len(two[0].items) == size]
        assert users
        for user in users[:5]:
            guessed = round_to(recovered(scene, found[user]).ratings, np.arange(1.0, 6.0))
            assert (guessed == scene.truth.ratings[user_name(user)].ratings).all()
    (finding,) = attack_difference(scene)
    assert finding.severity == "break" and finding.measured["accuracy"] == 1.0 and finding.measured["users"] == 30


def test_with_rho_the_difference_tells_nothing(tmp_path):
    found = {finding.id: finding for finding in attack(direct(tmp_path / "run"), [("recommender",)])}
    for identifier in ("difference-attack", "rating-inference"):
        finding = found[identifier]
        assert finding.severity == "info" and finding.measured["interval"][0] <= finding.chance["accuracy"]
