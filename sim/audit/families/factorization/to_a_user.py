"""The accounting to a user that holds no view but its own: for items that it rated, and for all others.

For an item that it rated, a user knows the envelopes (their keys, or in the paper's wire the numbers) and its own
share, and item factors at two times give it every sum: it is in the position of the recommender with one contributor.

For an item that it did not rate, a user receives v_j(T) alone, a weighted total of all sums over the unknown v_j(0):

    v_j(T) = M^T v_j(0) + Σ_t M^(T−1−t) (γ/k_j) (2 Σ_i u_i r_ij − η_j − ρ_j(t)),   M = I − γ (2 Σ_i u_i u_iᵀ/k_j + 2μ)

η_j is in every sum, as the rating is: another rating moves v_j(T) as another η_j would, by 2Δu_i at most. So for a
fixed u_i, and if no error is clipped, the noise η_j of one release covers the whole run: the claimed ε, once, whatever
T is; ρ and v_j(0) only add to it. This requires all of η_j in each sum that the rating is in. If raters that share η_j
dropped out of sums, this does not hold, and the releases are composed instead. In `dynamic`, η_j is made by three
committers, which need not be raters; a committer knows its envelope and its own share.
"""

from __future__ import annotations

from typing import Any

from protocol.params import Params
from protocol.schemes.base import DELTA

ALL = "all"


def to_a_user(params: Params, document: dict[str, Any], whole: bool) -> dict[str, Any]:
    """Account for the knowledge of a single user.

    `whole`: every sum contained the whole of η. `document` has `composed`, and `colluders` if envelopes are known.
    """
    tight, colluders = document["composed"]["tight"], document.get("colluders")
    least = tight if tight is None or not whole else min(tight, params.epsilon)
    rated = colluders["1"] if colluders else {"one_release": None, "all_releases": tight}
    found = {
        "delta": DELTA,
        "rated": rated,
        "not_rated": least if params.publish == ALL else 0.0,
        "published": params.publish,
    }
    return {**found, "words": _words(params, bool(colluders), whole)}


def _words(params: Params, envelopes: bool, whole: bool) -> str:
    rated = (
        "items that it rated: it knows their envelopes and its own share, and factors at two times give it every sum, "
        "as to the recommender with one contributor"
        if envelopes
        else "items that it rated: factors at two times give it every sum, made of the uploads (an upper bound)"
    )
    if params.publish != ALL:
        return f"{rated}; items that it did not rate: it is sent nothing of them (--publish rated)"
    how = (
        "η stands in every sum as the rating does, so for fixed user factors and without clipping it covers the total "
        "as it covers one release"
        if whole
        else "contributors who share η dropped out of sums, so all releases are composed (an upper bound)"
    )
    return (
        f"{rated}; items that it did not rate: of these it is sent v_j(T) alone, a weighted total of all sums over an "
        f"unknown v_j(0), and without the envelopes: {how}"
    )
