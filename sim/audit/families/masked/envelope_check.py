"""The check of envelopes that a user can make: are the H that it was dealt draws of Exp(1)?

The paper remarks that users can easily monitor H. A user sees the envelopes of its own items, `dim` numbers each: once
of the objective noise, and in each iteration of the iteration noise. It compares them with the law by Kolmogorov and
Smirnov's test. It never sees whether other users were dealt the same.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from protocol.arithmetic.tape import exponential
from protocol.arrays import Floats32
from protocol.party.role import user_name
from sim.views.evidence import Case
from sim.views.exhibits import Exhibits

LEVEL = 0.05
_DEALT = ("Welcome", "WelcomeInFull", "Commit", "CommitInFull")


def p_value(envelopes: npt.NDArray[Any]) -> float:
    """Return the p-value of the test that these numbers are independent draws of Exp(1)."""
    from scipy.stats import kstest  # slow to import

    return float(kstest(np.asarray(envelopes, np.float64).ravel(), "expon").pvalue)


def envelopes_dealt(case: Case) -> dict[str, Floats32]:
    """Return the objective envelopes that each user was dealt: of its items, or of those that it committed to."""
    dim, found = case.card.params.dim, dict[str, Floats32]()
    for user in range(case.card.params.n_users):
        name = user_name(user)
        if name not in case.party_set:
            continue
        dealt = Exhibits(case, (name,)).received(name, *_DEALT)
        rows = [row for row in (_objective(seen.message, dim) for seen in dealt) if row.size]
        if rows:
            found[name] = np.concatenate(rows)
    return found


def _objective(dealt: Any, dim: int) -> Floats32:
    """Derive the objective envelopes of a message, or read them in it."""
    if hasattr(dealt, "envelopes"):
        rows: Floats32 = dealt.envelopes
        return rows
    if hasattr(dealt, "attempt"):
        return exponential(dealt.item_keys, dim, "eta")
    told = len(dealt.floors) > 0  # in `dynamic` the welcome brings keys of the iteration noise alone
    return exponential(dealt.item_keys, dim, "eta", 0) if told else np.zeros((0, dim), np.float32)


def check_users(case: Case) -> dict[str, Any] | None:
    """Let every user make the check; None if no user keeps a view."""
    found = {name: p_value(rows) for name, rows in envelopes_dealt(case).items()}
    if not found:
        return None
    return {
        "users": len(found),
        "level": LEVEL,
        "noticing": sum(p <= LEVEL for p in found.values()),
        "expected_by_chance": LEVEL * len(found),
        "least_p": min(found.values()),
    }
