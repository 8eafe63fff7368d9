"""The section "Who sends what": arrows that add up, records as their receivers have them, and the truth beside them."""

from __future__ import annotations

import dataclasses
import functools
import html
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from actors.own_scheme import load_scheme
from protocol.arithmetic.factors import item_gradients, prediction_errors, step_user
from protocol.schemes import SCHEMES
from sim.audit import inventory
from sim.audit.audit import Audit
from sim.folder.folder import read_summary
from sim.foreign.plain_text import jsonable
from sim.plan.config import RunConfig
from sim.report.reported_run import ReportedRun
from sim.report.sequence import sequence_section
from sim.report.sequence.arrows import Edge, in_order, rows_of, typical_iteration
from sim.report.sequence.first_records import scan
from sim.report.sequence.histograms import Series, draw
from sim.report.sequence.numbers_behind import UploadsBehind, uploads_of
from sim.report.sequence.panels import shown
from sim.report.sequence.pictures import _how_far, _how_hidden, pictures_of
from sim.run.run import run
from sim.views.exhibits import Exhibits

OWN = "example_shares:Shares"
TINY: dict[str, Any] = {"data": "synthetic:8x9:.6", "transport": "inprocess", "seed": 3}


@pytest.fixture(scope="module")
def make(tmp_path_factory):
    """Return a function that runs a scheme, and gathers what the page needs except the audit's slow questions."""

    @functools.cache
    def made(scheme: str, views: str = "full", **stop: int) -> ReportedRun:
        folder = tmp_path_factory.mktemp("runs") / "run"
        settings = dict(TINY, scheme=scheme, views=views)
        if scheme == "dynamic":
            settings |= {"join": 0.5, "leave": 0.1}
        if scheme == "randomized-response":
            settings |= {"epsilon": 1.0}
        if scheme == OWN:
            settings |= {"iterations": 1, "dim": 1}
        elif SCHEMES[scheme].factorizes:
            settings |= {"iterations": 5, "dim": 2}

        def interrupt(line: dict[str, Any]) -> None:
            if line["iteration"] == stop.get("stop"):
                raise KeyboardInterrupt

        load_scheme(scheme)
        run(RunConfig(**settings), out=folder, on_line=interrupt)
        live = Audit(folder)
        rows = inventory.take(live.case)[0] if "recommender" in live.case.kept else []
        return ReportedRun(read_summary(folder) or {}, live, jsonable({"inventory": rows}))

    return made


def diagrams_of(run: ReportedRun) -> list[Any]:
    rows, _ = rows_of(run)
    chosen = typical_iteration(run, rows)
    found = scan(run.case, {row["iteration"] for row in rows})
    return sequence_section.make_diagrams(run, rows, found, chosen)


def arrow_of(run: ReportedRun, kind: str) -> Any:
    return next(arrow for one in diagrams_of(run) for arrow in one.arrows if arrow.first["kind"] == kind)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_arrows_add_up_to_the_bytes_that_were_counted_and_every_panel_is_in_the_page(make, scheme):
    run = make(scheme)
    text = str(sequence_section.section(run).html)
    rows, drawn = run.bandwidth["rows"], diagrams_of(run)
    for diagram in drawn:
        iterations = {arrow.first["iteration"] for arrow in diagram.arrows}
        counted = sum(row["wire_bytes"] for row in rows if row["iteration"] in iterations)
        assert sum(arrow.wire_bytes for arrow in diagram.arrows) == counted > 0
        for arrow in diagram.arrows:
            assert f'href="#{arrow.key}"' in text and f'id="{arrow.key}"' in text
            assert html.escape(arrow.spoken, quote=True) in text
    assert [diagram.key for diagram in drawn] in (["run"], ["setup", "iteration"])
    for role in run.scheme.parties():
        assert f'id="seq-party-{role}"' in text
    assert "hidden" not in text  # without a script everything is shown
    targets = set(re.findall(r'href="#([^"]+)"', text))
    assert targets and all(f'id="{target}"' in text for target in targets)
    assert len(re.findall(r'id="([^"]+)"', text)) == len(set(re.findall(r'id="([^"]+)"', text)))
    assert "not declared" not in text and "<desc" in text and "behind them" in text


def test_the_order_is_that_of_the_views(make):
    setup, iteration = diagrams_of(make("dynamic"))
    assert [arrow.name for arrow in iteration.arrows if arrow.name not in ("Present", "Absent")] == [
        "OpenSum", "ItemFactors", "MaskedGradient", "Contributors", "Agreed", "MaskedTotal",
    ]  # fmt: skip
    kinds = [arrow.name for arrow in setup.arrows if not arrow.connects]
    assert kinds.index("Join") < kinds.index("Commit") < kinds.index("BlindedShare") < kinds.index("SealedTotal")
    (whole,) = diagrams_of(make("covariance-masked"))
    assert [arrow.name for arrow in whole.arrows if not arrow.connects] == [
        "Join", "MaskWelcome", "MaskedPart, round 0", "PartTotal, round 0", "OpenPairs, round 1",
        "PublishedAverages, round 1", "MaskedPart, round 1", "PartTotal, round 1", "CovarianceFactors",
    ]  # fmt: skip


def test_views_that_contradict_each_other_give_an_order_all_the_same():
    scheme = SCHEMES["masked"]()
    open_, total, agreed = (Edge((0, "a", "b", kind)) for kind in ("OpenSum", "MaskedTotal", "Agreed"))
    assert in_order([open_, total, agreed], [], scheme) == [open_, agreed, total]  # as the scheme lists them
    assert in_order([open_, total, agreed], [[total, open_]], scheme) == [agreed, total, open_]
    crossed = [[total, agreed], [agreed, total], [agreed, open_]]
    assert in_order([open_, total, agreed], crossed, scheme) == [total, agreed, open_]


def test_a_race_of_two_senders_orders_nothing_and_a_sender_comes_after_what_it_received():
    scheme = SCHEMES["dynamic"]()
    commit = Edge((-1, "recommender", "user", "Commit"))
    opened = Edge((-1, "recommender", "third_party", "OpenCommitment"))
    share = Edge((-1, "user", "third_party", "BlindedShare"))
    sealed = Edge((-1, "third_party", "recommender", "SealedTotal"))
    views = [[opened, commit, sealed], [share, opened, sealed], [commit, share]]  # the share arrived before the opening
    assert in_order([share, sealed, opened, commit], views, scheme) == [opened, commit, share, sealed]


def test_what_the_drawn_iteration_has_not_is_said(make):
    html = sequence_section.section(make("masked")).html
    edges = ("Finish (recommender → third party)", "Finish (recommender → users)", "Publication (recommender → users)")
    assert f"Not in it: {'; '.join(f'{edge} at the end' for edge in edges)}." in html


def test_the_chosen_iteration_is_the_middle_one_with_a_contributor(make):
    run = make("plain")
    rows, _ = rows_of(run)
    assert typical_iteration(run, rows) == 2
    nobody = ReportedRun(run.summary, run.live, run.audit)
    nobody.__dict__["lines"] = [line | {"contributors": int(line["iteration"] == 4)} for line in run.lines]
    assert typical_iteration(nobody, rows) == 4
    nobody.__dict__["lines"] = [line | {"contributors": 0} for line in run.lines]
    assert typical_iteration(nobody, rows) is None
    assert [one.key for one in sequence_section.make_diagrams(nobody, rows, scan(nobody.case, {-1}), None)] == ["setup"]


# --- the truth -------------------------------------------------------------------------------------------------------


def drawn_of(run: ReportedRun, kind: str, monkeypatch: pytest.MonkeyPatch) -> tuple[list[Series], list[str]]:
    """Return the series that the histograms of this arrow count, and the sentences about them."""
    caught: list[Series] = []

    def catch(key: str, series: list[Series]) -> list[Any]:
        caught.extend(series)
        return draw(key, series)

    monkeypatch.setattr("sim.report.sequence.pictures.draw", catch)
    arrow = arrow_of(run, kind)
    found = scan(run.case, {arrow.edge[0]})
    made = pictures_of(run, arrow, found, UploadsBehind(run.case))
    assert len(made.drawn) == len(caught)
    return caught, made.words


def gradients_by_hand(run: ReportedRun, user: str, last: int) -> np.ndarray:
    """Compute the gradients by the protocol's rule, from the user's ratings and the item factors that it received."""
    params, exhibits = run.params, Exhibits(run.case, (user,))
    brought = exhibits.brought(user)
    role = run.scheme.make_role(user, run.case.card.setting, brought.tape, brought.inputs)
    own, gradients = role.user_factors.copy(), None
    for seen in exhibits.received(user, "ItemFactors"):
        if seen.iteration <= last:
            factors = seen.message.factors.astype(np.float64)
            errors = prediction_errors(brought.inputs.ratings, own, factors)
            gradients = item_gradients(errors, own)
            own = step_user(own, factors, errors, params.learning_rate, params.user_regularisation)
    assert gradients is not None
    return gradients


def test_masked_values_are_those_of_the_view_and_the_gradients_those_of_the_users(make, monkeypatch):
    run = make("masked")
    (received, true), words = drawn_of(run, "MaskedGradient", monkeypatch)
    uploads = list(Exhibits(run.case, ("third_party",)).received("third_party", "MaskedGradient"))
    uploads = [one for one in uploads if one.iteration == 2]
    signed = np.concatenate([one.message.values.ravel() for one in uploads]).astype(np.int64)
    signed[signed >= 1 << 31] -= 1 << 32
    np.testing.assert_array_equal(received.values, signed / 2.0**31)
    by_hand = np.concatenate([gradients_by_hand(run, one.sender, 2).ravel() for one in uploads])
    unit = 2.0**-run.params.fraction_bits
    np.testing.assert_allclose(true.values, by_hand, rtol=0, atol=unit / 2)  # rounded once, when it is encoded
    assert np.abs(by_hand).max() > 100 * unit and received.values.std() > 0.4
    assert any("did not test it" in sentence for sentence in words)  # statistics were not asked


def test_how_far_and_how_hidden_the_numbers_are_is_said(make):
    received, true = np.array([1.0, 2.0, -4.0]), np.array([1.0, 4.0, 0.0])
    assert "by 2 on average (absolute difference); 1 of 3 are the same." in _how_far(received, true)
    assert "the same numbers" in _how_far(true, true)
    params = (run := make("masked")).params
    whole = 2.0 ** (params.ring_bits - 1 - params.fraction_bits)  # half of the ring, as a real number
    assert "between −0.5 and 0.5." in _how_hidden(run, 0, np.array([0.0, -whole / 2]))


def test_every_value_is_in_a_bin_also_the_outermost():
    values = np.array([-3 - 3 / 2**18, *np.linspace(-2, 2, 200), 3 + 3 / 2**18])  # 9 decimals would round these inwards
    html = draw("key", [Series("title", values, "axis", 0)])[0]
    rows = list(map(int, re.findall(r'<td class="n">([\d,]+)</td>', html)))
    assert sum(rows) == values.size
    assert f"The fullest of {len(rows)} bins holds {100 * max(rows) / values.size:.0f} % of them." in html


def test_the_recommenders_unmasked_sum_stands_beside_the_true_one(make, monkeypatch):
    run = make("masked")
    (_, unmasked, true), _ = drawn_of(run, "MaskedTotal", monkeypatch)
    uploads = list(Exhibits(run.case, ("third_party",)).received("third_party", "MaskedGradient"))
    (total,) = (
        one.message
        for one in Exhibits(run.case, ("recommender",)).received("recommender", "MaskedTotal")
        if one.iteration == 2
    )
    by_hand = np.zeros((run.params.n_items, 2))
    for one in uploads:
        if one.iteration == 2:
            by_hand[one.message.items] += gradients_by_hand(run, one.sender, 2)
    unit = 2.0**-run.params.fraction_bits
    np.testing.assert_allclose(true.values, by_hand[total.items].ravel(), rtol=0, atol=8 * unit)
    # V moves by what the recommender unmasked: v(t+1) = v(t) − γ (sum / k + 2 μ v(t)), as item factors show
    params = run.params
    before, after, counts = (np.zeros((params.n_items, 2)), np.zeros((params.n_items, 2)), np.zeros(params.n_items))
    for user in run.case.parties[2:]:
        items = Exhibits(run.case, (user,)).brought(user).inputs.items
        counts[items] += 1
        for seen in Exhibits(run.case, (user,)).received(user, "ItemFactors"):
            if seen.iteration in (2, 3):
                (before if seen.iteration == 2 else after)[items] = seen.message.factors
    moved = (before * (1 - 2 * params.learning_rate * params.item_regularisation) - after) / params.learning_rate
    sums = (moved * counts[:, None])[total.items].ravel()
    np.testing.assert_allclose(unmasked.values, sums, rtol=0, atol=1e-3)  # float32 factors


@pytest.mark.parametrize(
    ("scheme", "kind", "same"),
    [
        ("plain", "Gradient", True), ("direct", "NoisyGradient", False), ("trusted", "RatingsHandover", True),
        ("covariance", "GradedRatings", True), ("hybrid", "PerturbedRatings", False),
        ("laplace-ratings", "PerturbedRatings", False), ("randomized-response", "RandomizedLevels", False),
    ],
)  # fmt: skip
def test_what_no_mask_hides_stands_beside_the_truth_in_the_same_unit(make, monkeypatch, scheme, kind, same):
    (received, true), words = drawn_of(make(scheme), kind, monkeypatch)
    assert received.values.shape == true.values.shape and received.axis == true.axis
    assert np.allclose(received.values, true.values, atol=1e-5) is same
    assert any("nothing hides them" in sentence for sentence in words) is same


@pytest.mark.parametrize(("kind", "holder"), [("BlindedShare", "third_party"), ("SealedTotal", "recommender")])
def test_committed_noise_is_drawn_beside_what_seals_it(make, monkeypatch, kind, holder):
    run = make("dynamic")
    (received, true), _ = drawn_of(run, kind, monkeypatch)
    seen = list(Exhibits(run.case, (holder,)).received(holder, kind))
    assert received.values.size == true.values.size == sum(one.message.values.size for one in seen)
    if kind == "SealedTotal":  # Σ of the shares of all committers
        shares = np.zeros((run.params.n_items, 2))
        for user in run.case.parties[2:]:
            for upload in uploads_of(run.case, user, -1):
                np.add.at(shares, upload.message.items, upload.marks[0].values)
        np.testing.assert_allclose(true.values, shares[seen[0].message.items].ravel())


def test_a_scheme_of_ones_own_is_drawn_too(make, monkeypatch):
    run = make(OWN)
    (_, true), _ = drawn_of(run, "Total", monkeypatch)
    by_hand = np.zeros(run.params.n_items)
    for user in run.case.parties[2:]:
        own = Exhibits(run.case, (user,)).brought(user).inputs
        by_hand[own.items] += own.ratings
    np.testing.assert_allclose(true.values, by_hand, atol=1e-4)
    (received, true), _ = drawn_of(run, "Share", monkeypatch)
    assert received.values.size == true.values.size and set(true.values.tolist()) <= {1.0, 2.0, 3.0, 4.0, 5.0}
    assert "Total, third_party to recommender, 1 message" in str(sequence_section.section(run).html)


def test_a_role_that_sends_something_else_than_its_view_says_is_not_taken_for_the_truth(make):
    run = make("masked")
    seen = next(Exhibits(run.case, ("third_party",)).received("third_party", "MaskedGradient"))
    truth = UploadsBehind(run.case)
    upload = truth.upload(seen, "third_party")
    assert upload is not None and upload.behind() is not None
    other = dataclasses.replace(seen.message, values=seen.message.values + np.uint32(1))
    assert truth.upload(dataclasses.replace(seen, message=other), "third_party") is None


def test_a_large_message_is_sampled_in_words(make, monkeypatch):
    monkeypatch.setattr("sim.report.sequence.pictures.MOST_VALUES", 10)
    monkeypatch.setattr("sim.report.sequence.pictures.MOST_STEPS", 10)
    run = make("masked")
    (received, true), words = drawn_of(run, "MaskedGradient", monkeypatch)
    assert 10 <= received.values.size == true.values.size < 40
    assert any(re.match(r"Drawn from a sample: the first \d of 8 messages", sentence) for sentence in words)
    (_,), words = drawn_of(run, "MaskedTotal", monkeypatch)
    assert any("would have to be run again through 3 iterations" in sentence for sentence in words)


# --- what is not kept, and what is not shown -------------------------------------------------------------------------


def test_without_views_the_arrows_are_drawn_and_the_page_says_what_is_missing(make):
    text = str(sequence_section.section(make("dynamic", views="none")).html)
    assert "No view was kept: the order is that in which the scheme lists its messages." in text
    assert "The third party keeps no view in this run (--views none)" in text and "MaskedGradient, user to" in text
    assert '<svg class="seq-svg"' in text and "behind them" not in text
    text = str(sequence_section.section(make("dynamic", views="servers")).html)
    assert "The truth behind them is not drawn: the users&#39; views were not kept." in text
    assert "No user keeps a view in this run (--views servers)" in text and "What the third party received" in text
    text = str(sequence_section.section(make("masked", views="sample:2")).html)
    assert "the first 2 of 8 messages, whose sender&#39;s view was kept" in text
    assert "The true sum is not drawn: not every user&#39;s view was kept." in text


@pytest.mark.parametrize("stop", [-1, 1])
def test_an_aborted_run_is_drawn_as_far_as_it_went(make, stop):
    run = make("masked", stop=stop)
    assert not run.summary["completed"]
    text = str(sequence_section.section(run).html)
    assert "The run did not complete: these are the bytes that were told until then." in text
    assert ("Iteration 1" in text) is (stop == 1) and "Set-up" in text
    rows, _ = rows_of(run)
    told = [json.loads(line) for line in (run.folder / "iterations.jsonl").read_text().splitlines()]
    assert sum(row["wire_bytes"] for row in rows) == sum(row[6] for line in told for row in line["rows"])


def test_no_key_is_in_the_page(make):
    run = make("masked")
    text = str(sequence_section.section(run).html)
    for user in run.case.parties[2:]:
        (welcome,) = Exhibits(run.case, (user,)).received(user, "Welcome")
        for secret in (welcome.message.mask_key, *welcome.message.item_keys, run.case.tape_seed(user)):
            assert secret.hex()[:12] not in text
    assert "32 bytes, not shown" in text
    assert shown("ab" * 32, "32-byte digest") == "abababababababab…"
    assert shown("ab" * 32, "32 bytes") == "32 bytes, not shown"


def test_an_undeclared_field_is_called_so(make):
    run = make("plain")
    rows = [row | {"declared": False, "words": None} for row in run.audit["inventory"]]
    undeclared = ReportedRun(run.summary, run.live, {"inventory": rows})
    text = str(sequence_section.section(undeclared).html)
    assert '<span class="bad">not declared</span>' in text


def test_the_audits_test_of_uniformity_is_quoted(make, monkeypatch):
    run = make("masked")
    field = {"party": "third_party", "kind": "MaskedGradient", "values": 1234, "smallest_p_corrected": 0.25}
    for rejected, words in (([], "not told from uniform"), ([{"test": "bit 0"}], ": told from uniform")):
        tested = {"level": 0.001, "correction": "Holm", "tests": 99, "fields": [field | {"rejected": rejected}]}
        audit = {"inventory": [], "statistics": {"uniformity": tested}}
        given = ReportedRun(run.summary, run.live, audit)
        _, told = drawn_of(given, "MaskedGradient", monkeypatch)
        (sentence,) = (one for one in told if one.startswith("Claimed"))
        assert "Measured on all 1,234 values" in sentence and words in sentence and "p = 0.25" in sentence


def test_the_script_does_nothing_where_its_section_is_absent():
    script = (Path(sequence_section.__file__).with_name("sequence.js")).read_text(encoding="utf-8")
    assert "if (!root) { return; }" in script and "innerHTML" not in script
