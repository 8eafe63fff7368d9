"""The closed formula against the metered bytes, for unusual courses of a run: row by row, to the byte."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgpack
import pytest
from support.meter import added_up
from support.runs import Directed

from actors.metering.meter import row_key
from actors.metering.outcome import IterationDone
from protocol.party.party import Outgoing
from protocol.schemes import SCHEMES
from protocol.wire.messages import Gone
from sim.bandwidth.bandwidth import course_of
from sim.drivers.inprocess import InProcess, Played
from sim.folder.byte_records import Ledger
from sim.folder.traffic import Forecast
from sim.plan.config import RunConfig
from sim.plan.plan import Plan, make_plan

WIRES = ("compact", "paper")
Rows = dict[tuple[int, str, str, str], list[float]]


class Loser(Played):
    driver: Losing

    def leave(self, out: Outgoing) -> None:
        if out.kind == "BlindedShare" and self.party.name in self.driver.losers:
            self.driver.losers -= {self.party.name}
            self.figures.sent(out)
            return
        super().leave(out)


class Losing(InProcess):
    """A driver that loses the first commitment of each of the `losers` on its way."""

    kind = Loser
    losers: frozenset[str] = frozenset()


def both(driver: type[InProcess] = Directed, disturbed: Mapping[str, Any] | None = None, **flags: Any) -> Any:
    """(what was metered, what the formula gives for the course that was told, the run)."""
    plan = make_plan(RunConfig(**{"data": "demo-small", "seed": 3, "dim": 2, **flags}))
    told: list[IterationDone] = []
    churn = plan.churn()
    events = churn.events if churn else None
    run = driver(plan.card, plan.seats(), on_iteration=told.append, events_for=events, **disturbed or {})
    outcome = run.run()
    assert outcome.abort is None
    measured = {row_key(row): [row.messages, row.payload_bytes, row.wire_bytes] for row in added_up(told, outcome)}
    courses = {done.iteration: done.course for done in told}
    turns = [courses[t] for t in range(plan.card.params.iterations)] if 0 in courses else []
    ledger = Ledger(setup=courses[-1], turns=turns, end=outcome.course)
    return measured, predicted(plan, ledger), outcome


def predicted(plan: Plan, ledger: Ledger) -> Rows:
    scheme, params = plan.card.scheme, plan.card.params
    forecast = Forecast()
    forecast.add(scheme.predict(params, course_of(scheme, params, plan.data.train, ledger)))
    return dict(forecast.rows)


CHURN = {"join": 0.3, "leave": 0.3}


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("flags", [CHURN, {**CHURN, "online": 9}, {"join": 0.2, "leave": 0.4}], ids=str)
def test_users_who_come_and_go_until_numbers_need_two_and_three_bytes(wire, flags):
    measured, formula, _ = both(scheme="dynamic", wire=wire, iterations=300, **flags)
    assert formula == measured
    assert any(kind == "Absent" for _, _, _, kind in measured)


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("scheme", ["masked", "dynamic"])
def test_answers_that_come_too_late_use_up_their_numbers(scheme, wire):
    late = {t: frozenset(range(t % 7, 40, 7)) for t in range(2, 30)}
    measured, formula, run = both(disturbed={"silent": late}, scheme=scheme, wire=wire, iterations=140)
    assert formula == measured
    assert run.rejected["WRONG_ITERATION"] > 30


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("scheme", ["masked", "dynamic"])
def test_users_who_are_gone_are_not_written_to_any_more(scheme, wire):
    gone = {0: frozenset({1}), 3: frozenset({5, 6}), 9: frozenset(range(20, 30))}
    measured, formula, run = both(disturbed={"gone": gone}, scheme=scheme, wire=wire, iterations=12)
    assert formula == measured
    assert run.course["finished"] == "0,2-4,7-19,30-39"


@pytest.mark.parametrize("wire", WIRES)
def test_a_user_that_never_came(wire):
    class Missing(Directed):
        def _begin(self, names: Iterable[str]) -> None:
            super()._begin([name for name in names if name != "user:3"])
            self.left.add(3)
            for server in ("recommender", "third_party"):
                self._tell(server, Gone(3))

        def _close(self) -> None:
            del self._cast["user:3"]  # it made no handshake
            super()._close()

    measured, formula, _ = both(Missing, scheme="dynamic", wire=wire, iterations=5, join=0.0, leave=0.0)
    assert formula == measured
    assert measured[-1, "user", "recommender", "Join"][0] == 39


@pytest.mark.parametrize("wire", WIRES)
def test_a_commitment_that_has_to_start_again(wire):
    class Unlucky(Losing):
        losers = frozenset({"user:0", "user:7"})

    measured, formula, _ = both(Unlucky, scheme="dynamic", wire=wire, iterations=5, join=0.0, leave=0.0)
    assert formula == measured
    assert measured[-1, "recommender", "third_party", "OpenCommitment"][0] == 2
    assert measured[-1, "third_party", "recommender", "SealedTotal"][0] == 2


@pytest.mark.parametrize("bits", [16, 24, 32, 40, 48, 56, 64])
def test_every_ring_width(bits):
    flags = {"scheme": "masked", "iterations": 3, "epsilon": float("inf"), "options": {"clip": 1.0}}
    measured, formula, _ = both(ring_bits=bits, **flags)
    assert formula == measured
    supports = [len(user.items) for user in make_plan(RunConfig(data="demo-small", seed=3)).data]
    vectors = [len(msgpack.packb(bytes(bits // 8 * 2 * rated))) for rated in supports]  # dim 2
    rest = measured[0, "user", "third_party", "MaskedGradient"][1] - sum(vectors)
    # header, kind, two numbers, a bit for each of 60 items or a byte for each that was rated, a head
    assert rest == sum(4 + 2 + min(rated, 8) + 32 for rated in supports)


@pytest.mark.parametrize("scheme", sorted(name for name in SCHEMES if "factor_bits" in SCHEMES[name].flags))
def test_half_as_many_bytes_for_16_bit_factors(scheme):
    measured, formula, _ = both(scheme=scheme, iterations=3, factor_bits=16)
    assert formula == measured
    whole, _, _ = both(scheme=scheme, iterations=3)
    rows = [(3, "recommender", "user", "Publication")]
    rows += [(0, "recommender", "user", "ItemFactors")] if scheme != "trusted" else []
    for row in rows:
        assert 0.5 < measured[row][1] / whole[row][1] < 0.75
