"""`hardened`: killed processes change no bit; users drop out up to the provisioned number, beyond it nothing leaves."""

from __future__ import annotations

import dataclasses
import functools
import os
import time
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import chi2
from support.audit import made
from support.basics import received

from actors.faults import PHASES, Crash, Faults
from actors.launch.launcher import Launch, Staff
from actors.metering.outcome import Outcome
from actors.own_scheme import load_scheme
from protocol.errors import Reason
from protocol.party.role import THIRD_PARTY
from protocol.schemes.hardened.hardened import Hardened
from protocol.schemes.hardened.hardened_roles import HardenedThirdParty, HardenedUser
from protocol.wire.messages import MaskedPart, OpenTaste, PartTotal
from sim.api import bandwidth, replay, verify
from sim.audit.audit import audit
from sim.audit.families.hardened.hardened_account import shares_of
from sim.drivers.inprocess import InProcess
from sim.folder.folder import read_run, read_summary
from sim.plan.config import RunConfig
from sim.plan.plan import Plan, make_plan
from sim.run.run import make_roster, resume, run

PATIENCE = 60.0  # never reached: a deadline would change who contributes
HALT = "KEYHOLE_TEST_HALT"  # in the environment of the first life of a run


@functools.cache
def plan_of() -> Plan:
    config = RunConfig(scheme="hardened", data="synthetic:12x9:.6", seed=4, options={"rounds": 2, "spare": 0.25})
    return make_plan(config)


@functools.cache
def undisturbed() -> bytes:
    plan = plan_of()
    return factors_of(InProcess(plan.card, plan.seats()).run())


def factors_of(outcome: Outcome) -> bytes:
    assert outcome.abort is None and outcome.item_factors is not None
    return outcome.item_factors.tobytes()


def run_with(folder: Path, crashes: list[Crash], on_death: str = "restart", transport: str = "ipc") -> Outcome:
    plan = plan_of()
    secrets, roster = make_roster(plan)
    folder.mkdir()
    faults = Faults(crashes=tuple(crashes))
    return Launch(roster, secrets, Staff(folder, plan.views, PATIENCE, transport, 1, on_death, faults)).run()


class HaltedUser(HardenedUser):
    """Adds to round 2 when all others have."""

    def receive(self, sender, message):
        if isinstance(message, OpenTaste) and HALT in os.environ:
            time.sleep(0.5)
        return super().receive(sender, message)


class HaltedThirdParty(HardenedThirdParty):
    """Does not add the last upload of round 2 before the run is stopped."""

    def receive(self, sender, message):
        if isinstance(message, MaskedPart) and message.iteration and len(self.sum.added) == 11 and HALT in os.environ:
            time.sleep(PATIENCE)
        return super().receive(sender, message)


class Halted(Hardened):
    def make_role(self, party, setting, tape, inputs):
        if party == "user:0":
            return HaltedUser(setting, tape, inputs)
        return HaltedThirdParty(setting) if party == THIRD_PARTY else super().make_role(party, setting, tape, inputs)


@pytest.mark.parametrize("transport", ["ipc", "inprocess"])
def test_a_run_that_is_stopped_between_its_rounds_goes_on_to_the_same_table(tmp_path, monkeypatch, transport):
    def stop(line):
        if line["iteration"] == 0:
            raise KeyboardInterrupt

    load_scheme("test_hardened_survival:Halted")
    config = dataclasses.replace(plan_of().config, scheme="test_hardened_survival:Halted", transport="inprocess")
    whole = run(config, out=tmp_path / "whole")
    with monkeypatch.context() as patch:
        if transport == "ipc":
            patch.setenv(HALT, "yes")
        stopped = run(dataclasses.replace(config, transport=transport), out=tmp_path / "run", on_line=stop)
    assert not stopped["completed"] and stopped["abort"]["reason"] == "INTERRUPTED"
    heard = [one for _, one in received(read_run(tmp_path / "run")[1], tmp_path / "run", "third_party")]
    rounds = [one.iteration for one in heard if isinstance(one, MaskedPart)]
    assert rounds.count(0) == 12 > rounds.count(1)
    summary = resume(tmp_path / "run")
    assert summary["completed"] and summary["item_factors_sha256"] == whole["item_factors_sha256"]
    assert summary["bytes"]["per_iteration"] == whole["bytes"]["per_iteration"]
    assert replay(tmp_path / "run")["identical"] and not verify(tmp_path / "run")["findings"]


KILLS = [  # a step of each role in each run; together they have every kind of step
    (("recommender", "Join"), ("third_party", "MaskedPart"), ("user:0", "MaskWelcome")),
    (("recommender", "Contributors"), ("third_party", "Agreed"), ("user:0", "OpenTaste")),
    (("recommender", "PartTotal"), ("third_party", "Hello"), ("user:0", "PublishedTaste")),
]


@pytest.mark.parametrize(("phase", "transport"), [*((phase, "ipc") for phase in PHASES), (PHASES[1], "tcp")])
def test_processes_that_end_at_any_step_change_no_bit(tmp_path, phase, transport):
    for number, kills in enumerate(KILLS):
        crashes = [Crash(*kill, 0, phase) for kill in kills]
        outcome = run_with(tmp_path / str(number), crashes, transport=transport)
        assert outcome.abort is None and outcome.restarts == len(kills)
        assert set(outcome.rejected) <= {"REPLAYED", "GAP"} and factors_of(outcome) == undisturbed()


def test_users_that_go_for_good_are_done_without_up_to_the_provisioned_number(tmp_path):
    """Three of twelve are provisioned for. With a fourth, the third party releases nothing, and says so."""
    first, later = (f"user:{user}" for user in (1, 2)), ("user:3",)
    gone = [Crash(user, "MaskWelcome", 0, PHASES[0]) for user in first]
    gone += [Crash(user, "OpenTaste", 0, PHASES[0]) for user in later]
    outcome = run_with(tmp_path / "three", gone, "drop")
    assert outcome.abort is None and sorted(outcome.gone) == ["user:1", "user:2", "user:3"]
    fourth = [Crash(f"user:{user}", "MaskWelcome", 0, PHASES[0]) for user in (1, 2, 3, 4)]
    outcome = run_with(tmp_path / "four", fourth, "drop")
    assert outcome.abort is not None and outcome.abort.reason is Reason.TOO_FEW_SHARES
    card = plan_of().card
    assert not [one for _, one in received(card, tmp_path / "four", "recommender") if isinstance(one, PartTotal)]


class AwayUser(HardenedUser):
    """Does not upload in the rounds in which it is away."""

    away: frozenset[int] = frozenset()

    def receive(self, sender, message):
        effects = super().receive(sender, message)
        return [] if self.iteration in self.away and self.iteration < self.params.rounds else effects


class Away(Hardened):
    """Other users are away in each of the two rounds, as many as the noise is provisioned for."""

    away = (range(3, 7), range(7, 11))  # of 40 users

    def make_role(self, party, setting, tape, inputs):
        if inputs is None:
            return super().make_role(party, setting, tape, inputs)
        role, user = AwayUser(setting, tape, inputs), int(party.partition(":")[2])
        role.away = frozenset(t for t, users in enumerate(self.away) if user in users)
        return role


class FarAway(Away):
    away = (range(3, 7), range(7, 12))


def test_with_users_away_in_either_round_the_claim_stands(tmp_path):
    settings = {"data": "synthetic:40x200:.1", "options": {"rounds": 2}, "deadline": 0.1}
    case = made(tmp_path / "run", "test_hardened_survival:Away", **settings)
    assert bandwidth(case.folder)["match"] and replay(case.folder)["identical"] and not verify(case.folder)["findings"]
    document = audit(case.folder, only=["inventory", "algebra", "accounting"])
    assert document["verdict"] == "within-claims"
    assert document["accounting"]["noise"]["shares"] == 36 == case.card.params.min_contributors
    rows = {"+".join(row["members"]): row for row in document["parties"]}
    assert rows["recommender"]["smallest_group"] == 36 and "100 % of share" in rows["recommender"]["works_out"]
    params, sums = case.card.params, [np.zeros(length) for length in case.card.params.lengths]
    for iteration, _, share in shares_of(case):
        sums[iteration] += share
    stated = [36 * (scale / 2**16) ** 2 for scale in params.scales]
    parts = np.concatenate([each**2 / square for each, square in zip(sums, stated, strict=True)])
    assert len(parts) == 2000 and chi2.ppf(1e-6, 2000) / 2000 > 0.85
    assert 0.85 < parts.mean() < 1.15, "the variance is that which the claim needs"


def test_beyond_that_the_run_ends_in_words_and_nothing_of_the_round_leaves(tmp_path):
    case = made(tmp_path / "run", "test_hardened_survival:FarAway", options={"rounds": 2}, deadline=0.1)
    summary = read_summary(case.folder)
    assert summary is not None and summary["abort"]["reason"] == "TOO_FEW_SHARES"
    assert "35 contributed to round 2, and 36 are needed" in summary["abort"]["sentence"]
    totals = [one for _, one in received(case.card, case.folder, "recommender") if isinstance(one, PartTotal)]
    assert [one.iteration for one in totals] == [0]
