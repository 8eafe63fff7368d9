"""Findings that the accounting of several families makes."""

from __future__ import annotations

from typing import Any

from protocol.party.role import RECOMMENDER
from sim.audit.accounting.noise_test import FALSE_ALARM
from sim.audit.findings import Finding

GUESSED = "released values against guesses from earlier ones"

_NAMED = 3  # sums that the evidence names individually


def no_claim(head: dict[str, Any], scheme: str) -> tuple[dict[str, Any], list[Finding]]:
    words = f"{scheme} claims no ε in this run, so nothing is accounted and nothing bounds what is released"
    return {**head, "method": words}, []


def noise_finding(
    result: dict[str, Any] | None,
    thin: list[tuple[int, int, float]],
    group: str,
    how: str = GUESSED,
    law: str = "Lemma 1",
) -> list[Finding]:
    """Report whether the noise that `law` requires is there.

    `thin` are the sums whose shares cannot add up to Lemma 1, given the floors that contributors were told.
    """
    if result is None and not thin:
        return []
    missing = bool(thin) or (result is not None and result["missing"])
    return [
        Finding(
            "missing-noise",
            _noise_title(result, thin, law) if missing else _found_nothing(result),
            (RECOMMENDER,),
            "break" if missing else "info",
            claimed=f"at least the scale of {law}",
            measured=None if result is None else {name: result["least"][name] for name in ("cell", "ratio", "p")},
            chance="half of the values within the median size, at most",
            confidence=_noise_confidence(result),
            evidence=_noise_evidence(result, thin, group, how),
        )
    ]


def _noise_title(result: dict[str, Any] | None, thin: list[tuple[int, int, float]], law: str) -> str:
    if thin:
        return f"{len(thin)} sums were released with less noise than Lemma 1: too few contributors for their shares."
    assert result is not None
    return f"The noise is at most {result['least']['ratio']:.2g} of what {law} asks for."


def _found_nothing(result: dict[str, Any] | None) -> str:
    """Say that no noise was found missing, and how small it would have to be to be found."""
    assert result is not None
    if not result["finds_below"]:
        return "The released values do not show noise to be missing, but they could not have shown it."
    least = f"{result['finds_below']:.2f}"
    return f"The released values do not show noise to be missing: below about {least} of its scale they would have."


def _noise_confidence(result: dict[str, Any] | None) -> str | None:
    if result is None:
        return None
    low, high = result["least"]["interval"]
    return (
        f"p = {result['p']:.2g} over {result['tests']} tests (Bonferroni; noise is missing below {FALSE_ALARM:g}); "
        f"95 % interval of the ratio [{low:.3f}, {high:.3f}] by order statistics"
    )


def _noise_evidence(result: dict[str, Any] | None, thin: list[tuple[int, int, float]], group: str, how: str) -> str:
    parts = [f"iteration {at}, item {item}: {part:.2g} of the variance" for at, item, part in thin[:_NAMED]]
    if result is not None:
        parts.append(
            f"{result['values']} {how}; the least noisy {group} is "
            f"{result['group']['number']} (p {result['group']['p']:.2g}); if the noise is whole, some below about "
            f"{result['finds_below']:.2f} of this scale in all values would have been found"
        )
    return "; ".join(parts)
