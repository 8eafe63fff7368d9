"""A crowd: the data set of the paper's size, and nothing in a run's books grows with users that are away."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from actors.launch.reports import Closed
from actors.metering import meter
from actors.metering.meter import Meter
from actors.metering.recorder import Figures
from protocol.arithmetic.factors import as_sent
from protocol.errors import BadInput
from protocol.party.view import Broken
from sim.api import datasets
from sim.bandwidth import kernel_check
from sim.bandwidth.bandwidth import bandwidth
from sim.data import generate
from sim.data.ratings import load, split
from sim.plan.config import RunConfig
from sim.plan.plan import make_plan
from sim.run.baseline import Baseline, plain_accuracy, start_baseline
from sim.run.run import run

NETFLIX = "netflix-shaped"


@pytest.fixture(scope="module")
def ratings():
    return load(NETFLIX)


# ---- the data


def test_the_set_is_the_same_everywhere(ratings):
    columns = (ratings.users.astype("<i8"), ratings.items.astype("<i8"), ratings.values.astype("<f8"))
    digest = hashlib.sha256(b"".join(column.tobytes() for column in columns)).hexdigest()[:16]
    assert digest == "6e62df2aa56b430d"


def test_it_has_the_size_of_the_papers_sample(ratings):
    assert (ratings.n_users, ratings.n_items, len(ratings)) == (191_668, 100, generate.NETFLIX_RATINGS)
    assert len(ratings) == pytest.approx(100_480_507 / 17_770 * 100, rel=0.01)  # ratings of 100 movies of the prize
    per_user, per_item = np.bincount(ratings.users), np.bincount(ratings.items)
    assert per_user.min() == 1 and 20 < per_user.max() <= 100
    assert per_item.min() > 500 and per_item.max() > 20 * np.median(per_item)
    assert set(ratings.values) == {1.0, 2.0, 3.0, 4.0, 5.0}


def test_the_law_of_ratings_leaves_as_many_users_out_as_the_paper():
    """The paper's sample has 191,668 of the 480,189 users of the prize: the others rated none of the 100 movies."""
    mean, shape = generate.NETFLIX_MEAN, generate.NETFLIX_SHAPE
    assert mean == pytest.approx(100_480_507 / 480_189 / 17_770 * 100, rel=0.001)
    assert 1 - (1 + mean / shape) ** -shape == pytest.approx(191_668 / 480_189, rel=0.01)
    law = generate._ratings_law(mean, shape, 400)
    assert law @ np.arange(1, 401) / law.sum() == pytest.approx(mean * 480_189 / 191_668, rel=0.01)


def test_it_is_listed_as_generated_and_its_first_users_are_a_part(ratings):
    (row,) = [row for row in datasets() if row["name"] == NETFLIX]
    assert (row["users"], row["items"], row["ratings"]) == (191_668, 100, len(ratings)) and row["where"] == "built in"
    assert row["title"].startswith("generated")
    plan = make_plan(RunConfig(data=NETFLIX, users=300, online=20, seed=1))
    first = split(ratings.first_users(300), 0.0, bytes(32))
    assert plan.shape.n_users == 300 and plan.shape.n_items == 100
    whole = [np.sort(np.concatenate([own.items, own.held_out_items])).tolist() for own in plan.data]
    assert whole == [own.items.tolist() for own in first]


def test_what_users_hold_is_cut_out_when_it_is_asked_for(ratings):
    dealt = split(ratings.first_users(50), 0.2, bytes(32))
    assert len(dealt) == 50 == len(list(dealt)) and dealt[-1].items.tolist() == dealt[49].items.tolist()
    assert [own.items.tolist() for own in dealt[3:5]] == [dealt[3].items.tolist(), dealt[4].items.tolist()]
    assert all(column.base is None for column in (dealt[3].items, dealt[3].values, dealt[3].held_out_values))
    with pytest.raises(IndexError):
        dealt[50]


PLAN = """
import re, time
from pathlib import Path
from sim.plan.config import RunConfig
from sim.plan.plan import make_plan
from sim.run.run import make_roster
started = time.perf_counter()
plan = make_plan(RunConfig(data="netflix-shaped", online=1000, dim=50, views="servers", seed=1))
plan.view_bytes()
planned = time.perf_counter() - started
secrets, roster = make_roster(plan)
assert len(secrets) == len(roster.public_keys) == 191_670
peak = re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())  # ru_maxrss has the parent's in it
print(planned, time.perf_counter() - started, int(peak[1]) >> 10)
"""


@pytest.mark.slow
def test_a_plan_of_that_size_is_quick_and_lean():
    done = subprocess.run([sys.executable, "-c", PLAN], capture_output=True, text=True, check=True)
    planned, in_all, megabytes = map(float, done.stdout.split())
    assert planned < 10 and in_all < 60 and megabytes < 1000


# ---- the unprotected baseline, over the users that take part


def masked_step(baseline: Baseline, active: Any) -> tuple[Any, Any]:
    """Compute U and V after a step over all ratings, with error 0 for every user outside `active`."""
    params, users = baseline.params, baseline.train.owners()
    items, own = baseline.train.items.astype(np.int64), baseline.user_factors
    seen = as_sent(baseline.item_factors, params.factor_bits).astype(np.float64)
    errors = baseline.train.values - np.einsum("nd,nd->n", own[users], seen[items])
    limit = 3 * params.rating_span
    errors = np.clip(errors, -limit, limit) * active[users]
    table = csr_array((errors, items, baseline.train.starts), shape=(params.n_users, params.n_items))
    raters = np.maximum(np.bincount(items, minlength=params.n_items), 1)[:, None]
    there = np.bincount(items[active[users]], minlength=params.n_items) > 0
    slope = -2 * (table.T @ own) / raters
    slope += 2 * params.item_regularisation * baseline.item_factors
    moved_items = baseline.item_factors - params.learning_rate * slope
    counts = np.maximum(baseline.train.counts, 1)[:, None]
    moved = own - params.learning_rate * (-2 * (table @ seen) / counts + 2 * params.user_regularisation * own)
    moved = moved / np.maximum(1.0, np.linalg.norm(moved, axis=1))[:, None]
    return np.where(active[:, None], moved, own), np.where(there[:, None], moved_items, baseline.item_factors)


@pytest.mark.parametrize("data", ["demo-small", "synthetic:200x30:.1"])
def test_a_step_of_some_users_is_that_of_all_with_the_others_left_out_to_the_last_bit(data):
    plan = make_plan(RunConfig(scheme="masked", data=data, seed=3, transport="inprocess"))
    baseline = start_baseline(plan.card.params, plan.data, plan.run_seed)
    random = np.random.default_rng(1)
    for share in (0.5, 0.05, 0.5, 1.0):
        active = random.random(plan.shape.n_users) < share
        users, items = masked_step(baseline, active)
        one_less = np.flatnonzero(active)[1:]
        missing = replace(baseline, user_factors=baseline.user_factors.copy())
        missing.iterate(one_less)
        baseline.iterate(np.flatnonzero(active))
        assert baseline.user_factors.tobytes() == users.tobytes()
        assert baseline.item_factors.tobytes() == items.tobytes() != missing.item_factors.tobytes()
    everyone = replace(baseline, user_factors=baseline.user_factors.copy())
    baseline.iterate()
    everyone.iterate(np.arange(plan.shape.n_users))
    assert everyone.user_factors.tobytes() == baseline.user_factors.tobytes()


def test_the_baseline_with_churn_is_what_it_was_before_it_was_made_for_crowds():
    plan = make_plan(RunConfig(scheme="dynamic", data="demo-small", iterations=50, online=7, seed=3))
    found = plain_accuracy(plan.card.params, plan.data, plan.run_seed, plan.churn())
    last = found.iterate
    measured = last.train_mae, last.train_rmse, last.test_mae, last.test_rmse
    assert measured == pytest.approx((2.424706095221855, 2.6235656875705957, 2.4952402711771624, 2.686340575265393))


@pytest.mark.slow
def test_the_baseline_of_the_papers_size():
    plan = make_plan(RunConfig(data=NETFLIX, online=1000, dim=50, iterations=100, views="none", seed=1))
    found = plain_accuracy(plan.card.params, plan.data, plan.run_seed, plan.churn())
    assert found.iterate.train_mae == pytest.approx(2.620678839665666)


# ---- books


def a_run(folder: Path, **flags: Any) -> dict[str, Any]:
    settings = {"data": "synthetic:30x12:.3", "iterations": 4, "seed": 2, "transport": "inprocess"} | flags
    return run(RunConfig(**settings), out=folder, force=True)


def test_of_a_crowd_no_single_user_is_counted_and_the_files_say_so(tmp_path, monkeypatch):
    exact = a_run(tmp_path / "exact")
    by_party = bandwidth(tmp_path / "exact", "party")
    assert by_party["match"] and by_party["parties_note"] is None
    monkeypatch.setattr(meter, "MOST_PARTIES", 29)
    crowd = a_run(tmp_path / "crowd")
    assert crowd["bytes"] == exact["bytes"] and crowd["item_factors_sha256"] == exact["item_factors_sha256"]
    assert crowd["predictions_sha256"] == exact["predictions_sha256"] is not None
    document = json.loads((tmp_path / "crowd" / "bandwidth.json").read_text("utf-8"))
    assert "added up" in document["parties_note"]
    names = {name for row in document["parties"] for name in row[1:3]}
    assert names == {"user", "recommender", "third_party"}
    found = bandwidth(tmp_path / "crowd", "edge")
    assert found["match"] and found["rows"] == bandwidth(tmp_path / "exact", "edge")["rows"]
    with pytest.raises(BadInput, match=r"up to 20,000 users.*--by iteration, edge or kind"):
        bandwidth(tmp_path / "crowd", "party")


def test_a_crowds_books_are_still_held_against_each_other(tmp_path, monkeypatch):
    monkeypatch.setattr(meter, "MOST_PARTIES", 29)
    a_run(tmp_path / "run")
    path = tmp_path / "run" / "bandwidth.json"
    good = json.loads(path.read_text("utf-8"))

    def changed(**changes: Any) -> None:
        path.write_text(json.dumps({**good, **changes}), "utf-8")

    first, *others = good["parties"]
    for parties in ([[*first[:-1], first[-1] + 1], *others], others, [[*first[:1], "user:3", *first[2:]], *others]):
        changed(parties=parties)
        with pytest.raises(Broken, match=r"bandwidth\.json"):
            bandwidth(tmp_path / "run")
    changed(parties_note=None)  # then "user" names no party
    with pytest.raises(Broken, match="'user' is not a party"):
        bandwidth(tmp_path / "run")
    changed(parties_note=7)
    with pytest.raises(Broken, match=r"`\$\.parties_note` must be a text or null, not a whole number"):
        bandwidth(tmp_path / "run")
    changed()
    assert bandwidth(tmp_path / "run")["match"]


def test_the_kernels_counts_of_a_crowd_are_compared_as_sums(monkeypatch):
    monkeypatch.setattr(meter, "MOST_PARTIES", 1)
    reports: list[Any] = []
    figures = Figures("recommender", (), -2, reports.append, None, None, n_users=2)
    counted = figures._meter
    assert isinstance(counted, Meter)
    for user in ("user:0", "user:1"):
        counted.greet(user)
        counted.received(-1, user, "Join", 10)
    counted.take(-1)
    counts = [["", 0, 0, 0], ["user:0", 1, 0, 0], ["user:1", 1, 0, 0]]
    joins = [sum(row[6] for row in counted.parties() if row[2] == "recommender")]
    answers = [sum(row[6] for row in counted.parties() if row[1] == "recommender")]
    counts[1][2:] = [joins[0] // 2, answers[0] // 2]
    counts[2][2:] = [joins[0] - joins[0] // 2, answers[0] - answers[0] // 2]
    figures.closed({"user:0": 1, "user:1": 1}, counts, None)
    (report,) = [report for report in reports if isinstance(report, Closed)]
    assert report.by_party is False and [row[0] for row in report.kernel or ()] == ["", "user"]
    document = report._asdict() | {"kernel": [["recommender", *row] for row in report.kernel or ()]}
    assert kernel_check.compare(document) == (joins[0] + answers[0], [])
    document["kernel"][1][3] += 1
    assert len(kernel_check.compare(document)[1]) == 1


def test_lines_do_not_grow_with_users_who_are_away(tmp_path):
    def line_of(users: int) -> int:
        flags = {"data": f"synthetic:{users}x12:.3", "online": 5, "join": 0.0001, "leave": 0.0001, "views": "none"}
        a_run(tmp_path / "run", scheme="dynamic", **flags)
        lines = (tmp_path / "run" / "iterations.jsonl").read_text("utf-8").splitlines()
        return len(lines[-1])

    assert line_of(800) < 2 * line_of(40)
