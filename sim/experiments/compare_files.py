"""Write a comparison of schemes as a file: a page, a table or JSON, by its ending."""

from __future__ import annotations

import csv
import io
from pathlib import Path

from protocol.params import require
from sim.console.console import save
from sim.experiments.compare_tables import Document, Row
from sim.foreign.plain_text import csv_cell, json_text

ENDINGS = (".json", ".csv", ".html", ".svg", ".png")
CHARTS = (".svg", ".png")  # one file for each unit of ε
WIDE, HIGH = 6.4, 4.4  # inches: the legend of the floors stands in two columns

COLUMNS = (
    "kind", "name", "title", "test_rmse", "test_rmse_least", "test_rmse_most", "test_mae", "plain_test_rmse",
    "iterate_test_rmse", "plain_iterate_test_rmse",
    "claimed_epsilon", "claimed_unit", "accounted_epsilon", "accounted_unit", "accounted_delta", "trust",
    "recommender_determines", "recommender_sees", "known_weaknesses", "bytes_per_user_up", "bytes_per_user_down",
    "seconds", "iterations", "note",
)  # fmt: skip


def check_file(path: Path) -> None:
    """Check the ending and the folder of `path`, before hours of runs."""
    ending = path.suffix.lower()
    require(ending in ENDINGS, f"--out must end with {' or '.join(ENDINGS)}, not {path.name!r}.")
    require(path.parent.is_dir(), f"There is no folder {path.parent}: make it, or name another --out.")
    require(not path.is_dir(), f"{path} is a folder: name a file.")


def write(document: Document, path: Path) -> None:
    if path.suffix.lower() in CHARTS:
        _write_charts(document, path)
    else:
        save(_as_text(document, path.suffix.lower()), path)


def _write_charts(document: Document, path: Path) -> None:
    """Draw the error against accounted ε: NAME-user.svg, NAME-rating.svg, NAME-value.svg."""
    from sim.experiments.comparison_page import unit_figures  # slow to import
    from sim.report.charts import chart

    for word, figure in unit_figures(document).items():
        figure.set_size_inches(WIDE, HIGH)
        chart.save(figure, [path.with_stem(f"{path.stem}-{word}")])


def _as_text(document: Document, ending: str) -> str:
    if ending == ".html":
        from sim.experiments.comparison_page import compared_page  # draws charts, so it is slow to import

        return compared_page(document)
    return as_csv(document) if ending == ".csv" else json_text(document) + "\n"


def as_csv(document: Document) -> str:
    """Write the comparison as CSV: a line for each scheme and floor, and a column for the unit of each ε."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    rows = [flat(row) for row in [*document["rows"], *document["floors"]]]
    writer.writerows({name: csv_cell(value) for name, value in row.items()} for row in rows)
    return text.getvalue()


def flat(row: Row) -> Row:
    kind = "floor" if "floor" in row else "scheme"
    found = row.get("accounted") or {}
    least, most = row["ranges"]["test_rmse"] or (None, None)
    named = {
        "kind": kind,
        "name": row[kind],
        "test_rmse_least": least,
        "test_rmse_most": most,
        "claimed_unit": row.get("unit"),
        **{f"accounted_{name}": found.get(name) for name in ("epsilon", "unit", "delta")},
        "recommender_determines": row["determines"],
        "recommender_sees": "; ".join(row["recommender_sees"]),
        "known_weaknesses": ", ".join(row.get("known_weaknesses", ())),
        **{f"bytes_per_user_{way}": row["bytes_per_user"][way] for way in ("up", "down")},
        "note": row.get("note") or row.get("needs"),
    }
    return {name: row.get(name) for name in COLUMNS} | named
