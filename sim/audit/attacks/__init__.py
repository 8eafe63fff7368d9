"""Attacks on the real bytes of the view files: done by a coalition from its own views, scored against the truth.

Every attack guesses first, from `Exhibits` of the coalition alone; only then are other views opened, to score it. What
counts as public, and so is open before: sizes and parameters of the run, and how frequent each rating value is.
"""

from __future__ import annotations

from sim.audit import scoring
from sim.audit.attacks.attack import attack

__all__ = ["attack", "scoring"]
