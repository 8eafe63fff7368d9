"""A mistake in a person's own scheme is shown as such: with its lines, the party and the message, exit code 2."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from support.basics import small_run
from support.schemes import failing
from support.schemes.failing import SECRET

from actors import blame
from protocol.card import seat_party
from protocol.errors import Bug, SchemeFailed
from protocol.schemes.factorization.masked import Masked
from protocol.wire.messages import Deadline
from sim.cli.endings import guarded
from sim.plan.config import RunConfig
from sim.run.run import run

ROOT = Path(__file__).parents[3]
FLAGS = ("--data", "synthetic:9x8:.3", "--iterations", "2", "--dim", "2", "--seed", "1")
# scheme: (the party and what it was doing, the function of the scheme, the exception)
MISTAKES = {
    "FailsInReceive": ("user:0, handling ItemFactors of iteration 1 from recommender", "receive", "ZeroDivisionError"),
    "FailsAtStart": ("recommender, at its start", "start", "KeyError"),
    "FailsInTick": ("recommender, handling the event Deadline", "tick", "IndexError: pop from empty list"),
    "Exits": ("user:0, at its start", "start", "SystemExit: 0"),
    "FailsToMakeARole": ("user:1, when its role was made", "make_role", "AttributeError: "),
    "FailsInPredictions": ("user:0, when it was measured", "last_errors", "OSError: gone"),
    "FailsInParams": ("fails-in-params", "make_params", "AttributeError: 'Shape' object has no attribute 'rows'"),
    "FailsInItsFormula": ("fails-in-its-formula", "predict", "LookupError: no such flow"),
}


def keyhole(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
    return subprocess.run(
        [sys.executable, "-c", "from sim.cli.app import main; main()", *arguments],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": paths} | environment,
        capture_output=True,
        text=True,
        timeout=120,
    )


def shown(ended: subprocess.CompletedProcess[str]) -> str:
    assert ended.returncode == 2, ended.stderr
    assert "Keyhole has a bug" not in ended.stderr and "resume" not in ended.stderr and "DIED" not in ended.stderr
    return ended.stderr


@pytest.mark.parametrize("name", [name for name in MISTAKES if name != "FailsInTick"])
def test_a_mistake_is_shown_with_the_line_and_the_message_in_whose_handling_it_arose(tmp_path, name):
    """All in one process. `FailsInTick` is left out: a deadline comes only where users are silent."""
    scheme = f"support.schemes.failing:{name}"
    who, function, raised = MISTAKES[name]
    told = shown(keyhole(tmp_path, "run", "--scheme", scheme, "--transport", "inprocess", *FLAGS))
    assert f"({who}: {raised}" in told and "failing.py\", line " in told and f", in {function}\n" in told
    assert "Traceback (most recent call last):" in told and "/sim/" not in told


@pytest.mark.parametrize("name", ["FailsInReceive", "FailsToMakeARole", "Exits"])
def test_the_same_holds_for_real_processes(tmp_path, name):
    who, function, raised = MISTAKES[name]
    command = ("run", "--scheme", f"support.schemes.failing:{name}", *FLAGS, "--users-per-process", "5", "--out", "run")
    told = shown(keyhole(tmp_path, *command))
    doing = who.partition(", ")[2]  # which user is first depends on the machine
    assert doing in told and raised in told and f", in {function}\n" in told
    summary = json.loads((tmp_path / "run/summary.json").read_text())
    assert summary["abort"]["reason"] == "SCHEME_FAILED" and function in summary["abort"]["traceback"]
    assert not list((tmp_path / "run").glob("bug-*"))


def test_a_role_that_forgets_to_return_its_effects_is_told_so(tmp_path):
    config = RunConfig(scheme=own("ForgetsToReturn"), data="synthetic:5x4", iterations=1, dim=2, transport="inprocess")
    sentence = run(config, out=tmp_path / "run")["abort"]["sentence"]
    assert "handling" in sentence and "user returned None, not a list of effects: return [] there" in sentence


def test_a_scheme_whose_parties_wait_for_each_other_is_no_bug_of_keyhole(tmp_path):
    config = RunConfig(scheme=own("NeverEnds"), data="synthetic:5x4", iterations=1, dim=2, transport="inprocess")
    abort = run(config, out=tmp_path / "run")["abort"]
    assert abort["reason"] == "SCHEME_FAILED"
    assert "not every role has returned Done: user:0 is in the set-up and waits for recommender" in abort["sentence"]


def test_keys_and_seeds_in_the_words_of_an_exception_are_left_out(tmp_path):
    config = RunConfig(scheme=own("FailsAtStart"), data="synthetic:5x4", iterations=1, dim=2, transport="inprocess")
    abort = run(config, out=tmp_path / "run")["abort"]
    assert "KeyError: 'key … … is missing'" in abort["sentence"].replace('"', "'")
    assert SECRET.hex() not in json.dumps(abort) and "x02" not in json.dumps(abort)


def test_a_traceback_is_bounded():
    def deeper(left):
        return deeper(left - 1) if left else "x".nothing

    try:
        deeper(200)
    except AttributeError as error:
        error.args = ("y" * 10_000,)
        failed = blame.scheme_failed(error, failing.Failing())
    assert failed is not None and len(failed.trace) < 8000 and len(failed.detail) < 500


def test_an_event_is_named_as_a_message_is():
    card, seats = small_run(n_users=2, n_items=3)
    card = dataclasses.replace(card, scheme=failing.FailsInTick())
    party, _ = seat_party(card, seats[0], with_view=True)
    with pytest.raises(IndexError) as caught:
        party.tick(Deadline(0))
    failed = blame.scheme_failed(caught.value, card.scheme)
    assert failed is not None and MISTAKES["FailsInTick"][0] in failed.detail


def test_a_bug_of_keyholes_own_schemes_stays_a_bug(tmp_path, monkeypatch):
    def broken(*_):
        raise ZeroDivisionError

    assert blame.scheme_failed(ZeroDivisionError(), Masked()) is None
    monkeypatch.setattr("protocol.schemes.factorization.masked_roles.MaskedUser.receive", broken)
    config = RunConfig(scheme="masked", data="synthetic:5x4", iterations=1, dim=2, transport="inprocess")
    with pytest.raises(ZeroDivisionError) as caught:
        run(config, out=tmp_path / "run")
    assert not isinstance(caught.value, (Bug, SchemeFailed))
    assert any("handling" in note for note in caught.value.__notes__), "the file of a bug says where, too"


def test_commands_about_a_run_name_the_line_as_well(tmp_path):
    scheme = "support.schemes.failing:FailsLater"
    made = keyhole(tmp_path, "run", "--scheme", scheme, "--transport", "inprocess", *FLAGS, "--out", "run")
    assert made.returncode == 0, made.stderr
    replayed = keyhole(tmp_path, "replay", "run", "--trust-scheme", FAILS_LATER="1")
    assert replayed.returncode == 4 and "RuntimeError: changed since, in receive at " in replayed.stderr
    audited = keyhole(tmp_path, "audit", "run", "--only", "algebra", "--trust-scheme", "--json", FAILS_LATER="1")
    assert "Keyhole has a bug" not in audited.stderr and "in receive at " in audited.stdout + audited.stderr
    assert "failing.py, line " in audited.stdout + audited.stderr


def test_a_command_that_meets_a_mistake_ends_with_its_traceback(capsys):
    from actors.own_scheme import load_scheme

    load_scheme("support.schemes.failing:FailsInParams")

    @guarded
    def command() -> None:
        failing.FailsInParams().make_params(object())

    with pytest.raises(typer.Exit) as ended:
        command()
    assert ended.value.exit_code == 2
    told = capsys.readouterr().err
    assert ", in make_params\n" in told and "SCHEME_FAILED" in told and "fix the scheme and run again" in told


def own(name: str) -> str:
    from actors.own_scheme import load_scheme

    load_scheme(f"support.schemes.failing:{name}")
    return f"support.schemes.failing:{name}"
