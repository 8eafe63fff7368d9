"""`direct`: the untrusted recommender without a third party (Hua, Xia, Zhong 2015, equation 13).

Once, when every user has joined:

    recommender -> user    NoiseKeys       per item of the user: the key of the envelope of η_j, the count of raters

One iteration t, one message each for all items of a user:

    recommender -> user    ItemFactors     v_j(t)
    user -> recommender    NoisyGradient   ∇ + η share + ρ, in the clear

The η share is drawn once; all shares of an item sum to Laplace(0, b). Nothing hides the upload of one user, so ρ must
protect it alone: every coordinate is Laplace(0, b), drawn by the user itself, with no envelope that the recommender
could know. Without ρ (`rho` false, for the audit) the share cancels in the difference of two uploads.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from protocol.arithmetic.factors import FACTOR_LIMIT
from protocol.arithmetic.noise import laplace, noise_share
from protocol.arithmetic.ring import everywhere
from protocol.arithmetic.tape import Tape, exponential
from protocol.arrays import RealArray
from protocol.attendance import Course
from protocol.errors import Reason
from protocol.params import JointRule, Params, declared
from protocol.party.role import (
    RECOMMENDER,
    Effects,
    Role,
    Send,
    UserInput,
    expect,
    require,
    role_of,
    user_index,
    user_name,
)
from protocol.schemes.base import DELTA, Leak, Setting, Shape, Weakness
from protocol.schemes.factorization.factorization import Factorization, GradientParams
from protocol.schemes.factorization.honest_reach import HonestReach
from protocol.schemes.factorization.plain import Plain, PlainRecommender, two_party_formula
from protocol.schemes.factorization.static_users import JoiningUser
from protocol.wire.framing import Flow
from protocol.wire.messages import Finish, Hello, ItemFactors, Join, Message, NoiseKeys, NoisyGradient, Publication


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectParams(GradientParams):
    rho: bool = declared(otherwise=True)  # users add their own ρ

    together: ClassVar[tuple[JointRule, ...]] = (
        *GradientParams.together,
        JointRule(
            "epsilon",
            lambda one: one.largest_upload <= FACTOR_LIMIT,
            lambda one: "An upload could be too large to travel: raise epsilon or lower the clip.",
        ),
    )


class Direct(Factorization):
    name = "direct"
    title = "Noisy gradients straight to the recommender"
    source = "Hua, Xia, Zhong 2015, equation 13"
    unit = "rating value, per release"
    claims = (
        "No third party: every upload carries Laplace noise of scale 2Δ√d/ε that its user drew, and a share of the "
        "objective noise; claimed to give ε-differential privacy per release."
    )
    known_weaknesses = (
        Weakness("known-envelope", "recommender"),
        Weakness("known-shares", "user"),
        Weakness("composition", "recommender"),
        Weakness("support", "recommender"),
        Weakness("single-contributor", "recommender"),
        Weakness("released-sums", "user"),
        Weakness("reacting-user-factors", "recommender", since=1),
    )
    leakage = (
        Leak("recommender", "Join", "items", "which items each user rated"),
        Leak("recommender", "NoisyGradient", "iteration", "the number of the iteration"),
        Leak("recommender", "NoisyGradient", "values", "each user's noisy gradient for each rated item"),
        Leak("user", "NoiseKeys", "floors", "how many users rated each of its items"),
        Leak("user", "NoiseKeys", "item_keys", "the objective noise envelopes of its items"),
        Leak("user", "ItemFactors", "iteration", "the number of the iteration"),
        Leak("user", "ItemFactors", "floors", "always empty here"),
        Leak("user", "ItemFactors", "factors", "the item factors, and so the noisy sums, of its items"),
        Leak("user", "Publication", "iteration", "that no iteration follows"),
        Leak("user", "Publication", "factors", "the item factors of all items, made of the noisy sums"),
        Leak("user", "Finish", "iteration", "that the run ended"),
    )
    permits: ClassVar[dict[str, str]] = {"recommender": "noisy-individual", "user": "aggregate"}
    messages = (Hello, Join, NoiseKeys, ItemFactors, NoisyGradient, Finish, Publication)
    servers = (RECOMMENDER,)
    flags = frozenset({"epsilon", "no_rho", "factor_bits", "publish"})
    params_class = DirectParams
    options: ClassVar[dict[str, Any]] = {**Plain.options, **DirectParams.defaults("rho")}

    def make_role(self, party: str, setting: Setting, tape: Tape, inputs: UserInput | None) -> Role:
        if role_of(party) == RECOMMENDER:
            return DirectRecommender(setting, tape)
        assert inputs is not None
        return DirectUser(setting, tape, inputs)

    def formula(self, params: Params, course: Course) -> Iterator[Flow]:
        return two_party_formula(params, course, NoisyGradient, NoiseKeys)

    def account(self, params: Params, recommender_tape: Tape, shape: Shape) -> dict[str, Any]:
        """Compute what T uploads tell the recommender about one rating, for a u_i that did not react to it."""
        from protocol.schemes import composition  # not needed by any role

        params = DirectParams.of(params)
        claim, releases = params.epsilon, params.iterations
        if math.isinf(claim) or not params.rho:
            words = "no noise (ε = ∞)" if math.isinf(claim) else "without ρ the difference of two uploads has no noise"
            return {"epsilon": math.inf, "delta": DELTA, "method": f"{words}, so nothing bounds what is released"}
        composed = composition.composed(params, releases)
        return {
            "epsilon": composed["tight"],
            "delta": DELTA,
            "method": f"to the recommender: {releases} uploads of one rating's gradient, each with a ρ that its user "
            "drew, through the privacy loss distribution; the constant objective noise is not counted on",
            "claimed": claim,
            **composed,
        }


class DirectUser(JoiningUser):
    def __init__(self, setting: Setting, tape: Tape, inputs: UserInput) -> None:
        super().__init__(setting, tape, inputs)
        params = DirectParams.of(setting.params)
        self.reach = HonestReach(params, params.n_users)  # every user adds the whole noise
        self.with_rho = params.rho
        self.objective_share: RealArray | None = None  # made once

    def receive(self, sender: str, message: Message) -> Effects:
        if isinstance(message, (Publication, Finish)):
            return self.finish(sender, message)
        expect(message, NoiseKeys, ItemFactors)
        require(sender == RECOMMENDER, Reason.UNKNOWN_SENDER)
        return self._prepare(message) if isinstance(message, NoiseKeys) else self._answer(message)

    def _prepare(self, dealt: NoiseKeys) -> Effects:
        n_items, dim = len(self.inputs.items), self.params.dim
        require(self.objective_share is None, Reason.WRONG_KIND)
        require(len(dealt.floors) == n_items and len(dealt.item_keys) == n_items, Reason.WRONG_LENGTH)
        require(everywhere(dealt.floors >= 1), Reason.OUT_OF_RANGE)
        envelope = exponential(dealt.item_keys, dim, "eta", 0)
        normal = self.tape.normal(n_items, dim, "eta", 0)
        share = noise_share(self.params.noise_scale, envelope, dealt.floors, normal)
        self.objective_share = self.setting.reals.mark(share, self.label("eta", 0, dealt.floors))
        return []

    def _answer(self, offer: ItemFactors) -> Effects:
        require(self.objective_share is not None, Reason.WRONG_KIND)
        require(len(offer.floors) == 0, Reason.WRONG_LENGTH)
        factors = self.check_factors(offer.iteration, offer.factors)
        assert self.objective_share is not None
        reals, t = self.setting.reals, offer.iteration
        parts = [reals.mark(self.step(t, factors), self.label("gradient", t)), self.objective_share]
        if self.with_rho:
            noise = laplace(self.tape, self.params.noise_scale, *factors.shape, "rho", t)
            parts.append(reals.mark(noise, self.label("rho", t, np.ones(len(factors), np.uint32))))
        return [Send(RECOMMENDER, NoisyGradient(t, reals.narrow(reals.add(*parts))))]


class DirectRecommender(PlainRecommender):
    """A recommender that sums uploads and moves V as `plain` does; it cannot tell noise from gradient."""

    def __init__(self, setting: Setting, tape: Tape) -> None:
        super().__init__(setting, tape)
        self.reach = HonestReach(self.params, self.params.n_users)

    def reach_raters(self) -> npt.NDArray[np.int64]:
        return np.ones_like(self.n_raters)

    def welcome(self) -> list[Send]:
        keys = [self.tape.key("item", item) for item in range(self.params.n_items)]
        counts = self.n_raters.astype(np.uint32)
        return [
            Send(user_name(user), NoiseKeys(counts[items], tuple(keys[item] for item in items)))
            for user, items in self.supports.items()
        ]

    def receive(self, sender: str, message: Message) -> Effects:
        if isinstance(message, Join):
            return self.join(sender, message)
        upload = expect(message, NoisyGradient)
        user = user_index(sender)
        require(user in self.supports, Reason.UNKNOWN_SENDER)
        require(upload.iteration == self.iteration, Reason.WRONG_ITERATION)
        require(user not in self._gradients, Reason.DUPLICATE)
        require(len(upload.values) == len(self.supports[user]), Reason.WRONG_LENGTH)
        # an honest value is below that: see `DirectParams`
        require(self.setting.reals.within(upload.values, FACTOR_LIMIT), Reason.OUT_OF_RANGE)
        self._gradients[user] = self.setting.reals.widen(upload.values)
        if len(self._gradients) < len(self.supports):
            return []
        self._finish_iteration()
        return self.next_iteration()
