"""Findings from the figures of the envelopes."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from protocol.party.role import RECOMMENDER
from sim.audit.accounting.account_findings import noise_finding
from sim.audit.findings import Finding


def dilution_of(ratios: npt.NDArray[np.float64]) -> dict[str, Any]:
    """Summarise the ratios k/k' of the released sums."""
    if not len(ratios):
        return {"sums": 0}
    return {
        "sums": len(ratios),
        "mean": float(ratios.mean()),
        "median": float(np.median(ratios)),
        "max": float(ratios.max()),
    }


def findings_of_envelopes(document: dict[str, Any], thin: list[tuple[int, int, float]], rater: str) -> list[Finding]:
    found = [_known_envelope(document), _known_shares(document, rater), _composition(document)]
    if "dilution" in document:
        found.append(_diluted(document["dilution"]))
    return [*found, *noise_finding(document["noise"], thin, "item")]


def _known_envelope(document: dict[str, Any]) -> Finding:
    figures, claim = document["one_release"], document["claimed"]
    even = figures["even"]
    return Finding(
        "known-envelope",
        f"The recommender knows the envelopes: one release leaves it ε {even['median']:.3g} for the median item and "
        f"{even['worst']:.3g} for the worst (row {even['item']} of V) at δ = 1e-05, where {claim:g} is claimed.",
        (RECOMMENDER,),
        "weak" if even["worst"] > claim else "info",
        claimed=claim,
        measured={way: _short(figures[way]) for way in ("even", "random", "worst", "any_sum")},
        confidence="exact: the envelopes follow from the recommender's own tape",
        evidence=f"the first release of each of {even['items']} items; any_sum: each of {figures['any_sum']['items']}",
    )


def _short(figures: dict[str, Any]) -> dict[str, Any]:
    return {name: figures[name] for name in ("median", "p99", "worst")}


def _known_shares(document: dict[str, Any], rater: str) -> Finding:
    claim, colluders, sums = document["claimed"], document["colluders"], document["sums"]["contributors"]
    measured = {
        name: None if made["one_release"] is None else _short(made["one_release"]) for name, made in colluders.items()
    }
    last = colluders["all but one"]["one_release"]
    return Finding(
        "known-shares",
        f"Contributors know their shares: c of k leave 1 − c/k of the variance, and k − 1 of them leave ε "
        f"{last['median']:.3g} (median over items) of one release, not {claim:g}.",
        (RECOMMENDER, rater),
        "weak" if last["worst"] > claim else "info",
        claimed=claim,
        measured=measured,
        confidence="exact, for any c of the contributors of a sum",
        evidence=f"first releases in which an honest contributor is left; {sums['single']} of "
        f"{document['sums']['released']} sums have one contributor only; {rater} is one of the raters",
    )


def _composition(document: dict[str, Any]) -> Finding:
    claim, composed, ratings = document["claimed"], document["composed"], document["ratings"]
    more = composed["releases"] > 1 and max(composed["tight"], ratings["worst"]) > claim
    return Finding(
        "composition",
        f"A rating is in up to {composed['releases']} releases: together ε {composed['tight']:.3g} to a party without "
        f"the envelopes and up to {ratings['worst']:.3g} to the recommender, not {claim:g}.",
        (RECOMMENDER,),
        "weak" if more else "info",
        claimed=claim,
        measured={**composed, "recommender": _short(ratings)},
        confidence="exact, at δ = 1e-05; tight is the privacy loss distribution, rounded up",
        evidence=f"{ratings['ratings']} ratings, each through the released sums that its user contributed to (by item, "
        "the accounting counts every sum of the item)",
    )


def _diluted(dilution: dict[str, Any]) -> Finding:
    mean = dilution.get("mean", 1.0)
    return Finding(
        "diluted-sum",
        f"The whole objective noise is added to the gradients of only some raters: their weight in a sum against it is "
        f"smaller than published by a factor of {mean:.3g} on average.",
        (RECOMMENDER,),
        "weak" if mean > 1 else "info",
        claimed=1.0,
        measured=dilution,
        confidence="exact: every released sum",
        evidence="k_j, all who joined with the item, over k'_j, who contributed to the sum",
    )
