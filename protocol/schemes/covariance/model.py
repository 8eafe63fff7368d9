"""The model that follows from the noisy sums, and both rounds for a party that holds all ratings."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np

from protocol.arithmetic.reals import Reals
from protocol.arithmetic.tape import Tape
from protocol.arrays import Floats, Places
from protocol.schemes.covariance.averages import Averages, averages_of
from protocol.schemes.covariance.options import CovarianceParams
from protocol.schemes.covariance.parts import covered_places
from protocol.schemes.covariance.predicting import by_factors, by_neighbours, known_of, neighbourhood
from protocol.schemes.covariance.round_noise import noise_for, total_label
from protocol.schemes.covariance.similarity import Similarity, item_factors, similarity_of
from protocol.schemes.covariance.totals import Book, first_total, second_total


@dataclass(frozen=True, slots=True, eq=False)
class Model:
    """Everything that may be published. With kNN there are no factors."""

    averages: Averages
    similarity: Similarity
    factors: Floats | None  # V, a row for each covered item

    def matrix(self) -> Floats:
        """Return a row for each item: MAvg, then its factors or covariances, which are 0 if it is not covered."""
        published = self.similarity.covariances if self.factors is None else self.factors
        whole = np.zeros((len(self.averages.item_means), 1 + published.shape[1]))
        whole[:, 0] = self.averages.item_means
        whole[self.averages.covered, 1:] = published
        return whole


def model_of(params: CovarianceParams, averages: Averages, second: Floats) -> Model:
    """Make the model from `second`, the noisy sums of round 2."""
    similarity = similarity_of(params, averages, second)
    factors = item_factors(params, averages, similarity) if params.predictor == "svd" else None
    return Model(averages, similarity, factors)


def first_round(params: CovarianceParams, book: Book, tape: Tape, reals: Reals) -> Averages:
    """Make the averages, as a party that sees every rating and draws the noise."""
    noisy = first_total(params, book) + noise_for(params, 1, tape)
    return averages_of(params, reals.computed(noisy, total_label(0, len(noisy))))


def second_round(params: CovarianceParams, averages: Averages, book: Book, tape: Tape, reals: Reals) -> Model:
    sums = second_total(params, averages, book)
    sums += noise_for(params, 2, tape, averages.spread)
    return model_of(params, averages, reals.computed(sums, total_label(1, len(sums))))


def measured(params: CovarianceParams, book: Book, tape: Tape) -> Model:
    """Carry out both rounds at one party that sees every rating and draws the noise."""
    reals = Reals()
    return second_round(params, first_round(params, book, tape, reals), book, tape, reals)


def predictions(params: CovarianceParams, model: Model, items: Places, ratings: Floats, targets: Places) -> Floats:
    """Predict `targets` from the model and a user's `items` and `ratings`, without clipping to the rating range."""
    known = known_of(params, model.averages)
    if model.factors is not None:
        return by_factors(known, model.factors, items, ratings, targets)
    rows = np.unique(covered_places(known.covered, targets)[0])
    around = neighbourhood(model.similarity, known.covered, items, params.neighbours, rows)
    return by_neighbours(dataclasses.replace(known, covered=known.covered[rows]), around, items, ratings, targets)
