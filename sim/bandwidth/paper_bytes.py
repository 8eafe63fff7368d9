"""The byte figures of the paper, beside those of both wire forms by formula, for exactly the size that it names."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from protocol.attendance import Course, Turn
from protocol.params import Params
from protocol.party.role import THIRD_PARTY
from protocol.schemes import Scheme
from protocol.wire.framing import Flow, wire_size

SOURCE = "Hua, Xia, Zhong 2015"
USERS, ITEMS, RATED, DIM = 1000, 10_000, 20, 50
DOWN, UP, FROM_THIRD_PARTY = 12_000, 5_000, 3_000_000  # 12 KB, 5 KB, 3 MB; a KB is 1000 bytes here


def comparison(scheme: Scheme, params: Params) -> dict[str, Any] | None:
    """Compare the paper's figures with both wire forms at the paper's size.

    The result is None for a scheme without a third party or without factors: the paper gives no figures for it.
    """
    if THIRD_PARTY not in scheme.servers or not scheme.factorizes:
        return None
    forms = {wire: _figures(scheme, _sized(params, wire)) for wire in ("paper", "compact")}
    whats = ("one user, down", "one user, up", "from the third party")
    return {
        "source": SOURCE,
        "users": USERS,
        "items": ITEMS,
        "items_per_user": RATED,
        "dim": DIM,
        "ring_bits": params.ring_bits,
        "factor_bits": params.factor_bits,
        "basis": "both wire forms by formula, for one iteration in which everyone takes part",
        "rows": [
            {"what": what, "paper": published, "wire_paper": full, "wire_compact": short, "why": why}
            for what, published, full, short, why in zip(
                whats,
                (DOWN, UP, FROM_THIRD_PARTY),
                forms["paper"],
                forms["compact"],
                _reasons(scheme, params),
                strict=True,
            )
        ],
    }


def _sized(params: Params, wire: str) -> Params:
    """Set `params` to the paper's size; the paper's form has 32-bit factors only."""
    changed: dict[str, Any] = {"n_users": USERS, "n_items": ITEMS, "dim": DIM, "iterations": 1, "wire": wire}
    if wire == "paper":
        changed["factor_bits"] = 32
    return dataclasses.replace(params, **changed)


def _figures(scheme: Scheme, params: Params) -> tuple[int, int, int]:
    """Compute the wire bytes (to a user, from it, from the third party) of an iteration with all users."""
    users, no_user = np.array([float(USERS)]), np.zeros(1)
    turn = Turn(users, users, no_user, no_user, ITEMS, ITEMS)
    course = Course(np.array([RATED]), users, users, users, users, users, (turn,))
    flows = [flow for flow in scheme.predict(params, course) if flow.iteration == 0]
    down = sum(_wire(flow) for flow in flows if flow.receiver == "user") / USERS
    up = sum(_wire(flow) for flow in flows if flow.sender == "user") / USERS
    return round(down), round(up), round(sum(_wire(flow) for flow in flows if flow.sender == THIRD_PARTY))


def _wire(flow: Flow) -> float:
    return float(np.sum(np.asarray(flow.messages) * wire_size(np.asarray(flow.frame))))


def _reasons(scheme: Scheme, params: Params) -> tuple[str, str, str]:
    ring = f"{params.ring_bits} bits"
    pieces = any(kind.__name__ == "ItemFactorsWithPieces" for kind in scheme.messages)
    vectors = "four vectors (factors, masks, envelopes, pieces)" if pieces else "three vectors"
    extra = ", of which the paper does not count the envelopes of the iteration noise" if pieces else ""
    return (
        f"The paper form sends {vectors} per item{extra}, with floors and framing; the compact form sends the factors "
        f"({params.factor_bits} bits each) and the floors alone, because masks and envelopes follow from keys.",
        f"Both forms send one vector of ring values of {ring} per item; the compact form packs the item numbers. "
        "The paper gives an upper bound and no breakdown.",
        f"One vector of ring values of {ring} per item, the item numbers, and who contributed how often; "
        "the paper gives an upper bound and no breakdown.",
    )
