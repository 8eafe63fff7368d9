"""Every finding of the audit with its evidence, and the tables that stand behind them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from sim.audit.findings import word_of
from sim.report.findings.evidence_tables import behind
from sim.report.findings.evidence_values import value_html
from sim.report.reported_run import ReportedRun
from sim.report.section import Section, render

_STYLES = {"break": "bad", "weak": "bad", "declared": "weak", "info": "good"}
_MEANINGS = {
    "break": "a claim is false",
    "weak": "weaker than claimed, and not declared",
    "declared": "weaker than claimed, and the scheme says so itself",
    "info": "looked for and not found, or harmless",
}


@dataclass(frozen=True, slots=True)
class ShownFinding:
    id: str
    word: str
    style: str
    title: str
    who: str
    figures: list[tuple[str, Markup]]  # claimed, measured, chance
    confidence: str
    evidence: str


@dataclass(frozen=True, slots=True)
class Group:
    """All grave findings with one id, the gravest first."""

    id: str
    first: ShownFinding
    others: list[ShownFinding]


def section(run: ReportedRun) -> Section:
    audit = run.audit
    found = [shown(finding) for finding in audit["findings"]]
    grave = [one for one in found if one.word != "info"]
    words = list(dict.fromkeys(one.word for one in grave))
    return Section(
        "findings",
        "Findings",
        render(
            "findings.html",
            groups=groups(grave),
            harmless=[one for one in found if one.word == "info"],
            meanings=[(word, _STYLES[word], _MEANINGS[word]) for word in words],
            asked=_asked(audit),
            unanswered=audit["unanswered"],
            false_alarm=audit["false_alarm"],
            behind=behind(audit),
        ),
    )


def shown(finding: dict[str, Any]) -> ShownFinding:
    word = word_of(finding)
    figures = [(name, value_html(finding[name])) for name in ("claimed", "measured", "chance")]
    return ShownFinding(
        finding["id"],
        word,
        _STYLES[word],
        finding["title"],
        " + ".join(finding["coalition"]) or "a reader of the releases",
        figures,
        finding["confidence"] or "not stated",
        finding["evidence"] or "none was written down",
    )


def groups(grave: list[ShownFinding]) -> list[Group]:
    """Group findings by id; the audit has sorted them, so that the gravest of each group comes first."""
    by_id: dict[str, list[ShownFinding]] = {}
    for one in grave:
        by_id.setdefault(one.id, []).append(one)
    return [Group(id_, each[0], each[1:]) for id_, each in by_id.items()]


def _asked(audit: dict[str, Any]) -> str:
    """List the questions that were asked, and how long each took."""
    idle = {**audit["unanswered"], **audit["nothing_to_ask"]}
    times = [f"{name} ({seconds:.1f} s)" for name, seconds in audit["questions"].items() if name not in idle]
    return ", ".join(times) or "nothing"
