"""The bytes of `masked` and `dynamic` by closed formula, for any course of a run.

A frame carries the number of frames that went before it on the same way, which takes 1, 2, 3 or 5 bytes. So the frames
of each way are counted:

    recommender -> user          Hello, what is dealt at first, then one for each invitation, Publication, Finish
    user -> recommender          Hello, Join, then one each time that the user comes or goes
    user -> third party          Hello, one for each commitment, then one for each invitation, answered in time or late
    recommender <-> third party  Hello, one for each attempt at a commitment, then two for each iteration
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from protocol.attendance import Attempt, Course, Numbers, Turn
from protocol.params import Params
from protocol.wire.framing import HELLO_FRAME, Amount, Flow, Sizes, frame_size, uint_size
from protocol.wire.messages import SETUP

UP, DOWN, ACROSS = ("user", "recommender"), ("recommender", "user"), ("user", "third_party")
TOWARDS, BACK = ("recommender", "third_party"), ("third_party", "recommender")


class MaskedFormula:
    """One walk through a course, which counts the frames of each way as it goes."""

    offer_in_full = "ItemFactorsInFull"

    def __init__(self, params: Params, course: Course) -> None:
        self.params = params
        self.course = course
        self.sizes = Sizes(params)
        self.compact = params.wire == "compact"
        self.offer = "ItemFactors" if self.compact else self.offer_in_full
        self.told = np.ones(len(course.users))  # the number of the next frame, by way and group; Hello is number 0
        self.said = np.full(len(course.users), 2.0)
        self.wrote = np.ones(len(course.users))
        self.between = 1  # both ways between the servers
        self.ever_told = np.zeros(len(course.users))

    def flows(self) -> Iterator[Flow]:
        yield from self.joining()
        yield from self.dealing()
        for t, turn in enumerate(self.course.turns):
            yield from self.presence(t, turn)
            yield from self.iteration(t, turn)
        yield from self.ending()

    def _tell(self, kind: str, iteration: int, users: Numbers, *fields: Amount) -> Flow:
        flow = Flow(iteration, *DOWN, kind, users, frame_size(self.told, *fields))
        self.told = self.told + self._each(users)
        self.ever_told = np.maximum(self.ever_told, users)
        return flow

    def _each(self, users: Numbers) -> Numbers:
        """Divide the number of messages to or from each group, `users`, by the users of the group."""
        return users / np.maximum(self.course.users, 1e-300)

    def joining(self) -> Iterator[Flow]:
        joined = self.course.joined
        yield Flow(SETUP, *UP, "Hello", joined, HELLO_FRAME)
        yield Flow(SETUP, *UP, "Join", joined, frame_size(1, self.sizes.items(self.course.supports)))
        yield Flow(SETUP, *TOWARDS, "Hello", 1, HELLO_FRAME)
        yield Flow(SETUP, *BACK, "Hello", 1, HELLO_FRAME)

    def dealing(self) -> Iterator[Flow]:
        sizes, n = self.sizes, self.course.supports
        kind = "Welcome" if self.compact else "WelcomeInFull"
        keys = (sizes.digest, sizes.keys(n)) if self.compact else (sizes.floats(n),)
        yield self._tell(kind, SETUP, self.course.welcomed, sizes.counts(n), *keys)

    def presence(self, t: int, turn: Turn) -> Iterator[Flow]:
        return iter(())

    def iteration(self, t: int, turn: Turn) -> Iterator[Flow]:
        sizes, n, number = self.sizes, self.course.supports, uint_size(t)
        first, second = self.between, self.between + 1
        users, counts = sizes.users(turn.invited.sum()), sizes.counts(turn.opened)
        yield Flow(t, *TOWARDS, "OpenSum", 1, frame_size(first, number, users, sizes.items(turn.opened), counts))
        yield self._tell(self.offer, t, turn.invited, number, *self.offered())
        answer = frame_size(self.wrote, number, sizes.items(n), sizes.ring(n))
        yield Flow(t, *ACROSS, "MaskedGradient", turn.contributors, answer)
        self.wrote = self.wrote + self._each(turn.invited)
        users = sizes.users(turn.contributors.sum())
        yield Flow(t, *BACK, "Contributors", 1, frame_size(first, number, users, counts, sizes.digest))
        yield Flow(t, *TOWARDS, "Agreed", 1, frame_size(second, number, sizes.digest))
        total = frame_size(second, number, sizes.items(turn.released), sizes.ring(turn.released))
        yield Flow(t, *BACK, "MaskedTotal", 1, total)
        self.between += 2

    def offered(self) -> list[Amount]:
        sizes, n = self.sizes, self.course.supports
        vectors = [sizes.counts(n), sizes.factors(n)]
        return vectors if self.compact else [*vectors, sizes.ring(n), sizes.floats(n)]

    def ending(self) -> Iterator[Flow]:
        last, published = self.params.iterations, self.sizes.published(self.course.supports)
        yield self._tell("Publication", last, self.course.finished, uint_size(last), published)
        yield self._tell("Finish", last, self.course.finished, uint_size(last))
        yield Flow(last, *TOWARDS, "Finish", 1, frame_size(self.between, uint_size(last)))
        yield Flow(SETUP, *DOWN, "Hello", self.ever_told, HELLO_FRAME)
        yield Flow(SETUP, *ACROSS, "Hello", self.course.greeted, HELLO_FRAME)


class DynamicFormula(MaskedFormula):
    offer_in_full = "ItemFactorsWithPieces"

    def dealing(self) -> Iterator[Flow]:
        sizes, n = self.sizes, self.course.supports
        if self.compact:
            yield self._tell("Welcome", SETUP, self.course.welcomed, sizes.counts(0), sizes.digest, sizes.keys(n))
        for number, attempt in enumerate(self.course.attempts):
            yield from self.commitment(uint_size(number), attempt)

    def commitment(self, number: int, attempt: Attempt) -> Iterator[Flow]:
        sizes, shares = self.sizes, attempt.shares
        items, counts = sizes.items(attempt.opened), sizes.counts(attempt.opened)
        opening = frame_size(self.between, number, sizes.users(attempt.asked.sum()), items, counts)
        yield Flow(SETUP, *TOWARDS, "OpenCommitment", 1, opening)
        kind = "Commit" if self.compact else "CommitInFull"
        dealt = (sizes.keys(shares),) if self.compact else (sizes.ring(shares), sizes.floats(shares))
        yield self._tell(kind, SETUP, attempt.asked, number, sizes.items(shares), sizes.counts(shares), *dealt)
        answer = frame_size(self.wrote, number, sizes.items(shares), sizes.ring(shares))
        yield Flow(SETUP, *ACROSS, "BlindedShare", attempt.answered, answer)
        self.wrote = self.wrote + self._each(attempt.asked)
        total = frame_size(self.between, number, sizes.items(attempt.sealed), sizes.ring(attempt.sealed))
        yield Flow(SETUP, *BACK, "SealedTotal", 1, total)
        self.between += 1

    def presence(self, t: int, turn: Turn) -> Iterator[Flow]:
        frame = frame_size(self.said, uint_size(t))
        yield Flow(t, *UP, "Present", turn.present, frame)
        yield Flow(t, *UP, "Absent", turn.absent, frame)
        self.said = self.said + self._each(turn.present + turn.absent)

    def offered(self) -> list[Amount]:
        pieces = [] if self.compact else [self.sizes.ring(self.course.supports)]
        return [*super().offered(), *pieces]
