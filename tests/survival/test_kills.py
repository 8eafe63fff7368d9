"""Real processes, killed at a planned moment: every role × every step × {before the journal, after it, after sending}.

Three kills share a run, one of each role. With KEYHOLE_LONG set, every kill has its own run, for both wires and two
schemes, at the first and at a later step of its kind.
"""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path

import numpy as np
import pytest
from support.runs import End, end_of, long

from actors.faults import PHASES, Crash, DiskFull, Faults
from actors.launch.launcher import Launch, Staff
from actors.metering.outcome import Outcome
from sim.drivers.faulty import with_a_full_disk
from sim.drivers.inprocess import InProcess
from sim.plan.config import RunConfig
from sim.plan.plan import Plan, make_plan
from sim.run.run import make_roster, resume, run
from sim.run.summary import digest_of_predictions

DEADLINE = 20.0  # never reached: a deadline would change who contributes
SERVER_STEPS = {
    "dynamic": {
        "recommender": "start Hello Join Due Present SealedTotal Contributors MaskedTotal Absent",
        "third_party": "start Hello OpenCommitment BlindedShare OpenSum MaskedGradient Agreed Finish",
    },
    "masked": {
        "recommender": "start Hello Join Contributors MaskedTotal",
        "third_party": "start Hello OpenSum MaskedGradient Agreed Finish",
    },
}
USER_STEPS = {
    ("dynamic", "compact"): "start Churn Hello Welcome Commit ItemFactors Publication Finish",
    ("dynamic", "paper"): "start Churn Hello CommitInFull ItemFactorsWithPieces Publication Finish",
    ("masked", "compact"): "start Hello Welcome ItemFactors Publication Finish",
    ("masked", "paper"): "start Hello WelcomeInFull ItemFactorsInFull Publication Finish",
}
ONCE = {"start", "Welcome", "WelcomeInFull", "Commit", "CommitInFull", "OpenCommitment", "SealedTotal"}
ONCE |= {"Publication", "Finish", "Churn"}

Kill = tuple[str, str]  # party, kind of the step


@functools.cache
def plan_of(scheme: str, wire: str = "compact") -> Plan:
    flags = {"join": 0.3, "leave": 0.1} if scheme == "dynamic" else {}
    return make_plan(
        RunConfig(scheme=scheme, data="synthetic:7x6:.6", dim=2, iterations=6, seed=4, wire=wire, **flags)
    )


@functools.cache
def undisturbed(scheme: str, wire: str = "compact") -> End:
    plan = plan_of(scheme, wire)
    churn = plan.churn()
    return end_of(InProcess(plan.card, plan.seats(), events_for=churn.events if churn else None).run())


def steps(scheme: str, wire: str = "compact") -> dict[str, list[str]]:
    """List the kinds of steps of each role; the user is one that is online from the beginning."""
    churn = plan_of(scheme, wire).churn()
    user = int(np.flatnonzero(churn.online(0))[0]) if churn else 0
    kinds = SERVER_STEPS[scheme] | {f"user:{user}": USER_STEPS[scheme, wire]}
    return {party: text.split() for party, text in kinds.items()}


def run_with(
    plan: Plan,
    folder: Path,
    crashes: list[Crash],
    transport: str = "tcp",
    pack: int = 1,
    faults: Faults | None = None,
) -> Outcome:
    secrets, roster = make_roster(plan)
    churn = plan.churn()
    folder.mkdir()
    staff = Staff(folder, plan.views, DEADLINE, transport, pack, faults=faults or Faults(crashes=tuple(crashes)))
    return Launch(roster, secrets, staff, None, churn.events if churn else None).run()


def columns() -> list[tuple[str, tuple[Kill, ...]]]:
    """Combine one step of every role at a time; the shorter lists begin again, so that every step has its turn."""
    kinds = steps("dynamic")
    most = max(map(len, kinds.values()))
    rows = [tuple((party, own[at % len(own)]) for party, own in kinds.items()) for at in range(most)]
    return [(phase, row) for phase in PHASES for row in rows]


def check(outcome: Outcome, kills: int, scheme: str, wire: str = "compact") -> None:
    assert outcome.abort is None
    assert outcome.restarts == kills, "every planned kill fired, and nothing else ended"
    assert set(outcome.rejected) <= {"REPLAYED", "GAP"}  # frames that came twice, or before one that was lost
    assert end_of(outcome) == undisturbed(scheme, wire)


@pytest.mark.parametrize(("phase", "kills"), columns(), ids=lambda value: value if isinstance(value, str) else "")
def test_a_process_of_each_role_may_end_at_any_step(tmp_path, phase, kills):
    outcome = run_with(plan_of("dynamic"), tmp_path / "run", [Crash(*kill, 0, phase) for kill in kills])
    check(outcome, len(kills), "dynamic")


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("scheme", ["dynamic", "masked"])
def test_a_recommender_may_end_in_the_step_that_publishes(tmp_path, scheme, phase):
    """In this step it hears the last total. Every user still gets its publication, once, and predicts."""
    plan = plan_of(scheme)
    last = Crash("recommender", "MaskedTotal", plan.card.params.iterations - 1, phase)
    check(run_with(plan, tmp_path / "run", [last]), 1, scheme)


def test_the_same_process_may_end_again_and_again(tmp_path):
    """It ends at another step in each life; over ipc, with several users in a process."""
    crashes = [
        Crash(party, kind, 0, PHASES[at % 3], incarnation=at)
        for party, kinds in steps("dynamic").items()
        for at, kind in enumerate(["start", *(kind for kind in kinds if kind not in ONCE)])
    ]
    outcome = run_with(plan_of("dynamic"), tmp_path / "run", crashes, "ipc", pack=3)
    assert outcome.abort is None and outcome.restarts >= 5
    assert end_of(outcome) == undisturbed("dynamic")


@pytest.mark.parametrize("seed", [1, 3])
def test_a_run_with_faults_of_every_kind_ends_with_the_same_factors(tmp_path, seed):
    """Frames lost, doubled, late, damaged and out of turn, and processes that end, all at once."""
    outcome = run_with(plan_of("dynamic"), tmp_path / "run", [], faults=Faults(seed, 0.3))
    assert outcome.abort is None and outcome.restarts > 0
    assert {"GAP", "MALFORMED", "REPLAYED"} <= set(outcome.rejected)
    assert not {"CONFLICT", "WRONG_ITERATION"} & set(outcome.rejected)
    assert end_of(outcome) == undisturbed("dynamic")


DISKS = [DiskFull("recommender", 20, 30), DiskFull("third_party", 25), DiskFull("user:0", 6, 50)]


@pytest.mark.parametrize("disk", DISKS)
def test_a_full_disk_ends_the_run_with_a_reason_and_the_run_goes_on_from_there(tmp_path, monkeypatch, disk):
    """This holds at a server and at a user, between two records and in the middle of one."""
    monkeypatch.setattr("sim.run.run.with_a_full_disk", lambda faults, parties: Faults(full=(disk,)))
    config = RunConfig(scheme="dynamic", data="synthetic:7x6:.6", dim=2, iterations=6, seed=4, join=0.3, leave=0.1)
    stopped = run(dataclasses.replace(config, faults="1:0"), out=tmp_path / "run")
    assert stopped["abort"]["reason"] == "DISK_FULL" and disk.party.replace(":", "-") in stopped["abort"]["sentence"]
    summary, (factors, predictions) = resume(tmp_path / "run"), undisturbed("dynamic")
    assert summary["completed"] and summary["predictions_sha256"] == digest_of_predictions(predictions)
    assert np.load(tmp_path / "run" / "model" / "item_factors.npy").tobytes() == factors


def test_by_chance_a_disk_is_full_once_in_a_run():
    drawn = [with_a_full_disk(Faults(seed, 0.2), ["recommender", "user:0"]).full for seed in range(500)]
    assert 60 <= sum(map(len, drawn)) <= 140 and {len(full) for full in drawn} == {0, 1}
    assert {full[0].party for full in drawn if full} == {"recommender", "user:0"}


def single_kills() -> list[tuple[str, str, Crash]]:
    kills = []
    for scheme, wire in USER_STEPS:
        for party, kinds in steps(scheme, wire).items():
            for kind in kinds:
                for phase in PHASES:
                    kills.append((scheme, wire, Crash(party, kind, 0, phase)))
                    if kind not in ONCE and not (kind == "Hello" and party.startswith("user:")) and kind != "Absent":
                        kills.append((scheme, wire, Crash(party, kind, 1, phase)))
    return kills


@long
def test_every_kill_in_a_run_of_its_own(tmp_path):
    fired = 0
    kills = single_kills()
    for number, (scheme, wire, crash) in enumerate(kills):
        outcome = run_with(plan_of(scheme, wire), tmp_path / str(number), [crash])
        assert outcome.abort is None, (scheme, wire, crash, outcome.abort)
        assert end_of(outcome) == undisturbed(scheme, wire), (scheme, wire, crash)
        fired += outcome.restarts
    print(f"{fired} of {len(kills)} planned kills fired; every run completed with identical factors")
    assert fired >= 0.95 * len(kills)
