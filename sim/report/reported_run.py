"""The run that a page is about: its own files, and the answers of its audit."""

from __future__ import annotations

import functools
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from protocol.errors import BadInput
from protocol.params import Params
from protocol.schemes import Scheme
from sim.audit.audit import WITHOUT_USERS, Audit, OnQuestion
from sim.audit.claim import unknown
from sim.audit.findings import QUESTIONS
from sim.audit.kept_answers import kept_document
from sim.bandwidth import bandwidth as measuring
from sim.console.progress import Tell
from sim.folder.byte_records import LINES, add_amounts, read_iterations
from sim.folder.folder import read_run, read_summary
from sim.folder.traffic import joined_rows
from sim.foreign.plain_text import jsonable
from sim.views.evidence import Case

Document = dict[str, Any]


@dataclass(frozen=True, eq=False)
class ReportedRun:
    """A run as its page shows it. Infinity is "inf" in all of its documents, as in the JSON that the commands print."""

    summary: Document  # summary.json
    live: Audit  # what sections ask beyond the document
    audit: Document  # what `keyhole audit --json` prints; `unanswered` has what this run cannot be asked, and why

    shared: Document = field(init=False, default_factory=dict, repr=False)  # between sections

    @property
    def folder(self) -> Path:
        return self.live.folder

    @property
    def case(self) -> Case:
        return self.live.case

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
    def told_rows(self) -> list[Document]:
        """Add up the bytes that the iterations of a run told, which may not have completed; nothing is predicted."""
        sums: dict[Any, list[int]] = defaultdict(lambda: [0, 0, 0])
        for line in self.lines if (self.folder / LINES).is_file() else ():
            add_amounts(sums, line["rows"])
        return joined_rows(sums, None)

    @functools.cached_property
    def bandwidth(self) -> Document:
        """Make the document that `keyhole bandwidth --json` prints: rows by iteration, sender, receiver and kind."""
        return dict(jsonable(measuring.bandwidth(self.folder)))


def ask_for_page(
    live: Audit,
    *,
    repetitions: int | None = None,
    on_question: OnQuestion = lambda question: None,
    tell: Tell = lambda done, total: None,
) -> ReportedRun:
    """Ask every question that the views that were kept can answer; `repetitions` of the canary, if not those before."""
    folder = live.folder
    read_run(folder)  # refuses a scheme that is not loaded
    summary = read_summary(folder)
    if summary is None:
        raise BadInput(f"{folder} has no summary: end the run with keyhole resume {folder}, then report on it.")
    read_iterations(folder, live.case.card.params.n_users)  # reports damage before the audit starts
    absent = [party for party in live.case.parties if not live.case.path(party).is_file()]
    no_server = set(absent) & set(live.case.card.scheme.servers)
    only = sorted(WITHOUT_USERS) if absent and not no_server else []
    why = f"It needs views that this run did not keep ({len(absent)} are missing): run with --views full."
    try:
        answers = live.ask(
            _asked_before(live),
            only=only,
            repetitions=repetitions or live.repetitions,
            on_question=on_question,
            tell=tell,
        )
        answers["unanswered"] |= {question: why for question in QUESTIONS if only and question not in only}
    except BadInput as refusal:
        answers = _not_asked(live.case, str(refusal))
    return ReportedRun(summary, live, jsonable(answers))


def _asked_before(live: Audit) -> list[str]:
    """List the coalitions of the audit kept in the folder, so that those added with --coalition are asked again."""
    before = (kept_document(live.folder) or {}).get("coalitions") or ()
    return ["+".join(members) for members in (*(row["members"] for row in before), *live.kept.extra)]


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
        "known_weaknesses": scheme.weakness_ids(),
        "weaknesses": [one.document() for one in scheme.weaknesses()],
        "published_claim": unknown(why),
        "unanswered": dict.fromkeys(QUESTIONS, why),
        "not_shown": [],
        "false_alarm": 0.0,
    }
