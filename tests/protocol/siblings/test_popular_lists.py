"""The list of the items rated most often, beside a user's own list: only where the scheme tells users noisy counts."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest

from actors.metering.observer import HeldOut, Observer
from protocol.party.role import PredictingUser, UserInput
from sim.plan.config import RunConfig
from sim.run.run import run


class Ended(PredictingUser):
    """A user that has rated item 11 and scores items by their numbers."""

    def __init__(self, popularity: np.ndarray | None) -> None:
        self.inputs = UserInput(np.array([11], np.uint32), np.array([3.0]))
        self.popularity = popularity

    def receive(self, sender, message):
        raise AssertionError("nothing is sent here")

    def predict(self, items):
        return items.astype(np.float64)


def measured(*popularities: np.ndarray | None):
    """Measure the ranking over users that hold out item 1, five stars, of twelve items, and know `popularities`."""
    observer = Observer(SimpleNamespace(n_users=len(popularities), n_items=12, dim=2, rating_range=(1.0, 5.0)))
    held_out = HeldOut(np.array([1], np.uint32), np.array([5.0]))
    for user, popularity in enumerate(popularities):
        observer.watch(f"user:{user}", Ended(popularity), True, held_out)
    return observer.accuracy().ranking


def test_a_user_that_knows_counts_is_measured_with_the_list_of_the_most_popular():
    """Its own list is 10, 9, … 1: item 1 is the tenth. By these counts item 1 is the second."""
    counts = np.zeros(12)
    counts[[5, 1, 11]] = 3.0, 2.0, 9.0  # item 11 is rated, so that no list holds it
    found = measured(counts, counts)
    assert found.users == 2 and found.hit_10 == 1.0
    assert found.ndcg_10 == pytest.approx(1 / math.log2(11))
    assert found.popular_ndcg_10 == pytest.approx(1 / math.log2(3))


def test_where_a_user_knows_no_counts_there_is_no_such_figure():
    assert measured(None).popular_ndcg_10 is None
    assert measured(np.ones(12), None).popular_ndcg_10 is None, "a mean over some of the users would be of others"


@pytest.mark.parametrize("scheme", ["covariance", "hybrid", "covariance-masked", "masked"])
def test_schemes_that_send_users_no_counts_of_all_items_have_none(tmp_path, scheme):
    """The covariance family measures noisy counts but keeps them: users are sent averages and the covered items."""
    config = RunConfig(scheme=scheme, data="demo-small", seed=1, transport="inprocess", views="none")
    ranking = run(config, out=tmp_path / "run")["accuracy"]["ranking"]
    assert ranking["users"] > 0 and ranking["popular_ndcg_10"] is None
