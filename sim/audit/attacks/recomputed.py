"""Stories of users and of the recommender: what their roles computed, run again from their own views."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from protocol.arithmetic.noise import floor_of
from protocol.arrays import Ids, Matrix, RingArray
from protocol.party.role import Effects, Send
from protocol.wire.messages import Message
from sim.audit.role_rerun import Passed, RoleTurn, rerun
from sim.views.exhibits import Exhibits

# --- a user ----------------------------------------------------------------------------------------------------------


class Contribution(NamedTuple):
    """The contribution of one user to one iteration, before any mask."""

    iteration: int
    items: Ids
    gradient: Matrix  # ∇
    noisy: Matrix  # ∇ + η share + ρ share, as it is summed
    words: RingArray | None  # enc(∇) + enc(η share) + enc(ρ share); None if no ring is used


class UserStory(NamedTuple):
    contributions: list[Contribution]
    committed: dict[int, tuple[Ids, RingArray]]  # attempt -> enc(η share) of the items that it committed to


def user_story(exhibits: Exhibits, party: str, iterations: int) -> UserStory:
    """Collect what the user contributed to the iterations below `iterations`, and the noise it committed to."""
    story = UserStory([], {})
    for turn in rerun(exhibits, party):
        if getattr(turn.given, "iteration", -1) >= iterations and turn.sender is not None:
            break
        for effect in turn.effects:
            if isinstance(effect, Send):
                _note(story, turn, effect.message)
    return story


def _note(story: UserStory, turn: RoleTurn, message: Message) -> None:
    role: Any = turn.role
    if type(message).__name__ == "BlindedShare":
        story.committed[message.attempt] = (message.items, _words(role, turn.passed))
    gradient = turn.passed.labelled("gradient")
    if gradient is None or not hasattr(message, "values"):
        return
    items, words, noisy = role.inputs.items, None, np.asarray(message.values, np.float64)
    if hasattr(role, "fixed"):
        words = _words(role, turn.passed)
        noisy = role.fixed.decode(words)
    story.contributions.append(Contribution(message.iteration, items, gradient, noisy, words))


def _words(role: Any, passed: Passed) -> RingArray:
    """Add up all encodings of the turn, and the η share, which was encoded in the set-up."""
    kept = getattr(role, "objective_share", None)
    words: RingArray = role.fixed.ring.add(*passed.encoded, *([] if kept is None else [kept]))
    return words


# --- the recommender -------------------------------------------------------------------------------------------------


class RecomputedIteration:
    """One iteration, as the recommender knows it."""

    def __init__(self, iteration: int, factors: Matrix) -> None:
        self.iteration = iteration
        self.factors = factors  # v_j(t) of all items, as sent to users
        self.dealt: dict[int, Ids] = {}  # invited user -> its items
        self.pieces: dict[int, RingArray] = {}  # user -> its pieces of the sealed noise, if sent
        self.contributors: dict[int, Ids] = {}
        self.items: Ids = np.zeros(0, np.uint32)  # released
        self.sums: Matrix = np.zeros(factors.shape)[:0]
        self.words: RingArray | None = None  # sums of the released items, unmasked, with all their noise


class RecommenderStory:
    """The rounds of the recommender, from its role; it knows everything that it computed."""

    def __init__(self, exhibits: Exhibits, iterations: int) -> None:
        """Run the role again through the first `iterations` iterations."""
        self.rounds: dict[int, RecomputedIteration] = {}
        self.sealed_in: dict[int, int] = {}  # item -> the attempt that fixed its objective noise
        self.role: Any = None
        self._read(exhibits, iterations)

    def _read(self, exhibits: Exhibits, iterations: int) -> None:
        for turn in rerun(exhibits, "recommender"):
            self.role = turn.role
            if type(turn.given).__name__ == "SealedTotal":
                self.sealed_in |= dict.fromkeys(map(int, turn.given.items), turn.given.attempt)
            self._close(turn)
            self._open(turn.effects)
            if self.role.iteration >= iterations:
                break

    @property
    def supports(self) -> dict[int, Ids]:
        supports: dict[int, Ids] = self.role.supports
        return supports

    def floors(self, iteration: int) -> Ids:
        """Return the number of shares into which the noise of each item is split."""
        found, params = self.rounds[iteration], self.role.params
        named = np.concatenate([np.zeros(0, np.uint32), *found.dealt.values()])
        invited = np.bincount(named, minlength=params.n_items)
        raters = invited if self.sealed_in else self.role.n_raters
        return floor_of(raters, params.dropout_allowance, params.min_contributors)

    def _open(self, effects: Effects) -> None:
        for effect in effects:  # with no user online, no item factors are sent
            if isinstance(effect, Send) and type(effect.message).__name__.startswith(("OpenSum", "ItemFactors")):
                role, t = self.role, effect.message.iteration
                opened = self.rounds[t] = RecomputedIteration(t, role.outgoing_factors().astype(np.float64))
                opened.dealt = dict(role.dealt)
                opened.pieces = dict(getattr(role, "pieces", {}))
                return

    def _close(self, turn: RoleTurn) -> None:
        """Note the sums that the role opened in this turn, and moved item factors by."""
        role, words, sums = self.role, turn.passed.opened, turn.passed.summed
        closed = next(reversed(self.rounds.values()), None)
        if closed is None or (words is None and sums is None):
            return
        closed.words, closed.items = words, role.last_moved
        closed.sums = sums if sums is not None else role.fixed.decode(words)
        closed.contributors = {user: role.supports[user] for user in role.last_contributors}
