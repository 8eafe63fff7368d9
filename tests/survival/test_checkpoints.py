"""A party goes on from the latest checkpoint of its view, as if all of the view had been replayed.

Runs are played in one process; `tests/survival/test_resume_long.py` has the same with processes that are killed.
"""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgpack
import pytest
from support.meter import read_bandwidth, rows_in
from support.runs import long
from support.tamper import joined, rechain, split, view_of

from actors import stage
from actors.journal import derive_again
from protocol.card import Seat, seat_party
from protocol.freeze import Unfit, restore, state_of
from protocol.party import view
from protocol.party.party import Party
from protocol.party.role import RECOMMENDER, THIRD_PARTY
from protocol.party.view import CHECKPOINT, MOST_CHECKPOINT_BYTES, SENT, Broken, Record, read_records
from protocol.schemes.factorization.dynamic import DynamicUser
from sim import api
from sim.plan.config import RunConfig
from sim.run.run import resume, run

TINY = {"data": "synthetic:6x5:.8", "dim": 2, "seed": 3, "transport": "inprocess"}
SCHEMES = {"masked": {}, "dynamic": {"join": 0.2, "leave": 0.1}}
PARTIES = (RECOMMENDER, THIRD_PARTY, "user:0")
EVERY = 20


@pytest.fixture(autouse=True)
def _often(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write checkpoints often, however large, except where a test asks for the intervals `as_they_are`."""
    if "as_they_are" not in request.fixturenames:
        monkeypatch.setattr(stage, "EVERY", EVERY)
        monkeypatch.setattr(stage, "SHARE", 0)


@pytest.fixture
def as_they_are() -> None:
    return None


def config(scheme: str, iterations: int, **changes: Any) -> RunConfig:
    return RunConfig(**{**TINY, "scheme": scheme, "iterations": iterations, **SCHEMES.get(scheme, {}), **changes})


def stop_at(iteration: int) -> Callable[[dict[str, Any]], None]:
    def stop(line: dict[str, Any]) -> None:
        if line["iteration"] == iteration:
            raise KeyboardInterrupt

    return stop


def stopped(folder: Path, at: int, settings: RunConfig) -> Path:
    assert not run(settings, out=folder, on_line=stop_at(at))["completed"]
    return folder


def records_of(folder: Path, party: str) -> list[Record]:
    with view_of(folder, party).open("rb") as stream:
        return list(read_records(stream))


def checkpoints(folder: Path, party: str) -> list[Record]:
    return [record for record in records_of(folder, party) if record.type == CHECKPOINT]


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "iterations.jsonl").read_text().splitlines()]


def told(folder: Path) -> list[list[Any]]:
    names = ("iteration", "bytes", "contributors", "online", "train_mae")
    return [[line.get(name) for name in names] for line in lines(folder)]


def check_same(found: dict[str, Any], folder: Path, expected: dict[str, Any]) -> None:
    whole = Path(expected["run"])
    assert found["completed"] and found["item_factors_sha256"] == expected["item_factors_sha256"]
    assert found["predictions_sha256"] == expected["predictions_sha256"] is not None
    assert found["accuracy"] == expected["accuracy"]
    assert found["bytes"]["per_iteration"] == expected["bytes"]["per_iteration"]
    assert told(folder) == told(whole)
    assert rows_in(lines(folder), read_bandwidth(folder)) == rows_in(lines(whole), read_bandwidth(whole))
    assert read_bandwidth(folder)["parties"] == read_bandwidth(whole)["parties"]


def check_sound(folder: Path) -> None:
    """Check that every view, checkpoints included, is what its role does from the beginning."""
    found = api.replay(folder)
    assert found["identical"], [row["first_difference"] for row in found["parties"]]
    assert api.verify(folder)["verified"]


def forbid_whole_replays(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a view was replayed from its beginning")

    monkeypatch.setattr(Party, "replay", refuse)


# --- a run that was stopped ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wire", ["compact", "paper"])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_run_that_is_stopped_again_and_again_ends_as_if_nothing_had_happened(tmp_path, monkeypatch, scheme, wire):
    settings, folder = config(scheme, 130, wire=wire), tmp_path / "run"
    expected = run(settings, out=tmp_path / "whole")
    stopped(folder, 45, settings)
    with monkeypatch.context() as patch:
        forbid_whole_replays(patch)
        for at in (46, 59, 60, 61, 79, 99, 120):
            assert not resume(folder, on_line=stop_at(at))["completed"]
        found = resume(folder)
    check_same(found, folder, expected)
    for run_folder in (folder, tmp_path / "whole"):
        assert all(len(checkpoints(run_folder, party)) >= 3 for party in PARTIES)
        check_sound(run_folder)


@pytest.mark.usefixtures("as_they_are")
@pytest.mark.parametrize(("scheme", "count"), [("masked", 1), ("masked", 300), ("dynamic", 300)])
def test_a_run_of_usual_length_goes_on_from_checkpoints(tmp_path, monkeypatch, scheme, count):
    check_goes_on(tmp_path, monkeypatch, config(scheme, count + 30), count)


@long
@pytest.mark.usefixtures("as_they_are")
@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_run_of_3000_iterations_goes_on_from_checkpoints(tmp_path, monkeypatch, scheme):
    check_goes_on(tmp_path, monkeypatch, config(scheme, 3030), 3000)


def check_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: RunConfig, count: int) -> None:
    expected = run(settings, out=tmp_path / "whole")
    folder = stopped(tmp_path / "run", count - 1, settings)
    with monkeypatch.context() as patch:
        if count >= 300:
            assert all(checkpoints(folder, party) for party in PARTIES)
            forbid_whole_replays(patch)
        found = resume(folder)
    check_same(found, folder, expected)
    check_sound(folder)


@pytest.mark.usefixtures("as_they_are")
def test_checkpoints_are_a_small_part_of_a_view(tmp_path):
    folder = stopped(tmp_path / "run", 320, config("masked", 400))
    for party in PARTIES:
        states = sum(len(record.fields[1]) for record in checkpoints(folder, party))
        assert 0 < states * stage.SHARE <= view_of(folder, party).stat().st_size


@pytest.mark.usefixtures("as_they_are")
def test_a_short_run_and_the_last_iteration_have_none(tmp_path):
    run(config("masked", 100), out=tmp_path / "run")
    assert not any(checkpoints(tmp_path / "run", party) for party in PARTIES)


def test_a_view_without_checkpoints_goes_on_and_gets_them(tmp_path, monkeypatch):
    settings = config("dynamic", 90)
    expected = run(settings, out=tmp_path / "whole")
    with monkeypatch.context() as patch:
        patch.setattr(stage, "EVERY", 10_000)
        folder = stopped(tmp_path / "run", 50, settings)
        assert not any(checkpoints(folder, party) for party in PARTIES)
    check_same(resume(folder), folder, expected)
    assert all(checkpoints(folder, party) for party in PARTIES)
    check_sound(folder)


@pytest.mark.parametrize("scheme", ["plain", "direct"])
def test_a_role_that_does_not_say_that_it_is_restorable_is_replayed(tmp_path, scheme):
    settings = config(scheme, 60)
    expected = run(settings, out=tmp_path / "whole")
    folder = stopped(tmp_path / "run", 50, settings)
    assert not any(checkpoints(folder, party) for party in (RECOMMENDER, "user:0"))
    check_same(resume(folder), folder, expected)


def test_a_subclass_is_restorable_only_if_it_says_so_itself():
    """One of a person's own, or a cheat, may hold more than what is stored."""
    card, seats = _cast("dynamic")
    party, _ = seat_party(card, seats["user:0"], with_view=True)
    assert state_of(party) is not None
    party.role.__class__ = type("Another", (DynamicUser,), {})
    assert state_of(party) is None


@pytest.mark.parametrize("left", [0, 15, 47, 70])
def test_iterations_that_the_log_has_lost_are_told_again(tmp_path, left):
    """A checkpoint behind them would skip their figures, so an earlier one is taken, or none."""
    settings = config("masked", 80)
    expected = run(settings, out=tmp_path / "whole")
    folder = stopped(tmp_path / "run", 75, settings)
    log = folder / "iterations.jsonl"
    log.write_text("".join(line + "\n" for line in log.read_text().splitlines()[:left]))
    found = resume(folder)
    assert found["completed"] and found["item_factors_sha256"] == expected["item_factors_sha256"]
    assert [line["iteration"] for line in lines(folder)] == list(range(-1, 80))
    assert [line["bytes"] for line in lines(folder)] == [line["bytes"] for line in lines(tmp_path / "whole")]


# --- killed at a checkpoint ------------------------------------------------------------------------------------------


class _Killed(BaseException):
    pass


def kill_at_a_checkpoint(patch: pytest.MonkeyPatch, party: str, part: float) -> None:
    """Have the second checkpoint of `party` end the run when this part of it is written."""
    whole = stage.Performer.checkpoint

    def write_a_part(self: stage.Performer) -> None:
        if self.party.name != party or self.party.role.iteration < 2 * EVERY:
            return whole(self)
        assert self.journal is not None
        (record,) = self.party.checkpoint(self.party.state_of(self.party))
        self.journal.append([record[: int(part * len(record))]])
        raise _Killed

    patch.setattr(stage.Performer, "checkpoint", write_a_part)


@pytest.mark.parametrize("part", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("party", PARTIES)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_party_that_is_killed_while_it_writes_one_goes_on(tmp_path, monkeypatch, scheme, party, part):
    """Just before, in the middle and just after; the others are killed with it."""
    settings, folder = config(scheme, 70), tmp_path / "run"
    expected = run(settings, out=tmp_path / "whole")

    with monkeypatch.context() as patch:
        kill_at_a_checkpoint(patch, party, part)
        with pytest.raises(_Killed):
            run(settings, out=folder)
    there = [record.fields[0] for record in checkpoints_before_a_cut(folder, party)]
    assert len(there) == (2 if part == 1.0 else 1)
    with monkeypatch.context() as patch:
        forbid_whole_replays(patch)
        found = resume(folder)
    check_same(found, folder, expected)
    check_sound(folder)
    assert Path(f"{view_of(folder, party)}.cut").exists() == (0 < part < 1)


def checkpoints_before_a_cut(folder: Path, party: str) -> list[Record]:
    with view_of(folder, party).open("rb") as stream:
        return [record for record in view.WholeRecords(stream) if record.type == CHECKPOINT]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("scheme", SCHEMES)
def test_crashes_and_lost_frames_with_a_checkpoint_in_every_iteration(tmp_path, monkeypatch, scheme, seed):
    """Parties are restored within the run, and ask for frames that lie before their peers' checkpoints."""
    monkeypatch.setattr(stage, "EVERY", 1)
    expected = run(config(scheme, 14), out=tmp_path / "whole")
    restored: list[str] = []

    def restore_and_note(party: Party, data: bytes) -> None:
        restore(party, data)
        restored.append(party.name)

    monkeypatch.setattr("actors.journal.restore", restore_and_note)
    found = run(config(scheme, 14, faults=f"{seed}:.3"), out=tmp_path / "run")
    if not found["completed"]:  # a full disk
        found = resume(tmp_path / "run")
    assert found["completed"] and found["item_factors_sha256"] == expected["item_factors_sha256"]
    assert found["predictions_sha256"] == expected["predictions_sha256"]
    assert restored, "nobody was"
    check_sound(tmp_path / "run")


# --- frames that lie before a checkpoint -----------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", SCHEMES)
def test_frames_before_a_checkpoint_are_derived_as_from_the_beginning(tmp_path, monkeypatch, scheme):
    folder = stopped(tmp_path / "run", 70, config(scheme, 90))
    card, seats = _cast(scheme, 90)
    for party, peer in ((RECOMMENDER, "user:1"), (RECOMMENDER, THIRD_PARTY), ("user:2", THIRD_PARTY)):
        path = str(view_of(folder, party))
        sent = [record.fields for record in records_of(folder, party) if record.type == SENT]
        digests = [fields[4] for fields in sent if fields[0] == peer]
        with monkeypatch.context() as patch:
            patch.setattr("actors.journal.last_checkpoint", lambda *_: None)
            frames = derive_again(card, seats[party], path, peer, 0, len(digests))
        assert [view.hashlib.sha256(out.frame).digest() for out in frames] == digests
        for first in {0, 1, len(digests) // 2, len(digests) - 5, len(digests) - 1}:
            assert derive_again(card, seats[party], path, peer, first, len(digests)) == frames[first:]


def _cast(scheme: str, iterations: int = 20) -> tuple[Any, dict[str, Seat]]:
    from sim.plan.plan import make_plan

    plan = make_plan(config(scheme, iterations))
    return plan.card, {seat.party: seat for seat in plan.seats()}


# --- forged, cut and oversized ---------------------------------------------------------------------------------------


def forge(folder: Path, party: str, change: Callable[[bytes], bytes], chained: bool) -> int:
    """Change the state in the last checkpoint of a view; return the number of the record."""
    path = view_of(folder, party)
    records = split(path.read_bytes())
    bodies = [record[4:-32] for record in records]
    number = max(at for at, body in enumerate(bodies) if body[1] == CHECKPOINT)
    type_, iteration, state = msgpack.unpackb(bodies[number])
    forged = msgpack.packb([type_, iteration, change(state)])
    if chained:
        path.write_bytes(joined(rechain([*bodies[:number], forged, *bodies[number + 1 :]])))
    else:
        record = len(forged).to_bytes(4, "little") + forged + records[number][-32:]
        path.write_bytes(joined([*records[:number], record, *records[number + 1 :]]))
    return number


def one_bit(state: bytes) -> bytes:
    """Change the last bit of a number of an array, which leaves the form whole."""
    at = state.index(b"<f8") + 40
    return state[:at] + bytes([state[at] ^ 1]) + state[at + 1 :]


CHANGES: dict[str, Callable[[bytes], bytes]] = {
    "one bit": one_bit,
    "cut": lambda state: state[: len(state) // 2],
    "empty": lambda state: b"",
    "longer": lambda state: state + b"\0",
    "no state": lambda state: msgpack.packb([{}, [[{}, {}, {}], [{}, {}, {}], [], None, []]]),
    "a list": lambda state: msgpack.packb([1, 2, 3]),
    "deep": lambda state: b"\x91" * 5000 + b"\xc0",
    "claims much": lambda state: b"\xdd\xff\xff\xff\xff",
    "other names": lambda state: msgpack.packb([{"receive": 1, "__class__": 3}, 0]),
}


@pytest.fixture(scope="module")
def broken_off(tmp_path_factory) -> Path:
    patch = pytest.MonkeyPatch()
    patch.setattr(stage, "EVERY", EVERY)
    patch.setattr(stage, "SHARE", 0)
    folder = stopped(tmp_path_factory.mktemp("broken") / "run", 50, config("masked", 90))
    patch.undo()
    return folder


@pytest.mark.parametrize("party", [RECOMMENDER, "user:0"])
@pytest.mark.parametrize("change", CHANGES)
def test_a_forged_checkpoint_does_not_go_on_and_a_replay_names_it(tmp_path, broken_off, party, change):
    folder = Path(shutil.copytree(broken_off, tmp_path / "run"))
    number = forge(folder, party, CHANGES[change], chained=True)
    (row,) = [row for row in api.replay(folder)["parties"] if row["party"] == party]
    assert not row["identical"] and row["first_difference"]["record"] == number
    assert row["first_difference"]["kind"] == "checkpoint"
    with pytest.raises(Broken, match=r"record \d+ "):
        resume(folder)


def test_a_forged_checkpoint_at_the_end_of_a_view_is_named_when_the_role_fails(tmp_path, monkeypatch):
    """Nothing in the view follows from it yet; the role, which had no share before it was welcomed, takes any."""
    folder = tmp_path / "run"
    with monkeypatch.context() as patch:
        kill_at_a_checkpoint(patch, "user:0", 1.0)
        with pytest.raises(_Killed):
            run(config("masked", 70), out=folder)

    def misshapen(state: bytes) -> bytes:
        role, settled = msgpack.unpackb(state, strict_map_key=False)
        role["objective_share"] = msgpack.ExtType(1, msgpack.packb(["<u4", [3, 7], bytes(84)]))
        return msgpack.packb([role, settled])

    number = forge(folder, "user:0", misshapen, chained=True)
    with pytest.raises(Broken, match=f"record {number} is a checkpoint after which this role cannot do what follows"):
        resume(folder)
    assert not api.replay(folder, party="user:0")["identical"]


@pytest.mark.parametrize("change", ["one bit", "cut", "empty"])
def test_a_checkpoint_that_was_altered_does_not_fit_the_chain(tmp_path, broken_off, change):
    folder = Path(shutil.copytree(broken_off, tmp_path / "run"))
    number = forge(folder, "user:0", CHANGES[change], chained=False)
    with pytest.raises(Broken, match=f"record {number} does not fit the hash chain"):
        resume(folder)
    found = api.verify(folder)
    assert not found["verified"]


def test_what_lies_before_a_checkpoint_is_checked_against_the_chain(tmp_path, broken_off):
    folder = Path(shutil.copytree(broken_off, tmp_path / "run"))
    path = view_of(folder, "user:0")
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 1
    path.write_bytes(data)
    with pytest.raises(Broken, match="does not fit the hash chain"):
        resume(folder)


def test_an_oversized_checkpoint_is_refused_before_it_is_parsed(tmp_path, broken_off, monkeypatch):
    assert MOST_CHECKPOINT_BYTES <= view.MOST_RECORD_BYTES
    folder = Path(shutil.copytree(broken_off, tmp_path / "run"))
    monkeypatch.setattr(view, "MOST_CHECKPOINT_BYTES", 1 << 20)
    number = forge(folder, "user:0", lambda state: state + bytes(2 << 20), chained=True)
    with view_of(folder, "user:0").open("rb") as stream:
        found = view.last_checkpoint(stream, 1 << 62)
        assert found is not None and found.number < number, "the one before it"
    with pytest.raises(Broken, match=f"record {number} is a checkpoint of"):
        resume(folder)


def test_a_state_that_would_be_too_large_is_not_written(monkeypatch):
    card, seats = _cast("masked")
    party, _ = seat_party(card, seats["user:0"], with_view=True)
    assert state_of(party) is not None
    monkeypatch.setattr("protocol.freeze.MOST_CHECKPOINT_BYTES", 10)
    assert state_of(party) is None


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("name", PARTIES)
def test_whatever_the_bytes_of_a_state_are_they_are_refused_or_are_that_state(tmp_path, scheme, name):
    """Restored from altered bytes, a party has a state whose bytes are these, or is refused in one way."""
    card, seats = _cast(scheme, 90)
    state = checkpoints(stopped(tmp_path / "run", 50, config(scheme, 90)), name)[-1].fields[1]
    draw, fitting = random.Random(1), 0
    for _ in range(300):
        altered = bytearray(state)
        for _ in range(draw.randrange(1, 4)):
            altered[draw.randrange(len(altered))] = draw.randrange(256)
        fresh, _ = seat_party(card, seats[name], with_view=True)
        try:
            restore(fresh, bytes(altered))
        except Unfit:
            continue
        fitting += 1
        assert state_of(fresh) == bytes(altered)
    assert fitting < 300
    fresh, _ = seat_party(card, seats[name], with_view=True)
    restore(fresh, state)
    assert state_of(fresh) == state


# --- who may read it -------------------------------------------------------------------------------------------------


def test_a_checkpoint_stands_in_the_view_alone_and_is_not_shown(tmp_path, broken_off):
    path = view_of(broken_off, "user:0")
    assert path.stat().st_mode & 0o777 == 0o600
    assert {one.suffix for one in path.parent.iterdir()} == {".view"}
    (shown, *_) = [entry for entry in api.view(broken_off, "user:0") if entry["type"] == "checkpoint"]
    assert shown["fields"]["state"] == "secret of this party, not shown" and shown["fields"]["state_bytes"] > 100
    assert os.path.getsize(path) > shown["fields"]["state_bytes"]
