"""The publication after the last iteration: its receivers, its bytes, where they are shown, and its use by users."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.basics import small_run
from support.runs import play

from protocol.party.role import RECOMMENDER, user_name
from protocol.wire.framing import wire_size
from sim import api
from sim.plan.churn import ChurnPlan
from sim.plan.config import RunConfig
from sim.plan.plan import make_plan

SCHEMES = ("plain", "trusted", "direct", "masked", "dynamic")
USERS, ITEMS, DIM, T = 12, 9, 3, 4
SETTINGS = {"data": f"synthetic:{USERS}x{ITEMS}:.5", "dim": DIM, "iterations": T, "seed": 7, "transport": "inprocess"}


def made(folder: Path, scheme: str, **flags: Any) -> dict[str, Any]:
    return api.run(scheme=scheme, out=folder, **SETTINGS | flags)


def lines_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "iterations.jsonl").read_text("utf-8").splitlines()]


# ---- users that were never online


def rarely(seed: int) -> ChurnPlan:
    """Make a plan in which the users online at the start, half of all on average, stay, and no other user comes."""
    return ChurnPlan(USERS, 1e-12, 1e-12, bytes([seed]) * 32)


@pytest.mark.parametrize("wire", ["compact", "paper"])
def test_users_who_never_came_online_are_published_to_and_predict(wire):
    online = rarely(3).online(T)
    assert 3 < online.sum() < USERS - 3
    card, seats = small_run("dynamic", n_users=USERS, n_items=ITEMS, dim=DIM, iterations=T, wire=wire)
    driver = play(card, seats, events_for=rarely(3).events)
    assert driver.outcome.predictions.keys() == {user_name(user) for user in range(USERS)}
    published = driver.parties[RECOMMENDER].role.item_factors.astype(np.float32)
    for user in range(USERS):
        party = driver.parties[user_name(user)]
        assert party.done and len(party.result) == ITEMS
        assert np.array_equal(party.role.published, published)
        took_part = party.role.last_errors is not None
        assert took_part == bool(online[user])


@pytest.mark.parametrize("transport", ["inprocess", "tcp"])
def test_the_bytes_of_users_who_never_came_online_are_those_of_the_formula(tmp_path, transport):
    summary = made(tmp_path / "run", "dynamic", transport=transport, join=1e-12, leave=1e-12)
    assert summary["completed"] and summary["gone"] == []
    contributors = {line["contributors"] for line in lines_of(tmp_path / "run")[1:]}
    assert len(contributors) == 1 and 3 < contributors.pop() < USERS - 3
    told = api.bandwidth(tmp_path / "run")
    assert told["match"] and told["differences"] == []
    (row,) = (row for row in told["rows"] if row["kind"] == "Publication")
    assert row["messages"] == USERS and row["wire_bytes"] == row["predicted_bytes"] > 0


# ---- how many bytes, and where they are shown


def frame_bytes(rows: int, bits: int) -> int:
    """Add up array, kind, number, iteration (1 byte each), the data, its header (2; from 256 bytes on 3), the head."""
    size = rows * DIM * bits // 8
    return 4 + (2 if size < 256 else 3) + size + 32


@pytest.mark.parametrize("bits", [32, 16])
@pytest.mark.parametrize("publish", ["all", "rated"])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_what_is_published_has_the_bytes_of_the_formula(tmp_path, scheme, publish, bits):
    summary = made(tmp_path / "run", scheme, publish=publish, factor_bits=bits, test_fraction=0.0)
    told = api.bandwidth(tmp_path / "run")
    assert told["match"] and told["differences"] == []
    (row,) = (row for row in told["rows"] if row["kind"] == "Publication")
    assert (row["iteration"], row["sender"], row["receiver"], row["messages"]) == (T, "recommender", "user", USERS)
    rated = make_plan(RunConfig(scheme=scheme, **SETTINGS, test_fraction=0.0)).data.train.counts
    frames = [frame_bytes(ITEMS if publish == "all" else n, bits) for n in rated]
    assert row["payload_bytes"] == sum(frames)
    assert row["wire_bytes"] == row["predicted_bytes"] == sum(map(wire_size, frames))
    assert summary["bytes"]["publication"]["total"] == row["wire_bytes"]



@pytest.mark.parametrize("scheme", SCHEMES)
def test_published_bytes_are_a_row_of_the_end_and_in_no_figure_of_an_iteration(tmp_path, scheme):
    """Two runs that differ only in what is published have the same figures for every iteration."""
    everything, rated = (made(tmp_path / publish, scheme, publish=publish) for publish in ("all", "rated"))
    assert everything["bytes"]["total"] > rated["bytes"]["total"]
    for figure in ("per_iteration", "per_user_iteration"):
        assert everything["bytes"][figure] == rated["bytes"][figure]
    for one, other in zip(lines_of(tmp_path / "all"), lines_of(tmp_path / "rated"), strict=True):
        assert one["bytes"] == other["bytes"] and one["users"] == other["users"]
        assert not any(row[3] == "Publication" and row[0] == one["iteration"] for row in one["rows"])
    told = [api.bandwidth(tmp_path / publish) for publish in ("all", "rated")]
    for figure in ("matrix", "setup_matrix", "per_user_iteration"):
        assert told[0][figure] == told[1][figure]
    shown = [row for row in told[0]["kinds"] if row["kind"] == "Publication"]
    assert [(row["when"], row["messages"]) for row in shown] == [("end", USERS)]
    assert shown[0]["wire_bytes"] == everything["bytes"]["publication"]["total"]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_prediction_shows_published_bytes_at_the_end_only(scheme):
    flags = {name: value for name, value in SETTINGS.items() if name != "transport"}
    everything, rated = (api.predict_bandwidth(scheme=scheme, publish=publish, **flags) for publish in ("all", "rated"))
    assert everything["total"]["predicted_bytes"] > rated["total"]["predicted_bytes"]
    for figure in ("matrix", "setup_matrix", "per_user_iteration", "projection"):
        assert everything[figure] == rated[figure]
    shown = [row for row in everything["kinds"] if row["kind"] == "Publication"]
    assert [(row["when"], row["messages"]) for row in shown] == [("end", USERS)]


# ---- what users do with it


@pytest.mark.parametrize("bits", [32, 16])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_with_rated_items_alone_users_predict_those_and_as_with_all_items(scheme, bits):
    """The profile is fitted to the same rows, so the predictions are the same numbers."""
    ends = {}
    for publish in ("all", "rated"):
        card, seats = small_run(scheme, n_users=6, n_items=ITEMS, publish=publish, factor_bits=bits)
        ends[publish] = play(card, seats).parties
    for user in range(6):
        items = ends["all"][user_name(user)].role.inputs.items
        everything, own = (ends[publish][user_name(user)].result for publish in ("all", "rated"))
        assert (len(everything), len(own)) == (ITEMS, len(items)) and len(items) < ITEMS
        assert own.tobytes() == everything[items].tobytes()


def test_users_fit_to_factors_as_narrow_as_they_were_sent():
    card, seats = small_run("masked", n_users=6, n_items=ITEMS, factor_bits=16)
    parties = play(card, seats).parties
    sent = parties[RECOMMENDER].role.item_factors.astype(np.float16).astype(np.float64)
    for user in range(6):
        assert parties[user_name(user)].role.published.tobytes() == sent.tobytes()
