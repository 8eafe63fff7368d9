"""Metered bytes against the kernel's counts, connection by connection: equal to the byte, or a difference in words."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import zmq
from support.attackers import strangers
from support.meter import read_bandwidth, rows_in

from actors.launch.launcher import Launch
from actors.transport.zeromq import Address
from sim import api
from sim.bandwidth.kernel_check import compare
from sim.plan.config import RunConfig
from sim.run.run import run

ROOT = Path(__file__).parents[3]
DATA = {"data": "synthetic:12x9:.5", "dim": 3, "iterations": 5, "seed": 7}


# --- the comparison, by hand -----------------------------------------------------------------------------------------


def document(**changes: Any) -> dict[str, Any]:
    """Build a bandwidth.json with equal counts: user:0 sent 100 bytes and received 200, user:1 sent nothing."""
    parties = [
        *([-1, f"user:{user}", "recommender", "handshake", 1, 0, 567] for user in range(2)),
        *([-1, "recommender", f"user:{user}", "handshake", 1, 0, 301] for user in range(2)),
        [0, "user:0", "recommender", "Gradient", 2, 30, 100],
        [0, "recommender", "user:0", "ItemFactors", 3, 95, 200],
        [-1, "recommender", "third_party", "handshake", 1, 0, 567],
        [-1, "third_party", "recommender", "handshake", 1, 0, 301],
        [0, "recommender", "third_party", "OpenSum", 1, 15, 50],
        [0, "third_party", "recommender", "MaskedTotal", 1, 25, 60],
    ]
    kernel = [
        ["recommender", "", 1, 567, 301],
        ["recommender", "user:0", 1, 667, 501],
        ["third_party", "recommender", 1, 617, 361],
    ]
    return {"parties": parties, "apart": [], "kernel": kernel, "kernel_note": None} | changes


def changed(rows: list[list[Any]], row: int, by: int, place: int = -1) -> list[list[Any]]:
    rows = [list(each) for each in rows]
    rows[row][place] += by
    return rows


def test_equal_counts_differ_nowhere_and_are_added_up():
    assert compare(document()) == (567 + 301 + 667 + 501 + 617 + 361, [])


def test_without_counts_of_the_kernel_there_is_nothing_to_compare():
    assert compare(document(kernel=None, kernel_note="ipc")) == (None, [])


@pytest.mark.parametrize("row", range(10))
def test_every_metered_byte_is_compared(row):
    made = document()
    total, [sentence] = compare(made | {"parties": changed(made["parties"], row, 1)})
    sender, receiver = made["parties"][row][1:3]
    up = sender.startswith("user:") or receiver == "third_party"
    server, client = (receiver, sender) if up else (sender, receiver)
    assert total == 3014 and sentence.startswith(f"{server} and {client}: metered ")
    assert sentence.endswith("(-1 and +0 bytes)." if up else "(+0 and -1 bytes).")


@pytest.mark.parametrize("row", range(3))
@pytest.mark.parametrize("place", [2, 3, 4])
def test_every_count_of_the_kernel_is_compared(row, place):
    made = document()
    _, differences = compare(made | {"kernel": changed(made["kernel"], row, 1, place)})
    server, party = made["kernel"][row][:2]
    assert [sentence.partition(": metered")[0] for sentence in differences] == [
        f"{server} and {party or 'parties that said nothing'}"
    ]


def test_a_difference_is_a_sentence_with_both_counts():
    made = document()
    _, [sentence] = compare(made | {"kernel": changed(made["kernel"], 1, 3, 3)})
    assert sentence == (
        "recommender and user:0: metered 667 bytes received and 501 sent over 1 connection; the kernel counted "
        "670 bytes received and 501 sent over 1 connection (+3 and +0 bytes)."
    )


def test_a_connection_that_the_kernel_does_not_know_is_missed():
    made = document()
    _, differences = compare(made | {"kernel": made["kernel"][1:]})
    assert len(differences) == 1 and differences[0].startswith("recommender and parties that said nothing: ")
    _, differences = compare(made | {"kernel": []})
    assert len(differences) == 4


def test_what_stands_apart_went_over_the_wire_too_except_what_was_not_handed_over():
    apart = [
        ["again", "user:0", "recommender", 1, 5, 40],
        ["rejected:REPLAYED", "user:0", "recommender", 1, 5, 30],
        ["resend", "recommender", "user:0", 2, 20, 90],
        ["undelivered", "recommender", "user:0", 1, 10, 45],
    ]
    kernel = document()["kernel"]
    kernel[1] = ["recommender", "user:0", 1, 667 + 70, 501 + 45]
    assert compare(document(apart=apart, kernel=kernel))[1] == []


def test_a_party_that_came_back_has_two_connections_one_of_which_may_be_silent():
    apart = [["reconnect", "user:0", "recommender", 1, 0, 567], ["reconnect", "recommender", "user:0", 1, 0, 301]]
    kernel = document()["kernel"]
    kernel[1] = ["recommender", "user:0", 2, 667 + 567, 501 + 301]
    assert compare(document(apart=apart, kernel=kernel))[1] == []
    kernel = document()["kernel"]
    kernel[0] = ["recommender", "", 2, 2 * 567, 2 * 301]
    assert compare(document(apart=apart, kernel=kernel))[1] == []


# --- whole runs ------------------------------------------------------------------------------------------------------


def finished(folder: Path, **changes: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Make a run and return (summary, bandwidth.json)."""
    summary = run(RunConfig(**{**DATA, **changes}), out=folder)
    assert summary["completed"]
    return summary, read_bandwidth(folder)


ONCE = {"scheme": "hardened", "dim": None, "iterations": None}  # it takes neither
RUNS: dict[str, dict[str, Any]] = {
    "plain": {"scheme": "plain"},
    "trusted": {"scheme": "trusted"},
    "direct": {"scheme": "direct"},
    "masked": {"scheme": "masked"},
    "masked, as in the paper": {"scheme": "masked", "wire": "paper"},
    "masked, users in packs": {"scheme": "masked", "users_per_process": 5},
    "dynamic": {"scheme": "dynamic", "join": 0.2, "leave": 0.1, "iterations": 12},
    "dynamic, as in the paper": {"scheme": "dynamic", "join": 0.2, "leave": 0.1, "wire": "paper"},
    "dynamic, on the built-in ratings": {"scheme": "dynamic", "data": "demo-small", "join": 0.05, "leave": 0.1},
    "hardened": {**ONCE},
    "hardened, two rounds": {**ONCE, "options": {"rounds": 2}},
    "hardened, some items selected": {**ONCE, "options": {"selected": 4}},
}


@pytest.mark.parametrize("changes", RUNS.values(), ids=RUNS.keys())
def test_metered_and_kernel_are_the_same_to_the_byte(tmp_path, changes):
    summary, bandwidth = finished(tmp_path / "run", **changes)
    total, differences = compare(bandwidth)
    assert differences == [] and bandwidth["apart"] == []
    assert total == summary["bytes"]["total"] > 10_000
    assert "hardened" not in changes["scheme"] or api.bandwidth(tmp_path / "run")["match"]
    connections = sum(row[2] for row in bandwidth["kernel"])
    servers = 2 if changes["scheme"] in ("masked", "dynamic", "hardened") else 1
    assert connections == servers * summary["users"] + servers - 1


def test_users_who_never_speak_to_the_third_party_have_made_a_handshake_with_it(tmp_path):
    """No user comes or goes, so the users that are offline at the start stay offline."""
    _, bandwidth = finished(tmp_path / "run", scheme="dynamic", join=0.001, leave=0.002)
    silent = {row[0]: row[2:] for row in bandwidth["kernel"] if row[1] == ""}
    assert silent["third_party"][0] > 0 and "recommender" not in silent
    assert silent["third_party"][1:] == [567 * silent["third_party"][0], 301 * silent["third_party"][0]]
    assert compare(bandwidth)[1] == []


@pytest.mark.parametrize(("transport", "words"), [("ipc", "tcp connections alone"), ("inprocess", "one process")])
def test_where_there_is_no_tcp_it_is_said_in_words(tmp_path, transport, words):
    _, bandwidth = finished(tmp_path / "run", scheme="masked", transport=transport)
    assert bandwidth["kernel"] is None and words in bandwidth["kernel_note"]


def test_where_there_are_too_few_files_the_run_goes_on_without_counts_and_says_so(tmp_path):
    """With 30 users a server needs 30 + 64 files, and 2 · 32 + 128 to count; the limit is between them."""

    def few_files() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (150, 150))

    flags = ["--scheme", "masked", "--data", "synthetic:30x9:.5", "--iterations", "2", "--dim", "2", "--seed", "1"]
    command = [sys.executable, "-m", "sim", "run", *flags, "--out", str(tmp_path / "run")]
    subprocess.run(command, cwd=ROOT, preexec_fn=few_files, check=True, capture_output=True, timeout=60)
    bandwidth = read_bandwidth(tmp_path / "run")
    assert bandwidth["kernel"] is None and "192 open files" in bandwidth["kernel_note"]
    assert "the limit is 150" in bandwidth["kernel_note"] and bandwidth["parties"]


# --- runs that are disturbed -----------------------------------------------------------------------------------------


class Followed(Launch):
    """A launch that keeps itself, so that a test finds its processes and servers."""

    def run(self):
        Followed.current = self
        return super().run()

    def kill(self, party: str) -> None:
        [pid] = [pid for pid, parties in self._alive.items() if parties == [party]]
        os.kill(pid, signal.SIGKILL)

    def address(self, server: str) -> Address:
        return Address(self._endpoints[server], self._roster.public_keys[server])


@pytest.fixture
def followed(monkeypatch, tmp_path):
    """Give a function that makes a run, calls `happens` after iteration 2 and returns (summary, bandwidth.json)."""
    monkeypatch.setattr("sim.run.run.Launch", Followed)

    def start(happens, **changes: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        def on_line(line: dict[str, Any]) -> None:
            if line["iteration"] == 2:
                happens(Followed.current)

        summary = run(RunConfig(**{**DATA, "iterations": 40, **changes}), out=tmp_path / "run", on_line=on_line)
        assert summary["completed"]
        return summary, read_bandwidth(tmp_path / "run")

    return start


def left(bandwidth: dict[str, Any]) -> int:
    """Count the wire bytes that left: the rows and what is apart, without the undelivered frames."""
    apart = sum(-row[-1] if row[0] == "undelivered" else row[-1] for row in bandwidth["apart"])
    return sum(row[-1] for row in bandwidth["parties"]) + apart


def of_others(sentences: list[str], party: str) -> list[str]:
    return [sentence for sentence in sentences if f" and {party}: " not in sentence]


def test_a_user_that_is_killed_and_comes_back_has_its_second_handshakes_and_questions_apart(followed):
    """Bytes that were lost with its first connection are a difference of this user alone."""
    summary, bandwidth = followed(lambda launch: launch.kill("user:5"), scheme="masked")
    assert summary["restarts"] == 1
    apart = Counter({(what, *sorted(edge)): n for what, *edge, n, _, _ in bandwidth["apart"]})
    for server in ("recommender", "third_party"):
        assert apart["reconnect", server, "user:5"] == 1
        assert apart["again", server, "user:5"] >= 1
    assert all("user:5" in row[1:3] for row in bandwidth["apart"])
    assert [row[2] for row in bandwidth["kernel"] if row[1] == "user:5"] == [2, 2]
    total, differences = compare(bandwidth)
    assert of_others(differences, "user:5") == []
    assert (total == left(bandwidth)) == (differences == []), "a difference is named and not hidden"


def test_a_user_that_is_dropped_costs_nothing_but_what_was_on_its_way_to_it(followed):
    options = {"scheme": "dynamic", "join": 0.0, "leave": 0.0, "on_death": "drop"}
    summary, bandwidth = followed(
        lambda launch: launch.kill("user:5"), **options, options={"dropout_allowance": 0.5}, deadline=5.0
    )
    assert summary["gone"] == ["user:5"]
    total, differences = compare(bandwidth)
    assert of_others(differences, "user:5") == []
    assert total <= left(bandwidth) and (total == left(bandwidth)) == (differences == [])


def test_after_a_servers_restart_there_are_no_counts_of_the_kernel_and_the_rows_are_the_same(followed, tmp_path):
    summary, bandwidth = followed(lambda launch: launch.kill("third_party"), scheme="masked")
    _, undisturbed = finished(tmp_path / "calm", scheme="masked", iterations=40, transport="inprocess")
    lines = [
        [json.loads(line) for line in (tmp_path / name / "iterations.jsonl").read_text().splitlines()]
        for name in ("run", "calm")
    ]
    assert rows_in(lines[0], bandwidth) == rows_in(lines[1], undisturbed)
    assert bandwidth["parties"] == undisturbed["parties"]
    assert summary["restarts"] == 1 and bandwidth["kernel"] is None
    assert "third_party was started again" in bandwidth["kernel_note"]
    assert "At least" in bandwidth["apart_note"]
    reconnected = {row[1] for row in bandwidth["apart"] if row[0] == "reconnect" and row[2] == "third_party"}
    assert reconnected == {"recommender", *(f"user:{user}" for user in range(12))}
    handshakes = [row for row in bandwidth["parties"] if row[3] == "handshake"]
    assert Counter(row[2] for row in handshakes)["third_party"] == 13


def test_strangers_who_knock_meanwhile_are_in_no_figures(followed):
    def knock(launch: Followed) -> None:
        threads = [threading.Thread(target=attack, args=(launch, server)) for server in launch._servers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def attack(launch: Followed, server: str) -> None:
        address, keys = launch.address(server), launch._secrets["user:1"].keys
        context = zmq.Context()
        impostor = strangers.Impostor(context, address, keys, b"user:0")
        impostor.speak(b"I am user:0")
        for attempt in (strangers.unknown_key, strangers.no_encryption, strangers.wrong_server_key(keys)):
            attempt(context, address)
        for garbage in strangers.GARBAGE.values():
            garbage(context, address)
        impostor.close()
        context.term()

    summary, bandwidth = followed(knock, scheme="masked")
    assert summary["strangers"]["UNKNOWN_KEY"] == 2 and summary["strangers"]["BORROWED_IDENTITY"] == 2
    assert summary["strangers"]["NO_HANDSHAKE"] == 2 * (2 + len(strangers.GARBAGE))
    total, differences = compare(bandwidth)
    assert differences == [] and bandwidth["apart"] == []
    assert total == summary["bytes"]["total"]
