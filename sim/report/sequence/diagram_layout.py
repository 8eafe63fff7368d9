"""The layout of a sequence diagram. The drawing is narrow, so that its text can be read on a phone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sim.console.console import size
from sim.report.sequence.arrows import Arrow, Diagram

WIDTH = 400
_MARGIN = {2: 76, 3: 54}  # from the edge to the first lifeline
_HEAD_HIGH, _STEP, _FIRST = 30, 44, 72
_LONGEST = 27  # characters of a name that fit
_TIP = 7


@dataclass(frozen=True, slots=True)
class Head:
    role: str
    text: str
    x: float
    left: float
    wide: float


@dataclass(frozen=True, slots=True)
class Line:
    arrow: Arrow
    start: float
    end: float
    y: float
    middle: float
    text: str
    amount: str
    tips: tuple[str, ...]  # points of the arrow heads
    top: float  # of what can be clicked
    high: float


@dataclass(frozen=True, slots=True)
class DiagramLayout:
    width: int
    height: float
    head_high: int
    heads: tuple[Head, ...]
    lines: tuple[Line, ...]


def lay_out(diagram: Diagram, roles: Sequence[str], names: Sequence[str]) -> DiagramLayout:
    """Place everything in `diagram`; `names` are those of the lifelines, from left to right."""
    margin = _MARGIN.get(len(roles), 54)
    gap = (WIDTH - 2 * margin) / max(1, len(roles) - 1)
    at = {role: margin + gap * place for place, role in enumerate(roles)}
    wide = min(2 * margin - 4, gap - 8)
    heads = tuple(
        Head(role, name, at[role], at[role] - wide / 2, wide) for role, name in zip(roles, names, strict=True)
    )
    lines = tuple(_line(arrow, at, _FIRST + _STEP * place) for place, arrow in enumerate(diagram.arrows))
    return DiagramLayout(WIDTH, _FIRST + _STEP * len(lines) - 12, _HEAD_HIGH, heads, lines)


def _line(arrow: Arrow, at: dict[str, float], y: float) -> Line:
    first = arrow.first
    start, end = at[first["sender"]], at[first["receiver"]]
    tips = [_tip(start, end, y)]
    if arrow.connects and len({row["sender"] for row in arrow.rows}) > 1:
        tips.append(_tip(end, start, y))
    text = arrow.name if len(arrow.name) <= _LONGEST else arrow.name[: _LONGEST - 1] + "…"
    amount = size(arrow.wire_bytes) if arrow.connects else f"×{arrow.messages:,} · {size(arrow.wire_bytes)}"
    return Line(arrow, start, end, y, (start + end) / 2, text, amount, tuple(tips), y - 22, _STEP - 2)


def _tip(start: float, end: float, y: float) -> str:
    back = end - _TIP if end > start else end + _TIP
    return f"{end:g},{y:g} {back:g},{y - 4:g} {back:g},{y + 4:g}"
