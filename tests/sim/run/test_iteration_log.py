"""`iterations.jsonl` and `bandwidth.json`: the contents of a line, whichever driver wrote it, and the other figures."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest
from support.meter import read_bandwidth, rows_in, sum_rows

from actors.metering.meter import Tally
from actors.metering.outcome import IterationDone, Outcome
from actors.own_scheme import load_scheme
from actors.pipes import Mailbox
from protocol.schemes.factorization.dynamic import DynamicThirdParty
from protocol.schemes.factorization.dynamic_recommender import DynamicRecommender
from protocol.wire.framing import Traffic
from sim.folder.folder import write_bandwidth
from sim.plan.config import RunConfig
from sim.run.run import resume, run
from sim.run.summary import IterationLog, _bytes, bandwidth_document

SMALL = {"data": "synthetic:12x9:.5", "dim": 3, "iterations": 4, "seed": 7}
OWN_SCHEME = '''
from protocol.party.role import RECOMMENDER, THIRD_PARTY
from protocol.schemes.factorization.masked import Masked


class Telling(Masked):
    """Its servers say which iteration has ended."""

    name = "telling"

    def make_role(self, party, setting, tape, inputs):
        role = super().make_role(party, setting, tape, inputs)
        if party in (RECOMMENDER, THIRD_PARTY):
            role.facts = lambda: {f"{party} is in": role.iteration}
        return role
'''


def lines_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "iterations.jsonl").read_text().splitlines()]


def done(iteration: int, users: dict[str, list[int]], **changes: Any) -> IterationDone:
    rows = [Traffic(iteration, "recommender", "user", "Factors", 2, 100, 170)]
    late = [Traffic(-1, "user", "third_party", "Hello", 1, 104, 139)] if iteration == 0 else []
    return IterationDone(iteration, 1.5, 5, 3, Tally(late + rows, users), {"invited": "0-4"})


def test_a_line_has_the_rows_with_their_own_iterations_and_a_histogram_of_users(tmp_path):
    log = IterationLog(tmp_path)
    log.add(done(0, {"user:0": [100, 30], "user:1": [100, 40], "user:2": [70, 0]}))
    log.close()
    assert lines_of(tmp_path) == [
        {
            "iteration": 0,
            "seconds": 1.5,
            "online": 5,
            "contributors": 3,
            "dropouts": 2,
            "train_mae": None,
            "bytes": 170,  # of this iteration, without what came late
            "course": {"invited": "0-4"},
            "rows": [
                [-1, "user", "third_party", "Hello", 1, 104, 139],
                [0, "recommender", "user", "Factors", 2, 100, 170],
            ],
            "users": {"down": [[70, 1], [100, 2]], "up": [[30, 1], [40, 1]]},
        }
    ]


def test_in_the_set_up_nobody_contributes_and_it_is_no_iteration(tmp_path):
    log = IterationLog(tmp_path)
    log.add(done(-1, {"user:0": [301, 567]}))
    log.close()
    [line] = lines_of(tmp_path)
    assert [line[key] for key in ("online", "contributors", "dropouts", "train_mae")] == [None] * 4
    assert (line["seconds"], line["bytes"]) == (1.5, 170)
    assert (log.iterations, log.dropouts, log.seconds) == (0, 0, [])
    assert _bytes(Outcome(), log)["per_user_iteration"]["down_max"] is None


def test_means_medians_and_maxima_are_over_users_and_iterations_together(tmp_path):
    """Down: 10 20 | 30 40 50, median 30. Up: 1 | 3, median 2."""
    log = IterationLog(tmp_path)
    log.add(done(0, {"user:0": [10, 1], "user:1": [20, 0]}))
    log.add(done(1, {"user:0": [30, 3], "user:1": [40, 0], "user:2": [50, 0]}))
    log.close()
    assert _bytes(Outcome(), log)["per_user_iteration"] == {
        "down_mean": 30, "down_median": 30, "down_max": 50, "up_mean": 2, "up_median": 2, "up_max": 3,
    }  # fmt: skip


def test_the_total_has_everything_that_went_over_the_wire(tmp_path):
    log = IterationLog(tmp_path)
    log.add(done(0, {}))
    log.close()
    outcome = Outcome(rest=Tally([Traffic(1, "recommender", "user", "Finish", 1, 36, 71)]))
    outcome.apart = [["resend", "recommender", "user:0", 1, 5, 40], ["undelivered", "recommender", "user:0", 1, 5, 40]]
    assert _bytes(outcome, log)["total"] == 139 + 170 + 71 + 40 - 40, "what was not delivered is among the rows"


ROLES = ("user", "recommender", "third_party")


def log_of_three(folder: Path) -> bytes:
    log = IterationLog(folder)
    log.add(done(-1, {}))
    log.add(done(0, {"user:0": [130, 0], "user:1": [40, 0]}))
    log.add(done(1, {"user:0": [170, 0]}))
    log.close()
    return (folder / "iterations.jsonl").read_bytes()


def test_a_log_goes_on_from_its_lines_and_their_traffic_is_in_the_sums(tmp_path):
    before = log_of_three(tmp_path)
    again = IterationLog(tmp_path, ROLES, 100)
    assert (again.reported, again.iterations, again.dropouts, again.seconds) == (1, 2, 4, [1.5, 1.5])
    again.add(done(2, {"user:0": [170, 0]}))
    again.close()
    assert (tmp_path / "iterations.jsonl").read_bytes().startswith(before)
    assert [line["iteration"] for line in lines_of(tmp_path)] == [-1, 0, 1, 2]
    assert again.rows == [
        Traffic(-1, "recommender", "user", "Factors", 2, 100, 170),
        Traffic(-1, "user", "third_party", "Hello", 1, 104, 139),
        *(Traffic(at, "recommender", "user", "Factors", 2, 100, 170) for at in (0, 1, 2)),
    ]
    assert _bytes(Outcome(), again)["per_user_iteration"]["down_mean"] == 128, "(130 + 40 + 170 + 170) / 4, rounded"


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[:-9],
        lambda text: text.replace(b'"iteration": 1', b'"iteration": 2'),
        lambda text: text.replace(b'"bytes": 170', b'"bytes": 171'),
        lambda text: text.replace(b'"recommender"', b'"nobody"'),
        lambda text: text.replace(b'"dropouts": 2', b'"dropouts": "2"'),
        lambda text: text.replace(b'"seconds": 1.5', b'"seconds": [1]'),
        lambda text: b"[" * 100_000 + b"\n",
        lambda text: b"{}\n",
        lambda text: b"\xff\n",
    ],
)
def test_a_line_that_is_damaged_is_made_again_with_all_that_follow(tmp_path, damage):
    lines = log_of_three(tmp_path).splitlines(keepends=True)
    (tmp_path / "iterations.jsonl").write_bytes(b"".join([*lines[:2], damage(lines[2]), *lines[2:]]))
    again = IterationLog(tmp_path, ROLES, 100)
    again.close()
    assert again.reported == 0 and (tmp_path / "iterations.jsonl").read_bytes() == b"".join(lines[:2])


@pytest.mark.parametrize("scheme", ["plain", "trusted", "direct", "masked", "dynamic"])
def test_what_a_line_says_does_not_depend_on_the_driver(tmp_path, scheme):
    """Only the seconds differ, and the lines that have late messages of the set-up; the sum of these is the same."""
    churn = {"join": 0.2, "leave": 0.1} if scheme == "dynamic" else {}
    for transport in ("tcp", "inprocess"):
        config = RunConfig(scheme=scheme, **SMALL, **churn, transport=transport)
        assert run(config, out=tmp_path / transport)["completed"]
    ours, theirs = lines_of(tmp_path / "tcp"), lines_of(tmp_path / "inprocess")
    assert [line["iteration"] for line in ours] == ([-1] if scheme == "trusted" else [-1, 0, 1, 2, 3])
    for one, other in zip(ours, theirs, strict=True):
        for line in (one, other):
            assert line.pop("seconds") > 0
            line["rows"] = [row for row in line["rows"] if row[0] == line["iteration"] >= 0]
        assert one | {"train_mae": None} == other | {"train_mae": None}
    files = [(lines_of(tmp_path / name), read_bandwidth(tmp_path / name)) for name in ("tcp", "inprocess")]
    assert rows_in(*files[0]) == rows_in(*files[1])
    for key in ("rows", "course", "parties", "apart"):
        assert files[0][1][key] == files[1][1][key]


def test_parties_add_up_to_roles(tmp_path):
    run(RunConfig(scheme="dynamic", **SMALL, join=0.2, leave=0.1), out=tmp_path / "run")
    bandwidth = read_bandwidth(tmp_path / "run")

    def roles(rows: list[list[Any]]) -> list[Traffic]:
        return sum_rows(
            Traffic(min(phase, 0), sender.partition(":")[0], receiver.partition(":")[0], *rest)
            for phase, sender, receiver, *rest in rows
        )

    lines = [row for line in lines_of(tmp_path / "run") for row in line["rows"]]
    assert roles(bandwidth["parties"]) == roles(lines + bandwidth["rows"])
    assert {row[1] for row in bandwidth["parties"]} == {"recommender", "third_party"} | {
        f"user:{user}" for user in range(12)
    }


# --- what the servers say about the course of a run ------------------------------------------------------------------


@pytest.mark.parametrize("transport", ["tcp", "inprocess"])
def test_what_servers_say_of_an_iteration_stands_in_its_line(tmp_path, monkeypatch, transport):
    """The recommender reports on its set-up, too, and both servers report at their end."""
    (tmp_path / "telling.py").write_text(OWN_SCHEME)
    monkeypatch.syspath_prepend(tmp_path)
    load_scheme("telling:Telling")
    run(RunConfig(scheme="telling:Telling", **SMALL, transport=transport), out=tmp_path / "run")
    both = [{f"{server} is in": t for server in ("recommender", "third_party")} for t in range(1, 5)]
    assert [line["course"] for line in lines_of(tmp_path / "run")] == [{"recommender is in": 0}, *both]
    assert read_bandwidth(tmp_path / "run")["course"] == both[-1]


def test_what_was_said_before_a_break_is_said_again(tmp_path, monkeypatch):
    for role in (DynamicRecommender, DynamicThirdParty):
        monkeypatch.setattr(role, "facts", lambda self: {type(self).__name__: self.iteration})
    config = RunConfig(scheme="dynamic", **SMALL, join=0.2, leave=0.1, transport="inprocess")
    run(config, out=tmp_path / "whole")

    def stop(line: dict[str, Any]) -> None:
        if line["iteration"] == 1:
            raise KeyboardInterrupt

    assert not run(config, out=tmp_path / "run", on_line=stop)["completed"]
    (tmp_path / "run" / "iterations.jsonl").write_text("")  # as if nothing of it had reached the disk
    assert resume(tmp_path / "run")["completed"]
    courses = [[line["course"] for line in lines_of(tmp_path / name)] for name in ("run", "whole")]
    assert courses[0] == courses[1] and courses[1][1] == {"DynamicRecommender": 1, "DynamicThirdParty": 1}


# --- the file --------------------------------------------------------------------------------------------------------


def test_bandwidth_json_can_be_read_again(tmp_path):
    outcome = Outcome(rest=Tally([Traffic(4, "recommender", "user", "Finish", 2, 72, 142)]), course={"finished": "0-1"})
    outcome.parties = [[0, "recommender", f"user:{user}", "Finish", 1, 36, 71] for user in range(2)]
    document = bandwidth_document(outcome)
    write_bandwidth(tmp_path, document)
    assert read_bandwidth(tmp_path) == document | {"rows": [[4, "recommender", "user", "Finish", 2, 72, 142]]}
    assert (tmp_path / "bandwidth.json").stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["bandwidth.json"]


def test_an_aborted_run_has_one_too(tmp_path):
    def stop(line: dict[str, Any]) -> None:
        if line["iteration"] == 1:
            raise KeyboardInterrupt

    assert not run(RunConfig(scheme="masked", **SMALL), out=tmp_path / "run", on_line=stop)["completed"]
    bandwidth = read_bandwidth(tmp_path / "run")
    assert bandwidth["kernel"] is None and "did not complete" in bandwidth["kernel_note"]


# --- reports of any size ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1000, 65_000, 66_000, 5_000_000])
def test_a_report_of_any_size_arrives_whole_and_in_its_turn(size):
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    sender, receiver = Mailbox(near), Mailbox(far)
    for number in range(3):
        sender.send({"number": number, "rows": bytes(size)})
    for number in range(3):
        assert receiver.receive() == {"number": number, "rows": bytes(size)}
    assert receiver.receive() is None
    sender.close()
    receiver.close()
