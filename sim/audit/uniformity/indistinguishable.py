"""Ideal against real: does a server's own view help to guess a user's secret beyond what the server may learn?

A classifier guesses, for pairs of a user and an item that it rated, (a) whether the rating is high and (b) the sign of
the first coordinate of the user's first gradient. It is a ridge regression, cross-validated over users: it has the true
answers of the users of the other folds, so it models an attacker that knows many users and guesses the rest. It is
given

    permitted    what the leakage policy allows: the item (its mean over known users), how many users rated it, how
                 many items the user rated; to the recommender also the released movement of the item's factors
    simulated    permitted, and ring words drawn uniformly: what a simulator makes of the permitted alone
    real         permitted, and the ring words of the view in their place

If masks hide, real and simulated cannot be told apart: the difference of their areas under the curve (AUC) is 0 but for
chance. The words of the third party are those of the messages that are declared uniform to it. Those of the recommender
are φ_j − ψ^i_j, the total less the one mask of the user under attack: for items of two and more contributors the other
masks still hide it (a sole contributor's sum is the finding `single-contributor`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from protocol.arrays import Floats, Ids, RingArray
from protocol.party.role import RECOMMENDER, FactorizingUser, user_index, user_name
from protocol.wire.fields import field_kinds
from sim.audit.families.registry import family_of
from sim.audit.findings import Finding
from sim.audit.role_rerun import rerun
from sim.audit.uniformity import classifier
from sim.audit.uniformity.classifier import Pairs
from sim.views.evidence import Case
from sim.views.exhibits import Exhibits

LEVEL = 0.001  # for all comparisons of a run together
MOST_USERS = 200
MOST_ITEMS = 25  # per user
FEWEST_USERS = 10
ROUNDS = 2  # messages per user to look at

Words = dict[int, tuple[Ids, list[RingArray]]]  # user -> (its items, the words of each round)


@dataclass(frozen=True, slots=True, eq=False)
class Glimpse:
    """The data that one server holds: ring words that should tell nothing, and what the policy permits."""

    words: Words
    moved: Floats | None = None  # per item: the movement of its factors by the released sums


# --- the servers' words ----------------------------------------------------------------------------------------------


def third_party_glimpse(case: Case, party: str) -> Glimpse:
    """Collect, per user, the first messages whose values are declared uniform, and their items."""
    fields = {leak.kind: leak.field for leak in case.card.scheme.leakage if leak.receiver == party and leak.uniform}
    words: Words = {}
    for seen in Exhibits(case, (party,)).received(party, *fields):
        user, values = user_index(seen.sender), getattr(seen.message, fields[type(seen.message).__name__])
        if seen.iteration < 0 or user < 0:  # the set-up masks noise, not gradients
            continue
        items, rounds = words.setdefault(user, (seen.message.items, []))
        if len(rounds) < ROUNDS and np.array_equal(items, seen.message.items):
            rounds.append(values)
    return Glimpse({user: held for user, held in words.items() if len(held[1]) == ROUNDS})


# --- the truth, opened for learning and scoring alone ----------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class TrueValues:
    items: Ids
    ratings: Floats
    signs: Floats  # sign of the first coordinate of the first gradient, per item


def truth_of(case: Case, user: int) -> TrueValues | None:
    """Read the truth from the user's own view; None if it took part in no iteration."""
    factors = np.zeros(0)
    for turn in rerun(Exhibits(case, (user_name(user),)), user_name(user)):
        role = turn.role
        if not isinstance(role, FactorizingUser):
            return None
        if role.last_errors is not None:
            return TrueValues(role.inputs.items, role.inputs.ratings, -np.sign(role.last_errors * factors[0]))
        factors = role.user_factors.copy()
    return None


# --- a run -----------------------------------------------------------------------------------------------------------


def compare(case: Case) -> tuple[dict[str, Any], list[Finding]]:
    """Compare for each server alone; each secret gives a finding `unmasking`, a break if the real view helps."""
    glimpses = _glimpses(case)
    document: dict[str, Any] = {"level": LEVEL, "comparisons": [], "notes": []}
    if not case.card.scheme.factorizes:
        document["notes"].append("The comparison guesses at gradients, and this scheme has none.")
    elif not glimpses:
        document["notes"].append("No server that keeps a view receives masked values: there is nothing to compare.")
    rng = np.random.default_rng(list(case.card.run_id))
    level = LEVEL / max(1, 2 * len(glimpses))  # two secrets each
    truths: dict[int, TrueValues | None] = {}
    for party, look in glimpses.items():
        glimpse = look()
        chosen = _choose(case, glimpse, truths, rng)
        if len(chosen) < FEWEST_USERS:
            document["notes"].append(f"{party}: {len(chosen)} users are too few to compare; {FEWEST_USERS} are needed.")
            continue
        pairs, secrets = assemble(glimpse, chosen, rng)
        for name, secret in secrets.items():
            row = classifier.compare(case.card.setting.ring, pairs, secret, level, rng)
            document["comparisons"].append({"party": party, "secret": name} | row)
    return document, [_finding(case, row) for row in document["comparisons"]]


def _glimpses(case: Case) -> dict[str, Callable[[], Glimpse]]:
    """Map each server to its glimpse: of values declared uniform within iterations, or of masked totals."""
    scheme = case.card.scheme
    if not scheme.factorizes:  # without gradients there is no secret to guess
        return {}
    family = family_of(scheme)
    names = {cls.__name__: {name for name, _ in field_kinds(cls)} for cls in scheme.messages}
    in_iterations = {kind for kind, fields in names.items() if {"iteration", "items"} <= fields}
    looks: dict[str, Callable[[], Glimpse]] = {}
    for party in scheme.servers:
        if party not in case.kept:
            continue
        if party == RECOMMENDER and family.masks:
            looks[party] = functools.partial(family.totals_seen, case)
        elif any(leak.uniform and leak.receiver == party and leak.kind in in_iterations for leak in scheme.leakage):
            looks[party] = functools.partial(third_party_glimpse, case, party)
    return looks


def _choose(
    case: Case, glimpse: Glimpse, truths: dict[int, TrueValues | None], rng: np.random.Generator
) -> dict[int, TrueValues]:
    """Sample users with words at the server and a kept view of their own; return their truth."""
    there = sorted(user for user, (items, _) in glimpse.words.items() if len(items) and user_name(user) in case.kept)
    some = sorted(int(user) for user in rng.permutation(there)[:MOST_USERS])
    for user in some:
        if user not in truths:
            truths[user] = truth_of(case, user)
    return {user: truth for user in some if (truth := truths[user]) is not None}


def assemble(
    glimpse: Glimpse, truths: dict[int, TrueValues], rng: np.random.Generator
) -> tuple[Pairs, dict[str, npt.NDArray[np.bool_]]]:
    """Build a row for each pair of a chosen user and an item, and the secrets of the rows."""
    raters = np.bincount(np.concatenate([items for items, _ in glimpse.words.values()]))
    users, items, permitted, ratings, signs = [], [], [], [], []
    rounds: list[list[RingArray]] = [[] for _ in range(ROUNDS)]
    for user, truth in truths.items():
        own, words = glimpse.words[user]
        rows = np.sort(rng.permutation(len(own))[:MOST_ITEMS])
        at = np.searchsorted(truth.items, own[rows])
        users.append(np.full(len(rows), user, np.int64))
        items.append(own[rows].astype(np.int64))
        counts = [np.log(raters[own[rows]]), np.full(len(rows), np.log(len(own)))]
        permitted.append(np.column_stack(counts if glimpse.moved is None else [*counts, glimpse.moved[own[rows]]]))
        ratings.append(truth.ratings[at])
        signs.append(truth.signs[at])
        for held, values in zip(rounds, words, strict=True):
            held.append(values[rows])
    stacked = tuple(np.concatenate(held) for held in rounds)
    pairs = Pairs(np.concatenate(users), np.concatenate(items), np.concatenate(permitted), stacked)
    secrets = {"rating": _is_high(np.concatenate(ratings)), "gradient sign": np.concatenate(signs) > 0}
    return pairs, {name: secret for name, secret in secrets.items() if 0 < secret.sum() < len(secret)}


def _is_high(ratings: Floats) -> npt.NDArray[np.bool_]:
    """Mark ratings at or above the value that splits them most evenly (4 on MovieLens)."""
    splits = [ratings >= value for value in np.unique(ratings)]
    return min(splits, key=lambda high: abs(float(high.mean()) - 0.5))


def _finding(case: Case, row: dict[str, Any]) -> Finding:
    party, helps = row["party"], row["helps"]
    whom = f"the {party.replace('_', ' ')}"
    secret = "whether a rating is high" if row["secret"] == "rating" else "the sign of a gradient"
    title = (
        f"The view of {whom} alone tells {secret} better than what it is allowed to learn does."
        if helps
        else f"The view of {whom} alone was not found to tell {secret} better than uniform words in its place."
    )
    return Finding(
        id="unmasking",
        title=title,
        coalition=(party,),
        severity="break" if helps else "info",
        claimed=0.0,
        measured={name: row[name] for name in ("gain", "auc_real", "auc_simulated", "auc_permitted")},
        chance=0.0,
        confidence=f"95 %: {row['gain_95'][0]:+.4f} to {row['gain_95'][1]:+.4f} (simulated views, and bootstrap over "
        f"{row['users']} users); p = {row['p']:.2g}, and {row['level']:.2g} is the level for this comparison",
        evidence=f"ridge regression over {row['pairs']} pairs of a user and an item, cross-validated over users; area "
        f"under the curve with the ring words of {case.file(party)} less the mean of {row['simulations']} with "
        f"simulated ones; a gain of {row['smallest_gain']:.3f} would be found with probability {row['power']}",
    )
