"""The users' true inputs and contributions, for scoring alone. No attack reads this before it has guessed."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from protocol.party.role import UserInput, user_index
from sim.audit.attacks.recomputed import Contribution, UserStory, user_story
from sim.views.evidence import Case
from sim.views.exhibits import Exhibits

EVERYTHING = 1 << 62


def known_users(case: Case) -> list[str]:
    """List the users whose views were kept; no others can be scored."""
    return [party for party in case.parties if user_index(party) >= 0 and case.path(party).is_file()]


def ratings_of(case: Case, user: str) -> UserInput:
    """Return the ratings that `user` (such as `user:17`) brought."""
    brought = Exhibits(case, (user,)).brought(user)
    assert brought.inputs is not None
    return brought.inputs


def story_of(case: Case, user: str, iterations: int = EVERYTHING) -> UserStory:
    """Run the role of `user` again from its view: what it contributed, and the noise that it committed to."""
    return user_story(Exhibits(case, (user,)), user, iterations)


def contributions(case: Case, user: str, iterations: int = EVERYTHING) -> list[Contribution]:
    return story_of(case, user, iterations).contributions


def all_ratings(case: Case) -> dict[str, UserInput]:
    return {user: ratings_of(case, user) for user in known_users(case)}


def most_frequent_rating(ratings: dict[str, UserInput]) -> float:
    """Return the most frequent rating of the population: the public prior, free for any guesser."""
    values, counts = np.unique(np.concatenate([own.ratings for own in ratings.values()]), return_counts=True)
    return float(values[np.argmax(counts)])


def rating_scale(ratings: dict[str, UserInput]) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return (the values that ratings take, their probabilities) in the population; also public."""
    values, counts = np.unique(np.concatenate([own.ratings for own in ratings.values()]), return_counts=True)
    return values.astype(np.float64), counts / counts.sum()
