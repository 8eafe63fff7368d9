"""The working data of a coalition: its own views, what follows from them, and the truth for scoring."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from protocol.arithmetic.ring import Ring
from protocol.arrays import Ids, RingArray
from protocol.errors import Bug
from protocol.params import Params
from protocol.party.role import RECOMMENDER, THIRD_PARTY, UserInput, user_index, user_name
from sim.audit import truth
from sim.audit.attacks.recomputed import Contribution, RecommenderStory, UserStory, user_story
from sim.audit.families.registry import family_of
from sim.audit.scoring import LEVEL, MOST_TRIES
from sim.views.evidence import Case
from sim.views.exhibits import Exhibits, Seen

MOST_UPLOADS = 5000  # uploads to attack one by one: the first iterations of a large run
FEWEST_ITERATIONS = 3


class Truth:
    """The truth, opened for scoring only. The rating scale and the frequency of each value count as public."""

    def __init__(self, case: Case, iterations: int, alone: int = 1) -> None:
        """Prepare to score the first `iterations`; `alone` is the number of parties that attack alone."""
        self.case = case
        self.iterations = iterations
        self.level = LEVEL / (MOST_TRIES * max(1, alone))  # of one attempt
        self._stories: dict[int, UserStory] = {}
        self._parts: dict[int, dict[int, Contribution]] = {}
        self._seen: dict[str, list[Seen]] = {}

    @functools.cached_property
    def ratings(self) -> dict[str, UserInput]:
        return truth.all_ratings(self.case)

    @functools.cached_property
    def commonest(self) -> float:
        return truth.most_frequent_rating(self.ratings)

    @functools.cached_property
    def is_whole(self) -> bool:
        """Tell whether every user's view was kept."""
        return len(truth.known_users(self.case)) == self.case.card.params.n_users

    @functools.cached_property
    def _kept(self) -> frozenset[int]:
        return frozenset(map(user_index, truth.known_users(self.case)))

    def is_kept(self, user: int) -> bool:
        """Tell whether the view of `user` was kept."""
        return user in self._kept

    @functools.cached_property
    def raters(self) -> dict[int, list[int]]:
        """Map each item to its raters among the users whose views were kept."""
        found: dict[int, list[int]] = {}
        for user, own in self.ratings.items():
            for item in map(int, own.items):
                found.setdefault(item, []).append(user_index(user))
        return found

    @functools.cached_property
    def sealed_in(self) -> dict[int, int]:
        """Map each item to the attempt in which its objective noise was fixed."""
        seen = Exhibits(self.case, (RECOMMENDER,)).received(RECOMMENDER, "SealedTotal")
        return {int(item): found.message.attempt for found in seen for item in found.message.items}

    @functools.cached_property
    def sealed_shares(self) -> dict[int, dict[int, RingArray]]:
        """Map item and user to enc(η share) of every committer, in the attempt that was sealed."""
        found: dict[int, dict[int, RingArray]] = {}
        for user in range(self.case.card.params.n_users):
            for attempt, (items, words) in self.story(user).committed.items():
                for item, row in zip(map(int, items), words, strict=True):
                    if self.sealed_in.get(item) == attempt:
                        found.setdefault(item, {})[user] = row
        return found

    def story(self, user: int) -> UserStory:
        if user not in self._stories:
            self._stories[user] = truth.story_of(self.case, user_name(user), self.iterations)
        return self._stories[user]

    def contribution(self, user: int, iteration: int) -> Contribution | None:
        """Return what `user` contributed to `iteration`, if anything."""
        if user not in self._parts:
            self._parts[user] = {own.iteration: own for own in reversed(self.story(user).contributions)}
        return self._parts[user].get(iteration)

    def seen_by(self, exhibits: Exhibits, party: str) -> list[Seen]:
        """List what `party` received in the attacked iterations; cached, because many attacks read the same view."""
        if party not in exhibits.members:
            raise Bug(f"the view of {party} is not one of {'+'.join(exhibits.members)}")
        if party not in self._seen:
            upto = itertools.takewhile(lambda seen: seen.iteration <= self.iterations, exhibits.received(party))
            self._seen[party] = list(upto)
        return self._seen[party]

    def n_raters(self, item: int) -> int:
        """Return k_j: public, since every user announces its items and the claim itself assumes it to be."""
        return len(self.raters.get(item, ()))

    def took_part(self, user: int, iteration: int) -> bool:
        return self.contribution(user, iteration) is not None

    def rating(self, user: int, item: int) -> float:
        own = self.ratings[user_name(user)]
        return float(own.ratings[np.searchsorted(own.items, item)])


class Scene:
    """Everything that one coalition has. Only `Exhibits` reads views here."""

    def __init__(self, case: Case, members: tuple[str, ...], truth: Truth) -> None:
        self.case = case
        self.members = members
        self.truth = truth
        self.exhibits = Exhibits(case, members)
        self.params: Any = case.card.params  # an attack reads those of the schemes that it is for
        self.iterations = truth.iterations
        self.users: Sequence[int] = sorted(user_index(name) for name in members if user_index(name) >= 0)
        self.has_recommender = RECOMMENDER in members
        self.has_third_party = THIRD_PARTY in members
        self.family = family_of(case.card.scheme)
        self.masks, self.commits = self.family.masks, self.family.commits
        self.uploads_openly = self.family.uploads_openly

    @property
    def ring(self) -> Ring:
        return self.case.card.setting.ring

    @property
    def together(self) -> str:
        """Name the coalition for use in a sentence."""
        names = [name if user_index(name) >= 0 else f"the {name.replace('_', ' ')}" for name in self.members]
        if len(names) > 4:
            names = [*names[:3], f"{len(names) - 3} more"]
        words = ", ".join(names[:-1]) + " and " + names[-1] if len(names) > 1 else names[0]
        return words[0].upper() + words[1:] if words.startswith("the ") else words

    @property
    def noisy(self) -> str:
        """Return "noisy ", to precede "gradient" or "sum", if there is noise."""
        return "" if math.isinf(self.params.epsilon) else "noisy "

    @property
    def extent(self) -> str:
        """Describe the attacked iterations, unless all were attacked."""
        of = self.params.iterations
        return "" if self.iterations >= of else f" Iterations 0 to {self.iterations - 1} of {of}."

    @property
    def declared(self) -> frozenset[str]:
        """Return the weaknesses that the scheme itself declares."""
        return frozenset(self.case.card.scheme.known_weaknesses)

    @functools.cached_property
    def recommender(self) -> RecommenderStory:
        return RecommenderStory(self.exhibits, self.iterations)

    @functools.cached_property
    def stories(self) -> dict[int, UserStory]:
        """Return the stories of the users in the coalition, from their own views."""
        return {user: user_story(self.exhibits, user_name(user), self.iterations) for user in self.users}

    def received(self, party: str, *kinds: str) -> Iterator[Seen]:
        """Yield what `party` received up to the last attacked iteration."""
        for seen in self.truth.seen_by(self.exhibits, party):
            if kinds and type(seen.message).__name__ not in kinds:
                continue
            if seen.iteration >= self.iterations:
                return
            yield seen

    def own_noise(self, item: int) -> tuple[int, RingArray | None]:
        """Return (the number of committers among the members, the sum of their enc(η share) for `item`)."""
        latest: dict[int, list[RingArray]] = {}
        for story in self.stories.values():
            for attempt, (items, words) in story.committed.items():
                latest.setdefault(attempt, []).extend(words[items == item])
        rows = latest.get(max((attempt for attempt, found in latest.items() if found), default=-1), [])
        return (len(rows), self.ring.add(rows[0], *rows[1:])) if rows else (0, None)


def iterations_attacked(params: Params) -> int:
    return min(params.iterations, max(FEWEST_ITERATIONS, MOST_UPLOADS // params.n_users))


def unknown_noise(scene: Scene, item: int) -> RingArray:
    """Compute from the truth Σ enc(η share) of the committers outside the coalition."""
    rows = [row for user, row in scene.truth.sealed_shares.get(item, {}).items() if user not in scene.users]
    total: RingArray = scene.ring.zeros(1, scene.params.dim)[0]
    return scene.ring.add(total, *rows) if rows else total


def row_of(items: Ids, item: int) -> int:
    return int(np.searchsorted(items, item))
