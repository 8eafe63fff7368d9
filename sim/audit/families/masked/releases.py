"""Read the released sums, their times and contributors: the recommender's role runs again from its own view."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from protocol.arithmetic.tape import derive, exponential
from protocol.arrays import Counts, Floats, Ids, Matrix
from protocol.errors import BadInput
from protocol.party.role import RECOMMENDER, Effects, Send, user_index
from protocol.schemes.factorization.dynamic_recommender import DynamicRecommender
from protocol.schemes.factorization.masked_roles import MaskedRecommender
from protocol.wire.messages import (
    ItemFactors,
    ItemFactorsInFull,
    ItemFactorsWithPieces,
    MaskedTotal,
    OpenSum,
    SealedTotal,
)
from sim.audit.families.masked.dealt_envelopes import DealtEnvelopes
from sim.audit.role_rerun import rerun
from sim.views.evidence import Case
from sim.views.exhibits import Exhibits

_OFFERS = (ItemFactors, ItemFactorsInFull, ItemFactorsWithPieces)  # per iteration; a publication has no floors


@dataclass(frozen=True, slots=True, eq=False)
class Release:
    """The sums that one iteration released, as the recommender holds them: one entry or row for each item."""

    iteration: int
    items: Ids
    users: tuple[int, ...]  # contributors to these items or to others
    contributors: Counts  # k'
    floors: Counts  # fewest contributors, as the third party was told
    strength: Floats  # Σ 1/floor over the contributors, as each was told: the noise variance is 2b²H times this
    sums: Matrix  # Σ∇ + η + ρ(t)
    dealt: Matrix | None = None  # envelopes of ρ, if users were told others than the recommender's tape deals

    def has(self, item: int) -> bool:
        at = int(np.searchsorted(self.items, item))
        return at < len(self.items) and int(self.items[at]) == item

    def floor_of(self, item: int) -> float:
        return float(self.floors[np.searchsorted(self.items, item)])

    def strength_of(self, item: int) -> float:
        return float(self.strength[np.searchsorted(self.items, item)])


class RecommenderReading:
    """The recommender's role as it goes through its view."""

    def __init__(self, case: Case) -> None:
        card = case.card
        self._turns = rerun(Exhibits(case, (RECOMMENDER,)), RECOMMENDER)
        role = next(self._turns).role  # it has nothing to say before users join
        if not isinstance(role, MaskedRecommender):
            raise BadInput(f"{card.scheme.name} cannot be accounted: its recommender opens sums in another way.")
        self.role = role
        self._dealt = DealtEnvelopes(role)
        self._told: dict[int, Floats] = {}  # user -> 1/floor, as told for this iteration
        self.attempts = np.zeros(card.params.n_items, np.int64)  # attempt that sealed each item's objective noise

    def releases(self) -> Iterator[Release]:
        """Yield the releases in order; an aborted run has those before the abort."""
        before = self._state()
        for turn in self._turns:
            if isinstance(turn.given, MaskedTotal):
                yield self._release(*before, turn.given.items)
            elif isinstance(turn.given, SealedTotal):
                self.attempts[turn.given.items] = turn.given.attempt
            self._note(turn.effects)
            before = self._state()

    def _state(self) -> tuple[OpenSum | None, Mapping[int, Ids] | None, Matrix]:
        return self.role.current.opened, self.role.current.agreed, self.role.item_factors

    def eta_envelopes(self, items: Ids) -> npt.NDArray[np.float32]:
        """Return H_j of the constant objective noise."""
        role = self.role
        keys = [role.item_keys[item] for item in items]
        if isinstance(role, DynamicRecommender):
            pairs = zip(keys, self.attempts[items].tolist(), strict=True)
            return exponential([derive(key, "eta", attempt) for key, attempt in pairs], role.params.dim, "eta")
        return exponential(keys, role.params.dim, "eta", 0)

    def _note(self, effects: Effects) -> None:
        """Record the floors and the envelopes that the recommender tells users."""
        for effect in effects:
            if isinstance(effect, Send):
                self._dealt.note(user_index(effect.to), effect.message)
                if isinstance(effect.message, _OFFERS):
                    self._told[user_index(effect.to)] = 1 / effect.message.floors.astype(np.float64)

    def _release(
        self, opened: OpenSum | None, agreed: Mapping[int, Ids] | None, before: Matrix, items: Ids
    ) -> Release:
        role = self.role
        assert opened is not None and agreed is not None
        told = {user: self._told[user] for user in agreed}
        contributors, strength = add_by_item(agreed, told, role.params.n_items)
        dealt = self._dealt.of_sums(opened.iteration, agreed, told)
        return Release(
            opened.iteration,
            items,
            tuple(agreed),
            contributors[items],
            opened.floors[np.searchsorted(opened.items, items)].astype(np.int64),
            strength[items],
            sums_between(role, items, before),
            None if dealt is None else dealt[items],
        )


def add_by_item(supports: Mapping[int, Ids], told: Mapping[int, Floats], n_items: int) -> tuple[Counts, Floats]:
    """Return, per item, (the number of its raters, the sum of what each was told)."""
    held = np.concatenate([np.zeros(0, np.uint32), *supports.values()])
    weights = np.concatenate([np.zeros(0), *(told[user] for user in supports)])
    counts: Counts = np.bincount(held, minlength=n_items).astype(np.int64)
    sums: Floats = np.bincount(held, weights, minlength=n_items).astype(np.float64)
    return counts, sums


def sums_between(role: MaskedRecommender, items: Ids, before: Matrix) -> Matrix:
    """Compute the noisy sums that moved v_j(t) to v_j(t+1): (k_j/γ) (v_j(t) (1 − 2γμ) − v_j(t+1))."""
    params = role.params
    kept = 1 - 2 * params.learning_rate * params.item_regularisation
    moved: Matrix = (before[items] * kept - role.item_factors[items]) / params.learning_rate
    return moved * role.n_raters[items][:, None]
