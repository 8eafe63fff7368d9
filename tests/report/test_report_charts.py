"""The charts of a run's page agree with the run's own records."""

from __future__ import annotations

import dataclasses
import json
import re
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from protocol.schemes import SCHEMES
from sim.audit.accounting.curve_points import EpsilonCurve, EpsilonPoint
from sim.audit.audit import Audit
from sim.console.console import size
from sim.folder.traffic import by_kind
from sim.foreign.plain_text import jsonable
from sim.plan.config import RunConfig
from sim.report import section
from sim.report.charts import chart, series
from sim.report.epsilon import epsilon_section
from sim.report.iterations import iterations_section
from sim.report.reported_run import ReportedRun
from sim.report.traffic import traffic_bars, traffic_section
from sim.run.run import run

DATA: dict[str, Any] = {"data": "synthetic:8x6:.6", "seed": 1, "transport": "inprocess", "iterations": 5, "dim": 2}
ONE_SHOT = ("trusted", "covariance", "hybrid", "laplace-ratings", "randomized-response")
MOST_SVG = 40_000


def reported(folder: Path, scheme: str, **flags: Any) -> ReportedRun:
    config = {**DATA, **flags}
    if not SCHEMES[scheme].factorizes:
        config = {name: value for name, value in config.items() if name not in ("iterations", "dim")}
    on_line = config.pop("on_line", lambda line: None)
    summary = run(RunConfig(scheme=scheme, **config), out=folder, on_line=on_line)
    live = Audit(folder)
    audit = live.ask(only=["accounting"]) if live.case.kept else {}
    return ReportedRun(summary, live, jsonable(audit))


@pytest.fixture(scope="module")
def dynamic(tmp_path_factory):
    """Make a run in which users come and go, so that iterations differ."""
    return reported(tmp_path_factory.mktemp("dynamic") / "run", "dynamic", join=0.4, leave=0.4)


@pytest.fixture(scope="module")
def masked(tmp_path_factory):
    return reported(tmp_path_factory.mktemp("masked") / "run", "masked")


Drawn = dict[str, tuple[Any, Any, Any, str]]  # key -> axes, columns and rows of the table, words


def keep_charts(monkeypatch: pytest.MonkeyPatch) -> Drawn:
    """Keep every chart that is drawn from now on, by its key."""
    found: Drawn = {}

    def keep(figure: Any, key: str, title: str, description: str, columns: Any, rows: Any) -> Any:
        found[key] = (figure.axes[0], columns, rows, description)
        return section.picture(figure, key, title, description, columns, rows)

    for module in (traffic_section, traffic_bars, iterations_section, epsilon_section):
        monkeypatch.setattr(module, "picture", keep)
    return found


@pytest.fixture
def drawn(monkeypatch):
    return keep_charts(monkeypatch)


@pytest.fixture(scope="module")
def page(dynamic):
    """Make three sections of the page; return (their HTML, their charts)."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        found = keep_charts(monkeypatch)
        parts = (traffic_section, iterations_section, epsilon_section)
        return "".join(part.section(dynamic).html for part in parts), found


def pictures(html: str) -> list[str]:
    return re.findall(r"<svg.*?</svg>", html, re.S)


def scale_of(label: str) -> float:
    """Return the bytes in one unit of an axis, from its `label`."""
    unit = re.search(r"\((\w+)\)", label)
    assert unit is not None
    return {name: scale for scale, name in series.UNITS}[unit[1]]


def hex_of(colour: Any) -> str:
    from matplotlib.colors import to_hex

    return to_hex(colour)


# --- bandwidth -------------------------------------------------------------------------------------------------------


def test_layers_are_the_bytes_that_were_counted_and_the_line_is_what_was_predicted(dynamic, page):
    drawn = page[1]
    rows, n = dynamic.bandwidth["rows"], dynamic.summary["iterations"]
    for key, name in (("traffic-kind", lambda row: row["kind"]), ("traffic-edge", traffic_section.edge_of)):
        axes = drawn[key][0]
        scale = scale_of(axes.get_ylabel())
        *layers, line = axes.patches
        tops = [np.array(layer.get_data().values) * scale for layer in layers] + [np.zeros(n)]
        for layer, top, below in zip(layers, tops[:-1], tops[1:], strict=True):
            mine = [row for row in rows if name(row) == layer.get_label()]
            counted = [sum(row["wire_bytes"] for row in mine if row["iteration"] == t) for t in range(n)]
            assert any(counted)
            assert top - below == pytest.approx(counted, abs=1e-6)
        predicted = [sum(row["predicted_bytes"] for row in rows if row["iteration"] == t) for t in range(n)]
        assert np.array(line.get_data().values) * scale == pytest.approx(predicted)
        assert tops[0] == pytest.approx([sum(r["wire_bytes"] for r in rows if r["iteration"] == t) for t in range(n)])
        assert f"{size(sum(predicted) / n)} in a mean iteration" in drawn[key][3]
        assert len(set(predicted)) > 1  # otherwise the order of iterations would not be tested


def test_every_bar_is_a_row_of_the_bandwidth_table(dynamic, page):
    drawn = page[1]
    sums = by_kind(dynamic.bandwidth["rows"], dynamic.summary["iterations"])
    for key, when in (("traffic-once", ("set-up", "end")), ("traffic-each", ("iteration",))):
        axes, _, rows, _ = drawn[key]
        scale = scale_of(axes.get_xlabel())
        expected = sorted((row["wire_bytes"] for row in sums if row["when"] in when), reverse=True)
        bars = sorted((bar.get_width() * scale for bar in axes.patches), reverse=True)
        assert bars == pytest.approx(expected[: traffic_bars.MOST_BARS])
        assert len(rows) == len(expected)
        (marks,) = axes.lines
        assert sorted(marks.get_xdata() * scale, reverse=True) == pytest.approx(bars)  # predicted = measured here


def test_an_edge_has_one_colour_in_all_charts(page):
    drawn = page[1]
    *layers, _ = drawn["traffic-edge"][0].patches
    stack = {layer.get_label(): hex_of(layer.get_facecolor()) for layer in layers}
    assert len(set(stack.values())) == len(stack) > 3
    for key in ("traffic-once", "traffic-each"):
        bars = {part.get_label(): hex_of(part.patches[0].get_facecolor()) for part in drawn[key][0].containers}
        assert {edge: colour for edge, colour in bars.items() if edge in stack}.items() <= stack.items()


def test_prediction_measurement_and_kernel_are_compared_in_words(masked):
    html = words_of(masked)
    total = f"{masked.bandwidth['total']['wire_bytes']:,}"
    assert f"Predicted = counted, to the byte: {total} bytes" in html and "measured" not in html  # in one process
    assert "The kernel&#39;s count is not known: All parties were in one process" in html

    def told(**changed: Any) -> str:
        document = json.loads(json.dumps(masked.bandwidth))
        document["total"] |= changed.pop("total", {})
        made = dataclasses.replace(masked, summary=masked.summary | {"transport": "tcp"})
        made.__dict__["bandwidth"] = document | changed
        return words_of(made)

    whole = masked.bandwidth["total"]["wire_bytes"]
    assert "Predicted = measured = kernel, to the byte" in told(total={"kernel_bytes": whole})
    apart = told(total={"kernel_bytes": whole + 700, "apart_bytes": 700})
    assert "= kernel" not in apart and "700 more bytes were apart" in apart
    off = told(match=False, differences=["iteration 3: 5 bytes were counted."], total={"predicted_bytes": whole + 5})
    assert "they differ in 1 place." in off and "<li>iteration 3: 5 bytes were counted.</li>" in off
    assert '<p class="bad">' in off and "to the byte" not in off
    killed = told(match=False, differences=["The kernel counted less."], total={"kernel_bytes": whole - 700})
    assert f"the formula gives as many, row by row; the kernel counted {whole - 700:,}." in killed
    assert '<p class="bad">' in killed and "they differ" not in killed


def words_of(run: ReportedRun) -> str:
    words = traffic_section._words(run, traffic_section.count(run))
    return str(section.render("traffic.html", **words, charts=[]))


def test_payload_and_overhead_add_up(masked):
    words = traffic_section._words(masked, traffic_section.count(masked))
    assert sum(words["overhead"].values()) == words["wire"] == masked.bandwidth["total"]["wire_bytes"]
    assert sum(words["parts"].values()) == words["wire"]
    assert words["overhead"]["payload"] == masked.bandwidth["total"]["payload_bytes"]


# --- long runs -------------------------------------------------------------------------------------------------------


def test_a_long_run_is_drawn_in_steps_and_says_so(tmp_path, drawn):
    run = reported(tmp_path / "run", "dynamic", iterations=250, join=0.3, leave=0.3, views="none")
    html = traffic_section.section(run).html + iterations_section.section(run).html
    axes, _, rows, words = drawn["traffic-kind"]
    steps = axes.patches[0].get_data()
    assert len(steps.values) == 84 and "Each step is the mean of 3 iterations." in words
    assert len(rows) <= series.MOST_ROWS + 1 and "one of every 2 steps" in words and rows[-1][0] == "249"
    widths = np.diff(steps.edges)
    counted = sum(row["wire_bytes"] for row in run.bandwidth["rows"] if 0 <= row["iteration"] < 250)
    assert (steps.values * widths).sum() * scale_of(axes.get_ylabel()) == pytest.approx(counted)
    assert all(len(picture) <= MOST_SVG for picture in pictures(html)) and len(pictures(html)) == 8


def test_beyond_the_colours_the_smallest_are_added_up():
    amounts = {f"kind {n}": [float(n), 1.0] for n in range(11)}
    shown = series.leading(amounts)
    assert list(shown) == [*(f"kind {n}" for n in range(4, 11)), series.OTHER]
    assert shown[series.OTHER] == [0 + 1 + 2 + 3, 4.0]


def test_a_hue_says_who_sends_and_shades_tell_apart():
    senders = {"a": "user", "b": "recommender", "c": "user", series.OTHER: "user", "d": "third_party"}
    found = series.colours(senders)
    assert found["a"] == chart.SERIES[chart.HUES["user"]] and found["c"] == chart.SHADES["user"][1]
    assert found["b"] == chart.SERIES[chart.HUES["recommender"]] and found["d"] not in chart.SHADES["user"]
    assert found[series.OTHER] == chart.MUTED and len(set(found.values())) == 5
    named = {*chart.LIGHT.values()}
    style = files("sim.report").joinpath("templates", "page.css").read_text("utf-8")
    assert all(f"--{name}: " in style for name in named)  # shades are mixed, so the dark style needs none


# --- iterations ------------------------------------------------------------------------------------------------------


def test_course_shows_the_lines_of_the_run(dynamic, page):
    html, drawn = page
    lines = dynamic.lines[1:]
    error = drawn["course-error"][0].lines
    assert list(error[0].get_ydata()) == pytest.approx([line["train_mae"] for line in lines])
    assert error[1].get_ydata()[0] == dynamic.summary["accuracy"]["plain"]["train_mae"]
    assert drawn["course-error"][0].get_ylim()[0] == 0  # the axis starts at 0, so that a fall looks as large as it is
    seconds = drawn["course-seconds"][0]
    assert "milliseconds" in seconds.get_ylabel()
    assert list(seconds.lines[0].get_ydata()) == pytest.approx([1000 * line["seconds"] for line in lines])
    for patch, name in zip(drawn["course-users"][0].patches, ("online", "contributors", "dropouts"), strict=True):
        assert list(patch.get_data().values) == [line[name] for line in lines]
    assert "not of processes that wait for each other" in html  # the page says what seconds mean in one process


def test_the_test_error_stands_beside_plain_and_what_needs_no_protocol(dynamic, page):
    accuracy = dynamic.summary["accuracy"]
    axes, _, rows, _ = page[1]["course-test"]
    errors = [accuracy["test_rmse"], accuracy["plain"]["test_rmse"]]
    errors += [floor["test_rmse"] for floor in accuracy["on_device"]]
    assert [bar.get_width() for bar in axes.patches] == pytest.approx(errors) and len(errors) == 5
    assert axes.get_xlim()[0] == 0
    assert [row[1] for row in rows] == [f"{error:.3f}" for error in errors]


@pytest.mark.parametrize(("gone", "words"), [(0, "none of them"), (1, "once one of them"), (3, "3 times one of them")])
def test_who_dropped_out_is_said_in_words(gone, words, drawn):
    dropouts = [0, gone, 0]
    lines = [{"iteration": t, "online": 9, "contributors": 9 - n, "dropouts": n} for t, n in enumerate(dropouts)]
    iterations_section._turnout(lines)
    assert f"; {words} dropped out" in drawn["course-users"][3]


@pytest.mark.parametrize("scheme", ONE_SHOT)
def test_what_has_no_iterations_says_so_instead_of_an_empty_chart(scheme, tmp_path):
    run = reported(tmp_path / "run", scheme)
    assert "so there is nothing to draw" in iterations_section.section(run).html
    assert not pictures(iterations_section.section(run).html)
    figures = epsilon_section.section(run).html
    assert "there is no curve" in figures and "<table>" in figures and not pictures(figures)
    charts = pictures(traffic_section.section(run).html)
    assert len(charts) == 1 and "traffic-once" in charts[0]


def test_an_aborted_run_shows_how_far_it_came_and_predicts_nothing(tmp_path, drawn):
    def stop(line: dict[str, Any]) -> None:
        if line["iteration"] == 2:
            raise KeyboardInterrupt

    run = reported(tmp_path / "run", "masked", on_line=stop)
    bytes_, shown = traffic_section.section(run).html, iterations_section.section(run).html
    assert "Nothing is predicted" in bytes_ and "to the byte" not in bytes_
    assert "predicted, in all" not in pictures(bytes_)[0] and "not predicted" in bytes_
    assert "after 3 of 5 iterations: INTERRUPTED" in shown
    assert len(drawn["course-seconds"][2]) == 3
    epsilon_section.section(run)
    assert [row[0] for row in drawn["accounting-curve"][2]] == ["1", "2", "3"]


# --- accounting ------------------------------------------------------------------------------------------------------


def last_of(run: ReportedRun) -> EpsilonPoint:
    curve = epsilon_section.curve_of(run)
    assert isinstance(curve, EpsilonCurve)
    figures = [(point.basic, point.tight, point.worst or 0) for point in curve.points]
    assert figures == sorted(figures)  # more releases never lower ε
    return curve.points[-1]


@pytest.mark.parametrize("run", ["masked", "dynamic"])
def test_the_curve_ends_at_the_audits_figure(run, request):
    run = request.getfixturevalue(run)
    last, found = last_of(run), run.audit["accounting"]
    assert {name: getattr(last, name) for name in found["composed"]} == found["composed"]
    even = found["all_releases"]["even"]
    assert (last.median, last.worst) == (even["median"], even["worst"])
    assert last.iterations == run.summary["iterations"]


def test_the_median_is_over_the_items_that_were_released(tmp_path):
    run = reported(tmp_path / "run", "masked", options={"min_contributors": 5})
    even = run.audit["accounting"]["all_releases"]["even"]
    assert 0 < even["items"] < run.params.n_items
    assert f"over the {even['items']} items that were released" in epsilon_section.section(run).html


@pytest.mark.parametrize(("scheme", "source"), [("masked", "expected"), ("direct", "uploads")])
def test_without_views_it_ends_at_the_summarys_figure(scheme, source, tmp_path):
    run = reported(tmp_path / "run", scheme, views="none", iterations=17, epsilon=0.5)
    last, accounted = last_of(run), run.summary["privacy"]["accounted"]
    assert (last.basic, last.advanced, last.tight) == tuple(accounted[name] for name in ("basic", "advanced", "tight"))
    assert last.releases == accounted["releases"] == 17
    if scheme == "masked":
        known = accounted["recommender"]
        assert (last.median, last.worst) == (known["median"], known["worst"])
        assert "The recommender kept no view" in epsilon_section.section(run).html
    curve = epsilon_section.curve_of(run)
    assert isinstance(curve, EpsilonCurve) and curve.source == source and len(curve.points) < 17


def test_the_drawn_lines_are_the_points_and_the_claim_is_drawn_as_one(masked, drawn):
    epsilon_section.section(masked)
    axes, _, rows, words = drawn["accounting-curve"]
    lines = {line.get_label(): list(line.get_ydata()) for line in axes.lines}
    found = masked.audit["accounting"]
    assert lines["to the recommender, worst item"][-1] == found["all_releases"]["even"]["worst"]
    assert lines["tight, to a party without the envelopes"][-1] == found["composed"]["tight"]
    assert set(lines["claimed, for one release"]) == {found["claimed"]} == {8.0}
    assert axes.get_xscale() == axes.get_yscale() == "log" and "δ = 1e-05" in axes.get_ylabel()
    assert len(rows) == 5 and "where 8 is claimed for one release" in words


@pytest.mark.parametrize(
    ("scheme", "flags", "words"),
    [
        ("plain", {}, "Nothing is claimed."),
        ("masked", {"epsilon": float("inf")}, "no noise is added, so nothing bounds"),
        ("direct", {"no_rho": True}, "Nothing bounds 5 releases together"),
    ],
)
def test_what_nothing_bounds_has_no_curve(scheme, flags, words, tmp_path):
    html = epsilon_section.section(reported(tmp_path / "run", scheme, **flags)).html
    assert words in html and not pictures(html)
    assert "composition" not in html  # figures that are not bounds are not printed as bounds


@pytest.mark.parametrize(
    ("scheme", "flags", "words"),
    [
        ("masked", {}, "Claimed (a claim, not a measurement): ε = 8, "),
        ("covariance", {}, "Claimed (a claim, not a measurement): θ = 8, "),  # θ implies another ε
        ("masked", {"epsilon": float("inf")}, "No ε is claimed"),
    ],
)
def test_the_claim_is_in_the_schemes_own_measure(scheme, flags, words, tmp_path):
    html = epsilon_section.section(reported(tmp_path / "run", scheme, **flags)).html
    assert words in html and "inf" not in html.replace("information", "")


# --- every chart -----------------------------------------------------------------------------------------------------


def test_every_chart_has_a_title_units_words_and_numbers(page):
    html, drawn = page
    charts = pictures(html)
    assert len(charts) == len(drawn) == 9 == html.count("<details>")
    for svg in charts:
        assert len(svg) <= MOST_SVG
        title, words = (re.search(rf"<{tag} [^>]*>([^<]+)</{tag}>", svg) for tag in ("title", "desc"))
        assert title is not None and words is not None and re.search(r"\d", words[1])
        assert re.search(r"<(path|use)", svg)
    for axes, columns, rows, _ in drawn.values():
        assert axes.get_xlabel() and axes.get_ylabel()
        assert rows and all(len(row) == len(columns) for row in rows)
    assert len(html) < 300_000
