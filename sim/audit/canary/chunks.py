"""Spread the repetitions of canaries over processes, in chunks whose results do not depend on the process."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from protocol.arithmetic.tape import keystream
from protocol.arrays import Flags
from sim.console.progress import Tell
from sim.drivers.workers import map_cells

CHUNK = 250  # repetitions per task of a process
WORTH_A_PROCESS = 4_000  # with fewer repetitions, starting processes takes longer than it saves

Posed = TypeVar("Posed")  # a problem
Part = TypeVar("Part")  # the record of some of its repetitions


def unheard(done: int, total: int) -> None:
    """Tell nobody of progress."""


def spread(
    play: Callable[[Posed, bytes, int, int], Part],
    work: Sequence[Sequence[tuple[Posed, bytes, int, int]]],
    workers: int | None,
    tell: Tell = unheard,
    played: dict[Any, Any] | None = None,
) -> list[list[Part]]:
    """Call `play` for every chunk of every problem, in several processes if that saves time.

    Chunks that are in `played` are not played again, and new ones are put there: it belongs to one sequence of looks,
    in which the problems of `work` have the same order.
    """
    held: dict[Any, Part] = {} if played is None else played
    named = [[(place, *chunk[1:]) for chunk in those] for place, those in enumerate(work)]
    new = [
        (name, chunk)
        for names, those in zip(named, work, strict=True)
        for name, chunk in zip(names, those, strict=True)
        if name not in held
    ]
    if sum(count for _, (_, _, _, count) in new) < WORTH_A_PROCESS:
        workers = 1
    done = itertools.count(1)
    made = map_cells(play, [chunk for _, chunk in new], workers, lambda _: tell(next(done), len(new)))
    held.update(zip((name for name, _ in new), made, strict=True))
    return [[held[name] for name in names] for names in named]


def cut(problem: Posed, seed: bytes, repetitions: int, size: int | None = None) -> list[tuple[Posed, bytes, int, int]]:
    step = CHUNK if size is None else size
    return [(problem, seed, first, min(step, repetitions - first)) for first in range(0, repetitions, step)]


def coins(seed: bytes, first: int, count: int) -> Flags:
    """Toss an independent fair coin for each repetition of a chunk: the one-run theorem needs them so."""
    bits = np.frombuffer(keystream(seed, count, "coins", first), np.uint8)
    tossed: Flags = bits % 2 == 1
    return tossed
