"""Numbers of other widths: 16-bit factors, their effect and their cost, and rings of every width."""

from __future__ import annotations

import json
import math
import struct
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.basics import received, small_run
from support.runs import factors_of, play
from support.wire import framed

from protocol.card import Seat, seat_party
from protocol.errors import Aborted, Bug, Reason, Rejected
from protocol.party.role import RECOMMENDER
from protocol.wire.framing import wire_size
from protocol.wire.messages import ItemFactors
from sim.drivers.inprocess import InProcess
from sim.plan.config import RunConfig
from sim.run.run import run
from tests.protocol.wire.test_codec import HALVES, PACKED, codec_of, refusal
from tests.sim.cli.test_cli import keyhole, refused

TAKE_IT = ["plain", "direct", "masked", "dynamic"]
LARGEST = 65504.0  # of float16: (2 - 2^-10) 2^15


def seated(seats: list[Seat], party: str) -> Seat:
    return next(seat for seat in seats if seat.party == party)


def rounded(numbers: Any) -> list[list[float]]:
    """Round `numbers` to 16 bits and back, in Python alone."""
    return [[struct.unpack("<e", struct.pack("<e", number))[0] for number in row] for row in numbers]


# --- in a frame ------------------------------------------------------------------------------------------------------

HALF_FAULTS = {
    "one factor of two": (b"\x00\x3c", Reason.WRONG_LENGTH),
    "factors of 24 bits": (bytes(6), Reason.WRONG_LENGTH),
    "not a number": (b"\x00\x3c\x01\x7c", Reason.OUT_OF_RANGE),
    "infinity": (b"\x00\x7c\x00\x3c", Reason.OUT_OF_RANGE),
    "minus infinity": (b"\x00\x3c\x00\xfc", Reason.OUT_OF_RANGE),
}


@pytest.mark.parametrize("name", HALF_FAULTS)
def test_factors_of_16_bits_that_cannot_be(name):
    factors, reason = HALF_FAULTS[name]
    assert refusal(codec_of(form=HALVES), framed(5, 1, 0, b"", factors)) is reason


def test_every_finite_number_of_16_bits_comes_back():
    numbers = [bits for bits in range(1 << 16) if bits >> 10 & 31 != 31]
    codec = codec_of(dim=len(numbers), max_frame=1 << 20, form=HALVES)
    frame = framed(5, 1, 0, b"", struct.pack(f"<{len(numbers)}H", *numbers))
    message = codec.decode(frame)[1]
    assert message.factors.dtype == np.float32 and len(numbers) == 2 * 31 * 1024
    assert codec.encode(message, 1) == frame


@pytest.mark.parametrize("factor", [0.1, 1 + 2.0**-11, 2.0**-25])
def test_a_factor_that_16_bits_would_change_is_not_written(factor):
    rows = np.array([[1.0, factor]], np.float32)
    message = ItemFactors(0, np.zeros(0, np.uint32), rows)
    with pytest.raises(Bug, match="16-bit"):
        codec_of(form=HALVES).encode(message, 1)
    assert codec_of(form=PACKED).decode(codec_of(form=PACKED).encode(message, 1))[1].factors.tolist() == rows.tolist()


# --- in a run --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", TAKE_IT)
def test_users_are_sent_the_factors_rounded_to_16_bits_and_no_others(scheme, tmp_path):
    card, seats = small_run(scheme, factor_bits=16, iterations=2)
    driver = play(card, seats, tmp_path, ["user:1"])
    offers = [message for _, message in received(card, tmp_path, "user:1") if isinstance(message, ItemFactors)]
    items = seated(seats, "user:1").inputs.items
    first = seat_party(card, seated(seats, RECOMMENDER), with_view=False)[0].role.item_factors[items]
    assert offers[0].factors.tolist() == rounded(first) != first.tolist()
    assert all(offer.factors.tolist() == rounded(offer.factors) for offer in offers)
    kept = driver.parties[RECOMMENDER].role.item_factors
    assert kept.tolist() != rounded(kept), "the recommender itself has more"


@pytest.mark.parametrize("scheme", TAKE_IT)
def test_users_compute_with_what_they_were_sent(scheme):
    narrow, wide = (factors_of(*small_run(scheme, factor_bits=bits, epsilon=1e6)) for bits in (16, 32))
    difference = np.abs(narrow - wide).max()
    assert 0 < difference < 3 * 2.0**-10, "rounded anew in each of three iterations, by 2^-12 of at most 1"


def test_the_largest_number_of_16_bits_is_the_limit_for_the_recommender():
    """v = 0, one rater, no regularisation, γ = 1: v' = −sum."""
    one = {"n_items": 1, "dim": 1, "iterations": 1, "ratings": [{0: 3.0}], "learning_rate": 1.0}
    card, seats = small_run("plain", **one, item_regularisation=0.0, factor_bits=16)
    role = seat_party(card, seated(seats, RECOMMENDER), with_view=False)[0].role
    role.n_raters = np.ones(1, np.int64)
    role.iteration = 10_000  # by then an honest v may have grown by 10 in each step, beyond 65504
    for sign in (1.0, -1.0):
        role.item_factors = np.zeros((1, 1))
        role.move(np.zeros(1, np.uint32), np.array([[-sign * LARGEST]]))
        assert role.outgoing_factors().tolist() == [[sign * LARGEST]]
        role.item_factors = np.zeros((1, 1))
        with pytest.raises(Aborted) as caught:
            role.move(np.zeros(1, np.uint32), np.array([[-sign * np.nextafter(LARGEST, math.inf)]]))
        assert caught.value.reason is Reason.DIVERGED
        assert role.item_factors.tolist() == [[0.0]]


def test_a_user_refuses_factors_beyond_that():
    """No frame can carry such factors, so the test hands them straight to the role.

    With so large a learning rate an honest run could reach them before its last iteration.
    """
    card, seats = small_run("plain", factor_bits=16, learning_rate=2.0**20)
    user = seated(seats, "user:0")

    def answer_to(value: float) -> Any:
        factors = np.full((len(user.inputs.items), card.params.dim), value, np.float32)
        role = seat_party(card, user, with_view=False)[0].role
        return role.receive(RECOMMENDER, ItemFactors(2, np.zeros(0, np.uint32), factors))

    assert len(answer_to(LARGEST)) == len(answer_to(-LARGEST)) == 1
    for beyond in (65536.0, -65536.0):
        with pytest.raises(Rejected, match="OUT_OF_RANGE"):
            answer_to(beyond)


@pytest.mark.parametrize("scheme", TAKE_IT)
def test_a_run_whose_factors_do_not_fit_any_more_ends(scheme):
    """A learning rate of 2^20 moves some factor beyond 65504 at once; 32 bits would hold it."""
    wide, narrow = (
        InProcess(*small_run(scheme, learning_rate=2.0**20, iterations=1, factor_bits=bits)).run() for bits in (32, 16)
    )
    assert wide.abort is None and np.abs(wide.item_factors).max() > LARGEST
    assert narrow.abort is not None and narrow.abort.reason is Reason.DIVERGED
    assert "can be sent" in str(narrow.abort)


SMALL = {"data": "synthetic:8x9:.5", "dim": 3, "iterations": 3, "seed": 5}


@pytest.mark.parametrize(
    ("scheme", "flags"),
    [
        ("plain", {"factor_bits": 16}),
        ("direct", {"factor_bits": 16}),
        ("dynamic", {"factor_bits": 16, "ring_bits": 40}),
        *(("masked", {"factor_bits": 16, "ring_bits": bits, "epsilon": 1000.0}) for bits in (24, 56)),
        ("masked", {"ring_bits": 16, "epsilon": math.inf, "options": {"clip": 2.0}}),
    ],
    ids=str,
)
def test_every_width_gives_the_same_factors_in_one_process_and_in_many(scheme, flags, tmp_path):
    made = [
        run(RunConfig(scheme=scheme, transport=transport, **SMALL, **flags), out=tmp_path / transport)
        for transport in ("inprocess", "tcp")
    ]
    for digest in ("item_factors_sha256", "predictions_sha256"):
        assert made[0][digest] == made[1][digest] is not None


@pytest.mark.parametrize("scheme", ["masked", "dynamic"])
def test_rings_of_every_width_give_the_same_factors_to_the_resolution_that_they_have(scheme):
    """Roundings move a factor by less than 3 · 6 · 2^-f in three iterations, for γ = 2^-5.

    In each of them a sum of k = 4 users has 3 k roundings of half a unit 2^-f, and a factor moves by γ 2/n_j times it.
    """
    runs = {}
    for bits in (24, 32, 40, 48, 56, 64):
        card, seats = small_run(scheme, ring_bits=bits, epsilon=50.0)
        assert card.params.ring_bits == bits
        runs[bits] = (card.params.fraction_bits, factors_of(card, seats))
    fractions = [fraction for fraction, _ in runs.values()]
    assert fractions == sorted(fractions) and fractions[0] < fractions[1] < fractions[2] == 24
    finest = runs[64][1]
    for bits, (fraction, factors) in runs.items():
        worst = np.abs(factors - finest).max()
        assert worst <= 18 * 2.0**-fraction
        assert (worst > 0) == (fraction < 24), bits


# --- bytes and accuracy ----------------------------------------------------------------------------------------------


def test_twenty_items_at_dim_50_reach_a_user_in_less_than_2_4_kilobytes():
    """20 · 50 · 2 bytes of factors, 20 floors of 8 bits; array, kind, number, iteration, two headers, head."""
    ratings = [dict.fromkeys(range(20), 3.0)] * 2
    card, seats = small_run("masked", ratings=ratings, n_items=10_000, dim=50, iterations=1, factor_bits=16)
    sent: list[int] = []
    driver = InProcess(card, seats)
    receive = driver.parties["user:0"].receive

    def listen(sender: str, frame: bytes) -> Any:
        step = receive(sender, frame)
        sent.extend([len(frame)] if step.kind == "ItemFactors" else [])
        return step

    driver.parties["user:0"].receive = listen  # type: ignore[method-assign]
    assert driver.run().abort is None
    assert sent == [4 + (2 + 20) + (3 + 2000) + 32]
    assert wire_size(sent[0]) <= 2400


MEMORY = {"data": "demo-small", "transport": "inprocess", "views": "none", "seed": 3, "iterations": 30, "dim": 4}


@pytest.fixture(scope="module")
def plain_runs(tmp_path_factory) -> dict[int, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("plain")
    configs = {bits: RunConfig(scheme="plain", factor_bits=bits, **MEMORY) for bits in (16, 32)}
    return {bits: run(config, out=folder / str(bits)) for bits, config in configs.items()}


def test_the_cost_of_16_bits_is_what_plain_loses_by_them(plain_runs):
    narrow, wide = plain_runs[16]["accuracy"], plain_runs[32]["accuracy"]
    cost = narrow["factor_bits"]
    assert (cost["bits"], cost["measured_on"]) == (16, "plain")
    for figure in ("train_mae", "test_rmse"):
        lost = narrow[figure] - wide[figure]
        assert abs(lost) > 1e-6
        assert cost[f"{figure}_cost"] == pytest.approx(lost, abs=abs(lost) / 20)
    assert wide["factor_bits"] is None
    assert narrow["plain"] == wide["plain"], "what a run is compared with is sent 32 bits"


def test_the_cost_does_not_depend_on_the_noise_of_a_scheme(plain_runs, tmp_path):
    masked = run(RunConfig(scheme="masked", factor_bits=16, **MEMORY), out=tmp_path / "masked")
    assert masked["accuracy"]["factor_bits"] == plain_runs[16]["accuracy"]["factor_bits"]


def test_the_cost_counts_the_users_that_were_there(plain_runs, tmp_path):
    flags = {"scheme": "dynamic", "factor_bits": 16, "join": 0.3, "leave": 0.2}
    cost = run(RunConfig(**flags, **MEMORY), out=tmp_path / "run")["accuracy"]["factor_bits"]
    assert cost["train_mae_cost"] not in (None, plain_runs[16]["accuracy"]["factor_bits"]["train_mae_cost"])


def test_without_held_out_ratings_only_the_training_error_has_a_cost(tmp_path):
    summary = run(RunConfig(scheme="plain", factor_bits=16, test_fraction=0.0, **MEMORY), out=tmp_path / "run")
    cost = summary["accuracy"]["factor_bits"]
    assert cost["test_rmse_cost"] is None and cost["train_mae_cost"] is not None


def test_a_run_that_was_aborted_has_no_cost(tmp_path):
    config = RunConfig(scheme="plain", factor_bits=16, options={"learning_rate": 2.0**20}, **MEMORY)
    summary = run(config, out=tmp_path / "run")
    assert summary["abort"]["reason"] == "DIVERGED" and summary["accuracy"]["factor_bits"] is None


def test_the_person_is_told_the_cost_as_a_measurement(tmp_path):
    flags = ("run", "--scheme", "plain", "--data", "synthetic:6x5:.5", "--iterations", "2", "--dim", "2", "--seed", "1")
    flags = (*flags, "--transport", "inprocess", "--out", tmp_path / "run")
    shown = " ".join(keyhole(*flags, "--factor-bits", "16", "--verbose").stdout.split())
    cost = json.loads((tmp_path / "run" / "summary.json").read_text())["accuracy"]["factor_bits"]
    words = f"16-bit factors instead of 32-bit ones: train MAE {cost['train_mae_cost']:+.2g}, test RMSE"
    assert words in shown and "(measured on plain, same data and seed)" in shown
    assert "16-bit" not in keyhole(*flags, "--force").stdout


# --- flags -----------------------------------------------------------------------------------------------------------

FLAGS = ("--scheme", "masked", "--data", "synthetic:6x5:.5", "--iterations", "2", "--dim", "2", "--seed", "1")
FLAGS = ("run", *FLAGS, "--transport", "inprocess", "--epsilon", "inf", "--json", "--out")


def summary_of(*arguments: object) -> dict[str, Any]:
    return json.loads(keyhole(*arguments).stdout)


def recorded(folder: Path) -> dict[str, Any]:
    return tomllib.loads((folder / "run.toml").read_text())


def test_the_width_of_the_ring_can_be_said_in_two_ways(tmp_path):
    ways = {"flag": ("--ring-bits", "24"), "option": ("--set", "ring_bits=24")}
    ways["both"] = (*ways["flag"], *ways["option"])
    anchors = {summary_of(*FLAGS, tmp_path / way, *given)["anchor"] for way, given in ways.items()}
    assert len(anchors) == 1
    for way in ways:
        run_toml = recorded(tmp_path / way)
        assert (run_toml["run"]["ring_bits"], run_toml["params"]["ring_bits"]) == (24, 24)
        assert run_toml["run"]["options"] == {}


def test_widths_are_repeated_from_a_configuration_and_flags_win_over_it(tmp_path):
    first = summary_of(*FLAGS, tmp_path / "a", "--set", "ring_bits=24", "--factor-bits", "16")
    again = ("run", "--config", tmp_path / "a" / "run.toml", "--json", "--out")
    assert summary_of(*again, tmp_path / "b")["anchor"] == first["anchor"]
    assert recorded(tmp_path / "b")["params"] == recorded(tmp_path / "a")["params"]
    other = summary_of(*again, tmp_path / "c", "--ring-bits", "48", "--factor-bits", "32")
    assert other["ring"]["bits"] == 48 and other["accuracy"]["factor_bits"] is None
    assert recorded(tmp_path / "c")["params"]["factor_bits"] == 32


def test_without_the_flags_the_ring_is_chosen_and_factors_have_32_bits(tmp_path):
    assert summary_of(*FLAGS, tmp_path / "run")["ring"]["bits"] == 32
    run_toml = recorded(tmp_path / "run")
    assert "ring_bits" not in run_toml["run"] and run_toml["run"]["factor_bits"] == 32


@pytest.mark.parametrize("line", ['ring_bits = "24"', "ring_bits = 24.0", "factor_bits = true"])
def test_widths_in_a_configuration_are_whole_numbers(line, tmp_path):
    (tmp_path / "mine.toml").write_text(f"{line}\n")
    refused(keyhole("run", "--config", tmp_path / "mine.toml"), 2, line.split()[0])
