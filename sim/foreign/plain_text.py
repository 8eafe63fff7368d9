"""Text that came from a file, as it is shown: to a terminal, as JSON, on a page, in a table for a spreadsheet.

A name may hold an escape that repaints the screen, a mark that turns the direction of writing, or half of a surrogate
pair. Such characters are shown by their numbers, so that what people read is what stands there.
"""

from __future__ import annotations

import json
import math
import re
import sys
from typing import Any

# controls (but for newline and tab), line separators, surrogates, and what has no width or turns the direction
_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def jsonable(value: Any) -> Any:
    """JSON without NaN or Infinity: infinity is "inf", what is not a number is null; bytes become hexadecimal."""
    if isinstance(value, dict):
        return {str(key): jsonable(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [jsonable(entry) for entry in value]
    if isinstance(value, bytes):
        return value.hex()
    if (numpy := sys.modules.get("numpy")) and isinstance(value, numpy.generic):  # else there is no number of its kind
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else "inf" if value > 0 else "-inf"
    return value


def visible(text: str) -> str:
    """Replace what cannot be seen by its number, such as ⟨U+202E⟩; newline and tab stay."""
    return _UNSEEN.sub(lambda found: f"⟨U+{ord(found[0]):04X}⟩", text)


def shortened(text: str, most: int) -> str:
    """Put a text into one line of at most so many characters, all of which can be seen."""
    line = visible(" ".join(text.split()))
    return line if len(line) <= most else f"{line[: most - 1]}…"


def one_line(document: Any) -> str:
    """JSON in one line; it has no character that a terminal would obey."""
    return _escaped(json.dumps(jsonable(document), allow_nan=False))


def json_text(document: Any) -> str:
    """The same over several lines, with letters of all languages as they are."""
    return _escaped(json.dumps(jsonable(document), indent=1, allow_nan=False, ensure_ascii=False))


def _escaped(text: str) -> str:
    """By JSON's own escapes: outside of its strings no such character stands in JSON."""
    return _UNSEEN.sub(lambda found: json.dumps(found[0])[1:-1], text)


def csv_cell(value: Any) -> Any:
    """A text that a spreadsheet would take for a formula gets an apostrophe in front; a number stays one."""
    if not isinstance(value, str):
        return value
    text = visible(value)
    return f"'{text}" if value.startswith(_FORMULA) else text
