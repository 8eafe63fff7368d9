"""A whole run that was stopped, by Ctrl-C or by SIGKILL of all its processes, goes on to the same factors."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from support.basics import all_gone, hear_ctrl_c
from support.meter import read_bandwidth, rows_in

from protocol.errors import Aborted, BadInput
from protocol.party.role import user_index
from protocol.party.view import Broken, read_records
from protocol.wire.framing import Traffic
from sim import api
from sim.plan.config import RunConfig
from sim.run.run import gone_users, resume, run

ROOT = Path(__file__).parents[2]
SMALL = {"data": "synthetic:12x9:.5", "dim": 3, "iterations": 30, "seed": 6}
DYNAMIC = {**SMALL, "scheme": "dynamic", "join": 0.2, "leave": 0.1}
PATIENCE = 60.0


def start(folder: Path, *verb: str, **flags: object) -> subprocess.Popen[str]:
    options = [f"--{name.replace('_', '-')}={value}" for name, value in flags.items()]
    where = ["--out", str(folder)] if verb == ("run",) else [str(folder)]
    command = [sys.executable, "-m", "sim", *verb, *where, *options, "--json"]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=ROOT, stdout=pipe, stderr=pipe, text=True, preexec_fn=hear_ctrl_c)


def lines(folder: Path) -> list[dict]:
    path = folder / "iterations.jsonl"
    return [json.loads(line) for line in path.read_text().split("\n")[:-1]] if path.is_file() else []


def metered(folder: Path) -> list[Traffic]:
    return rows_in(lines(folder), read_bandwidth(folder))


def await_lines(process: subprocess.Popen[str], folder: Path, count: int) -> None:
    until = time.monotonic() + PATIENCE
    while len(lines(folder)) < count:
        assert process.poll() is None and time.monotonic() < until, process.communicate()
        time.sleep(0.005)


def await_file(process: subprocess.Popen[str], path: Path) -> None:
    until = time.monotonic() + PATIENCE
    while not path.exists():
        assert process.poll() is None and time.monotonic() < until, process.communicate()
        time.sleep(0.005)


def family(process: subprocess.Popen[str]) -> list[psutil.Process]:
    return [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]


def kill_everything(process: subprocess.Popen[str]) -> None:
    for member in family(process):
        with contextlib.suppress(psutil.NoSuchProcess):
            member.kill()
    process.communicate()


def finish(process: subprocess.Popen[str]) -> dict:
    output, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, errors
    return json.loads(output)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> dict:
    return run(RunConfig(**DYNAMIC), out=tmp_path_factory.mktemp("undisturbed") / "run")


def check_same(summary: dict, undisturbed: dict, folder: Path) -> None:
    assert summary["completed"] and summary["abort"] is None
    assert summary["item_factors_sha256"] == undisturbed["item_factors_sha256"]
    assert summary["predictions_sha256"] == undisturbed["predictions_sha256"] is not None
    assert [line["iteration"] for line in lines(folder)] == list(range(-1, SMALL["iterations"]))
    assert summary["bytes"]["per_iteration"] == undisturbed["bytes"]["per_iteration"]
    assert metered(folder) == metered(Path(undisturbed["run"]))
    assert read_bandwidth(folder)["kernel"] is None, "nobody knows what went over the connections of an earlier life"
    assert summary["dropouts"] == undisturbed["dropouts"]
    for figure in ("train_mae", "test_rmse", "mae_increase"):
        assert summary["accuracy"][figure] == undisturbed["accuracy"][figure]
    assert set(summary["rejected"]) <= {"REPLAYED", "GAP"}


def test_a_run_that_is_killed_again_and_again_ends_with_the_same_factors(tmp_path, undisturbed):
    folder, draw = tmp_path / "run", random.Random(1)
    process = start(folder, "run", **DYNAMIC)
    await_file(process, folder / "views" / "recommender.view")
    for count in (0, 4, 11, 12, 25):
        await_lines(process, folder, count)
        time.sleep(0.02 * draw.random())
        kill_everything(process)
        process = start(folder, "resume")
    check_same(finish(process), undisturbed, folder)


def test_ctrl_c_leaves_a_run_that_can_be_resumed(tmp_path, undisturbed):
    folder = tmp_path / "run"
    process = start(folder, "run", **DYNAMIC)
    await_lines(process, folder, 5)
    children = family(process)[1:]
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 5
    summary = json.loads(output)
    assert summary["abort"]["reason"] == "INTERRUPTED" and not summary["completed"]
    assert f"keyhole resume {folder}" in errors
    assert all_gone(children)
    for party, entry in summary["views"].items():  # where each view stood
        with open(folder / "views" / f"{party.replace(':', '-')}.view", "rb") as stream:
            *_, last = read_records(stream)
        assert (last.number + 1, last.head.hex()) == (entry["records"], entry["head"])
    assert len(summary["views"]) == 14
    check_same(finish(start(folder, "resume")), undisturbed, folder)


@pytest.mark.parametrize("transport", ["ipc", "inprocess"])
@pytest.mark.parametrize("scheme", ["masked", "direct", "plain", "trusted", "dynamic"])
def test_every_scheme_and_transport_resumes(tmp_path, scheme, transport):
    config = RunConfig(**SMALL | {"scheme": scheme, "transport": transport})
    whole = run(RunConfig(**vars(config) | {"transport": "inprocess"}), out=tmp_path / "whole")

    def stop(line: dict) -> None:
        if line["iteration"] == min(7, SMALL["iterations"] - 1):
            raise KeyboardInterrupt

    stopped = run(config, out=tmp_path / "run", on_line=stop)
    assert stopped["completed"] == (scheme == "trusted")  # it has no iterations to stop after
    (tmp_path / "run" / "summary.json").unlink()
    summary = resume(tmp_path / "run")
    assert summary["completed"] and summary["item_factors_sha256"] == whole["item_factors_sha256"]
    assert summary["bytes"]["per_iteration"] == whole["bytes"]["per_iteration"]
    assert metered(tmp_path / "run") == metered(tmp_path / "whole")
    done, all_of_them = lines(tmp_path / "run"), lines(tmp_path / "whole")
    assert [line["iteration"] for line in done] == [line["iteration"] for line in all_of_them]


def test_a_completed_run_is_only_shown(tmp_path):
    summary = run(RunConfig(**SMALL | {"iterations": 3}), out=tmp_path / "run")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "run").rglob("*") if path.name != "lock"}
    (tmp_path / "run").rename(tmp_path / "moved")
    assert api.resume(tmp_path / "moved") == summary | {"run": str(tmp_path / "moved")}
    after = {path: path.stat().st_mtime_ns for path in (tmp_path / "moved").rglob("*") if path.name != "lock"}
    assert sorted(after.values()) == sorted(before.values())


def test_nobody_resumes_or_replaces_a_run_while_an_actor_lives(tmp_path, undisturbed):
    """A stopped actor still holds the lock."""
    folder = tmp_path / "run"
    process = start(folder, "run", **DYNAMIC)
    await_lines(process, folder, 3)
    os.kill(family(process)[-1].pid, signal.SIGSTOP)
    with pytest.raises(BadInput, match="still running"):
        resume(folder)
    with pytest.raises(BadInput, match="still running"):
        run(RunConfig(**DYNAMIC), out=folder, force=True)
    kill_everything(process)
    check_same(resume(folder), undisturbed, folder)


def test_when_the_launcher_is_killed_every_child_is_gone_within_two_seconds(tmp_path):
    folder = tmp_path / "run"
    process = start(folder, "run", **DYNAMIC | {"iterations": 100_000})
    await_lines(process, folder, 3)
    children = family(process)[1:]
    assert len(children) == 1 + 2 + 12
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert all_gone(children, seconds=2.0)


def test_what_cannot_go_on_is_refused_in_words(tmp_path):
    with pytest.raises(BadInput, match=r"no run\.toml"):
        resume(tmp_path)
    run(RunConfig(**SMALL | {"iterations": 2, "views": "servers"}), out=tmp_path / "few")
    (tmp_path / "few" / "summary.json").unlink()
    with pytest.raises(BadInput, match="cannot go on"):
        resume(tmp_path / "few")


def test_users_that_had_gone_for_good_stay_away(tmp_path):
    folder = tmp_path / "run"
    process = start(folder, "run", **DYNAMIC | {"iterations": 400, "on_death": "drop"})
    await_lines(process, folder, 5)
    for user in family(process)[-2:]:
        user.kill()
    await_lines(process, folder, len(lines(folder)) + 10)
    kill_everything(process)
    summary = resume(folder)
    assert summary["completed"] and len(summary["gone"]) == 2 and all(user_index(user) >= 0 for user in summary["gone"])
    assert summary["users"] == 12 and len(summary["views"]) == 12  # two servers and ten users
    found = api.verify(folder)
    assert found["verified"] and any(summary["gone"][1].replace(":", "-") in note for note in found["notes"])


def test_who_has_gone_is_known_from_any_server(tmp_path):
    """One of the servers may have been killed before it was told."""
    folder = tmp_path / "run"
    process = start(folder, "run", **DYNAMIC | {"iterations": 400, "on_death": "drop"})
    await_lines(process, folder, 5)
    family(process)[-1].kill()
    await_lines(process, folder, len(lines(folder)) + 10)
    kill_everything(process)
    (gone,) = gone_users(folder, ["recommender"])  # whichever the system lists last
    assert user_index(gone) >= 0 and gone_users(folder, ["third_party"]) == {gone}
    assert gone_users(folder, ["nobody", "third_party"]) == {gone} and gone_users(folder, ["user:0"]) == set()


@pytest.mark.parametrize("transport", ["tcp", "inprocess"])
def test_a_view_that_was_altered_does_not_go_on(tmp_path, transport):
    assert not stopped(tmp_path / "run", 9, transport)["completed"]
    path = tmp_path / "run" / "views" / "user-3.view"
    view = path.read_bytes()
    path.write_bytes(view[:400] + bytes([view[400] ^ 1]) + view[401:])
    with pytest.raises(Broken, match="does not fit the hash chain"):
        resume(tmp_path / "run")


@pytest.mark.parametrize("transport", ["tcp", "inprocess"])
@pytest.mark.parametrize("party", ["recommender", "third_party", "user-3"])
@pytest.mark.parametrize("left", [0.0, 0.5])
def test_a_view_that_ends_before_what_others_have_of_it_is_named_at_once(tmp_path, transport, party, left):
    """The run could only wait for it: the others never ask for what they have, nor send what it has lost."""
    assert not stopped(tmp_path / "run", 9, transport)["completed"]
    path = tmp_path / "run" / "views" / f"{party}.view"
    if left:
        with path.open("r+b") as view:
            view.truncate(int(left * path.stat().st_size))
    else:
        path.unlink()
    with pytest.raises(Broken, match=f"the view of {party.replace('-', ':')} ends too early"):
        resume(tmp_path / "run")


@pytest.mark.parametrize("transport", ["tcp", "inprocess"])
def test_a_run_that_has_lost_all_its_views_is_lived_again(tmp_path, undisturbed, transport):
    """The log of iterations is ahead of every view, so its lines must not count as already reported."""
    assert not stopped(tmp_path / "run", 9, transport)["completed"]
    shutil.rmtree(tmp_path / "run" / "views")
    found = resume(tmp_path / "run")
    assert found["completed"] and found["item_factors_sha256"] == undisturbed["item_factors_sha256"]
    assert [line["iteration"] for line in lines(tmp_path / "run")] == list(range(-1, SMALL["iterations"]))


def stopped(folder: Path, at: int, transport: str = "inprocess") -> dict:
    def stop(line: dict) -> None:
        if line["iteration"] == at:
            raise KeyboardInterrupt

    return run(RunConfig(**DYNAMIC, transport=transport), out=folder, on_line=stop)


def test_a_record_that_was_cut_off_is_set_aside_and_not_thrown_away(tmp_path, undisturbed):
    assert not stopped(tmp_path / "run", 9)["completed"]
    path = tmp_path / "run" / "views" / "user-0.view"
    with path.open("ab") as view:
        view.write(b"\x50\x00\x00\x00torn")
    check_same(resume(tmp_path / "run"), undisturbed, tmp_path / "run")
    aside = tmp_path / "run" / "views" / "user-0.view.cut"
    assert aside.read_bytes() == b"\x50\x00\x00\x00torn" and aside.stat().st_mode & 0o777 == 0o600
    assert api.verify(tmp_path / "run")["verified"]


@pytest.mark.parametrize("what", ["sim.run.summary.IterationLog.add", "sim.run.run.write_summary"])
def test_a_disk_that_is_full_for_the_launcher_has_its_reason_too(tmp_path, monkeypatch, undisturbed, what):
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(what, fail)
        with pytest.raises(Aborted, match=r"DISK_FULL.*No space left"):
            run(RunConfig(**DYNAMIC, transport="inprocess"), out=tmp_path / "run")
    check_same(resume(tmp_path / "run"), undisturbed, tmp_path / "run")


def test_a_run_does_not_go_on_with_other_ratings(tmp_path):
    ratings = tmp_path / "ratings.csv"
    rows = [f"{user},{item},{1 + (user + item) % 5}" for user in range(6) for item in range(5) if (user + item) % 3]
    ratings.write_text("user,item,rating\n" + "\n".join(rows) + "\n")
    config = RunConfig(**SMALL | {"iterations": 3, "data": str(ratings), "transport": "inprocess"})
    run(config, out=tmp_path / "run")
    (tmp_path / "run" / "summary.json").unlink()
    changed = rows[0][:-1] + ("1" if rows[0][-1] == "5" else "5")
    ratings.write_text("user,item,rating\n" + "\n".join([changed, *rows[1:]]) + "\n")
    with pytest.raises(Broken, match="other data"):
        resume(tmp_path / "run")
    ratings.write_text("user,item,rating\n" + "\n".join([*rows, "6,0,3"]) + "\n")
    with pytest.raises(BadInput, match="not what it was"):
        resume(tmp_path / "run")
