"""`keyhole bandwidth RUN`: counted and predicted bytes of finished runs, and every form of their figures."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from protocol.party.role import role_of
from protocol.party.view import SENT, read_records
from protocol.wire.framing import HANDSHAKE, wire_size
from sim import api
from sim.bandwidth.bandwidth import course_of
from sim.folder.byte_records import Ledger
from sim.folder.traffic import COLUMNS, mark_end, spread
from sim.plan.config import RunConfig
from sim.plan.plan import make_plan
from sim.run.run import run as make_run
from tests.sim.cli.test_cli import keyhole, refused

DATA = "synthetic:12x10:.4"
CHURN = {"join": 0.5, "leave": 0.3}
RUNS: dict[str, dict[str, Any]] = {
    "plain": {"scheme": "plain"},
    "trusted": {"scheme": "trusted"},
    "direct": {"scheme": "direct"},
    "masked": {"scheme": "masked"},
    "masked, paper": {"scheme": "masked", "wire": "paper"},
    "masked, below the floor": {"scheme": "masked", "options": {"min_contributors": 5}},
    "dynamic, everyone stays": {"join": 0.0, "leave": 0.0},
    "dynamic": CHURN,
    "dynamic, paper": {**CHURN, "wire": "paper"},
    "dynamic, drawn": {**CHURN, "online": 4},
    "dynamic, long": {**CHURN, "iterations": 140},  # numbers of two bytes
}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Give a function that makes one of `RUNS` once and returns its folder."""
    folders: dict[str, Path] = {}

    def make(name: str) -> Path:
        if name not in folders:
            folders[name] = tmp_path_factory.mktemp("runs") / "run"
            settings = {"data": DATA, "dim": 2, "iterations": 6, "seed": 1, "transport": "inprocess", **RUNS[name]}
            assert make_run(RunConfig(**settings), out=folders[name])["completed"]
        return folders[name]

    return make


def printed(*arguments: object) -> Any:
    result = keyhole("bandwidth", *arguments, "--json")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def from_views(folder: Path) -> Counter[tuple[int, str, str, str]]:
    """Count the wire bytes of every frame that a view records as sent, by iteration, roles and kind."""
    found: Counter[tuple[int, str, str, str]] = Counter()
    for path in folder.rglob("*.view"):
        with path.open("rb") as stream:
            for record in read_records(stream):
                if record.type == SENT:
                    to, kind, iteration, size, _ = record.fields
                    found[iteration, role_of(path.stem.replace("-", ":")), role_of(to), kind] += wire_size(size)
    return found


@pytest.mark.parametrize("name", RUNS)
def test_every_row_is_what_the_formula_gives_and_what_the_views_hold(made, name):
    document = api.bandwidth(made(name))
    assert document["match"] is True and document["differences"] == []
    rows = document["rows"]
    assert all(row["wire_bytes"] == row["predicted_bytes"] > 0 for row in rows)
    counted = {tuple(row[column] for column in COLUMNS[:4]): row["wire_bytes"] for row in rows}
    assert {key: count for key, count in counted.items() if key[3] != HANDSHAKE} == from_views(made(name))
    total = document["total"]
    assert total["wire_bytes"] == total["predicted_bytes"] == sum(counted.values())
    assert total["kernel_bytes"] is None and document["kernel_note"]


def test_a_handshake_is_567_bytes_there_and_301_back_for_every_client_and_server(made):
    rows = [row for row in api.bandwidth(made("masked"))["rows"] if row["kind"] == HANDSHAKE]
    found = {(row["sender"], row["receiver"]): (row["messages"], row["wire_bytes"]) for row in rows}
    assert found == {
        ("user", "recommender"): (12, 12 * 567),
        ("recommender", "user"): (12, 12 * 301),
        ("user", "third_party"): (12, 12 * 567),
        ("third_party", "user"): (12, 12 * 301),
        ("recommender", "third_party"): (1, 567),
        ("third_party", "recommender"): (1, 301),
    }
    assert {row["iteration"] for row in rows} == {-1} and {row["payload_bytes"] for row in rows} == {0}


@pytest.mark.parametrize("by", ["iteration", "edge", "kind", "party"])
def test_every_grouping_adds_up_to_the_same(made, by):
    folder = made("dynamic")
    whole, grouped = printed(folder), printed(folder, "--by", by)
    assert grouped["total"] == whole["total"] and grouped["by"] == by
    for figure in COLUMNS[4:]:
        assert sum(row[figure] for row in grouped["rows"]) == sum(row[figure] for row in whole["rows"])
    assert all(row["wire_bytes"] == row["predicted_bytes"] for row in grouped["rows"])
    labels = [tuple(row[column] for column in COLUMNS[:4]) for row in grouped["rows"]]
    assert len(set(labels)) == len(labels) < len(whole["rows"]) or by == "party"
    null = {"iteration": {1, 2, 3}, "edge": {3}, "kind": set(), "party": set()}[by]
    assert all({place for place in (1, 2, 3) if label[place] is None} == null for label in labels)
    first = {label[0] for label in labels}
    everything = {"iteration": {-1, 0, 1, 2, 3, 4, 5, 6}}
    assert first == everything.get(by, {-1, None, 6}), "set-up, all iterations together, end"


def test_by_party_names_every_user_in_the_order_of_their_numbers(made):
    rows = printed(made("dynamic"), "--by", "party")["rows"]
    users = [int(row["sender"][5:]) for row in rows if row["iteration"] == -1 and row["sender"].startswith("user:")]
    assert users == sorted(users) and max(users) >= 10
    users = {row[end] for row in rows for end in ("sender", "receiver")} - {"recommender", "third_party"}
    assert users == {f"user:{number}" for number in range(12)}


def test_comma_separated_values_are_the_same_rows(made):
    folder = made("dynamic")
    for by in ((), ("--by", "edge")):
        result = keyhole("bandwidth", folder, *by, "--csv")
        rows = list(csv.DictReader(io.StringIO(result.stdout)))
        wanted = printed(folder, *by)["rows"]
        assert rows == [{name: "" if row[name] is None else str(row[name]) for name in COLUMNS} for row in wanted]


def test_the_matrix_is_the_mean_of_an_iteration(made):
    document = api.bandwidth(made("dynamic"))
    for sender, receivers in document["matrix"].items():
        for receiver, mean in receivers.items():
            own = [row for row in document["rows"] if (row["sender"], row["receiver"]) == (sender, receiver)]
            assert mean == pytest.approx(sum(row["wire_bytes"] for row in own if 0 <= row["iteration"] < 6) / 6)
            assert document["setup_matrix"][sender][receiver] == sum(
                row["wire_bytes"] for row in own if row["iteration"] == -1
            )


def test_a_scheme_without_iterations_on_the_wire_has_no_matrix_of_them(made):
    document = api.bandwidth(made("trusted"))
    assert document["matrix"] is None and document["paper"] is None
    assert document["setup_matrix"]["user"]["recommender"] > 0
    assert set(document["per_user_iteration"].values()) == {None}


def test_medians_and_maxima_are_over_users_and_iterations(made):
    """Every user of this data has 3 items to train on, so all of them have the same bytes in an iteration."""
    document = api.bandwidth(made("masked"))
    (down,) = {row["wire_bytes"] / row["messages"] for row in document["rows"] if row["kind"] == "ItemFactors"}
    user = document["per_user_iteration"]
    assert user["down_median"] == user["down_max"] == down
    assert user["down_mean"] == down
    assert spread(Counter({10: 1, 20: 1})) == {"mean": 15.0, "median": 15.0, "max": 20}
    assert spread(Counter({10: 3, 20: 1, 90: 1})) == {"mean": 28.0, "median": 10.0, "max": 90}


def test_the_papers_figures_stand_beside_both_wire_forms(made):
    """20 items of 50 factors of 4 bytes are 4000 bytes a vector: three of them in the paper form of `masked`."""
    down, up, third = api.bandwidth(made("masked"))["paper"]["rows"]
    assert [row["paper"] for row in (down, up, third)] == [12_000, 5_000, 3_000_000]
    assert 12_000 < down["wire_paper"] < 12_300 and 16_000 < _paper(made("dynamic"))[0]["wire_paper"] < 16_300
    assert 4_000 < down["wire_compact"] <= 4_400
    assert 4_000 < up["wire_compact"] <= 4_300 and up["wire_compact"] < up["wire_paper"] < 4_400
    assert 2_000_000 < third["wire_compact"] <= 2_100_000
    assert third["wire_paper"] - third["wire_compact"] > 2 * 20_000  # identifiers and counts of 10,000 items
    assert all(row["why"].endswith(".") for row in (down, up, third))


def _paper(folder: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = api.bandwidth(folder)["paper"]["rows"]
    return rows


def test_people_read_whether_all_is_equal_and_every_table(made):
    text = keyhole("bandwidth", made("dynamic")).stdout
    equal = "Count and formula are equal, row by row."
    for words in (equal, "MaskedGradient", "One user in one iteration", "--wire paper"):
        assert words in text
    only = keyhole("bandwidth", made("dynamic"), "--by", "edge").stdout
    assert "iterations" in only and "user → third_party" in only
    assert "--wire paper" not in only and "MaskedGradient" not in only


@pytest.mark.parametrize("wire", ["compact", "paper"])
def test_the_end_is_called_so_by_party_as_well(made, wire):
    folder = made("dynamic")
    iterations = api.bandwidth(folder)["iterations"]
    by_kind = api.bandwidth(folder, by="kind", wire=wire)["rows"]
    by_party = api.bandwidth(folder, by="party", wire=wire)["rows"]
    ends = {row["kind"] for row in by_kind if row["iteration"] == iterations}
    assert ends == {row["kind"] for row in by_party if row["iteration"] == iterations} == {"Finish", "Publication"}
    assert sum(row["predicted_bytes"] for row in by_kind) == sum(row["predicted_bytes"] for row in by_party)
    printed = keyhole("bandwidth", folder, "--wire", wire, "--user", "user:0").stdout.splitlines()
    told = {line.split()[0] for line in printed if "Finish" in line or "Publication" in line}
    assert told == {"end"}


def test_a_kind_that_is_also_sent_before_the_end_is_not_moved_there():
    rows = [dict.fromkeys(COLUMNS, 0) | {"sender": "recommender", "kind": kind} for kind in "ABC"]
    by_role = [{**row, "receiver": "user", "iteration": t} for row in rows[:2] for t in (3, 4)]
    by_role.append({**rows[2], "receiver": "user", "iteration": 4})
    marked = mark_end([{**row, "receiver": "user:1"} for row in rows], by_role, 4)
    assert [row["iteration"] for row in marked] == [0, 0, 4]


def test_a_run_over_tcp_is_what_the_kernel_counted(tmp_path):
    settings: dict[str, Any] = {"data": "synthetic:6x5:.5", "dim": 2, "iterations": 3, "seed": 1, **CHURN}
    assert make_run(RunConfig(**settings), out=tmp_path / "run")["completed"]
    document = api.bandwidth(tmp_path / "run")
    assert document["match"] is True and document["kernel_note"] is None
    assert document["total"]["kernel_bytes"] == document["total"]["wire_bytes"] == document["total"]["predicted_bytes"]
    told = " ".join(keyhole("bandwidth", tmp_path / "run").stdout.split())
    assert "and the kernel agrees on every connection" in told and document["kernel_match"] is True
    path = tmp_path / "run" / "bandwidth.json"
    totals = json.loads(path.read_text())
    # a frame that is counted in the rows but never left
    (met,) = (row for row in totals["kernel"] if row[:2] == ["recommender", "user:1"])
    met[4] -= 45
    totals["apart"].append(["undelivered", "recommender", "user:1", 1, 10, 45])
    path.write_text(json.dumps(totals))
    summary = tmp_path / "run" / "summary.json"
    whole = summary.read_text()
    less = json.loads(whole)
    less["bytes"]["total"] -= 45
    summary.write_text(json.dumps(less))
    document = api.bandwidth(tmp_path / "run")
    assert document["match"] is True and document["total"]["undelivered_bytes"] == 45
    assert "45 of them did not leave" in " ".join(keyhole("bandwidth", tmp_path / "run").stdout.split())
    summary.write_text(whole)
    met[4] += 45
    totals["apart"].pop()
    totals["kernel"][0][3] += 1
    path.write_text(json.dumps(totals))
    document = api.bandwidth(tmp_path / "run")
    assert document["match"] is False and len(document["differences"]) == 2  # the connection, and the sum
    assert document["kernel_match"] is False
    assert document["total"]["kernel_bytes"] == document["total"]["wire_bytes"] + 1


def test_lost_frames_and_ended_processes_are_apart_and_change_no_row(tmp_path):
    settings: dict[str, Any] = {"data": DATA, "dim": 2, "iterations": 6, "seed": 1, "transport": "inprocess", **CHURN}
    assert make_run(RunConfig(**settings, faults="1:.1"), out=tmp_path / "run")["completed"]
    document = api.bandwidth(tmp_path / "run")
    assert document["match"] is True and document["total"]["apart_bytes"] > 0
    assert {row["what"] for row in document["apart"]} & {"resend", "again"}
    assert document["total"]["apart_bytes"] == sum(
        row["wire_bytes"] for row in document["apart"] if row["what"] != "undelivered"
    )
    assert "Apart from the protocol's own course" in keyhole("bandwidth", tmp_path / "run").stdout


def test_who_is_invited_and_never_in_time_has_greeted_the_third_party_if_it_is_there_at_the_end():
    plan = make_plan(RunConfig(scheme="masked", data="synthetic:4x5:.6", dim=2, iterations=2, seed=1))
    turn = {"invited": "0-2", "contributors": "0"}
    ledger = Ledger(turns=[turn, turn], end={"finished": "0,2-3"})
    course = course_of(plan.card.scheme, plan.card.params, plan.data.train, ledger)
    assert course.greeted.tolist() == [1, 0, 1, 0]
    assert [turn.invited.tolist() for turn in course.turns] == [[1, 1, 1, 0]] * 2
    assert [turn.contributors.tolist() for turn in course.turns] == [[1, 0, 0, 0]] * 2  # it may be read twice


def test_two_forms_at_once_are_refused(made):
    refused(keyhole("bandwidth", made("plain"), "--json", "--csv"), 2, "--json", "--csv")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--by", "colour"], ["--by", "iteration, edge, kind, party"]),
        (["--scheme", "masked"], ["'plain'", "'masked'", "--scheme"]),
        (["--dim", "10"], ["--predict"]),  # the default
        (["--iteration-seconds", "3"], ["--predict"]),
        (["--link", "wifi=1/1/1"], ["--predict"]),
        (["--predict"], ["--predict", "leave out"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_flags_that_do_not_belong_to_a_run_are_refused(made, arguments, words):
    refused(keyhole("bandwidth", made("plain"), *arguments), 2, *words)


def test_without_a_run_or_a_prediction_there_is_nothing_to_show():
    refused(keyhole("bandwidth"), 2, "--predict")
