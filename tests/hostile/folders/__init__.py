"""Run folders made by an attacker, and every command of Keyhole run on them."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))  # the folder that contains `support`
