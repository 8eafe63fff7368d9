"""The mathematics of `covariance`: parts and totals, noise, averages, cleaning, prediction."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats
from support.basics import FALSE_ALARM, STARS
from support.covariance import of_size

from protocol.arithmetic.tape import Tape
from protocol.errors import BadInput
from protocol.schemes.base import Shape
from protocol.schemes.covariance import triangle
from protocol.schemes.covariance.averages import averages_of, centre, clamped
from protocol.schemes.covariance.model import Model, measured, model_of, predictions
from protocol.schemes.covariance.options import grade_step
from protocol.schemes.covariance.parts import first_part, first_sparse, largest_entries, second_part, second_sparse
from protocol.schemes.covariance.predicting import largest
from protocol.schemes.covariance.round_noise import noise_for, round_length, scales_for, unit_noise
from protocol.schemes.covariance.similarity import Similarity, similarity_of
from protocol.schemes.covariance.totals import Book, first_total, second_total

TAPE = Tape(bytes(range(32)))
INF = math.inf
VARIANTS = [
    {"noise": noise, "unit_of": unit_of, "items": items}
    for noise in ("gaussian", "laplace")
    for unit_of in ("rating", "user")
    for items in (0, 4)
]


def some_users(n_users: int, n_items: int, seed: int = 0) -> list[tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(seed)
    users = []
    for _ in range(n_users):
        items = np.sort(rng.choice(n_items, int(rng.integers(1, n_items + 1)), replace=False))
        users.append((items, rng.integers(1, 6, len(items)).astype(float)))
    return users


# --- a small example by hand -----------------------------------------------------------------------------------------


def test_two_users_and_two_items_by_hand():
    """Users (5, 4) and (2, –), no noise. c = 3: GSum = 2+1−1 = 2 of 3, so G = 11/3.

    MAvg_0 = 3 + (1 + 15·2/3)/(2 + 15) = 3 + 11/17, MAvg_1 = 3 + (1 + 10)/(1 + 15) = 3 + 11/16.
    User 0: x = (2 − 11/17, 1 − 11/16) = (1.35294, .3125), r̄ = 1.66544/22 = .0757, r̂ = (1, .2368), w = 1/√2.
    User 1: x = −1 − 11/17 = −1.64706, r̄ = −1.64706/21 = −.07843, t = −1.56863, r̂ = −1, w = 1.
    """
    params = of_size(2, 2, INF)
    book = Book.of([(np.array([0, 1]), np.array([5.0, 4.0])), (np.array([0]), np.array([2.0]))])
    first = first_total(params, book)
    assert first == pytest.approx([2, 3, 1, 1, 2, 1])
    averages = averages_of(params, first)
    assert averages.global_mean == pytest.approx(11 / 3)
    assert averages.item_means == pytest.approx([3 + 11 / 17, 3 + 11 / 16], abs=1e-6)
    mean, centred = centre(averages.item_means, 20.0, book.items[:2], book.ratings[:2])
    assert mean == pytest.approx(0.0757, abs=5e-5)
    assert clamped(params, centred) == pytest.approx([1, 0.2368], abs=5e-5)
    second = second_total(params, averages, book)
    root = math.sqrt(0.5)
    assert second == pytest.approx([root + 1, root * 0.2368, root * 0.05607, root + 1, root, root], abs=5e-5)
    # K0 = 4; t_off = .16744/.70711 = .2368 clipped to .05; t_d = (1.70711 + .03965)/(1.70711 + .70711) = .72353
    similarity = similarity_of(params, averages, second)
    cleaned = [(1.70711 + 4 * 0.72353) / 5.70711, (0.16744 + 0.2) / 4.70711, (0.03965 + 4 * 0.72353) / 4.70711]
    assert triangle.pack(similarity.covariances) == pytest.approx(cleaned, abs=5e-5)


def test_prediction_by_factors_and_by_neighbours_is_what_the_formulas_say():
    users = some_users(30, 8)
    params = of_size(30, 8, 5.0, rank=3)
    model = measured(params, Book.of(users), TAPE)
    items, ratings = users[3][0][:4], users[3][1][:4]
    targets, means = np.arange(8), model.averages.item_means
    mean, centred = centre(means, 20.0, items, ratings)
    strength = 1 + min(2, model.similarity.noise)
    own = model.factors[items]
    profile = np.linalg.inv(own.T @ own + strength * np.eye(3)) @ own.T @ centred
    assert predictions(params, model, items, ratings, targets) == pytest.approx(means + mean + model.factors @ profile)

    close = of_size(30, 8, 5.0, predictor="knn", neighbours=2)
    by_neighbours = predictions(close, Model(model.averages, model.similarity, None), items, ratings, targets)
    for target in targets:
        near = np.sort(np.argsort(-model.similarity.weights[target, items])[:2])
        among = model.similarity.covariances[np.ix_(items[near], items[near])]
        values, vectors = np.linalg.eigh(among)
        among = vectors @ np.diag(np.maximum(values, 0)) @ vectors.T
        weights = np.linalg.inv(among + strength * np.eye(2)) @ model.similarity.covariances[target, items[near]]
        assert by_neighbours[target] == pytest.approx(means[target] + mean + weights @ centred[near])


def test_negative_eigenvalues_count_as_none():
    """A_NN = [[.1, 1], [1, .1]] has the eigenvalues 1.1 and −.9: without the cut, A + λI with λ = .9 has no inverse."""
    params = of_size(2, 3, INF, predictor="knn", neighbours=2)
    averages = averages_of(params, np.zeros(8))
    covariances = np.array([[0.1, 1, 0.5], [1, 0.1, 0.5], [0.5, 0.5, 1]])
    model = Model(averages, Similarity(covariances, np.ones((3, 3)), 0.0), None)
    items, ratings = np.array([0, 1]), np.array([4.0, 4.0])
    mean, centred = centre(averages.item_means, 20.0, items, ratings)
    found = predictions(params, model, items, ratings, np.array([2]))
    # (.5, .5) is an eigenvector of 1.1: both weights are .5/(1.1 + 1)
    assert found == pytest.approx(averages.item_means[2] + mean + 2 * 0.5 / 2.1 * centred[0])


# --- parts and totals ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", VARIANTS)
def test_the_parts_of_the_users_sum_to_the_totals(options):
    users = some_users(25, 9, 1)
    params = of_size(25, 9, 3.0, **options)
    book = Book.of(users)
    first = sum(first_part(params, *user) for user in users)
    assert first == pytest.approx(first_total(params, book), rel=1e-12, abs=1e-12)
    averages = averages_of(params, first_total(params, book) + noise_for(params, 1, TAPE))
    second = np.zeros(round_length(params, 2))
    for user in users:
        second += second_part(params, averages, *user)
    assert len(averages.covered) == params.items == (options["items"] or 9)
    assert np.array_equal(second, second_total(params, averages, book)), "bit for bit: both add in the order of users"


@pytest.mark.parametrize("options", VARIANTS)
def test_a_part_is_the_outer_product_over_the_covered_items(options):
    params, (items, ratings) = of_size(5, 9, 3.0, **options), some_users(1, 9, 2)[0]
    averages = averages_of(params, noise_for(params, 1, TAPE))
    _, centred = centre(averages.item_means, averages.user_shrink, items, ratings)
    vector, there = np.zeros(9), np.zeros(9)
    vector[items], there[items] = np.clip(centred, -1, 1), 1
    power = {("gaussian", "rating"): -0.5, ("laplace", "user"): -2}.get((params.noise, params.unit_of), -1)
    weight, some = len(items) ** power, np.ix_(averages.covered, averages.covered)
    whole = second_part(params, averages, items, ratings)
    expected = [triangle.pack(weight * np.outer(values, values)[some]) for values in (vector, there)]
    assert whole == pytest.approx(np.concatenate(expected))
    places, values = second_sparse(params, averages, items, ratings)
    assert np.array_equal(whole[places], values) and np.count_nonzero(whole) <= len(places)
    assert np.abs(values).max() <= largest_entries(params)[1]


def test_the_places_of_a_sparse_part_are_the_support_whatever_the_ratings():
    params = of_size(2, 6)
    places, values = first_sparse(params, np.array([1, 4]), np.array([3.0, 3.0]))
    assert places.tolist() == [0, 1, 3, 6, 9, 12] and values.tolist() == [0, 2, 0, 0, 1, 1]
    assert np.all(np.abs(first_part(params, np.arange(6), np.full(6, 5.0))) <= largest_entries(params)[0])


def test_packing_and_unpacking():
    matrix = np.array([[1.0, 2, 3], [2, 4, 5], [3, 5, 6]])
    assert triangle.pack(matrix).tolist() == [1, 2, 3, 4, 5, 6]
    assert np.array_equal(triangle.unpack(triangle.pack(matrix), 3), matrix)
    assert triangle.positions(np.array([0, 1, 2]), np.array([2, 2, 2]), 3).tolist() == [2, 4, 5]
    assert triangle.starts(3).tolist() == [0, 3, 5]


def test_of_equal_weights_the_first_are_nearest():
    weights = np.array([[0.0, 1, 0, 0, 2], [3, 3, 3, 3, 3], [-np.inf, -np.inf, 0, -np.inf, -np.inf]])
    assert largest(weights, 3).tolist() == [[0, 1, 4], [0, 1, 2], [0, 1, 2]]
    assert largest(weights, 9).tolist() == [[0, 1, 2, 3, 4]] * 3


# --- noise -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("noise", "law"), [("gaussian", stats.norm), ("laplace", stats.laplace)])
def test_noise_has_its_law_and_its_scale_at_every_place(noise, law):
    params = of_size(10, 60, 2.0, noise=noise)
    drawn, scales = noise_for(params, 2, TAPE, 1.5), scales_for(params, 2, 1.5)
    half = triangle.packed_length(60)
    diagonal = np.zeros(half, bool)
    diagonal[triangle.starts(60)] = True
    for part in (slice(0, half), slice(half, None)):
        beside = {"gaussian": math.sqrt(0.5), "laplace": 0.5}[noise]
        assert np.unique(np.round(scales[part][~diagonal] / scales[part][diagonal][0], 12)) == pytest.approx(beside)
        for cells in (diagonal, ~diagonal):
            assert stats.kstest(drawn[part][cells] / scales[part][cells], law.cdf).pvalue > FALSE_ALARM
    wrong = drawn[:half][~diagonal] / scales[0]  # a draw with the diagonal's scale everywhere would be found
    assert stats.kstest(wrong, law.cdf).pvalue < FALSE_ALARM


def test_mirrored_noise_has_the_variance_that_the_whole_matrix_needs():
    """Σ over all entries of (change/σ)² must be ‖change‖²/σ²: the mirrored pair carries one draw of variance σ²/2."""
    params = of_size(10, 40, 1.0)
    packed = noise_for(params, 2, TAPE, 0.0)[: triangle.packed_length(40)]
    matrix = triangle.unpack(packed, 40)
    assert np.array_equal(matrix, matrix.T)
    sigma = scales_for(params, 2, 0.0)[0]
    change = np.random.default_rng(0).normal(size=(40, 40))
    change = change + change.T
    scaled = triangle.pack(change) / scales_for(params, 2, 0.0)[: len(packed)]
    assert (scaled**2).sum() == pytest.approx((change**2).sum() / sigma**2)


def test_laplace_noise_of_a_mirrored_pair_covers_the_L1_norm_of_the_whole_matrix():
    params = of_size(10, 12, 1.0, noise="laplace")
    scales = scales_for(params, 2, 2.0)[: triangle.packed_length(12)]
    change = np.random.default_rng(0).normal(size=(12, 12))
    change = change + change.T
    assert (np.abs(triangle.pack(change)) / scales).sum() == pytest.approx(np.abs(change).sum() / scales[0])


def test_rounds_have_different_noise_and_infinity_has_none():
    params = of_size(10, 30)
    one, two = unit_noise(params, 1, TAPE), unit_noise(params, 2, TAPE)
    assert len(one) == 62 and len(two) == 30 * 31
    assert not np.any(np.isin(one, two))
    assert np.array_equal(one, unit_noise(params, 1, TAPE))
    assert not noise_for(of_size(10, 30, INF), 1, TAPE).any() and not noise_for(of_size(10, 30, INF), 2, TAPE).any()


# --- averages and cleaning -------------------------------------------------------------------------------------------


def test_item_means_stay_in_the_range_whatever_the_noise():
    params = of_size(10, 50, 0.001)
    for seed in range(20):
        averages = averages_of(params, noise_for(params, 1, Tape(bytes([seed]) * 32)))
        assert averages.item_means.min() >= 1 and averages.item_means.max() <= 5
        assert averages.spread <= 4 and 1 <= averages.global_mean <= 5


def test_shrinking_follows_the_noise_unless_it_is_printed():
    """One item with sum 2 and count 1, G = c: MAvg = 3 + 2/(1 + b), b = 15 + 2·√2·2/.19 or 15."""
    first = np.array([0.0, 1, 2, 1])
    for options, shrink in (({}, 15 + 4 * math.sqrt(2) / 0.19), ({"printed_shrink": True}, 15)):
        averages = averages_of(of_size(1, 1, 1.0, **options), first)
        assert averages.item_means[0] == pytest.approx(3 + 2 / (1 + shrink), abs=1e-6)
    per_user = averages_of(of_size(1, 1, 1.0, unit_of="user", printed_shrink=True), np.array([0.0, 1, 2, 4]))
    assert per_user.item_means[0] == pytest.approx(3 + 2 / (4 + 15 / 48 * 4), abs=1e-6)


def test_the_covered_items_are_those_of_largest_noisy_count():
    params = of_size(5, 4, INF, items=2)
    first = np.concatenate([[0.0, 20], np.zeros(4), [3, 9, 1, 9]])
    assert averages_of(params, first).covered.tolist() == [1, 3]


def test_without_cleaning_only_what_stands_out_of_its_noise_is_divided():
    params = of_size(5, 2, 1.0, cleaning=False)
    averages = averages_of(params, np.zeros(6))
    scale = scales_for(params, 2, averages.spread)[3]  # of Wgt, on the diagonal
    weak, strong = 2.9 * scale, 3.1 * scale
    noisy = np.array([0.5 * strong, 0.5 * strong, 2 * strong, strong, 3.1 * scale / math.sqrt(2), weak])
    found = similarity_of(params, averages, noisy).covariances
    assert found[0, 0] == pytest.approx(0.5) and found[1, 1] == 0
    assert found[0, 1] == pytest.approx(0.5 * math.sqrt(2), abs=1e-6)


def test_cleaned_covariances_stay_in_their_bounds():
    params = of_size(5, 30, 0.2)
    averages = averages_of(params, noise_for(params, 1, TAPE))
    found = similarity_of(params, averages, noise_for(params, 2, TAPE, averages.spread)).covariances
    assert np.array_equal(found, found.T) and np.abs(found).max() <= 1
    assert np.diagonal(found).min() >= 0.1 - 1e-7


def test_factors_are_the_largest_eigenpairs_and_repeat():
    users = some_users(40, 12, 3)
    params = of_size(40, 12, INF, rank=12)
    model = measured(params, Book.of(users), TAPE)
    scale = np.sqrt(np.maximum(model.averages.item_counts, 5))
    values, vectors = np.linalg.eigh(scale[:, None] * model.similarity.covariances * scale)
    whole = vectors @ np.diag(np.maximum(values, 0)) @ vectors.T / scale[:, None] / scale
    assert model.factors @ model.factors.T == pytest.approx(whole, abs=1e-5)
    again = measured(params, Book.of(users), TAPE)
    assert model.matrix().tobytes() == again.matrix().tobytes()
    few = measured(of_size(40, 12, INF, rank=2), Book.of(users), TAPE)
    assert few.factors == pytest.approx(model.factors[:, :2], abs=1e-6)


def test_another_rating_range_gives_the_same_predictions_scaled():
    """Ratings r of 1 to 5 become 10 r − 10 of 0 to 40: up to this scale, the sums and the noise are the same."""
    users = some_users(30, 8, 4)
    params, wide = of_size(30, 8, 2.0, rank=3), of_size(30, 8, 2.0, rating_range=(0.0, 40.0), rank=3)
    model = measured(params, Book.of(users), TAPE)
    scaled = measured(wide, Book.of([(items, 10 * ratings - 10) for items, ratings in users]), TAPE)
    items, ratings = users[0]
    ours = predictions(params, model, items, ratings, np.arange(8))
    theirs = predictions(wide, scaled, items, 10 * ratings - 10, np.arange(8))
    assert theirs == pytest.approx(10 * ours - 10, abs=1e-4)


def test_an_item_that_is_not_covered_has_the_base_alone():
    users = some_users(30, 8, 5)
    for predictor in ("svd", "knn"):
        params = of_size(30, 8, 5.0, items=3, predictor=predictor)
        model = measured(params, Book.of(users), TAPE)
        items, ratings = np.arange(8), np.array([1.0, 5, 2, 4, 1, 5, 5, 1])
        mean, _ = centre(model.averages.item_means, 20.0, items, ratings)
        above = predictions(params, model, items, ratings, np.arange(8)) - model.averages.item_means - mean
        covered = np.isin(np.arange(8), model.averages.covered)
        assert np.abs(above[~covered]).max() < 1e-12 and np.abs(above[covered]).min() > 1e-6


def test_model_of_the_sums_is_what_measuring_gives():
    users = some_users(10, 5, 6)
    params, book = of_size(10, 5, 2.0), Book.of(some_users(10, 5, 6))
    averages = averages_of(params, sum(first_part(params, *user) for user in users) + noise_for(params, 1, TAPE))
    second = sum(second_part(params, averages, *user) for user in users) + noise_for(params, 2, TAPE, averages.spread)
    assert model_of(params, averages, second).matrix() == pytest.approx(measured(params, book, TAPE).matrix(), abs=1e-6)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"noise": "uniform"}, "noise must be one of gaussian, laplace"),
        ({"unit_of": "item"}, "unit_of must be one of rating, user"),
        ({"predictor": "mean"}, "predictor must be one of svd, knn"),
        ({"budget_global": 0.5}, "must sum to 1"),
        ({"budget_global": -0.02, "budget_items": 0.23}, "must be above 0"),
        ({"clamp": 0.0}, "clamp must be above 0"),
        ({"clamp": 9.0}, "at most 8"),
        ({"rank": 0}, "rank must be 1 or more"),
        ({"neighbours": 0}, "neighbours must be 1 or more"),
        ({"items": -1}, "items must be a whole number, 0"),
        ({"shrink_user": 0.0}, "shrink_user must be above 0"),
        ({"shrink_items": math.nan}, "shrink_items must be above 0"),
    ],
)
def test_nonsense_is_refused_in_words(options, words):
    with pytest.raises(BadInput, match=words):
        of_size(3, 4, **options)


def test_ratings_travel_as_grades_where_a_byte_is_enough():
    for rating_range, step, found in ((STARS, 1.0, 1.0), (STARS, None, 0.0), ((0.0, 100.0), 0.25, 0.0)):
        assert grade_step(Shape(2, 2, rating_range, (), np.zeros(2, np.int64), step)) == found
