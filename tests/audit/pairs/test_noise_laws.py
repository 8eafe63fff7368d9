"""The law of shares: as often wrong as is stated, and as often right; and how many tapes meet a short seed."""

from __future__ import annotations

import numpy as np
import pytest

from sim.audit.pairs import noise_laws
from sim.audit.pairs.noise_laws import LAPLACE, NORMAL, POWER, LawTest, StatedLaw, enough
from sim.audit.pairs.short_seeds import tapes_for
from sim.audit.pairs.twice import Shift

ITEMS, DIM, USERS, TIMES = 5, 4, 3, 6
UNIT = 2.0**-20


def findings(random, degrees, size=lambda user, t: 1.0, rounded=UNIT, cut=np.inf):
    test, law = LawTest(), StatedLaw(np.linspace(1, 3, ITEMS)[:, None] * np.ones(DIM), degrees)
    draw = random.laplace if degrees == LAPLACE else random.normal
    for user in range(USERS):
        for t in range(TIMES):
            drawn = np.clip(draw(size=(ITEMS, DIM)), -cut, cut) * law.scale * size(user, t)
            values = np.rint(drawn / rounded) * rounded
            test.add(user, Shift("rho", t, np.arange(ITEMS, dtype=np.uint32), values, values), values, UNIT, law)
    return test.judge()[1]


@pytest.mark.parametrize("degrees", [NORMAL, LAPLACE])
def test_correct_noise_is_called_wrong_as_seldom_as_is_stated(monkeypatch, degrees):
    random = np.random.default_rng(1)
    assert not any(findings(random, degrees) for _ in range(50))
    monkeypatch.setattr(noise_laws, "FALSE_ALARM", 0.2)
    # 20 % of the groups' χ² test and of the test of tails; 100 runs exceed 55 alarms with a probability below 1e-4
    assert sum(bool(findings(random, degrees)) for _ in range(100)) <= 55


def test_small_coarse_or_cut_noise_is_named():
    random = np.random.default_rng(2)
    (small,) = findings(random, NORMAL, lambda user, t: 0.5 if user == 1 else 1.0)
    assert "of user 1 has 0." in small.title and 0.4 < small.measured < 0.6
    (coarse,) = findings(random, LAPLACE, rounded=16 * UNIT)
    assert "multiples of 16 units" in coarse.title
    (cut,) = [one for one in findings(random, NORMAL, cut=1.6) if "too few large" in one.title]
    assert cut.claimed == 1


def test_enough_values_show_half_of_the_noise_with_the_stated_power():
    values = enough(100)
    random = np.random.default_rng(3)
    energies = (0.25 * random.normal(size=(4000, values)) ** 2).sum(axis=1)
    level = noise_laws.stats.chi2.ppf(noise_laws.FALSE_ALARM / 100, values)
    assert POWER - 0.005 < (energies < level).mean() < POWER + 0.006


def test_so_many_tapes_meet_a_seed_of_sixteen_bits():
    random, tapes = np.random.default_rng(4), tapes_for(16, 0.99)
    seeds = np.sort(random.integers(0, 2**16, (3000, tapes)), axis=1)
    met = (np.diff(seeds, axis=1) == 0).any(axis=1).mean()
    assert tapes == 777 and 0.98 < met < 0.997
