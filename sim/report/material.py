"""What the page is made from: a run's own files, and the audit of it."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from protocol.errors import BadInput
from protocol.params import Params
from protocol.schemes import Scheme
from sim import bandwidth as measuring
from sim.audit.audit import REPETITIONS, OnQuestion
from sim.audit.audit import audit as ask
from sim.evidence import Case, open_case
from sim.folder import jsonable, read_summary

Document = dict[str, Any]


@dataclass(frozen=True)
class Material:
    """Infinity is "inf" in all of its documents, as in the JSON that the commands print."""

    folder: Path
    summary: Document  # summary.json
    case: Case  # the views, and what run.toml says they must be
    audit: Document  # what `keyhole audit --json` prints

    @property
    def scheme(self) -> Scheme:
        return self.case.card.scheme

    @property
    def params(self) -> Params:
        return self.case.card.params

    @functools.cached_property
    def lines(self) -> list[Document]:
        """iterations.jsonl: one for each iteration, −1 first."""
        text = (self.folder / "iterations.jsonl").read_text(encoding="utf-8")
        return [json.loads(line) for line in text.splitlines()]

    @functools.cached_property
    def bandwidth(self) -> Document:
        """What `keyhole bandwidth --json` prints: rows by iteration, sender, receiver and kind."""
        return dict(jsonable(measuring.bandwidth(self.folder)))


def gather(
    folder: Path, *, repetitions: int = REPETITIONS, on_question: OnQuestion = lambda question: None
) -> Material:
    """`repetitions` are those of the canary."""
    summary = read_summary(folder)
    case = open_case(folder)
    if summary is None:
        raise BadInput(f"{folder} has no summary: end the run with keyhole resume {folder}, then report on it.")
    document = ask(folder, repetitions=repetitions, on_question=on_question)
    return Material(folder, summary, case, jsonable(document))
