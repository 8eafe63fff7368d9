"""A published flaw, rebuilt: a secure sum that is correct, and exposes whoever is alone at an index (arXiv 2508.04285).

To save bytes, secure sums of sparse updates send only the indices that a client touched. No server sees a client's
numbers; the sum of every index is opened, and where one client alone touched an index, the sum is that client's number.

`SparseSum` claims that this protects ratings and does not know of the flaw. `keyhole audit` does: `single-contributor`,
beyond what is declared. `SumOfThree` opens an index from three clients on, which is the repair.

From this folder: keyhole run --scheme example_sparse_sum:SparseSum --dim 1 --iterations 1 --out runs/sparse
"""

from __future__ import annotations

import numpy as np
from example_shares import Adder, Opener, Sharer, Shares

from protocol import RECOMMENDER, THIRD_PARTY, Weakness


class ThresholdAdder(Adder):
    floor = 1  # fewest clients at an index whose sum is opened

    def total(self):
        values = super().total()
        touched = np.concatenate([items for items, _ in self.parts.values()])
        clients = np.bincount(touched, minlength=self.setting.params.n_items)
        values[clients < self.floor] = 0
        return values


class ThresholdOpener(ThresholdAdder, Opener):
    pass


class SparseSum(Shares):
    name, title = "sparse-sum", "Sums of sparse vectors by additive shares"
    source = "after arXiv 2508.04285"
    claims = "No server alone learns a rating of anyone; the recommender learns sums over several users."
    known_weaknesses = (
        Weakness("support", "recommender", "third_party"),  # the indices travel in the clear
        Weakness("known-shares", "recommender+user"),
        Weakness("unmasking", "recommender+third_party"),
    )
    floor = 1

    def make_role(self, party, setting, tape, inputs):
        roles = {RECOMMENDER: ThresholdOpener, THIRD_PARTY: ThresholdAdder}
        if party not in roles:
            return Sharer(setting, tape, inputs)
        role = roles[party](setting)
        role.floor = self.floor
        return role


class SumOfThree(SparseSum):
    name, title, floor = "sum-of-three", "The same, of three clients or more", 3
