"""Isolate one user's contribution from a sum by means of all other contributors to it.

The recommender has the released sums; users have them too (v_j(t) and v_j(t+1) differ by the sum), up to the precision
in which factors travel. The members' own contributions are subtracted; the rest belongs to the contributors outside the
coalition, and to a single user if there is only one of these.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from protocol.arithmetic.fixedpoint import FixedPoint
from protocol.arrays import Matrix, RingArray, Vector
from protocol.party.role import user_name
from protocol.wire.messages import Publication
from sim.audit.attacks.coalition_views import Scene, row_of, unknown_noise
from sim.audit.findings import Finding

CLOSE = 0.01  # relative error below which a sum counts as recovered


class Rest(NamedTuple):
    """A sum less the members' contributions."""

    item: int
    iteration: int
    outsiders: int  # contributors that are not members, by what the coalition knows
    members: int  # contributors that are members
    floor: int  # number of shares of the iteration noise
    factors: Vector  # v_j(t)
    value: Vector
    words: RingArray | None  # exact, if the recommender is a member


def rests_of_recommender(scene: Scene, outsiders: int) -> Iterator[Rest]:
    """Yield the sums with exactly `outsiders` contributors outside the coalition."""
    fixed, ring = FixedPoint(scene.ring, scene.params.fraction_bits), scene.ring
    for t, found in scene.recommender.rounds.items():
        if not len(found.items) or found.words is None:
            continue
        others = [items for user, items in found.contributors.items() if user not in scene.users]
        outside = np.bincount(np.concatenate([found.items[:0], *others]), minlength=scene.params.n_items)
        floors = scene.recommender.floors(t)
        inside = [(user, items) for user, items in found.contributors.items() if user in scene.users]
        for row in np.flatnonzero(outside[found.items] == outsiders):
            item = int(found.items[row])
            words, count = found.words[row], 0
            for user, items in inside:
                if (at := row_of(items, item)) < len(items) and items[at] == item:
                    words, count = ring.subtract(words, _own_words(scene, user, t)[at]), count + 1
            if scene.commits and (own := scene.own_noise(item)[1]) is not None:
                words = ring.subtract(words, own)
            value = fixed.decode(words[None])[0]
            yield Rest(item, t, outsiders, count, int(floors[item]), found.factors[item], value, words)


def _own_words(scene: Scene, user: int, iteration: int) -> RingArray:
    story = scene.stories[user].contributions
    words = next(own.words for own in story if own.iteration == iteration)
    assert words is not None
    return words


def attack_with_recommender(scene: Scene) -> list[Finding]:
    """Attack as the recommender with all other raters of an item: the last noisy gradient, to 0 ring units."""
    rests = [rest for rest in rests_of_recommender(scene, 1) if rest.members]
    if not rests:
        return []
    errors = []
    for rest in rests:
        true = true_words(scene, rest)
        assert rest.words is not None
        errors.append(int(np.abs(scene.ring.to_signed(scene.ring.subtract(rest.words, true))).max()))
    exact = errors.count(0)
    left = ", with the objective noise of the committers outside the coalition," if scene.commits else ""
    title = f"{scene.together} isolated one more user's noisy gradient{left} in {exact} of {len(rests)} sums."
    evidence = (
        "Released total less the masks (from the recommender's tape) less what the members sent (their roles, run "
        "again from their own views); compared with the remaining user's role." + scene.extent
    )
    measured = {"sums": len(rests), "sums_exact": exact, "max_error_ring_units": max(errors)}
    return [Finding("unmasking", title, scene.members, "weak" if exact else "info",
                    "no server alone learns a user's gradient", measured, {"sums_exact": 0}, "exact",
                    evidence)]  # fmt: skip


def true_words(scene: Scene, rest: Rest) -> RingArray:
    """Compute from the truth the outsiders' encodings and the objective noise that they committed."""
    total = scene.ring.zeros(1, scene.params.dim)[0]
    for user in outsiders_of(scene, rest):
        own = scene.truth.contribution(user, rest.iteration)
        assert own is not None and own.words is not None
        total = scene.ring.add(total, own.words[row_of(own.items, rest.item)])
    return scene.ring.add(total, unknown_noise(scene, rest.item)) if scene.commits else total


def outsiders_of(scene: Scene, rest: Rest) -> list[int]:
    """List from the truth the other contributors to this sum."""
    raters = scene.truth.raters.get(rest.item, [])
    return [user for user in raters if user not in scene.users and scene.truth.took_part(user, rest.iteration)]


# --- users alone -----------------------------------------------------------------------------------------------------


class KnownFactors(NamedTuple):
    factors: dict[int, Vector]  # iteration -> v_j
    floors: dict[int, int]
    raters: int


def rests_of_users(scene: Scene) -> Iterator[Rest]:
    """Yield (k_j/γ)(v_j(t)(1 − 2γμ) − v_j(t+1)) less the members' own, for each item of a member and each t."""
    params, rate = scene.params, scene.params.learning_rate
    kept = 1 - 2 * rate * params.item_regularisation
    for item, known in learned(scene).items():
        own = scene.own_noise(item)[1] if scene.commits else None
        for t in sorted(known.factors):
            after = known.factors.get(t + 1)
            if after is None or (after == known.factors[t]).all():  # unchanged factors: nothing was released
                continue
            value, inside = scene.truth.n_raters(item) / rate * (known.factors[t] * kept - after), 0
            for user in scene.users:
                for mine in scene.stories[user].contributions:
                    at = row_of(mine.items, item)
                    if mine.iteration == t and at < len(mine.items) and mine.items[at] == item:
                        value, inside = value - mine.noisy[at], inside + 1
            if own is not None:
                value = value - FixedPoint(scene.ring, params.fraction_bits).decode(own[None])[0]
            floor = known.floors.get(t, scene.truth.n_raters(item))
            yield Rest(item, t, floor - inside, inside, floor, known.factors[t], value, None)


def learned(scene: Scene) -> dict[int, KnownFactors]:
    """Collect what the members received about each of their items; `raters` is the largest count told to them."""
    found: dict[int, KnownFactors] = {}
    for user in scene.users:
        party = user_name(user)
        inputs = scene.exhibits.brought(party).inputs
        assert inputs is not None
        counts = [seen.message.floors for seen in scene.exhibits.received(party, "NoiseKeys", "Welcome",
                                                                          "WelcomeInFull")]  # fmt: skip
        for at, item in enumerate(map(int, inputs.items)):
            told = int(counts[0][at]) if counts and len(counts[0]) else 0
            old = found.get(item, KnownFactors({}, {}, 0))
            found[item] = old._replace(raters=max(old.raters, told))
        for seen in scene.exhibits.received(party, "ItemFactors", "ItemFactorsInFull", "ItemFactorsWithPieces"):
            t = seen.iteration
            for at, item in enumerate(map(int, inputs.items) if t <= scene.iterations else ()):
                known = found[item]
                known.factors[t] = seen.message.factors[at].astype(np.float64)
                if len(seen.message.floors):
                    known.floors[t] = int(seen.message.floors[at])
                    found[item] = known._replace(raters=max(known.raters, known.floors[t]))
        for seen in scene.exhibits.received(party, Publication.__name__):
            own = inputs.items if scene.params.publish == "all" else np.arange(len(inputs.items))
            for item, row in zip(map(int, inputs.items), seen.message.factors[own].astype(np.float64), strict=True):
                if seen.iteration <= scene.iterations:
                    found[item].factors[seen.iteration] = row
    return found


def attack_by_users(scene: Scene) -> list[Finding]:
    """Attack as users alone (weakness 9): the sums of their own items need no server."""
    if scene.params.dropout_allowance > 0 or not scene.truth.is_whole:
        return []
    # in a sum of members alone, only `dynamic` leaves something to find: the objective noise
    rests = [rest for rest in rests_of_users(scene) if rest.outsiders or scene.commits]
    if not rests:
        return []
    true = _true_values(scene, rests)
    error = np.abs(np.array([rest.value for rest in rests]) - true).max(axis=1)
    size = float(np.sqrt((true**2).mean())) or 1.0
    alone = np.array([rest.outsiders == 1 for rest in rests])
    no_outsider = np.array([rest.outsiders == 0 for rest in rests])
    near = error < CLOSE * size
    close, one = int(near.sum()), int(near[alone].sum())
    title = (
        f"{scene.together}, with no server, could read the {scene.noisy}sum of the other contributors from item "
        f"factors: {close} of {len(rests)} sums, {one} of them of one other user."
    )
    measured = {
        "sums": len(rests),
        "sums_recovered": close,
        "single_user_sums": int(alone.sum()),
        "single_user_sums_recovered": one,
        "objective_noise_alone_recovered": int(near[no_outsider].sum()),
        "max_error": float(error.max()),
        "median_error": float(np.median(error)),
        "median_error_over_size": float(np.median(error)) / size,
        "size": size,
    }
    evidence = (
        "(k/γ)(v(t)(1 − 2γμ) − v(t+1)) from the factors in the members' views, less what they sent themselves; k "
        "is public. Compared with the others' roles, run again; recovered: within "
        f"{CLOSE:.0%} of the root mean square of the true sums ({size:.3g})." + scene.extent
    )
    chance = {"sums_recovered": int((np.abs(true).max(axis=1) < CLOSE * size).sum())}
    return [Finding("released-sums", title, scene.members, "weak" if close else "info", None, measured, chance,
                    "exact", evidence)]  # fmt: skip


def _true_values(scene: Scene, rests: Sequence[Rest]) -> Matrix:
    """Compute from the truth what the users outside the coalition contributed to each of these sums."""
    params, outside = scene.params, [user for user in range(scene.params.n_users) if user not in scene.users]
    sums = {iteration: np.zeros((params.n_items, params.dim)) for iteration in {rest.iteration for rest in rests}}
    for iteration, total in sums.items():
        for own in (scene.truth.contribution(user, iteration) for user in outside):
            if own is not None:
                total[own.items] += own.noisy
    true = np.array([sums[rest.iteration][rest.item] for rest in rests])
    if scene.commits:
        coder = FixedPoint(scene.ring, params.fraction_bits)
        items = {rest.item for rest in rests}
        noise = {item: coder.decode(unknown_noise(scene, item)[None])[0] for item in items}
        true += np.array([noise[rest.item] for rest in rests])
    return true
