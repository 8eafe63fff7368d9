"""The law of a share: every threshold, the draws, and that nothing on the way to the wire is a float."""

from __future__ import annotations

import ast
import inspect
import math
import re
import textwrap
from collections import Counter
from fractions import Fraction
from pathlib import Path

import mpmath
import numpy as np
import pytest
from scipy import signal, stats
from support.basics import FALSE_ALARM, small_run
from support.runs import play

from protocol.arithmetic import prime_field
from protocol.arithmetic.ring import Ring
from protocol.arithmetic.tape import Tape, keystream
from protocol.schemes import composition
from protocol.schemes.hardened import share_law
from protocol.schemes.hardened.budget import mu_left, mu_of, share_scale, slack_of
from protocol.schemes.hardened.dense_sum import DenseSum
from protocol.schemes.hardened.hardened_roles import HardenedUser, masks_of
from protocol.schemes.hardened.share_law import MOST_SHARE_SCALE, SCALE_BITS, draw_shares
from protocol.wire.fields import RingField

ONE = 1 << SCALE_BITS
PI = "3.14159265358979323846264338327950288419716939937510582097494459230781640628620899862803482534211706798"


def normal_below(x: Fraction) -> Fraction:
    """Compute Φ(x) from its own power series at 0, in exact fractions cut to 400 bits."""
    cut = 1 << 400
    term = total = Fraction(round(x * cut), cut)
    n = 0
    while abs(term) > Fraction(1, 1 << 300):
        n += 1
        term = Fraction(round(-term * x * x / (2 * n) * cut), cut)
        total += term / (2 * n + 1)
    root = Fraction(math.isqrt(int(2 * Fraction(PI) * (1 << 640))), 1 << 320)
    return Fraction(1, 2) + total / root


@pytest.mark.parametrize("s", [2, 3])
def test_the_whole_table_is_that_of_another_library(s):
    """Every threshold of the smallest tables, by mpmath with 400 bits: it shares no line with this code."""
    law = share_law.share_law(s * ONE)
    with mpmath.workprec(400):
        middles = [mpmath.mpf(2 * k + 1) / (2 * s) for k in range(-law.reach, law.reach)]
        exact = [mpmath.erfc(-x / mpmath.sqrt(2)) / 2 for x in middles]
        floors = tuple(int(mpmath.floor(value * (1 << 128))) for value in exact)
    assert len(floors) == 2 * (13 * s + 1) and law.thresholds == floors


@pytest.mark.parametrize("scale", [2 * ONE, 3 * ONE + 1, 185 * ONE + 12345])
def test_every_threshold_is_the_integer_below(scale):
    law = share_law.share_law(scale)
    assert len(law.thresholds) == 2 * law.reach and law.reach > 13 * scale / ONE
    assert list(law.thresholds) == sorted(law.thresholds)
    for k in {-law.reach, -1, 0, 1, law.reach // 3, law.reach // 2, law.reach - 1}:
        exact = normal_below(Fraction((2 * k + 1) * ONE, 2 * scale))
        assert law.thresholds[k + law.reach] == math.floor(exact * (1 << 128)), k


def test_draws_follow_the_table():
    scale, count = 5 * ONE, 400_000
    drawn, law = draw_shares(Tape(bytes(32)), scale, count, "share", 0), share_law.share_law(scale)
    edges = np.array([0, *law.thresholds, 1 << 128], dtype=object)
    chances = np.array([float(Fraction(int(width), 1 << 128)) for width in np.diff(edges)])
    seen = np.bincount(drawn + law.reach, minlength=len(chances))
    often = count * chances > 10
    cells = np.append(seen[often], seen[~often].sum()), count * np.append(chances[often], chances[~often].sum())
    assert stats.chisquare(*cells).pvalue > FALSE_ALARM
    assert np.array_equal(drawn, draw_shares(Tape(bytes(32)), scale, count, "share", 0)), "a retry draws the same"
    assert abs(np.corrcoef(drawn[1:], drawn[:-1])[0, 1]) < 5 / math.sqrt(count)


def test_a_tie_of_the_upper_words_is_decided_by_a_second_word(monkeypatch):
    law = share_law.share_law(2 * ONE)
    place, low = 20, law.thresholds[20] & ((1 << 64) - 1)

    def words_of(second):
        def words(self, count, *name):
            return np.full(count, second if name[0] == "more" else law.thresholds[place] >> 64, np.uint64)

        return words

    for second, drawn in ((low - 1, place), (low, place + 1)):  # just below the threshold, and at it
        monkeypatch.setattr(Tape, "words", words_of(second))
        assert draw_shares(Tape(bytes(32)), 2 * ONE, 1, "share", 0).tolist() == [drawn - law.reach]


INTEGRAL = {"int64", "uint64", "uint32", "uint8", "array", "zeros", "full", "arange", "flatnonzero", "frombuffer"}
SAME = {"ascontiguousarray", "where", "sum", "concatenate"}  # integers of integers
ALLOWED = {"math": {"isqrt"}, "np": INTEGRAL | SAME}
CASTS = {"np.int64", "np.uint64", "self.dtype"}
MAKES_FLOATS = {"float", "complex", "Fraction", "Decimal", "mean", "std", "var", "average", "true_divide"}
FLOAT_TYPE = re.compile(r"[<>=]?(f[248]|float\w*|half|single|double|longdouble)")


def floats_in(tree):
    """Find what is a float or makes one: divisions, powers, such constants and types, functions beyond integers."""
    for node in ast.walk(tree):
        name = getattr(node, "attr", getattr(node, "id", None))
        bad = isinstance(node, ast.Name | ast.Attribute) and name in MAKES_FLOATS
        if isinstance(node, ast.BinOp | ast.AugAssign):
            exponent = getattr(node, "right", getattr(node, "value", None))
            whole = isinstance(exponent, ast.Constant) and type(exponent.value) is int
            bad = isinstance(node.op, ast.Div) or (isinstance(node.op, ast.Pow) and not whole)
        elif isinstance(node, ast.Constant):
            text = isinstance(node.value, str) and FLOAT_TYPE.fullmatch(node.value)
            bad = isinstance(node.value, float | complex) or bool(text)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            bad = bad or node.attr not in ALLOWED.get(node.value.id, {node.attr})
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") in ("astype", "view", "dtype"):
            bad = node.func.attr == "astype" and not {ast.unparse(one) for one in node.args} <= CASTS
        if bad:
            yield ast.unparse(node)


@pytest.mark.parametrize(
    "text",
    ["x / 2", "x /= 2", "x * .5", "float(x)", "x.astype(float)", "x.astype('f8')", "x.view('<f8')", "2 ** -1",
     "x ** n", "x **= -1", "np.sqrt(x)", "math.exp(x)", "np.float64(x)", "x.mean()", "math.pi",
     "np.asarray(x, 'double')", "1j * x", "Fraction(x, 2)"],
)  # fmt: skip
def test_what_makes_a_float_is_seen(text):
    assert list(floats_in(ast.parse(text)))
    assert not list(floats_in(ast.parse("x = (y << 3) // 2 + z ** 2; w = x.astype(np.uint64); v = math.isqrt(w)")))


def test_the_code_of_the_law_has_no_float():
    assert list(floats_in(ast.parse(Path(share_law.__file__).read_text("utf-8")))) == []


def test_the_code_from_a_share_to_the_wire_has_no_float():
    """Also of masks, and of the ring; `from_integers` has other branches, for schemes whose numbers are floats."""
    after = [HardenedUser._upload, masks_of, Tape.words, keystream, RingField.put, Ring._reduce, Ring.add, Ring.zeros]
    after += [Ring.subtract, Ring.uniform, Ring.from_bytes, Ring.to_bytes, Ring.to_signed, Ring.fits, DenseSum.add]
    for function in after:
        assert list(floats_in(ast.parse(textwrap.dedent(inspect.getsource(function))))) == [], function
    (entry,) = ast.parse(textwrap.dedent(inspect.getsource(Ring.from_integers))).body
    _, first, *others = entry.body  # the docstring, then the branch of 64-bit integers
    assert ast.unparse(first.test) == "integers.dtype == np.int64" and isinstance(first.body[-1], ast.Return)
    assert list(floats_in(ast.parse(Path(prime_field.__file__).read_text("utf-8")))) == [], "of proofs"
    assert list(floats_in(first)) == [] and any(list(floats_in(one)) for one in others)


def test_no_float_comes_from_a_share_to_the_wire(monkeypatch):
    """Every array that the ring of any party is given or gives, and every array that becomes bytes, is of integers."""
    card, seats = small_run("hardened", n_users=12, rounds=2)
    entered, seen = [], Counter()

    def whole(name, values):
        for one in values:
            for array in one if isinstance(one, tuple | list) else [one]:
                if isinstance(array, np.ndarray):
                    seen[name] += 1
                    assert array.dtype.kind in "iu", (name, array.dtype)
                assert not isinstance(array, float | np.floating), name

    def watched(name, method):
        def call(self, *given, **named):
            whole(name, given)
            result = method(self, *given, **named)
            whole(name, [result])
            return result

        return call

    names = ["add", "subtract", "uniform", "from_bytes", "to_bytes", "_reduce", "zeros", "to_signed", "fits"]
    for name in names:
        monkeypatch.setattr(Ring, name, watched(name, getattr(Ring, name)))

    class Strict(Ring):
        def from_integers(self, integers, label=None):
            entered.append((label.what, integers.dtype))
            result = super().from_integers(integers, label)
            whole("from_integers", [result])
            return result

    vars(card)["setting"] = type(card.setting)(card.params, card.run_id, Strict(card.params.ring_bits))
    play(card, seats)
    assert set(entered) == {("part", np.dtype(np.int64)), ("share", np.dtype(np.int64))} and len(entered) == 48
    assert set(seen) == {*names, "from_integers"} and seen["to_bytes"] >= 24


# --- the lemmas, in numbers ------------------------------------------------------------------------------------------


def law_of_a_sum(scale: int, shares: int) -> tuple[np.ndarray, np.ndarray]:
    """Convolve the law of the table; return (values, probabilities)."""
    law = share_law.share_law(scale)
    one = np.array([float(Fraction(w, 1 << 128)) for w in np.diff(np.array([0, *law.thresholds, 1 << 128], object))])
    total = one
    for _ in range(shares - 1):
        total = signal.convolve(total, one, method="direct")
    return np.arange(len(total)) - (len(total) - 1) // 2, total


@pytest.mark.parametrize(("s", "shares"), [(2, 2), (2, 7), (3, 5)])
def test_a_sum_of_shares_is_a_rounded_gaussian_with_uniforms(s, shares):
    """Lemma 2, against a numerical convolution of the densities: the error is below double precision."""
    values, total = law_of_a_sum(s * ONE, shares)
    fine = 64  # a grid of 1/64, with the trapezoid rule for N(0, f s²) over f unit boxes, by their transform
    points = len(values) * fine
    t = np.fft.fftfreq(points, 1 / fine)
    transform = np.exp(-2 * np.pi**2 * shares * s * s * t * t) * np.sinc(t) ** shares
    density = np.real(np.fft.ifft(transform)) * fine
    assert np.abs(density[(values * fine) % points] - total).max() < 1e-15


def test_delta_of_the_shares_as_they_are_is_below_the_claim():
    """The exact δ of a sum of integers, moved by a whole number, at the ε that is claimed for it."""
    shares, delta = 6, 1e-5
    for epsilon in (0.5, 1.0, 4.0):
        move = 40
        scale = share_scale(move * move, mu_of(epsilon, delta), shares)
        _, total = law_of_a_sum(scale, shares)
        moved = np.concatenate([np.zeros(move), total])
        here = np.concatenate([total, np.zeros(move)])
        exact = float(np.maximum(here - math.exp(epsilon) * moved, 0).sum())
        assert 0.9 * delta < exact <= delta, (epsilon, exact)


def test_the_accounting_agrees_with_another_library():
    """The distribution of the privacy loss of a Gaussian, by a library that knows nothing of this code."""
    from dp_accounting.pld import privacy_loss_distribution as pld

    for epsilon in (0.5, 1.0, 2.0, 4.0, 8.0):
        mu = mu_of(epsilon, 1e-5)
        assert composition.gaussian_epsilon(mu, 1e-5) <= epsilon
        loss = pld.from_gaussian_mechanism(1 / mu, value_discretization_interval=1e-3)
        assert abs(loss.get_epsilon_for_delta(1e-5) - epsilon) < 2e-3
    # two rounds compose to the root of the sum of squares
    whole = mu_of(2.0, 1e-5)
    parts = [pld.from_gaussian_mechanism(1 / (whole * math.sqrt(part))) for part in (0.75, 0.25)]
    assert abs(parts[0].compose(parts[1]).get_epsilon_for_delta(1e-5) - 2.0) < 2e-3


def test_mu_never_spends_more_than_epsilon_and_hardly_less():
    for epsilon in np.geomspace(1e-3, 20, 25).tolist():
        for delta in (1e-12, 1e-5, 0.1):
            spent = composition.gaussian_delta(mu_of(epsilon, delta), epsilon)
            assert delta * (1 - 1e-5) < spent <= delta, (epsilon, delta)


def test_what_scales_promise():
    square, floor = 2 * 1024**2, 849
    for epsilon in (0.5, 8.0):
        mu = mu_of(epsilon, 1e-5)
        scale = share_scale(square, mu, floor)
        assert mu * (1 - 1e-6) < mu_left([square], [scale], floor) <= mu
        assert mu_left([square], [scale - 1], floor) > mu, "no smaller scale would do"
        assert slack_of(epsilon, [scale], [3364], 943, floor) < 1e-24
    assert share_scale(square, math.inf, floor) == 0 and mu_left([square], [0], floor) == math.inf
    assert slack_of(1.0, [ONE // 4], [3364], 943, floor) > 1, "such shares would not do"
    assert MOST_SHARE_SCALE >> SCALE_BITS == 16384
