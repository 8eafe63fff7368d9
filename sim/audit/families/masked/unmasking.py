"""Remove the masks of uploads: both servers only need to subtract them; the third party alone must fail."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from scipy import stats

from protocol.arrays import Ids, RingArray
from protocol.party.role import RECOMMENDER, THIRD_PARTY, user_index
from protocol.schemes.factorization.masked_sum import MaskDealer
from sim.audit.attacks.coalition_views import Scene
from sim.audit.findings import Finding


class UnmaskedUpload(NamedTuple):
    user: int
    iteration: int
    items: Ids
    words: RingArray


def uploads(scene: Scene) -> Iterator[UnmaskedUpload]:
    """Yield the uploads as the third party received them."""
    for seen in scene.received(THIRD_PARTY, "MaskedGradient"):
        yield UnmaskedUpload(user_index(seen.sender), seen.iteration, seen.message.items, seen.message.values)


def unmasked(scene: Scene) -> Iterator[UnmaskedUpload]:
    """Unmask the uploads as both servers: masks follow from the recommender's tape, and it dealt the pieces itself."""
    params, tape = scene.params, scene.exhibits.brought(RECOMMENDER).tape
    dealer = MaskDealer(scene.ring, params.dim, scene.case.card.run_id, tape)
    paper = scene.commits and params.wire == "paper"
    for found in uploads(scene):
        masks = dealer.masks(found.user, found.iteration, found.items)
        words = scene.ring.subtract(found.words, masks)
        if paper:
            pieces = scene.recommender.rounds[found.iteration].pieces.get(found.user)
            if pieces is None:  # the user was not invited to this iteration
                continue
            words = scene.ring.subtract(words, pieces)
        yield found._replace(words=words)


def attack_together(scene: Scene) -> list[Finding]:
    guesses = list(unmasked(scene))
    rows = exact = most = unscored = 0
    for guess in guesses:
        true = _true_words(scene, guess)
        if true is None:
            unscored += 1
            continue
        error = np.abs(scene.ring.to_signed(scene.ring.subtract(guess.words, true)))
        rows += len(error)
        exact += int((error.max(axis=1) == 0).sum())
        most = max(most, int(error.max()))
    if not rows:
        return []
    noise = "gradient with its iteration noise alone" if scene.commits else "noisy gradient"
    title = f"The two servers together read {exact} of {rows} rows of single users exactly: each is one user's {noise}."
    measured = {
        "uploads": len(guesses) - unscored, "rows": rows, "rows_exact": exact, "max_error_ring_units": most
    }  # fmt: skip
    evidence = (
        "Masks were derived from the tape in the recommender's view and subtracted from every MaskedGradient in the "
        "third party's; compared word for word with each user's role, run again from that user's view." + scene.extent
    )
    chance = {"rows_exact": f"2^-{scene.ring.bits * scene.params.dim} of the rows"}
    return [Finding("unmasking", title, scene.members, "weak" if exact else "info",
                    "no server alone learns a user's gradient", measured, chance, "exact", evidence)]  # fmt: skip


# --- the third party without the recommender ---------------------------------------------------------------------


def attack_alone(scene: Scene) -> list[Finding]:
    """Try what would succeed against a mask that is missing, used twice, shared between users, or sent along."""
    tries = {"as sent": 0, "less the user's previous upload": 0, "less another user's upload": 0, "less a sent mask": 0}
    rows, before, other, sent_along = 0, dict[int, UnmaskedUpload](), dict[int, UnmaskedUpload](), _other_rows(scene)
    for found in uploads(scene):
        true = _true_words(scene, found)
        if true is None:
            continue
        rows += len(true)
        tries["as sent"] += _equal_rows(found.words, true)
        for rest in sent_along.get((found.user, found.iteration), []):
            if rest.shape == true.shape:
                tries["less a sent mask"] += _equal_rows(scene.ring.subtract(found.words, rest), true)
        tries["less the user's previous upload"] += _differs_alike(scene, found, before.get(found.user))
        tries["less another user's upload"] += _differs_alike(scene, found, other.get(found.iteration))
        before[found.user] = other[found.iteration] = found
    if not rows:
        return []
    read = max(tries.values())
    luck, broken = _luck(scene), _more_than_luck(scene, read, rows)
    title = (
        f"The third party alone reads {read} of {rows} masked rows." if broken else
        f"The third party alone reads {read} of {rows} masked rows, no more than by chance: no mask was found to be "
        "missing, repeated, shared or sent along."
    )  # fmt: skip
    evidence = "Each try was compared word for word with the users' roles, run again from their views." + scene.extent
    return [Finding("unmasking", title, scene.members, "break" if broken else "info", "uniform ring elements",
                    {"rows": rows, "rows_exact": dict(tries)}, {"rows_exact": rows * luck}, "exact",
                    evidence)]  # fmt: skip


# --- the recommender without the third party -------------------------------------------------------------------------


def attack_totals(scene: Scene) -> list[Finding]:
    """Check that a total of several contributors, less the mask of one, is not that contributor's message."""
    tape, params = scene.exhibits.brought(RECOMMENDER).tape, scene.params
    dealer, rows, read = MaskDealer(scene.ring, params.dim, scene.case.card.run_id, tape), 0, 0
    for seen in scene.received(RECOMMENDER, "MaskedTotal"):
        agreed = scene.recommender.rounds[seen.iteration].contributors
        counts = np.bincount(np.concatenate([np.zeros(0, np.uint32), *agreed.values()]), minlength=params.n_items)
        items = seen.message.items[counts[seen.message.items] >= 2]
        for user, own in agreed.items():
            mine = np.flatnonzero(np.isin(own, items))
            total = seen.message.values[np.searchsorted(seen.message.items, own[mine])]
            words = scene.ring.subtract(total, dealer.masks(user, seen.iteration, own)[mine])
            true = _true_words(scene, UnmaskedUpload(user, seen.iteration, own, words))
            if true is not None:
                rows, read = rows + len(mine), read + _equal_rows(words, true[mine])
    if not rows:
        return []
    broken = _more_than_luck(scene, read, rows)
    title = (
        f"The recommender alone reads {read} rows of single users from totals of two or more contributors." if broken
        else f"No total of two or more contributors is one contributor's message ({rows} rows were tried)."
    )  # fmt: skip
    evidence = (
        "Each total in the recommender's view less the mask of one contributor, compared word for word with that "
        "user's role, run again from its view." + scene.extent
    )
    return [Finding("unmasking", title, scene.members, "break" if broken else "info", "sums of two or more users",
                    {"rows": rows, "rows_exact": read}, {"rows_exact": rows * _luck(scene)}, "exact",
                    evidence)]  # fmt: skip


def _luck(scene: Scene) -> float:
    """Compute the probability that a uniform row is right."""
    return float(2.0 ** -(scene.ring.bits * scene.params.dim))


def _more_than_luck(scene: Scene, read: int, rows: int) -> bool:
    return bool(stats.binom.sf(read - 1, rows, _luck(scene)) < scene.truth.level)


def _other_rows(scene: Scene) -> dict[tuple[int, int], list[RingArray]]:
    """Collect all other matrices of ring elements that users sent to the third party, by user and iteration."""
    found: dict[tuple[int, int], list[RingArray]] = {}
    for seen in scene.received(THIRD_PARTY):
        user = user_index(seen.sender)
        if user < 0:
            continue
        for name in (field.name for field in dataclasses.fields(seen.message)):
            value = getattr(seen.message, name)
            first = name == "values" and type(seen.message).__name__ == "MaskedGradient"
            if isinstance(value, np.ndarray) and value.ndim == 2 and value.dtype == scene.ring.dtype and not first:
                found.setdefault((user, seen.iteration), []).append(value)
    return found


def _true_words(scene: Scene, upload: UnmaskedUpload) -> RingArray | None:
    """Return the true words of `upload`; None if that user's view was not kept."""
    if not scene.truth.is_kept(upload.user):
        return None
    own = scene.truth.contribution(upload.user, upload.iteration)
    return None if own is None else own.words


def _equal_rows(guess: RingArray, true: RingArray) -> int:
    return int((guess == true).all(axis=1).sum())


def _differs_alike(scene: Scene, one: UnmaskedUpload, two: UnmaskedUpload | None) -> int:
    """Count the rows of two uploads that differ exactly by their contents, and so are under the same mask."""
    true, earlier = _true_words(scene, one), None if two is None else _true_words(scene, two)
    if two is None or true is None or earlier is None:
        return 0
    rows = min(len(true), len(earlier))  # masks follow the order of the user's items
    ring = scene.ring
    sent = ring.subtract(one.words[:rows], two.words[:rows])
    return _equal_rows(sent, ring.subtract(true[:rows], earlier[:rows]))
