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
from protocol.attendance import Course, Turn
from protocol.params import Params, require
from protocol.party.role import RECOMMENDER, THIRD_PARTY, Role, UserInput, role_of
from protocol.schemes.base import Leak, Scheme, Setting, Shape
from protocol.schemes.hardened.budget import VALUE
from protocol.schemes.hardened.hardened_params import (
    NO_PROOF,
    NORM_PROOF,
    HardenedParams,
    counted,
    described,
    keeps_claim,
    provisioned,
)
from protocol.schemes.hardened.item_table import FRAME
from protocol.schemes.hardened.norm_proof.norm_statement import statement_of
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
    NormAnswer,
    NormProof,
    NormQuery,
    NormTests,
    NormVerdict,
    NormWeights,
    OpenTable,
    OpenTaste,
    PartTotal,
    ProvenPart,
    PublishedTable,
    PublishedTaste,
)

SPARE = 0.1  # c/n: the part of the users that the noise is provisioned for


class Hardened(Scheme):
    name = "hardened"
    title = "One masked sum of unit vectors, noise of all users on integers"
    source = "Keyhole"
    unit = "user added or removed (unit=rating: a rating; unit=value: the value of one), the whole run"
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
    leakage += (
        Leak("third_party", "ProvenPart", "iteration", "the number of the round"),
        Leak("third_party", "ProvenPart", "values", "uniform field elements", uniform=True),
        Leak("third_party", "ProvenPart", "shares", "uniform field elements", uniform=True),
        Leak("third_party", "ProvenPart", "digits", "uniform field elements", uniform=True),
        Leak("third_party", "NormAnswer", "iteration", "the number of the round"),
        Leak("third_party", "NormAnswer", "values", "uniform field elements", uniform=True),
        Leak("third_party", "NormProof", "iteration", "the number of the round"),
        Leak("third_party", "NormProof", "values", "uniform field elements", uniform=True),
        Leak("third_party", "NormVerdict", "iteration", "the number of the round"),
        Leak("third_party", "NormVerdict", "users", "whose vectors keep their bounds"),
        Leak("user", "NormTests", "iteration", "the number of the round"),
        Leak("user", "NormTests", "key", "random tests"),
        Leak("user", "NormWeights", "iteration", "the number of the round"),
        Leak("user", "NormWeights", "key", "random weights"),
        Leak("recommender", "NormQuery", "iteration", "the number of the round"),
        Leak("recommender", "NormQuery", "users", "who sent a proof"),
        Leak("recommender", "NormQuery", "key", "the challenges of all users"),
        Leak("recommender", "NormQuery", "opened", "with its own halves: numbers that a user's blinds make uniform"),
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
        ProvenPart,
        NormTests,
        NormAnswer,
        NormWeights,
        NormProof,
        NormQuery,
        NormVerdict,
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
        item_features: str | None = None,  # the drivers have read it: `shape.features`
        **settings: Any,
    ) -> tuple[HardenedParams, list[str]]:
        require(0 <= spare < 1, f"spare must be in [0, 1), not {spare:g}.")
        n = shape.n_users
        floor = max(n - math.ceil(spare * n), min(2, n))
        given = {"unit_of": unit, "min_contributors": floor, **described(shape.features), **counted(unit, shape.raters)}
        base, _ = super().make_params(shape, **(settings | given | {"iterations": 1, "rounds": 1}))
        params, notes = provisioned(HardenedParams.of(base), rounds, selected)
        if params.proof == NORM_PROOF:
            for t in range(params.rounds):
                statement_of(params, t)  # refuses numbers that are too large for the field
        return params, notes

    def make_role(self, party: str, setting: Setting, tape: Tape, inputs: UserInput | None) -> Role:
        from protocol.schemes.hardened import hardened_roles as roles

        role = role_of(party)
        if HardenedParams.of(setting.params).proof == NORM_PROOF:
            return _proving_role(role, setting, tape, inputs)
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
        longest = {"values": max(params.lengths), "frame": frame, "directions": taste}
        return longest | (longer_in_proofs(params) if params.proof == NORM_PROOF else {})

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
        if params.proof == NORM_PROOF:
            yield frames.hello((THIRD_PARTY, "user"), course.greeted)
        yield frames.flow(SETUP, down, MaskWelcome, course.welcomed, 1, mask_key=1, counts=0)
        m = params.n_items
        table = {"qualities": m, "popularities": m, "frame": FRAME + params.flag_columns + params.number_columns}
        for t, (turn, rows) in enumerate(zip(course.turns, params.lengths, strict=False)):
            if t == 1 and params.selected:
                yield frames.flow(t, down, OpenTable, turn.invited, 2, iteration=t, covered=params.selected)
            elif t == 1:
                opened = {"iteration": t, "covered": params.covered, "directions": m * params.directions}
                yield frames.flow(t, down, OpenTaste, turn.invited, 2, **opened, **table)
            closed: dict[str, Amount] = {"iteration": t, "users": turn.contributors.sum(), "counts": 0, "digest": 1}
            before = 0  # messages that a server has sent to the other in this round
            if params.proof == NORM_PROOF:
                before = 1
                yield from proof_flows(frames, params, t, turn)
            else:
                yield frames.flow(t, across, MaskedPart, turn.contributors, t + 1, iteration=t, items=0, values=rows)
            yield frames.flow(t, back, Contributors, 1, (2 + before) * t + before + 1, **closed)
            yield frames.flow(t, towards, Agreed, 1, (1 + before) * t + before + 1, iteration=t, digest=1)
            yield frames.flow(t, back, PartTotal, 1, (2 + before) * t + before + 2, iteration=t, values=rows)
        last, finished = params.rounds, course.finished
        if not params.tastes:
            yield frames.flow(last, down, PublishedTable, finished, last + 1, iteration=last, **table)
        else:
            learned = params.covered * params.directions
            yield frames.flow(last, down, PublishedTaste, finished, 3, iteration=last, directions=learned)

    def unmasked(self, params: Params) -> str:
        return "exact-individual" if HardenedParams.of(params).proof == NORM_PROOF else super().unmasked(params)

    def account(self, params: Params, recommender_tape: Tape, shape: Shape) -> dict[str, Any]:
        return account(HardenedParams.of(params))

    def unprotected(self, params: Params) -> tuple[Scheme, Params]:
        """Return the same pipeline without noise."""
        return self, dataclasses.replace(HardenedParams.of(params), epsilon=math.inf, first_scale=0, second_scale=0)


def longer_in_proofs(params: HardenedParams) -> dict[str, int]:
    statements = [statement_of(params, t) for t in range(params.rounds)]
    return {
        "values": max(max(one.lengths[-1], one.answered, one.proof_length) for one in statements),
        "shares": max(params.lengths),
        "digits": max(sum(one.slack_digits) for one in statements),
        "opened": params.n_users * max(one.verifier_length for one in statements),
    }


def proof_flows(frames: Frames, params: HardenedParams, t: int, turn: Turn) -> Iterator[Flow]:
    """Yield the messages of a round before Contributors: of all users that sent a proof, accepted or not."""
    users: Amount = turn.contributors if turn.proved is None else turn.proved
    across, asked, one = ("user", THIRD_PARTY), (THIRD_PARTY, "user"), statement_of(params, t)
    length, count = one.lengths[-1], users.sum()
    digits = sum(one.slack_digits)
    yield frames.flow(t, across, ProvenPart, users, 3 * t + 1, iteration=t, values=length, shares=length, digits=digits)
    yield frames.flow(t, asked, NormTests, users, 2 * t + 1, iteration=t, key=1)
    yield frames.flow(t, across, NormAnswer, users, 3 * t + 2, iteration=t, values=one.answered)
    yield frames.flow(t, asked, NormWeights, users, 2 * t + 2, iteration=t, key=1)
    yield frames.flow(t, across, NormProof, users, 3 * t + 3, iteration=t, values=one.proof_length)
    told = {"iteration": t, "users": count, "key": 1, "opened": count * one.verifier_length}
    yield frames.flow(t, (THIRD_PARTY, RECOMMENDER), NormQuery, 1, 3 * t + 1, **told)
    accepted = {"iteration": t, "users": turn.contributors.sum()}
    yield frames.flow(t, (RECOMMENDER, THIRD_PARTY), NormVerdict, 1, 2 * t + 1, **accepted)


def _proving_role(role: str, setting: Setting, tape: Tape, inputs: UserInput | None) -> Role:
    from protocol.schemes.hardened.norm_proof import norm_roles as roles

    if role == RECOMMENDER:
        return roles.NormRecommender(setting, tape)
    if role == THIRD_PARTY:
        return roles.NormThirdParty(setting, tape)
    assert inputs is not None
    return roles.NormUser(setting, tape, inputs)


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
