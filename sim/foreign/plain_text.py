"""Safe display of text that came from a file: on a terminal, as JSON, on a page, in a table for a spreadsheet.

A name may hold an escape that repaints the screen, a mark that turns the direction of writing, or half of a surrogate
pair. Such characters are shown by their numbers, so that the person sees them.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Callable
from typing import Any

# controls except newline and tab, line separators, surrogates, characters without width or that turn the direction
_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def jsonable(value: Any) -> Any:
    """Convert `value` to what JSON can hold: infinity becomes "inf", NaN becomes null, bytes become hexadecimal."""
    if isinstance(value, dict):
        return {str(key): jsonable(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [jsonable(entry) for entry in value]
    if isinstance(value, bytes):
        return value.hex()
    if (numpy := sys.modules.get("numpy")) and isinstance(value, numpy.generic):  # no numpy number without numpy
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else "inf" if value > 0 else "-inf"
    return value


def numbers_again(value: Any, listed: Callable[[Any], Any] = list) -> Any:
    """Turn the texts "inf" and "-inf" of a document back into numbers; `listed` makes its lists."""
    if isinstance(value, dict):
        return {name: numbers_again(entry, listed) for name, entry in value.items()}
    if isinstance(value, list):
        return listed(numbers_again(entry, listed) for entry in value)
    return {"inf": math.inf, "-inf": -math.inf}.get(value, value) if isinstance(value, str) else value


def visible(text: str) -> str:
    """Replace each character that cannot be seen by its number, such as ⟨U+202E⟩; newline and tab stay."""
    return _UNSEEN.sub(lambda found: f"⟨U+{ord(found[0]):04X}⟩", text)


def shortened(text: str, most: int) -> str:
    """Put a text into one line of at most `most` characters, all of which can be seen."""
    line = visible(" ".join(text.split()))
    return line if len(line) <= most else f"{line[: most - 1]}…"


def one_line(document: Any) -> str:
    """Write `document` as JSON in one line, without characters that a terminal would obey."""
    return _escaped(json.dumps(jsonable(document), allow_nan=False))


def json_text(document: Any) -> str:
    """Write `document` as JSON over several lines, with letters of all languages as they are."""
    return _escaped(json.dumps(jsonable(document), indent=1, allow_nan=False, ensure_ascii=False))


def _escaped(text: str) -> str:
    """Replace unseen characters by JSON escapes; in JSON they can only stand in strings."""
    return _UNSEEN.sub(lambda found: json.dumps(found[0])[1:-1], text)


def csv_cell(value: Any) -> Any:
    """Put an apostrophe before a text that a spreadsheet would take for a formula; a number is left as it is."""
    if not isinstance(value, str):
        return value
    text = visible(value)
    return f"'{text}" if value.startswith(_FORMULA) else text
