"""The roles of `masked`: the user, the recommender and the semi-honest third party.

Their steps, one message each, are at the top of `masked.py`; what each side does with masks is in `masked_sum.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from protocol.arithmetic.fixedpoint import FixedPoint
from protocol.arithmetic.noise import floor_of, noise_share
from protocol.arithmetic.ring import everywhere
from protocol.arithmetic.tape import Tape, exponential
from protocol.arrays import Counts, Floats32, Ids, Matrix, RingArray
from protocol.attendance import spans
from protocol.errors import Reason
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
    user_index,
    user_name,
)
from protocol.schemes.base import Setting
from protocol.schemes.factorization.factorization import MaskedParams
from protocol.schemes.factorization.honest_reach import plausible_envelopes
from protocol.schemes.factorization.machines.masked_iteration import MaskedIteration
from protocol.schemes.factorization.machines.struck import Struck, crowding, poisoner
from protocol.schemes.factorization.masked_sum import MaskDealer, SumHolder, mask_rows
from protocol.schemes.factorization.static_users import JoiningRecommender, JoiningUser
from protocol.wire.messages import (
    Agreed,
    Barred,
    Contributors,
    Deadline,
    Event,
    Finish,
    Gone,
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

FLOODED = "it sent more frames that were refused than any fault explains"


class MaskedUser(JoiningUser):
    restorable = True

    def __init__(self, setting: Setting, tape: Tape, inputs: UserInput) -> None:
        super().__init__(setting, tape, inputs)
        self.params: MaskedParams = MaskedParams.of(setting.params)
        self.fixed = FixedPoint(setting.ring, self.params.fraction_bits)
        self.mask_key = b""
        self.item_keys: list[bytes] = []
        self.floors = np.zeros(0, np.uint32)  # as they were told first
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
        require(len(offer.floors) == len(self.floors), Reason.WRONG_LENGTH)
        require(everywhere(offer.floors == self.floors), Reason.OUT_OF_RANGE)
        factors = self.check_factors(offer.iteration, offer.factors, offer.floors)
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
        self.floors = message.floors
        self.objective_share = self._noise(envelope, message.floors, "eta", 0)
        return []

    def _dealt(self, offer: ItemFactors | ItemFactorsInFull) -> tuple[RingArray, Floats32]:
        """Return (masks, envelope) of an iteration, derived from keys or as they were sent."""
        ring, dim, items = self.setting.ring, self.params.dim, self.inputs.items
        if isinstance(offer, ItemFactors):
            masks = mask_rows(ring, self.mask_key, self.setting.run_id, offer.iteration, len(items), dim)
            return masks, self._derive_envelope("rho", offer.iteration)
        require(len(offer.masks) == len(items), Reason.WRONG_LENGTH)
        require(ring.fits(offer.masks, (len(items), dim)), Reason.OUT_OF_RANGE)
        return offer.masks, self._check_envelope(offer.envelopes)

    def _derive_envelope(self, purpose: str, iteration: int) -> Floats32:
        return self.setting.envelopes.exponential(self.item_keys, self.params.dim, purpose, iteration)

    def _check_envelope(self, envelope: Floats32, expected: int | None = None) -> Floats32:
        require(len(envelope) == (len(self.inputs.items) if expected is None else expected), Reason.WRONG_LENGTH)
        rows = self.params.n_items * (self.params.iterations + 1)
        require(plausible_envelopes(envelope, rows), Reason.OUT_OF_RANGE)
        return envelope

    def _check_floors(self, floors: npt.NDArray[np.uint32]) -> None:
        require(len(floors) == len(self.inputs.items), Reason.WRONG_LENGTH)
        most = max(self.params.max_raters, self.params.min_contributors)
        require(everywhere((floors >= 1) & (floors <= most)), Reason.OUT_OF_RANGE)

    def _noise(self, envelope: Floats32, floors: npt.NDArray[np.uint32], purpose: str, iteration: int) -> RingArray:
        normal = self.tape.normal(len(floors), self.params.dim, purpose, iteration)
        share = noise_share(self.params.noise_scale, envelope, floors, normal)
        return self.fixed.encode(share, self.label(purpose, iteration, floors))

    def encode_gradients(self, iteration: int, factors: Matrix) -> RingArray:
        return self.fixed.encode(self.step(iteration, factors), self.label("gradient", iteration))


class MaskedRecommender(JoiningRecommender):
    restorable = True

    def __init__(self, setting: Setting, tape: Tape) -> None:
        super().__init__(setting, tape)
        self.params: MaskedParams = MaskedParams.of(setting.params)
        params = self.params
        self.fixed = FixedPoint(setting.ring, params.fraction_bits)
        self.dealer = MaskDealer(setting.ring, params.dim, setting.run_id, tape)
        self.item_keys = [tape.key("item", item) for item in range(params.n_items)]
        self.current = MaskedIteration(setting.ring, params.dim, params.n_items)
        self.gone: set[int] = set()
        self.welcomed: Collection[int] = ()
        self.struck = Struck()

    def facts(self) -> Facts:
        if self.iteration >= self.params.iterations:
            return {**super().facts(), "finished": spans(self.still_there())}
        return super().facts() or {"joined": spans(self.supports), "welcomed": spans(self.welcomed)}

    def tick(self, event: Event) -> Effects:
        if isinstance(event, Gone):
            self.gone.add(event.user)
        elif isinstance(event, Barred):
            self.struck.add(event.user, FLOODED)
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
            return [Send(THIRD_PARTY, self.current.agree(message, self.struck))]
        return self._finish_iteration(message)

    def figures(self) -> Facts:
        return self.struck.figures()

    def count_raters(self) -> None:
        """Count the raters; a user that makes an item have more of them than the ring was chosen for is left out."""
        while True:
            taking_part = {user: items for user, items in self.supports.items() if user not in self.struck}
            user = crowding(taking_part, self.params.n_items, self.params.max_raters)
            if user is None:
                break
            self.struck.add(user, "with its items, an item had more raters than the parameters allow")
        self.supports = dict(sorted(self.supports.items()))
        held = np.concatenate(list(taking_part.values()))
        self.n_raters = np.bincount(held, minlength=self.params.n_items).astype(np.int64)

    def welcome(self) -> list[Send]:
        users = self.taking_part()
        self.welcomed = tuple(users)
        floors = self.floors(self.n_raters)
        if self.params.wire == "compact":
            return [
                Send(user_name(user), Welcome(floors[items], self.dealer.key(user), self.keys_of(items)))
                for user, items in users.items()
            ]
        envelopes = self._envelopes("eta", 0)
        return [Send(user_name(user), WelcomeInFull(floors[own], envelopes[own])) for user, own in users.items()]

    def keys_of(self, items: Ids) -> tuple[bytes, ...]:
        return tuple(self.item_keys[item] for item in items)

    def open_iteration(self) -> list[Send]:
        return self.open_sum(self.taking_part(), self.n_raters)

    def open_sum(self, dealt: Mapping[int, Ids], raters: Counts) -> list[Send]:
        """Open the sum of this iteration, and send the users in `dealt` what they need; an item has `raters` users."""
        items, floors, factors = np.flatnonzero(raters).astype(np.uint32), self.floors(raters), self.outgoing_factors()
        opening = Send(THIRD_PARTY, self.current.open(self.iteration, dealt, items, floors[items]))
        offers: dict[int, Message] = {}
        if self.params.wire == "compact":
            offers |= {user: ItemFactors(self.iteration, floors[own], factors[own]) for user, own in dealt.items()}
        else:
            envelopes = self._envelopes("rho", self.iteration)
            for user, own in dealt.items():
                offers[user] = self.in_full(user, floors[own], factors[own], envelopes[own])
        return [opening, *(Send(user_name(user), offer) for user, offer in offers.items())]

    def in_full(self, user: int, floors: Ids, factors: Floats32, envelopes: Floats32) -> Message:
        """Write to `user` in the paper's wire form, with its masks and envelopes."""
        masks = self.dealer.masks(user, self.iteration, self.dealt[user])
        return ItemFactorsInFull(self.iteration, floors, factors, masks, envelopes)

    @property
    def dealt(self) -> Mapping[int, Ids]:
        return self.current.dealt

    def everyone(self) -> list[str]:
        return [*map(user_name, self.still_there()), THIRD_PARTY]

    def still_there(self) -> dict[int, Ids]:
        return {user: items for user, items in self.supports.items() if user not in self.gone}

    def taking_part(self) -> dict[int, Ids]:
        """List the users that are still there and have not lost their place, with their items."""
        return {user: items for user, items in self.still_there().items() if user not in self.struck}

    def floors(self, raters: Counts) -> npt.NDArray[np.uint32]:
        return floor_of(raters, self.params.dropout_allowance, self.params.min_contributors)

    def _envelopes(self, purpose: str, iteration: int) -> Floats32:
        return exponential(self.item_keys, self.params.dim, purpose, iteration)

    def work_ahead(self) -> None:
        """Sum the masks of the contributors while the third party makes the total."""
        self.current.sum_masks(self.dealer)

    def complete(self, words: RingArray, items: Ids) -> RingArray:
        """Add the recommender's own values to an unmasked sum; here it has none."""
        return words

    def _finish_iteration(self, total: MaskedTotal) -> Effects:
        words = self.complete(self.current.unmask(total, self.dealer), total.items)
        assert self.current.agreed is not None
        self.last_invited, self.last_contributors = tuple(self.dealt), tuple(self.current.agreed)
        self.current.close()
        sound = ~np.isin(total.items, self.current.spoiled)
        self.move(total.items[sound], self.fixed.decode(words)[sound])
        return self.next_iteration()

    def poisoned(self, items: Ids) -> None:
        assert self.current.agreed is not None
        self.struck.sums += len(items)
        user = poisoner(items, self.current.released, self.current.agreed)
        if user is not None:
            beyond = "the sums with it were beyond what honest users can make, and no others"
            when = f"in iteration {self.iteration}"
            self.struck.add(user, f"{beyond}, {when} (or the third party left its message out)")


class ThirdParty(Role):
    """The semi-honest third party: it follows these steps and remembers everything that it saw."""

    restorable = True

    def __init__(self, setting: Setting) -> None:
        params = setting.params
        self.params = params
        self.ring = setting.ring
        self.holder = SumHolder(setting.ring, params.dim, params.n_users, params.n_items, params.iterations)
        self.iteration = 0
        self.barred: set[int] = set()

    def figures(self) -> Facts:
        if not self.barred:
            return {}
        names = list(map(user_name, sorted(self.barred)))
        return {"barred": names, "notes": [f"{name} lost its place at the third party: {FLOODED}." for name in names]}

    def note_flood(self, event: Gone | Barred) -> None:
        if isinstance(event, Barred):
            self.barred.add(event.user)

    def receive(self, sender: str, message: Message) -> Effects:
        if isinstance(message, MaskedGradient):
            self.holder.add(user_index(sender), message.iteration, message.items, message.values)
            return self._close() if self.holder.complete else []
        expect(message, OpenSum, Agreed, Finish)
        require(sender == RECOMMENDER, Reason.UNKNOWN_SENDER)
        if isinstance(message, OpenSum):
            require(everywhere(message.floors >= self.params.min_contributors), Reason.OUT_OF_RANGE)
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
        if isinstance(event, (Gone, Barred)):
            self.note_flood(event)
            self.holder.lose(event.user)
            return self._close() if waiting and self.holder.complete else []
        due = isinstance(event, Deadline) and event.iteration == self.iteration
        return self._close() if waiting and due else []

    def _close(self) -> Effects:
        return [Send(RECOMMENDER, self.holder.close())]
