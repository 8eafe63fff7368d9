"""Every message, in protocol order. The comment on each is sender -> receiver; its fields are what the receiver sees.

A new field is a visible change of the leakage statement: the schemes declare each one.
The annotation of a field says how it travels (`fields.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from protocol.wire.fields import (
    Count,
    Counts,
    Digest,
    Digits,
    Elements,
    FactorRows,
    FloatRows,
    Grades,
    ItemIds,
    KeyRow,
    Places,
    Reals,
    RingRows,
    UserIds,
)

Message = Any  # any of the classes below, or a class of a custom scheme

SETUP = -1  # the iteration of messages that belong to none


@dataclass(frozen=True, slots=True, eq=False)
class Hello:  # first frame in either direction of every connection
    wire_version: Count
    run_id: Digest
    params_digest: Digest


@dataclass(frozen=True, slots=True, eq=False)
class Again:  # unnumbered, by a party that may lack frames, and the answer to it
    received: Count  # frames that the sender has of the receiver: resend those from this number on, byte for byte
    answer: Count  # 1: say the same for the other direction


# --- set-up -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Join:  # user -> recommender
    items: ItemIds  # the items that the user rated: the support


@dataclass(frozen=True, slots=True, eq=False)
class Welcome:  # recommender -> user, compact wire: keys instead of vectors
    floors: Counts  # of the objective noise, one per item of the user
    mask_key: Digest  # every mask ψ of this user
    item_keys: KeyRow  # one per item: every envelope of that item


@dataclass(frozen=True, slots=True, eq=False)
class WelcomeInFull:  # recommender -> user, paper wire
    floors: Counts
    envelopes: FloatRows  # H_j of the objective noise


# --- set-up of `dynamic`: noise that is committed before the first iteration ---------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class OpenCommitment:  # recommender -> third party
    attempt: Count  # its number; a failed attempt is never summed again
    users: UserIds  # the committers
    items: ItemIds
    counts: Counts  # the number of committers of each item


@dataclass(frozen=True, slots=True, eq=False)
class Commit:  # recommender -> user, compact wire: the blinds β follow from the mask key
    attempt: Count
    items: ItemIds  # to commit to, whether the user rated them or not
    counts: Counts  # committers of each item
    item_keys: KeyRow  # of each item: the envelope of its objective noise, in this attempt only


@dataclass(frozen=True, slots=True, eq=False)
class CommitInFull:  # recommender -> user, paper wire
    attempt: Count
    items: ItemIds
    counts: Counts
    blinds: RingRows  # β
    envelopes: FloatRows


@dataclass(frozen=True, slots=True, eq=False)
class BlindedShare:  # user -> third party: uniform on Z_P to a party without β
    attempt: Count
    items: ItemIds
    values: RingRows  # τ = enc(η share) + β


@dataclass(frozen=True, slots=True, eq=False)
class SealedTotal:  # third party -> recommender: uniform on Z_P to a party without α
    attempt: Count
    items: ItemIds  # those to which every committer committed; the others must start again
    values: RingRows  # τ~ = α + Σ τ


@dataclass(frozen=True, slots=True, eq=False)
class Present:  # user -> recommender
    iteration: Count  # from this one on


@dataclass(frozen=True, slots=True, eq=False)
class Absent:  # user -> recommender
    iteration: Count


# --- one iteration ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class OpenSum:  # recommender -> third party
    iteration: Count
    users: UserIds  # the invited users
    items: ItemIds  # all items that they rated
    floors: Counts  # the fewest contributors for which an item may be released


@dataclass(frozen=True, slots=True, eq=False)
class ItemFactors:  # recommender -> user, compact wire and `plain`
    iteration: Count
    floors: Counts  # of the iteration noise, one per item of the user; empty where there is no noise to share
    factors: FactorRows  # v_j(t), in the order of the user's items


@dataclass(frozen=True, slots=True, eq=False)
class ItemFactorsInFull:  # recommender -> user, paper wire
    iteration: Count
    floors: Counts
    factors: FactorRows
    masks: RingRows  # ψ
    envelopes: FloatRows  # H_j(t) of the iteration noise


@dataclass(frozen=True, slots=True, eq=False)
class ItemFactorsWithPieces:  # recommender -> user, paper wire of `dynamic`
    iteration: Count
    floors: Counts
    factors: FactorRows
    masks: RingRows
    envelopes: FloatRows
    pieces: RingRows  # of the sealed noise τ^; all pieces of an item sum to it


@dataclass(frozen=True, slots=True, eq=False)
class Gradient:  # user -> recommender, `plain` only: nothing is hidden
    iteration: Count
    values: FloatRows


@dataclass(frozen=True, slots=True, eq=False)
class MaskedGradient:  # user -> third party: uniform on Z_P to a party without the mask
    iteration: Count
    items: ItemIds  # reveals the support
    values: RingRows  # enc(gradient) + enc(η share) + enc(ρ share) + ψ


@dataclass(frozen=True, slots=True, eq=False)
class Contributors:  # third party -> recommender: the iteration is closed, once and for all
    iteration: Count
    users: UserIds
    counts: Counts  # contributors of each opened item
    digest: Digest  # of the contributors and their items


@dataclass(frozen=True, slots=True, eq=False)
class Agreed:  # recommender -> third party: all contributors were dealt masks
    iteration: Count
    digest: Digest


@dataclass(frozen=True, slots=True, eq=False)
class MaskedTotal:  # third party -> recommender
    iteration: Count
    items: ItemIds  # those at or above their floor; the others are absent
    values: RingRows  # φ_j = Σ φ^i_j


@dataclass(frozen=True, slots=True, eq=False)
class Publication:  # recommender -> user, after the last iteration, whether the user was ever online or not
    iteration: Count
    factors: FactorRows  # v_j of every item in order, or, with `--publish rated`, of the user's own items


@dataclass(frozen=True, slots=True, eq=False)
class Finish:  # recommender -> everyone: no iteration follows
    iteration: Count


# --- `trusted` and `direct`: users and a recommender, no third party -------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class RatingsHandover:  # user -> recommender, `trusted` only: nothing is hidden
    items: ItemIds
    values: Reals  # the ratings, in the order of the items


@dataclass(frozen=True, slots=True, eq=False)
class NoiseKeys:  # recommender -> user, `direct`: all that a share of the objective noise needs
    floors: Counts  # into how many shares the noise of each item is split
    item_keys: KeyRow  # one per item: the envelope of its objective noise


@dataclass(frozen=True, slots=True, eq=False)
class NoisyGradient:  # user -> recommender, `direct`
    iteration: Count
    values: FloatRows  # gradient + η share + the user's own ρ


# --- ratings that are handed over, perturbed or not, and the one answer to them: `dim` is 1 ---------------------------


@dataclass(frozen=True, slots=True, eq=False)
class GradedRatings:  # user -> recommender: nothing is hidden
    items: ItemIds
    grades: Grades  # the ratings, where all of them are on a grid


@dataclass(frozen=True, slots=True, eq=False)
class PerturbedRatings:  # user -> recommender
    items: ItemIds  # the items that the user rated or claims to have rated
    values: FloatRows  # rating + noise that the user drew


@dataclass(frozen=True, slots=True, eq=False)
class RandomizedLevels:  # user -> recommender
    levels: Digits  # the answer for every item: 0 for not rated, else a level of the scale


@dataclass(frozen=True, slots=True, eq=False)
class FactorModel:  # recommender -> user, `covariance`: enough to predict by factors
    averages: FloatRows  # one for each item
    covered: ItemIds  # those that have factors
    factors: FloatRows  # for each covered item one number per rank


@dataclass(frozen=True, slots=True, eq=False)
class NeighbourModel:  # recommender -> user, `covariance` and `hybrid`: enough to predict by neighbours
    averages: FloatRows
    covered: ItemIds  # those that have neighbours
    shrink: Reals  # one number: the shrinkage of a user's own average, as a number of ratings
    among: FloatRows  # covariances of the user's items with each other: the upper triangle, row after row
    neighbours: Places  # covered item by item: its nearest among the user's items, as places in the user's list
    covariances: FloatRows  # of the covered item with each of these


@dataclass(frozen=True, slots=True, eq=False)
class Recommendations:  # recommender -> user
    values: FloatRows  # one for each item


# --- `covariance-masked`: two sums over all users, carried by the third party; `dim` is 1 -----------------------------


@dataclass(frozen=True, slots=True, eq=False)
class MaskWelcome:  # recommender -> user
    mask_key: Digest  # every mask of this user
    counts: Counts  # sparse: the raters of each of its items; dense: empty


@dataclass(frozen=True, slots=True, eq=False)
class MaskedPart:  # user -> third party: uniform on Z_P to a party without the mask
    iteration: Count
    items: ItemIds  # sparse: the items that the user rated, which place the values; dense: empty
    values: RingRows  # enc(part) + enc(noise share) + ψ


@dataclass(frozen=True, slots=True, eq=False)
class PartTotal:  # third party -> recommender: for every place
    iteration: Count
    values: RingRows


@dataclass(frozen=True, slots=True, eq=False)
class OpenPairs:  # recommender -> third party
    iteration: Count
    covered: ItemIds  # as published: in the sparse form they place the values of round 1


@dataclass(frozen=True, slots=True, eq=False)
class PublishedAverages:  # recommender -> user
    iteration: Count
    averages: FloatRows  # one for each item
    covered: ItemIds  # the items of largest noisy count, whose covariance is summed
    counts: FloatRows  # sparse: the number of users that rated both, for each pair of its covered items; dense: empty


@dataclass(frozen=True, slots=True, eq=False)
class CovarianceFactors:  # recommender -> user: enough to predict by factors, with the averages
    factors: FloatRows  # for each covered item one number per rank


@dataclass(frozen=True, slots=True, eq=False)
class CovariancePairs:  # recommender -> user: enough to predict by neighbours, for any rated items
    covariances: FloatRows  # of all covered items with each other: the upper triangle, row after row
    weights: FloatRows  # likewise


# --- `hardened`: one dense sum over all users (`Join`, `MaskWelcome`, `MaskedPart`, `Contributors`, `Agreed`,
# `PartTotal` as above, without items), then what is published; `dim` is 1 ---------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class PublishedTable:  # recommender -> user: enough to predict at home
    iteration: Count
    qualities: FloatRows  # one for each item
    popularities: FloatRows  # likewise
    frame: FloatRows  # means and deviations of both, and the centre of the public columns


@dataclass(frozen=True, slots=True, eq=False)
class OpenTaste:  # recommender -> user: what is published after round 1, where round 2 follows
    iteration: Count
    qualities: FloatRows
    popularities: FloatRows
    frame: FloatRows
    covered: ItemIds  # the most popular items
    directions: FloatRows  # for each item of all one number per direction


@dataclass(frozen=True, slots=True, eq=False)
class PublishedTaste:  # recommender -> user
    iteration: Count
    directions: FloatRows  # as learned, for each covered item


@dataclass(frozen=True, slots=True, eq=False)
class OpenTable:  # recommender -> user: after a sketch, the items whose sums the table is made of
    iteration: Count
    covered: ItemIds  # those of largest estimate


# --- `hardened` with proofs of the norm: these before `Contributors` -------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class ProvenPart:  # user -> third party, in the place of MaskedPart: uniform to a party without the masks
    iteration: Count
    values: RingRows  # vector + noise share + mask
    shares: RingRows  # noise share + another mask
    digits: RingRows  # of what the sums of squares leave of their bounds + mask


@dataclass(frozen=True, slots=True, eq=False)
class NormTests:  # third party -> user
    iteration: Count
    key: Digest  # of random projections, drawn after ProvenPart


@dataclass(frozen=True, slots=True, eq=False)
class NormAnswer:  # user -> third party
    iteration: Count
    values: RingRows  # digits of the projections + mask


@dataclass(frozen=True, slots=True, eq=False)
class NormWeights:  # third party -> user
    iteration: Count
    key: Digest  # of random weights of all equations, drawn after NormAnswer


@dataclass(frozen=True, slots=True, eq=False)
class NormProof:  # user -> third party
    iteration: Count
    values: RingRows  # blinds and coefficients + mask


@dataclass(frozen=True, slots=True, eq=False)
class NormQuery:  # third party -> recommender: the round is closed, and these users have sent a proof
    iteration: Count
    users: UserIds
    key: Digest  # from which all challenges of the round follow, and how each user's noise is turned
    opened: Elements  # the third party's halves of the numbers that decide, user after user


@dataclass(frozen=True, slots=True, eq=False)
class NormVerdict:  # recommender -> third party
    iteration: Count
    users: UserIds  # those whose vectors keep their bounds


# --- events, which reach a role from outside the protocol -----------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Deadline:  # the clock, as an input: this iteration (or, with -1, the set-up) has waited long enough
    iteration: int


@dataclass(frozen=True, slots=True)
class Churn:  # to a user: it comes online or goes offline before this iteration
    iteration: int
    online: bool


@dataclass(frozen=True, slots=True)
class Due:  # to the recommender: the users whose Present or Absent comes before this iteration
    iteration: int
    users: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Gone:  # to the servers: this user's process has ended and does not come back
    user: int


@dataclass(frozen=True, slots=True)
class Barred:  # to a server: this user has flooded it, and no frame of the user is read any more
    user: int


Event = Deadline | Churn | Due | Gone | Barred
EVENTS: dict[str, type] = {cls.__name__: cls for cls in (Deadline, Churn, Due, Gone, Barred)}
