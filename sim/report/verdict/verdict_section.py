"""The top of the page: four tiles, and two questions that are kept apart.

Does the published claim hold? And did this run leak beyond what its scheme declares? A scheme that declares a weakness
can leak only as declared while its claim is refuted.
"""

from __future__ import annotations

from protocol.schemes.base import LEVELS
from sim.audit.claim import HOLDS, REFUTED
from sim.report.reported_run import ReportedRun
from sim.report.section import Section, render
from sim.report.verdict.tiles import ClaimAnswer, Sentence, tiles

CLAIM_STYLES = {HOLDS: "good", REFUTED: "weak"}


def section(run: ReportedRun) -> Section:
    claim, told = published(run), sentence(run)
    html = render("verdict.html", tiles=tiles(run, claim, told), claim=claim, told=told)
    return Section("verdict", "Verdict", html)


def published(run: ReportedRun) -> ClaimAnswer:
    """Give the status of the published claim: amber if refuted, as the scheme may still do what it declares."""
    found = run.audit["published_claim"]
    status = str(found["status"])
    return ClaimAnswer(CLAIM_STYLES.get(status, ""), status.replace("-", " "), str(found["claim"]), str(found["why"]))


def sentence(run: ReportedRun) -> Sentence:
    audit, name = run.audit, run.scheme.name
    found = audit["findings"]
    beyond = [finding for finding in found if finding["beyond"]]
    ids = list(dict.fromkeys(finding["id"] for finding in beyond))
    weak = [finding["id"] for finding in found if finding["severity"] == "weak" and finding["id"] not in ids]
    refuted = audit["published_claim"]["status"] == REFUTED
    style, status = "weak" if weak or refuted else "good", "as declared"
    headline = f"{name} leaked nothing beyond what it declares"
    if audit["not_shown"]:
        style, status = "weak", "not shown"
        headline = f"Not everything was shown: nothing beyond what {name} declares was found"
    if exposed := [role for role, level in run.scheme.permits.items() if level == LEVELS[-1]]:
        whom = " and the ".join(exposed)  # or the headline would read as protection
        style, headline = "weak", f"{headline}, which lets the {whom} see exact numbers of single users"
    if audit["verdict"] is None:
        style, status, headline = "weak", "not asked", "There is no verdict"
    elif audit["verdict"] == "beyond-claims":
        style, status, headline = "bad", "beyond", f"{name} leaked beyond what it declares"
    elif run.summary["abort"] is not None:
        style, headline = "weak", f"{headline} until it was aborted"
    if audit["unanswered"] and audit["verdict"] is not None:
        style, headline = "bad" if style == "bad" else "weak", f"{headline}, by the questions that could be asked"
    if run.summary["privacy"]["claimed_epsilon"] == "inf" and audit["verdict"] is not None:
        style, headline = "bad" if style == "bad" else "weak", f"{headline}; ε = ∞ bounds nothing"
    gravest = beyond[0]["title"] if beyond else ""
    return Sentence(style, status, headline, ids, gravest, list(dict.fromkeys(weak)), _notes(run))


def _notes(run: ReportedRun) -> list[str]:
    """List what limits the verdict: an early end, and questions that were not asked."""
    abort, audit = run.summary["abort"], run.audit
    notes = []
    if abort is not None:
        notes.append(
            f"The run was aborted: {abort['sentence'].rstrip('.')}. All of this is about what was seen until then."
        )
    for row in audit["not_shown"]:
        if row["question"] not in audit["unanswered"]:
            whose = f" ({' + '.join(row['coalition'])})" if row["coalition"] else ""
            notes.append(f"Not shown: {row['question']}{whose}. {row['reason'].rstrip('.')}.")
    for words, questions in (("Not answered", audit["unanswered"]), ("Nothing to ask", audit["nothing_to_ask"])):
        by_reason: dict[str, list[str]] = {}
        for question, why in questions.items():
            by_reason.setdefault(why, []).append(question)
        notes += [f"{words}: {', '.join(names)}. {why.rstrip('.')}." for why, names in by_reason.items()]
    return notes
