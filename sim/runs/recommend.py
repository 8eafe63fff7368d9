"""`keyhole recommend`: the items that a user would be shown, from its own view, or from the model and the data.

A user of a factorization fits its profile on its device from its own ratings and the published V. Its view holds both,
and they must give the predictions with which the party ended. Without a view, the ratings are dealt again from the
data. Users of other schemes predict from whatever they were sent: their role is run again from its view.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from protocol.arithmetic.factors import as_sent
from protocol.arithmetic.tape import Tape
from protocol.arrays import Vector
from protocol.errors import BadInput, Rejected
from protocol.params import require
from protocol.party.party import result_digest
from protocol.party.profile import score
from protocol.party.role import RECOMMENDER, FactorizingUser, PredictingUser, Role, UserInput, user_index, user_name
from protocol.party.view import END, Broken
from protocol.wire.messages import Publication
from sim.folder.folder import describe_platform, open_view, read_summary
from sim.folder.naming import Names, read_sound_names
from sim.foreign import untrusted
from sim.plan.plan import Plan, make_plan
from sim.views.evidence import Case, at_rest, open_case
from sim.views.exhibits import Exhibits
from sim.views.replay import PartyReplay

TOP = 10
VIEW, MODEL = "view", "model"

Summary = dict[str, Any] | None


@dataclass(frozen=True, slots=True, eq=False)
class Predicted:
    """The predictions of one user for all items."""

    user: int
    basis: str  # VIEW or MODEL
    note: str  # `basis` in words
    inputs: UserInput
    scores: Vector  # before they are clipped to the rating range
    ridge: float | None  # λ' of the profile, if there is one
    digest: str | None  # of the predictions with which the party ended


def recommend(folder: Path, user: str | None = None, top: int = TOP) -> dict[str, Any]:
    """Make the document that `keyhole recommend --json` prints; `BadInput` says why nothing can be recommended."""
    require(top >= 1, f"--top must be 1 or more, not {top}.")
    case = open_case(folder)
    with at_rest(folder):
        names, summary = read_sound_names(folder, case.card.params), read_summary(folder)
        ended = summary is None or summary["completed"]
        words = f"{folder} did not complete, so users were sent nothing to predict from"
        require(ended, f"{words}: go on with keyhole resume {folder}, or run it again.")
        party = None if user is None else names.find_user(user, case.card.params.n_users, folder)
        made = _predicted(case, summary, None if party is None else user_index(party))
    return _document(case, names, made, top)


def _document(case: Case, names: Names, made: Predicted, top: int) -> dict[str, Any]:
    params, own = case.card.params, made.inputs
    unrated = np.setdiff1d(np.arange(params.n_items), own.items)
    stars = np.clip(made.scores, params.rating_min, params.rating_max)
    best = unrated[np.argsort(-made.scores[unrated], kind="stable")][:top].tolist()
    liked = np.argsort(-own.ratings, kind="stable").tolist()
    return {
        "run": str(case.folder),
        "user": user_name(made.user),
        "name": names.identifier(made.user),
        "scheme": case.card.scheme.name,
        "data": case.config.data,
        "basis": made.basis,
        "note": made.note,
        "ridge": made.ridge,
        "predictions_sha256": made.digest,
        "rating_range": list(params.rating_range),
        "ratings": len(own.items),
        "unrated": len(unrated),
        "rated": [{**names.describe(int(own.items[at])), "stars": float(own.ratings[at])} for at in liked],
        "recommendations": [
            {"rank": rank, **names.describe(item), "predicted": float(stars[item]), "score": float(made.scores[item])}
            for rank, item in enumerate(best, 1)
        ],
    }


# --- which user ------------------------------------------------------------------------------------------------------


def _predicted(case: Case, summary: Summary, user: int | None) -> Predicted:
    """Find the predictions of `user`, or of the first user that finished."""
    if user is not None:
        made = _of_user(case, summary, user)
        words = f"{user_name(user)} did not complete {case.folder}, so it was sent nothing to predict from"
        require(made is not None, f"{words}: ask for another user.")
        assert made is not None
        return made
    for each in _there(case, summary):
        if (made := _of_user(case, summary, each)) is not None:
            return made
    raise BadInput(f"No user completed {case.folder}: go on with keyhole resume {case.folder}.")


def _there(case: Case, summary: Summary) -> Iterator[int]:
    """Iterate over the users that had not gone before the end."""
    gone = () if summary is None else summary["gone"]
    return (user for user in range(case.card.params.n_users) if user_name(user) not in gone)


def _of_user(case: Case, summary: Summary, user: int) -> Predicted | None:
    """Find the predictions of `user`; None if it did not finish."""
    if _has_view(case, user):
        return _from_view(case, user)
    return _from_model(case, summary, user) if user in _there(case, summary) else None


def _has_view(case: Case, user: int) -> bool:
    return untrusted.is_there(case.folder, case.file(user_name(user)))


def median_user(folder: Path) -> tuple[str, str]:
    """Choose the user with the median number of ratings, to stand for all on the page; say among which users."""
    case, summary = open_case(folder), read_summary(folder)
    there = list(_there(case, summary))
    with_view = [user for user in there if _has_view(case, user)]
    counts: dict[int, int] = {}
    for user in with_view:
        brought = Exhibits(case, (user_name(user),)).brought(user_name(user)).inputs
        counts[user] = 0 if brought is None else len(brought.items)
    words = f"the {len(with_view):,} users whose views were kept" if len(with_view) < len(there) else "all users"
    if not with_view and there:
        dealt = _dealt(case, there[0]).data.train.counts
        counts, words = {user: int(dealt[user]) for user in there}, "all users"
    require(bool(counts), f"No user completed {folder}, so there is no user to show.")
    ordered = sorted(counts, key=lambda user: (counts[user], user))
    return user_name(ordered[(len(ordered) - 1) // 2]), words


# --- from its view ---------------------------------------------------------------------------------------------------


def _from_view(case: Case, user: int) -> Predicted | None:
    """Compute from the view what the party itself computed; `Broken` if the party ended with something else."""
    party = user_name(user)
    exhibits = Exhibits(case, (party,))
    brought = exhibits.brought(party)
    end = next((record.fields[0] for record in exhibits.records(party) if record.type == END), None)
    if end is None:
        return None
    if brought.inputs is None or not len(brought.inputs.items):
        raise Broken(f"{case.file(party)} says that {party} brought no ratings")
    role = _role(case, party, brought.tape, brought.inputs)
    if not isinstance(role, FactorizingUser):
        other = _again(case, party)
        if not isinstance(other, PredictingUser):
            raise BadInput(f"Users of {case.card.scheme.name} predict nothing, so there is nothing to recommend.")
        scores = _finite(other.predict(np.arange(case.card.params.n_items, dtype=np.uint32)))
        note = f"The role of {party}, run again from its view: it wrote the same, byte for byte."
        return Predicted(user, VIEW, note, other.inputs, scores, None, None)
    _refuse_own_rows(case, party)
    for seen in exhibits.received(party, Publication.__name__):
        _publish(case, party, role, seen.sender, seen.message)
    if role.published is None:
        raise Broken(f"{case.file(party)} has an end, and nothing that was published before it")
    if result_digest(role.predictions()) != end:
        raise Broken(f"{case.file(party)} does not end with what follows from its ratings and what it was sent")
    note = f"From the view of {party} alone; these predictions have the digest with which it ended."
    return _fitted(user, VIEW, note, role, end.hex())


def _again(case: Case, party: str) -> Role | None:
    """Run the role of `party` again from its view, comparing every record, and return it as it ended."""
    rerun = PartyReplay(case, party, must_end=True)
    with open_view(case.folder, party) as stream:
        rerun.read(stream, lambda count: None)
    if (found := rerun.difference) is None:
        return rerun.role
    if not found.broken and case.platform != describe_platform():
        words = "was run on another platform, and its role does something else here"
        raise BadInput(f"{party} of {case.folder} {words}: ask on the platform that run.toml names.")
    raise Broken(f"{case.file(party)}: record {found.record} {found.what}")


# --- from the model and the data -------------------------------------------------------------------------------------


def _from_model(case: Case, summary: Summary, user: int) -> Predicted:
    party, params = user_name(user), case.card.params
    absent = f"{case.folder} kept no view of {party}"
    require(summary is not None, f"{absent} and has no summary: end the run with keyhole resume {case.folder}.")
    assert summary is not None
    plan = _dealt(case, user)
    inputs = UserInput(*plan.data.train.of(user))
    role = _role(case, party, Tape(case.tape_seed(party)), inputs)
    if not isinstance(role, FactorizingUser):
        words = f"and what a user of {case.card.scheme.name} predicts from stands in its view alone"
        raise BadInput(f"{absent}, {words}: run it again with --views full.")
    _refuse_own_rows(case, party)
    _publish(case, party, role, RECOMMENDER, Publication(params.iterations, _model(case, summary)))
    return _fitted(user, MODEL, f"From the model and the data: this run kept no view of {party}.", role, None)


def _dealt(case: Case, user: int) -> Plan:
    """Deal the data to the users again, as in the run."""
    absent = f"{case.folder} kept no view of {user_name(user)}"
    try:
        plan = make_plan(case.config, case.nonce, case.card.simulation)
    except BadInput as refusal:
        raise BadInput(f"{absent}, and without it this needs the data: {refusal}") from None
    same = plan.card.run_id == case.card.run_id
    require(same, f"{absent}, and {case.config.data} is not what it was then: put the same data there.")
    return plan


def _model(case: Case, summary: dict[str, Any]) -> Any:
    """Read V as it was sent."""
    params, name = case.card.params, "model/item_factors.npy"
    try:
        found = np.array(untrusted.map_array(case.folder, name))
        if found.shape != (params.n_items, params.dim):
            raise ValueError(f"its shape is {found.shape}")
    except FileNotFoundError:
        raise BadInput(f"{case.folder} has neither views of users nor {name}: run it again.") from None
    except ValueError as error:
        raise Broken(f"{name} is not an array of item factors ({error})") from None
    if result_digest(found).hex() != summary["item_factors_sha256"]:
        raise Broken(f"{name} does not have the digest that summary.json gives")
    with np.errstate(over="ignore"):  # the role refuses what is too large
        return as_sent(found, params.factor_bits)


# --- from ratings and what was published -----------------------------------------------------------------------------


def _role(case: Case, party: str, tape: Tape, inputs: UserInput) -> Role:
    return case.card.make_role(party, case.card.setting, tape, inputs)


def _refuse_own_rows(case: Case, party: str) -> None:
    words = f"{party} of {case.folder} was sent the factors of the items that it rated and of no others"
    why = f"{words}, so there is nothing to recommend: run it again with --publish all."
    require(case.card.params.publish == "all", why)


def _publish(case: Case, party: str, role: FactorizingUser, sender: str, message: Any) -> None:
    try:
        role.take_publication(sender, message)
    except Rejected as refusal:
        raise Broken(f"{party} of {case.folder} would refuse what was published ({refusal.reason.name})") from None


def _fitted(user: int, basis: str, note: str, role: FactorizingUser, digest: str | None) -> Predicted:
    assert role.published is not None and role.profile is not None
    scores = _finite(score(role.published, role.profile.factors))
    return Predicted(user, basis, note, role.inputs, scores, role.profile.ridge, digest)


def _finite(scores: Vector) -> Vector:
    """Make NaN the lowest score, so that it ranks last."""
    return np.nan_to_num(scores, nan=-np.inf)
