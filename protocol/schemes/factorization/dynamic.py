"""`dynamic`: users come and go (Hua, Xia, Zhong 2015, section 4.3); η is committed once, as `commitment.py` says.

Set-up, once every user has joined and the online users have said that they are online:

    recommender -> third party   OpenCommitment   which users commit to which items
    recommender -> user          Commit           items, envelope keys (paper: blinds β and envelopes)
    user -> third party          BlindedShare     enc(η share) + β
    third party -> recommender   SealedTotal      α + Σ; an item whose committer failed is absent and starts again

An iteration is that of `masked` among the users that are online, with two differences: a user adds no η share
(paper wire: instead it adds a piece of τ^), and the third party takes α out of the total. In the compact wire the
recommender, which knows all pieces anyway, puts τ^ into the sum itself.
Before each iteration a user may say Present or Absent; which users do so is an input from outside the protocol.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np

from protocol.arithmetic.noise import noise_share
from protocol.arithmetic.ring import Label
from protocol.arithmetic.tape import Tape, exponential
from protocol.arrays import Counts, Flags, RingArray
from protocol.attendance import Attempt, Course, Turn, spans
from protocol.errors import Reason
from protocol.params import Params
from protocol.party.role import (
    RECOMMENDER,
    THIRD_PARTY,
    Effects,
    Facts,
    Role,
    Send,
    Timer,
    UserInput,
    expect,
    require,
    role_of,
    user_index,
    user_name,
)
from protocol.schemes.base import Leak, Setting, Shape, Weakness
from protocol.schemes.factorization.dynamic_recommender import DynamicParams, DynamicRecommender
from protocol.schemes.factorization.factorization import MaskedParams
from protocol.schemes.factorization.machines.commitment import SealHolder, blind_rows
from protocol.schemes.factorization.masked import ACROSS, BACK, TOWARDS, UP, Masked, MaskedFormula
from protocol.schemes.factorization.masked_roles import MaskedUser, ThirdParty
from protocol.wire.fields import Amount
from protocol.wire.framing import Flow
from protocol.wire.messages import (
    SETUP,
    Absent,
    Barred,
    BlindedShare,
    Churn,
    Commit,
    CommitInFull,
    Deadline,
    Event,
    Finish,
    Gone,
    ItemFactors,
    ItemFactorsWithPieces,
    MaskedGradient,
    MaskedTotal,
    Message,
    OpenCommitment,
    OpenSum,
    Present,
    Publication,
    SealedTotal,
    Welcome,
)


class Dynamic(Masked):
    name = "dynamic"
    title = "Masked sums with pre-committed noise, for users who come and go"
    source = "Hua, Xia, Zhong 2015, section 4.3"
    claims = (
        "As masked, and the objective noise of an item is the same in every iteration whichever users are online; "
        "no server alone learns it."
    )
    known_weaknesses: ClassVar[tuple[str, ...]] = (
        *Masked.known_weaknesses,
        Weakness("diluted-sum", "recommender"),
        Weakness("single-contributor", "user"),  # v_j before and after an iteration that it missed
        Weakness("counts-over-time", "user"),  # floors follow those who are online
    )
    leakage: ClassVar[tuple[Leak, ...]] = (
        *(leak for leak in Masked.leakage if leak.kind not in ("WelcomeInFull", "ItemFactorsInFull")),
        Leak("recommender", "Present", "iteration", "when each user comes online"),
        Leak("recommender", "Absent", "iteration", "when each user goes offline"),
        Leak("recommender", "SealedTotal", "attempt", "how often a commitment had to start again"),
        Leak("recommender", "SealedTotal", "items", "which items all their committers committed to"),
        Leak("recommender", "SealedTotal", "values", "the objective noise of each item under a seal", uniform=True),
        Leak("third_party", "OpenCommitment", "attempt", "how often a commitment had to start again"),
        Leak("third_party", "OpenCommitment", "users", "who commits"),
        Leak("third_party", "OpenCommitment", "items", "to which items, all together"),
        Leak("third_party", "OpenCommitment", "counts", "how many commit to each item"),
        Leak("third_party", "BlindedShare", "attempt", "how often a commitment had to start again"),
        Leak("third_party", "BlindedShare", "items", "to which items each committer commits"),
        Leak("third_party", "BlindedShare", "values", "uniform ring elements", uniform=True),
        Leak("user", "Commit", "attempt", "how often a commitment had to start again"),
        Leak("user", "Commit", "items", "the items that it commits to"),
        Leak("user", "Commit", "counts", "how many commit to each of them"),
        Leak("user", "Commit", "item_keys", "the objective noise envelopes of the items that it commits to"),
        Leak("user", "CommitInFull", "attempt", "how often a commitment had to start again"),
        Leak("user", "CommitInFull", "items", "the items that it commits to"),
        Leak("user", "CommitInFull", "counts", "how many commit to each of them"),
        Leak("user", "CommitInFull", "blinds", "its own blinds"),
        Leak("user", "CommitInFull", "envelopes", "the objective noise envelopes of the items that it commits to"),
        Leak("user", "ItemFactorsWithPieces", "iteration", "the number of the iteration"),
        Leak("user", "ItemFactorsWithPieces", "floors", "how many contributors each of its items needs"),
        Leak("user", "ItemFactorsWithPieces", "factors", "the item factors, and so the noisy sums, of its items"),
        Leak("user", "ItemFactorsWithPieces", "masks", "its own masks"),
        Leak("user", "ItemFactorsWithPieces", "envelopes", "the iteration noise envelopes of its items"),
        Leak("user", "ItemFactorsWithPieces", "pieces", "a piece of the sealed noise; a sole contributor holds it all"),
    )
    messages: ClassVar[tuple[type, ...]] = (
        *(kind for kind in Masked.messages if kind.__name__ not in ("WelcomeInFull", "ItemFactorsInFull")),
        OpenCommitment,
        Commit,
        CommitInFull,
        BlindedShare,
        SealedTotal,
        Present,
        Absent,
        ItemFactorsWithPieces,
    )
    flags = Masked.flags | {"online", "join", "leave"}
    params_class = DynamicParams
    options: ClassVar[dict[str, Any]] = {**Masked.options, **DynamicParams.defaults("committers")}

    def make_params(self, shape: Shape, **settings: Any) -> tuple[MaskedParams, list[str]]:
        # an item has the roundings of its committers too, which may be more than its raters
        parts = min(settings.get("committers", self.options["committers"]), shape.n_users)
        return super().make_params(shape, **{"max_raters": max(shape.max_raters, parts), **settings})

    def make_role(self, party: str, setting: Setting, tape: Tape, inputs: UserInput | None) -> Role:
        role = role_of(party)
        if role == RECOMMENDER:
            return DynamicRecommender(setting, tape)
        if role == THIRD_PARTY:
            return DynamicThirdParty(setting, tape)
        assert inputs is not None
        return DynamicUser(setting, tape, inputs)

    def formula(self, params: Params, course: Course) -> Iterator[Flow]:
        return DynamicFormula(params, course).flows()

    def items_of(self, params: Params, raters: Counts, invited: Counts, contributing: Counts) -> tuple[Flags, Flags]:
        return super().items_of(params, invited, invited, contributing)


class DynamicFormula(MaskedFormula):
    offer_in_full = ItemFactorsWithPieces

    def dealing(self) -> Iterator[Flow]:
        if self.compact:
            n = self.course.supports
            yield self._tell(SETUP, Welcome, self.course.welcomed, floors=0, mask_key=1, item_keys=n)
        for number, attempt in enumerate(self.course.attempts):
            yield from self.commitment(number, attempt)

    def commitment(self, number: int, attempt: Attempt) -> Iterator[Flow]:
        flow, shares, opened, sealed = self.frames.flow, attempt.shares, attempt.opened, attempt.sealed
        opening = {"attempt": number, "users": attempt.asked.sum(), "items": opened, "counts": opened}
        yield flow(SETUP, TOWARDS, OpenCommitment, 1, self.between, **opening)
        dealt = {"attempt": number, "items": shares, "counts": shares}
        if self.compact:
            yield self._tell(SETUP, Commit, attempt.asked, **dealt, item_keys=shares)
        else:
            yield self._tell(SETUP, CommitInFull, attempt.asked, **dealt, blinds=shares, envelopes=shares)
        answer = {"attempt": number, "items": shares, "values": shares}
        yield flow(SETUP, ACROSS, BlindedShare, attempt.answered, self.wrote, **answer)
        self.wrote = self.wrote + self._each(attempt.asked)
        yield flow(SETUP, BACK, SealedTotal, 1, self.between, attempt=number, items=sealed, values=sealed)
        self.between += 1

    def presence(self, t: int, turn: Turn) -> Iterator[Flow]:
        for message, users in ((Present, turn.present), (Absent, turn.absent)):
            yield self.frames.flow(t, UP, message, users, self.said, iteration=t)
        self.said = self.said + self._each(turn.present + turn.absent)

    def offered(self) -> dict[str, Amount]:
        pieces = {} if self.compact else {"pieces": self.course.supports}
        return super().offered() | pieces


class DynamicUser(MaskedUser):
    restorable = True

    def __init__(self, setting: Setting, tape: Tape, inputs: UserInput) -> None:
        super().__init__(setting, tape, inputs)
        assert isinstance(setting.params, DynamicParams)
        self.committers = setting.params.committers
        self.online = False
        self.told = -1  # the iteration of its latest change: an earlier one may be told again after a restart
        self.attempt = -1  # the last attempt in which it committed

    def tick(self, event: Event) -> Effects:
        if not isinstance(event, Churn) or event.online == self.online or event.iteration <= self.told:
            return []
        self.online, self.told = event.online, event.iteration
        said = Present(event.iteration) if event.online else Absent(event.iteration)
        return [Send(RECOMMENDER, said)]

    def receive(self, sender: str, message: Message) -> Effects:
        if isinstance(message, (Publication, Finish)):
            return self.finish(sender, message)
        require(sender == RECOMMENDER, Reason.UNKNOWN_SENDER)
        compact = self.params.wire == "compact"
        if isinstance(message, Welcome):
            return self._keys(message)
        require(not compact or self.mask_key, Reason.WRONG_KIND)
        if isinstance(message, (Commit, CommitInFull)):
            return self._commit(message)
        offer = expect(message, ItemFactors if compact else ItemFactorsWithPieces)
        self._check_floors(offer.floors)
        factors = self.check_factors(offer.iteration, offer.factors, offer.floors)
        masks, envelope = self._dealt(offer)
        extra = () if compact else (self._check_rows(offer.pieces, len(self.inputs.items)),)
        share = self._noise(envelope, offer.floors, "rho", offer.iteration)
        gradients = self.encode_gradients(offer.iteration, factors)
        values = self.setting.ring.add(gradients, share, masks, *extra)
        return [Send(THIRD_PARTY, MaskedGradient(offer.iteration, self.inputs.items, values))]

    def _keys(self, message: Welcome) -> Effects:
        require(self.params.wire == "compact" and not self.mask_key, Reason.WRONG_KIND)
        require(len(message.floors) == 0, Reason.WRONG_LENGTH)
        require(len(message.item_keys) == len(self.inputs.items), Reason.WRONG_LENGTH)
        self.mask_key, self.item_keys = message.mask_key, list(message.item_keys)
        return []

    def _commit(self, message: Commit | CommitInFull) -> Effects:
        params, ring, rows = self.params, self.setting.ring, len(message.items)
        require(isinstance(message, Commit) == (params.wire == "compact"), Reason.WRONG_KIND)
        require(message.attempt > self.attempt, Reason.WRONG_ITERATION)
        require(not rows or message.items[-1] < params.n_items, Reason.UNKNOWN_ITEM)
        require(len(message.counts) == rows, Reason.WRONG_LENGTH)
        require(not np.count_nonzero(message.counts != self.committers), Reason.OUT_OF_RANGE)
        if isinstance(message, Commit):
            require(len(message.item_keys) == rows, Reason.WRONG_LENGTH)
            envelope = exponential(message.item_keys, params.dim, "eta")
            blinds = blind_rows(ring, self.mask_key, self.setting.run_id, message.attempt, rows, params.dim)
        else:
            envelope = self._check_envelope(message.envelopes, rows)
            blinds = self._check_rows(message.blinds, rows)
        normal = self.tape.normal(rows, params.dim, "eta", message.attempt)
        label = Label("eta", message.attempt, message.items, message.counts)
        share = self.fixed.encode(noise_share(params.noise_scale, envelope, message.counts, normal), label)
        self.attempt = message.attempt
        return [Send(THIRD_PARTY, BlindedShare(message.attempt, message.items, ring.add(share, blinds)))]

    def _check_rows(self, rows: RingArray, count: int) -> RingArray:
        require(len(rows) == count, Reason.WRONG_LENGTH)
        require(self.setting.ring.fits(rows, (count, self.params.dim)), Reason.OUT_OF_RANGE)
        return rows


class DynamicThirdParty(ThirdParty):
    """A third party that also keeps α.

    While commitments run, its iteration is −1 − attempt, so that each attempt has its own deadline.
    """

    restorable = True

    def __init__(self, setting: Setting, tape: Tape) -> None:
        super().__init__(setting)
        params = setting.params
        self.seal = SealHolder(setting.ring, params.dim, params.n_users, params.n_items, tape)
        self.iteration = SETUP
        self.answered: list[tuple[int, ...]] = []  # the users that committed, by attempt

    def facts(self) -> Facts:
        """Report which users committed in each attempt: once, with the first iteration that it has summed."""
        return {"answered": [spans(users) for users in self.answered]} if self.iteration == 1 else {}

    def receive(self, sender: str, message: Message) -> Effects:
        if isinstance(message, BlindedShare):
            self.seal.add(user_index(sender), message.attempt, message.items, message.values)
            return self._seal() if self.seal.complete else []
        if isinstance(message, OpenCommitment):
            require(sender == RECOMMENDER, Reason.UNKNOWN_SENDER)
            self.seal.open(message)
            self.iteration = SETUP - self.seal.attempt
            return self._seal() if self.seal.complete else [Timer(self.iteration)]
        if isinstance(message, OpenSum):
            require(sender == RECOMMENDER, Reason.UNKNOWN_SENDER)
            require(self.seal.opening is None, Reason.WRONG_KIND)
            require(not len(message.items) or message.items[-1] < self.params.n_items, Reason.UNKNOWN_ITEM)
            require(not np.count_nonzero(~self.seal.sealed[message.items]), Reason.UNKNOWN_ITEM)
        effects = super().receive(sender, message)
        self.iteration = self.holder.iteration if not isinstance(message, MaskedGradient) else self.iteration
        return [self._unseal(effect) for effect in effects]

    def awaited(self) -> Sequence[str]:
        return list(map(user_name, self.seal.missing())) or super().awaited()

    def tick(self, event: Event) -> Effects:
        if isinstance(event, (Gone, Barred)):
            self.seal.lose(event.user)
            if self.seal.complete:
                self.note_flood(event)
                self.holder.lose(event.user)
                return self._seal()
        if isinstance(event, Deadline) and event.iteration < 0:
            waiting = self.seal.opening is not None and event.iteration == self.iteration
            return self._seal() if waiting else []
        return super().tick(event)

    def _seal(self) -> Effects:
        self.answered.append(self.seal.committed)
        return [Send(RECOMMENDER, self.seal.seal())]

    def _unseal(self, effect: Any) -> Any:
        """Take α out of a total before it is sent; an item below its floor is absent, so −α is never sent alone."""
        if not isinstance(effect, Send) or not isinstance(effect.message, MaskedTotal):
            return effect
        total = effect.message
        values = self.ring.subtract(total.values, self.seal.seals[total.items])
        return Send(effect.to, MaskedTotal(total.iteration, total.items, values))
