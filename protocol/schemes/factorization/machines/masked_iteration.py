"""One iteration of a masked sum at the recommender: it opens it, agrees to its contributors, and unmasks its total."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from protocol.arithmetic.ring import Ring
from protocol.arrays import Ids, RingArray
from protocol.errors import Aborted, Reason
from protocol.party.role import Machine, require
from protocol.schemes.factorization.machines.struck import Struck, sender_of_other_items
from protocol.schemes.factorization.masked_sum import MaskDealer, contributor_digest
from protocol.wire.messages import Agreed, Contributors, MaskedTotal, OpenSum


class MaskedIteration(Machine):
    """The recommender's side of one iteration: the sum that it opened, the agreed contributors, the masks to subtract.

    `open`, then `agree` to the contributors that the third party announced, then `unmask` its total, then `close`.
    """

    derived = frozenset({"_masks"})

    def __init__(self, ring: Ring, dim: int, n_items: int) -> None:
        self._ring = ring
        self._dim = dim
        self._n_items = n_items
        self.opened: OpenSum | None = None  # while the iteration runs
        self.dealt: Mapping[int, Ids] = {}  # the invited users, and their items
        self.agreed: Mapping[int, Ids] | None = None  # the contributors, and their items
        self.released: Ids = np.zeros(0, np.uint32)
        self.spoiled: Ids = np.zeros(0, np.uint32)  # items that a struck user has sent: their sums are of no use
        self._masks: RingArray | None = None  # the sums of their masks, once computed

    def open(self, iteration: int, dealt: Mapping[int, Ids], items: Ids, floors: Ids) -> OpenSum:
        self.dealt, self.agreed = dealt, None
        self.opened = OpenSum(iteration, np.array(list(dealt), np.uint32), items, floors)
        return self.opened

    def agree(self, announced: Contributors, struck: Struck) -> Agreed:
        """Agree if every contributor was dealt masks for exactly the items that were summed.

        A single user that sent other items is noted in `struck`. If none explains what was announced, the run ends.
        """
        opened = self.opened
        require(opened is not None and self.agreed is None, Reason.WRONG_KIND)
        assert opened is not None
        require(len(announced.counts) == len(opened.items), Reason.WRONG_LENGTH)
        users = [int(user) for user in announced.users]
        if not all(user in self.dealt for user in users):
            raise Aborted(Reason.DISAGREEMENT, f"iteration {opened.iteration}: a contributor was dealt no masks")
        supports = {user: self.dealt[user] for user in users}
        held = np.concatenate([np.zeros(0, np.uint32), *supports.values()])
        counts = np.bincount(held, minlength=self._n_items)[opened.items]
        digest = contributor_digest(opened.iteration, supports.items())
        self.spoiled = np.zeros(0, np.uint32)
        if digest != announced.digest or not np.array_equal(counts, announced.counts):
            found = sender_of_other_items(announced, opened.items, counts, supports)
            if found is None:
                raise Aborted(Reason.DISAGREEMENT, f"iteration {opened.iteration}: other counts or another digest")
            user, sent = found
            struck.add(user, f"it sent other items than it joined with, in iteration {opened.iteration}")
            self.spoiled = np.union1d(supports[user], sent)  # nobody knows which masks it has added
            supports[user] = sent
        self.agreed, self.released = supports, opened.items[announced.counts >= opened.floors]
        return Agreed(opened.iteration, announced.digest)

    def sum_masks(self, dealer: MaskDealer) -> None:
        """Sum the masks of the agreed contributors, once; before there are any, do nothing."""
        if self.opened is not None and self.agreed is not None and self._masks is None:
            self._masks = dealer.sum(self.opened.iteration, self.agreed, self.opened.items)

    def unmask(self, total: MaskedTotal, dealer: MaskDealer) -> RingArray:
        """Compute the sums of the released items: `total` without the masks that `dealer` dealt."""
        require(self.opened is not None and self.agreed is not None, Reason.WRONG_KIND)
        require(np.array_equal(total.items, self.released), Reason.UNKNOWN_ITEM)
        require(len(total.values) == len(total.items), Reason.WRONG_LENGTH)
        require(self._ring.fits(total.values, (len(total.items), self._dim)), Reason.OUT_OF_RANGE)
        self.sum_masks(dealer)
        assert self.opened is not None and self._masks is not None
        return dealer.unmask(total, self._masks, self.opened.items)

    def close(self) -> None:
        """End the iteration; whom it invited and who contributed stays known until the next one opens."""
        self.opened = self._masks = None
