"""One party without any I/O: role, session, codec and view together.

A driver (ZeroMQ process, in-process scheduler, replay) hands in frames and gets a `Step` back. It must write
`step.records` to the view before the first byte of `step.sends` leaves.

Frames may be lost, doubled or late, and a party may end at any moment and come back from its view. One unnumbered
message repairs this, `Again`: "I have n frames of yours", to which a party answers with the frames from number n on,
byte for byte. A party sends it when it comes back, when a frame shows that an earlier one is missing, and, through
its driver, after a long silence.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from protocol.errors import Aborted, Reason, Rejected, during, note_during
from protocol.party.role import Done, Effects, Role, Send, Timer, user_index, user_name
from protocol.party.session import Session
from protocol.party.signing import Signer
from protocol.party.view import (
    CHECKPOINT,
    END,
    EVENT,
    HASH_BYTES,
    RECEIVED,
    REJECTED,
    SENT,
    SIGNED,
    Differs,
    Record,
    ViewWriter,
)
from protocol.wire.codec import NO_HEAD, WIRE_VERSION, Codec, Memo
from protocol.wire.messages import EVENTS, SETUP, Again, Barred, Event, Hello, Message

KEPT_FRAMES = 4  # per peer, for resending; the protocols have fewer in flight
MOST_REFUSED, MORE_REFUSED = 1000, 20  # frames of a peer, and for each that was accepted, before it is barred
MOST_AGAIN = 64  # answers to a peer while nothing moves; then to every second, fourth … question of its
KEPT_BYTES = 64 << 20  # for all peers together, besides the latest frame of each; older ones come from the view
_EVENT_FIELDS = {"Deadline": [int], "Churn": [int, bool], "Due": [int, tuple], "Gone": [int], "Barred": [int]}


@dataclass(frozen=True, slots=True)
class Outgoing:
    to: str
    kind: str
    iteration: int
    frame: bytes


@dataclass(slots=True)
class Step:
    """The consequences of one input."""

    records: list[bytes] = field(default_factory=list)
    sends: list[Outgoing] = field(default_factory=list)
    timers: list[int] = field(default_factory=list)
    done: bool = False
    rejected: Reason | None = None
    abort: Aborted | None = None  # this input ended the run; it is in the records all the same
    kind: str = ""  # of the frame that was received, "" where it could not be read
    iteration: int = SETUP
    wants: tuple[str, int, int] | None = None  # a peer asks for these frames (first, end), which are no longer kept
    has_all: bool = False  # the peer said that it has every frame that was sent to it
    rest: Effects = ()  # the effects that are left for `go_on`
    unrecorded: bool = False  # the frame was refused without a record, as one of a flood
    barred: str | None = None  # the role is yet to be told that this peer is barred


class Party:
    def __init__(
        self,
        name: str,
        role: Role,
        codec: Codec,
        run_id: bytes,
        params_digest: bytes,
        view: ViewWriter | None,
        signer: Signer | None = None,
    ) -> None:
        self.name = name
        self.role = role
        self.codec = codec
        self.view = view
        self.done = False
        self.result: np.ndarray | None = None
        self._signer = signer
        self._memo = Memo(codec.n_users if user_index(name) < 0 else 0)
        self._session = Session(Hello(WIRE_VERSION, run_id, params_digest))
        self._latest: dict[str, tuple[int, bytes]] = {}  # by peer: number and frame
        self._older: OrderedDict[tuple[str, int], bytes] = OrderedDict()  # by peer and number, oldest first
        self._older_bytes = 0
        self.keep_bytes = KEPT_BYTES
        self.burst: int | None = None  # most frames of a step: the first of many leave before the last are made
        self._asked: dict[str, int] = {}  # by peer: the missing frame that was asked for
        self._accepted: Counter[str] = Counter()  # by peer: frames
        self._refused: Counter[str] = Counter()  # by peer: frames, before it was barred
        self._ignored: Counter[str] = Counter()  # by peer: frames since
        self._questions: dict[str, tuple[int, int]] = {}  # by peer: frames exchanged, and questions since
        self._told: set[str] = set()  # barred peers that the role knows of
        self._timer: int | None = None  # the iteration of the latest deadline that the role asked for
        self.state_of: Callable[[Party], bytes | None] = lambda party: None  # `freeze.py`: for checkpoints

    def start(self) -> Step:
        step = Step()
        with during(self.name, "at its start"):
            self._carry_out(self.role.start(), step)
        return step

    def receive(self, sender: str, frame: bytes) -> Step:
        step = Step()
        try:
            return self._receive(sender, frame, step)
        except (Exception, SystemExit) as error:  # from a role: no message may cause one
            when = f" of iteration {step.iteration}" if step.iteration >= 0 else ""
            note_during(error, self.name, f"handling {step.kind or 'a frame'}{when} from {sender}")
            raise

    def _receive(self, sender: str, frame: bytes, step: Step) -> Step:
        understood = False
        if self._refused[sender] >= MOST_REFUSED + MORE_REFUSED * self._accepted[sender]:
            return self._ignore(sender, frame, step)
        try:
            sequence, message = self.codec.decode(frame, self._memo)
            step.kind, step.iteration = type(message).__name__, iteration_of(message)
            if isinstance(message, Again):
                if sequence:
                    raise Rejected(Reason.MALFORMED)  # it is unnumbered
                return self._say_again(sender, message, step)
            if self.done:  # its view is closed
                raise Rejected(Reason.WRONG_KIND)
            self._session.check(sender, sequence, frame, message)
            understood = True
            effects = [] if isinstance(message, Hello) else self.role.receive(sender, message)
        except Rejected as refusal:
            step.rejected = refusal.reason
            self._refused[sender] += not self.done
            if self.view and not self.done:
                step.records.append(self.view.rejected(sender, refusal.reason.name, frame, understood))
            if refusal.reason is Reason.GAP:
                self._ask_for_the_missing(sender, step)
            effects = []
        except Aborted as abort:
            step.abort = abort
            effects = []
        if self.view and step.rejected is None:
            step.records.append(self.view.received(sender, frame))
        if understood:
            self._session.accept(sender, frame)
            self._accepted[sender] += step.rejected is None
        self._carry_out(effects, step)
        return step

    def _ignore(self, sender: str, frame: bytes, step: Step) -> Step:
        """Refuse a frame of a barred peer unread; only the 1st, 2nd, 4th … has a record, so no flood fills a view."""
        step.rejected = Reason.FLOOD
        self._ignored[sender] += 1
        count = self._ignored[sender]
        if count & (count - 1) or self.done:
            step.unrecorded = True
        elif self.view:
            step.records.append(self.view.rejected(sender, Reason.FLOOD.name, frame, False))
        step.barred = None if sender in self._told or self.done or user_index(sender) < 0 else sender
        return step

    def tick(self, event: Event) -> Step:
        """Handle an `event`, an input that is no message; the view records it, so that the role can be replayed."""
        step = Step(kind=type(event).__name__, iteration=iteration_of(event))
        if self.done:
            return step
        if isinstance(event, Barred):
            self._told.add(user_name(event.user))
        if self.view:
            step.records.append(self.view.event(type(event).__name__, *dataclasses.astuple(event)))
        with during(self.name, f"handling the event {step.kind}"):
            try:
                effects = self.role.tick(event)
            except Aborted as abort:
                step.abort = abort
                effects = []
            self._carry_out(effects, step)
        return step

    def note(self, kind: str, *fields: int | str) -> list[bytes]:
        """Make records of something that concerns no role, such as a refused connection."""
        return [self.view.event(kind, *fields)] if self.view and not self.done else []

    # --- after a crash, or long after ----------------------------------------------------------------------------

    def replay(self, records: Iterable[Record], on_sent: Callable[[Outgoing], None] | None = None) -> Step:
        """Become the party that wrote `records` (those after header and input, which this party has written itself).

        Everything that the role does is repeated and must give the same chain of records; else `Differs` names the
        first record that differs. The step holds what the view lacks: records to write, frames to send.
        """
        assert self.view is not None
        return self._follow(records, self.start(), on_sent)

    def replay_rest(self, records: Iterable[Record], on_sent: Callable[[Outgoing], None] | None = None) -> Step:
        """Replay the `records` after the checkpoint in whose state this party is."""
        return self._follow(records, Step(timers=[] if self._timer is None else [self._timer]), on_sent)

    def _follow(self, records: Iterable[Record], step: Step, on_sent: Callable[[Outgoing], None] | None) -> Step:
        expected, owed, timers = deque(step.records), deque(step.sends), step.timers
        for record in records:
            if record.type not in (SENT, END, SIGNED):
                if expected:
                    raise Differs(record.number, "stands where this role would have sent something", expected[0])
                step = self._repeat(record)
                expected.extend(step.records)
                owed.extend(step.sends)
                timers = step.timers or timers
            elif record.type == SIGNED and self._signer is None:
                break
            derived = expected.popleft() if expected else b""
            if derived[-HASH_BYTES:] != record.head:
                raise Differs(record.number, "is not what this role does", derived)
            if record.type == SENT:
                sent = owed.popleft()
                if on_sent:
                    on_sent(sent)
        return Step(list(expected), list(owed), timers, self.done, abort=step.abort)

    def _repeat(self, record: Record) -> Step:
        assert self.view is not None
        if record.type == RECEIVED:
            return self.receive(*record.fields)
        if record.type == EVENT and record.fields[0] in EVENTS:
            return self._repeat_event(record)
        if record.type == CHECKPOINT:
            return Step(self.checkpoint(self.state_of(self)))
        if record.type == REJECTED:
            sender, reason, _, digest, understood = record.fields
            flood = reason == Reason.FLOOD.name
            self._refused[sender] += not flood
            self._ignored[sender] += flood and max(1, self._ignored[sender])  # 1, 2, 4, 8 … as when they were written
            if understood:
                self._session.note(sender, digest)
        return Step([self.view.record(record.type, *record.fields)])

    def _repeat_event(self, record: Record) -> Step:
        try:
            event = read_event(*record.fields)
        except ValueError:
            raise Differs(record.number, "is not an event that can happen") from None
        return self.tick(event)

    def checkpoint(self, state: bytes | None) -> list[bytes]:
        """Make the record of `state`, the party's own; none if it cannot be stored."""
        return [] if self.view is None or state is None else [self.view.checkpoint(self.role.iteration, state)]

    def ask_again(self, peers: Iterable[str]) -> list[Outgoing]:
        """Tell `peers` which of their frames have arrived, ask for the rest, and ask which of ours have arrived."""
        return [self._control(peer, answer=1) for peer in peers]

    def take_leave(self, peers: Iterable[str]) -> list[Outgoing]:
        """Tell `peers`, before their connections close, which of their frames have arrived, if any."""
        return [self._control(peer, answer=0) for peer in peers if self._session.received_from(peer)]

    def _ask_for_the_missing(self, sender: str, step: Step) -> None:
        missing = self._session.received_from(sender)
        if self._asked.get(sender) != missing:  # once; if the request is lost, the driver asks after a silence
            self._asked[sender] = missing
            step.sends.append(self._control(sender, answer=0))

    def _say_again(self, sender: str, message: Again, step: Step) -> Step:
        if not self._is_answered(sender):
            return step
        step.records += self.note("Again", sender, message.received)
        step.has_all = message.received >= self._session.next_to(sender)
        kept = self._kept_for(sender)
        oldest = kept[0][0] if kept else self._session.next_to(sender)
        if message.received < oldest:
            step.wants = (sender, message.received, oldest)
        for number, frame in kept:
            if number >= message.received:
                step.sends.append(Outgoing(sender, "resend", SETUP, frame))
        if message.answer:  # last, so that a peer that receives it has received the frames before it
            step.sends.append(self._control(sender, answer=0))
        return step

    def _is_answered(self, peer: str) -> bool:
        """Count a question of `peer`; after many of them in which no frame came or went, few are answered."""
        moved = self._session.next_to(peer) + self._session.received_from(peer)
        before, asked = self._questions.get(peer, (-1, 0))
        asked = asked + 1 if before == moved else 1
        self._questions[peer] = moved, asked
        return asked <= MOST_AGAIN or not asked & (asked - 1)

    def _control(self, peer: str, answer: int) -> Outgoing:
        frame = self.codec.encode(Again(self._session.received_from(peer), answer), 0, self._head())
        return Outgoing(peer, "Again", SETUP, frame)

    # --- effects -----------------------------------------------------------------------------------------------------

    def go_on(self, rest: Effects) -> Step:
        """Carry out `rest` of the step before, once its records are written and its frames have left."""
        step = Step()
        with during(self.name, "sending what a message caused"):
            self._carry_out(rest, step)
        return step

    def _carry_out(self, effects: Effects, step: Step) -> None:
        if effects is None:
            raise TypeError(f"{type(self.role).__name__} returned None, not a list of effects: return [] there")
        for place, effect in enumerate(effects):
            if self.burst is not None and len(step.sends) >= self.burst:
                step.rest = effects[place:]
                return
            if isinstance(effect, Send):
                if self._session.next_to(effect.to) == 0:
                    self._send(effect.to, self._session.hello, step)
                self._send(effect.to, effect.message, step)
            elif isinstance(effect, Timer):
                step.timers.append(effect.iteration)
                self._timer = effect.iteration
            elif isinstance(effect, Done):
                self._end(effect, step)
            else:
                role, kind = type(self.role).__name__, type(effect).__name__
                raise TypeError(f"{role} returned a {kind} among its effects, not a Send, Timer or Done")

    def _end(self, effect: Done, step: Step) -> None:
        step.done = self.done = True
        self.result = effect.result
        if self.view:
            step.records.append(self.view.end(result_digest(effect.result)))
            if self._signer:
                signed = self._signer.sign(self._session.hello.run_id, self.name, self.view.records, self.view.head)
                step.records.append(self.view.signed(signed))

    def _send(self, to: str, message: Message, step: Step) -> None:
        number = self._session.next_to(to)
        frame = self.codec.encode(message, number, self._head(), self._memo)
        self._session.sent(to)
        self._keep(to, number, frame)
        outgoing = Outgoing(to, type(message).__name__, iteration_of(message), frame)
        if self.view:
            step.records.append(self.view.sent(to, outgoing.kind, outgoing.iteration, frame))
        step.sends.append(outgoing)

    def _keep(self, to: str, number: int, frame: bytes) -> None:
        """Keep the latest frame to every peer: after a break all ask for it, and each request would cost a replay."""
        if to in self._latest:
            before, older = self._latest[to]
            self._older[to, before] = older
            self._older_bytes += len(older)
        self._latest[to] = (number, frame)
        if number >= KEPT_FRAMES:
            self._older_bytes -= len(self._older.pop((to, number - KEPT_FRAMES), b""))
        while self._older_bytes > self.keep_bytes:
            self._older_bytes -= len(self._older.popitem(last=False)[1])

    def _kept_for(self, peer: str) -> list[tuple[int, bytes]]:
        """List the frames to `peer` that are still kept, by increasing number."""
        if peer not in self._latest:
            return []
        numbers = range(max(0, self._latest[peer][0] + 1 - KEPT_FRAMES), self._latest[peer][0])
        older = [(number, self._older[peer, number]) for number in numbers if (peer, number) in self._older]
        return [*older, self._latest[peer]]

    def sent_to(self, peer: str) -> int:
        return self._session.next_to(peer)

    def counts(self) -> tuple[dict[str, int], dict[str, int]]:
        """Count the frames that were sent to each peer, and received from each."""
        sent, received, _ = self._session.counts()
        return sent, received

    def exchanged(self) -> list[Any]:
        """Return the part of what was sent and received that later steps depend on, as plain values (`freeze.py`)."""
        kept = [[peer, number, frame] for peer in self._latest for number, frame in self._kept_for(peer)]
        return [self._session.counts(), self._asked, kept]

    def go_on_from(self, exchanged: list[Any]) -> None:
        counts, asked, kept = exchanged
        self._session.go_on_from(counts)
        self._asked.update(asked)
        for peer, number, frame in kept:
            self._keep(peer, number, frame)

    def settled(self) -> list[Any]:
        """Return what a replay of its view leaves in this party besides its role, as plain values in a fixed order.

        Of the frames that are kept it has the latest to each peer; how many more there are depends on their sizes.
        """
        flooded = {peer: 1 << count.bit_length() - 1 for peer, count in self._ignored.items() if count}
        tallies = [self._accepted, self._refused, flooded]
        counts = [dict(sorted(part.items())) for part in self._session.counts()]
        kept = [[peer, number, frame] for peer, (number, frame) in sorted(self._latest.items())]
        plain = [{peer: count for peer, count in sorted(tally.items()) if count} for tally in tallies]
        return [counts, plain, sorted(self._told), self._timer, kept]

    def settle(self, settled: list[Any]) -> None:
        counts, (accepted, refused, ignored), told, self._timer, kept = settled
        self._accepted.update(accepted)
        self._refused.update(refused)
        self._ignored.update(ignored)
        self._told.update(told)
        self.go_on_from([counts, {}, kept])

    def forget(self, peer: str) -> None:
        """Drop the frames that are kept for `peer`, which has received all of them."""
        for number, _ in self._kept_for(peer):
            self._older_bytes -= len(self._older.pop((peer, number), b""))
        self._latest.pop(peer, None)

    def _head(self) -> bytes:
        return self.view.head if self.view else NO_HEAD


def read_event(kind: str, *fields: object) -> Event:
    """Make the event that a view or a launcher states; raise ValueError if `fields` are not those of `kind`."""
    given = [tuple(value) if isinstance(value, list) else value for value in fields]
    users = [user for value in given if isinstance(value, tuple) for user in value]
    if [type(value) for value in given] != _EVENT_FIELDS[kind] or not {int}.issuperset(map(type, users)):
        raise ValueError(f"{kind} does not have the fields {fields}")
    event: Event = EVENTS[kind](*given)
    return event


def iteration_of(message: Message) -> int:
    return getattr(message, "iteration", SETUP)


def result_digest(result: np.ndarray | None) -> bytes:
    """Hash the little-endian float64 bytes in row order: the same on every platform for the same numbers."""
    data = b"" if result is None else np.ascontiguousarray(result, "<f8").tobytes()
    return hashlib.sha256(data).digest()
