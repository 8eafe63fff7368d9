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

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from protocol.arithmetic.factors import Matrix
from protocol.arithmetic.fixedpoint import FixedPoint
from protocol.arithmetic.noise import floor_of, noise_share
from protocol.arithmetic.ring import Ids, RingArray, everywhere
from protocol.arithmetic.tape import Tape, exponential
from protocol.attendance import Course, spans
from protocol.errors import Aborted, Reason
from protocol.params import Params
from protocol.party.role import (
    RECOMMENDER,
    THIRD_PARTY,
    Done,
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
from protocol.schemes.base import Counts, Leak, Mask, Scheme, Setting, Shape
from protocol.schemes.factorization.masked_formula import MaskedFormula
from protocol.schemes.factorization.masked_sum import MaskDealer, SumHolder, contributor_digest, mask_rows
from protocol.schemes.factorization.plain import Plain
from protocol.schemes.factorization.static_users import JoiningRecommender, JoiningUser
from protocol.wire.framing import Flow
from protocol.wire.messages import (
    Agreed,
    Contributors,
    Deadline,
    Event,
    Finish,
    Gone,
    Hello,
    ItemFactors,
    ItemFactorsInFull,
    Join,
    MaskedGradient,
    MaskedTotal,
    Message,
    OpenSum,
    Publication,
    Welcome,
    WelcomeInFull,
)

ENVELOPE_LIMIT = 64.0  # an Exp(1) value from 52 bits is at most 36.8

Floats = npt.NDArray[np.float32]


class Masked(Scheme):
    name = "masked"
    title = "Masked gradient sums with a semi-honest third party"
    source = "Hua, Xia, Zhong 2015, section 4.2"
    unit = "rating value, per release"
    claims = (
        "No server alone learns a user's gradient; every released sum carries Laplace noise of scale 2Δ√d/ε, "
        "claimed to give ε-differential privacy per release."
    )
    known_weaknesses: ClassVar[tuple[str, ...]] = (
        "known-envelope",
        "known-shares",
        "composition",
        "support",
        "single-contributor",
        "released-sums",
        "unmasking",
        "reacting-user-factors",
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
    options: ClassVar[dict[str, Any]] = {
        **Plain.options,
        "ring_bits": None,
        "dropout_allowance": 0.0,
        "min_contributors": 1,
    }

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

    def items_of(self, params: Params, raters: Counts, invited: Counts, contributing: Counts) -> tuple[Mask, Mask]:
        floors = floor_of(raters, params.dropout_allowance, params.min_contributors)
        return raters > 0, (raters > 0) & (contributing >= floors)

    def account(self, params: Params, recommender_tape: Tape, shape: Shape) -> dict[str, Any]:
        from protocol.schemes import composition  # not needed by any role

        return composition.account_envelopes(params, recommender_tape, shape.raters)


class MaskedUser(JoiningUser):
    def __init__(self, setting: Setting, tape: Tape, inputs: UserInput) -> None:
        super().__init__(setting, tape, inputs)
        self.fixed = FixedPoint(setting.ring, self.params.fraction_bits)
        self.mask_key = b""
        self.item_keys: list[bytes] = []
        self.objective_share: RingArray | None = None  # enc(η share), made once

    def receive(self, sender: str, message: Message) -> Effects:
        if isinstance(message, (Publication, Finish)):
            return self.finish(sender, message)
        require(sender == RECOMMENDER, Reason.UNKNOWN_SENDER)
        if isinstance(message, (Welcome, WelcomeInFull)):
            return self._welcome(message)
        kind = ItemFactors if self.params.wire == "compact" else ItemFactorsInFull
        offer = expect(message, kind)
        require(self.objective_share is not None, Reason.WRONG_KIND)
        factors = self.check_factors(offer.iteration, offer.factors)
        self._check_floors(offer.floors)
        masks, envelope = self._dealt(offer)
        share = self._noise(envelope, offer.floors, "rho", offer.iteration)
        gradients = self.encode_gradients(offer.iteration, factors)
        assert self.objective_share is not None
        values = self.setting.ring.add(gradients, self.objective_share, share, masks)
        return [Send(THIRD_PARTY, MaskedGradient(offer.iteration, self.inputs.items, values))]

    def _welcome(self, message: Welcome | WelcomeInFull) -> Effects:
        require(self.objective_share is None, Reason.WRONG_KIND)
        require(isinstance(message, Welcome) == (self.params.wire == "compact"), Reason.WRONG_KIND)
        self._check_floors(message.floors)
        if isinstance(message, Welcome):
            require(len(message.item_keys) == len(self.inputs.items), Reason.WRONG_LENGTH)
            self.mask_key, self.item_keys = message.mask_key, self.setting.envelopes.keep(message.item_keys)
            envelope = self._derive_envelope("eta", 0)
        else:
            envelope = self._check_envelope(message.envelopes)
        self.objective_share = self._noise(envelope, message.floors, "eta", 0)
        return []

    def _dealt(self, offer: ItemFactors | ItemFactorsInFull) -> tuple[RingArray, Floats]:
        """Return (masks, envelope) of an iteration, derived from keys or as they were sent."""
        ring, dim, items = self.setting.ring, self.params.dim, self.inputs.items
        if isinstance(offer, ItemFactors):
            masks = mask_rows(ring, self.mask_key, self.setting.run_id, offer.iteration, len(items), dim)
            return masks, self._derive_envelope("rho", offer.iteration)
        require(len(offer.masks) == len(items), Reason.WRONG_LENGTH)
        require(ring.fits(offer.masks, (len(items), dim)), Reason.OUT_OF_RANGE)
        return offer.masks, self._check_envelope(offer.envelopes)

    def _derive_envelope(self, purpose: str, iteration: int) -> Floats:
        return self.setting.envelopes.exponential(self.item_keys, self.params.dim, purpose, iteration)

    def _check_envelope(self, envelope: Floats, rows: int | None = None) -> Floats:
        require(len(envelope) == (len(self.inputs.items) if rows is None else rows), Reason.WRONG_LENGTH)
        require(everywhere((envelope >= 0) & (envelope <= ENVELOPE_LIMIT)), Reason.OUT_OF_RANGE)
        return envelope

    def _check_floors(self, floors: npt.NDArray[np.uint32]) -> None:
        require(len(floors) == len(self.inputs.items), Reason.WRONG_LENGTH)
        require(everywhere(floors >= 1), Reason.OUT_OF_RANGE)

    def _noise(self, envelope: Floats, floors: npt.NDArray[np.uint32], purpose: str, iteration: int) -> RingArray:
        normal = self.tape.normal(len(floors), self.params.dim, purpose, iteration)
        share = noise_share(self.params.noise_scale, envelope, floors, normal)
        return self.fixed.encode(share, self.label(purpose, iteration, floors))

    def encode_gradients(self, iteration: int, factors: Matrix) -> RingArray:
        return self.fixed.encode(self.step(iteration, factors), self.label("gradient", iteration))


class MaskedRecommender(JoiningRecommender):
    def __init__(self, setting: Setting, tape: Tape) -> None:
        super().__init__(setting, tape)
        self.fixed = FixedPoint(setting.ring, self.params.fraction_bits)
        self.dealer = MaskDealer(setting.ring, self.params.dim, setting.run_id, tape)
        self.item_keys = [tape.key("item", item) for item in range(self.params.n_items)]
        self.opened: OpenSum | None = None
        self.dealt: Mapping[int, Ids] = {}  # the users invited to this iteration, and their items
        self.agreed: Mapping[int, Ids] | None = None  # the contributors of this iteration and their items
        self.masks: RingArray | None = None  # the sums of their masks, once computed
        self.released: Ids = np.zeros(0, np.uint32)
        self.gone: set[int] = set()
        self.welcomed: Collection[int] = ()

    def facts(self) -> Facts:
        if self.iteration >= self.params.iterations:
            return {**super().facts(), "finished": spans(self.still_there())}
        return super().facts() or {"joined": spans(self.supports), "welcomed": spans(self.welcomed)}

    def tick(self, event: Event) -> Effects:
        if isinstance(event, Gone):
            self.gone.add(event.user)
        return super().tick(event)

    def awaited(self) -> Sequence[str]:
        return super().awaited() or (THIRD_PARTY,)

    def receive(self, sender: str, message: Message) -> Effects:
        if isinstance(message, Join):
            return self.join(sender, message)
        expect(message, Contributors, MaskedTotal)
        require(sender == THIRD_PARTY, Reason.UNKNOWN_SENDER)
        require(message.iteration == self.iteration, Reason.WRONG_ITERATION)
        if isinstance(message, Contributors):
            return self._agree(message)
        return self._finish_iteration(message)

    def welcome(self) -> list[Send]:
        self.welcomed = tuple(self.still_there())
        floors = self._floors()
        if self.params.wire == "compact":
            return [
                Send(
                    user_name(user),
                    Welcome(floors[items], self.dealer.key(user), tuple(self.item_keys[item] for item in items)),
                )
                for user, items in self.still_there().items()
            ]
        envelopes = self._envelopes("eta", 0)
        return [
            Send(user_name(user), WelcomeInFull(floors[items], envelopes[items]))
            for user, items in self.still_there().items()
        ]

    def open_iteration(self) -> list[Send]:
        floors = self._floors()
        rated = np.flatnonzero(self.n_raters).astype(np.uint32)
        self.dealt = self.still_there()
        users = np.array(list(self.dealt), np.uint32)
        self.opened = OpenSum(self.iteration, users, rated, floors[rated])
        self.agreed = None
        factors = self.outgoing_factors()
        opening = [Send(THIRD_PARTY, self.opened)]
        if self.params.wire == "compact":
            return opening + [
                Send(user_name(user), ItemFactors(self.iteration, floors[items], factors[items]))
                for user, items in self.dealt.items()
            ]
        envelopes = self._envelopes("rho", self.iteration)
        return opening + [
            Send(
                user_name(user),
                ItemFactorsInFull(
                    self.iteration,
                    floors[items],
                    factors[items],
                    self.dealer.masks(user, self.iteration, items),
                    envelopes[items],
                ),
            )
            for user, items in self.dealt.items()
        ]

    def everyone(self) -> list[str]:
        return [*map(user_name, self.still_there()), THIRD_PARTY]

    def still_there(self) -> dict[int, Ids]:
        return {user: items for user, items in self.supports.items() if user not in self.gone}

    def _floors(self) -> npt.NDArray[np.uint32]:
        return floor_of(self.n_raters, self.params.dropout_allowance, self.params.min_contributors)

    def _envelopes(self, purpose: str, iteration: int) -> Floats:
        return exponential(self.item_keys, self.params.dim, purpose, iteration)

    def _agree(self, announced: Contributors) -> Effects:
        """Agree if every contributor was dealt masks for exactly the items that were summed; if not, abort the run."""
        require(self.opened is not None and self.agreed is None, Reason.WRONG_KIND)
        assert self.opened is not None
        require(len(announced.counts) == len(self.opened.items), Reason.WRONG_LENGTH)
        users = [int(user) for user in announced.users]
        if not all(user in self.dealt for user in users):
            raise Aborted(Reason.DISAGREEMENT, f"iteration {self.iteration}: a contributor was dealt no masks")
        supports = {user: self.dealt[user] for user in users}
        held = np.concatenate([np.zeros(0, np.uint32), *supports.values()])
        counts = np.bincount(held, minlength=self.params.n_items)[self.opened.items]
        digest = contributor_digest(self.iteration, supports.items())
        if digest != announced.digest or not np.array_equal(counts, announced.counts):
            raise Aborted(Reason.DISAGREEMENT, f"iteration {self.iteration}: other counts or another digest")
        self.agreed = supports
        self.released = self.opened.items[counts >= self.opened.floors]
        return [Send(THIRD_PARTY, Agreed(self.iteration, digest))]

    def work_ahead(self) -> None:
        """Sum the masks of the contributors while the third party makes the total."""
        if self.opened is not None and self.agreed is not None and self.masks is None:
            self.masks = self.dealer.sum(self.iteration, self.agreed, self.opened.items)

    def complete(self, words: RingArray, items: Ids) -> RingArray:
        """Add the recommender's own values to an unmasked sum; here it has none."""
        return words

    def _finish_iteration(self, total: MaskedTotal) -> Effects:
        require(self.opened is not None and self.agreed is not None, Reason.WRONG_KIND)
        assert self.opened is not None and self.agreed is not None
        require(np.array_equal(total.items, self.released), Reason.UNKNOWN_ITEM)
        require(len(total.values) == len(total.items), Reason.WRONG_LENGTH)
        require(self.setting.ring.fits(total.values, (len(total.items), self.params.dim)), Reason.OUT_OF_RANGE)
        self.work_ahead()
        assert self.masks is not None
        words = self.dealer.unmask(total, self.masks, self.opened.items)
        self.masks = None
        self.last_invited, self.last_contributors = tuple(self.dealt), tuple(self.agreed)
        self.move(total.items, self.fixed.decode(self.complete(words, total.items)))
        return self.next_iteration()


class ThirdParty(Role):
    """The semi-honest third party: it follows these steps and remembers everything that it saw."""

    def __init__(self, setting: Setting) -> None:
        params = setting.params
        self.params = params
        self.holder = SumHolder(setting.ring, params.dim, params.n_users, params.n_items, params.iterations)
        self.iteration = 0

    def receive(self, sender: str, message: Message) -> Effects:
        if isinstance(message, MaskedGradient):
            self.holder.add(user_index(sender), message.iteration, message.items, message.values)
            return self._close() if self.holder.complete else []
        expect(message, OpenSum, Agreed, Finish)
        require(sender == RECOMMENDER, Reason.UNKNOWN_SENDER)
        if isinstance(message, OpenSum):
            self.holder.open(message)
            return self._close() if self.holder.complete else [Timer(message.iteration)]
        if isinstance(message, Agreed):
            total = self.holder.release(message.iteration, message.digest)
            self.iteration = self.holder.iteration
            return [Send(RECOMMENDER, total)]
        require(self.holder.opening is None, Reason.WRONG_KIND)
        require(message.iteration == self.params.iterations == self.iteration, Reason.WRONG_ITERATION)
        return [Done()]

    def awaited(self) -> Sequence[str]:
        return list(map(user_name, self.holder.missing())) or (RECOMMENDER,)

    def tick(self, event: Event) -> Effects:
        waiting = self.holder.opening is not None and self.holder.closing is None
        if isinstance(event, Gone):
            self.holder.lose(event.user)
            return self._close() if waiting and self.holder.complete else []
        due = isinstance(event, Deadline) and event.iteration == self.iteration
        return self._close() if waiting and due else []

    def _close(self) -> Effects:
        return [Send(RECOMMENDER, self.holder.close())]
