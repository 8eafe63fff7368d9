"""Send hostile frames at every moment of small runs of the schemes that factorize:

    python -m tests.hostile.fuzz --frames 1000000 --seed 1

Each party is brought to each moment of its run and given mutated frames. It must refuse or accept each of them; nothing
else may happen. A refused frame changes nothing, except that a frame that was understood may add to the count of its
sender's frames. The party must accept exactly the frames that `support.attackers.acceptable` calls acceptable; that
module uses none of the code under test.
"""

from __future__ import annotations

import argparse
import copy
import dataclasses
import hashlib
import multiprocessing
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # the folder that contains `support`

from support.attackers.acceptable import Moment, Reader, Said, hello_of
from support.attackers.mutate import Mutator, TrueFrame, true_frame
from support.basics import small_ratings, small_run
from support.runs import Directed
from support.snapshot import snapshot
from support.wire import KINDS, framed

from protocol.card import Card, Seat, seat_party
from protocol.party.party import KEPT_FRAMES, Party, Step
from protocol.schemes import SCHEMES
from sim.plan.churn import ChurnPlan

# the schemes for which `acceptable` states what is right at each moment; the others: test_fuzz_siblings
SETUPS = [(scheme, "compact") for scheme in KINDS if SCHEMES[scheme].factorizes]
SETUPS += [("masked", "paper"), ("dynamic", "paper")]
LOSES = {1: frozenset({1})}  # in `dynamic` users come and go, and the process of user 1 ends in iteration 1
USERS, ITEMS, DIM, ITERATIONS = 4, 40, 2, 3
RATED = 5  # items, every seventh: four of them or fewer travel one by one, all five as a sum of powers of two
RATINGS = [{7 * item: stars for item, stars in rated.items()} for rated in small_ratings(USERS, RATED)]
BATCH = 50  # refused frames between two comparisons of the party's whole state
STRANGERS = (f"user:{USERS}", "nobody")  # the first one has introduced itself, the other has not
_SHARED = ("setting", "params", "tape")  # attributes of a role that have no state
_ABORTS = {
    "Contributors": {"DISAGREEMENT"},
    "Agreed": {"DISAGREEMENT"},
    "Join": {"OUT_OF_RANGE"},  # more raters of an item than the ring was chosen for
    "MaskedTotal": {"DIVERGED"},
    "NoisyGradient": {"DIVERGED"},
}


@dataclass(slots=True)
class Input:
    """What reached a party in the true run, and what it sent in answer."""

    sender: str  # "" for an event
    what: Any  # a frame, or an event
    said: list[tuple[str, bytes]] = field(default_factory=list)


class Rehearsal:
    """A small run without faults, with everything that reached each party."""

    def __init__(self, scheme: str, wire: str, order: int) -> None:
        self.scheme, self.wire = scheme, wire
        settings = {"n_items": ITEMS, "dim": DIM, "iterations": ITERATIONS, "wire": wire, "ratings": RATINGS}
        changing = scheme == "dynamic"
        self.card, seats = small_run(scheme, **settings, **({"dropout_allowance": 0.5} if changing else {}))
        self.seats = {seat.party: seat for seat in seats}
        self.met: dict[str, list[Input]] = {name: [] for name in self.seats}
        self.first: dict[str, list[tuple[str, bytes]]] = {}
        events = {"events_for": ChurnPlan(USERS, 0.5, 0.3, bytes(range(32))).events, "gone": LOSES} if changing else {}
        with tempfile.TemporaryDirectory() as folder:
            run = Directed(self.card, seats, run_folder=folder, with_view=frozenset(self.seats), order=order, **events)
            for name, party in run.parties.items():
                self._listen(name, party)
            outcome = run.run()
        assert outcome.abort is None and not outcome.rejected
        params = self.card.params
        self.reader = Reader(scheme, params, self.card.scheme.max_frame(params))
        sent = [(name, *out) for name, inputs in self.met.items() for met in inputs for out in met.said]
        sent += [(name, *out) for name, outs in self.first.items() for out in outs]
        sent += [(asker, asked, self._question(asker, asked)) for asker in self.seats for asked in self.seats]
        self.pool = [true_frame(*one) for one in sent]

    def _question(self, asker: str, asked: str) -> bytes:
        """Make a frame of Again for the pool: in the true run nothing was lost, so no party sent one."""
        return framed(len(KINDS[self.scheme]), 0, (len(asker) + len(asked)) % 3, 1)

    def _listen(self, name: str, party: Party) -> None:
        start, receive, tick = party.start, party.receive, party.tick

        def outs(step: Any) -> list[tuple[str, bytes]]:
            return [(out.to, out.frame) for out in step.sends]

        def heard_start() -> Any:
            step = start()
            self.first[name] = outs(step)
            return step

        def heard_frame(sender: str, frame: bytes) -> Any:
            step = receive(sender, frame)
            self.met[name].append(Input(sender, frame, outs(step)))
            return step

        def heard_event(event: Any) -> Any:
            step = tick(event)
            self.met[name].append(Input("", event, outs(step)))
            return step

        party.start, party.receive, party.tick = heard_start, heard_frame, heard_event  # type: ignore[method-assign]

    def moments(self) -> Iterator[tuple[str, int]]:
        """Yield (party, number of inputs that it has met); two users stand for all."""
        for name, inputs in self.met.items():
            if name not in ("user:2", "user:3"):
                yield from ((name, at) for at in range(len(inputs) + 1))


@dataclass(slots=True)
class Tally:
    frames: int = 0
    accepted: int = 0
    aborted: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    findings: list[str] = field(default_factory=list)
    findings_in_all: int = 0

    def note(self, finding: str) -> None:
        self.findings_in_all += 1
        if len(self.findings) < 20:
            self.findings.append(finding)

    def __iadd__(self, other: Tally) -> Tally:
        self.frames += other.frames
        self.accepted += other.accepted
        self.aborted += other.aborted
        self.refused += other.refused
        self.findings += other.findings
        self.findings_in_all += other.findings_in_all
        return self


class Target:
    """A party at a moment of its run, with everything that is known about it there."""

    def __init__(self, rehearsal: Rehearsal, name: str, at: int) -> None:
        card = dataclasses.replace(rehearsal.card)  # a copy, so that nothing it caches reaches other targets
        self.rehearsal, self.name, self.at = rehearsal, name, at
        self.moment = self._moment(card, rehearsal.seats[name])
        self._pristine, _ = seat_party(card, rehearsal.seats[name], with_view=True)
        self._pristine.start()
        for met in rehearsal.met[name][:at]:
            self._pristine.receive(met.sender, met.what) if met.sender else self._pristine.tick(met.what)
        self._introduce(card)
        self._shared = {id(shared): shared for shared in (card, card.codec, card.setting, card.params)}
        self.party = self.fresh()
        self.state = state_of(self.party)
        self.due = self._due()

    def _moment(self, card: Card, seat: Seat) -> Moment:
        hello = hello_of(card.run_id, card.params_digest)
        items = () if seat.inputs is None else tuple(seat.inputs.items.tolist())
        moment = Moment(self.name, card.scheme.name, card.params, hello, items)
        told = list(self.rehearsal.first[self.name])
        for met in self.rehearsal.met[self.name][: self.at]:
            if met.sender:
                moment.numbers[met.sender] += 1
                self._hear(moment.heard, met.sender, met.what)
            told += met.said
        for to, frame in told:
            self._hear(moment.told, to, frame)
        last = "Publication" if moment.scheme == "trusted" else "Finish"
        moment.done = any(said.kind == last for said in moment.heard + moment.told)
        return moment

    def _introduce(self, card: Card) -> None:
        """Let each party that never speaks to this one say Hello, so that its next frame reaches the role."""
        speakers = {met.sender for met in self.rehearsal.met[self.name]}
        for peer in {*self.rehearsal.seats, STRANGERS[0]} - speakers if not self.moment.done else ():
            step = self._pristine.receive(peer, framed(0, 0, *hello_of(card.run_id, card.params_digest)))
            assert step.rejected is None
            self.moment.numbers[peer] = 1

    def _hear(self, where: list[Said], peer: str, frame: bytes) -> None:
        understood = self.rehearsal.reader.understand(peer, frame)
        assert understood is not None, "the true run is understood"
        if understood[1].kind != "Hello":
            where.append(understood[1])

    def _due(self) -> list[TrueFrame]:
        """Return the next frame of each sender."""
        following: dict[str, TrueFrame] = {}
        for met in self.rehearsal.met[self.name][self.at :]:
            if met.sender and met.sender not in following:
                following[met.sender] = true_frame(met.sender, self.name, met.what)
        return list(following.values())

    def sent_to(self, peer: str) -> list[bytes]:
        """Return all frames that this party has sent to `peer` so far."""
        met = self.rehearsal.met[self.name][: self.at]
        sent = [*self.rehearsal.first[self.name], *(out for one in met for out in one.said)]
        return [frame for to, frame in sent if to == peer]

    def fresh(self) -> Party:
        return copy.deepcopy(self._pristine, dict(self._shared))

    def restore(self) -> None:
        self.party = self.fresh()

    def __str__(self) -> str:
        return f"{self.rehearsal.scheme} {self.rehearsal.wire}, {self.name} after {self.at} inputs"


def state_of(party: Party) -> Any:
    """Take a snapshot of everything that a refused frame must not change.

    It leaves out the head of the view, which moves, and the missing frames that the party has asked for after a GAP.
    """
    role = {name: value for name, value in vars(party.role).items() if name not in _SHARED}
    session = party._session
    received = sorted((peer, count) for peer, count in session._received.items() if count)
    digests = sorted((peer, tuple(kept)) for peer, kept in session._digests.items() if kept)
    sent = sorted((peer, count) for peer, count in session._sent.items() if count)
    kept = (sorted(party._latest.items()), list(party._older.items()), party._older_bytes)
    return snapshot([role, received, digests, sent, kept, party.done, party.result])


class Attack:
    """Hostile frames, sent to one target."""

    def __init__(self, target: Target, mutator: Mutator, tally: Tally) -> None:
        self._target = target
        self._mutator = mutator
        self._tally = tally
        self._since: list[tuple[str, bytes]] = []  # refused since the last comparison
        self._pool = target.rehearsal.pool
        self._mine = [true for true in self._pool if true.receiver == target.name]
        self._names = [*target.rehearsal.seats, *STRANGERS]

    def run(self, frames: int) -> None:
        for _ in range(frames):
            self.hand(*self._next())
        self._look()

    def _next(self) -> tuple[str, bytes]:
        below, target = self._mutator.below, self._target
        which = below(10)
        if which < 6 and target.due:
            base = target.due[below(len(target.due))]
        else:
            pool = self._mine if which < 9 and self._mine else self._pool
            base = pool[below(len(pool))]
        sender = base.sender if below(10) else self._names[below(len(self._names))]
        return sender, self._mutator.mutate(base, target.moment.numbers[sender])

    def hand(self, sender: str, frame: bytes) -> None:
        target = self._target
        self._tally.frames += 1
        understood = target.rehearsal.reader.understand(sender, frame)
        objection = target.moment.objection(sender, *understood) if understood else "it cannot be understood"
        party = target.party if objection else target.fresh()  # an acceptable frame is given to a copy
        try:
            step = party.receive(sender, frame)
        except Exception:
            self._find(sender, frame, traceback.format_exc(limit=-3))
            target.restore()
            return
        if step.rejected is not None:
            uses = understood is not None and target.moment.uses_a_number(sender, *understood)
            self._refused(party, sender, frame, step, uses)
            return
        self._tally.accepted += 1
        if objection:
            self._find(sender, frame, f"accepted, although {objection}")
            target.restore()
        elif understood and (wrong := self._wrong_end(party, understood[1], step)):
            self._find(sender, frame, wrong)

    def _refused(self, party: Party, sender: str, frame: bytes, step: Step, uses_a_number: bool) -> None:
        reason = step.rejected.name if step.rejected else ""
        self._tally.refused[reason] += 1
        session = party._session
        used = session.received_from(sender) - self._target.moment.numbers[sender]
        if used != uses_a_number:
            self._find(sender, frame, f"refused ({reason}) with {used} numbers used")
        if len(step.sends) > (reason == "GAP") or len(step.records) != (not party.done):
            self._find(sender, frame, f"refused ({reason}), and yet it caused something")
        if used > 0:  # undo this count, and nothing else
            session._received[sender] -= used
            if session._digests[sender].pop() != hashlib.sha256(frame).digest():
                self._find(sender, frame, "another digest is remembered than that of the frame")
        if party is self._target.party:
            self._since.append((sender, frame))
            if len(self._since) >= BATCH:
                self._look()
        else:
            self._find(sender, frame, f"refused ({reason}), although it is acceptable")

    def _look(self) -> None:
        """Compare the party with its state before; if it has changed, find the frame that changed it."""
        target, since = self._target, self._since
        self._since = []
        if state_of(target.party) == target.state:
            return
        for sender, frame in since:
            target.restore()
            target.party.receive(sender, frame)
            unchanged = target.fresh()
            if target.party._session.received_from(sender) > target.moment.numbers[sender]:
                unchanged._session.accept(sender, frame)
            if state_of(target.party) != state_of(unchanged):
                self._find(sender, frame, "refused, and yet it changed the party")
        target.restore()

    def _wrong_end(self, party: Party, said: Said, step: Step) -> str | None:
        """Say what is wrong with the effect of an acceptable frame; None if nothing is."""
        moment = self._target.moment
        if said.kind == "Again":
            return self._wrong_answer(party, said, step)
        agreed = said.kind != "Contributors" or moment.agrees(*said.fields)
        if said.kind == "Agreed":
            agreed = said.fields[1] == [told for told in moment.told if told.kind == "Contributors"][-1].fields[3]
        if step.abort is None:
            return None if agreed else "went on although the servers disagree"
        self._tally.aborted += 1
        known = step.abort.reason.name in _ABORTS.get(said.kind, ())
        return None if known else f"{said.kind} ended the run: {step.abort}"

    def _wrong_answer(self, party: Party, asked: Said, step: Step) -> str | None:
        """Check the answer to "I have n frames of yours": the kept frames from number n on, byte for byte."""
        sent = self._target.sent_to(asked.peer)
        due = sent[max(asked.fields[0], len(sent) - KEPT_FRAMES) :]
        if [out.frame for out in step.sends if out.kind == "resend"] != due:
            return "did not send again what was asked for"
        return None if state_of(party) == self._target.state else "a question changed the party"

    def _find(self, sender: str, frame: bytes, what: str) -> None:
        self._tally.note(f"{self._target}, from {sender}: {what}\n    {frame.hex()}")


def work(seed: int, frames: int, part: int, parts: int, setups: list[tuple[str, str]] = SETUPS) -> Tally:
    """Send `frames` frames, spread over those moments of all setups that belong to `part`."""
    warnings.simplefilter("error")  # an overflow is a finding
    tally = Tally()
    places = []
    for number, (scheme, wire) in enumerate(setups):
        rehearsal = Rehearsal(scheme, wire, order=seed + number)
        places += [(rehearsal, *moment) for moment in rehearsal.moments()]
    mine = list(enumerate(places))[part::parts]
    for turn, (number, (rehearsal, name, at)) in enumerate(mine):
        share = frames * (turn + 1) // len(mine) - frames * turn // len(mine)
        kinds, most = len(KINDS[rehearsal.scheme]) + 1, rehearsal.card.codec.max_frame
        mutator = Mutator(seed * len(places) + number, rehearsal.pool, kinds, most)
        Attack(Target(rehearsal, name, at), mutator, tally).run(share)
    return tally


def fuzz(frames: int, seed: int, processes: int) -> Tally:
    shares = [(seed, frames * (n + 1) // processes - frames * n // processes, n, processes) for n in range(processes)]
    total = Tally()
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        for tally in pool.starmap(work, shares):
            total += tally
    return total


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--frames", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    started = time.perf_counter()
    total = fuzz(options.frames, options.seed, options.processes)
    for reason, count in total.refused.most_common():
        print(f"{count:>9}  {reason}")
    print(f"{total.accepted:>9}  accepted, and acceptable; {total.aborted} of them ended the run for a stated reason")
    print(f"{total.frames:>9}  frames in {time.perf_counter() - started:.1f} s, {total.findings_in_all} findings")
    for finding in total.findings:
        print(finding)
    return 1 if total.findings else 0


if __name__ == "__main__":
    sys.exit(main())
