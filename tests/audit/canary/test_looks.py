"""Looks at n, 2n, 4n … repetitions: false alarms within the stated level, and faults that end the canary early."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from support.schemes.noise_faults import HalfNoise

from protocol.schemes.factorization.masked import Masked
from sim.audit.canary import chunks, looks
from sim.audit.canary.bound_rows import ALONE, CONFIDENCE, Statistic, is_beyond, make_row
from sim.audit.canary.empirical import measure
from sim.audit.canary.guesses import guess, laplace_ratio
from sim.audit.canary.looks import Look, look_until, looks_document, looks_in_words, looks_of
from sim.audit.canary.one_run import one_run_p_value

MECHANISMS, MOST_ALARMS = 4000, 246  # at 5 %: exceeded once in 1,000 times
BUDGET, FEWEST = 800, 50


def alarms(random, epsilon, noise, split):
    """Count the mechanisms that are refuted, and the repetitions that they took, all looks at 5 % together."""
    planned, refuted, taken = looks_of(BUDGET, FEWEST), 0, 0
    for _ in range(MECHANISMS):
        truth = random.random(BUDGET) < 0.5
        ratios = laplace_ratio(random.laplace(0, noise, BUDGET) + truth, epsilon)

        def right_at(look, ratios=ratios, truth=truth):
            error = 0.05 * look.part if split else 0.05
            made = guess(ratios[: look.repetitions], truth[: look.repetitions], error)
            return one_run_p_value(look.repetitions, made.number, made.right, epsilon, 0.0) < error

        rows, made, wrong = look_until(planned, right_at, bool)
        assert rows == wrong and made == planned[: len(made)] and (wrong or len(made) == len(planned))
        refuted, taken = refuted + wrong, taken + made[-1].repetitions
    return refuted, taken


def test_looks_double_and_share_the_error():
    assert looks_of(8000) == [Look(1000, 1 / 8), Look(2000, 1 / 8), Look(4000, 1 / 4), Look(8000, 1 / 2)]
    assert looks_of(1999) == [Look(1999, 1.0)]
    assert [look.repetitions for look in looks_of(20_000)] == [1250, 2500, 5000, 10_000, 20_000]
    for budget in (1000, 3000, 8000, 1_000_000):
        planned = looks_of(budget)
        assert sum(look.part for look in planned) == 1 and planned[-1].repetitions == budget
        assert all(look.part >= 2.0 ** -(len(planned) - at) for at, look in enumerate(planned))
    assert Look(1000, 1 / 4).confidence(0.95) == pytest.approx(0.9875)


def test_correct_mechanisms_are_rarely_refuted_at_any_look():
    wrong, taken = alarms(np.random.default_rng(1), 1.0, 1.0, split=True)
    assert 20 < wrong <= MOST_ALARMS and taken > 0.97 * MECHANISMS * BUDGET
    careless, _ = alarms(np.random.default_rng(1), 1.0, 1.0, split=False)
    assert careless > 1.5 * MOST_ALARMS, "which is what the parts of the error are for"


def test_a_mechanism_with_half_of_the_noise_is_refuted_early():
    wrong, taken = alarms(np.random.default_rng(2), 1.0, 0.5, split=True)
    assert wrong == MECHANISMS and taken < MECHANISMS * BUDGET / 4


def test_a_scheme_with_too_little_noise_ends_its_canary_at_the_first_look():
    document, found = measure(None, HalfNoise(), epsilon=1.0, repetitions=8000, workers=1)
    looked = document["looks"]
    assert looked["refuted"] and looked["stopped_early"] and looked["planned"] == 4
    assert looked["made"] == [{"repetitions": 1000, "level": 0.005 / 8}] and looked["level"] == 0.005
    assert document["repetitions_in_all"] == 2000 and document["repetitions"] == 8000
    assert ("missing-noise", "break") in {(one.id, one.severity) for one in found}
    words = looks_in_words(looked)
    assert "after 1,000 repetitions, at a level of 0.5 %" in words and words.endswith("undeclared was refuted.")


def test_declared_weaknesses_do_not_end_it():
    document, found = measure(None, Masked(), epsilon=1.0, repetitions=4000, workers=1)
    looked = document["looks"]
    assert [look["repetitions"] for look in looked["made"]] == [1000, 2000, 4000]
    assert sum(look["level"] for look in looked["made"]) == pytest.approx(1 - CONFIDENCE)
    assert not looked["refuted"] and not looked["stopped_early"]
    assert "known-envelope" in {one.id for one in found if one.severity == "weak"}
    assert "after 1,000, 2,000 and 4,000 repetitions" in looks_in_words(looked)
    brief = measure(None, Masked(), epsilon=1.0, repetitions=1000, workers=1)[0]
    assert len(brief["looks"]["made"]) == 1 and not looks_in_words(brief["looks"])


def test_only_what_is_not_declared_ends_it(monkeypatch):
    @dataclasses.dataclass
    class Declares:
        known_weaknesses: tuple[str, ...]

    random = np.random.default_rng(3)
    truth = random.random(2000) < 0.5
    values = random.laplace(0, 0.2, 2000) + truth
    observed = type("Seen", (), {"greatest": truth, "seconds": 0.0, "__len__": lambda self: 2000})()
    for kind, declared, ends in (
        ("envelope", ("known-envelope",), False),
        ("envelope", (), True),
        ("noise", ("missing-noise",), True),
    ):
        row = make_row(("arm", None, observed, Statistic((), "all", "x", kind, values)), 1.0, CONFIDENCE)
        assert row.exceeds and is_beyond(row, Declares(declared)) is ends
    kept = make_row(("arm", None, observed, Statistic((), "all", "x", "noise", values)), 9.0, CONFIDENCE)
    assert not is_beyond(kept, Declares(()))


def test_a_row_alone_has_its_part_of_the_error_too():
    random = np.random.default_rng(4)
    truth = random.random(2000) < 0.5
    ratios = laplace_ratio(random.laplace(0, 1, 2000) + truth, 1.0)
    observed = type("Seen", (), {"greatest": truth, "seconds": 0.0, "__len__": lambda self: 2000})()
    found = "arm", None, observed, Statistic((), "all", "x", "noise", ratios, ratio=ratios)
    once, half = (make_row(found, 1.0, CONFIDENCE, look.confidence(ALONE)) for look in (Look(1, 1.0), Look(1, 0.5)))
    assert half.alone.epsilon < once.alone.epsilon and half.bound == once.bound


def test_repetitions_of_an_earlier_look_are_not_played_again():
    played, made = {}, []

    def play(problem, seed, first, count):
        made.append((problem, first, count))
        return problem, first, count

    for repetitions in (500, 1000):
        work = [chunks.cut(problem, b"", repetitions) for problem in "ab"]
        parts = chunks.spread(play, work, 1, played=played)
        assert parts == [[(problem, at, 250) for at in range(0, repetitions, 250)] for problem in "ab"]
    assert len(made) == 8 == len(set(made))
    chunks.spread(play, [chunks.cut("a", b"", 500)], 1)
    assert len(made) == 10, "nothing is kept without a sequence of looks"


def test_a_document_of_one_look_says_when_it_ended_early(monkeypatch):
    monkeypatch.setattr(looks, "FEWEST", 500)
    planned = looks_of(2000)
    assert [look.repetitions for look in planned] == [500, 1000, 2000]
    document = looks_document(planned[:2], planned, 0.99, True)
    assert document["level"] == 0.01 and document["stopped_early"]
    assert [look["level"] for look in document["made"]] == [0.0025, 0.0025]
    assert looks_in_words(None) == ""
