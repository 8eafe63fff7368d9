"""Guards of `hardened`: a part of the list in `guards.py`."""

from __future__ import annotations

from guards_of_folders import Guard

OF_HARDENED = [
    Guard(
        "hardened: what a run spends is said before it starts",
        "sim/cli/run_command.py",
        "            say(note)\n",
        "            plan.notes\n",
        "tests/sim/run/test_progress.py -k spends",
    ),
    Guard(
        "hardened: a user checks that the scales keep the claim",
        "protocol/schemes/hardened/hardened_roles.py",
        "        if not keeps_claim(params):\n",
        "        if False:\n",
        "tests/protocol/hardened/test_hardened.py -k no_user_adds",
    ),
    Guard(
        "hardened: μ is below that of ε, rounding included",
        "protocol/schemes/hardened/budget.py",
        "        hair *= 2\n",
        "        break\n",
        "tests/protocol/hardened/test_share_law.py -k mu_never",
    ),
    Guard(
        "hardened: a run is measured against a ridge that needs nobody else",
        "sim/run/summary.py",
        "floors(plan.data, plan.shape.rating_range, plan.shape.features)",
        "floors(plan.data, plan.shape.rating_range)",
        "tests/sim/data/test_described_items.py -k ridge",
    ),
    Guard(
        "hardened: no float comes between a share and the wire",
        "protocol/schemes/hardened/hardened_roles.py",
        "            ring.from_integers(shares[:, None], ",
        "            ring.from_integers(shares[:, None] * 1.0, ",
        "tests/protocol/hardened/test_share_law.py -k share_to_the_wire",
    ),
]
