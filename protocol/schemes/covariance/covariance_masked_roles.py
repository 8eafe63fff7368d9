"""The three roles of `covariance-masked`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from protocol.arithmetic.fixedpoint import FixedPoint
from protocol.arithmetic.ring import Label, everywhere
from protocol.arithmetic.tape import Tape
from protocol.arrays import Floats, Ids, Ints, RingArray
from protocol.attendance import spans
from protocol.errors import Aborted, Reason
from protocol.party.role import (
    RECOMMENDER,
    THIRD_PARTY,
    Done,
    Effects,
    Facts,
    LeadingRecommender,
    PredictingUser,
    Role,
    Send,
    UserInput,
    expect,
    require,
    user_index,
    user_name,
    users_without,
)
from protocol.schemes.base import Setting
from protocol.schemes.covariance import triangle as packing
from protocol.schemes.covariance.averages import Averages, averages_of
from protocol.schemes.covariance.covariance import MOST_FACTOR
from protocol.schemes.covariance.model import Model, model_of, predictions
from protocol.schemes.covariance.options import SPARSE, MaskedCovarianceParams
from protocol.schemes.covariance.parts import covered_places, first_sparse, second_sparse, whole
from protocol.schemes.covariance.round_noise import noise_for, noise_share, round_length, total_label
from protocol.schemes.covariance.similarity import Similarity, noise_scale_of, relative_noise
from protocol.wire.messages import (
    SETUP,
    CovarianceFactors,
    CovariancePairs,
    Event,
    Gone,
    Join,
    MaskedPart,
    MaskWelcome,
    Message,
    OpenPairs,
    PartTotal,
    PublishedAverages,
)

NOTHING = np.zeros(0, np.uint32)
NO_ROWS = np.zeros((0, 1), np.float32)


def params_of(setting: Setting) -> MaskedCovarianceParams:
    return MaskedCovarianceParams.of(setting.params)


def places_of(params: MaskedCovarianceParams, iteration: int, items: Ids, covered: Ints | None) -> Ints:
    """List the places where a user adds: all of them, or in the sparse form those of its own items."""
    if params.form != SPARSE:
        return np.arange(round_length(params, iteration + 1))
    own = items.astype(np.int64)
    if iteration == 0:
        return np.concatenate([[0, 1], 2 + own, 2 + params.n_items + own])
    assert covered is not None
    at, _ = covered_places(covered, items)
    first, second = np.triu_indices(len(at))
    places = packing.positions(at[first], at[second], params.items)
    return np.concatenate([places, packing.packed_length(params.items) + places])


def masks_of(setting: Setting, key: bytes, iteration: int, n: int) -> RingArray:
    return setting.ring.uniform(key, n, 1, setting.run_id, "psi", iteration)


def known_averages(params: MaskedCovarianceParams, means: npt.NDArray[Any], covered: Ids) -> Averages:
    """Make the averages as a user knows them, from what is published."""
    unknown = np.zeros(params.n_items)  # a user needs no noisy counts: the covered items are chosen already
    return Averages(0.0, means.astype(np.float64), unknown, covered.astype(np.int64), params.shrink_user)


class MaskedCovarianceUser(PredictingUser):
    def __init__(self, setting: Setting, tape: Tape, inputs: UserInput) -> None:
        self.setting = setting
        self.params = params_of(setting)
        self.tape = tape
        self.inputs = inputs
        self.mask_key = b""
        self.averages: Averages | None = None
        self.model: Model | None = None

    @property
    def sparse(self) -> bool:
        return self.params.form == SPARSE

    def start(self) -> Effects:
        return [Send(RECOMMENDER, Join(self._named()))]

    def _named(self) -> Ids:
        return self.inputs.items if self.sparse else NOTHING

    def receive(self, sender: str, message: Message) -> Effects:
        kinds = MaskWelcome, PublishedAverages, CovarianceFactors, CovariancePairs
        expect(message, *kinds)
        require(sender == RECOMMENDER, Reason.UNKNOWN_SENDER)
        if isinstance(message, MaskWelcome):
            return self._first(message)
        if isinstance(message, PublishedAverages):
            return self._second(message)
        return self._finish(message)

    def _first(self, welcome: MaskWelcome) -> Effects:
        require(not self.mask_key, Reason.WRONG_KIND)
        require(len(welcome.counts) == len(self._named()), Reason.WRONG_LENGTH)
        counts = welcome.counts
        require(everywhere((counts >= 1) & (counts <= self.params.n_users)), Reason.OUT_OF_RANGE)
        self.mask_key = welcome.mask_key
        self.iteration = 0
        part = first_sparse(self.params, self.inputs.items, self.inputs.ratings)
        per_item = welcome.counts.astype(np.float64)
        everybody = np.full(2, float(self.params.n_users))
        return self._answer(0, part, np.concatenate([everybody, per_item, per_item]), None)

    def _second(self, published: PublishedAverages) -> Effects:
        params = self.params
        require(self.iteration == 0 and published.iteration == 1, Reason.WRONG_ITERATION)
        require(len(published.averages) == params.n_items, Reason.WRONG_LENGTH)
        require(len(published.covered) == params.items, Reason.WRONG_LENGTH)
        require(published.covered[-1] < params.n_items, Reason.UNKNOWN_ITEM)
        means = published.averages[:, 0]
        require(everywhere((means >= params.rating_min) & (means <= params.rating_max)), Reason.OUT_OF_RANGE)
        averages = known_averages(params, means, published.covered)
        at, _ = covered_places(averages.covered, self.inputs.items)
        pairs = packing.packed_length(len(at)) if self.sparse else 0
        require(len(published.counts) == pairs, Reason.WRONG_LENGTH)
        counts = published.counts[:, 0].astype(np.float64)
        require(everywhere((counts >= 1) & (counts <= params.n_users)), Reason.OUT_OF_RANGE)
        self.averages, self.iteration = averages, 1
        part = second_sparse(params, averages, self.inputs.items, self.inputs.ratings)
        return self._answer(1, part, np.concatenate([counts, counts]), averages)

    def _answer(
        self, iteration: int, part: tuple[Ints, Floats], counts: Floats, averages: Averages | None
    ) -> Effects:
        """Send enc(part) + enc(noise share) + ψ; the two are encoded separately, for an audit to tell them apart."""
        params, ring = self.params, self.setting.ring
        covered, spread = (averages.covered, averages.spread) if averages else (None, 0.0)
        places = places_of(params, iteration, self.inputs.items, covered)
        values = part[1]
        if not self.sparse:
            values = whole(params, iteration + 1, part)
            counts = np.full(len(places), float(params.n_users))
        noise = noise_share(params, iteration + 1, self.tape, places, counts, spread)
        ids, fixed = places.astype(np.uint32), FixedPoint(ring, params.fraction_bits_of(iteration))
        sent = ring.add(
            fixed.encode(values[:, None], Label("part", iteration, ids)),
            fixed.encode(noise[:, None], Label("share", iteration, ids, counts.astype(np.uint32))),
            masks_of(self.setting, self.mask_key, iteration, len(places)),
        )
        return [Send(THIRD_PARTY, MaskedPart(iteration, self._named(), sent))]

    def _finish(self, published: CovarianceFactors | CovariancePairs) -> Effects:
        params = self.params
        require(self.averages is not None and self.model is None, Reason.WRONG_KIND)
        assert self.averages is not None
        kind = CovarianceFactors if params.predictor == "svd" else CovariancePairs
        require(isinstance(published, kind), Reason.WRONG_KIND)
        noise = relative_noise(params, noise_scale_of(params, self.averages))
        if isinstance(published, CovarianceFactors):
            rows = _checked(published.factors, params.items * params.rank, MOST_FACTOR * params.unit)
            nothing, factors = np.zeros((0, 0)), rows.reshape(params.items, params.rank)
            self.model = Model(self.averages, Similarity(nothing, nothing, noise), factors)
        else:
            triangle = packing.packed_length(params.items)
            largest = params.clamp**2 * (1 + 1e-6)  # float32
            covariances = packing.unpack(_checked(published.covariances, triangle, largest), params.items)
            weights = packing.unpack(_checked(published.weights, triangle, np.inf), params.items)
            self.model = Model(self.averages, Similarity(covariances, weights, noise), None)
        self.iteration = params.iterations
        return [Done()]

    def predict(self, items: Ids) -> Floats:
        assert self.model is not None
        return predictions(self.params, self.model, self.inputs.items, self.inputs.ratings, items)


def _checked(rows: npt.NDArray[np.float32], count: int, largest: float) -> Floats:
    require(len(rows) == count, Reason.WRONG_LENGTH)
    require(everywhere(np.abs(rows) <= largest), Reason.OUT_OF_RANGE)
    return rows[:, 0].astype(np.float64)


class PartHolder(Role):
    """The third party: it adds values that it cannot read, and sends only the total over all users."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.params = params_of(setting)
        self.iteration = 0
        self.heard: dict[int, Ids] = {}  # the users that added in this iteration, and the items that they named
        self.named: dict[int, Ids] = {}  # the same for iteration 0: iteration 1 must agree with it
        self.covered: Ints | None = None
        self.waiting: list[tuple[Ids, RingArray]] = []  # sparse form: parts of iteration 1 that came before `OpenPairs`
        self.total: RingArray = setting.ring.zeros(round_length(self.params, 1), 1)

    def awaited(self) -> Sequence[str]:
        return users_without(self.params.n_users, self.heard) or (RECOMMENDER,)

    def receive(self, sender: str, message: Message) -> Effects:
        if isinstance(message, OpenPairs):
            return self._open(sender, message)
        part = expect(message, MaskedPart)
        user, params = user_index(sender), self.params
        require(0 <= user < params.n_users, Reason.UNKNOWN_SENDER)
        require(part.iteration == self.iteration < params.iterations, Reason.WRONG_ITERATION)
        require(user not in self.heard, Reason.DUPLICATE)
        require((len(part.items) > 0) == (params.form == SPARSE), Reason.WRONG_LENGTH)
        require(not len(part.items) or part.items[-1] < params.n_items, Reason.UNKNOWN_ITEM)
        if self.iteration:
            require(np.array_equal(part.items, self.named[user]), Reason.UNKNOWN_ITEM)
        require(self.setting.ring.fits(part.values, (len(part.values), 1)), Reason.OUT_OF_RANGE)
        if params.form == SPARSE and self.iteration and self.covered is None:
            self.waiting.append((part.items, part.values))
        else:
            self._add(part.items, part.values)
        self.heard[user] = part.items
        return self._tell()

    def _open(self, sender: str, opening: OpenPairs) -> Effects:
        require(sender == RECOMMENDER, Reason.UNKNOWN_SENDER)
        require(self.iteration == opening.iteration == 1 and self.covered is None, Reason.WRONG_ITERATION)
        require(len(opening.covered) == self.params.items, Reason.WRONG_LENGTH)
        require(opening.covered[-1] < self.params.n_items, Reason.UNKNOWN_ITEM)
        self.covered = opening.covered.astype(np.int64)
        for items, values in self.waiting:
            if len(values) != len(places_of(self.params, 1, items, self.covered)):  # it cannot be refused any more
                raise Aborted(Reason.DISAGREEMENT, "a part of round 1 is about other items than the opening")
        for items, values in self.waiting:
            self._add(items, values)
        self.waiting = []
        return self._tell()

    def _add(self, items: Ids, values: RingArray) -> None:
        places = places_of(self.params, self.iteration, items, self.covered)
        require(len(values) == len(places), Reason.WRONG_LENGTH)
        self.total = added(self.setting, self.total, places, values)

    def _tell(self) -> Effects:
        ready = self.iteration == 0 or self.covered is not None
        if len(self.heard) < self.params.n_users or not ready:
            return []
        told = Send(RECOMMENDER, PartTotal(self.iteration, self.total))
        self.named, self.heard = self.heard, {}
        self.iteration += 1
        self.total = self.setting.ring.zeros(round_length(self.params, 2), 1)
        return [told] if self.iteration < self.params.iterations else [told, Done()]


def added(setting: Setting, total: RingArray, places: Ints, values: RingArray) -> RingArray:
    """Return a new total and leave `total` as it is: a role that refuses a message must not change."""
    if len(places) == len(total):
        return setting.ring.add(total, values)
    total = total.copy()
    total[places] = setting.ring.add(total[places], values)
    return total


class MaskedCovarianceRecommender(LeadingRecommender):
    def __init__(self, setting: Setting, tape: Tape) -> None:
        self.setting = setting
        self.params = params_of(setting)
        self.tape = tape
        self.supports: dict[int, Ids] = {}  # empty lists in the dense form
        self.averages: Averages | None = None
        self.model: Model | None = None
        self.done = False

    def facts(self) -> Facts:
        everyone = spans(self.supports)
        if self.iteration == 1 and self.params.form == SPARSE:
            assert self.averages is not None
            cells = [len(covered_places(self.averages.covered, items)[0]) for items in self.supports.values()]
            return {"invited": everyone, "contributors": everyone, "cells": cells}
        return super().facts()

    def tick(self, event: Event) -> Effects:
        if isinstance(event, Gone) and not self.done:
            raise Aborted(Reason.PARTY_DIED, f"{user_name(event.user)}, before both sums were made")
        return []

    def awaited(self) -> Sequence[str]:
        return users_without(self.params.n_users, self.supports) if self.iteration == SETUP else (THIRD_PARTY,)

    def receive(self, sender: str, message: Message) -> Effects:
        if isinstance(message, Join):
            return self._join(sender, message)
        total = expect(message, PartTotal)
        require(sender == THIRD_PARTY, Reason.UNKNOWN_SENDER)
        require(total.iteration == self.iteration < self.params.iterations, Reason.WRONG_ITERATION)
        rows = round_length(self.params, self.iteration + 1)
        require(self.setting.ring.fits(total.values, (rows, 1)), Reason.OUT_OF_RANGE)
        noisy = self.setting.reals.computed(self._opened(total.values), total_label(self.iteration, rows))
        self.last_invited = self.last_contributors = tuple(self.supports)
        return self._publish_averages(noisy) if self.iteration == 0 else self._publish(noisy)

    def _join(self, sender: str, message: Join) -> Effects:
        user, items = user_index(sender), message.items
        require(0 <= user < self.params.n_users, Reason.UNKNOWN_SENDER)
        require(self.iteration == SETUP, Reason.WRONG_KIND)
        require(user not in self.supports, Reason.DUPLICATE)
        require((len(items) > 0) == (self.params.form == SPARSE), Reason.WRONG_LENGTH)
        require(not len(items) or items[-1] < self.params.n_items, Reason.UNKNOWN_ITEM)
        self.supports[user] = items
        if len(self.supports) < self.params.n_users:
            return []
        self.supports = dict(sorted(self.supports.items()))
        self.iteration = 0
        raters = self._counts(0)[2 : 2 + self.params.n_items].astype(np.uint32)
        return [
            Send(user_name(user), MaskWelcome(self.tape.key("mask", user), raters[items]))
            for user, items in self.supports.items()
        ]

    def _counts(self, iteration: int) -> Ints:
        """Count the users that add to each place."""
        if self.params.form != SPARSE:
            return np.full(round_length(self.params, iteration + 1), self.params.n_users)
        counts = np.zeros(round_length(self.params, iteration + 1), np.int64)
        for items in self.supports.values():
            counts[self._places(iteration, items)] += 1
        return counts

    def _places(self, iteration: int, items: Ids) -> Ints:
        return places_of(self.params, iteration, items, self.averages.covered if self.averages else None)

    def _opened(self, words: RingArray) -> Floats:
        """Subtract the masks and decode; where no user added a share, add noise that the recommender draws."""
        setting, params, t = self.setting, self.params, self.iteration
        masks = setting.ring.zeros(len(words), 1)
        for user, items in self.supports.items():
            places = self._places(t, items)
            masks = added(setting, masks, places, masks_of(setting, self.tape.key("mask", user), t, len(places)))
        fixed = FixedPoint(setting.ring, params.fraction_bits_of(t))
        noisy = fixed.decode(setting.ring.subtract(words, masks))[:, 0]
        if params.form == SPARSE:
            spread = self.averages.spread if self.averages else 0.0
            own = noise_for(params, t + 1, self.tape, spread)
            unit = 2.0 ** -params.fraction_bits_of(t)  # the grid of users' sums: off it, empty places would show
            noisy = noisy + np.where(self._counts(t) == 0, np.rint(own / unit) * unit, 0.0)
        return noisy

    def _publish_averages(self, noisy: Floats) -> Effects:
        averages = averages_of(self.params, noisy)
        self.averages, self.iteration = averages, 1
        means, covered = averages.item_means.astype(np.float32)[:, None], averages.covered.astype(np.uint32)
        sends = [Send(THIRD_PARTY, OpenPairs(1, covered))]
        counts = self._counts(1).astype(np.float32) if self.params.form == SPARSE else None
        for user, items in self.supports.items():
            pairs = NO_ROWS
            if counts is not None:
                places = self._places(1, items)
                pairs = counts[places[: len(places) // 2]][:, None]
            sends.append(Send(user_name(user), PublishedAverages(1, means, covered, pairs)))
        return sends

    def _publish(self, noisy: Floats) -> Effects:
        assert self.averages is not None
        self.model = model = model_of(self.params, self.averages, noisy)
        self.iteration, self.done = self.params.iterations, True
        if model.factors is not None:
            last: Any = CovarianceFactors(model.factors.astype(np.float32).reshape(-1, 1))
        else:
            both = (model.similarity.covariances, model.similarity.weights)
            last = CovariancePairs(*(packing.pack(matrix).astype(np.float32)[:, None] for matrix in both))
        return [*(Send(user_name(user), last) for user in self.supports), Done(model.matrix())]
