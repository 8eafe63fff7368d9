"""`covariance-masked`: the sums of `covariance`, carried by a masked modular sum, so that no server sees a rating.

    user -> recommender          Join                what it rated (sparse form), or nothing (dense form)
    recommender -> user          MaskWelcome         the key of its masks; sparse: how many users rated its items
    user -> third party          MaskedPart          iteration 0: enc(sums and counts) + enc(noise share) + ψ   mod P
    third party -> recommender   PartTotal           their total, from which the recommender subtracts the masks
    recommender -> user          PublishedAverages   MAvg, and which items the covariance covers
    recommender -> third party   OpenPairs           these items
    user -> third party          MaskedPart          iteration 1: enc(w r̂ r̂ᵀ), enc(w e eᵀ), likewise
    third party -> recommender   PartTotal
    recommender -> user          CovarianceFactors, or CovariancePairs (kNN)

The iterations 0 and 1 are rounds 1 and 2 of `protocol/schemes/covariance`.

A server that drew the noise could compute the exact sums from the published noisy ones, so the users draw it, in
shares. In the dense form every user adds to every place, and no party learns which items a user rated. In the sparse
form a user adds only to the places of its own items. Both servers then see these items, and at a place with k users
each share has 1/k of the noise. At a place where no user adds, the recommender draws the noise; it knows that the place
is empty.

Every user takes part in both sums: a missing part would leave masks in the total, and too little noise.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np

from protocol.arithmetic.fixedpoint import LEAST_FRACTION_BITS, MOST_FRACTION_BITS, WRAP_PROBABILITY, most_fraction_bits
from protocol.arithmetic.tape import Tape
from protocol.attendance import Course
from protocol.errors import BadInput
from protocol.params import Params
from protocol.party.role import RECOMMENDER, THIRD_PARTY, Role, UserInput, role_of
from protocol.schemes.base import DELTA, Leak, Scheme, Setting, Shape, Weakness
from protocol.schemes.covariance import triangle as packing
from protocol.schemes.covariance.covariance import Covariance, account, warnings
from protocol.schemes.covariance.options import (
    DENSE,
    OPTIONS,
    SPARSE,
    CovarianceParams,
    MaskedCovarianceParams,
    grade_step,
)
from protocol.schemes.covariance.parts import largest_entries
from protocol.schemes.covariance.round_noise import reach_of, round_length
from protocol.schemes.covariance.sensitivity import covariance_sensitivity, gaussian_mu, rounded
from protocol.wire.framing import Flow, Frames
from protocol.wire.messages import (
    SETUP,
    CovarianceFactors,
    CovariancePairs,
    Hello,
    Join,
    MaskedPart,
    MaskWelcome,
    OpenPairs,
    PartTotal,
    PublishedAverages,
)

MOST_SLACK = 0.05  # fraction of a sensitivity that rounding may add before a wider ring is taken
FEW_ITEMS = 200  # items covered by default if all pairs travel: those of all items could be megabytes per user


_SUPPORT = "sparse form: which items each user rated; dense form: nothing"


class CovarianceMasked(Scheme):
    name = "covariance-masked"
    title = "Noisy averages and covariances through a masked sum"
    source = "Keyhole: McSherry and Mironov 2009, carried by the masked sum of Hua, Xia, Zhong 2015"
    unit = "rating added or removed, or a user (unit_of)"
    claims = (
        "No server alone learns a rating: the recommender sees noisy sums over all users, the third party uniform "
        "numbers. Users add the noise in shares (in the sparse form the recommender where no user adds). What is "
        "published has the (ε, δ) that the budget θ buys; against k colluding users it keeps the noise of the others. "
        "In the sparse form supports are open, and θ does not hold towards users, who are told exact numbers of raters."
    )
    known_weaknesses = (
        Weakness("support", "recommender", "third_party", "user"),
        Weakness("single-contributor", "recommender"),
        Weakness("known-shares", "recommender+user"),
        Weakness("unmasking", "recommender+third_party"),
    )
    leakage: ClassVar[tuple[Leak, ...]] = (
        Leak("recommender", "Join", "items", _SUPPORT, support=True),
        Leak("recommender", "PartTotal", "iteration", "the number of the iteration"),
        Leak("recommender", "PartTotal", "values", "the noisy sums over all users, once unmasked"),
        Leak("third_party", "MaskedPart", "iteration", "the number of the iteration"),
        Leak("third_party", "MaskedPart", "items", _SUPPORT, support=True),
        Leak("third_party", "MaskedPart", "values", "uniform ring elements", uniform=True, support=True),
        Leak("third_party", "OpenPairs", "iteration", "the number of the iteration"),
        Leak("third_party", "OpenPairs", "covered", "which items have the largest noisy counts", follows=True),
        Leak("user", "MaskWelcome", "mask_key", "its own masks"),
        Leak("user", "MaskWelcome", "counts", "sparse form: how many users rated each of its items", support=True),
        Leak("user", "PublishedAverages", "iteration", "the number of the iteration"),
        Leak("user", "PublishedAverages", "averages", "the published, noisy item averages"),
        Leak("user", "PublishedAverages", "covered", "which items have the largest noisy counts", follows=True),
        Leak("user", "PublishedAverages", "counts", "sparse form: raters of both items of its pairs", follows=True),
        Leak("user", "CovarianceFactors", "factors", "the published factors of the noisy covariance"),
        Leak("user", "CovariancePairs", "covariances", "the published, noisy covariances of all covered items"),
        Leak("user", "CovariancePairs", "weights", "the published, noisy weights of all covered items"),
    )
    permits: ClassVar[dict[str, str]] = {"recommender": "aggregate", "third_party": "nothing", "user": "aggregate"}
    messages = (
        Hello,
        Join,
        MaskWelcome,
        MaskedPart,
        PartTotal,
        OpenPairs,
        PublishedAverages,
        CovarianceFactors,
        CovariancePairs,
    )
    servers = (THIRD_PARTY, RECOMMENDER)  # the third party connects to the recommender, because it writes first
    flags = frozenset({"epsilon", "wire", "ring_bits"})
    params_class = MaskedCovarianceParams
    rounds = 2
    trust: ClassVar[dict[str, str]] = {"recommender": "covariance", "masked": name}
    options: ClassVar[dict[str, Any]] = {**OPTIONS, "items": None, "form": DENSE}

    def make_params(
        self,
        shape: Shape,
        *,
        items: int | None = None,
        rank: int = OPTIONS["rank"],
        ring_bits: int | None = None,
        **settings: Any,
    ) -> tuple[Params, list[str]]:
        if items is None:  # all pairs travel: a user uploads them (dense form), or every user is sent them (kNN)
            few = settings.get("form", DENSE) == DENSE or settings.get("predictor") == "knn"
            items = min(FEW_ITEMS, shape.n_items) if few else 0
        given = {"most_rank": rank, "most_items": items, "rating_step": grade_step(shape), "ring_bits": ring_bits}
        base, notes = super().make_params(shape, **given, **settings)
        made, ring_notes = with_ring(MaskedCovarianceParams.of(base), ring_bits)
        return made, [*notes, *warnings(made), *ring_notes]

    def make_role(self, party: str, setting: Setting, tape: Tape, inputs: UserInput | None) -> Role:
        from protocol.schemes.covariance import covariance_masked_roles as roles

        role = role_of(party)
        if role == RECOMMENDER:
            return roles.MaskedCovarianceRecommender(setting, tape)
        if role == THIRD_PARTY:
            return roles.PartHolder(setting)
        assert inputs is not None
        return roles.MaskedCovarianceUser(setting, tape, inputs)

    def longer_fields(self, params: Params) -> dict[str, int]:
        params = MaskedCovarianceParams.of(params)
        rounds, pairs = max(round_length(params, 1), round_length(params, 2)), packing.packed_length(params.items)
        published = {"counts": pairs, "covariances": pairs, "weights": pairs, "factors": params.items * params.rank}
        return {"values": rounds, **published}

    def unprotected(self, params: Params) -> tuple[Scheme, Params]:
        """Return `covariance` with these options and without noise, at a trusted recommender."""
        params = MaskedCovarianceParams.of(params)
        values = {field.name: getattr(params, field.name) for field in dataclasses.fields(CovarianceParams)}
        return Covariance(), CovarianceParams(**values | {"scheme": Covariance.name, "epsilon": math.inf})

    def sizes_vary(self, params: Params) -> bool:
        """Tell whether the noise decides how many pairs a user sends, because it decides which items are covered."""
        params = MaskedCovarianceParams.of(params)
        return params.form == SPARSE and params.items < params.n_items

    def names_support(self, params: Params, leak: Leak) -> bool:
        return leak.support and MaskedCovarianceParams.of(params).form == SPARSE

    def formula(self, params: Params, course: Course) -> Iterator[Flow]:
        params = MaskedCovarianceParams.of(params)
        up, down, across = ("user", RECOMMENDER), (RECOMMENDER, "user"), ("user", THIRD_PARTY)
        back, towards = (THIRD_PARTY, RECOMMENDER), (RECOMMENDER, THIRD_PARTY)
        frames, users, sparse = Frames(params), course.users, params.form == SPARSE
        n = course.supports if sparse else 0 * course.supports
        cells = course.cells if course.cells is not None else np.minimum(course.supports, params.items)
        for way in (up, down, across):
            yield frames.hello(way, users)
        yield frames.hello(back, 1)
        yield frames.flow(SETUP, up, Join, users, 1, items=n)
        yield frames.flow(SETUP, down, MaskWelcome, users, 1, mask_key=1, counts=n)
        pairs = cells * (cells + 1) / 2 if sparse else 0 * course.supports
        for t in (0, 1):
            whole = round_length(params, t + 1)
            rows = (2 + 2 * n if t == 0 else 2 * pairs) if sparse else whole
            yield frames.flow(t, across, MaskedPart, users, t + 1, iteration=t, items=n, values=rows)
            yield frames.flow(t, back, PartTotal, 1, t + 1, iteration=t, values=whole)
        yield frames.hello(towards, 1)
        yield frames.flow(1, towards, OpenPairs, 1, 1, iteration=1, covered=params.items)
        published = {"iteration": 1, "averages": params.n_items, "covered": params.items, "counts": pairs}
        yield frames.flow(1, down, PublishedAverages, users, 2, **published)
        if params.predictor == "svd":
            yield frames.flow(SETUP, down, CovarianceFactors, users, 3, factors=params.items * params.rank)
        else:
            whole = packing.packed_length(params.items)
            yield frames.flow(SETUP, down, CovariancePairs, users, 3, covariances=whole, weights=whole)

    def account(self, params: Params, recommender_tape: Tape, shape: Shape) -> dict[str, Any]:
        """Account for what is published and, in the dense form with Gaussian noise, for half of the users colluding."""
        from protocol.schemes.composition import gaussian_epsilon  # not needed by any role

        params = MaskedCovarianceParams.of(params)
        found = account(params)
        if math.isinf(params.epsilon):
            return found
        whose = "of all users" if params.form == DENSE else "of those who rated an item or a pair"
        towards = "" if params.form == DENSE else "; not towards users, who are told exact numbers of raters"
        found["method"] = (
            f"all noisy sums together, for one {params.unit_of} added or removed, rounding included, to a party that "
            f"knows no share of the noise {whose}{towards}"
        )
        if params.gaussian and params.form == DENSE:  # for k of n shares known, (n − k)/n of the variance is left
            found["half_of_users_collude"] = gaussian_epsilon(gaussian_mu(params) * math.sqrt(2), DELTA)
        return found


def with_ring(params: MaskedCovarianceParams, ring_bits: int | None) -> tuple[MaskedCovarianceParams, list[str]]:
    """Set the ring bits, 32 or 64 unless `ring_bits` are given, and the most fraction bits that fit into them.

    No sum may wrap. Unless `ring_bits` are given, 32 bits are taken only if rounding adds little to a sensitivity.
    """
    for bits in (32, 64) if ring_bits is None else (ring_bits,):
        chosen = _fitted(params, bits)
        if chosen is None or (ring_bits is None and bits == 32 and not _is_fine(chosen)):
            continue
        note = "32 ring bits would wrap, or leave too few fraction bits, so this run uses 64."
        return chosen, [note] if bits == 64 and ring_bits is None else []
    words = f"A sum of {params.n_users} users could wrap mod 2^{bits} with {LEAST_FRACTION_BITS} fraction bits"
    raise BadInput(f"{words}: raise epsilon, or use a wider ring (--ring-bits).")


def _fitted(params: MaskedCovarianceParams, bits: int) -> MaskedCovarianceParams | None:
    """Set the most fraction bits that fit in both iterations; return None if none do.

    A candidate is checked with the noise that its own rounding needs: coarser rounding needs more noise, and so more
    room.
    """
    fitted = dataclasses.replace(params, ring_bits=bits)
    for field, iteration in (("first_fraction_bits", 0), ("fraction_bits", 1)):
        for number in range(MOST_FRACTION_BITS, LEAST_FRACTION_BITS - 1, -1):
            changes: dict[str, Any] = {field: number}
            fitted = dataclasses.replace(fitted, **changes)
            if _room(fitted, bits, iteration) >= number:
                break
        else:
            return None
    return fitted


def _is_fine(params: MaskedCovarianceParams) -> bool:
    slack = rounded(params, 2, params.items**2)
    return slack <= MOST_SLACK * covariance_sensitivity(params, 0.0).count


def _room(params: MaskedCovarianceParams, bits: int, iteration: int) -> int:
    """Find the most fraction bits for which Σ parts + noise ≤ n · largest part + q cannot wrap.

    Each user rounds twice; the bound of `fixedpoint` allows for three roundings.
    """
    largest = largest_entries(params)[iteration]
    reach = 0.0 if math.isinf(params.epsilon) else reach_of(params, iteration + 1, WRAP_PROBABILITY / 2)
    most = float(np.max(params.n_users * largest + reach))
    return most_fraction_bits(bits, most / (2 * params.n_users), params.n_users, 0.0)
