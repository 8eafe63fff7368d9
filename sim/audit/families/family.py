"""Everything that an audit must know of a family of schemes; where nothing is known, there is nothing to ask.

A family is a folder beside this file, with a class that overrides what it knows, and a row of `registry.FAMILIES`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from protocol.arithmetic.ring import Label
from protocol.arrays import Floats, Ids, Matrix, RingArray
from protocol.params import Params
from protocol.party.role import RECOMMENDER, THIRD_PARTY, UserInput
from protocol.schemes.base import Scheme
from sim.audit.accounting.account_findings import no_claim
from sim.audit.accounting.curve_points import EpsilonCurve
from sim.audit.accounting.epsilon_cells import EpsilonEntry, uploads_cell
from sim.audit.attacks.channels import RandomizedChannel
from sim.audit.attacks.coalition_views import Scene
from sim.audit.attacks.difference_guesses import RealUpload
from sim.audit.attacks.re_identification import attack_identity
from sim.audit.attacks.support import attack_support
from sim.audit.canary.bound_rows import Asked, BoundRow
from sim.audit.canary.canary import CannotBeMeasured
from sim.audit.findings import Audited, Finding
from sim.audit.pairs.exposure import Exposure
from sim.audit.pairs.noise_laws import LawOf
from sim.audit.uniformity.indistinguishable import Glimpse
from sim.views.evidence import Case

Attack = Callable[[Scene], list[Finding]]


class AccountedBound(NamedTuple):
    """The ε of one release, or of the run if the claim covers it."""

    epsilon: float
    sentence: str
    claimed: float | None = None  # if it is not the run's ε


class ReleaseBound(NamedTuple):
    """How far one changed rating may move what a user releases at once, as the noise assumes."""

    what: str  # the label of the numbers
    most: float
    order: int  # of the norm: 1 or 2
    words: str
    unit: float = 0.0  # of the numbers, if they are rounded
    reacts: str = ""  # the id of the finding if a later release moves further; "": the bound is for the first alone
    each: tuple[float, ...] = ()  # `most` of every release, where the bound is for all of them

    def at(self, release: int) -> float:
        return self.each[release] if release < len(self.each) else self.most


class SomePlaces(NamedTuple):
    """Some places of every vector that users send, because a scheme treats all places of a vector alike."""

    places: npt.NDArray[np.int64]
    words: str


class Family:
    """The family of an unknown scheme."""

    noise_follows = False  # what users add to a rating is drawn for that rating, so it may follow it
    shares_vanish = False  # most shares of noise are 0

    masks = False  # users send masked gradients, which the recommender opens in total alone
    commits = False  # the objective noise was committed to before the first iteration
    hides_items = False  # the claim is of presence: which items a user rated is hidden unless it is declared
    uploads_openly = False  # the recommender receives each user's gradients
    rating_axis = "rating (scale of the data)"  # of ratings as users compute with them

    def __init__(self, scheme: Scheme) -> None:
        self.scheme = scheme

    # --- accounting

    def account(self, case: Case, head: dict[str, Any]) -> Audited:
        """Compare the claimed ε with what composition and known randomness leave of it; `head` begins the document."""
        if math.isinf(case.card.params.epsilon):
            return no_claim(head, self.scheme.name)
        return self.account_claim(case, head)

    def account_claim(self, case: Case, head: dict[str, Any]) -> Audited:
        """Account for a finite ε."""
        return no_claim(head, self.scheme.name)

    def accounted(self, accounting: Mapping[str, Any], members: Sequence[str]) -> EpsilonEntry:
        """Put the ε of the `accounting` into a cell for `members`; without members: for a reader of the releases."""
        return uploads_cell(accounting, members, "all that it receives")

    def curve(self, case: Case, summed: Mapping[str, Any], accounting: Mapping[str, Any]) -> EpsilonCurve | str:
        """Draw ε over the iterations by what summary (`summed`) and audit accounted, or say why there is no curve."""
        return str(summed["method"])

    def composed(self, params: Params, releases: int) -> dict[str, Any]:
        """Compose the ε of `releases`, to a party without the envelopes."""
        return {}

    def sensitivity(self, case: Case, sample: int | None, draw: np.random.Generator) -> Audited:
        """Measure how far `sample` neighbouring data sets move what is released; None: as many as take seconds."""
        return {}, []

    def rating_step(self, params: Params) -> float:
        """Return the distance between two grades in which ratings are handed over."""
        return 1.0

    # --- pairs

    def exposure(self, case: Case) -> Exposure | None:
        """Make what is known of the noise between a user's numbers and each coalition; None: nothing."""
        return None

    def release_bound(self, params: Params) -> ReleaseBound | None:
        """Return the sensitivity that the noise of users is made for; None if users add none."""
        return None

    def exchange_bound(self, params: Params) -> ReleaseBound | None:
        """Return how far the exchange of a user's whole input may move it, if the noise is made for a user."""
        return None

    def told_shares(self, params: Params, messages: Iterable[Any]) -> LawOf:
        """Read what a user was told, and return the law of each noise that it draws then; None of a law: nothing."""
        return lambda shift: None

    # --- algebra

    def is_randomized(self, params: Params) -> bool:
        """Tell whether values carry noise before they are received or opened."""
        return not math.isinf(params.epsilon)

    def zero_chance(self, params: Params, label: Label) -> Floats:
        """Bound the chance that a number of a share of noise is 0, for each row of `label`; 1: nothing is known."""
        return np.ones(len(label.items))

    def numbers_at_first(self, case: Case) -> int:
        """Count those of them that all users send in the first round together, if that alone is long."""
        return 0

    def numbers_of(self, case: Case) -> int:
        """Count the numbers that users send in whole vectors; 0 if they send only a few per rating."""
        return 0

    def sample(self, case: Case) -> SomePlaces | None:
        """Choose places that answer for all, in vectors that are too long to be followed whole; None: follow all."""
        return None

    # --- attacks

    def attacks(self, scene: Scene, apart: frozenset[str]) -> Iterator[Attack]:
        """Yield the attacks that apply to the coalition; `apart` are its members that are not asked alone.

        Attacks of one server alone are left to that server, unless it is in `apart`.
        """
        if {RECOMMENDER, THIRD_PARTY} & apart:
            yield from (attack_support, attack_identity)

    def channel(self, params: Params, scale: Floats) -> RandomizedChannel | None:
        """Return the law by which users randomize ratings of `scale`; None if they send none that are randomized."""
        return None

    def uploads(self, scene: Scene) -> Iterable[tuple[int, RealUpload]]:
        """Yield (user, upload) for the gradients that the coalition can read as numbers, in order."""
        return ()

    def iteration_noise(self, params: Params, keys: list[bytes], floors: Matrix, iteration: int) -> Matrix | float:
        """Compute the variance of the iteration noise in one user's upload over 2b², given the envelopes of `keys`."""
        return 0.0

    # --- a measured ε

    def measure(self, asked: Asked) -> tuple[list[BoundRow], dict[str, Any]]:
        """Play canaries; return (rows, the problem in words), or raise `CannotBeMeasured`."""
        raise CannotBeMeasured(f"{self.scheme.name} cannot be measured: nothing is known of what its users send.")

    def measure_own(self, case: Case, canaries: int, seed: bytes) -> tuple[list[BoundRow], dict[str, Any]]:
        """Play at most `canaries` canaries among the run's ratings in one run, or raise `CannotBeMeasured`."""
        raise CannotBeMeasured(f"Nothing is known of how {self.scheme.name} plays canaries among a run's own ratings.")

    def canary_settings(self, params: Params) -> Any:
        """Return the settings that the canary of a run with `params` depends on."""
        return dataclasses.asdict(params)

    # --- parties that cheat

    def learned_by_cheating(self, case: Case) -> dict[str, Any] | None:
        """Measure what the party that cheats has learned; None if no cheat of this family is known."""
        return None

    def checked_by_users(self, case: Case) -> dict[str, Any] | None:
        """Make the checks that users can make of what a server dealt them; None if there are none."""
        return None

    # --- statistics

    def totals_seen(self, case: Case) -> Glimpse:
        """Collect the words that the recommender receives in masked totals."""
        return Glimpse({})

    def unblinded(self, case: Case) -> tuple[Ids, RingArray] | None:
        """Return (items, the sealed noise less the blinds that the recommender itself dealt), if there is any."""
        return None

    # --- claim, verdict and page

    def bound(self, accounting: Mapping[str, Any], findings: Sequence[Finding]) -> AccountedBound | None:
        """Read from the accounting the ε that decides whether the claim holds; None if nothing bounds it."""
        return None

    def promised(self, params: Params) -> str:
        """Format ε, or the budget θ, in the unit that the scheme uses."""
        return f"ε = {params.epsilon:g} per {'release' if self.scheme.factorizes else self.scheme.unit}"

    def levels(self, params: Params, own: UserInput) -> Floats:
        """Return the numbers that stand for the entries of a user's rating vector before they are randomized."""
        return own.ratings
