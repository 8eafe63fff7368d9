"""`masked`: the untrusted recommender with a semi-honest third party (Hua, Xia, Zhong 2015, section 4.2).

One iteration t, one message each for all items of a user:

    recommender -> third party   OpenSum          the users that are invited, the floor of every item
    recommender -> user          ItemFactors      v_j(t), floors; masks and envelopes in the paper's wire form
    user -> third party          MaskedGradient   enc(∇) + enc(η share) + enc(ρ share) + ψ   mod P
    third party -> recommender   Contributors     closed once: the users, how many per item, a digest
    recommender -> third party   Agreed           all contributors were dealt masks
    third party -> recommender   MaskedTotal      φ_j for every item at or above its floor

The recommender subtracts the masks of the contributors and moves v_j. The gradient and the two shares are encoded
separately, so that a known share or a constant η is visible, exactly, to an audit.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np

from protocol.arithmetic.noise import floor_of
from protocol.arithmetic.tape import Tape
from protocol.arrays import Counts, Flags, Floats
from protocol.attendance import Course, Turn
from protocol.params import Params
from protocol.party.role import RECOMMENDER, THIRD_PARTY, Role, UserInput, role_of
from protocol.schemes.base import Leak, Setting, Shape, Weakness
from protocol.schemes.factorization.factorization import Factorization, MaskedParams, fit_ring
from protocol.schemes.factorization.masked_roles import MaskedRecommender, MaskedUser, ThirdParty
from protocol.schemes.factorization.plain import Plain
from protocol.schemes.factorization.static_users import published_rows
from protocol.wire.fields import Amount
from protocol.wire.framing import Flow, Frames
from protocol.wire.messages import (
    SETUP,
    Agreed,
    Contributors,
    Finish,
    Hello,
    ItemFactors,
    ItemFactorsInFull,
    Join,
    MaskedGradient,
    MaskedTotal,
    OpenSum,
    Publication,
    Welcome,
    WelcomeInFull,
)

UP, DOWN, ACROSS = ("user", "recommender"), ("recommender", "user"), ("user", "third_party")
TOWARDS, BACK = ("recommender", "third_party"), ("third_party", "recommender")


class Masked(Factorization):
    name = "masked"
    title = "Masked gradient sums with a semi-honest third party"
    source = "Hua, Xia, Zhong 2015, section 4.2"
    unit = "rating value, per release"
    claims = (
        "No server alone learns a user's gradient; every released sum carries Laplace noise of scale 2Δ√d/ε, "
        "claimed to give ε-differential privacy per release."
    )
    known_weaknesses: ClassVar[tuple[str, ...]] = (
        Weakness("known-envelope", "recommender"),
        Weakness("known-shares", "user"),
        Weakness("composition", "recommender"),
        Weakness("support", "recommender", "third_party"),
        Weakness("single-contributor", "recommender"),
        Weakness("disaggregation", "recommender"),
        Weakness("released-sums", "user"),
        Weakness("unmasking", "recommender+third_party", "recommender+user"),
        Weakness("reacting-user-factors", "recommender", since=1),
    )
    leakage: ClassVar[tuple[Leak, ...]] = (
        Leak("recommender", "Join", "items", "which items each user rated"),
        Leak("recommender", "Contributors", "iteration", "the number of the iteration"),
        Leak("recommender", "Contributors", "users", "who contributed"),
        Leak("recommender", "Contributors", "counts", "how many contributed to each item"),
        Leak("recommender", "Contributors", "digest", "that both servers mean the same contributors"),
        Leak("recommender", "MaskedTotal", "iteration", "the number of the iteration"),
        Leak("recommender", "MaskedTotal", "items", "which items reached their floor"),
        Leak("recommender", "MaskedTotal", "values", "the noisy gradient sum of each item, once unmasked"),
        Leak("third_party", "OpenSum", "iteration", "the number of the iteration"),
        Leak("third_party", "OpenSum", "users", "who is invited"),
        Leak("third_party", "OpenSum", "items", "which items they rated, all together"),
        Leak("third_party", "OpenSum", "floors", "how many contributors each item needs"),
        Leak("third_party", "MaskedGradient", "iteration", "the number of the iteration"),
        Leak("third_party", "MaskedGradient", "items", "which items each user rated"),
        Leak("third_party", "MaskedGradient", "values", "uniform ring elements", uniform=True),
        Leak("third_party", "Agreed", "iteration", "the number of the iteration"),
        Leak("third_party", "Agreed", "digest", "that both servers mean the same contributors"),
        Leak("third_party", "Finish", "iteration", "that the run ended"),
        Leak("user", "Welcome", "floors", "how many contributors each of its items needs"),
        Leak("user", "Welcome", "mask_key", "its own masks"),
        Leak("user", "Welcome", "item_keys", "the noise envelopes of its items, also while it is offline"),
        Leak("user", "WelcomeInFull", "floors", "how many contributors each of its items needs"),
        Leak("user", "WelcomeInFull", "envelopes", "the objective noise envelopes of its items"),
        Leak("user", "ItemFactors", "iteration", "the number of the iteration"),
        Leak("user", "ItemFactors", "floors", "how many contributors each of its items needs"),
        Leak("user", "ItemFactors", "factors", "the item factors, and so the noisy sums, of its items"),
        Leak("user", "ItemFactorsInFull", "iteration", "the number of the iteration"),
        Leak("user", "ItemFactorsInFull", "floors", "how many contributors each of its items needs"),
        Leak("user", "ItemFactorsInFull", "factors", "the item factors, and so the noisy sums, of its items"),
        Leak("user", "ItemFactorsInFull", "masks", "its own masks"),
        Leak("user", "ItemFactorsInFull", "envelopes", "the iteration noise envelopes of its items"),
        Leak("user", "Publication", "iteration", "that no iteration follows"),
        Leak("user", "Publication", "factors", "the item factors of all items, made of the noisy sums"),
        Leak("user", "Finish", "iteration", "that the run ended"),
    )
    permits: ClassVar[dict[str, str]] = {"recommender": "aggregate", "third_party": "nothing", "user": "aggregate"}
    messages: ClassVar[tuple[type, ...]] = (
        Hello,
        Join,
        Welcome,
        WelcomeInFull,
        OpenSum,
        ItemFactors,
        ItemFactorsInFull,
        MaskedGradient,
        Contributors,
        Agreed,
        MaskedTotal,
        Finish,
        Publication,
    )
    flags = frozenset({"epsilon", "wire", "ring_bits", "factor_bits", "publish"})
    goes_on_without = True
    can_wait = frozenset({"Welcome", "WelcomeInFull"})
    params_class = MaskedParams
    options: ClassVar[dict[str, Any]] = {
        **Plain.options,
        "ring_bits": None,
        **MaskedParams.defaults("dropout_allowance", "min_contributors"),
    }

    def make_params(
        self, shape: Shape, *, ring_bits: int | None = None, **settings: Any
    ) -> tuple[MaskedParams, list[str]]:
        given = {"max_raters": shape.max_raters, "ring_bits": ring_bits, **settings}
        made, notes = super().make_params(shape, **given)
        params, more = fit_ring(MaskedParams.of(made), ring_bits)
        return params, [*notes, *more]

    def make_role(self, party: str, setting: Setting, tape: Tape, inputs: UserInput | None) -> Role:
        role = role_of(party)
        if role == RECOMMENDER:
            return MaskedRecommender(setting, tape)
        if role == THIRD_PARTY:
            return ThirdParty(setting)
        assert inputs is not None
        return MaskedUser(setting, tape, inputs)

    def formula(self, params: Params, course: Course) -> Iterator[Flow]:
        return MaskedFormula(params, course).flows()

    def items_of(self, params: Params, raters: Counts, invited: Counts, contributing: Counts) -> tuple[Flags, Flags]:
        params = MaskedParams.of(params)
        floors = floor_of(raters, params.dropout_allowance, params.min_contributors)
        return raters > 0, (raters > 0) & (contributing >= floors)

    def account(self, params: Params, recommender_tape: Tape, shape: Shape) -> dict[str, Any]:
        from protocol.schemes import composition  # not needed by any role

        return composition.account_envelopes(MaskedParams.of(params), recommender_tape, shape.raters)


class MaskedFormula:
    """The bytes of `masked` for any course of a run: one walk through it, which counts the frames of each way.

    A frame carries the number of frames that went before it on the same way, which takes 1, 2, 3 or 5 bytes. So the
    frames of each way are counted:

        recommender -> user          Hello, what is dealt at first, then one for each invitation, Publication, Finish
        user -> recommender          Hello, Join, then one each time that the user comes or goes
        user -> third party          Hello, one for each commitment, then one for each invitation, answered or not
        recommender <-> third party  Hello, one for each attempt at a commitment, then two for each iteration
    """

    offer_in_full: type = ItemFactorsInFull

    def __init__(self, params: Params, course: Course) -> None:
        self.params = params
        self.course = course
        self.frames = Frames(params)
        self.compact = params.wire == "compact"
        self.offer = ItemFactors if self.compact else self.offer_in_full
        self.told = np.ones(len(course.users))  # the number of the next frame, by way and group; Hello is number 0
        self.said = np.full(len(course.users), 2.0)
        self.wrote = np.ones(len(course.users))
        self.between = 1  # both ways between the servers
        self.ever_told = np.zeros(len(course.users))

    def flows(self) -> Iterator[Flow]:
        yield from self.joining()
        yield from self.dealing()
        for t, turn in enumerate(self.course.turns):
            yield from self.presence(t, turn)
            yield from self.iteration(t, turn)
        yield from self.ending()

    def _tell(self, iteration: int, message: type, users: Floats, /, **entries: Amount) -> Flow:
        flow = self.frames.flow(iteration, DOWN, message, users, self.told, **entries)
        self.told = self.told + self._each(users)
        self.ever_told = np.maximum(self.ever_told, users)
        return flow

    def _each(self, users: Floats) -> Floats:
        """Divide the number of messages to or from each group, `users`, by the users of the group."""
        return users / np.maximum(self.course.users, 1e-300)

    def joining(self) -> Iterator[Flow]:
        frames, joined = self.frames, self.course.joined
        yield frames.hello(UP, joined)
        yield frames.flow(SETUP, UP, Join, joined, 1, items=self.course.supports)
        yield frames.hello(TOWARDS, 1)
        yield frames.hello(BACK, 1)

    def dealing(self) -> Iterator[Flow]:
        welcomed, n = self.course.welcomed, self.course.supports
        if self.compact:
            yield self._tell(SETUP, Welcome, welcomed, floors=n, mask_key=1, item_keys=n)
        else:
            yield self._tell(SETUP, WelcomeInFull, welcomed, floors=n, envelopes=n)

    def presence(self, t: int, turn: Turn) -> Iterator[Flow]:
        return iter(())

    def iteration(self, t: int, turn: Turn) -> Iterator[Flow]:
        flow, n, opened, released = self.frames.flow, self.course.supports, turn.opened, turn.released
        first, second = self.between, self.between + 1
        invited, contributors = turn.invited.sum(), turn.contributors.sum()
        yield flow(t, TOWARDS, OpenSum, 1, first, iteration=t, users=invited, items=opened, floors=opened)
        yield self._tell(t, self.offer, turn.invited, iteration=t, **self.offered())
        yield flow(t, ACROSS, MaskedGradient, turn.contributors, self.wrote, iteration=t, items=n, values=n)
        self.wrote = self.wrote + self._each(turn.invited)
        yield flow(t, BACK, Contributors, 1, first, iteration=t, users=contributors, counts=opened, digest=1)
        yield flow(t, TOWARDS, Agreed, 1, second, iteration=t, digest=1)
        yield flow(t, BACK, MaskedTotal, 1, second, iteration=t, items=released, values=released)
        self.between += 2

    def offered(self) -> dict[str, Amount]:
        names = ("floors", "factors") if self.compact else ("floors", "factors", "masks", "envelopes")
        return dict.fromkeys(names, self.course.supports)

    def ending(self) -> Iterator[Flow]:
        last, finished = self.params.iterations, self.course.finished
        rows = published_rows(self.params, self.course.supports)
        yield self._tell(last, Publication, finished, iteration=last, factors=rows)
        yield self._tell(last, Finish, finished, iteration=last)
        yield self.frames.flow(last, TOWARDS, Finish, 1, self.between, iteration=last)
        yield self.frames.hello(DOWN, self.ever_told)
        yield self.frames.hello(ACROSS, self.course.greeted)
