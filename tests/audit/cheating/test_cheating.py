"""The audit of runs in which a party cheats: learned, cost, noticed; the cheat is recorded and acts in every driver."""

from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from sim.audit.audit import Audit
from sim.audit.families.masked.cheat_gains import best_constant, chance_cosine, read_ratings
from sim.audit.families.masked.envelope_check import p_value
from sim.cli.app import app
from sim.folder.folder import read_run
from sim.plan.config import RunConfig
from sim.run.run import run
from sim.tables.cheat_tables import cost_words, learned_words, noticed_words
from sim.views.verify import verify


def cheated(tmp_path, cheat, **settings):
    usual = {"scheme": "masked", "data": "demo-small", "transport": "inprocess"}
    summary = run(RunConfig(cheat=cheat, seed=1, **usual | settings), out=tmp_path / "run")
    return summary, Audit(tmp_path / "run")


def test_an_isolating_recommender_reads_ratings_and_nobody_notices(tmp_path):
    summary, audit = cheated(tmp_path, "recommender:isolate", epsilon=16.0, iterations=30)
    assert summary["cheat"]["name"] == "recommender:isolate"
    assert "A party cheats: recommender:isolate." in summary["notes"]
    assert summary["cheat"]["cost"]["increase"]["test_rmse"] > 0.1
    assert read_run(tmp_path / "run")[1].cheat == "recommender:isolate"
    found = audit.cheat()
    learned = found["learned"]
    assert learned["within_half_a_star"] > learned["chance"] + 0.2 and learned["cosine"] > 0.9
    assert found["noticed"] == [] and "never compare floors" in found["unnoticed"]
    assert "chance" in learned_words(learned) and "+" in cost_words(found["cost"])
    assert verify(tmp_path / "run")["verified"]


def test_a_splitting_third_party_is_seen_by_the_recommender_that_refuses_its_second_total(tmp_path):
    _, audit = cheated(tmp_path, "third_party:split", epsilon=24.0, iterations=12)
    found = audit.cheat()
    assert found["learned"]["within_half_a_star"] > found["learned"]["chance"] + 0.3
    row = {"by": "recommender", "from": "third_party", "kind": "MaskedTotal", "why": "WRONG_ITERATION", "times": 11}
    assert found["noticed"] == [row]
    assert "recommender, 11 MaskedTotal of third_party: WRONG_ITERATION" in list(noticed_words(found))


def test_faint_envelopes_are_found_by_the_check_of_users(tmp_path):
    _, audit = cheated(tmp_path, "recommender:envelope", iterations=2)
    found = audit.cheat()
    assert found["learned"]["mean_envelope"] < 0.6 and found["noticed"] == []
    assert found["checks"]["noticing"] > 4 * found["checks"]["expected_by_chance"]


def test_the_other_questions_are_asked_of_a_run_in_which_a_party_cheats(tmp_path):
    _, audit = cheated(tmp_path, "user:sybil:3", iterations=3, epsilon=64.0)
    document = audit.ask(only=["inventory", "algebra", "attacks", "accounting"])
    assert document["cheat"]["learned"]["sums_of_one_honest_user"] > 0 and not document["unanswered"]
    assert Audit(tmp_path / "run").ask(only=["inventory"])["cheat"]["name"] == "user:sybil:3"


def test_processes_cheat_as_the_roles_in_one_process_do(tmp_path):
    """The second run has a process for every party; the views of both hold the same cheat."""
    settings = {"iterations": 3, "users": 5, "dim": 3}
    one, _ = cheated(tmp_path, "recommender:craft", **settings)
    config = RunConfig(
        scheme="masked", data="demo-small", cheat="recommender:craft", seed=1, transport="ipc", users_per_process=5,
        **settings,
    )  # fmt: skip
    other = run(config, out=tmp_path / "processes")
    assert other["completed"] and other["item_factors_sha256"] == one["item_factors_sha256"]
    assert verify(tmp_path / "processes")["verified"]


def test_a_cheat_of_another_scheme_ends_the_command_with_a_sentence(tmp_path):
    made = CliRunner().invoke(app, ["run", "--scheme", "plain", "--cheat", "user:flood", "--out", str(tmp_path / "x")])
    assert made.exit_code == 2 and not (tmp_path / "x").exists()
    asked = CliRunner().invoke(app, ["run", "--scheme", "masked", "--cheat", "user:floods", "--json"])
    assert asked.exit_code == 2


def test_an_honest_run_has_no_cheat(tmp_path):
    summary, audit = cheated(tmp_path, None, iterations=2)
    assert summary["cheat"] is None and audit.cheat() is None
    assert "cheat" not in json.dumps(summary["notes"])


def test_ratings_are_read_from_a_matrix_of_rank_one():
    draw = np.random.default_rng(1)
    u = draw.normal(size=5)
    u /= np.linalg.norm(u)
    ratings, factors = draw.integers(1, 6, 12).astype(float), draw.normal(size=(12, 5))
    gradients = -2 * (ratings - factors @ u)[:, None] * u
    direction, read = read_ratings(gradients, factors, (1.0, 5.0))
    assert read == pytest.approx(ratings) and abs(direction @ u) == pytest.approx(1)


def test_chance_is_what_a_guesser_without_the_cheat_reaches():
    assert best_constant(np.array([1.0, 2.0, 2.0, 5.0])) == 0.5
    draw = np.random.default_rng(2).normal(size=(20_000, 4))
    cosines = np.abs(draw[:, 0]) / np.linalg.norm(draw, axis=1)
    assert chance_cosine(4) == pytest.approx(cosines.mean(), abs=0.01)


def test_the_check_of_envelopes_accepts_their_law_and_no_other():
    draw = np.random.default_rng(3)
    assert p_value(draw.exponential(size=(50, 10))) > 0.05
    assert p_value(0.5 * draw.exponential(size=(50, 10))) < 1e-6

