"""Look at a canary after n, 2n, 4n … repetitions, and stop as soon as something is refuted that nothing declares.

Every look has its own part of the error, and the parts add up to 1: by the union bound all bounds of all looks hold
together at the stated level, so the choice when to stop costs nothing more. The last look has half of the error, the
one before it a quarter, and so on, because a fault that shows early shows clearly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from sim.console.console import figure

FEWEST = 1_000  # repetitions of the first look, at least
DIGITS = 12  # of a level that is 1 less a confidence


@dataclass(frozen=True, slots=True)
class Look:
    repetitions: int
    part: float  # of the error

    def confidence(self, whole: float) -> float:
        """Return the confidence of this look, where all looks together have `whole`."""
        return 1 - (1 - whole) * self.part


Rows = TypeVar("Rows")


def looks_of(repetitions: int, fewest: int | None = None) -> list[Look]:
    """List the looks at `repetitions` and at their halves, down to `fewest`."""
    fewest, sizes = FEWEST if fewest is None else fewest, [repetitions]
    while sizes[0] // 2 >= fewest:
        sizes.insert(0, sizes[0] // 2)
    parts = [2.0**-place for place in range(1, len(sizes))]
    return [Look(size, part) for size, part in zip(sizes, [*parts, 1 - sum(parts)][::-1], strict=True)]


def look_until(
    looks: Sequence[Look], rows_at: Callable[[Look], Rows], refutes: Callable[[Rows], bool]
) -> tuple[Rows, list[Look], bool]:
    """Return (the rows of the last look, the looks that were made, whether its rows refute what is claimed)."""
    for number, look in enumerate(looks, 1):
        rows = rows_at(look)
        if refutes(rows) or number == len(looks):
            break
    return rows, list(looks[:number]), refutes(rows)


def looks_document(looks: Sequence[Look], planned: Sequence[Look], confidence: float, refuted: bool) -> dict[str, Any]:
    return {
        "level": (level := round(1 - confidence, DIGITS)),
        "made": [{"repetitions": look.repetitions, "level": level * look.part} for look in looks],
        "planned": len(planned),
        "stopped_early": len(looks) < len(planned),
        "refuted": refuted,
    }


def looks_in_words(document: dict[str, Any] | None) -> str:
    """Say when the canary was looked at, at which level, and why it ended."""
    if not document or len(document["made"]) + document["stopped_early"] < 2:
        return ""
    after = [f"{look['repetitions']:,}" for look in document["made"]]
    times = f"{', '.join(after[:-1])} and {after[-1]}" if after[1:] else after[0]
    why = "something undeclared was refuted" if document["stopped_early"] else "that was all that was asked for"
    level = f"{figure(100 * document['level'])} %"
    return f"Looked at after {times} repetitions, at a level of {level} for all looks together; it ended because {why}."
