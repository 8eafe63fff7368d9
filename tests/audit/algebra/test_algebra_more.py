"""Where the exact linear answer could go wrong: odd courses of a run, noise that is hard to count, and more faults."""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from scipy.sparse import csr_array
from support.audit import audited
from support.brute import Brute, kernel
from support.runs import Directed, Leaving

import sim.run.run
from actors.own_scheme import load_scheme
from protocol.errors import BadInput
from protocol.party.role import user_index
from protocol.party.view import Broken
from sim.audit.algebra import knowledge
from sim.audit.algebra.eliminate import left_kernel
from sim.audit.algebra.grade import grade
from sim.audit.algebra.knowledge import Library
from sim.audit.algebra.omega import LONGEST, OMEGA, in_reals
from sim.audit.algebra.solve import findings, solve
from sim.audit.algebra.symbolic_run import SymbolicRerun
from sim.plan.config import RunConfig
from sim.views.evidence import Case, open_case
from tests.audit.algebra.test_algebra import RATINGS


class Laggard(Leaving):
    driver: Eventful

    def send(self, step):
        driver, name = self.driver, self.party.name
        if user_index(name) in driver.late_committers:
            first = self.party.role.attempt == 0
            for out in [out for out in step.sends if out.kind == "BlindedShare" and first]:
                driver.late.append(((name, out.to), out.frame))
                step.sends.remove(out)
        super().send(step)
        if driver.steps is not None:
            driver.steps -= 1
            if driver.steps < 0:
                raise KeyboardInterrupt


class Eventful(Directed):
    """A run with answers and commitments that come too late, users that leave, and an end after `steps` steps."""

    kind = Laggard
    course: ClassVar[dict] = {}

    def __init__(self, *given, **settings):
        course = dict(self.course)
        self.late_committers, self.steps = course.pop("late_committers", ()), course.pop("steps", None)
        super().__init__(*given, **{**settings, **course})


@pytest.fixture
def eventful(tmp_path, monkeypatch):
    """Give a function that runs `ratings` and `flags` with the events of `course`; the run need not complete."""

    def make(ratings, scheme, course, **flags) -> Case:
        pairs = [(user, item, value) for user, rated in enumerate(ratings) for item, value in rated.items()]
        lines = [f"u{user:03},i{item:03},{value}" for user, item, value in pairs]
        folder = Path(tmp_path) / f"run{len(list(tmp_path.iterdir()))}"
        data = folder.with_suffix(".csv")
        data.write_text("user,item,rating\n" + "\n".join(lines) + "\n")
        load_scheme(scheme)
        monkeypatch.setattr(Eventful, "course", course)
        monkeypatch.setattr(sim.run.run, "InProcess", Eventful)
        given = {"transport": "inprocess", "test_fraction": 0.0, "seed": 1, "dim": 2, "iterations": 3, **flags}
        sim.run.run.run(RunConfig(scheme=scheme, data=str(data), rating_range=(1.0, 5.0), **given), out=folder)
        return open_case(folder)

    return make


def library_of(case) -> Library:
    hearing = SymbolicRerun(case).run()
    assert hearing.complete
    return Library(hearing, case.card.params.ring_bits)


def check_against_brute_force(case, sizes=(1, 2, 3)) -> set[str]:
    library, levels = library_of(case), set()
    brute = Brute(library.hearing, library.bits)
    for members in itertools.chain(*(itertools.combinations(case.parties, size) for size in sizes)):
        answer, expected = grade(library, members), brute.determines(members)
        assert (members, answer.determines) == (members, expected)
        if not {"recommender", "third_party"}.issubset(members):
            assert (members, answer.unexplained) == (members, 0)  # the published schemes give away sums only
        assert all(part <= case.card.params.iterations**2 for part in answer.noise_left.values())
        if len(members) == 1 and members[0].startswith("user"):
            assert grade(library, members, thinned=True).determines == expected
        levels.add(expected)
    return levels


def breaks(case, *extra):
    return {(one.id, one.coalition) for one in findings(case, solve(case, extra)) if one.severity == "break"}


# --- odd courses -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wire", ["compact", "paper"])
@pytest.mark.parametrize("seed", [1, 2])
def test_late_answers_late_commitments_and_deaths_against_brute_force(eventful, wire, seed):
    rng = random.Random(seed)
    pick = {t: frozenset(rng.sample(range(5), 1)) for t in range(5)}
    course = {"silent": pick, "gone": {3: frozenset({4})}, "late_committers": (1, 2), "order": seed}
    options = {"committers": 2, "dropout_allowance": 0.5, "min_contributors": rng.choice([1, 2])}
    flags = {"wire": wire, "seed": seed, "iterations": 5, "join": 0.6, "leave": 0.2, "options": options}
    case = eventful(RATINGS, "dynamic", course, **flags)
    assert len(check_against_brute_force(case, (1, 2, 5))) >= 3


@pytest.mark.parametrize("steps", [8, 30, 60])
def test_a_run_that_was_stopped_and_then_resumed(eventful, monkeypatch, steps):
    case = eventful(RATINGS, "dynamic", {"steps": steps}, wire="paper", join=0.0, leave=0.0, options={"committers": 2})
    before = check_against_brute_force(case, (1, 2))
    assert before == {"nothing"} or steps == 60
    monkeypatch.setattr(Eventful, "course", {})
    assert sim.run.run.resume(case.folder)["completed"]
    assert check_against_brute_force(case, (1, 2)) == {"nothing", "aggregate", "noisy-individual"}


def test_factors_that_are_told_long_after_the_last_sum_give_it_away(eventful):
    """No user answers from iteration 2 on. User 3 is there at 0, away at 2 and 3, and back at 4 or 5."""
    silent = {t: frozenset(range(4)) for t in range(2, 6)}
    flags = {"iterations": 6, "join": 0.4, "leave": 0.5, "options": {"committers": 2}, "seed": 1}
    case = eventful([{0: 5, 1: 2}, {0: 4, 1: 3}, {0: 3}, {1: 4}], "dynamic", {"silent": silent}, **flags)
    library = library_of(case)
    times = [t for t, _ in library.hearing.heard["user:3"].sightings]
    assert times[0] <= 1 and min(t for t in times if t > 1) > library.release_times.max() + 1
    assert grade(library, ("user:3",)).determines == "aggregate"
    check_against_brute_force(case)


def test_a_sum_of_one_contributor_stays_one_when_opening_it_ends_the_run(eventful):
    flags = {"iterations": 60, "factor_bits": 16, "ring_bits": 64, "options": {"learning_rate": 8.0, "clip": 1e6}}
    case = eventful([{0: 5, 1: 4}, {0: 4}, {0: 3}], "masked", {}, **flags)
    alone = {one.members: one.answer for one in solve(case)}[("recommender",)]
    assert alone.determines == "aggregate"
    assert alone.single_contributor_sums * 2 == alone.sums + alone.single_contributor_sums  # one of each per iteration
    assert not breaks(case)


def test_envelopes_alone_are_no_figures_about_users(eventful):
    """In the paper's wire they are floats from a server; here no sum reaches its floor."""
    everyone = {t: frozenset(range(5)) for t in range(3)}
    case = eventful(RATINGS, "masked", {"silent": everyone}, wire="paper")
    levels = {one.members: one.answer.determines for one in solve(case)}
    # the answers reached the third party too late and were refused, but it has seen them
    assert levels.pop(("recommender", "third_party")) == "noisy-individual"
    assert set(levels.values()) == {"nothing"}


def test_views_that_do_not_account_for_each_other_are_refused(eventful):
    case = eventful(RATINGS, "masked", {})
    view = case.path("user:1")
    whole = view.read_bytes()
    view.write_bytes(whole[:-20])  # half of its last record, as a kill leaves it: the signature
    assert {one.answer.determines for one in solve(case)} == {"nothing", "aggregate", "noisy-individual"}
    view.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(Broken, match="no other view accounts for"):
        solve(case)


def test_without_the_users_views_it_says_what_to_do(eventful):
    with pytest.raises(BadInput, match="--views full"):
        solve(eventful(RATINGS, "masked", {}, views="servers"))


def test_rows_that_follow_from_others_make_no_difference(tmp_path, monkeypatch):
    flags = {"join": 0.3, "leave": 0.4, "iterations": 5, "options": {"committers": 2}, "seed": 3}
    case = audited(tmp_path, RATINGS, "dynamic", wire="paper", **flags)
    library = library_of(case)
    coalitions = [m for size in (1, 2, 3) for m in itertools.combinations(case.parties, size)]
    whole = [grade(library, members) for members in coalitions]
    monkeypatch.setattr(knowledge, "MANY", 0)
    fewer = [grade(library, members) for members in coalitions]
    kept = ("determines", "individuals", "single_contributor_sums", "exact_sums")
    assert [[getattr(one, name) for name in kept] for one in fewer] == [
        [getattr(one, name) for name in kept] for one in whole
    ]


def test_a_user_who_has_a_sum_twice_has_it_once(tmp_path):
    """It has the sum as a ring value and through the factors; thinning must keep the same symbols of both."""
    four = [{0: 1 + user} for user in range(4)]
    library = library_of(audited(tmp_path, four, "support.schemes.leaky:TellsTheSums"))
    for thinned in (False, True):
        answer = grade(library, ("user:1",), thinned=thinned)
        assert (answer.determines, answer.exact_sums) == ("aggregate", 0)


# --- noise -----------------------------------------------------------------------------------------------------------


def test_noise_that_happens_to_be_rounded_to_zero_is_noise_all_the_same(tmp_path):
    """Coarse numbers, one item, dim 1: now and then a share is zero, but no party knows that."""
    case = audited(tmp_path, [{0: 5}, {0: 4}, {0: 3}], dim=1, iterations=20, epsilon=80.0, ring_bits=16, seed=1)
    library = library_of(case)
    assert any(block.zeros for block in library.hearing.arena.blocks)
    assert not library.forms.nought.any()
    assert not breaks(case)


def test_noise_that_one_user_never_adds_is_missed(tmp_path):
    case = audited(tmp_path, RATINGS, "support.schemes.leaky:OneWithoutNoise", iterations=10)
    both = {one.members: one.answer for one in solve(case)}[("recommender", "third_party")]
    assert both.determines == "exact-individual" and both.individuals == 1


def test_noise_over_a_gap_is_counted_in_reals(eventful):
    """A user that is told v_j before and after g sums has g² of a constant η and g of ρ, whichever users share them."""
    options = {"committers": 2, "min_contributors": 2}
    flags = {"iterations": 8, "join": 0.6, "leave": 0.0, "online": 3, "options": options}
    gaps = 0
    for seed in (1, 2):
        library = library_of(eventful([{0: 1 + user % 5} for user in range(8)], "dynamic", {}, seed=seed, **flags))
        for user in map("user:{}".format, range(8)):
            times = sorted(t for t, _ in library.hearing.heard[user].sightings)
            released = {entry.iteration for entry in library.hearing.releases}
            lengths = [len(released & set(range(*pair))) for pair in itertools.pairwise(times)]
            answer = grade(library, (user,))
            committed = any(b.owner == user and b.what == "eta" for b in library.hearing.arena.blocks)
            if lengths and min(lengths) > 1 and not committed and answer.determines == "aggregate":
                assert answer.noise_left["eta"] == pytest.approx(min(lengths) ** 2)
                gaps += 1
    assert gaps


@pytest.mark.parametrize("bits", [16, 32, 64])
def test_coefficients_in_reals(bits):
    unit = 3 * OMEGA**5  # any unit: the row may be a multiple
    whole = [1, -1, OMEGA**3, 1 + OMEGA + OMEGA**2, pow(OMEGA, -1, 1 << 64), 7]
    words = np.array([(unit * word + (1 << 63)) % (1 << 64) - (1 << 63) for word in whole], np.int64)
    rows = csr_array((words, (np.zeros(6, int), np.arange(6))), shape=(1, 6))
    reals = in_reals(rows, np.arange(6) == 0, bits)
    assert np.abs(reals).tolist() == [1, 1, 1, 3, 1, 7]
    assert LONGEST >= 100


def test_the_least_noise_uses_all_that_is_known_of_it(eventful):
    """The same α in two attempts: the recommender then knows differences of shares, and η hides less than it should."""
    options = {"wire": "compact", "join": 0.0, "leave": 0.0, "options": {"committers": 2}}
    broken = eventful(RATINGS, "support.schemes.leaky:ReusesAlpha", {"late_committers": (1, 2)}, **options)
    alone = {one.members: one.answer for one in solve(broken)}[("recommender",)]
    assert alone.noise_left["eta"] < 0.9
    assert ("missing-noise", ("recommender",)) in breaks(broken)
    assert not breaks(eventful(RATINGS, "dynamic", {"late_committers": (1, 2)}, **options))


# --- low bits --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(8))
def test_the_kernel_with_even_coefficients_is_that_of_brute_force(seed):
    """Both generate the same module: each generator of one is a combination of the other's."""
    bits, rng = 8, np.random.default_rng(seed)
    dense = rng.integers(0, 4, (6, 7)) * rng.integers(0, 2, (6, 7)) * rng.choice([1, 2, 4], (6, 7))
    unwanted = np.arange(7) < 4
    found = left_kernel(csr_array(dense.astype(np.int64)), unwanted, bits, ~unwanted).rows.toarray()
    assert not found[:, unwanted].any()
    rows = [{column: int(value) for column, value in enumerate(row) if value} for row in dense]
    expected = kernel(rows, set(range(4)), 1 << bits)
    ours = [{column: int(v) % (1 << bits) for column, v in enumerate(row) if v % (1 << bits)} for row in found]
    assert ours or not expected
    for one, others in [*((row, ours) for row in expected), *((row, expected) for row in ours)]:
        combined = kernel([*others, {**one, "this": 1}], set(range(7)), 1 << bits)
        assert any(row["this"] & 1 for row in combined if "this" in row)


# --- faults ----------------------------------------------------------------------------------------------------------

THIRD, FIRST = ("third_party",), ("recommender",)


@pytest.mark.parametrize(
    ("scheme", "finding", "coalition"),
    [
        ("SendsItsKey", "unmasking", THIRD),
        ("TwiceTheMask", "unmasking", THIRD),
        ("TellsTheModel", "unmasking", THIRD),
        ("AllButOne", "unmasking", FIRST),
        ("OneKeyForAll", "unmasking", ("third_party", "user:1")),
        ("RelaysToAUser", "unmasking", ("recommender", "user:0")),
        ("TellsItsNoise", "missing-noise", ("user:0",)),
    ],
)
def test_a_fault_is_found(tmp_path, scheme, finding, coalition):
    case = audited(tmp_path, RATINGS, f"support.schemes.leaky:{scheme}")
    assert (finding, coalition) in breaks(case, coalition)
    brute, library = Brute(SymbolicRerun(case).run(), case.card.params.ring_bits), library_of(case)
    assert grade(library, coalition).determines == brute.determines(coalition)


def test_no_fault_is_found_where_there_is_none(tmp_path):
    extra = [("third_party", "user:1"), ("recommender", "user:0"), ("user:0",)]
    assert not breaks(audited(tmp_path, RATINGS, "masked"), *extra)


def test_exact_differences_are_found_where_every_item_has_one_rater(tmp_path):
    """`determines` is about sums of two or more; sums of one without noise must be reported too."""
    alone = [{0: 5, 1: 4}, {2: 4}, {3: 3}]
    assert ("difference-attack", FIRST) in breaks(audited(tmp_path, alone, "direct", no_rho=True))
    (tmp_path / "with").mkdir()
    assert not breaks(audited(tmp_path / "with", alone, "direct"))
