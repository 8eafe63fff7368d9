"""The report of a run in which a party cheats, cheat by cheat: what was learned, what it cost, who noticed and how."""

from __future__ import annotations

import pytest

from sim.audit.audit import Audit
from sim.plan.config import RunConfig
from sim.run.run import run
from sim.tables.cheat_tables import cost_words, learned_words, noticed_words

STRUCK = (
    "the sums with it were beyond what honest users can make, and no others, in iteration 0 (or the third party left "
    "its message out)"
)
BEYOND = "sums that no honest users can have made"
NOTHING = {"what": "nothing: it receives no more than an honest party"}


def report_of(tmp_path, cheat, **settings):
    """Run with a cheat, and the same with honest parties; return the report after the figures of its cost are held."""
    usual = {"scheme": "masked", "data": "demo-small", "transport": "inprocess", "seed": 1, **settings}
    cheated = run(RunConfig(cheat=cheat, **usual), out=tmp_path / "cheat")
    honest = run(RunConfig(**usual), out=tmp_path / "honest")
    found = Audit(tmp_path / "cheat").cheat()
    for figure in ("train_mae", "test_rmse"):
        worse = cheated["accuracy"][figure] - honest["accuracy"][figure]
        assert found["cost"]["increase"][figure] == pytest.approx(worse) and found["cost"]["honest"][figure] > 0
    assert f"{found['cost']['increase']['test_rmse']:+.3f} against" in cost_words(found["cost"])
    return found


def rows_by(found, party):
    return [(row["from"], row["kind"], row["why"], row["times"]) for row in found["noticed"] if row["by"] == party]


@pytest.mark.parametrize("scheme", ["masked", "dynamic"])
def test_equivocation_reads_the_direction_of_a_user_and_nobody_can_notice(tmp_path, scheme):
    found = report_of(tmp_path, "recommender:equivocate", scheme=scheme, iterations=12)
    learned = found["learned"]
    assert learned["readings"] == 12 and learned["ratings"] == 0, "a direction, and no rating"
    assert learned["cosine"] > 1.5 * learned["chance_cosine"] and "u_i" in learned_words(learned)
    assert found["noticed"] == [] and list(noticed_words(found)) == []
    assert found["unnoticed"] == "no user sees what another user is sent"


def test_crafted_factors_read_ratings_through_the_sum_and_nobody_can_notice(tmp_path):
    found = report_of(tmp_path, "recommender:craft", iterations=40, epsilon=64.0)
    learned = found["learned"]
    assert learned["readings"] == 9 and learned["within_half_a_star"] > learned["chance"] + 0.4
    assert learned["correlation"] > 0.9 and "correlation" in learned_words(learned)
    assert found["cost"]["increase"]["train_mae"] > 0.05
    assert found["noticed"] == [] and "what every run begins with" in found["unnoticed"]


def test_crafted_factors_under_much_noise_read_no_better_than_chance(tmp_path):
    learned = report_of(tmp_path, "recommender:craft", iterations=20, epsilon=0.5)["learned"]
    assert learned["within_half_a_star"] < learned["chance"] + 0.1 and abs(learned["correlation"]) < 0.3


@pytest.mark.parametrize("cheat", ["third_party:lie", "user:poison"])
@pytest.mark.parametrize("scheme", ["masked", "dynamic"])
def test_a_lie_and_poison_teach_nothing_and_the_recommender_names_the_user_from_the_totals(tmp_path, cheat, scheme):
    """The two cannot be told apart by anybody, so both are reported with the same words."""
    found = report_of(tmp_path, cheat, scheme=scheme, iterations=3)
    assert found["learned"] == NOTHING and found["unnoticed"] is None
    assert rows_by(found, "recommender") == [
        ("user:0", "MaskedTotal", STRUCK, 1), (None, "MaskedTotal", BEYOND, 14)
    ]  # fmt: skip
    assert len(found["noticed"]) == 2 and found["cost"]["increase"]["train_mae"] > 0
    assert f"recommender, 1 MaskedTotal of user:0: {STRUCK}" in list(noticed_words(found))


def test_a_flood_is_barred_by_the_third_party_that_counts_its_frames(tmp_path):
    found = report_of(tmp_path, "user:flood", iterations=8)
    assert found["learned"] == NOTHING and found["unnoticed"] is None
    barred, *refused = rows_by(found, "third_party")
    assert barred == ("user:0", "MaskedGradient", "a flood: it was barred", 1)
    by_reason = {why: times for _, _, why, times in refused}
    assert by_reason["DUPLICATE"] > 1000 and set(by_reason) == {"DUPLICATE", "FLOOD"}
    assert by_reason["FLOOD"] < 20, "of what comes after, a few frames have a record"
    assert {user for user, _, _, _ in refused} == {"user:0"} and not rows_by(found, "recommender")
    assert found["cost"]["increase"]["train_mae"] > 0


def test_a_narrow_sum_reads_ratings_and_the_third_party_sees_the_frames_that_it_must_refuse(tmp_path):
    found = report_of(tmp_path, "recommender:narrow", iterations=12, epsilon=24.0)
    learned = found["learned"]
    assert learned["within_half_a_star"] > learned["chance"] + 0.3 and learned["cosine"] > 0.9
    assert rows_by(found, "third_party") == [("user", "MaskedGradient", "UNKNOWN_ITEM", 12 * 39)]
    assert found["cost"]["increase"]["test_rmse"] > 0.1 and found["unnoticed"] is None


def test_envelopes_far_from_their_law_take_noise_away_and_every_user_that_checks_rejects_them(tmp_path):
    found = report_of(tmp_path, "recommender:far-envelope", wire="paper", iterations=2)
    assert found["learned"]["noise_left"] < 0.2 and found["noticed"] == []
    assert found["checks"]["noticing"] == found["checks"]["users"] == 40
    assert any("40 of 40 users reject their envelopes" in words for words in noticed_words(found))


@pytest.mark.parametrize("wire", ["compact", "paper"])
def test_envelopes_of_each_user_alone_leave_no_laplace_noise_and_no_check_finds_them(tmp_path, wire):
    found = report_of(tmp_path, "recommender:own-envelope", wire=wire, iterations=2)
    learned = found["learned"]
    assert learned["noise_left"] == pytest.approx(1, abs=0.1) and learned["envelope_spread"] < 0.6
    assert learned["spread_chance"] == 1 and "spread by" in learned_words(learned)
    assert found["checks"]["noticing"] < 3 * found["checks"]["expected_by_chance"] + 3
    assert found["noticed"] == [] and "honest draws" in found["unnoticed"]


def test_a_contribution_of_nobody_costs_accuracy_and_nobody_notices(tmp_path):
    found = report_of(tmp_path, "third_party:add", iterations=20)
    assert found["learned"] == NOTHING and found["noticed"] == []
    assert found["cost"]["increase"]["train_mae"] > 0.05 and "not there" in found["does"]
    assert "as uniform as any other" in found["unnoticed"]


@pytest.mark.parametrize(
    ("cheat", "wire"),
    [("recommender:narrow", "compact"), ("recommender:own-envelope", "compact"), ("recommender:far-envelope", "paper"),
     ("third_party:add", "compact")],
)  # fmt: skip
def test_the_algebra_and_the_accounting_follow_roles_that_cheat(tmp_path, cheat, wire):
    settings = {"scheme": "masked", "data": "demo-small", "users": 12, "iterations": 3, "transport": "inprocess"}
    run(RunConfig(cheat=cheat, wire=wire, seed=1, **settings), out=tmp_path / "run")
    document = Audit(tmp_path / "run").ask(only=["inventory", "algebra", "accounting"])
    assert not document["unanswered"] and document["cheat"]["name"] == cheat
    missing = any(one["id"] == "missing-noise" for one in document["findings"] if one["beyond"])
    assert missing == (cheat in ("recommender:narrow", "recommender:far-envelope")), "noise that is not there is found"
