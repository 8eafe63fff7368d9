"""The keys that masks are drawn from, and who can compute each: whoever holds a key holds all that follows from it.

A key that no tape had a part in follows from public values, if it is constant or nearly so: then everybody can try all
that it may be. Where it comes from something else, its origin is unknown, and the audit says so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

import numpy as np

from protocol.arithmetic.tape import Name
from protocol.arrays import Flags

ENUMERABLE = 6  # bytes of a key that differ from its most frequent one, at most, for all such keys to be tried

Derived = Mapping[bytes, tuple[bytes, tuple[Name, ...]]]


class HeldKeys:
    def __init__(self, streams: Iterable[bytes], derived: Derived, seeds: Collection[bytes], run_id: bytes) -> None:
        """Number the keys of `streams`; `seeds` are those of all tapes."""
        self.numbers = {key: number for number, key in enumerate(dict.fromkeys(streams))}
        secret = derived.keys() | set(seeds)
        self._parts: dict[bytes, frozenset[bytes]] = {}  # all that is needed to compute a key
        self._children: dict[bytes, list[bytes]] = {}
        todo, seen = list(self.numbers), set(self.numbers)
        while todo:
            key = todo.pop()
            if key in derived:
                parent, name = derived[key]
                parts = frozenset({parent, *(secret & {one for one in name if isinstance(one, bytes)})})
                self._parts[key] = parts
                for part in parts:
                    self._children.setdefault(part, []).append(key)
                todo += parts - seen
                seen |= parts
        roots = seen - derived.keys() - set(seeds)
        self._public = frozenset(root for root in roots if root == run_id or _can_be_tried(root))
        followed = self._closed(self._public | set(seeds))
        self.unexplained = [key for key in self.numbers if key not in followed]  # of unknown origin

    def held(self, keys: Iterable[bytes]) -> Flags:
        """Mark the numbered keys that follow from `keys` and public values; the entry after the last is False."""
        marked = np.zeros(len(self.numbers) + 1, np.bool_)
        marked[[self.numbers[key] for key in self._closed(self._public.union(keys)) & self.numbers.keys()]] = True
        return marked

    def _closed(self, keys: Iterable[bytes]) -> set[bytes]:
        held = set(keys)
        todo = list(held & self._children.keys())
        while todo:
            for child in self._children.get(todo.pop(), ()):
                if child not in held and self._parts[child] <= held:
                    held.add(child)
                    todo.append(child)
        return held


def _can_be_tried(key: bytes) -> bool:
    """Tell whether all but a few bytes of `key` are the same, as in no key that was drawn."""
    return len(key) - max(Counter(key).values(), default=0) <= ENUMERABLE
