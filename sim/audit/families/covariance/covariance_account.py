"""The accounting of `covariance`, `covariance-masked` and `hybrid`: the ε of the budget θ, and whether it was kept.

Everything that is published follows from three pairs of noisy sums. With Gaussian noise they are together one release
that moves by μ standard deviations, exact at δ; with Laplace noise losses add. κ is √2 or 2 where a sum and its count
share the budget of their measurement; as printed each of them spends all of it, which is more than θ says.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from protocol.party.role import RECOMMENDER, user_index
from protocol.schemes.base import DELTA
from protocol.schemes.composition import gaussian_epsilon
from protocol.schemes.covariance.covariance import Covariance
from protocol.schemes.covariance.options import DENSE, CovarianceParams, HybridParams, MaskedCovarianceParams
from protocol.schemes.covariance.sensitivity import (
    covariance_sensitivity,
    gaussian_mu,
    published_epsilon,
    whole_epsilon,
)
from sim.audit import truth
from sim.audit.accounting.account_findings import no_claim, noise_finding
from sim.audit.accounting.noise_test import NoiseTest
from sim.audit.attacks.channels import FLOAT32
from sim.audit.families.covariance.exact_totals import Totals, noise_test, read_totals
from sim.audit.findings import Finding
from sim.views.evidence import Case
from sim.views.exhibits import Exhibits

COLLUDING = {"1": 1, "3": 3, "half": -2, "all but one": -1}
_HOW = "noises of published sums, which are the totals less the exact sums of the ratings"
_UNIFORM = "perturbations, which are what users sent less what they brought"


def account_covariance(case: Case, head: dict[str, Any]) -> tuple[dict[str, Any], list[Finding]]:
    params = case.card.params
    assert isinstance(params, CovarianceParams)
    perturbed, found = _perturbation(case)
    if math.isinf(params.epsilon):
        document, _ = no_claim(head, case.card.scheme.name)
        return {**document, **perturbed}, found
    totals = read_totals(case)
    composed = composition(params, totals.averages.spread if isinstance(totals, Totals) else params.rating_span)
    document = {
        **head,
        "unit": f"{params.unit_of} added or removed, all releases together",
        "method": _method(params),
        "composed": composed,
        **perturbed,
    }
    found.append(_composition(params, composed, isinstance(case.card.scheme, Covariance)))
    if isinstance(params, MaskedCovarianceParams) and params.gaussian:
        document["colluders"] = shares = known_shares(params)
        found.append(_known_shares(params, shares, composed["tight"]))
    if isinstance(totals, str):
        return {**document, "noise": None, "untested": f"The noise was not tested: {totals}."}, found
    document["noise"] = result = noise_test(totals).result()
    found += noise_finding(result, [], "item", _HOW, "the budget")
    return document, [*found, *_elsewhere(totals)]


def budget_name(params: CovarianceParams) -> str:
    return "ε" if isinstance(params, HybridParams) else "θ"


def _method(params: CovarianceParams) -> str:
    law = "one Gaussian release of μ, exact at δ" if params.gaussian else "Laplace releases, whose losses add"
    whose = " To the recommender nothing is bounded: it receives every rating" if not _masked(params) else ""
    if isinstance(params, HybridParams):
        whose += f", within ±{params.gamma:g}"
    return f"three pairs of sums and counts, by the corrected sensitivities: {law}.{whose}"


def _masked(params: CovarianceParams) -> bool:
    return isinstance(params, MaskedCovarianceParams)


# --- ε of θ ----------------------------------------------------------------------------------------------------------


def composition(params: CovarianceParams, spread: float) -> dict[str, Any]:
    """Compute ε: `claimed` if every measurement kept to its part of θ, `tight` for the noise as it really is.

    With the printed bound, the covariance moves further than its noise allows, by the factor `excess` with these
    averages.
    """
    proper = dataclasses.replace(params, joint=True, printed_bound=False)
    used, right = (covariance_sensitivity(each, spread).total for each in (params, proper))
    excess = right / used
    return {
        "releases": 3,
        "theta": params.epsilon,
        "claimed": whole_epsilon(proper, DELTA),
        "tight": whole_epsilon(params, DELTA),  # for any averages, as in the accounting of a run
        "published_formula": published_epsilon(params, DELTA),
        "mu": gaussian_mu(params) if params.gaussian else None,
        "delta": DELTA if params.gaussian else 0.0,
        "excess": excess,
    }


def _composition(params: CovarianceParams, composed: dict[str, Any], by_formula: bool) -> Finding:
    """Report the composition; `by_formula`: the scheme claims the paper's formula, which holds for small θ only."""
    claims = [composed["claimed"], *([composed["published_formula"]] if by_formula else [])]
    more = composed["tight"] > min(claims) * (1 + 1e-9)
    at = f" at δ = {DELTA:g}" if params.gaussian else ""
    title = (
        f"All that is published has together ε {composed['tight']:.3g}{at}, for one {params.unit_of} added or removed: "
        f"{budget_name(params)} = {params.epsilon:g} says {composed['claimed']:.3g}, the paper's formula "
        f"{composed['published_formula']:.3g}."
    )
    why = "A sum and its count each spend the whole budget of their measurement (joint=false)." * (not params.joint)
    if by_formula and composed["tight"] > composed["published_formula"] * (1 + 1e-9):
        why += " The paper's formula, Σ θ_i √(2 ln(2/δ_i)), is no bound for a θ this large, or for what is spent."
    why += f" The printed bound is too small by a factor of {composed['excess']:.3g}." * (composed["excess"] > 1)
    return Finding(
        "composition",
        title,
        ("user",),
        "weak" if more else "info",
        claimed=min(claims),
        measured=composed,
        confidence="exact, if the sensitivities are bounds (see sensitivity)",
        evidence=why.strip() or "A sum and its count share the budget of their measurement; nothing else is published.",
    )


def known_shares(params: MaskedCovarianceParams) -> dict[str, Any]:
    """Compute ε to a server with c of the n users that add a share at every place: 1 − c/n of the variance is left."""
    n, found = params.n_users, {}
    for name, number in COLLUDING.items():
        c = n - 1 if number == -1 else n // 2 if number == -2 else number
        if c < n:
            found[name] = gaussian_epsilon(gaussian_mu(params) * math.sqrt(n / (n - c)), DELTA)
    return found


def _known_shares(params: MaskedCovarianceParams, shares: dict[str, Any], whole: float) -> Finding:
    where = "every place" if params.form == DENSE else "the places where every user adds; elsewhere it is more"
    return Finding(
        "known-shares",
        f"Users know their shares of the noise: with the recommender, half of them leave ε {shares['half']:.3g}, all "
        f"but one {shares['all but one']:.3g}, not {whole:.3g}.",
        (RECOMMENDER, "user"),
        "weak",
        claimed=whole,
        measured=shares,
        confidence=f"exact, at δ = {DELTA:g}",
        evidence=f"c of n contributors leave 1 − c/n of the variance, at {where}",
    )


def _elsewhere(totals: Totals) -> list[Finding]:
    """Report published numbers not made from the noisy totals: the test of the noise does not cover them."""
    if not totals.elsewhere:
        return []
    return [
        Finding(
            "missing-noise",
            f"{totals.elsewhere} published numbers do not follow from the noisy totals.",
            (RECOMMENDER,),
            "break",
            claimed=0,
            measured=totals.elsewhere,
            confidence="exact: counted in what the recommender sent",
            evidence="averages, factors, covariances and weights as sent, against the model of the noisy totals",
        )
    ]


# --- hybrid: is the perturbation there? ------------------------------------------------------------------------------


def _perturbation(case: Case) -> tuple[dict[str, Any], list[Finding]]:
    """Test the perturbation U[−γ, γ], half of which lies within γ/2, against the inputs in users' views."""
    params, known = case.card.params, truth.known_users(case)
    if not isinstance(params, HybridParams) or not params.gamma or not known:
        return {}, []
    test, beyond = NoiseTest(params.n_users), 0
    for seen in Exhibits(case, (RECOMMENDER,)).received(RECOMMENDER, "PerturbedRatings"):
        if seen.sender in known:
            own = truth.ratings_of(case, seen.sender)
            noise = np.abs(seen.message.values.astype(np.float64).reshape(-1) - own.ratings)
            beyond += int(np.count_nonzero(noise > params.gamma + FLOAT32 * (params.rating_max + params.gamma)))
            test.add("uploads", np.full(len(noise), user_index(seen.sender)), noise[:, None] / (params.gamma / 2))
    result = test.result()
    return {"perturbation": result, "beyond_gamma": beyond}, noise_finding(result, [], "user", _UNIFORM, "γ")
