"""A row of the `empirical` part: one statistic of one arm, its bound beside its claim, and the resulting finding."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from protocol.arrays import Flags, Floats
from protocol.params import Params
from protocol.schemes.base import DELTA, Scheme
from protocol.schemes.composition import gaussian_epsilon
from sim.audit.canary.epsilon_bound import (
    Bound,
    attainable,
    gaussian_attainable,
    guesses_attainable,
    means_attainable,
    ratios_attainable,
    sharp_bound,
    surest_for_mu,
)
from sim.audit.canary.gaussian_run import one_run_mu
from sim.audit.findings import Finding, Severity
from sim.console.progress import Tell

ALONE = 0.95  # confidence of a single row, as bounds are usually given
CONFIDENCE = 0.995  # a single row above its claim is a break, so a correct scheme must rarely have any

# the knowledge that a row depends on
Kind = Literal["noise", "envelope", "shares", "others", "mask", "counts", "uniform"]

_FINDINGS: dict[Kind, tuple[str, str]] = {
    "noise": ("missing-noise", "There is less noise than is claimed"),
    "mask": ("mask-uniformity", "A masked upload tells its receiver something"),
    "envelope": ("known-envelope", "Who dealt the envelopes learns more than is claimed"),
    "shares": ("known-shares", "A rater who knows the envelope and its own share learns more than is claimed"),
    "others": ("known-shares", "Who knows the shares of all users but one learns more of that one than is claimed"),
    "counts": ("support", "A rater is told how many others there are, exactly, where noise is claimed"),
    "uniform": ("uniform-noise", "Uniform noise alone keeps no ε"),
}
_METHODS = {"line": "Clopper–Pearson", "guesses": "one-run theorem", "means": "noncentral t"}
_BREAKS: frozenset[Kind] = frozenset({"noise", "mask"})  # the claim depends on these; the others are weaknesses


@dataclass(frozen=True)
class Statistic:
    """One number per repetition, and the coalition that computes it."""

    coalition: tuple[str, ...]  # empty: any party that receives the item factors
    knows: str
    name: str
    kind: Kind
    values: Floats
    releases: int = 1  # releases that it uses, with the claim for each; 0: nothing may be revealed
    claimed: float | None = None  # ε, if not that of the parameters; infinite: nothing is claimed
    claimed_mu: float | None = None  # set if Gaussian noise is claimed: `claimed` is its ε at δ
    ratio: Floats | None = None  # log likelihood ratio of the repetitions by the claimed law, if one is supposed
    subject: str = "a canary"
    reacting: bool = False  # repetitions share a run in which factors move, so that they influence each other


@dataclass(frozen=True)
class Asked:
    """The arguments of `empirical.measure`."""

    scheme: Scheme
    params: Params | None
    claim: float
    repetitions: int
    seed: bytes
    workers: int | None
    confidence: float
    tell: Tell = lambda done, total: None
    alone: float = ALONE  # confidence of a row alone
    played: dict[Any, Any] = field(default_factory=dict)  # repetitions of an earlier look


class ProblemPlayed(Protocol):
    @property
    def params(self) -> Params: ...


class Repetitions(Protocol):
    """`greatest` is the truth: which of the two data sets each repetition had."""

    @property
    def greatest(self) -> Flags: ...

    @property
    def seconds(self) -> float: ...

    def __len__(self) -> int: ...


@dataclass(frozen=True)
class BoundRow:
    arm: str
    problem: ProblemPlayed
    observed: Repetitions
    statistic: Statistic
    claimed: float  # infinite: nothing is claimed
    bound: Bound
    attainable: float  # the bound expected for exactly the claimed ε
    alone: Bound  # at 95 % for this row alone, over all looks

    @property
    def exceeds(self) -> bool:
        return self.bound.epsilon > self.claimed

    def document(self) -> dict[str, Any]:
        return {
            "coalition": list(self.statistic.coalition),
            "knows": self.statistic.knows,
            "statistic": self.statistic.name,
            "lower_bound": self.bound.epsilon,
            "lower_bound_at_delta": self.bound.at_delta,
            "lower_bound_mu": self.bound.mu,
            "lower_bound_95": self.alone.epsilon,
            "certifiable_95": self.alone.certifiable,
            "claimed": self.claimed if math.isfinite(self.claimed) else None,
            "claimed_mu": self.statistic.claimed_mu,
            "exceeds": self.exceeds,
            "attainable": self.attainable,
            "certifiable": self.bound.certifiable,
            "epsilon": self.problem.params.epsilon,
            "releases": self.statistic.releases,
            "arm": self.arm,
            "repetitions": len(self.observed),
            "event": self.bound.event,
            "method": self.bound.method,
            "true_rate": self.bound.true_rate,
            "false_rate": self.bound.false_rate,
            "seconds": self.observed.seconds,
        }


Found = tuple[str, ProblemPlayed, Repetitions, Statistic]


def make_row(found: Found, claimed: float, confidence: float, alone: float = ALONE) -> BoundRow:
    """Compute the bound in the same form as the claim: pure, or for Gaussian noise at δ."""
    arm, problem, observed, statistic = found
    values, ratio, mu = statistic.values, statistic.ratio, statistic.claimed_mu
    bound, by_itself = (
        sharp_bound(
            values, ratio, observed.greatest, level, DELTA, gaussian=mu is not None, reacting=statistic.reacting
        )
        for level in (confidence, alone)
    )
    if mu is not None and ratio is not None and statistic.reacting:
        promised = surest_for_mu(ratio, observed.greatest, confidence, expected=True)
        shown = gaussian_epsilon(one_run_mu(len(ratio), promised.number, promised.right, confidence), DELTA)
    elif mu is not None and ratio is not None:
        shown = means_attainable(mu, len(observed), confidence, DELTA)
    elif mu is not None:
        shown = gaussian_attainable(mu, len(observed) // 2, confidence, DELTA)
    elif math.isinf(claimed):
        shown = bound.certifiable
    elif ratio is not None and statistic.reacting:
        shown = ratios_attainable(ratio, confidence)
    elif ratio is not None:
        shown = guesses_attainable(claimed, len(observed), confidence)
    else:
        shown = attainable(claimed, len(observed) // 4, confidence)  # half choose the line; half of the rest have each
    return BoundRow(arm, problem, observed, statistic, claimed, bound, shown, by_itself)


def own_claim(found: Found) -> float:
    """Return the claim of the statistic, or else ε of its problem."""
    _, problem, _, statistic = found
    return problem.params.epsilon if statistic.claimed is None else statistic.claimed


def joint_rows(
    found: Sequence[Found], confidence: float, claim_of: Callable[[Found], float] = own_claim, alone: float = ALONE
) -> list[BoundRow]:
    """Compute the bounds of all statistics, which hold jointly with `confidence`, each beside its claim."""
    each = 1 - (1 - confidence) / len(found)
    return [make_row(one, claim_of(one), each, alone) for one in found]


def findings_of(rows: Sequence[BoundRow], confidence: float = CONFIDENCE) -> list[Finding]:
    """Make a finding per kind of knowledge and coalition, from the row that most exceeds or nears its claim."""
    worst: dict[tuple[Kind, tuple[str, ...]], BoundRow] = {}
    for row in rows:
        key = (row.statistic.kind, row.statistic.coalition)
        if key not in worst or _excess(row) > _excess(worst[key]):
            worst[key] = row
    return [_finding(row, kind, confidence) for (kind, _), row in worst.items()]


def is_beyond(row: BoundRow, scheme: Scheme) -> bool:
    """Tell whether a row exceeds its claim in a way that `scheme` does not declare."""
    kind = row.statistic.kind
    return row.exceeds and (kind in _BREAKS or _FINDINGS[kind][0] not in scheme.known_weaknesses)


def _excess(row: BoundRow) -> float:
    """Compute the bound relative to the claim, because claims differ."""
    return row.bound.epsilon / row.claimed if 0 < row.claimed < math.inf else row.bound.epsilon


def _finding(row: BoundRow, kind: Kind, confidence: float) -> Finding:
    statistic, bound, n = row.statistic, row.bound, len(row.observed)
    known_as, words = _FINDINGS[kind]
    unclaimed = math.isinf(row.claimed)
    at_delta = f" at δ = {DELTA:g}" if bound.mu is not None else ""
    at = f"at ε = {row.problem.params.epsilon:g} ({statistic.name})"
    shows = f"{statistic.subject} {at} shows ε ≥ {bound.epsilon:.2f}{at_delta}"
    if unclaimed:
        title = (
            f"{words}, and none is claimed: {shows}, where this many repetitions show {bound.certifiable:.2f} at most."
        )
    elif row.exceeds:
        title = f"{words}: {shows}, where it claims {row.claimed:.4g}."
    else:
        title = (
            f"{shows[0].upper()}{shows[1:]}, which does not contradict its claim of {row.claimed:.4g} "
            f"(of exactly that, it would show {row.attainable:.2f})."
        )
    by_mu = "" if bound.mu is None else f"; so μ ≥ {bound.mu:.3g}, where {statistic.claimed_mu:.3g} is claimed"
    severity: Severity = ("break" if kind in _BREAKS else "weak") if row.exceeds else "info"
    return Finding(
        known_as,
        title,
        statistic.coalition,
        severity,
        claimed=None if unclaimed else row.claimed,
        measured=bound.epsilon,
        chance=0.0,
        confidence=f"{100 * confidence:g} % lower bound, {_METHODS[bound.method]}, jointly over all rows",
        evidence=f"{n} repetitions of the canary `{row.arm}` through the roles; the adversary knows "
        f"{statistic.knows}; {bound.reading}{by_mu}; this many repetitions would show {row.attainable:.2f} of "
        f"exactly the claimed ε, and {bound.certifiable:.1f} at most",
    )
