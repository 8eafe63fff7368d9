"""Small runs for tests: a card and seats from a few numbers; parameters and codecs of any form on the wire."""

from __future__ import annotations

import dataclasses
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from hypothesis import settings
from scipy import stats

from actors.journal import view_path
from actors.own_scheme import load_scheme
from protocol.card import Card, Seat, all_parties, make_run_id, tape_seed
from protocol.params import Params, declared
from protocol.party.role import UserInput, user_name
from protocol.party.view import RECEIVED, read_records
from protocol.schemes import Shape, find_scheme
from protocol.wire.codec import Codec
from protocol.wire.messages import Message
from support.wire import Form

STARS = (1.0, 5.0)
FALSE_ALARM = 1e-6  # a test of a true hypothesis fails for one seed in a million; seeds are fixed

Rated = Mapping[int, float]  # item -> rating, of one user


def all_gone(processes: list[psutil.Process], seconds: float = 5.0) -> bool:
    """Tell whether all processes end in this time; a zombie counts as ended."""
    _, alive = psutil.wait_procs(processes, timeout=seconds)
    return not [process for process in alive if process.status() != psutil.STATUS_ZOMBIE]


def hear_ctrl_c() -> None:
    """Let a new process receive SIGINT: background jobs of a shell ignore it, and their children inherit that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def steadily(examples: int) -> settings:
    """Make Hypothesis try the same examples in every run."""
    return settings(max_examples=examples, derandomize=True, deadline=None, database=None)


def small_ratings(n_users: int, n_items: int) -> list[dict[int, float]]:
    """Rate about two thirds of all pairs; user i rates item i mod n_items in any case."""
    return [
        {j: 1.0 + (3 * i + 2 * j) % 5 for j in range(n_items) if (i + 2 * j) % 3 != 0 or j == i % n_items}
        for i in range(n_users)
    ]


def shape_of(ratings: Sequence[Rated], n_items: int) -> Shape:
    raters = np.bincount([item for rated in ratings for item in rated], minlength=n_items).astype(np.int64)
    whole = all(float(rating).is_integer() for rated in ratings for rating in rated.values())
    step = 1.0 if whole else None
    return Shape(len(ratings), n_items, STARS, tuple(len(rated) for rated in ratings), raters, step=step)


def params_with(
    scheme: str = "masked",
    *,
    n_users: int,
    n_items: int,
    max_raters: int = 1,
    rating_range: tuple[float, float] = STARS,
    **settings: Any,
) -> Any:
    """Make (parameters, sentences) of any size without ratings; `settings` are flags and options."""
    shape = Shape(n_users, n_items, rating_range, (), np.array([max_raters]))
    return find_scheme(scheme).make_params(shape, **settings)


def small_run(
    scheme: str = "masked",
    n_users: int = 4,
    n_items: int = 5,
    dim: int = 2,
    iterations: int = 3,
    epsilon: float = 8.0,
    wire: str = "compact",
    seed: int = 1,
    ratings: Sequence[Rated] | None = None,
    **options: Any,
) -> tuple[Card, list[Seat]]:
    """Prepare a run of `ratings` (by default `small_ratings`); `seed` decides only the tapes and the run id."""
    load_scheme(scheme)
    made = find_scheme(scheme)
    given = small_ratings(n_users, n_items) if ratings is None else ratings
    flags = {name: value for name, value in (("epsilon", epsilon), ("wire", wire)) if name in made.flags}
    sizes = {"dim": dim, "iterations": iterations} if made.factorizes else {}
    params, _ = made.make_params(shape_of(given, n_items), **sizes, **flags, **options)
    run_seed = seed.to_bytes(32, "little")
    names = all_parties(made, len(given))
    card = Card(made, params, make_run_id(params, names, run_seed), simulation=True)
    inputs = {user_name(user): _user_input(rated) for user, rated in enumerate(given)}
    return card, [Seat(name, tape_seed(run_seed, name), inputs.get(name)) for name in names]


def _user_input(rated: Rated) -> UserInput:
    items = sorted(rated)
    return UserInput(np.array(items, np.uint32), np.array([rated[item] for item in items], np.float64))


def received(card: Card, folder: Path, party: str) -> list[tuple[str, Message]]:
    """Read what a party received from its view in the run folder, in order: (sender, message)."""
    with open(view_path(str(folder), party), "rb") as stream:
        records = [record for record in read_records(stream) if record.type == RECEIVED]
    return [(sender, card.codec.decode(frame)[1]) for sender, frame in (record.fields for record in records)]


def uniform_p(values: np.ndarray, cells: int) -> float:
    """Compute the p-value of a chi-square test that 0 … cells-1 are equally likely."""
    return float(stats.chisquare(np.bincount(values.ravel(), minlength=cells)).pvalue)


# --- any form on the wire; what no field asks for is arbitrary -------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class FormParams(Params):
    dim: int = declared()
    ring_bits: int = declared()
    factor_bits: int = declared()
    digit_base: int = declared(otherwise=0)


def params_of(form: Form, dim: int) -> FormParams:
    n_users, n_items = form.packed or (2**32 - 1, 2**32 - 1)
    return FormParams.make(
        scheme="masked",
        n_users=n_users,
        n_items=n_items,
        iterations=1,
        rating_min=1.0,
        rating_max=5.0,
        wire="compact" if form.packed else "paper",
        dim=dim,
        ring_bits=form.ring_bits,
        factor_bits=form.factor_bits,
        digit_base=form.base,
    )


def codec_with(messages: Sequence[type], form: Form, dim: int = 2, max_frame: int = 4096) -> Codec:
    return Codec(messages, params_of(form, dim), max_frame)
