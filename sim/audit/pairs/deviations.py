"""What differs between two messages that stand at the same place of two runs, field by field.

Numbers that a rating enters may differ in value. Everything else must be the same: which kind of message it is, how
long its fields are, and all that is no number about ratings, such as items, counts, digests and iterations.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from protocol.params import Params
from protocol.wire.fields import RingField, field_kinds
from protocol.wire.messages import Message
from sim.audit.role_rerun import fraction_bits

VALUES, LENGTH, CONTENT, KIND, MISSING, FURTHER, REFUSED = (
    "values",  # numbers about ratings differ: what the noise has to cover
    "length",
    "content",
    "kind",
    "missing",
    "further",
    "refused",
)


@dataclass(frozen=True, slots=True)
class Deviation:
    """One field of one message, or a message as a whole, that is not what it was."""

    party: str  # in whose view it stands
    record: int  # of that view as it was recorded
    iteration: int
    sender: str
    kind: str
    field: str | None
    what: str
    rows: int = 0  # that differ
    of: int = 0
    largest: float | None = None  # change of a number

    @property
    def is_leak(self) -> bool:
        """Tell whether the difference is a leak by itself: anything but the values of numbers."""
        return self.what != VALUES

    def row(self) -> dict[str, Any]:
        return {**asdict(self), "leak": self.is_leak}

    def words(self) -> str:
        where = f"{self.kind}.{self.field}" if self.field else self.kind
        return {
            LENGTH: f"the length of {where}",
            CONTENT: f"the content of {where}",
            KIND: f"the kind of a message ({where})",
            MISSING: f"whether a message is sent ({where})",
            FURTHER: f"whether a message is sent ({where})",
            REFUSED: f"whether a message is refused ({where})",
        }.get(self.what, f"the numbers of {where}")


@dataclass(frozen=True, slots=True)
class Spot:
    """The place of a message in the view of its receiver."""

    party: str
    record: int
    iteration: int
    sender: str

    def differs(self, kind: str, field: str | None, what: str, *more: Any) -> Deviation:
        return Deviation(self.party, self.record, self.iteration, self.sender, kind, field, what, *more)


def compare(place: Spot, before: Message, after: Message, params: Params) -> list[Deviation]:
    """List the fields in which `after` differs from `before`."""
    kind = type(before).__name__
    if type(after) is not type(before):
        return [place.differs(kind, None, KIND)]
    found = []
    for name, field in field_kinds(before.__class__):
        one, other = getattr(before, name), getattr(after, name)
        if isinstance(one, np.ndarray):
            if one.shape != other.shape:
                found.append(place.differs(kind, name, LENGTH, len(other) - len(one), len(one)))
            elif not np.array_equal(one, other):
                apart = (one != other).reshape(len(one), -1).any(axis=1)
                largest = _largest(one, other, field, params, place.iteration) if field.is_number else None
                what = VALUES if field.is_number else CONTENT
                found.append(place.differs(kind, name, what, int(np.count_nonzero(apart)), len(one), largest))
        elif one != other:
            same = not isinstance(one, tuple) or len(one) == len(other)
            found.append(place.differs(kind, name, CONTENT if same else LENGTH, 1, 1))
    return found


def _largest(one: Any, other: Any, field: Any, params: Params, iteration: int) -> float:
    if not issubclass(field, RingField):
        return float(np.abs(other.astype(np.float64) - one.astype(np.float64)).max())
    ring = RingField(params).ring
    return float(np.abs(ring.to_signed(ring.subtract(other, one))).max()) / 2.0 ** fraction_bits(params, iteration)
