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
from protocol.schemes.factorization.static_users import published_rows
from protocol.wire import messages
from protocol.wire.fields import Amount
from protocol.wire.framing import Flow, Frames
from protocol.wire.messages import SETUP

UP, DOWN, ACROSS = ("user", "recommender"), ("recommender", "user"), ("user", "third_party")
TOWARDS, BACK = ("recommender", "third_party"), ("third_party", "recommender")


class MaskedFormula:
    """One walk through a course, which counts the frames of each way as it goes."""

    offer_in_full: type = messages.ItemFactorsInFull

    def __init__(self, params: Params, course: Course) -> None:
        self.params = params
        self.course = course
        self.frames = Frames(params)
        self.compact = params.wire == "compact"
        self.offer = messages.ItemFactors if self.compact else self.offer_in_full
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

    def _tell(self, iteration: int, message: type, users: Numbers, /, **entries: Amount) -> Flow:
        flow = self.frames.flow(iteration, DOWN, message, users, self.told, **entries)
        self.told = self.told + self._each(users)
        self.ever_told = np.maximum(self.ever_told, users)
        return flow

    def _each(self, users: Numbers) -> Numbers:
        """Divide the number of messages to or from each group, `users`, by the users of the group."""
        return users / np.maximum(self.course.users, 1e-300)

    def joining(self) -> Iterator[Flow]:
        frames, joined = self.frames, self.course.joined
        yield frames.hello(UP, joined)
        yield frames.flow(SETUP, UP, messages.Join, joined, 1, items=self.course.supports)
        yield frames.hello(TOWARDS, 1)
        yield frames.hello(BACK, 1)

    def dealing(self) -> Iterator[Flow]:
        welcomed, n = self.course.welcomed, self.course.supports
        if self.compact:
            yield self._tell(SETUP, messages.Welcome, welcomed, floors=n, mask_key=1, item_keys=n)
        else:
            yield self._tell(SETUP, messages.WelcomeInFull, welcomed, floors=n, envelopes=n)

    def presence(self, t: int, turn: Turn) -> Iterator[Flow]:
        return iter(())

    def iteration(self, t: int, turn: Turn) -> Iterator[Flow]:
        flow, n, opened, released = self.frames.flow, self.course.supports, turn.opened, turn.released
        first, second = self.between, self.between + 1
        invited, contributors = turn.invited.sum(), turn.contributors.sum()
        yield flow(t, TOWARDS, messages.OpenSum, 1, first, iteration=t, users=invited, items=opened, floors=opened)
        yield self._tell(t, self.offer, turn.invited, iteration=t, **self.offered())
        yield flow(t, ACROSS, messages.MaskedGradient, turn.contributors, self.wrote, iteration=t, items=n, values=n)
        self.wrote = self.wrote + self._each(turn.invited)
        yield flow(t, BACK, messages.Contributors, 1, first, iteration=t, users=contributors, counts=opened, digest=1)
        yield flow(t, TOWARDS, messages.Agreed, 1, second, iteration=t, digest=1)
        yield flow(t, BACK, messages.MaskedTotal, 1, second, iteration=t, items=released, values=released)
        self.between += 2

    def offered(self) -> dict[str, Amount]:
        names = ("floors", "factors") if self.compact else ("floors", "factors", "masks", "envelopes")
        return dict.fromkeys(names, self.course.supports)

    def ending(self) -> Iterator[Flow]:
        last, finished = self.params.iterations, self.course.finished
        rows = published_rows(self.params, self.course.supports)
        yield self._tell(last, messages.Publication, finished, iteration=last, factors=rows)
        yield self._tell(last, messages.Finish, finished, iteration=last)
        yield self.frames.flow(last, TOWARDS, messages.Finish, 1, self.between, iteration=last)
        yield self.frames.hello(DOWN, self.ever_told)
        yield self.frames.hello(ACROSS, self.course.greeted)


class DynamicFormula(MaskedFormula):
    offer_in_full = messages.ItemFactorsWithPieces

    def dealing(self) -> Iterator[Flow]:
        if self.compact:
            n = self.course.supports
            yield self._tell(SETUP, messages.Welcome, self.course.welcomed, floors=0, mask_key=1, item_keys=n)
        for number, attempt in enumerate(self.course.attempts):
            yield from self.commitment(number, attempt)

    def commitment(self, number: int, attempt: Attempt) -> Iterator[Flow]:
        flow, shares, opened, sealed = self.frames.flow, attempt.shares, attempt.opened, attempt.sealed
        opening = {"attempt": number, "users": attempt.asked.sum(), "items": opened, "counts": opened}
        yield flow(SETUP, TOWARDS, messages.OpenCommitment, 1, self.between, **opening)
        dealt = {"attempt": number, "items": shares, "counts": shares}
        if self.compact:
            yield self._tell(SETUP, messages.Commit, attempt.asked, **dealt, item_keys=shares)
        else:
            yield self._tell(SETUP, messages.CommitInFull, attempt.asked, **dealt, blinds=shares, envelopes=shares)
        answer = {"attempt": number, "items": shares, "values": shares}
        yield flow(SETUP, ACROSS, messages.BlindedShare, attempt.answered, self.wrote, **answer)
        self.wrote = self.wrote + self._each(attempt.asked)
        yield flow(SETUP, BACK, messages.SealedTotal, 1, self.between, attempt=number, items=sealed, values=sealed)
        self.between += 1

    def presence(self, t: int, turn: Turn) -> Iterator[Flow]:
        for message, users in ((messages.Present, turn.present), (messages.Absent, turn.absent)):
            yield self.frames.flow(t, UP, message, users, self.said, iteration=t)
        self.said = self.said + self._each(turn.present + turn.absent)

    def offered(self) -> dict[str, Amount]:
        pieces = {} if self.compact else {"pieces": self.course.supports}
        return super().offered() | pieces
