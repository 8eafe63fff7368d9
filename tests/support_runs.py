"""Whole runs in one process for tests, and users who stay away."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from protocol.messages import ItemFactors, ItemFactorsInFull
from protocol.schemes.masked import Masked, MaskedUser
from protocol.seating import Card, Seat
from sim.inprocess import InProcess


def play(
    card: Card, seats: list[Seat], folder: Path | None = None, views: Iterable[str] = (), **options: Any
) -> InProcess:
    """Run to the end; nothing aborts, and nothing is refused but what came too late."""
    where = None if folder is None else str(folder)
    run = InProcess(card, seats, run_folder=where, with_view=frozenset(views), **options)
    outcome = run.run()
    assert outcome.abort is None
    assert set(outcome.rejected) <= ({"WRONG_ITERATION"} if options.get("silent") else set())
    return run


def factors_of(card: Card, seats: list[Seat], **options: Any) -> np.ndarray:
    factors = play(card, seats, **options).outcome.item_factors
    assert factors is not None
    return factors


class Skipper(MaskedUser):
    """A user who is offline in some iterations: it neither steps nor answers."""

    skipped: frozenset[int] = frozenset()

    def receive(self, sender, message):
        if isinstance(message, ItemFactors | ItemFactorsInFull) and message.iteration in self.skipped:
            return []
        return super().receive(sender, message)


class MaskedWithSkippers(Masked):
    def __init__(self, absent: dict[int, set[int]]) -> None:
        self._absent = absent  # iteration -> users

    def make_role(self, party, setting, tape, inputs):
        if not party.startswith("user:"):
            return super().make_role(party, setting, tape, inputs)
        user = Skipper(setting, tape, inputs)
        number = int(party.partition(":")[2])
        user.skipped = frozenset(t for t, absent in self._absent.items() if number in absent)
        return user


def with_skippers(card: Card, absent: dict[int, set[int]]) -> Card:
    return dataclasses.replace(card, scheme=MaskedWithSkippers(absent))


def unit(rows: np.ndarray) -> list[list[float]]:
    return [[x / math.sqrt(sum(y * y for y in row)) for x in row] for row in rows.tolist()]


def by_item(items: Iterable[int], rows: np.ndarray) -> dict[int, list[Any]]:
    return dict(zip([int(item) for item in items], rows.tolist(), strict=True))
