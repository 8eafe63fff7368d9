"""Parameters: defaults and derived values, and the words in which impossible ones are refused."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, ClassVar

import numpy as np
import pytest
from example_shares import Shares
from support.basics import params_with

from protocol.arithmetic.noise import default_clip
from protocol.errors import BadInput
from protocol.params import POSITIVE, RING_BITS, JointRule, Params, declared
from protocol.schemes import SCHEMES, Shape
from protocol.schemes.factorization.factorization import MaskedParams
from sim.foreign.bounds import check_params

GOOD: dict[str, Any] = {
    "scheme": "masked",
    "n_users": 20,
    "n_items": 30,
    "dim": 4,
    "iterations": 10,
    "rating_range": (1.0, 5.0),
    "max_raters": 8,
    "epsilon": 1.0,
}


RINGS = [16, 24, 32, 40, 48, 56, 64]


def made(**changes: Any) -> Params:
    return params_with(**{**GOOD, **changes})[0]


# ---- defaults and derived values


def test_defaults():
    params, notes = params_with(**GOOD)
    assert notes == []
    assert (params.rating_min, params.rating_max, params.rating_span) == (1.0, 5.0, 4.0)
    assert params.noise_scale == 16.0  # 2 * 4 * sqrt(4) / 1
    assert params.clip == 524.0  # 32 * 16 + 3 * 4
    assert (params.learning_rate, params.user_regularisation, params.item_regularisation) == (2.0**-5, 0.001, 0.001)
    assert params.factor_bits == 32
    assert (params.wire, params.dropout_allowance, params.min_contributors) == ("compact", 0.0, 1)
    assert params.ring_bits == 32
    assert params.fraction_bits == 17  # 2 C k = 8384 and q about 38 b = 606: 2^31 over 8990 is 2^17.9


def test_without_an_epsilon_there_is_no_noise():
    params, _ = params_with(**{name: value for name, value in GOOD.items() if name != "epsilon"})
    assert params.epsilon == math.inf
    assert params.noise_scale == 0.0
    assert params.clip == 12.0


def test_a_clip_of_ones_own_is_taken():
    assert made(clip=2).clip == 2.0
    assert made(clip=2).fraction_bits > made().fraction_bits


def test_the_default_clip():
    assert default_clip(2.0, 4.0) == 76.0
    assert default_clip(0.0, 9.0) == 27.0


def test_a_wider_ring_comes_with_a_sentence():
    params, notes = params_with(**{**GOOD, "epsilon": 0.001})
    assert params.ring_bits == 64
    assert len(notes) == 1 and "64 ring bits" in notes[0]


def test_a_dropout_allowance_leaves_room_for_the_wider_noise():
    """One rater, C = 32 b and q about 38 b: with 99 of 100 allowed to drop out q is ten times as wide.

    (64 + 38) b becomes (64 + 380) b, so two fraction bits are lost.
    """
    alone = {"max_raters": 1, "clip": 512.0}
    assert made(**alone).fraction_bits - made(**alone, dropout_allowance=0.99).fraction_bits == 2


@pytest.mark.parametrize("more", [{"iterations": 10**6}, {"n_items": 3 * 10**6}, {"dim": 4096}], ids=str)
def test_every_coordinate_of_every_release_counts_for_the_reach(more):
    """A thousand times as many draws cost one fraction bit.

    The clip is negligible and b = 2^10 / 44, so q is about 38 b < 2^10 for 1200 draws, and more than 44.5 b > 2^10 for
    a thousand times as many.
    """
    few = {"max_raters": 1, "clip": 1e-3}
    epsilon = 16 * 44 / 2**10  # b = 2 * 4 * sqrt(4) / ε
    assert made(**few, epsilon=epsilon).fraction_bits == 21
    wider = math.sqrt(more.get("dim", 4) / 4)  # the same b for more coordinates
    assert made(**few, epsilon=epsilon * wider, **more).fraction_bits == 20


# ---- refusals

REFUSED = [
    ({"epsilon": 0.0}, "--epsilon must be above 0 .*, not 0"),
    ({"epsilon": -1.0}, "--epsilon must be above 0 .*, not -1"),
    ({"epsilon": math.nan}, "--epsilon must be above 0 .*, not nan"),
    ({"epsilon": -math.inf}, "--epsilon must be above 0"),
    ({"dim": 0}, "--dim must be between 1 and 4096, not 0"),
    ({"dim": -3}, "--dim must be .* not -3"),
    ({"dim": 4097}, "--dim must be .* not 4097"),
    ({"iterations": 0}, "--iterations must be between 1 and 10000000, not 0"),
    ({"iterations": 10**7 + 1}, "--iterations must be"),
    ({"n_users": 0}, "between 1 and 4294967295 users, not 0"),
    ({"n_users": 2**32}, "users, not 4294967296"),
    ({"n_items": 0}, "between 1 and 4294967295 items, not 0"),
    ({"n_items": 2**32}, "items, not 4294967296"),
    ({"rating_range": (5.0, 1.0)}, r"rating range 5\.0:1\.0 is empty"),
    ({"rating_range": (3.0, 3.0)}, "is empty"),
    ({"rating_range": (math.nan, 5.0)}, "is empty"),
    ({"rating_range": (1.0, math.inf)}, "is empty"),
    ({"wire": "morse"}, "--wire must be one of compact, paper, not 'morse'"),
    ({"learning_rate": 0.0}, "learning_rate must be above 0, not 0"),
    ({"learning_rate": -0.1}, "learning_rate must be above 0"),
    ({"learning_rate": math.nan}, "learning_rate must be above 0"),
    ({"learning_rate": math.inf}, "learning_rate must be above 0"),
    ({"clip": 0.0}, "clip must be above 0, not 0"),
    ({"clip": -1.0}, "clip must be above 0"),
    ({"clip": math.nan}, "clip must be above 0"),
    ({"clip": math.inf}, "clip must be above 0"),
    ({"user_regularisation": -0.1}, "user_regularisation must be 0 or more"),
    ({"user_regularisation": math.nan}, "user_regularisation must be 0 or more"),
    ({"item_regularisation": -0.1}, "item_regularisation must be 0 or more"),
    ({"item_regularisation": math.inf}, "item_regularisation must be 0 or more"),
    ({"dropout_allowance": -0.1}, r"dropout_allowance must be in \[0, 1\), not -0\.1"),
    ({"dropout_allowance": 1.0}, r"dropout_allowance must be in \[0, 1\), not 1"),
    ({"dropout_allowance": math.nan}, "dropout_allowance must be in"),
    ({"min_contributors": 0}, "min_contributors must be 1 or more.*, not 0"),
    ({"min_contributors": 21}, "min_contributors must be .*20, not 21"),
    ({"min_contributors": 2**32}, "min_contributors must be"),  # as a 32-bit count it would be 0
    ({"max_raters": 0}, "max_raters must be between 1 and 20, not 0"),
    ({"max_raters": 21}, "max_raters must be between 1 and 20, not 21"),
    ({"ring_bits": 8}, "--ring-bits must be one of 16, 24, 32, 40, 48, 56, 64, not 8"),
    ({"ring_bits": 33}, "--ring-bits must be"),
    ({"ring_bits": 72}, "--ring-bits must be"),
    ({"ring_bits": 24.0}, "--ring-bits must be"),
    ({"factor_bits": 8}, "--factor-bits must be 32 or 16, not 8"),
    ({"factor_bits": 64}, "--factor-bits must be 32 or 16, not 64"),
    ({"factor_bits": 16, "wire": "paper"}, "paper's form sends 32-bit numbers"),
    ({"ring_bits": 16}, r"sum of 8 users could wrap mod 2\^16"),
    ({"ring_bits": 32, "epsilon": 0.001}, r"could wrap mod 2\^32"),
    ({"max_raters": 20, "clip": 1e15}, r"could wrap mod 2\^64.*lower the clip.*--ring-bits"),
    ({"epsilon": 1e-14}, "epsilon"),
    ({"epsilon": 1e-310}, "epsilon"),  # the scale of the noise is infinite
    ({"clip": 1e308}, "clip"),  # and so is the sum of such errors
    ({"clip": 1e-320, "epsilon": math.inf}, "clip"),  # there is room for infinitely many fraction bits
]


@pytest.mark.parametrize(("change", "words"), REFUSED, ids=[str(change) for change, _ in REFUSED])
def test_refused_in_words(change, words):
    with pytest.raises(BadInput, match=words):
        made(**change)


def test_an_epsilon_whose_default_clip_is_too_large_is_refused_as_an_epsilon():
    with pytest.raises(BadInput, match="epsilon"):
        made(epsilon=1e-16)


def test_the_edges_are_accepted():
    assert made(dim=1, iterations=1, max_raters=1).iterations == 1
    assert made(max_raters=20).max_raters == 20
    assert made(user_regularisation=0.0, item_regularisation=0.0).user_regularisation == 0.0
    assert made(epsilon=math.inf).noise_scale == 0.0
    assert made(ring_bits=24, epsilon=math.inf).ring_bits == 24
    assert made(ring_bits=64).ring_bits == 64
    assert [made(ring_bits=bits, clip=1.0, max_raters=1, epsilon=math.inf).ring_bits for bits in RING_BITS] == RINGS
    assert made(factor_bits=16).factor_bits == 16
    assert made(factor_bits=32, wire="paper").factor_bits == 32


# ---- frozen, and one digest for one set of parameters


def test_parameters_are_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        made().dim = 3


def other(value: Any) -> Any:
    return value + "x" if isinstance(value, str) else value + 1 if isinstance(value, int) else value * 1.5


@pytest.mark.parametrize("field", [field.name for field in dataclasses.fields(MaskedParams)])
def test_every_field_changes_the_digest(field):
    params = made(dropout_allowance=0.25, profile_ridge=0.5)
    changed = dataclasses.replace(params, **{field: other(getattr(params, field))})
    assert getattr(changed, field) != getattr(params, field)
    assert changed.digest() != params.digest()


def test_equal_parameters_have_equal_digests():
    assert made().digest() == made().digest()
    assert made(rating_range=(1, 5), epsilon=1).digest() == made().digest()  # whole numbers or not
    assert len(made().digest()) == 32


# ---- a family of its own


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PiecesParams(Params):
    pieces: int = declared(lambda value: 2 <= value <= 9, "pieces must be from 2 to 9, not {value}.", 3)
    spread: float = declared(*POSITIVE, otherwise=lambda values: values["rating_max"] - values["rating_min"])

    together: ClassVar[tuple[JointRule, ...]] = (
        *Params.together,
        JointRule("pieces", lambda one: one.pieces <= one.n_users, lambda one: f"{one.n_users} users are too few."),
    )


class Pieces(Shares):
    params_class = PiecesParams
    options: ClassVar[dict[str, Any]] = PiecesParams.defaults("pieces", "spread")


def pieces(n_users: int = 5, **settings: Any) -> PiecesParams:
    shape = Shape(n_users, 4, (1.0, 5.0), (), np.ones(4, np.int64))
    return PiecesParams.of(Pieces().make_params(shape, **settings)[0])


def test_a_family_declares_its_own_few_fields():
    assert Pieces.options == {"pieces": 3, "spread": None}
    made = pieces(pieces=4)
    assert (made.pieces, made.spread, made.iterations, made.dim, made.ring_bits) == (4, 4.0, 1, 1, 64)
    assert set(dataclasses.asdict(made)) == {one.name for one in dataclasses.fields(Params)} | {"pieces", "spread"}
    check_params(made)
    for settings, words in (
        ({"pieces": 1}, "pieces must be from 2 to 9, not 1"),
        ({"spread": 0}, "spread must be above 0, not 0"),
        ({"n_users": 2}, "2 users are too few"),
        ({"epsilon": 0.0}, "--epsilon must be at least 1e-09, not 0"),
    ):
        with pytest.raises(BadInput, match=words):
            pieces(**settings)
    for field, value in (("pieces", 10), ("pieces", 6), ("spread", math.inf), ("pieces", "3")):
        with pytest.raises(ValueError, match=field):
            check_params(dataclasses.replace(made, **{field: value}))


def test_no_family_has_the_fields_of_another():
    fields = {name: {one.name for one in dataclasses.fields(SCHEMES[name].params_class)} for name in SCHEMES}
    own = {"dim", "clip", "ring_bits", "noise", "rho0", "first_scale"}
    assert {name: sorted(found & own) for name, found in fields.items()} == {
        "plain": ["clip", "dim"],
        "trusted": ["dim"],
        "direct": ["clip", "dim"],
        "masked": ["clip", "dim", "ring_bits"],
        "dynamic": ["clip", "dim", "ring_bits"],
        "covariance": ["noise"],
        "covariance-masked": ["noise", "ring_bits"],
        "hybrid": ["noise"],
        "laplace-ratings": ["rho0"],
        "randomized-response": ["rho0"],
        "hardened": ["first_scale", "ring_bits"],
    }
