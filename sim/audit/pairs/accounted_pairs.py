"""What is accounted for a pair, as a person reads it beside the pair's own ε."""

from __future__ import annotations

from typing import Any


def accounted_of(row: dict[str, Any]) -> list[list[float]]:
    """Return (even direction, worst direction) twice: if constant noise is known, and with it counted on."""
    ways = "accounted", "accounted_counted"
    return [[row[name] for name in (way, f"{way}_worst_direction") if name in row] for way in ways]
