"""The sources of the page: a run's own files, and the audit of it."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from protocol.errors import BadInput
from protocol.params import Params
from protocol.schemes import Scheme
from sim.audit.audit import REPETITIONS, WITHOUT_USERS, OnQuestion
from sim.audit.audit import audit as ask
from sim.audit.claim import unknown
from sim.audit.findings import QUESTIONS
from sim.audit.kept_answers import kept_document
from sim.bandwidth import bandwidth as measuring
from sim.console.progress import Tell
from sim.folder.byte_records import read_iterations
from sim.folder.folder import read_summary
from sim.foreign.plain_text import jsonable
from sim.views.evidence import Case, open_case

Document = dict[str, Any]


@dataclass(frozen=True)
class Material:
    """The material of one page. Infinity is "inf" in all of its documents, as in the JSON that the commands print."""

    folder: Path
    summary: Document  # summary.json
    case: Case  # the views, and what run.toml says they must be
    audit: Document  # what `keyhole audit --json` prints; `unanswered` has what this run cannot be asked, and why

    shared: Document = field(init=False, default_factory=dict, compare=False, repr=False)  # between sections

    @property
    def scheme(self) -> Scheme:
        return self.case.card.scheme

    @property
    def params(self) -> Params:
        return self.case.card.params

    @functools.cached_property
    def lines(self) -> list[Document]:
        """Read the lines of iterations.jsonl: one for each iteration, −1 first."""
        return read_iterations(self.folder, self.params.n_users)

    @functools.cached_property
    def bandwidth(self) -> Document:
        """Make the document that `keyhole bandwidth --json` prints: rows by iteration, sender, receiver and kind."""
        return dict(jsonable(measuring.bandwidth(self.folder)))


def gather(
    folder: Path,
    *,
    repetitions: int = REPETITIONS,
    on_question: OnQuestion = lambda question: None,
    tell: Tell = lambda done, total: None,
) -> Material:
    """Gather the material of a page; `repetitions` are those of the canary. Answers kept in `folder` are reused."""
    summary = read_summary(folder)
    case = open_case(folder)
    if summary is None:
        raise BadInput(f"{folder} has no summary: end the run with keyhole resume {folder}, then report on it.")
    read_iterations(folder, case.card.params.n_users)  # reports damage before the audit starts
    return Material(folder, summary, case, jsonable(_audit(case, repetitions, on_question, tell)))


def _audit(case: Case, repetitions: int, on_question: OnQuestion, tell: Tell) -> Document:
    """Ask every question that the views that were kept can answer."""
    absent = [party for party in case.parties if not case.path(party).is_file()]
    no_server = set(absent) & set(case.card.scheme.servers)
    only = sorted(WITHOUT_USERS) if absent and not no_server else []
    why = f"It needs views that this run did not keep ({len(absent)} are missing): run with --views full."
    try:
        answers = ask(
            case.folder, _asked_before(case), only=only, repetitions=repetitions, on_question=on_question, tell=tell
        )
    except BadInput as refusal:
        return _not_asked(case, str(refusal))
    answers["unanswered"] |= {question: why for question in QUESTIONS if only and question not in only}
    return answers


def _asked_before(case: Case) -> list[str]:
    """List the coalitions of the audit kept in the folder, so that those added with --coalition are asked again."""
    before = kept_document(case.folder) or {}
    return ["+".join(row["members"]) for row in before.get("coalitions") or ()]


def _not_asked(case: Case, why: str) -> Document:
    """Make an audit without answers, and so without a verdict."""
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
        "published_claim": unknown(why),
        "unanswered": dict.fromkeys(QUESTIONS, why),
        "false_alarm": 0.0,
    }
