"""Choose whose noise is drawn again with another tape, and in which iterations; the run id draws what is not all.

A third of the users tried, or more, have other tapes in all iterations. The others have one in the first iterations,
where all begin alike, and in as many later ones as a budget allows: short stretches that the run id draws for each
user, so that a fault that begins late, or is one user's alone, cannot know where it would be seen.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from sim.audit.pairs.tapes import Retaped, another_tape, pairs_needed
from sim.audit.scoring import generator
from sim.views.evidence import Case

FIRST = 2  # iterations that are tried of every user
STRETCH = 3  # later ones that are tried together, so that neighbours are compared
WHOLE_TURNS = 80  # of users with the first other tape, at least
MOST_PAIRS = 10  # of tapes, for a user whose noise is drawn again in all iterations
TURNS = 1250  # of other users, for each pair of data sets that is tried: a third of a second
LONG_TURN = 1000  # numbers of noise that cost as much as a turn itself


class Retaping:
    def __init__(self, case: Case, names: Sequence[str], users: Sequence[str], budget: int) -> None:
        """Prefer `users` among `names`, all users that have a view; `budget` is that of pairs of data sets."""
        self.case, self.users, self.turns = case, names, TURNS * budget
        self.iterations = case.card.params.iterations
        order = [*users[::3], *(name for name in names if name not in users[::3])]
        many = max(len(users[::3]), WHOLE_TURNS // self.iterations)
        self.whole, self.others = order[:many], order[many:]
        self.tried: dict[str, int] = {}  # iterations of each of the others

    def tapes(self) -> Iterator[Retaped]:
        """Run each user's role with the tapes that were chosen for it."""
        first = [another_tape(self.case, name, None) for name in self.whole]
        yield from first
        for number in range(1, pairs_needed(first, MOST_PAIRS)):
            for name in self.whole:
                yield another_tape(self.case, name, None, number)
        turns, draw = self._affordable(first), generator(self.case, "iterations")
        others = self.others[: max(1, turns // FIRST)]
        for at, name in enumerate(others):
            many = turns // len(others) + (at < turns % len(others))
            chosen = self._chosen(draw, many)
            self.tried[name] = self.iterations if chosen is None else len(chosen)
            yield another_tape(self.case, name, chosen)

    def _affordable(self, first: Sequence[Retaped]) -> int:
        """Count the turns of others that the budget allows, if they are as long as those of `first`."""
        drawn = sum(shift.rows.size for twice in first for shift in twice.noise_shifts)
        return int(self.turns / (1 + drawn / LONG_TURN / max(1, sum(len(twice.iterations) for twice in first))))

    def _chosen(self, draw: np.random.Generator, many: int) -> frozenset[int] | None:
        """Choose `many` iterations, the first ones among them; None: all."""
        if many >= self.iterations:
            return None
        chosen = set(range(min(FIRST, self.iterations)))
        for start in draw.permutation(np.arange(FIRST, self.iterations, STRETCH)).tolist():
            stretch = range(start, min(start + STRETCH, self.iterations))
            chosen |= set(stretch[: max(0, many - len(chosen))])
        return frozenset(chosen)

    def document(self) -> dict[str, Any]:
        """Say how many users were tried in all iterations, in some, and not at all."""
        some = [count for count in self.tried.values() if count < self.iterations]
        all_of = len(self.whole) + len(self.tried) - len(some)
        return {
            "users": len(self.users),
            "in_all": all_of,
            "in_some": len(some),
            "fewest": min(some, default=None),
            "iterations": self.iterations,
        }
