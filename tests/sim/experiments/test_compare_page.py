"""`keyhole compare --out x.html`: the page shows the document, and no two units of ε share an axis."""

from __future__ import annotations

import copy
import math
import re
import shlex
from html.parser import HTMLParser
from typing import Any

import pytest
from matplotlib.text import Text
from typer.testing import CliRunner

from sim import api
from sim.cli import experiments_command
from sim.cli.app import app
from sim.experiments import compare_tables
from sim.experiments.compare import Comparison, meeting_unit
from sim.experiments.comparison_page import accounted_point, bytes_point, compared_page
from sim.report.charts import chart
from sim.report.charts.labels import add_labels
from sim.report.charts.scatter import ScatterPoint, draw

QUICK: dict[str, Any] = {"data": "synthetic:12x10:.5", "iterations": 3, "dim": 2}
EVIL = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def made() -> dict[str, Any]:
    return dict(api.compare(seeds=2, **QUICK))


@pytest.fixture(scope="module")
def page(made) -> str:
    return compared_page(made)


@pytest.fixture
def document(made) -> dict[str, Any]:
    return copy.deepcopy(made)


class Reader(HTMLParser):
    """A parsed page: the cells of every row, the figures with their words, and every address that it could ask for."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.figures: dict[str, str] = {}
        self.addresses: list[str] = []
        self._cell = self._figure = False
        self._key = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.addresses += [given[name] or "" for name in ("src", "href", "xlink:href") if name in given]
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")
            self._cell = True
        elif tag == "figure":
            self._key = str(given["id"])
            self.figures[self._key] = ""

    def handle_endtag(self, tag: str) -> None:
        self._cell &= tag not in ("td", "th")
        self._key = "" if tag == "figure" else self._key

    def handle_data(self, data: str) -> None:
        if self._cell:
            self.rows[-1][-1] += data
        if self._key:
            self.figures[self._key] += f"{data} "  # words of two elements stay apart

    def row(self, name: str) -> list[str]:
        return next([" ".join(cell.split()) for cell in row] for row in self.rows if row and row[0].strip() == name)


def test_every_figure_of_the_table_is_the_documents(document, page):
    page = Reader(page)
    for row in document["rows"]:
        cells = page.row(row["scheme"])
        low, high = row["ranges"]["test_rmse"]
        assert cells[1] == f"{row['test_rmse']:.3f}{low:.3f}–{high:.3f}"
        assert cells[2] == f"{row['plain_test_rmse']:.3f}" and cells[7] == row["determines"]
        pair = row["iterate_test_rmse"], row["plain_iterate_test_rmse"]
        assert cells[3:5] == (["", ""] if pair[0] is None else [f"{rmse:.3f}" for rmse in pair])
        assert cells[5] == compare_tables.claimed(row) and cells[6] == compare_tables.accounted(row)
    for floor in document["floors"]:
        cells = page.row(f"{floor['title']} (floor)")
        assert cells[1].startswith(f"{floor['test_rmse']:.3f}") and floor["needs"] in cells[2]


def test_each_unit_of_epsilon_has_a_chart_of_its_own_and_what_has_none_is_apart(document, page):
    figures = Reader(page).figures
    placed = [row for row in document["rows"] if accounted_point(row) is not None]
    units = list(dict.fromkeys(meeting_unit(row["accounted"]["unit"]) for row in placed))
    assert list(figures) == [*(f"epsilon-{n}" for n in range(len(units))), "epsilon-none", "bytes-chart"]
    assert len(units) == 3, "an entry of the vector is in the chart of a rating that is there or not"
    for number, unit in enumerate(units):
        words = figures[f"epsilon-{number}"]
        assert f"accounted ε, for: {unit}" in words
        for row in document["rows"]:
            there = row["scheme"] in words.partition("The numbers")[2].split()
            assert there == (row in placed and meeting_unit(row["accounted"]["unit"]) == unit), row["scheme"]
    apart = figures["epsilon-none"]
    assert "plain: no ε is claimed; trusted: no bound is known." in apart and "no ε protects from it" in apart
    assert all(row["scheme"] in figures["bytes-chart"] for row in document["rows"])


def test_every_chart_has_a_title_units_words_and_its_numbers(page):
    for key, words in Reader(page).figures.items():
        assert "test RMSE (rating points, 1 to 5)" in words and "The numbers" in words
        assert "Always 3 (floor)" in words and "Lines through a mark" in words
        assert f'<title id="{key}-t">' in page and f'<desc id="{key}-d">' in page
    assert page.count('role="img"') == len(Reader(page).figures)


def test_marks_are_where_the_document_says(document):
    row = next(row for row in document["rows"] if row["scheme"] == "masked")
    low, high = sorted(run["accounted"]["epsilon"] for run in row["runs"])
    point = accounted_point(row)
    assert point is not None and (point.x, point.y) == (high, row["test_rmse"]) and point.across == (low, high)
    assert point.along == tuple(row["ranges"]["test_rmse"]) and not point.hollow
    there = bytes_point(row)
    assert there is not None and there.x == row["bytes_per_user"]["up"] + row["bytes_per_user"]["down"]
    assert there.across[0] <= there.x + 1 and there.x - 1 <= there.across[1]
    hollow = {row["scheme"] for row in document["rows"] if (point := bytes_point(row)) and point.hollow}
    assert hollow == {"plain", "trusted", "covariance"}  # a recommender that has exact numbers of each user
    figure = draw([point], document["floors"], ("x", "y"), str)
    marks = [line for line in figure.axes[0].lines if line.get_marker() == "o"]
    assert [(line.get_xdata()[0], line.get_ydata()[0]) for line in marks] == [(point.x, point.y)]
    levels = [line.get_ydata()[0] for line in figure.axes[0].lines if line.get_label().endswith("(floor)")]
    assert levels == [floor["test_rmse"] for floor in document["floors"]]


def test_names_do_not_cover_each_other_nor_the_marks():
    points = [(10.0 + n, 1.0 + 0.01 * n, f"a scheme named {n}") for n in range(7)]
    figure, axes = chart.new_figure("x", "y", width=7, height=5)
    axes.set_xlim(0, 40)
    axes.set_ylim(0.5, 1.5)
    add_labels(axes, points, [(0.0, 1.02, 40.0, 1.02)])
    figure.draw_without_rendering()
    boxes = [Text.get_window_extent(text) for text in axes.texts]  # without the line of the annotation
    assert len(boxes) == 7
    for number, box in enumerate(boxes):
        assert not any(box.overlaps(other) for other in boxes[number + 1 :])
        assert not any(box.contains(*axes.transData.transform((x, y))) for x, y, _ in points)


def test_the_page_asks_for_nothing_and_escapes_everything(document):
    document["rows"][0] |= {"scheme": EVIL, "note": EVIL}
    document |= {"data": EVIL, "command": EVIL}
    page = compared_page(document)
    assert "<script>alert" not in page and "&lt;script&gt;alert" in page
    assert all(address.startswith(("#", "data:,")) for address in Reader(page).addresses)
    assert len(page.encode()) < 300_000


# ---- missing figures are named


def test_infinity_and_what_was_not_run_are_said(document):
    rows = {row["scheme"]: row for row in document["rows"]}
    rows["direct"]["accounted"]["epsilon"] = "inf"
    rows["masked"] |= {"completed": False, "test_rmse": None, "note": "DIVERGED, it says", "accounted": None}
    name = "masked"
    page = Reader(compared_page(document))
    assert "direct: ε = ∞" in page.figures["epsilon-none"]
    assert page.row(name)[1] == "not run: DIVERGED, it says"
    assert name not in page.figures["bytes-chart"].split()


def test_without_a_single_error_there_is_no_chart_and_the_page_says_so(document):
    for row in document["rows"]:
        row |= {"completed": False, "test_rmse": None, "accounted": None, "note": "no luck"}
    page = compared_page(document)
    assert not Reader(page).figures and "there is nothing to draw" in page and "No run has a test error" in page


def test_one_scheme_that_sends_nothing(document):
    document["rows"] = [row for row in document["rows"] if row["scheme"] in ("hybrid", "plain")]
    document["rows"][-1]["bytes_per_user"] = {"up": 0, "down": 0}
    figures = Reader(compared_page(document)).figures
    assert "Nothing is sent by plain." in figures["bytes-chart"] and "epsilon-0" in figures
    assert (
        draw([ScatterPoint("one", 5.0, 1.0, (5.0, 5.0), (1.0, 1.0))], [], ("x", "y"), str).axes[0].get_xscale() == "log"
    )


def test_a_scheme_with_several_epsilons_is_one_line_with_one_name():
    points = [ScatterPoint("a", x, 1 / x, (x, x), (1 / x, 1 / x)) for x in (1.0, 2.0, 4.0)]
    points.append(ScatterPoint("b", 3.0, 0.5, (3.0, 3.0), (0.5, 0.5)))
    axes = draw(points, [], ("x", "y"), str).axes[0]
    lines = [line for line in axes.lines if len(line.get_xdata()) == 3]
    assert [list(line.get_xdata()) for line in lines] == [[1.0, 2.0, 4.0]]
    assert sorted(text.get_text() for text in axes.texts) == ["a", "b"]
    assert len({line.get_color() for line in axes.lines}) == 2


# ---- the command


def test_the_command_draws_a_chart_for_each_unit(tmp_path):
    given = ["--data", "synthetic:12x10:.5", "--schemes", "hardened,randomized-response,covariance", "--epsilon", "4,8"]
    done = CliRunner().invoke(app, ["compare", *given, "--out", str(tmp_path / "epsilon.svg")])
    assert done.exit_code == 0, done.output
    assert "hardened, ε 4" in done.output and "covariance, ε 8" in done.output
    assert sorted(path.name for path in tmp_path.iterdir()) == ["epsilon-rating.svg", "epsilon-user.svg"]
    assert all(path.read_text().startswith("<?xml") for path in tmp_path.iterdir())


def test_the_command_writes_the_page(tmp_path):
    flags = [f"--{name}={value}" for name, value in QUICK.items()]
    target = tmp_path / "compared.html"
    result = CliRunner().invoke(app, ["compare", "--schemes", "plain,direct", *flags, "--out", str(target), "--json"])
    assert result.exit_code == 0, result.stderr
    page = target.read_text("utf-8")
    assert page.startswith("<!doctype html>") and "2 schemes on synthetic:12x10:.5" in page
    told = re.search(r"keyhole compare [^<]*", page)
    assert told is not None and told[0].strip() == (
        "keyhole compare --data synthetic:12x10:.5 --schemes plain,direct --iterations 3 --dim 2 --seed 1"
    )


def test_the_command_on_the_page_asks_for_the_same(monkeypatch):
    asked = Comparison(
        data="a file.csv", schemes=("masked", "mine:Own"), epsilon=math.inf, iterations=7, dim=3, users=9,
        rating_range=(0.5, 5.0), seed=4, seeds=2, options={"masked": {"clip": "4"}, "mine:Own": {"a": "b c"}},
    )  # fmt: skip
    heard: list[Comparison] = []
    monkeypatch.setattr(experiments_command, "_carry_out_comparison", lambda asked, out, as_json: heard.append(asked))
    for each in (asked, Comparison()):
        result = CliRunner().invoke(app, shlex.split(each.command())[1:])
        assert result.exit_code == 0 and heard[-1] == each
