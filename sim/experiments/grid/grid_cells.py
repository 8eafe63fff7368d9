"""One cell of a grid: a whole run in this process, and its errors. Predictions are clipped to the rating range.

As in a summary, the figures are for the profile that each user fitted on its device to the published factors. Beside
them are the same figures with the printed λ (`as_published`) and with u_i of the last iteration (`iterate`).
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from actors.metering.accuracy import ProfileErrors, clipped_errors
from protocol.arithmetic.factors import as_sent
from protocol.arrays import Floats
from protocol.params import require
from protocol.party.role import RECOMMENDER, FactorizingRecommender, FactorizingUser, user_name
from protocol.schemes import find_scheme
from sim.drivers.inprocess import InProcess
from sim.experiments.cells import KeyedCell
from sim.foreign.plain_text import jsonable
from sim.plan.config import RunConfig
from sim.plan.plan import Plan, make_plan
from sim.run.baseline import mean_errors, plain_accuracy

THRESHOLDS = (0.5, 1.0, 2.0)
GRID = tuple(step / 10 for step in range(41))  # 0 … 4: no clipped error is larger on a five-star scale

AS_PUBLISHED, ITERATE = BESIDE = ("as_published", "iterate")  # readings beside the device's own
LINE_FORMAT = 2  # lines without a format have the first one, with the figures of the iterate


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell(KeyedCell):
    """A run of a grid."""

    scheme: str
    data: str
    epsilon: float | None  # None: the scheme does not take one
    dim: int
    iterations: int
    seed: int
    test_fraction: float
    rating_range: tuple[float, float] | None = None  # this and the next three: how a file is read, as in `keyhole run`
    columns: str | None = None
    on_duplicate: str = "refuse"
    on_missing: str = "refuse"

    def describe(self) -> dict[str, Any]:
        how = {field.name for field in dataclasses.fields(self) if getattr(self, field.name) == field.default}
        plain = jsonable(dataclasses.asdict(self))
        return {"format": LINE_FORMAT, **{name: value for name, value in plain.items() if name not in how}}

    def config(self) -> RunConfig:
        return RunConfig(**dataclasses.asdict(self), transport="inprocess", views="none")


def takes_epsilon(scheme: str) -> bool:
    made = find_scheme(scheme)
    require(made.factorizes, f"{scheme} has no dimension to put into a grid: use keyhole compare, or --table.")
    return "epsilon" in made.flags


def run_cell(cell: Cell) -> dict[str, Any]:
    """Make the line of this cell. An aborted run has one too: it would abort again."""
    started = time.perf_counter()
    plan = make_plan(cell.config())
    churn = plan.churn()
    driver = InProcess(plan.card, plan.seats(), events_for=churn.events if churn else None)
    outcome = driver.run()
    measured: dict[str, Any] = {}
    if outcome.abort is None and outcome.item_factors is not None:
        measured = _measure(plan, driver, outcome.item_factors)
    return {
        "cell": cell.describe(),
        "seconds": round(time.perf_counter() - started, 3),
        "abort": None if outcome.abort is None else str(outcome.abort),
        "ring": {"bits": plan.card.params.ring_bits, "fraction_bits": plan.card.params.fraction_bits},
        **measured,
    }


def _measure(plan: Plan, driver: InProcess, items: Floats) -> dict[str, Any]:
    """Measure the device's own profiles, and beside them the two other readings."""
    params = plan.card.params
    roles = [driver.parties[user_name(user)].role for user in range(params.n_users)]
    users = [role for role in roles if isinstance(role, FactorizingUser)]
    profiles = [role.profile for role in users if role.profile is not None]
    recommender = driver.parties[RECOMMENDER].role
    trained = recommender.profiles if isinstance(recommender, FactorizingRecommender) else None
    last = np.array([role.user_factors for role in users]) if trained is None else trained
    sent = as_sent(items, params.factor_bits).astype(np.float64)
    plain = plain_accuracy(params, plan.data, plan.run_seed, plan.churn())
    assert plain.as_published is not None and plain.iterate is not None
    if len(profiles) < len(users):  # a scheme that publishes nothing has no other reading
        return {**_reading(plan, last, items, plain.iterate), AS_PUBLISHED: None, ITERATE: None}
    return {
        **_reading(plan, np.array([profile.factors for profile in profiles]), sent, plain),
        AS_PUBLISHED: _reading(plan, np.array([profile.as_printed for profile in profiles]), sent, plain.as_published),
        ITERATE: _reading(plan, last, items, plain.iterate),
    }


def _reading(plan: Plan, users: Floats, items: Floats, plain: ProfileErrors) -> dict[str, Any]:
    """Measure one row of factors for each user, beside the unprotected run that is read in the same way."""

    def errors(held_out: bool) -> Floats:
        parts = [np.zeros(0)]
        for own, data in zip(users, plan.data, strict=True):
            rated, values = (data.held_out_items, data.held_out_values) if held_out else (data.items, data.values)
            parts.append(clipped_errors(values, items[rated] @ own, plan.card.params.rating_range))
        return np.concatenate(parts)

    train, test = errors(held_out=False), errors(held_out=True)
    (train_mae, train_rmse), (test_mae, test_rmse) = mean_errors(train), mean_errors(test)
    assert train_mae is not None and plain.train_mae is not None
    return {
        "train_mae": train_mae,
        "train_rmse": train_rmse,
        "test_mae": test_mae,
        "test_rmse": test_rmse,
        "plain_train_mae": plain.train_mae,
        "plain_test_rmse": plain.test_rmse,
        "mae_increase": train_mae - plain.train_mae,
        "within": dict(zip(map("{:g}".format, THRESHOLDS), shares(train, THRESHOLDS), strict=True)),
        "cdf": shares(train, GRID),
        "test_cdf": shares(test, GRID) if len(test) else None,
    }


def shares(errors: Floats, most: Sequence[float]) -> list[float]:
    """Compute the share of `errors` up to each number of `most`; with 1e-12, an error of .1 + .2 is within .3."""
    places = np.searchsorted(np.sort(errors), np.array(most) + 1e-12, side="right")
    return [float(place) / len(errors) for place in places]
