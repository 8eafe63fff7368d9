"""Every message, in protocol order. The comment on each is sender -> receiver; its fields are what the receiver sees.

A new field is a visible change of the leakage statement: the schemes declare each one.
The annotation of a field says how it travels (`codec.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt

from protocol.ring import Ids, RingArray

Count = Annotated[int, "count"]
Digest = Annotated[bytes, "bytes32"]
KeyRow = Annotated[tuple[bytes, ...], "keys"]  # 32 bytes each
Increasing = Annotated[Ids, "increasing"]  # item or user numbers
Counts = Annotated[npt.NDArray[np.uint32], "counts"]
FloatRows = Annotated[npt.NDArray[np.float32], "floats"]  # rows of `dim` numbers
RingRows = Annotated[RingArray, "ring"]  # rows of `dim` elements of Z_P

Message = Any  # any of the classes below, or of a scheme's own

SETUP = -1  # the iteration of messages that belong to none


@dataclass(frozen=True, slots=True, eq=False)
class Hello:  # first frame in either direction of every connection
    wire_version: Count
    run_id: Digest
    params_digest: Digest


# --- set-up -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Join:  # user -> recommender
    items: Increasing  # the items that the user rated: the support


@dataclass(frozen=True, slots=True, eq=False)
class Welcome:  # recommender -> user, compact wire: keys instead of vectors
    floors: Counts  # of the objective noise, one per item of the user
    mask_key: Digest  # every mask ψ of this user
    item_keys: KeyRow  # one per item: every envelope of that item


@dataclass(frozen=True, slots=True, eq=False)
class WelcomeInFull:  # recommender -> user, paper wire
    floors: Counts
    envelopes: FloatRows  # H_j of the objective noise


# --- one iteration ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class OpenSum:  # recommender -> third party
    iteration: Count
    users: Increasing  # who is invited
    items: Increasing  # what they rated, all together
    floors: Counts  # the fewest contributors for which an item may be released


@dataclass(frozen=True, slots=True, eq=False)
class ItemFactors:  # recommender -> user, compact wire and `plain`
    iteration: Count
    floors: Counts  # of the iteration noise, one per item of the user; empty where there is no noise to share
    factors: FloatRows  # v_j(t), in the order of the user's items


@dataclass(frozen=True, slots=True, eq=False)
class ItemFactorsInFull:  # recommender -> user, paper wire
    iteration: Count
    floors: Counts
    factors: FloatRows
    masks: RingRows  # ψ
    envelopes: FloatRows  # H_j(t) of the iteration noise


@dataclass(frozen=True, slots=True, eq=False)
class Gradient:  # user -> recommender, `plain` only: nothing is hidden
    iteration: Count
    values: FloatRows


@dataclass(frozen=True, slots=True, eq=False)
class MaskedGradient:  # user -> third party: uniform on Z_P to whoever lacks the mask
    iteration: Count
    items: Increasing  # reveals the support
    values: RingRows  # enc(gradient) + enc(η share) + enc(ρ share) + ψ


@dataclass(frozen=True, slots=True, eq=False)
class Contributors:  # third party -> recommender: the iteration is closed, once and for all
    iteration: Count
    users: Increasing
    counts: Counts  # contributors of each opened item
    digest: Digest  # of who contributed which items


@dataclass(frozen=True, slots=True, eq=False)
class Agreed:  # recommender -> third party: all of them were dealt masks
    iteration: Count
    digest: Digest


@dataclass(frozen=True, slots=True, eq=False)
class MaskedTotal:  # third party -> recommender
    iteration: Count
    items: Increasing  # those at or above their floor; the others are absent
    values: RingRows  # φ_j = Σ φ^i_j


@dataclass(frozen=True, slots=True, eq=False)
class Finish:  # recommender -> everyone: no iteration follows
    iteration: Count


# --- what reaches a role from outside the protocol -----------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Deadline:  # the clock, as an input: this iteration has waited long enough
    iteration: int
