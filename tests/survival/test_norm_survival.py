"""`hardened` with proofs of the norm: killed processes change no bit; users that go while they prove are left out."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest
from support.basics import received

from actors.faults import PHASES, Crash, Faults
from actors.launch.launcher import Launch, Staff
from actors.metering.outcome import Outcome
from protocol.errors import Reason
from protocol.wire.messages import NormQuery, PartTotal
from sim.drivers.inprocess import InProcess
from sim.plan.config import RunConfig
from sim.plan.plan import Plan, make_plan
from sim.run.run import make_roster

PATIENCE = 60.0  # never reached: a deadline would change who contributes


@functools.cache
def plan_of() -> Plan:
    options = {"rounds": 2, "spare": 0.25, "proof": "norm"}
    return make_plan(RunConfig(scheme="hardened", data="synthetic:12x9:.6", seed=4, options=options))


@functools.cache
def undisturbed() -> bytes:
    plan = plan_of()
    return factors_of(InProcess(plan.card, plan.seats()).run())


def factors_of(outcome: Outcome) -> bytes:
    assert outcome.abort is None and outcome.item_factors is not None
    return outcome.item_factors.tobytes()


def run_with(folder: Path, crashes: list[Crash], on_death: str = "restart") -> Outcome:
    plan = plan_of()
    secrets, roster = make_roster(plan)
    folder.mkdir()
    faults = Faults(crashes=tuple(crashes))
    return Launch(roster, secrets, Staff(folder, plan.views, PATIENCE, "ipc", 1, on_death, faults)).run()


KILLS = [  # a step of each role in each run; together they have every step of a proof
    (("third_party", "ProvenPart"), ("user:0", "NormTests"), ("recommender", "NormQuery")),
    (("third_party", "NormAnswer"), ("user:0", "NormWeights"), ("recommender", "Contributors")),
    (("third_party", "NormProof"), ("user:0", "OpenTaste"), ("recommender", "PartTotal")),
    (("third_party", "NormVerdict"), ("user:0", "MaskWelcome")),
]


@pytest.mark.parametrize("phase", PHASES)
def test_processes_that_end_at_any_step_of_a_proof_change_no_bit(tmp_path, phase):
    for number, kills in enumerate(KILLS):
        outcome = run_with(tmp_path / str(number), [Crash(*kill, 0, phase) for kill in kills])
        assert outcome.abort is None and outcome.restarts == len(kills)
        assert set(outcome.rejected) <= {"REPLAYED", "GAP"} and factors_of(outcome) == undisturbed()


def test_users_that_go_while_they_prove_are_left_out_up_to_the_provisioned_number(tmp_path):
    """Three of twelve are provisioned for: one goes before each of its messages. With a fourth, nothing is released."""
    kinds = ("MaskWelcome", "NormTests", "NormWeights")
    gone = [Crash(f"user:{user}", kind, 0, PHASES[0]) for user, kind in enumerate(kinds, 1)]
    outcome = run_with(tmp_path / "three", gone, "drop")
    assert outcome.abort is None and sorted(outcome.gone) == ["user:1", "user:2", "user:3"]
    card = plan_of().card
    asked = [one for _, one in received(card, tmp_path / "three", "recommender") if isinstance(one, NormQuery)]
    everyone_else = [0, *range(4, 12)]
    assert [one.users.tolist() for one in asked] == [everyone_else] * 2
    fourth = [*gone, Crash("user:4", "NormTests", 0, PHASES[0])]
    outcome = run_with(tmp_path / "four", fourth, "drop")
    assert outcome.abort is not None and outcome.abort.reason is Reason.TOO_FEW_SHARES
    assert not [one for _, one in received(card, tmp_path / "four", "recommender") if isinstance(one, PartTotal)]
