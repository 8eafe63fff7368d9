"""The sums of `covariance` and its variants: the exact sums, and the noisy totals that the publication is made of.

The recommender's role runs again from its view. The noisy totals, of which everything is made that is published, pass
through its reals, and the numbers it sent are checked against its model of these totals. The exact sums follow from the
ratings: as the recommender received them or, if it receives none, as users brought them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from protocol.arrays import Floats
from protocol.party.role import RECOMMENDER, Send, user_index
from protocol.schemes.covariance import triangle
from protocol.schemes.covariance.averages import Averages
from protocol.schemes.covariance.hybrid import within_reach
from protocol.schemes.covariance.model import Model
from protocol.schemes.covariance.options import CovarianceParams, HybridParams
from protocol.schemes.covariance.round_noise import scales_for
from protocol.schemes.covariance.totals import Book, first_total, second_total
from protocol.wire.messages import Message
from sim.audit import truth
from sim.audit.accounting.noise_test import LAPLACE_MEDIAN, NORMAL_MEDIAN, NoiseTest
from sim.audit.role_rerun import rerun
from sim.views.evidence import Case
from sim.views.exhibits import Exhibits

FIELDS = ("averages", "factors", "among", "covariances", "weights")  # message fields that publish numbers of the model
MOST_COMPARED = 100  # messages of one step, approximately
HANDED = ("GradedRatings", "RatingsHandover", "PerturbedRatings")


@dataclass(frozen=True, slots=True, eq=False)
class Totals:
    params: CovarianceParams
    book: Book  # the ratings that were summed
    averages: Averages
    first: Floats  # noisy, as used for the publication
    second: Floats
    elsewhere: int  # compared numbers that do not come from the model of these totals

    def noise(self) -> tuple[Floats, Floats]:
        """Compute the noise of each round: the totals less the exact sums."""
        exact = first_total(self.params, self.book), second_total(self.params, self.averages, self.book)
        return self.first - exact[0], self.second - exact[1]


def read_totals(case: Case) -> Totals | str:
    """Read the totals, or return the reason why there are none; the latest result is cached for the next caller."""
    if not (_LATEST and _LATEST[0][0] is case):
        _LATEST[:] = [(case, _read(case))]
    return _LATEST[0][1]


_LATEST: list[tuple[Case, Totals | str]] = []


def _read(case: Case) -> Totals | str:
    params = case.card.params
    assert isinstance(params, CovarianceParams)
    book = _book(case, params)
    if book is None:
        return "not every rating that was summed is in a view that was kept (--views full)"
    sent: list[Message] = []
    totals: dict[int, Floats] = {}
    role: Any = None
    for turn in rerun(Exhibits(case, (RECOMMENDER,)), RECOMMENDER):
        some = turn.effects[:: 1 + len(turn.effects) // MOST_COMPARED]  # those of many users would fill the memory
        sent += [effect.message for effect in some if isinstance(effect, Send)]
        totals |= {mark.label.iteration: mark.values for mark in turn.passed.computed if mark.label.what == "total"}
        role = turn.role
    model: Model | None = getattr(role, "model", None)
    if model is None or not {0, 1} <= totals.keys():
        return "nothing was published, or not by way of a model and of totals that the recommender names"
    return Totals(params, book, model.averages, totals[0], totals[1], _elsewhere(sent, model.averages, model))


def _book(case: Case, params: CovarianceParams) -> Book | None:
    handed: dict[int, tuple[Any, Floats]] = {}
    for seen in Exhibits(case, (RECOMMENDER,)).received(RECOMMENDER, *HANDED):
        handed[user_index(seen.sender)] = (seen.message.items, _ratings(params, seen.message))
    if not set(HANDED) & {kind.__name__ for kind in case.card.scheme.messages}:
        known = truth.all_ratings(case)  # it receives none: only the users' own views have them
        handed = {user_index(name): (own.items, own.ratings) for name, own in known.items()}
    if len(handed) < params.n_users:
        return None
    return Book.of(handed[user] for user in sorted(handed))


def _ratings(params: CovarianceParams, message: Any) -> Floats:
    if hasattr(message, "grades"):
        return np.asarray(params.rating_min + params.rating_step * message.grades.astype(np.float64))
    if isinstance(params, HybridParams):
        return within_reach(params, message.values.reshape(-1))
    return np.asarray(message.values, np.float64).reshape(-1)


def _elsewhere(sent: list[Message], averages: Averages, model: Model) -> int:
    matrices = [averages.item_means, model.similarity.covariances, model.similarity.weights, np.zeros(1)]
    known = np.concatenate([np.unique(part.astype(np.float32)) for part in (*matrices, _factors(model))])
    different = {id(message): message for message in sent}.values()  # many users receive the same message object
    told = [getattr(message, name, None) for message in different for name in FIELDS]
    numbers = np.concatenate([np.zeros(0, np.float32), *(rows.reshape(-1) for rows in told if rows is not None)])
    return int(np.count_nonzero(~np.isin(numbers, known)))


def _factors(model: Model) -> Floats:
    return np.zeros(0) if model.factors is None else model.factors


# --- is the noise there? ---------------------------------------------------------------------------------------------


def noise_test(totals: Totals) -> NoiseTest:
    """Test |noise| against the median of its law, at every place of both rounds.

    The groups are the items, and a last group for the sums over all items. A pair of items counts for the first of
    them.
    """
    params, averages = totals.params, totals.averages
    test, every = NoiseTest(params.n_items + 1), np.arange(params.n_items)
    median = NORMAL_MEDIAN if params.gaussian else LAPLACE_MEDIAN
    scales = scales_for(params, 1), scales_for(params, 2, averages.spread)
    first, second = (
        (np.abs(noise) / (median * scale))[:, None] for noise, scale in zip(totals.noise(), scales, strict=True)
    )
    test.add("sums and counts of all", np.full(2, params.n_items), first[:2])
    test.add("item sums", every, first[2 : 2 + params.n_items])
    test.add("item counts", every, first[2 + params.n_items :])
    rows = np.repeat(np.arange(params.items), np.arange(params.items, 0, -1))
    half = triangle.packed_length(params.items)
    test.add("covariances", averages.covered[rows], second[:half])
    test.add("weights", averages.covered[rows], second[half:])
    return test
