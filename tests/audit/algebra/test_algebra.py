"""The exact linear answer, checked against brute force, the bytes, and the known leaks of the protocol."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from support.audit import audited
from support.brute import Brute

from sim.audit.algebra.grade import grade
from sim.audit.algebra.knowledge import Library
from sim.audit.algebra.solve import findings, library_of, solve
from sim.audit.algebra.symbolic_run import SymbolicRerun

# item 0: all five; 1: three; 2: two; 3: one rater; 4: two, one of them also on 2
RATINGS = [
    {0: 5, 1: 3, 2: 1},
    {0: 4, 1: 2},
    {0: 3, 1: 5, 4: 2},
    {0: 2, 3: 4},
    {0: 1, 2: 5, 4: 3},
]
CHURN = {"join": 0.3, "leave": 0.4, "iterations": 5, "options": {"committers": 2}, "seed": 3}
RUNS = [
    ("masked", {"wire": "compact"}),
    ("masked", {"wire": "paper"}),
    ("dynamic", {"wire": "compact", **CHURN}),
    ("dynamic", {"wire": "paper", **CHURN}),
    ("direct", {}),
    ("direct", {"no_rho": True}),
    ("plain", {}),
]
NAMES = [f"{scheme} {' '.join(map(str, flags.values()))}" for scheme, flags in RUNS]


@pytest.mark.parametrize(("scheme", "flags"), RUNS, ids=NAMES)
def test_every_coalition_of_a_five_user_run_comes_to_what_brute_force_comes_to(tmp_path, scheme, flags):
    case = audited(tmp_path, RATINGS, scheme, **flags)
    hearing = SymbolicRerun(case).run()
    assert hearing.complete and hearing.releases
    bits = case.card.params.ring_bits
    library, brute = Library(hearing, bits), Brute(hearing, bits)
    levels = set()
    for size in range(1, len(case.parties) + 1):
        for members in itertools.combinations(case.parties, size):
            expected = brute.determines(members)
            answer = grade(library, members)
            assert (members, answer.determines) == (members, expected)
            assert not answer.uneven and not answer.undecided
            if size == 1 and members[0].startswith("user"):
                assert grade(library, members, thinned=True).determines == expected
            levels.add(expected)
    assert len(levels) >= 3 - (scheme == "plain")


@pytest.mark.parametrize(("scheme", "flags"), RUNS[:4], ids=NAMES[:4])
def test_forms_give_the_words_on_the_wire(tmp_path, monkeypatch, scheme, flags):
    """Every ring value that a party received equals its form, evaluated at the numbers behind the symbols."""
    from sim.audit.algebra import symbolic

    numbers: dict[int, np.ndarray] = {}
    received: list[tuple[np.ndarray, np.ndarray]] = []
    entered, uniform = symbolic.entered, symbolic.SymbolicRing.uniform

    def keeping(arena, owner, words, label):
        nodes = entered(arena, owner, words, label)
        numbers.update(zip(nodes.tolist(), words.astype(object), strict=True))
        return nodes

    def drawing(ring, *given):
        rows = uniform(ring, *given)
        numbers.update(zip(rows.nodes.tolist(), rows.values.astype(object), strict=True))
        return rows

    monkeypatch.setattr(symbolic, "entered", keeping)
    monkeypatch.setattr(symbolic.SymbolicRing, "uniform", drawing)
    case = audited(tmp_path, RATINGS, scheme, **flags)
    rerun = SymbolicRerun(case)
    note = rerun._note

    def noting(actor, sender, message):
        note(actor, sender, message)
        rows = (getattr(message, name) for name in message.__slots__)
        received.extend((one.nodes, one.values) for one in rows if isinstance(one, symbolic.FormRows))

    monkeypatch.setattr(rerun, "_note", noting)
    brute, checked = Brute(rerun.run(), case.card.params.ring_bits), 0
    for nodes, values in received:
        for node, words in zip(nodes.tolist(), values.astype(object), strict=True):
            total = sum(coefficient * numbers[leaf] for leaf, coefficient in brute.form(node).items())
            assert list(total % brute.modulus) == list(words)
            checked += 1
    assert checked > 50


def levels(case, *extra):
    return {one.members: one for one in solve(case, extra)}


def test_the_known_answers_for_the_masked_sum(tmp_path):
    case = audited(tmp_path, RATINGS, "masked")
    solved = levels(case, ("recommender", "user:0"), ("recommender", "user:1"))
    alone = solved[("recommender",)].answer
    assert (alone.determines, alone.smallest_group) == ("aggregate", 2)
    assert (alone.single_items, alone.single_contributor_sums) == (1, 3)  # item 3, in three iterations
    assert solved[("third_party",)].answer.determines == "nothing"
    both = solved[("recommender", "third_party")].answer
    assert both.determines == "noisy-individual" and both.individuals == 5
    # user 0 shares item 2 with user 4 alone; users 0 and 1 leave one rater of item 1
    assert solved[("recommender", "user:0")].answer.individuals == 1
    assert solved[("recommender", "user:1")].answer.determines == "aggregate"
    # users alone: 0, 2 and 4 share an item with one other; 1 and 3 do not
    users = [one for members, one in solved.items() if len(members) == 1 and members[0].startswith("user:")]
    worst, others = sorted(users, key=lambda one: one.stands_for, reverse=True)
    assert (worst.stands_for, others.stands_for) == (3, 2) and others.members == ("user:1",)
    # the user that stands for the three is the one that reads the most others
    read = {name: grade(library_of(case), (name,)).individuals for name in ("user:0", "user:2", "user:4")}
    assert read[worst.members[0]] == worst.answer.individuals == max(read.values())


def test_what_is_left_of_the_noise(tmp_path):
    """Item 1 has three raters: two of them face a third of η and of ρ, one of them two thirds."""
    case = audited(tmp_path, RATINGS, "masked")
    library = Library(SymbolicRerun(case).run(), case.card.params.ring_bits)
    two = grade(library, ("user:0", "user:1"))
    assert two.determines == "noisy-individual"
    assert two.noise_left == pytest.approx({"eta": 1 / 3, "rho": 1 / 3})
    assert grade(library, ("user:1",)).noise_left == pytest.approx({"eta": 2 / 3, "rho": 2 / 3})


def test_without_noise_nothing_is_called_noisy(tmp_path):
    case = audited(tmp_path, RATINGS, "masked", epsilon=float("inf"))
    solved = levels(case)
    assert solved[("recommender", "third_party")].answer.determines == "exact-individual"
    assert solved[("recommender",)].answer.determines == "aggregate"
    assert "missing-noise" not in {finding.id for finding in findings(case, list(solved.values()))}  # none was claimed


def test_the_difference_of_two_uploads_is_exact_without_rho(tmp_path):
    case = audited(tmp_path, RATINGS, "direct", no_rho=True)
    found = findings(case, solve(case))
    worst = [one for one in found if one.coalition == ("recommender",)]
    assert [(one.id, one.severity) for one in worst] == [("difference-attack", "break")]
    (tmp_path / "with").mkdir()
    case = audited(tmp_path / "with", RATINGS, "direct")
    assert {one.severity for one in findings(case, solve(case))} == {"weak"}
