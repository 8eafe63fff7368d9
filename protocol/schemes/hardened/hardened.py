"""`hardened`: a recommender that need not be trusted, whose ε is of the whole run and known before it starts.

    user -> recommender          Join             nothing: it takes part
    recommender -> user          MaskWelcome      the key of its masks
    user -> third party          MaskedPart       x + e + ψ mod P, at every place
    third party -> recommender   Contributors     who contributed; the round is closed
    recommender -> third party   Agreed
    third party -> recommender   PartTotal        only if enough users contributed
    recommender -> user          PublishedTable   what follows from the noisy sums; the user predicts at home

Where n·μ is large enough, a second round learns directions of taste (`taste.py`): OpenTaste stands in the place of
PublishedTable, the same messages follow once more, and the end is

    recommender -> user          PublishedTaste

Where items are many, a round before the table's selects those that it is about, by a sketch (`item_sketch.py`):
OpenTable stands in the place of PublishedTable, the same messages follow once more, and the end is PublishedTable.

Every message of a kind has the same length, whatever was rated. The essay is in `protocol/schemes/hardened`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import Any, ClassVar

from protocol.arithmetic.tape import Tape
from protocol.attendance import Course
from protocol.params import Params, require
from protocol.party.role import RECOMMENDER, THIRD_PARTY, Role, UserInput, role_of
from protocol.schemes.base import Leak, Scheme, Setting, Shape
from protocol.schemes.hardened.budget import VALUE
from protocol.schemes.hardened.hardened_params import HardenedParams, counted, described, keeps_claim, provisioned
from protocol.schemes.hardened.item_table import FRAME
from protocol.wire.fields import Amount
from protocol.wire.framing import Flow, Frames
from protocol.wire.messages import (
    SETUP,
    Agreed,
    Contributors,
    Hello,
    Join,
    MaskedPart,
    MaskWelcome,
    OpenTable,
    OpenTaste,
    PartTotal,
    PublishedTable,
    PublishedTaste,
)

NO_PROOF, NORM_PROOF = "none", "norm"
NOT_YET = (
    "No role sends the proof of the norm yet: leave proof=norm out (`keyhole bench norm-proof` measures the proof and "
    "what it refuses; protocol/README.md says what a run lacks)."
)
SPARE = 0.1  # c/n: the part of the users that the noise is provisioned for


class Hardened(Scheme):
    name = "hardened"
    title = "One masked sum of unit vectors, noise of all users on integers"
    source = "Keyhole"
    unit = "user added or removed (unit=rating: a rating; unit=value: a rating's value), the whole run"
    claims = (
        "No party alone, and no server with up to the provisioned number of users, learns more of a user (unit=rating: "
        "of a rating; unit=value: of its value) than (ε, δ)-differential privacy allows, for everything that the whole "
        "run releases. What a user rated is hidden, and how many items; with unit=value how many users rated each item "
        "is public. That a user takes part is not hidden, and the two servers must not collude."
    )
    known_weaknesses: ClassVar[tuple[str, ...]] = ("unmasking",)
    leakage: ClassVar[tuple[Leak, ...]] = (
        Leak("recommender", "Join", "items", "nothing: the list is empty"),
        Leak("recommender", "Contributors", "iteration", "the number of the round"),
        Leak("recommender", "Contributors", "users", "who contributed"),
        Leak("recommender", "Contributors", "counts", "nothing: the list is empty"),
        Leak("recommender", "Contributors", "digest", "that both servers mean the same contributors"),
        Leak("recommender", "PartTotal", "iteration", "the number of the round"),
        Leak("recommender", "PartTotal", "values", "the noisy sums over all users, once unmasked"),
        Leak("third_party", "MaskedPart", "iteration", "the number of the round"),
        Leak("third_party", "MaskedPart", "items", "nothing: the list is empty"),
        Leak("third_party", "MaskedPart", "values", "uniform ring elements", uniform=True),
        Leak("third_party", "Agreed", "iteration", "the number of the round"),
        Leak("third_party", "Agreed", "digest", "that both servers mean the same contributors"),
        Leak("user", "MaskWelcome", "mask_key", "its own masks"),
        Leak("user", "MaskWelcome", "counts", "nothing: the list is empty"),
        Leak("user", "PublishedTable", "iteration", "that no round follows"),
        Leak("user", "PublishedTable", "qualities", "the published quality of every item, made of the noisy sums"),
        Leak("user", "PublishedTable", "popularities", "the published popularity of every item, likewise"),
        Leak("user", "PublishedTable", "frame", "averages of both over all items, likewise"),
    )
    leakage += tuple(
        Leak("user", "OpenTaste", field, words, follows=field == "covered")
        for field, words in (
            ("iteration", "the number of the round"),
            ("qualities", "the published quality of every item, made of the noisy sums"),
            ("popularities", "the published popularity of every item, likewise"),
            ("frame", "averages of both over all items, likewise"),
            ("covered", "which items have the largest noisy counts"),
            ("directions", "functions of what else is published"),
        )
    )
    leakage += (
        Leak("user", "PublishedTaste", "iteration", "that no round follows"),
        Leak("user", "PublishedTaste", "directions", "the published directions of taste, made of the noisy sums"),
        Leak("user", "OpenTable", "iteration", "the number of the round"),
        Leak("user", "OpenTable", "covered", "which items have the largest noisy counts", follows=True),
    )
    permits: ClassVar[dict[str, str]] = {"recommender": "aggregate", "third_party": "nothing", "user": "aggregate"}
    messages: ClassVar[tuple[type, ...]] = (
        Hello,
        Join,
        MaskWelcome,
        MaskedPart,
        Contributors,
        Agreed,
        PartTotal,
        PublishedTable,
        OpenTaste,
        PublishedTaste,
        OpenTable,
    )
    servers = (THIRD_PARTY, RECOMMENDER)
    flags = frozenset({"epsilon", "delta", "unit", "item_features"})
    params_class = HardenedParams
    goes_on_without = True
    options: ClassVar[dict[str, Any]] = {"spare": SPARE, "rounds": 0, "selected": 0, "proof": NO_PROOF}

    def make_params(
        self,
        shape: Shape,
        *,
        unit: str | None = None,
        spare: float = SPARE,
        rounds: int = 0,
        selected: int = 0,
        proof: str = NO_PROOF,
        item_features: str | None = None,  # the drivers have read it: `shape.features`
        **settings: Any,
    ) -> tuple[HardenedParams, list[str]]:
        require(proof in (NO_PROOF, NORM_PROOF), f"proof must be {NO_PROOF} or {NORM_PROOF}, not {proof}.")
        require(proof == NO_PROOF, NOT_YET)
        require(0 <= spare < 1, f"spare must be in [0, 1), not {spare:g}.")
        n = shape.n_users
        floor = max(n - math.ceil(spare * n), min(2, n))
        given = {"unit_of": unit, "min_contributors": floor, **described(shape.features), **counted(unit, shape.raters)}
        base, _ = super().make_params(shape, **(settings | given | {"iterations": 1, "rounds": 1}))
        return provisioned(HardenedParams.of(base), rounds, selected)

    def make_role(self, party: str, setting: Setting, tape: Tape, inputs: UserInput | None) -> Role:
        from protocol.schemes.hardened import hardened_roles as roles

        role = role_of(party)
        if role == RECOMMENDER:
            return roles.HardenedRecommender(setting, tape)
        if role == THIRD_PARTY:
            return roles.HardenedThirdParty(setting)
        assert inputs is not None
        return roles.HardenedUser(setting, tape, inputs)

    def longer_fields(self, params: Params) -> dict[str, int]:
        params = HardenedParams.of(params)
        frame = FRAME + params.flag_columns + params.number_columns
        taste = params.n_items * params.directions if params.tastes else 0
        return {"values": max(params.lengths), "frame": frame, "directions": taste}

    def rehearsed(self, params: Params) -> Params:
        """Compute once for all users whether they take part; the few that rehearse are promised nothing."""
        params = HardenedParams.of(params)
        keeps_claim(params)
        return dataclasses.replace(params, epsilon=math.inf)

    def formula(self, params: Params, course: Course) -> Iterator[Flow]:
        params = HardenedParams.of(params)
        up, down, across = ("user", RECOMMENDER), (RECOMMENDER, "user"), ("user", THIRD_PARTY)
        back, towards, frames = (THIRD_PARTY, RECOMMENDER), (RECOMMENDER, THIRD_PARTY), Frames(params)
        yield frames.hello(up, course.joined)
        yield frames.flow(SETUP, up, Join, course.joined, 1, items=0)
        yield frames.hello(back, 1)
        yield frames.hello(towards, 1)
        yield frames.hello(down, course.welcomed)
        yield frames.hello(across, course.greeted)
        yield frames.flow(SETUP, down, MaskWelcome, course.welcomed, 1, mask_key=1, counts=0)
        m = params.n_items
        table = {"qualities": m, "popularities": m, "frame": FRAME + params.flag_columns + params.number_columns}
        for t, (turn, rows) in enumerate(zip(course.turns, params.lengths, strict=False)):
            if t == 1 and params.selected:
                yield frames.flow(t, down, OpenTable, turn.invited, 2, iteration=t, covered=params.selected)
            elif t == 1:
                opened = {"iteration": t, "covered": params.covered, "directions": m * params.directions}
                yield frames.flow(t, down, OpenTaste, turn.invited, 2, **opened, **table)
            yield frames.flow(t, across, MaskedPart, turn.contributors, t + 1, iteration=t, items=0, values=rows)
            closed: dict[str, Amount] = {"iteration": t, "users": turn.contributors.sum(), "counts": 0, "digest": 1}
            yield frames.flow(t, back, Contributors, 1, 2 * t + 1, **closed)
            yield frames.flow(t, towards, Agreed, 1, t + 1, iteration=t, digest=1)
            yield frames.flow(t, back, PartTotal, 1, 2 * t + 2, iteration=t, values=rows)
        last, finished = params.rounds, course.finished
        if not params.tastes:
            yield frames.flow(last, down, PublishedTable, finished, last + 1, iteration=last, **table)
        else:
            learned = params.covered * params.directions
            yield frames.flow(last, down, PublishedTaste, finished, 3, iteration=last, directions=learned)

    def account(self, params: Params, recommender_tape: Tape, shape: Shape) -> dict[str, Any]:
        return account(HardenedParams.of(params))

    def unprotected(self, params: Params) -> tuple[Scheme, Params]:
        """Return the same pipeline without noise."""
        return self, dataclasses.replace(HardenedParams.of(params), epsilon=math.inf, first_scale=0, second_scale=0)


def account(params: HardenedParams) -> dict[str, Any]:
    """Account for everything that is released, to a coalition without the two servers together."""
    from protocol.schemes.composition import gaussian_epsilon  # not needed by any role

    if not params.first_scale:
        method = "no noise (ε = ∞), so nothing bounds what is released"
        return {"epsilon": math.inf, "delta": params.delta, "method": method}
    mu = params.mu(params.min_contributors)
    return {
        "epsilon": gaussian_epsilon(mu, params.delta),
        "delta": params.delta,
        "method": f"the whole run, for {params.neighbour}: Gaussian noise on integers, μ = {mu:.4g}, exact, "
        f"to any party or server that {params.spare} of {params.n_users} users help at most",
        "claimed": params.epsilon,
        "unit": "rating value, whole run" if params.unit_of == VALUE else f"{params.unit_of} added or removed",
        "mu": mu,
        "colluders": colluders(params),
    }


def colluders(params: HardenedParams) -> dict[str, float]:
    """Compute ε if nobody drops out and this many users give away their shares: none, 1, 10 % and half."""
    from protocol.schemes.composition import gaussian_epsilon

    n = params.n_users
    numbers = {"0": 0, "1": 1, "10 %": math.ceil(0.1 * n), "50 %": math.ceil(0.5 * n)}
    return {name: gaussian_epsilon(params.mu(n - c), params.delta) for name, c in numbers.items() if c < n}
