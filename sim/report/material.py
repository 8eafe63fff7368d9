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
from sim.audit.audit import QUESTIONS, REPETITIONS, WITHOUT_USERS, OnQuestion
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
    audit: Document  # what `keyhole audit --json` prints; `unanswered` has what this run cannot be asked, and why

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
    document = _audit(case, repetitions, on_question)
    return Material(folder, summary, case, jsonable(document))


def _audit(case: Case, repetitions: int, on_question: OnQuestion) -> Document:
    """As far as the views that were kept allow it."""
    absent = [party for party in case.parties if not case.path(party).is_file()]
    no_server = set(absent) & set(case.card.scheme.servers)
    only = sorted(WITHOUT_USERS) if absent and not no_server else []
    why = f"It needs views that this run did not keep ({len(absent)} are missing): run with --views full."
    try:
        answers = ask(case.folder, only=only, repetitions=repetitions, on_question=on_question)
    except BadInput as refusal:
        return _not_asked(case, str(refusal))
    answers["unanswered"] |= {question: why for question in QUESTIONS if only and question not in only}
    return answers


def _not_asked(case: Case, why: str) -> Document:
    """An audit without an answer, and so without a verdict."""
    scheme = case.card.scheme
    return {
        **dict.fromkeys((*QUESTIONS, "coalitions", "verdict")),
        "findings": [],
        "parties": [],
        "questions": {},
        "nothing_to_ask": {},
        "run": str(case.folder),
        "scheme": scheme.name,
        "known_weaknesses": list(scheme.known_weaknesses),
        "unanswered": dict.fromkeys(QUESTIONS, why),
        "false_alarm": 0.0,
    }
