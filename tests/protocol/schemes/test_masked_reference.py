"""`masked` in one process on data small enough for the reference to follow every number."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import reference as reference
from support.basics import STARS, received, small_run
from support.runs import by_item, play, unit, with_skippers

from protocol.arithmetic.tape import Tape
from protocol.wire.messages import Contributors, ItemFactorsInFull, MaskedGradient, MaskedTotal, OpenSum, WelcomeInFull


class Followed:
    """A `masked` run on the paper's wire, and the reference beside it.

    Envelopes and masks are read from the users' views, normal draws come from their tapes; the rest is computed anew.
    """

    def __init__(self, folder: Path, absent: dict[int, set[int]] | None = None, **options: Any) -> None:
        self.card, self.seats = small_run(wire="paper", **options)
        self.absent = absent or {}
        if absent:
            self.card = with_skippers(self.card, absent)
        self.run = play(self.card, self.seats, folder, [seat.party for seat in self.seats])
        views = {seat.party: [m for _, m in received(self.card, folder, seat.party)] for seat in self.seats}
        self.sent = {
            (message.iteration, int(sender.removeprefix("user:"))): by_item(message.items, message.values)
            for sender, message in received(self.card, folder, "third_party")
            if isinstance(message, MaskedGradient)
        }
        self.contributors = {m.iteration: m for m in views["recommender"] if isinstance(m, Contributors)}
        self.totals = {m.iteration: m for m in views["recommender"] if isinstance(m, MaskedTotal)}
        self.openings = {m.iteration: m for m in views["third_party"] if isinstance(m, OpenSum)}

        self.inputs = [seat.inputs for seat in self.seats if seat.inputs is not None]
        self.user_views = [views[seat.party] for seat in self.seats if seat.inputs is not None]
        self.n_raters = Counter(int(item) for inputs in self.inputs for item in inputs.items)
        self._prepare()

    def _prepare(self) -> None:
        params = self.card.params
        span = STARS[1] - STARS[0]
        scale = 0.0 if math.isinf(params.epsilon) else 2 * span * math.sqrt(params.dim) / params.epsilon
        self.setting = reference.Setting(
            modulus=1 << params.ring_bits,
            fraction_bits=params.fraction_bits,
            noise_scale=scale,
            clip=params.clip,
            learning_rate=params.learning_rate,
            user_regularisation=params.user_regularisation,
            item_regularisation=params.item_regularisation,
        )
        kept = 1 - Fraction(str(params.dropout_allowance))
        self.floors = {
            item: max(math.ceil(count * kept), params.min_contributors)
            for item, count in sorted(self.n_raters.items())
        }
        tapes = {seat.party: Tape(seat.tape_seed) for seat in self.seats}
        self.tapes = [tapes[f"user:{number}"] for number in range(len(self.inputs))]
        self.item_factors = unit(tapes["recommender"].normal(params.n_items, params.dim, "item factors"))
        self.first_item_factors = [list(row) for row in self.item_factors]
        self.users = {}
        for number, (inputs, tape) in enumerate(zip(self.inputs, self.tapes, strict=True)):
            self.users[number] = reference.User(
                ratings={int(item): rating for item, rating in by_item(inputs.items, inputs.ratings).items()},
                factors=unit(tape.normal(1, params.dim, "user factors"))[0],
                objective_normal=by_item(inputs.items, tape.normal(len(inputs.items), params.dim, "eta", 0)),
            )
        self.objective_envelopes: dict[int, list[float]] = {}
        for inputs, view in zip(self.inputs, self.user_views, strict=True):
            welcome = next(message for message in view if isinstance(message, WelcomeInFull))
            assert welcome.floors.tolist() == [self.floors[int(item)] for item in inputs.items]
            merge(self.objective_envelopes, by_item(inputs.items, welcome.envelopes))

    def dealt(self, t: int) -> reference.Dealt:
        dealt = reference.Dealt(self.floors, {}, {}, {})
        for number, (inputs, view) in enumerate(zip(self.inputs, self.user_views, strict=True)):
            offer = next(m for m in view if isinstance(m, ItemFactorsInFull) and m.iteration == t)
            assert offer.floors.tolist() == [self.floors[int(item)] for item in inputs.items]
            merge(dealt.envelopes, by_item(inputs.items, offer.envelopes))
            draws = self.tapes[number].normal(len(inputs.items), self.card.params.dim, "rho", t)
            dealt.normal[number] = by_item(inputs.items, draws)
            dealt.masks[number] = by_item(inputs.items, offer.masks)
        return dealt

    def present(self, t: int) -> set[int]:
        return set(self.users) - self.absent.get(t, set())

    def step(self, t: int) -> reference.MaskedSum:
        return reference.masked_iteration(
            self.setting,
            self.item_factors,
            self.users,
            self.n_raters,
            self.floors,
            self.objective_envelopes,
            self.dealt(t),
            self.present(t),
        )

    def check(self) -> None:
        """Check every ring element on the wire exactly, and the factors up to the last bits of a dot product."""
        for t in range(self.card.params.iterations):
            expected = self.step(t)
            assert {user: self.sent[t, user] for user in self.present(t)} == expected.sent
            opening, closing, total = self.openings[t], self.contributors[t], self.totals[t]
            assert by_item(opening.items, opening.floors) == self.floors
            assert opening.users.tolist() == list(self.users)
            assert closing.users.tolist() == sorted(self.present(t))
            assert by_item(opening.items, closing.counts) == expected.counts
            assert by_item(total.items, total.values) == expected.totals
        assert len(self.sent) == sum(len(self.present(t)) for t in range(self.card.params.iterations))
        assert self.run.outcome.item_factors == pytest.approx(np.array(self.item_factors), abs=1e-13)
        for number, user in self.users.items():
            role = self.run.parties[f"user:{number}"].role
            assert role.user_factors == pytest.approx(np.array(user.factors), abs=1e-13)
            assert role.clipped == user.clipped


def merge(known: dict[int, list[float]], new: dict[int, list[float]]) -> None:
    """Merge `new` into `known`, and check that all raters of an item were told the same envelope."""
    for item, row in new.items():
        assert known.setdefault(item, row) == row


SETTINGS: dict[str, dict[str, Any]] = {
    "as it comes": {},
    "more noise, three coordinates": {"epsilon": 0.5, "dim": 3, "n_users": 5, "n_items": 6},
    "64 bits": {"ring_bits": 64, "epsilon": 1.0},
    "24 bits, no noise": {"ring_bits": 24, "epsilon": math.inf},
    "16 bits, a small clip": {"ring_bits": 16, "epsilon": math.inf, "clip": 2.0},
    "errors of both signs, clipped": {
        "ratings": [{0: -5.0, 1: 5.0}, {0: -1.0, 1: 3.0}], "n_items": 2, "clip": 2.5, "epsilon": math.inf,
    },
    "other rates": {"learning_rate": 0.25, "user_regularisation": 0.05, "item_regularisation": 0.2},
    "a floor that some items miss": {"min_contributors": 4},
    "one user": {"n_users": 1, "n_items": 2},
}


@pytest.mark.parametrize("options", SETTINGS.values(), ids=SETTINGS.keys())
def test_masked_is_the_reference_iteration_for_iteration(tmp_path, options):
    Followed(tmp_path, **options).check()


ABSENT = {0: {1}, 1: {0, 2}, 3: {0, 1, 2, 3, 4}}


def test_masked_is_the_reference_when_users_stay_away(tmp_path):
    """Iteration 3 has no contributor at all; the deadline closes it like the others."""
    Followed(tmp_path, absent=ABSENT, iterations=5, n_users=5, dropout_allowance=0.5, min_contributors=2).check()


def test_an_item_below_its_floor_is_absent_and_keeps_its_factors(tmp_path):
    """Not even regularisation moves it; the items that reach their floor move."""
    run = Followed(tmp_path, min_contributors=4, item_regularisation=0.5)
    below = [item for item, count in run.n_raters.items() if count < 4]
    above = [item for item, count in run.n_raters.items() if count >= 4]
    assert below and above
    for total in run.totals.values():
        assert total.items.tolist() == sorted(above)
    factors, first = run.run.outcome.item_factors, np.array(run.first_item_factors)
    assert factors[below].tolist() == pytest.approx(first[below], abs=1e-15)
    assert (np.abs(factors[above] - first[above]) > 1e-6).all()


def test_an_item_that_nobody_rated_is_never_opened_and_keeps_its_factors(tmp_path):
    run = Followed(tmp_path, ratings=[{0: 3.0, 2: 4.0}, {2: 1.0, 3: 5.0}], n_items=5)
    assert [opening.items.tolist() for opening in run.openings.values()] == [[0, 2, 3]] * 3
    assert run.run.outcome.item_factors[[1, 4]].tolist() == pytest.approx(
        np.array(run.first_item_factors)[[1, 4]], abs=1e-15
    )
    run.check()


def test_epsilon_infinity_means_no_noise_at_all(tmp_path):
    """The reference without noise gives every number at ε = ∞, but not at ε = 1000."""
    for epsilon in (math.inf, 1e3):
        folder = tmp_path / str(epsilon)
        folder.mkdir()
        run = Followed(folder, epsilon=epsilon, iterations=1)
        run.setting = dataclasses.replace(run.setting, noise_scale=0.0)
        sent = {user: run.sent[0, user] for user in run.users}
        assert (run.step(0).sent == sent) == math.isinf(epsilon)
