"""Decide whether the published claim holds, as opposed to whether a run leaked more than its scheme declares.

`refuted`: the accounting (exactly) or the canary (at a stated confidence) shows that some party covered by the claim
learns more. A weakness that a scheme declares does not make its published claim true. `holds`: accounted and measured,
and nowhere above the claim. Otherwise `not-tested`, with the reason.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sim.audit.families.registry import family_of
from sim.audit.findings import Finding
from sim.audit.verdict import promised
from sim.console.console import figure
from sim.views.evidence import Case

HOLDS, REFUTED, NOT_TESTED = "holds", "refuted", "not-tested"
NEEDED = ("accounting", "empirical")  # a claim can hold only if both of these were answered
_HAIR = 1 + 1e-9  # tolerance: rounding must not refute a claim


@dataclass(frozen=True, slots=True)
class ClaimEvidence:
    """The evidence of one source for or against the claim."""

    figure: Any  # an ε, or what a finding measured
    claimed: Any
    confidence: str
    sentence: str

    @property
    def refutes(self) -> bool:
        return not isinstance(self.claimed, float | int) or self.figure > self.claimed * _HAIR


def published_claim(
    case: Case,
    accounting: Mapping[str, Any] | None,
    empirical: Mapping[str, Any] | None,
    findings: Sequence[Finding],
    missing: Collection[str] = (),
    silent: Collection[str] = (),
) -> dict[str, Any]:
    """Return the entry `published_claim` of `audit --json`.

    `missing` are the questions without an answer; `silent` are those of them that were asked all the same.
    """
    claimed = case.card.params.epsilon
    if "epsilon" not in case.card.scheme.flags or math.isinf(claimed):
        return unknown(f"{case.card.scheme.name} claims no ε in this run: nothing is claimed.")
    head = {"claimed": claimed, "claim": promised(case)}
    sources = [*_accounted(case, accounting or {}, findings, claimed), *_measured(empirical or {})]
    against = [one for one in sources if one.refutes] + [_broken(each) for each in findings if each.severity == "break"]
    if against:
        first = against[0]
        why = " ".join(dict.fromkeys(one.sentence for one in against))
        return {"status": REFUTED, **head, "shown": first.figure, "confidence": first.confidence, "why": why}
    unasked = [question for question in NEEDED if question in missing]
    accounted = _accounted(case, accounting or {}, findings, claimed)
    if unasked or not accounted:
        why = " nor ".join({"accounting": "its accounting", "empirical": "a canary"}[each] for each in unasked)
        why = f"neither {why}" if len(unasked) > 1 else f"{why}"
        how = "gave an answer" if set(unasked) & set(silent) else "was asked for"
        how = how if len(unasked) > 1 else {"gave an answer": "gave none", "was asked for": "was not asked for"}[how]
        asked = f"Nothing contradicts it so far, but {why} {how}." if unasked else ""
        bound = asked or f"Nothing bounds it: {(accounting or {}).get('method', 'it was not accounted')}."
        return unknown(bound) | head
    worst = max(accounted, key=lambda one: float(one.figure))
    why = f"{worst.sentence} No canary shows more than is claimed."
    return {"status": HOLDS, **head, "shown": worst.figure, "confidence": worst.confidence, "why": why}


def unknown(why: str) -> dict[str, Any]:
    """Return the entry of an untested claim, with the reason `why`."""
    return {"status": NOT_TESTED, "claimed": None, "claim": "", "shown": None, "confidence": None, "why": why}


def _accounted(
    case: Case, accounting: Mapping[str, Any], findings: Sequence[Finding], claimed: float
) -> list[ClaimEvidence]:
    """Compare the accounting with the claim, per party: for one release, or for the run if the claim covers it."""
    delta = accounting.get("delta")
    exact = f"exact, at δ = {delta:g}" if delta else "exact, at δ = 0"
    bound = family_of(case.card.scheme).bound(accounting, findings) if "composed" in accounting else None
    found = [] if bound is None else [ClaimEvidence(bound.epsilon, bound.claimed or claimed, exact, bound.sentence)]
    return [*found, *_reacting(accounting.get("sensitivity") or {}, claimed)]


def _reacting(moved: Mapping[str, Any], claimed: float) -> list[ClaimEvidence]:
    """Report a flipped rating that changes more than the noise covers because state assumed fixed moves with it."""
    for name, words in (("largest_iteration", "all of its gradients of one release"), ("published", "all factors")):
        if name in moved and (largest := moved[name]["largest"]) > 1:
            text = f"One flipped rating moves {words}, which leaves ε = {figure(largest * claimed)}."
            return [ClaimEvidence(largest * claimed, claimed, f"exact, of {moved[name]['flips']} flips", text)]
    return []


def _measured(empirical: Mapping[str, Any]) -> list[ClaimEvidence]:
    """Pick, for each party that computes alone, the canary row that most exceeds its claim."""
    level = f"{100 * empirical.get('confidence', 0):g} %"
    worst: dict[tuple[str, ...], Mapping[str, Any]] = {}
    for row in empirical.get("rows", ()):
        who = tuple(row["coalition"])
        if len(who) > 1 or not row["exceeds"] or row["claimed"] is None:
            continue
        if who not in worst or row["lower_bound"] > worst[who]["lower_bound"]:
            worst[who] = row
    return [
        ClaimEvidence(
            row["lower_bound"],
            row["claimed"],
            f"{level} lower bound",
            f"A canary at ε = {figure(row['epsilon'])} shows {_whom(who)} ε ≥ {figure(row['lower_bound'])} at {level}, "
            f"where {figure(row['claimed'])} is claimed.",
        )
        for who, row in worst.items()
    ]


def _whom(who: tuple[str, ...]) -> str:
    if not who:
        return "a reader of the releases"
    return "a user" if who[0].startswith("user") else f"the {who[0].replace('_', ' ')}"


def _broken(finding: Finding) -> ClaimEvidence:
    return ClaimEvidence(finding.measured, None, finding.confidence or "as its finding says", finding.title)
