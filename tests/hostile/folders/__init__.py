"""Whole run folders made by somebody who means harm, and every command of Keyhole pointed at them."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))  # where the supports of the tests are
