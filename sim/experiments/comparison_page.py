"""`keyhole compare --out x.html`: the comparison as a page, from the document that `--json` prints and nothing else.

Schemes publish an ε for different things. Each unit has its own chart, so that no two units share an axis.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from protocol.schemes.base import LEVELS
from sim.console import console
from sim.experiments import compare_tables
from sim.experiments.compare import meeting_unit
from sim.report.charts import scatter
from sim.report.charts.scatter import ScatterPoint
from sim.report.page import page
from sim.report.section import Section, picture, render, table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Document = dict[str, Any]
Row = dict[str, Any]

HOLLOW = "A hollow mark: the recommender is given exact numbers of each user, so that no ε protects from it."
ENTRIES = (
    "An ε for an entry of the rating vector stands with those for a rating added or removed: an entry is a rating or "
    "none, so it hides that too (and the value, which the others hide at 2 ε)."
)
_MEANS = "Lines through a mark reach from the least to the most of the seeds. "


def compared_page(document: Document) -> str:
    schemes = {row["scheme"] for row in document["rows"]}
    heading = f"{len(schemes)} schemes on {document['data']}"
    if len(schemes) == 1:
        heading = f"{document['rows'][0]['scheme']} on {document['data']}"
    made = [_table(document), _privacy(document), _traffic(document), _trust(document), _notes(document)]
    again = Section("again", "Again", render("compared_again.html", command=document.get("command")))
    return page(heading, f"Side by side: {compare_tables.setting(document)}.", [*made, again])


def _table(document: Document) -> Section:
    several = len(document["seeds"]) > 1
    given = {"rows": document["rows"], "floors": document["floors"], "several": several}
    shown = {name: getattr(compare_tables, name) for name in ("claimed", "accounted", "iterate")}
    notes = [compare_tables.READINGS_NOTE, document["epsilon_note"], compare_tables.COST_NOTE]
    html = render("compared.html", **given, **shown, notes=notes)
    return Section("schemes", "Schemes and floors", html)


# --- accuracy against ε ----------------------------------------------------------------------------------------------


def accounted_point(row: Row) -> ScatterPoint | None:
    """Place `row` at the worst ε of its seeds; return None if a logarithmic axis cannot show that ε."""
    epsilon = row["accounted"]["epsilon"] if row["claimed_epsilon"] is not None else None
    if not isinstance(epsilon, (int, float)) or epsilon <= 0:
        return None
    ends = row["ranges"]["accounted_epsilon"]
    return _point(row, float(epsilon), None if ends is None else (float(ends[0]), float(ends[1])))


def why_no_figure(row: Row) -> str:
    """Say in a few words, for the place under the axis, why `row` has no ε on it."""
    if row["claimed_epsilon"] is None:
        return "no ε\nis claimed"
    epsilon = row["accounted"]["epsilon"]
    return "no bound\nis known" if epsilon is None else f"ε = {'∞' if epsilon == 'inf' else epsilon}"


def _privacy(document: Document) -> Section:
    done = _with_error(document)
    by_unit = rows_by_unit(document)
    apart = [row for row in done if accounted_point(row) is None]
    charts = [_unit_chart(document, n, unit, rows) for n, (unit, rows) in enumerate(by_unit.items())]
    if apart:
        charts.append(_apart_chart(document, apart))
    words = (
        "Lower and further left is better, for schemes that are accounted to the same party: whom the ε holds against "
        "is under the numbers of each chart. It is what the accountant makes of the whole run; the axis is logarithmic."
    )
    if any("entry" in row["accounted"]["unit"] for rows in by_unit.values() for row in rows):
        words += " " + ENTRIES
    if len(by_unit) > 1:
        words += " Each chart has another unit of ε, so that places in two of them cannot be compared."
    if len(charts) > 1:
        words += " The charts differ in the scale of the error, too; the floors are the same in all of them."
    words = words if charts else "No run has a test error, so there is nothing to draw."
    return Section("privacy", "Accuracy against accounted ε", _charts(words, charts))


def _unit_chart(document: Document, number: int, unit: str, rows: Sequence[Row]) -> Markup:
    figure, points = drawn_unit(document, unit, rows)
    columns = ["scheme", "test RMSE", "ε accounted, worst of the seeds", "least to most ε", "δ", "accounted"]
    cells = [
        [
            compare_tables.named(document, row),
            _spread(row),
            console.figure(row["accounted"]["epsilon"]),
            _epsilons(row),
            _delta(row),
            row["accounted"]["method"],
        ]
        for row in rows
    ]
    words = _words(document, points, "of least ε", lambda point: f"ε = {console.figure(point.x)}")
    return picture(figure, f"epsilon-{number}", f"ε for: {unit}", words, columns, cells)


def drawn_unit(document: Document, unit: str, rows: Sequence[Row]) -> tuple[Figure, list[ScatterPoint]]:
    """Draw the chart of one unit; the rows of a scheme with several ε are a line."""
    points = [point for row in rows if (point := accounted_point(row)) is not None]
    names = _names(document, f"accounted ε, for: {unit}")
    return scatter.draw(points, document["floors"], names, _round_epsilon), points


def unit_figures(document: Document) -> dict[str, Figure]:
    """Draw a chart for each unit, by a word: user, rating or value."""
    found = {unit: drawn_unit(document, unit, rows)[0] for unit, rows in rows_by_unit(document).items()}
    return {"value" if "value" in unit else unit.split()[0]: figure for unit, figure in found.items()}


def rows_by_unit(document: Document) -> dict[str, list[Row]]:
    """Group the rows that have a place on an axis of ε by the unit whose chart they meet in."""
    found: dict[str, list[Row]] = {}
    for row in _with_error(document):
        if accounted_point(row) is not None:
            found.setdefault(meeting_unit(row["accounted"]["unit"]), []).append(row)
    return found


def _apart_chart(document: Document, rows: Sequence[Row]) -> Markup:
    """Draw the rows that have no place on an axis of ε, grouped by the reason."""
    reasons = list(dict.fromkeys(why_no_figure(row) for row in rows))
    points = [_point(row, float(reasons.index(why_no_figure(row))), None) for row in rows]
    figure = scatter.draw_apart(points, reasons, document["floors"], _names(document, "why there is no ε on an axis"))
    told = [f"{row['scheme']}: {' '.join(why_no_figure(row).split())}" for row in rows]
    words = f"These have no place on an axis of ε. {'; '.join(told)}. {_means(document)}{_hollow(points)}"
    cells = [[row["scheme"], compare_tables.claimed(row), compare_tables.accounted(row), _spread(row)] for row in rows]
    columns = ["scheme", "ε claimed, for", "ε accounted, for", "test RMSE"]
    return picture(figure, "epsilon-none", "Without a finite ε", words.strip(), columns, cells)


# --- accuracy against bytes ------------------------------------------------------------------------------------------


def bytes_point(row: Row) -> ScatterPoint | None:
    """Place `row` at the bytes that a user sends and receives together; return None if there are none."""
    both = [sum(run["bytes_per_user"].values()) for run in row["runs"] if run["reason"] is None]
    mean = sum(row["bytes_per_user"].values())
    return _point(row, float(mean), (min(both), max(both)) if both else None) if mean > 0 else None


def _traffic(document: Document) -> Section:
    done = _with_error(document)
    points = [point for row in done if (point := bytes_point(row)) is not None]
    silent = [row["scheme"] for row in done if bytes_point(row) is None]
    if not points:
        return Section("bytes", "Accuracy against bytes", _charts("No run has a test error and sent anything.", []))
    title = "bytes per user, sent and received, whole run"
    figure = scatter.draw(points, document["floors"], _names(document, title), _round_size, scale=1.3)
    words = _words(document, points, "that sends least", lambda point: console.size(point.x))
    words += f" Nothing is sent by {', '.join(silent)}." if silent else ""
    columns = ["scheme", "test RMSE", "user sends", "user gets"]
    cells = [[row["scheme"], _spread(row), *compare_tables.sizes(row)] for row in done]
    drawn = picture(figure, "bytes-chart", "Test error against wire bytes", words, columns, cells)
    lead = "Lower and further left is better. Floors send nothing. The axis of bytes is logarithmic."
    return Section("bytes", "Accuracy against bytes", _charts(lead, [drawn]))


# --- words -----------------------------------------------------------------------------------------------------------


def _trust(document: Document) -> Section:
    columns = ["scheme", "is told", "may work out", "whom users must trust", "known weaknesses"]
    rows = [
        [row["scheme"], "; ".join(row["recommender_sees"]), row["determines"], row["trust"],
         ", ".join(row["known_weaknesses"]) or "none"]
        for row in document["rows"]
    ]  # fmt: skip
    caption = "Declared by the scheme, not measured here: keyhole audit measures it on a run."
    return Section("recommender", "What the recommender is told", table(columns, rows, caption=caption))


def _notes(document: Document) -> Section:
    told = compare_tables.sentences(document) or ["There is nothing that the tables do not say."]
    return Section("notes", "What to know of these figures", render("compared_notes.html", notes=told))


def _charts(words: str, charts: Iterable[Markup]) -> Markup:
    return render("compared_charts.html", words=words, charts=list(charts))


def _words(document: Document, points: Sequence[ScatterPoint], least: str, of: Callable[[ScatterPoint], str]) -> str:
    """Describe the chart in words, for readers who cannot see it."""
    best, first = min(points, key=lambda point: point.y), min(points, key=lambda point: point.x)
    ends = f"Least error: {best.name}, {best.y:.3f} at {of(best)}."
    other = "" if first.x == best.x else f" The one {least}: {first.name}, {first.y:.3f} at {of(first)}."
    return f"{ends}{other} {_means(document)}{_hollow(points)}".strip()


def _names(document: Document, x: str) -> tuple[str, str]:
    return x, "test RMSE (rating points, {:g} to {:g})".format(*document["rating_range"])


def _round_epsilon(value: float) -> str:
    """Write the ε of a tick, which is a round number."""
    if value >= 1e6:
        return f"{value / 1e6:g} M"  # longer ones would touch each other
    return f"{value:,.0f}" if value >= 1 else f"{value:g}"


def _round_size(count: float) -> str:
    return console.size(count).replace(".00", "")


def _means(document: Document) -> str:
    return _MEANS if len(document["seeds"]) > 1 else ""


def _hollow(points: Iterable[ScatterPoint]) -> str:
    return HOLLOW if any(point.hollow for point in points) else ""


# --- figures of a row ------------------------------------------------------------------------------------------------


def _with_error(document: Document) -> list[Row]:
    return [row for row in document["rows"] if row["completed"] and row["test_rmse"] is not None]


def _point(row: Row, x: float, across: tuple[float, float] | None) -> ScatterPoint:
    low, high = row["ranges"]["test_rmse"] or (row["test_rmse"], row["test_rmse"])
    return ScatterPoint(
        row["scheme"], x, row["test_rmse"], across or (x, x), (low, high), row["determines"] == LEVELS[-1]
    )


def _spread(row: Row) -> str:
    mean, ends = console.number(row["test_rmse"]), row["ranges"]["test_rmse"]
    return f"{mean} ({ends[0]:.3f}–{ends[1]:.3f})" if ends and ends[0] < ends[1] else mean


def _epsilons(row: Row) -> str:
    least, most = row["ranges"]["accounted_epsilon"]
    return f"{console.figure(least)} to {console.figure(most)}"


def _delta(row: Row) -> str:
    return f"{row['accounted']['delta']:g}" if row["accounted"].get("delta") is not None else "not said"
