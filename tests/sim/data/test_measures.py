"""Lists of ten items: NDCG, hit and recall, worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from actors.metering.accuracy import LIST_SUMS, best_items, good_rating, list_sums, read_lists

# Twelve items. The user rated 0 and 5, so its list is of the other ten, by falling scores:
#   item    4    9    2    7    1   11    3    8    6   10
#   score  .95  .9   .8   .7   .6   .5   .4   .3   .2   .1
#   place   1    2    3    4    5    6    7    8    9   10
SCORES = np.array([9.0, 0.6, 0.8, 0.4, 0.95, 8.0, 0.2, 0.7, 0.3, 0.9, 0.1, 0.5])
RATED = np.array([0, 5], np.uint32)


def ids(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.uint32)


def test_a_list_by_hand():
    """Good held-out items 9 and 7 are at places 2 and 4: gains 1/log2(3) and 1/log2(5).

    The best list has them at places 1 and 2: 1/log2(2) + 1/log2(3).
    """
    expected = (1 / math.log2(3) + 1 / math.log2(5)) / (1 / math.log2(2) + 1 / math.log2(3))
    assert expected == pytest.approx(0.650921, abs=1e-6)  # (.630930 + .430677) / 1.630930
    users, ndcg, hit, recall, *popular = list_sums(SCORES, RATED, ids(7, 9))
    assert (users, hit, recall) == (1.0, 1.0, 1.0) and ndcg == pytest.approx(expected)
    assert popular == [0.0, 0.0]


def test_the_best_list_has_an_ndcg_of_one():
    assert list_sums(SCORES, RATED, ids(2, 4, 9))[1] == pytest.approx(1.0)


def test_an_item_beyond_the_tenth_place_is_not_found():
    """A thirteenth item makes eleven that the user has not rated; it has the least score."""
    scores = np.append(SCORES, 0.05)
    assert list_sums(scores, RATED, ids(12)) == (1.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    users, ndcg, hit, recall, *_ = list_sums(scores, RATED, ids(4, 12))
    # found at place 1; the best list has both: 1 / (1 + 1/log2(3))
    assert (users, hit, recall) == (1.0, 1.0, 0.5)
    assert ndcg == pytest.approx(1 / (1 + 1 / math.log2(3)))


def test_of_more_than_ten_good_items_the_best_list_has_ten():
    """All eleven unrated items are good: the list has ten of them, and nothing could be better."""
    scores = np.append(SCORES, 0.05)
    good = ids(*(item for item in range(13) if item not in (0, 5)))
    _, ndcg, hit, recall, *_ = list_sums(scores, RATED, good)
    assert ndcg == pytest.approx(1.0) and hit == 1.0 and recall == pytest.approx(10 / 11)


def test_of_equal_scores_the_item_with_the_smaller_number_comes_first():
    assert best_items(np.array([1.0, 2.0, 2.0, 1.0, 2.0]), ids(1), 3).tolist() == [2, 4, 0]
    flat = np.zeros(15)
    assert best_items(flat, ids(3), 10).tolist() == [0, 1, 2, 4, 5, 6, 7, 8, 9, 10]
    assert list_sums(flat, ids(3), ids(10))[2] == 1.0 and list_sums(flat, ids(3), ids(11))[2] == 0.0


def test_with_fewer_than_ten_unrated_items_the_list_is_shorter():
    """Items 1, 2 and 3 are left, in the order 3, 1, 2; the good one is last: 1/log2(4) = 1/2."""
    scores = np.array([5.0, 2.0, 1.0, 3.0])
    assert best_items(scores, ids(0), 10).tolist() == [3, 1, 2]
    assert list_sums(scores, ids(0), ids(2))[1:4] == (pytest.approx(0.5), 1.0, 1.0)


def test_who_holds_out_no_good_item_is_not_counted():
    assert list_sums(SCORES, RATED, ids()) == (0.0,) * LIST_SUMS
    assert read_lists(np.zeros(LIST_SUMS)) is None


def test_means_are_over_the_users_who_hold_out_something_good():
    # the first finds its item at place 1, the second does not find it, the third has none
    scores = np.append(SCORES, 0.05)
    users = [list_sums(scores, RATED, good) for good in (ids(4), ids(12), ids())]
    ranking = read_lists(np.sum(users, axis=0))
    assert (ranking.ndcg_10, ranking.hit_10, ranking.recall_10, ranking.users) == (0.5, 0.5, 0.5, 2)
    assert ranking.popular_ndcg_10 is None, "nobody was told how often items are rated"


def test_the_most_popular_items_are_a_list_of_their_own():
    """By these counts item 7 comes first of those that the user has not rated, and item 9 second."""
    counts = np.array([50.0, 1, 1, 1, 1, 40, 1, 30, 1, 20, 1, 1])
    found = list_sums(SCORES, RATED, ids(9), counts)
    assert found[4:] == (1.0, pytest.approx(1 / math.log2(3)))
    assert read_lists(np.array(found)).popular_ndcg_10 == pytest.approx(1 / math.log2(3))


def test_there_is_no_figure_for_popular_items_unless_every_user_knows_the_counts():
    known, unknown = list_sums(SCORES, RATED, ids(9), np.ones(12)), list_sums(SCORES, RATED, ids(9))
    assert read_lists(np.add(known, unknown)).popular_ndcg_10 is None


@pytest.mark.parametrize(
    ("rating_range", "good"), [((1.0, 5.0), 4.0), ((0.5, 5.0), 4.0), ((0.0, 10.0), 8.0), ((-10.0, 10.0), 6.0)]
)
def test_four_fifths_of_the_scale_are_good(rating_range, good):
    assert good_rating(rating_range) == good
