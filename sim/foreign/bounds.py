"""Bounds of what a run folder may say, checked before a number in it decides how much memory is taken."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from protocol.params import (
    FACTOR_BITS,
    LEAST_RIDGE,
    MOST_DIM,
    MOST_ITERATIONS,
    MOST_SCALE,
    PUBLISHED,
    RING_BITS,
    WIRES,
    Params,
)
from sim.foreign.untrusted import MOST_NUMBERS

MOST_PARTIES = 10**6  # their names are listed in memory
MOST_ITEMS = 10**7
MOST_WHOLE = 2**53  # any other whole number
MOST_FRACTION_BITS = 64

_TYPES: dict[str, tuple[type, ...]] = {"int": (int,), "float": (int, float), "str": (str,), "bool": (bool,)}


def check_params(params: Params) -> None:
    """Check the type and the range of every parameter; `ValueError` says which one is wrong."""
    for entry in dataclasses.fields(params):
        value, wanted = getattr(params, entry.name), _TYPES.get(getattr(entry.type, "__name__", str(entry.type)))
        if wanted and type(value) not in wanted:
            raise ValueError(f"{entry.name} is of the wrong type")
        if (type(value) is float and math.isnan(value)) or (type(value) is int and abs(value) > MOST_WHOLE):
            raise ValueError(f"{entry.name} is out of range")
    fits = {
        "n_users": 1 <= params.n_users <= MOST_PARTIES,
        "n_items": 1 <= params.n_items <= MOST_ITEMS,
        "dim": 1 <= params.dim <= min(MOST_DIM, MOST_NUMBERS // params.n_items if params.n_items > 0 else 0),
        "iterations": 1 <= params.iterations <= MOST_ITERATIONS,
        "rating_min": -MOST_SCALE <= params.rating_min < params.rating_max,
        "rating_max": params.rating_max <= MOST_SCALE,
        "epsilon": params.epsilon > 0,
        "learning_rate": 0 < params.learning_rate < math.inf,
        "user_regularisation": 0 <= params.user_regularisation < math.inf,
        "item_regularisation": 0 <= params.item_regularisation < math.inf,
        "clip": 0 < params.clip <= MOST_SCALE,
        "max_raters": 1 <= params.max_raters <= params.n_users,
        "wire": params.wire in WIRES,
        "ring_bits": params.ring_bits in RING_BITS,
        "fraction_bits": abs(params.fraction_bits) <= MOST_FRACTION_BITS,
        "factor_bits": params.factor_bits in FACTOR_BITS,
        "dropout_allowance": 0 <= params.dropout_allowance < 1,
        "publish": params.publish in PUBLISHED,
        "profile_ridge": params.profile_ridge == 0 or LEAST_RIDGE <= params.profile_ridge <= MOST_SCALE,
        "min_contributors": 1 <= params.min_contributors <= params.n_users,
    }
    for name, fit in fits.items():
        if not fit:
            raise ValueError(f"{name} is out of range")
    for entry in dataclasses.fields(params):  # integers that a scheme adds are counts, which are never below 0
        if type(value := getattr(params, entry.name)) is int and entry.name not in fits and value < 0:
            raise ValueError(f"{entry.name} is out of range")


_NONE = type(None)
_COUNT, FIGURE, _TEXT = (int,), (int, float, _NONE), (str,)
_EPSILON = (int, float, str, _NONE)  # infinity is written as a text
_COUNTS = {"": _COUNT}  # counts under any names
_ACCOUNTED = {"epsilon": _EPSILON, "delta": (int, float), "method": _TEXT}
_READING = dict.fromkeys(("train_mae", "train_rmse", "test_mae", "test_rmse"), FIGURE)
_SOMETIMES = {  # null or missing in some summaries
    "abort": {"reason": _TEXT, "sentence": _TEXT},
    "accuracy.factor_bits": {
        "bits": _COUNT, "train_mae_cost": FIGURE, "test_rmse_cost": FIGURE, "measured_on": _TEXT,
    },
    "accuracy.as_published": _READING,
    "accuracy.iterate": _READING,
    "accuracy.plain.as_published": _READING,
    "accuracy.plain.iterate": _READING,
    "accuracy.ranking": {
        **dict.fromkeys(("ndcg_10", "hit_10", "recall_10", "popular_ndcg_10"), FIGURE), "users": _COUNT,
    },
    "accuracy.on_device": [{"name": _TEXT, "title": _TEXT, "test_rmse": FIGURE}],
    "bytes.publication": {"total": _COUNT, "per_user": _COUNT},
    "abort.traceback": _TEXT,
    "predictions_sha256": _TEXT,
    "privacy.accounted.basic": _EPSILON,
    "privacy.accounted.advanced": _EPSILON,
    "privacy.accounted.tight": _EPSILON,
    "privacy.accounted.releases": _COUNT,
    "privacy.accounted.recommender": dict.fromkeys(("median", "p99", "worst", "direction_worst"), _EPSILON),
}  # fmt: skip
_SUMMARY: dict[str, Any] = {
    "run": _TEXT,
    "scheme": _TEXT,
    "data": _TEXT,
    "seed": _COUNT,
    "simulation": (bool,),
    "completed": (bool,),
    "notes": [_TEXT],
    "users": _COUNT,
    "items": _COUNT,
    "ratings": {"train": _COUNT, "test": _COUNT},
    "dim": _COUNT,
    "iterations": _COUNT,
    "transport": _TEXT,
    "ring": {"bits": (int, _NONE), "fraction_bits": (int, _NONE)},
    "processes": _COUNTS,
    "accuracy": {
        **dict.fromkeys(("train_mae", "train_rmse", "test_mae", "test_rmse", "mae_increase"), FIGURE),
        "plain": {"train_mae": FIGURE, "test_rmse": FIGURE},
    },
    "privacy": {"unit": _TEXT, "claimed_epsilon": _EPSILON, "accounted": _ACCOUNTED},
    "seconds": dict.fromkeys(("startup", "total", "iteration_median", "iteration_p95"), FIGURE),
    "bytes": {
        "total": _COUNT,
        "edges": _COUNTS,
        "per_iteration": _COUNTS,
        "per_user_iteration": dict.fromkeys(("down_mean", "down_max", "up_mean", "up_max"), FIGURE),
    },
    "rejected": _COUNTS,
    "strangers": _COUNTS,
    "dropouts": _COUNT,
    "restarts": _COUNT,
    "gone": (list,),
    "item_factors_sha256": (str, _NONE),
    "anchor": (str, _NONE),
    "views": {"": {"records": _COUNT, "head": _TEXT}},
}


def check_summary(document: Any) -> None:
    """Check that a summary has the form that every run writes; `ValueError` says where it does not.

    Keys beyond that form may have any value.
    """
    check_form(document, _SUMMARY, "it")
    for path, form in _SOMETIMES.items():
        value = document
        for name in path.split("."):
            value = value.get(name) if type(value) is dict else None
        if value is not None:
            check_form(value, form, path)
    if document["users"] < 1:
        raise ValueError("it has no users")
    if document["completed"] != (document.get("abort") is None):
        raise ValueError("completed and abort contradict each other")


def check_form(value: Any, form: Any, where: str) -> None:
    """Check that `value` has this `form`; `ValueError` says `where` it does not.

    A form is a tuple of types, a list with the form of its entries, or a table of forms; there "" stands for any name.
    """
    if isinstance(form, tuple):
        if type(value) not in form:
            raise ValueError(f"{where} is of the wrong type")
    elif isinstance(form, list):
        check_form(value, (list,), where)
        for entry in value:
            check_form(entry, form[0], where)
    else:
        check_form(value, (dict,), where)
        for name in value if "" in form else form:
            if name not in value:
                raise ValueError(f"{where} has no {name}")
            check_form(value[name], form.get("", form.get(name)), f"{name} of {where}")
