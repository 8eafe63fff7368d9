"""Planned faults: what is drawn, what happens to frames, and that runs end with the same factors nevertheless."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pytest
from scipy import stats
from support.basics import FALSE_ALARM, small_run
from support.meter import added_up, traffic_of
from support.runs import Staged, Witnessed, end_of, long, staged

from actors.faults import (
    AGAIN_FATES,
    CALM_AFTER,
    FATES,
    LONGEST_DELAY,
    PHASES,
    Crash,
    DiskFull,
    Faults,
    Mischief,
    corrupted,
)
from actors.journal import Journal
from protocol.errors import Aborted, BadInput, Reason, Rejected
from protocol.party.party import Outgoing
from protocol.party.view import ViewWriter
from protocol.wire.codec import head_in
from protocol.wire.framing import HANDSHAKE, wire_size
from protocol.wire.messages import Again, Finish, MaskedGradient
from sim.drivers.faulty import MOST_SILENCE, FaultyInProcess, FaultyPlayed, parse_faults
from sim.drivers.inprocess import Edge, InProcess

CODEC = small_run()[0].codec


# ---- what a person asks for with --faults


@pytest.mark.parametrize(
    ("text", "seed", "rate"),
    [("7", 7, 0.05), ("7:.3", 7, 0.3), ("0:0", 0, 0.0), ("12:0.5", 12, 0.5), (f"{2**63 - 1}:1e-3", 2**63 - 1, 0.001)],
)
def test_a_seed_and_a_rate_are_read(text, seed, rate):
    assert parse_faults(text) == Faults(seed, rate)


@pytest.mark.parametrize(
    "text", ["", ":", "x", "7:", "7:x", "-1", "7:-.1", "7:.51", "7:nan", "7:inf", "1.5", "7:.1:2", str(2**63), ":.1"]
)
def test_what_is_no_seed_and_rate_is_refused_in_words(text):
    with pytest.raises(BadInput, match=r"--faults takes SEED\[:RATE\], .* between 0 and 0.5 .*, not "):
        parse_faults(text)


def test_faults_travel_as_plain_values():
    faults = Faults(3, 0.25, (Crash("user:1", "Join", 0, PHASES[1], 2),), (DiskFull("recommender", 9, 4),))
    assert Faults.from_list(msgpack.unpackb(msgpack.packb(faults.to_list()))) == faults
    assert Faults.from_list(Faults().to_list()) == Faults()


# ---- frames


def numbered(number: int, to: str = "third_party") -> Outgoing:
    return Outgoing(to, "Finish", 0, CODEC.encode(Finish(number), number, bytes([number % 256]) * 32))


def asking() -> Outgoing:
    return Outgoing("third_party", "Again", -1, CODEC.encode(Again(1, 1), 0))


def mischief(seed: int = 1, rate: float = 0.5, party: str = "user:0", life: int = 0) -> Mischief:
    return Faults(seed, rate).of(party, life, CODEC)


def test_the_fate_of_a_frame_follows_from_seed_party_life_and_its_number_to_that_receiver():
    def fates(drawn: Mischief, others: bool = False) -> list[Any]:
        told = []
        for number in range(200):
            if others:
                drawn.deliver(numbered(number, "recommender"))
            told.append(drawn.deliver(numbered(number)))
        return told

    first = fates(mischief())
    assert fates(mischief()) == fates(mischief(), others=True) == first
    for other in (mischief(seed=2), mischief(party="user:1"), mischief(life=1), mischief(rate=0.4)):
        assert fates(other) != first


def test_without_a_rate_every_frame_leaves_as_it_is():
    calm = mischief(rate=0.0)
    assert all(calm.deliver(out) == [(0, out.frame)] for out in map(numbered, range(500)))
    assert not any(calm.crashes("Finish", phase) for _ in range(5000) for phase in PHASES)


def test_as_many_frames_suffer_as_the_rate_says_and_every_fate_is_as_likely():
    drawn = mischief(rate=0.3)
    for number in range(20_000):
        drawn.deliver(numbered(number % 1000))
    suffered = sum(drawn.suffered.values())
    assert stats.binomtest(suffered, 20_000, 0.3).pvalue > FALSE_ALARM
    assert stats.binomtest(suffered, 20_000, 0.32).pvalue < FALSE_ALARM
    assert set(drawn.suffered) == set(FATES)
    assert stats.chisquare(list(drawn.suffered.values())).pvalue > FALSE_ALARM
    again = mischief(rate=0.3)
    for _ in range(2000):
        again.deliver(asking())
    assert set(again.suffered) == set(AGAIN_FATES) == set(FATES) - {"reorder", "stale", "future"}


def test_each_fate_does_to_a_frame_what_its_name_says():
    drawn, held, sent = mischief(), None, []
    for number in range(3000):
        out, before = numbered(number), drawn.suffered.copy()
        leaving = drawn.deliver(out)
        if held is not None:
            assert leaving.pop() == (0, held), "what was held leaves behind the next one"
        held = None
        [fate] = (drawn.suffered - before) or ["none"]
        rest = leaving[1:]
        if fate in ("none", "duplicate", "stale", "future"):
            assert leaving[0] == (0, out.frame)
        if fate in ("drop", "reorder"):
            assert leaving == []
            held = out.frame if fate == "reorder" else None
        elif fate == "delay":
            [(ticks, frame)] = leaving
            assert 1 <= ticks <= LONGEST_DELAY and frame == out.frame
        elif fate == "corrupt":
            [(ticks, frame)] = leaving
            assert ticks == 0 and refused(frame)
        elif fate == "future":
            [(ticks, frame)] = rest
            later, message = CODEC.decode(frame)
            assert ticks == 0 and later > number + 1000 and message.iteration == number
            assert head_in(frame) == head_in(out.frame)
        elif fate in ("duplicate", "stale"):
            [(ticks, frame)] = rest
            assert ticks == 0 and frame in (sent[-4:] if fate == "stale" and sent else [out.frame])
        else:
            assert rest == []
        sent.append(out.frame)
    assert min(drawn.suffered[fate] for fate in FATES) > 100


def refused(frame: bytes) -> Reason | None:
    try:
        CODEC.decode(frame)
    except Rejected as refusal:
        return refusal.reason
    return None


def test_a_corrupted_frame_is_one_that_the_codec_refuses():
    """Most changes in a long vector give another valid vector, so the frame is cut instead."""
    draw = random.Random(3)
    vector = np.arange(10_000, dtype=np.uint32).reshape(-1, 2)
    long_one = CODEC.encode(MaskedGradient(0, np.arange(5, dtype=np.uint32), vector[:5]), 3)
    seen = Counter()
    for frame in (numbered(5).frame, asking().frame, long_one):
        for _ in range(200):
            damaged = corrupted(frame, CODEC, draw)
            assert refused(damaged) is not None
            seen[len(frame) - len(damaged)] += 1
            if len(damaged) == len(frame):
                assert sum(a != b for a, b in zip(frame, damaged, strict=True)) == 1
    assert set(seen) == {0, 1} and min(seen.values()) > 20


# ---- crashes and disks


def test_a_planned_crash_comes_at_the_nth_step_of_its_kind_in_its_phase_and_life():
    faults = Faults(crashes=(Crash("user:0", "ItemFactors", 2, PHASES[1], incarnation=1),))

    def ends(party: str, life: int) -> list[tuple[str, int, str]]:
        drawn, kinds = faults.of(party, life, CODEC), ["start", "ItemFactors"]
        asked = [(kind, nth, phase) for nth in range(5) for kind in kinds for phase in PHASES]
        return [point for point in asked if drawn.crashes(point[0], point[2])]

    assert ends("user:0", 1) == [("ItemFactors", 2, PHASES[1])]
    assert ends("user:0", 0) == ends("user:0", 2) == ends("user:1", 1) == []


def test_crashes_by_chance_come_with_a_hundredth_of_the_rate_and_not_in_late_lives():
    def ends(life: int) -> int:
        drawn = mischief(rate=0.5, life=life)
        return sum(drawn.crashes("Join", phase) for _ in range(20_000) for phase in PHASES)

    first = ends(0)
    assert stats.binomtest(first, 60_000, 0.005).pvalue > FALSE_ALARM
    assert stats.binomtest(first, 60_000, 0.0033).pvalue < FALSE_ALARM
    assert ends(CALM_AFTER) > 0 and ends(CALM_AFTER + 1) == 0


@pytest.mark.parametrize("part", [0, 1, 20, 10_000])
def test_a_full_disk_takes_a_part_of_the_write_that_does_not_fit(part, tmp_path):
    faults = Faults(full=(DiskFull("user:0", 2, part),))

    def write(party: str, life: int, name: str) -> bytes:
        view = ViewWriter()
        journal = faults.of(party, life, CODEC).journal(Journal(str(tmp_path / name)), view)
        try:
            for kinds in (("a", "b"), ("c", "d")):
                journal.append([view.event(kind) for kind in kinds])
        finally:
            journal.close()
        return (tmp_path / name).read_bytes()

    whole = write("user:1", 0, "other")
    assert write("user:0", 1, "later") == whole
    with pytest.raises(Aborted) as caught:
        write("user:0", 0, "full")
    assert caught.value.reason is Reason.DISK_FULL and str(tmp_path / "full") in caught.value.detail
    half = len(whole) // 2
    assert (tmp_path / "full").read_bytes() == whole[: min(half + part, len(whole) - 1)]


# ---- runs with all faults

RUNS = [(scheme, wire) for scheme in ("masked", "dynamic") for wire in ("compact", "paper")]
RUNS.append(("hardened", "two rounds"))


@pytest.fixture(scope="module", params=RUNS, ids=" ".join)
def run(request) -> Staged:
    scheme, wire = request.param
    return staged("hardened", "", n_users=8, rounds=2) if scheme == "hardened" else staged(scheme, wire, n_users=4)


def suffer(run: Staged, faults: Faults, order: int, folder: Path) -> tuple[Witnessed, bool]:
    """Run to the end, resuming after a full disk; return the driver, and whether a disk was full."""
    driver = Witnessed(run, faults, folder, order=order)
    abort = driver.run().abort
    if abort is not None:
        assert abort.reason is Reason.DISK_FULL, abort
        earlier, driver = driver, Witnessed(run, faults, folder, order=order, resume=True)
        driver.written = earlier.written
        driver.outcome.restarts, driver.outcome.rejected = earlier.outcome.restarts, earlier.outcome.rejected
        later = driver.run().abort
        assert later is None, later
    return driver, abort is not None


def endure(run: Staged, plans: int, folder: Path, record: Callable[[str, object], None]) -> Counter[str]:
    whole = run.undisturbed(folder / "undisturbed")
    counts: Counter[str] = Counter(plans=plans)
    for seed in range(plans):
        draw = random.Random(seed)
        full = (DiskFull(draw.choice(sorted(run.everyone)), draw.randrange(40), draw.randrange(200)),)
        driver, was_full = suffer(run, Faults(seed, 0.3, full=full if seed % 4 == 0 else ()), seed, folder / "run")
        outcome = driver.outcome
        assert run.end_of(outcome) == whole, seed
        assert "CONFLICT" not in outcome.rejected, "a retry is the same bytes"
        driver.check_views()
        counts.update(outcome.rejected)
        counts.update(restarts=outcome.restarts, disk_full=was_full, frames=driver.frames_left)
        shutil.rmtree(folder / "run")
    print(f"\n{run.card.scheme.name} {run.card.params.wire} faults:", dict(counts))
    for name, value in counts.items():
        record(name, value)
    return counts


def test_a_run_with_many_faults_comes_to_the_same_factors_and_writes_each_of_them_down_once(
    run, tmp_path, record_property
):
    counts = endure(run, 20, tmp_path, record_property)
    assert counts["MALFORMED"] > 50 and counts["GAP"] > 50 and counts["REPLAYED"] > 50
    assert counts["restarts"] > 10 and counts["disk_full"] > 0


@long
def test_a_thousand_runs_with_many_faults_come_to_the_same_factors(run, tmp_path, record_property):
    """The runs together make more than a thousand."""
    counts = endure(run, 250, tmp_path, record_property)
    assert counts["restarts"] > 200 and counts["disk_full"] > 20


@pytest.mark.parametrize("seed", range(6))
def test_users_may_go_for_good_while_all_of_it_happens(seed, tmp_path):
    run = staged("dynamic", "compact", {"gone": {0: frozenset({1}), 1: frozenset({3})}}, n_users=5, iterations=4)
    whole = run.undisturbed(tmp_path / "undisturbed")
    driver = Witnessed(run, Faults(seed, 0.2), tmp_path / "run")
    outcome = driver.run()
    assert outcome.abort is None and end_of(outcome) == whole
    assert driver.parties["recommender"].role.gone == {1, 3}


def test_without_faults_it_is_the_driver_without_faults(tmp_path):
    run = staged("masked", "compact")
    calm = InProcess(run.card, run.seats, **run.settings(tmp_path / "calm")).run()
    faulty = FaultyInProcess(run.card, run.seats, Faults(1), **run.settings(tmp_path / "faulty")).run()
    assert faulty.views == calm.views and len(calm.views) == 6
    assert (faulty.restarts, faulty.rejected) == (0, {})


class Weighed(FaultyInProcess):
    """Adds up the bytes on the wire of every frame that leaves, by edge."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.wire: Counter[Edge] = Counter()

    def put(self, edge: Edge, frame: bytes) -> None:
        self.wire[edge] += wire_size(len(frame))
        super().put(edge, frame)


def test_what_was_metered_is_what_left_whatever_happens_to_frames():
    """The rows are those of a run without faults; with the traffic apart, less what never left, they are all bytes."""
    calm, told = staged("masked", "compact"), []
    driver = Weighed(calm.card, calm.seats, Faults(4, 0.3), on_iteration=told.append)
    outcome = driver.run()
    assert outcome.abort is None and added_up(told, outcome) == traffic_of(calm)
    metered: Counter[Edge] = Counter()
    for _, sender, receiver, kind, *_, wire in outcome.parties:
        metered[sender, receiver] += wire * (kind != HANDSHAKE)
    for what, sender, receiver, *_, wire in outcome.apart:
        metered[sender, receiver] += -wire if what == "undelivered" else wire
    assert {"resend", "again", "undelivered", "rejected:REPLAYED", "rejected:GAP"} <= {row[0] for row in outcome.apart}
    assert metered == driver.wire


def test_who_keeps_no_view_does_not_end_but_its_frames_suffer():
    card, seats = small_run()
    plain = InProcess(card, seats).run()
    crashes = tuple(Crash(seat.party, "start", 0, PHASES[0]) for seat in seats)
    outcome = FaultyInProcess(card, seats, Faults(2, 0.3, crashes)).run()
    assert outcome.abort is None and outcome.restarts == 0 and sum(outcome.rejected.values()) > 10
    assert end_of(outcome) == end_of(plain)


# ---- silence


class Silenced(FaultyPlayed):
    driver: Mute

    def leave(self, out: Outgoing) -> None:
        if not self.driver.lost(self.party.name, out):
            super().leave(out)


class Mute(FaultyInProcess):
    """A run in which some frames never leave."""

    kind = Silenced
    lost: Callable[[str, Outgoing], bool]
    rounds = 0

    def _all_ask_again(self) -> None:
        self.rounds += 1
        super()._all_ask_again()


def test_a_deadline_comes_only_after_much_silence():
    """User 2 answers nothing from iteration 1 on: two iterations end without it, each after MOST_SILENCE rounds."""
    card, seats = small_run(dropout_allowance=0.5, iterations=3)
    contributors: list[int] = []
    driver = Mute(card, seats, Faults(), on_iteration=lambda done: contributors.append(done.contributors))
    late = {"MaskedGradient": 1, "resend": -1}
    driver.lost = lambda name, out: (
        (name, out.to) == ("user:2", "third_party") and out.iteration >= late.get(out.kind, 9)
    )
    outcome = driver.run()
    assert outcome.abort is None and contributors == [0, 4, 3, 3]  # the first is the set-up
    assert driver.rounds == 2 * MOST_SILENCE


def test_a_run_in_which_nothing_moves_and_no_clock_runs_is_given_up():
    card, seats = small_run()
    driver = Mute(card, seats, Faults())
    driver.lost = lambda name, out: name == "user:2"
    outcome = driver.run()
    assert outcome.abort is not None and outcome.abort.reason is Reason.STALLED
    assert driver.rounds == MOST_SILENCE
