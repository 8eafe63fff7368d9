"""Findings of the audit, and whether they go beyond what the scheme claims."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

Severity = Literal["info", "weak", "break"]
Verdict = Literal["within-claims", "beyond-claims"]

QUESTIONS = ("inventory", "algebra", "attacks", "accounting", "empirical", "statistics")
SUPPORT = "who rated what"

# stable: scripts depend on these ids
IDS = frozenset(
    {
        "undeclared-field",
        "known-envelope",
        "known-shares",
        "missing-noise",
        "composition",
        "support",
        "single-contributor",
        "released-sums",
        "difference-attack",
        "unmasking",
        "moving-user-factors",
        "reacting-user-factors",
        "diluted-sum",
        "mask-uniformity",
        "rating-inference",
        "membership",
        "uniform-noise",
        "sensitivity",
    }
)


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

    def __post_init__(self) -> None:
        if self.id not in IDS:
            raise ValueError(f"{self.id} is not a finding that is known to scripts")


Audited = tuple[dict[str, Any], list[Finding]]  # (what a question found, for `audit --json`; its findings)


def beyond(findings: Iterable[Finding], known_weaknesses: Collection[str]) -> list[Finding]:
    """Select the breaks, and the weaknesses that `known_weaknesses` does not declare."""
    return [finding for finding in findings if goes_beyond(finding.severity, finding.id, known_weaknesses)]


def goes_beyond(severity: str, id_: str, known_weaknesses: Collection[str]) -> bool:
    return severity == "break" or (severity == "weak" and id_ not in known_weaknesses)


def word_of(finding: Mapping[str, Any], known_weaknesses: Collection[str]) -> str:
    """Return the severity of `finding`, a row of a document; "declared" for a weakness that the scheme declares."""
    severity = str(finding["severity"])
    weak = severity == "weak" and not goes_beyond(severity, finding["id"], known_weaknesses)
    return "declared" if weak else severity


def verdict(findings: Iterable[Finding], known_weaknesses: Collection[str]) -> Verdict:
    return "beyond-claims" if beyond(findings, known_weaknesses) else "within-claims"
