"""A value of a finding as HTML that a person reads: a text, a list of pairs, or a table; never raw JSON."""

from __future__ import annotations

from typing import Any

from markupsafe import Markup, escape

from sim.report.section import render

NOTHING = "none stated"
_INTERVAL = 2  # a list of this length, if of numbers, is an interval


def value_html(value: Any) -> Markup:
    if value is None:
        return Markup(f'<span class="small">{NOTHING}</span>')  # a constant, so not escaped
    if isinstance(value, dict) and value:
        plain = {key: entry for key, entry in value.items() if not isinstance(entry, dict)}
        nested = {key: entry for key, entry in value.items() if isinstance(entry, dict)}
        return Markup("").join([*([_pairs(plain)] if plain else []), *_tables(nested)])
    return escape(text(value))


def text(value: Any) -> str:
    """Format `value` with four digits, which are enough: the audit's JSON has all of them."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1e4 or value != value else f"{value:,.0f}"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, list):
        numbers = len(value) == _INTERVAL and all(isinstance(entry, int | float) for entry in value)
        return (" to " if numbers else ", ").join(map(text, value)) or "none"
    if isinstance(value, dict):
        return "; ".join(f"{name(key)} {text(entry)}" for key, entry in value.items()) or "none"
    return "–" if value is None else "∞" if value == "inf" else str(value)


def name(key: str) -> str:
    return key.replace("_", " ").replace("p99", "99 %")


def _pairs(entries: dict[str, Any]) -> Markup:
    return render("pairs.html", pairs=[(name(key), text(value)) for key, value in entries.items()])


def _tables(nested: dict[str, dict[str, Any]]) -> list[Markup]:
    """Make a table for each set of keys; entries with the same keys are rows of one table."""
    by_keys: dict[tuple[str, ...], dict[str, dict[str, Any]]] = {}
    for key, entry in nested.items():
        by_keys.setdefault(tuple(entry), {})[key] = entry
    return [_table(columns, rows) for columns, rows in by_keys.items()]


def _table(columns: tuple[str, ...], rows: dict[str, dict[str, Any]]) -> Markup:
    cells = [[name(key), *(text(row[column]) for column in columns)] for key, row in rows.items()]
    return render("values.html", columns=["", *map(name, columns)], rows=cells)
