"""Stories of users and of the recommender: what their roles computed, run again from their own views."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from protocol.arithmetic.factors import Matrix
from protocol.arithmetic.noise import floor_of
from protocol.arithmetic.ring import Ids, RingArray
from protocol.party.role import Effects, Role, Send
from protocol.wire.messages import Event, Message
from sim.audit.role_rerun import listen, rerun
from sim.views.exhibits import Exhibits

Counts = npt.NDArray[np.uint32]


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


class _Listener:
    """A record of what the role encodes, and of the gradients of its step, between two inputs."""

    def __init__(self) -> None:
        self.role: Any = None
        self.encoded: list[RingArray] = []
        self.gradient: Matrix | None = None

    def attach(self, role: Role) -> None:
        self.role = role
        listen(role, "step", self._on_step)
        if hasattr(role, "fixed"):
            listen(role.fixed, "encode", lambda words, *given: self.encoded.append(words))

    def _on_step(self, gradient: Matrix, *arguments: Any) -> None:
        self.gradient = gradient

    def clear(self) -> None:
        self.encoded, self.gradient = [], None

    def words(self) -> RingArray:
        """Add up all encodings since `clear`, and the η share, which was encoded in the set-up."""
        kept = getattr(self.role, "objective_share", None)
        parts = self.encoded if kept is None else [*self.encoded, kept]
        words: RingArray = self.role.fixed.ring.add(*parts)
        return words


def user_story(exhibits: Exhibits, party: str, iterations: int) -> UserStory:
    """Collect what the user contributed to the iterations below `iterations`, and the noise it committed to."""
    heard, story = _Listener(), UserStory([], {})
    for turn in rerun(exhibits, party, heard.attach):
        if getattr(turn.given, "iteration", -1) >= iterations and not isinstance(turn.given, Event):
            break
        for effect in turn.effects:
            if isinstance(effect, Send):
                _note(story, heard, effect.message)
        heard.clear()
    return story


def _note(story: UserStory, heard: _Listener, message: Message) -> None:
    kind = type(message).__name__
    if kind == "BlindedShare":
        story.committed[message.attempt] = (message.items, heard.words())
    if heard.gradient is None or not hasattr(message, "values"):
        return
    items, words, noisy = heard.role.inputs.items, None, np.asarray(message.values, np.float64)
    if hasattr(heard.role, "fixed"):
        words = heard.words()
        noisy = heard.role.fixed.decode(words)
    story.contributions.append(Contribution(message.iteration, items, heard.gradient, noisy, words))


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
        self._listen_through(exhibits, iterations)

    def _listen_through(self, exhibits: Exhibits, iterations: int) -> None:
        for turn in rerun(exhibits, "recommender", self._attach):
            if type(turn.given).__name__ == "SealedTotal":
                self.sealed_in |= dict.fromkeys(map(int, turn.given.items), turn.given.attempt)
            self._open(turn.effects)
            if self.role.iteration >= iterations:
                break

    @property
    def supports(self) -> dict[int, Ids]:
        supports: dict[int, Ids] = self.role.supports
        return supports

    def floors(self, iteration: int) -> Counts:
        """Return the number of shares into which the noise of each item is split."""
        found, params = self.rounds[iteration], self.role.params
        named = np.concatenate([np.zeros(0, np.uint32), *found.dealt.values()])
        invited = np.bincount(named, minlength=params.n_items)
        raters = invited if self.sealed_in else self.role.n_raters
        return floor_of(raters, params.dropout_allowance, params.min_contributors)

    def _attach(self, role: Role) -> None:
        self.role = role
        listen(role, "complete", self._on_complete)
        listen(role, "move", self._on_move)

    def _open(self, effects: Effects) -> None:
        for effect in effects:  # with no user online, no item factors are sent
            if isinstance(effect, Send) and type(effect.message).__name__.startswith(("OpenSum", "ItemFactors")):
                role, t = self.role, effect.message.iteration
                opened = self.rounds[t] = RecomputedIteration(t, role.outgoing_factors().astype(np.float64))
                opened.dealt = dict(getattr(role, "dealt", role.supports))
                opened.pieces = dict(getattr(role, "pieces", {}))
                return

    def _on_complete(self, words: RingArray, *arguments: Any) -> None:
        self.rounds[self.role.iteration].words = words

    def _on_move(self, result: None, items: Ids, sums: Matrix) -> None:
        closed = self.rounds[self.role.iteration]
        closed.items, closed.sums = items, sums
        agreed = getattr(self.role, "agreed", None)  # may be empty, which differs from None
        closed.contributors = dict(self.role.supports if agreed is None else agreed)
