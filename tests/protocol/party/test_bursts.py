"""A long step in parts, and records written in bursts: neither changes the frames that leave or the records."""

from __future__ import annotations

import os

import pytest
from support.runs import staged

from actors.journal import Journal, view_path
from protocol.card import seat_party
from protocol.party.party import Party, Step
from protocol.party.view import EVENT, RECEIVED, read_records
from sim.experiments.bench.crowd_bench import bench_crowd


def everything(party: Party, step: Step) -> tuple[list[bytes], list[bytes], int]:
    """Collect the frames and records of `step` and of the parts that are left over, and count the parts."""
    frames, records, parts = [out.frame for out in step.sends], list(step.records), 1
    while step.rest:
        assert len(step.sends) >= (party.burst or 0)
        step, parts = party.go_on(step.rest), parts + 1
        frames += [out.frame for out in step.sends]
        records += step.records
    return frames, records, parts


@pytest.mark.parametrize("burst", [1, 2, 3, 100])
@pytest.mark.parametrize("name", ["recommender", "third_party", "user:1"])
def test_a_step_in_parts_is_the_whole_step(name, burst, tmp_path):
    run = staged("dynamic", "compact", n_users=5, iterations=3)
    run.undisturbed(tmp_path)
    [seat] = [seat for seat in run.seats if seat.party == name]
    (whole, _), (cut, _) = seat_party(run.card, seat, with_view=True), seat_party(run.card, seat, with_view=True)
    cut.burst = burst
    assert everything(whole, whole.start())[:2] == everything(cut, cut.start())[:2]
    most = 0
    with open(view_path(str(tmp_path), name), "rb") as file:
        for record in read_records(file):
            if record.type in (RECEIVED, EVENT):
                *expected, _ = everything(whole, whole._repeat(record))
                *found, parts = everything(cut, cut._repeat(record))
                assert found == expected
                most = max(most, parts)
    assert whole.done and cut.done and whole.view.head == cut.view.head
    assert (most > 1) == (name == "recommender" and burst < 100)


def test_held_records_stand_before_the_next_and_none_is_lost(tmp_path):
    path = str(tmp_path / "a.view")
    journal = Journal(path)
    journal.hold([b"one"])
    journal.hold([b"two", b"three"])
    assert os.path.getsize(path) == 0
    journal.append([b"four"])
    journal.hold([b"five"])
    journal.flush()
    journal.flush()
    assert (tmp_path / "a.view").read_bytes() == b"onetwothreefourfive"
    journal.hold([b"six"])
    journal.close()
    assert (tmp_path / "a.view").read_bytes() == b"onetwothreefourfivesix"


def test_the_benchmark_of_a_crowd_compares_it_with_few_users():
    result = bench_crowd(users=120, dim=2, iterations=2)
    assert result["ratio"] == result["median"] / result["floor_median"] > 0
    assert result["config"]["few"] == result["config"]["users"] == 120
    assert 30 < result["contributors"]["median"] < 90, "half of them are online"
    assert result["peak"].keys() == {"recommender", "third_party"} and min(result["peak"].values()) > 10_000_000
