"""Read the figures and sizes that stand as JSON beside the code that uses them."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any


def reference(module: str) -> Any:
    """Read the JSON file beside the file `module`, with the same name; lists become tuples, and "inf" infinity."""
    return _read(json.loads(Path(module).with_suffix(".json").read_text(encoding="utf-8")))


def _read(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _read(entry) for name, entry in value.items()}
    if isinstance(value, list):
        return tuple(_read(entry) for entry in value)
    return math.inf if value == "inf" else value
