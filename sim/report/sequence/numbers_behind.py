"""The truth behind what a server received: each user's role is run again from its view, and its numbers are recorded.

A role labels every number that it hands to its ring or its reals (`Label`): its own data, or a share of noise. No party
of the run sees the labels; only the auditor, who has all views, can.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from protocol.arrays import Floats, Ids
from protocol.errors import Rejected
from protocol.party.party import iteration_of
from protocol.party.role import Send, role_of
from protocol.party.view import CutOff
from protocol.wire.fields import FactorsField, FieldKind, field_kinds
from protocol.wire.messages import Message
from sim.audit.role_rerun import Marked, rerun
from sim.views.evidence import Case
from sim.views.exhibits import Exhibits, Seen


class UploadBehind(NamedTuple):
    """A message that a user sent, and the numbers that it was made of."""

    to: str
    message: Message
    marks: tuple[Marked, ...]

    def behind(self) -> Marked | None:
        """Find the user's own data in the message, or else its share of noise; None if no labelled numbers fit it."""
        own = [mark for mark in self.marks if mark.label.shares is None]
        found = own or list(self.marks)
        return found[0] if found and found[0].values.shape == values_of(self.message).shape else None


def uploads_of(case: Case, user: str, last: int) -> list[UploadBehind]:
    """Run the role of `user` again to find what it sent up to iteration `last`, or to the end of its view."""
    found: list[UploadBehind] = []
    try:
        for turn in rerun(Exhibits(case, (user,)), user):
            if turn.sender is not None and iteration_of(turn.given) > last:
                break
            found += [
                UploadBehind(role_of(effect.to), effect.message, tuple(turn.passed.entered))
                for effect in turn.effects
                if isinstance(effect, Send) and value_field(type(effect.message)) is not None
            ]
    except (Rejected, CutOff):  # the run ended here
        pass
    return found


def value_field(cls: type) -> tuple[str, type[FieldKind]] | None:
    """Find (name, kind) of the numbers in the message `cls`, item factors apart; None if it has no numbers."""
    numbers = ((name, kind) for name, kind in field_kinds(cls) if kind.is_number and kind is not FactorsField)
    return next(numbers, None)


def values_of(message: Message) -> npt.NDArray[Any]:
    found = value_field(type(message))
    assert found is not None
    values: npt.NDArray[Any] = getattr(message, found[0])
    return values


def stamp(message: Message) -> tuple[int, Any]:
    """Give what a sum and its parts have in common: (iteration, attempt)."""
    return iteration_of(message), getattr(message, "attempt", None)


class UploadsBehind:
    """The uploads of roles that were run again, each role once per last iteration."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self._uploads: dict[tuple[str, int], list[UploadBehind]] = {}

    def knows(self, user: str) -> bool:
        return user in self.case.kept and self.case.path(user).is_file()

    def uploads(self, user: str, last: int) -> list[UploadBehind]:
        if (user, last) not in self._uploads:
            self._uploads[user, last] = uploads_of(self.case, user, last)
        return self._uploads[user, last]

    def upload(self, seen: Seen, receiver: str) -> UploadBehind | None:
        """Find the message `seen` in the rerun of its sender; None if that sent something else or kept no view."""
        if not self.knows(seen.sender):
            return None
        for upload in self.uploads(seen.sender, seen.iteration):
            same = type(upload.message) is type(seen.message) and upload.to == receiver
            if same and stamp(upload.message) == stamp(seen.message):
                return upload if np.array_equal(values_of(upload.message), values_of(seen.message)) else None
        return None

    def total(self, parts: list[Seen], holder: str, ids: Ids) -> Floats | None:
        """Sum what is behind the messages `parts` to `holder`, for each of `ids`; None if some of it is not known."""
        marks = []
        for seen in parts:
            upload = self.upload(seen, holder)
            mark = upload.behind() if upload is not None else None
            if mark is None:
                return None
            marks.append(mark)
        if not marks or not len(ids):
            return None
        places = 1 + max(int(named.max(initial=0)) for named in (ids, *(mark.label.items for mark in marks)))
        total = np.zeros((places, marks[0].values.shape[1]))
        for mark in marks:
            np.add.at(total, mark.label.items, mark.values)
        summed: Floats = total[ids]
        return summed
