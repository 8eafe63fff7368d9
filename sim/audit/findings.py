"""Findings of the audit, and whether they go beyond what the scheme claims."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from protocol.party.role import role_of
from protocol.schemes.base import Weakness
from sim.console.glossary import FINDINGS

ALL_BUT_ONE = "all users but one"  # a member of a canary's coalition
Severity = Literal["info", "weak", "break"]
Verdict = Literal["within-claims", "beyond-claims"]

QUESTIONS = ("inventory", "algebra", "attacks", "accounting", "pairs", "empirical", "statistics")
SUPPORT = "who rated what"

IDS = frozenset(FINDINGS)  # stable: scripts depend on them; each has its words in the glossary


@dataclass(frozen=True, slots=True)
class Finding:
    """`info`: looked for and not found, or harmless; `weak`: weaker than claimed; `break`: the claim is false."""

    id: str
    title: str  # one sentence that the reader understands without the rest
    coalition: tuple[str, ...]
    severity: Severity
    claimed: Any = None  # numbers or short texts; null where nothing is claimed
    measured: Any = None
    chance: Any = None  # result of guessing without the view, in the unit of `measured`
    confidence: str | None = None  # confidence of `measured`: an interval, or "exact"
    evidence: str = ""  # the method, and the files it was applied to
    amount: float | None = None  # how much, in the unit of the bound that a scheme may declare (`Weakness.most`)
    iteration: int | None = None  # the first one in which it was seen, where that matters

    def __post_init__(self) -> None:
        if self.id not in IDS:
            raise ValueError(f"{self.id} is not a finding that is known to scripts")


Audited = tuple[dict[str, Any], list[Finding]]  # (what a question found, for `audit --json`; its findings)


def goes_beyond(finding: Finding, known: Iterable[str]) -> bool:
    """Tell whether it is a break, or a weakness that `known` does not declare: of this party, to this amount."""
    if finding.severity != "weak":
        return finding.severity == "break"
    roles = {"user" if name == ALL_BUT_ONE else role_of(name) for name in finding.coalition}
    declared = (one for one in known if one == finding.id)
    return not any(
        not isinstance(one, Weakness) or one.covers(roles, finding.amount, finding.iteration) for one in declared
    )


def beyond(findings: Iterable[Finding], known: Collection[str]) -> list[Finding]:
    """Select the findings that `known` weaknesses do not declare."""
    return [finding for finding in findings if goes_beyond(finding, known)]


def word_of(row: Mapping[str, Any]) -> str:
    """Return the severity of a finding, a `row` of a document; "declared" for a weakness that the scheme declares."""
    return "declared" if row["severity"] == "weak" and not row["beyond"] else str(row["severity"])


def verdict(findings: Iterable[Finding], known: Collection[str]) -> Verdict:
    return "beyond-claims" if beyond(findings, known) else "within-claims"
