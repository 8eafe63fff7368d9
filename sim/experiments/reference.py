"""Read the figures and sizes that stand as JSON beside the code that uses them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sim.foreign.plain_text import numbers_again


def reference(module: str) -> Any:
    """Read the JSON file beside the file `module`, with the same name; lists become tuples, and "inf" infinity."""
    return numbers_again(json.loads(Path(module).with_suffix(".json").read_text(encoding="utf-8")), tuple)
