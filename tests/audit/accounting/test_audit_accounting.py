"""ε given known envelopes, known shares and composition: by hand, against the run and the reference table."""

from __future__ import annotations

import json
import math
import shutil
from typing import Any

import numpy as np
import pytest
from support.audit import made, of
from support.basics import params_with, received

from protocol.arithmetic.noise import noise_scale
from protocol.arithmetic.tape import Tape
from protocol.schemes.composition import envelope_mu, gaussian_epsilon, inverse_envelope_sums
from protocol.schemes.factorization.masked_roles import MaskedRecommender
from protocol.wire.messages import MaskedGradient
from sim.audit.accounting.account import account
from sim.audit.families.masked.envelope_sums import EnvelopeSums, random_directions
from sim.audit.families.masked.releases import RecommenderReading, Release
from sim.audit.findings import verdict
from sim.data.ratings import find
from sim.foreign.plain_text import jsonable
from sim.plan.plan import RunConfig, make_plan
from sim.views.evidence import open_case

STARS = (1.0, 5.0)
ITEMS = 1682

# ---- runs


@pytest.fixture(scope="module")
def masked_case(tmp_path_factory):
    return made(tmp_path_factory.mktemp("masked") / "run", "masked")


@pytest.fixture(scope="module")
def dynamic_case(tmp_path_factory):
    flags = {"join": 0.2, "leave": 0.2, "online": 12}
    return made(tmp_path_factory.mktemp("dynamic") / "run", "dynamic", **flags)


@pytest.fixture(scope="module")
def masked_account(masked_case):
    return account(masked_case)


@pytest.fixture(scope="module")
def dynamic_account(dynamic_case):
    return account(dynamic_case)


# ---- by hand: Δ = 4, d = 2, ε = 8√2, so b = 1


def ledger_of(supports: dict[int, list[int]], releases: list[Release], envelopes: list[np.ndarray]) -> EnvelopeSums:
    size: dict[str, Any] = {"n_users": 9, "n_items": 4, "max_raters": 4, "rating_range": STARS}
    params, _ = params_with(**size, dim=2, iterations=5, epsilon=8 * math.sqrt(2))
    assert params.noise_scale == pytest.approx(1)
    arrays = {user: np.array(items, np.uint32) for user, items in supports.items()}
    ledger = EnvelopeSums(params, arrays, np.random.default_rng(1))
    for release, envelope in zip(releases, envelopes, strict=True):
        ledger.add(release, *ledger.pick(release), envelope)
    return ledger


def release_of(iteration: int, items: list[int], users: tuple[int, ...], k: list[int], floors: list[int]) -> Release:
    counts, told = np.array(k), np.array(floors)
    return Release(iteration, np.array(items, np.uint32), users, counts, told, counts / told, np.zeros((len(items), 2)))


def epsilon_of(inverse_mean: float) -> float:
    """b = 1: μ² = (2Δ)² / 2 · mean = 32 · mean."""
    return gaussian_epsilon(math.sqrt(32 * inverse_mean))


def test_k_contributors_and_c_colluders_by_hand():
    """H = (1, ½): 1/H = (1, 2), mean 1.5. One colluder of three leaves ⅔ of the variance, two leave ⅓, three none."""
    release = release_of(0, [0, 1], (0, 1, 2), [3, 1], [3, 1])
    ledger = ledger_of({0: [0, 1], 1: [0], 2: [0]}, [release], [np.array([[1.0, 0.5], [2.0, 2.0]])])
    assert ledger.inverse.tolist() == [[1, 2], [0.5, 0.5]]
    row, sole = ledger.table()
    assert (row["item"], row["raters"], row["releases"]) == (0, 3, 1)
    assert row["contributors"] == {"min": 3, "median": 3.0}
    assert row["one_release"] == row["all_releases"] == pytest.approx(epsilon_of(1.5))
    assert row["colluders"]["1"] == pytest.approx(epsilon_of(1.5 * 3 / 2))
    assert row["colluders"]["3"] is None
    assert row["colluders"]["all but one"] == pytest.approx(epsilon_of(1.5 * 3))
    # one colluder is the sole contributor itself, so no victim is left
    assert sole["colluders"] == {"1": None, "3": None, "all but one": pytest.approx(epsilon_of(0.5))}
    assert ledger.colluders()["1"]["one_release"]["items"] == 1


def test_more_contributors_than_the_floor_bring_more_noise_and_fewer_bring_less():
    envelope = np.ones((1, 2))
    for contributors, floor, factor in ((4, 2, 0.5), (4, 4, 1.0), (2, 4, 2.0)):
        made = ledger_of({0: [0]}, [release_of(0, [0], (0,), [contributors], [floor])], [envelope])
        assert made.table()[0]["all_releases"] == pytest.approx(epsilon_of(factor))


def test_a_rating_is_accounted_through_the_sums_that_it_is_in():
    """Item 0 is released three times with H = 1; user 1 is in one of them."""
    releases = [release_of(t, [0], users, [len(users)], [len(users)]) for t, users in enumerate([(0,), (0, 1), (0,)])]
    ledger = ledger_of({0: [0], 1: [0, 2]}, releases, [np.ones((1, 2))] * 3)
    assert ledger.rating_releases.tolist() == [3, 1, 0]
    assert ledger.rating_inverse.tolist() == [3, 1, 0]
    figures = ledger.ratings()
    assert (figures["user"], figures["item"], figures["ratings"]) == (0, 0, 2)
    assert figures["worst"] == pytest.approx(epsilon_of(3))
    assert ledger.composed()["basic"] == pytest.approx(3 * ledger.params.epsilon)
    assert ledger.table()[0]["contributors"] == {"min": 1, "median": 1.0}


def test_directions_by_hand():
    """1/H sums to (1, 3): along w = (.6, .8) it is .36 + 3·.64 = 2.28; over random w the mean is the even one's."""
    sums = np.array([[1.0, 3.0]])
    assert envelope_mu(sums, 2.0, 4.0, np.array([[0.6, 0.8]])) == pytest.approx([8 * math.sqrt(2.28 / 2) / 2])
    many = random_directions(np.random.default_rng(1), 20000, 2)
    assert np.linalg.norm(many, axis=1) == pytest.approx(1)
    squares = envelope_mu(np.repeat(sums, 20000, axis=0), 2.0, 4.0, many) ** 2
    assert squares.mean() == pytest.approx(float(envelope_mu(sums, 2.0, 4.0, "even")[0]) ** 2, rel=0.02)


# ---- against the run


def test_all_releases_are_what_the_summary_accounts(masked_case, masked_account):
    document, findings = masked_account
    summary = json.loads((masked_case.folder / "summary.json").read_text())["privacy"]["accounted"]
    assert document["all_releases"]["even"]["worst"] == pytest.approx(summary["epsilon"], rel=1e-12)
    assert document["all_releases"]["worst"]["worst"] == pytest.approx(summary["recommender"]["direction_worst"])
    assert document["ratings"]["worst"] == pytest.approx(summary["epsilon"], rel=1e-9)
    for name in ("basic", "advanced", "tight", "releases"):
        assert document["composed"][name] == pytest.approx(summary[name])
    assert {finding.id: finding.severity for finding in findings} == {
        "known-envelope": "weak", "known-shares": "weak", "composition": "weak", "missing-noise": "info",
    }  # fmt: skip
    assert verdict(findings, masked_case.card.scheme.known_weaknesses) == "within-claims"


def test_the_audit_of_a_run_repeats_itself_and_is_json(masked_case, masked_account):
    again = account(masked_case)
    assert again == masked_account
    assert json.loads(json.dumps(jsonable(again[0]), allow_nan=False))["claimed"] == 8


def test_the_first_release_uses_the_envelope_that_was_dealt_for_it(masked_case, masked_account):
    tape = Tape(masked_case.tape_seed("recommender"))
    item = masked_account[0]["one_release"]["even"]["item"]
    inverse = inverse_envelope_sums([tape.key("item", item)], 10, 1)
    mu = float(envelope_mu(inverse, noise_scale(8.0, 4.0, 10), 4.0, "even")[0])
    assert masked_account[0]["one_release"]["even"]["worst"] == pytest.approx(gaussian_epsilon(mu))


def test_the_sums_are_those_that_moved_the_factors(masked_case, monkeypatch):
    moved = []
    plain_move = MaskedRecommender.move

    def move(self, items, sums):
        moved.append(sums)
        plain_move(self, items, sums)

    monkeypatch.setattr(MaskedRecommender, "move", move)
    releases = list(RecommenderReading(masked_case).releases())
    assert len(releases) == len(moved) == 20
    for release, sums in zip(releases, moved, strict=True):
        assert release.sums == pytest.approx(sums, abs=1e-8)


def test_counts_of_contributors_are_what_the_third_party_received(dynamic_case, dynamic_account):
    """They were read from the recommender's view; the third party's is another one."""
    card, folder, counts = dynamic_case.card, dynamic_case.folder, {}
    for _, message in received(card, folder, "third_party"):
        if isinstance(message, MaskedGradient):
            row = counts.setdefault(message.iteration, np.zeros(card.params.n_items, int))
            row[message.items] += 1
    raters = make_plan(dynamic_case.config).shape.raters
    table = np.array([counts[t] for t in sorted(counts)])
    diluted = np.broadcast_to(raters, table.shape)[table > 0] / table[table > 0]
    document = dynamic_account[0]
    assert document["sums"]["released"] == np.count_nonzero(table)
    assert document["sums"]["contributors"]["single"] == np.count_nonzero(table == 1) > 0
    assert document["dilution"]["mean"] == pytest.approx(diluted.mean())
    assert document["dilution"]["max"] == pytest.approx(diluted.max()) and diluted.max() > 1
    assert of(dynamic_account[1], "diluted-sum").severity == "weak"


def test_under_churn_a_rating_is_in_fewer_releases_than_its_item(dynamic_case, dynamic_account):
    document, findings = dynamic_account
    assert document["ratings"]["releases"]["median"] < np.median([row["releases"] for row in document["items"]])
    assert document["ratings"]["median"] < document["all_releases"]["even"]["median"]
    assert document["composed"]["releases"] == document["ratings"]["releases"]["max"]
    assert of(findings, "missing-noise").severity == "info"
    assert verdict(findings, dynamic_case.card.scheme.known_weaknesses) == "within-claims"


@pytest.mark.parametrize("scheme", ["masked", "dynamic"])
def test_both_wire_forms_are_accounted_alike(tmp_path, scheme):
    """The envelopes and the factors are the same, so all figures are."""
    documents = [
        account(made(tmp_path / wire, scheme, wire=wire, iterations=4, online=20 if scheme == "dynamic" else None))[0]
        for wire in ("compact", "paper")
    ]
    for document in documents:  # what is drawn from the run id
        for figures in ("one_release", "all_releases"):
            del document[figures]["random"]
    assert documents[0] == documents[1]


def test_an_allowance_for_dropouts_that_nobody_uses_brings_more_noise(tmp_path):
    """A floor of half the raters doubles the variance where all contribute: 1/(H s) is half as large."""
    usual, wide = (
        account(made(tmp_path / str(allowance), "masked", iterations=3, options={"dropout_allowance": allowance}))[0]
        for allowance in (0.0, 0.5)
    )
    assert wide["one_release"]["even"]["median"] < usual["one_release"]["even"]["median"]
    ratios = [cell["ratio"] for cell in wide["noise"]["cells"] if cell["n"] > 300]
    assert min(ratios) > 1.15 and not wide["noise"]["missing"]


def test_one_release_is_not_composed(tmp_path):
    document, findings = account(made(tmp_path / "run", "masked", iterations=1))
    assert document["composed"]["releases"] == 1 and document["composed"]["basic"] == 8
    assert of(findings, "composition").severity == "info" and of(findings, "known-envelope").severity == "weak"


def test_no_dilution_where_everyone_contributes(tmp_path):
    case = made(tmp_path / "run", "dynamic", join=0.0, leave=0.0, iterations=3)
    finding = of(account(case)[1], "diluted-sum")
    assert (finding.severity, finding.measured["max"]) == ("info", 1.0)


def test_the_accounting_reads_no_view_but_the_recommenders(masked_case, masked_account, tmp_path):
    shutil.copytree(masked_case.folder, tmp_path / "run")
    for view in (tmp_path / "run" / "views").rglob("*.view"):
        if view.name != "recommender.view":
            view.unlink()
    assert account(open_case(tmp_path / "run")) == masked_account


def test_what_applies_to_the_other_schemes_is_said_in_words(tmp_path):
    plain = account(made(tmp_path / "plain", "plain", iterations=2))
    assert "claims no ε" in plain[0]["method"] and plain[0]["claimed"] is None and plain[1] == []
    silent = account(made(tmp_path / "inf", "masked", iterations=2, epsilon=math.inf))
    assert "claims no ε" in silent[0]["method"] and silent[1] == []
    unseen = account(made(tmp_path / "none", "masked", iterations=2, views="none"))
    assert "kept no view" in unseen[0]["method"] and unseen[1] == []
    withheld = account(made(tmp_path / "few", "masked", iterations=2, options={"min_contributors": 39}))
    assert "no sum was released" in withheld[0]["method"] and withheld[1] == []
    direct, found = account(made(tmp_path / "direct", "direct", iterations=4))
    assert direct["composed"]["basic"] == 32 and of(found, "composition").severity == "weak"
    trusted_document, _ = account(made(tmp_path / "trusted", "trusted", iterations=4))
    assert "not bounded" in trusted_document["method"] and trusted_document["composed"]["releases"] == 1


# ---- the reference table, which needs no data but the numbers of items and dimensions


def figures_by_seed(claim: float, dim: int, releases: int, way: str, seeds: int) -> np.ndarray:
    """(median, 99 %, worst) over 1682 items, a row for each seed."""
    rows = []
    for seed in range(seeds):
        draw = np.random.default_rng([seed, 2015])
        sums = sum(1 / draw.exponential(size=(ITEMS, dim)) for _ in range(releases))
        direction = random_directions(draw, ITEMS, dim) if way == "random" else way
        mu = envelope_mu(sums, noise_scale(claim, 4.0, dim), 4.0, direction)
        rows.append([gaussian_epsilon(float(np.quantile(mu, q, method="higher"))) for q in (0.5, 0.99, 1.0)])
    return np.array(rows)


@pytest.mark.parametrize(
    ("claim", "dim", "releases", "way", "seeds", "reference"),
    [
        (1.0, 10, 1, "random", 100, (1.5, 12, 92)),  # weakness 1
        (0.1, 50, 1, "random", 60, (0.06, None, 1.9)),
        (0.1, 10, 100, "even", 25, (2.6, 11.6, 119)),  # weakness 3
        (0.1, 50, 100, "even", 12, (1.2, None, 64)),  # 99 %: 6.3, at the upper end of what 80 seeds gave, 3.6 to 6.5
    ],
)
def test_the_reference_lies_inside_what_seeds_give(claim, dim, releases, way, seeds, reference):
    """The worst of 1682 is heavy-tailed: from seed to seed it differs by a factor of 10 to 100."""
    made = figures_by_seed(claim, dim, releases, way, seeds)
    assert np.median(made[:, 0]) == pytest.approx(reference[0], rel=0.04)
    for at, wanted in enumerate(reference):
        if at and wanted is not None:
            assert made[:, at].min() < wanted < made[:, at].max()


# ---- real ratings

real = [
    pytest.mark.slow,
    pytest.mark.skipif(
        find("ml-100k") is None, reason="ml-100k is absent: set KEYHOLE_DATA or run keyhole fetch ml-100k"
    ),
]


class TestRealRatings:
    pytestmark = real

    def test_141_items_have_one_rater(self):
        plan = make_plan(RunConfig(scheme="masked", data="ml-100k", test_fraction=0.0, seed=1))
        assert np.count_nonzero(plan.shape.raters == 1) == 141

    def test_a_fifth_of_the_sums_under_churn_has_one_contributor(self, tmp_path):
        """Reference 21 to 22 % (80/20 split, 100 online); 20.4 to 23.0 % over seeds at 100 iterations."""
        flags = {"data": "ml-100k", "epsilon": 1.0, "iterations": 100, "online": 100, "views": "servers"}
        document, findings = account(made(tmp_path / "run", "dynamic", **flags))
        print(document["sums"], document["dilution"], document["noise"]["finds_below"])
        assert document["sums"]["contributors"]["single_share"] == pytest.approx(0.215, abs=0.02)
        assert document["one_release"]["random"]["median"] == pytest.approx(1.47, rel=0.05)
        assert document["dilution"]["mean"] == pytest.approx(9.07, rel=0.05)
        assert of(findings, "missing-noise").severity == "info" and document["noise"]["finds_below"] > 0.9
