"""The question of pairs: the same tapes on neighbouring data, and what that changes in whose view.

Shape: kinds, order, receivers, lengths and counts of messages, and all fields that are no numbers about ratings, must
be the same; a difference is a leak by itself. Shift: what noise protects moves at most by the sensitivity that the
noise was made for. ε: the shifts over the noise that a coalition does not know, a lower bound (`exposure.py`).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from protocol.party.role import role_of, user_index
from protocol.schemes.base import LEVELS
from sim.audit import truth
from sim.audit.coalitions import Coalition
from sim.audit.families.family import ReleaseBound
from sim.audit.families.registry import family_of
from sim.audit.findings import Audited, Finding, Severity
from sim.audit.pairs.change import RatingChange, change_of, exchange_of
from sim.audit.pairs.deviations import Deviation
from sim.audit.pairs.exposure import Exposure, Loss, Worst
from sim.audit.pairs.interference import audit_masks, audit_servers, interference_findings, undeclared
from sim.audit.pairs.retaping import Retaping
from sim.audit.pairs.search import Ratings, best_of_items, raters_of, small_and_large, some_of
from sim.audit.pairs.second_run import deviations
from sim.audit.pairs.short_seeds import audit_seeds, chosen_user
from sim.audit.pairs.tapes import Retaped, audit_tapes
from sim.audit.pairs.twice import Twice, run_twice
from sim.audit.scoring import generator
from sim.console.console import figure
from sim.views.evidence import Case

MOST_TURNS = 1500  # of users in the second run of an audit: about a second
RATERS = 64  # of an item whose pairs are set beside the accounting, where not all can be searched
ROUNDING = 1e-6


def ask_pairs(case: Case, budget: int) -> Audited:
    """Try `budget` pairs for each coalition; return (the document, findings)."""
    ratings = truth.all_ratings(case)
    params, family = case.card.params, family_of(case.card.scheme)
    known: dict[tuple[Any, ...], Twice] = {}

    def twice(change: RatingChange) -> Twice:
        key = (change.user, change.item, change.exchanged, change.item is not None and change.ratings())
        if key not in known:
            known[key] = run_twice(case, change)
        return known[key]

    users = small_and_large(ratings, budget)
    alone = [change_of(params, user_index(name), ratings[name], None) for name in users]
    exposure = None if math.isinf(params.epsilon) else family.exposure(case)
    rows: list[dict[str, Any]] = []
    losses: list[Finding] = []
    if exposure is not None:
        found = [_row_of(case, exposure, members, ratings, budget, twice) for members in exposure.coalitions()]
        found += [_own_kind(case, exposure, ratings, budget)]
        rows, losses = [row for row, _ in filter(None, found)], [finding for _, finding in filter(None, found)]
    changed = [twice(change) for change in alone]
    until = max(1, MOST_TURNS // max(1, params.n_users))
    shape = _shape(case, changed, until if until < params.iterations else None)
    others = [exchange_of(params, user_index(name), ratings[name], generator(case, name)) for name in users]
    whole = _exchange(case, others, until, twice) if family.hides_items else ({}, [])
    hidden, secrets = _hidden(case, users, until)
    bound = None if math.isinf(params.epsilon) else family.release_bound(params)
    single = [one for one in known.values() if one.change.item is not None]
    shift = _shift(bound, single) if bound else None
    document: dict[str, Any] = {"tried": len(known), "shape": shape[0], "shift": shift and shift[0], "epsilon": rows}
    document["exchange"] = whole[0] or None
    document["interference"] = {"servers": list(case.card.scheme.servers), "users": len(users), "leaks": hidden}
    if not math.isinf(params.epsilon) and not family.noise_follows:  # which may leave a rating as it is
        retaping, covered = Retaping(case, list(ratings), users, budget), set[tuple[str, str | None]]()
        document["tapes"], own = audit_tapes(case, _noting(retaping.tapes(), covered), family.shares_vanish)
        document["tapes"]["tried"] = retaping.document()
        document["tapes"]["seeds"], few = audit_seeds(case, chosen_user(params, ratings), family.shares_vanish)
        secrets += [*_bare_numbers(case, changed, covered), *own, *few]
    other = [] if family.noise_follows else _follows(known.values())
    return document, [*shape[1], *whole[1], *secrets, *(shift[1] if shift else []), *other, *losses]


# --- shape -----------------------------------------------------------------------------------------------------------


def _shape(case: Case, changed: Sequence[Twice], until: int | None) -> Audited:
    """Compare what each changed user sends, and all views of a second run with the change that most messages follow."""
    found = [one for twice in changed for one in twice.deviations]
    pair = max(changed, key=lambda twice: len(twice.deviations)).change if changed else None
    second = deviations(case, pair, until) if pair else []
    leaks = undeclared(case.card.scheme, [*second, *found])
    document: dict[str, Any] = {
        "users": len(changed),
        "second_run": pair and {**pair.row(), "iterations": until or case.card.params.iterations},
        "changed_numbers": sum(not one.is_leak for one in second),
        "leaks": grouped(leaks),
    }
    return document, [_shape_finding(row, "ratings are at the other ends of the scale") for row in document["leaks"]]


def _exchange(case: Case, changes: Sequence[RatingChange], until: int, twice: Any) -> Audited:
    """Compare the same where a user has rated other items, and how far that moves what it adds.

    Where messages to a user follow its items, as is declared, it cannot be asked alone: they would not fit others.
    """
    scheme, params = case.card.scheme, case.card.params
    told = any(scheme.names_support(params, leak) for leak in scheme.leakage)
    exchanged: list[Twice] = [] if told else [twice(change) for change in changes]
    found = [one for twice in exchanged for one in twice.deviations]
    pair = max(exchanged, key=lambda one: len(one.deviations)).change if exchanged else changes[0]
    second = deviations(case, pair, until if until < params.iterations else None)
    found += [one for one in second if one.party != pair.party]  # it knows its own items
    leaks = grouped(undeclared(scheme, found, params))
    bound = None if math.isinf(params.epsilon) else family_of(scheme).exchange_bound(params)
    shift, more = _shift(bound, exchanged) if bound else ({}, [])
    document = {"users": len(exchanged), "second_run": pair.row(), "leaks": leaks, "shift": shift or None}
    return document, [*(_shape_finding(row, "input is exchanged for other items") for row in leaks), *more]


def grouped(leaks: Iterable[Deviation]) -> list[dict[str, Any]]:
    """Count `leaks` by receiver, sender, kind and field, each with its first place."""
    rows: dict[tuple[str, ...], dict[str, Any]] = {}
    for one in leaks:
        key = (role_of(one.party), role_of(one.sender), one.kind, one.field or "", one.what)
        row = rows.setdefault(key, {**one.row(), "words": one.words(), "times": 0})
        row["times"] += 1
    return list(rows.values())


def _shape_finding(row: dict[str, Any], when: str) -> Finding:
    party = role_of(row["party"])
    return Finding(
        "shape",
        f"Ratings decide {row['words']} from {row['sender']} to {row['party']}: no noise can cover that.",
        (party,),
        "break",
        claimed=0,
        measured=row["times"],
        chance=0,
        confidence="exact: the roles run again with the same tapes",
        evidence=f"first in iteration {row['iteration']}; {row['times']} messages differ when one user's {when}",
    )


# --- hidden numbers, and own randomness ------------------------------------------------------------------------------


def _hidden(case: Case, users: list[str], until: int) -> tuple[list[dict[str, Any]], list[Finding]]:
    """Run each server on other numbers, and `users` with other masks: what follows them, and findings."""
    masks, bare = audit_masks(case, users, until)
    leaks = grouped([*audit_servers(case, until), *masks])
    return leaks, [*interference_findings(leaks), *bare]


def _noting(tapes: Iterable[Retaped], covered: set[tuple[str, str | None]]) -> Iterator[Retaped]:
    """Pass `tapes` on, and note in `covered` the fields that follow them."""
    for twice in tapes:
        covered |= {(one.kind, one.field) for one in twice.deviations}
        yield twice


def _bare_numbers(
    case: Case, changed: Sequence[Twice], covered: Collection[tuple[str, str | None]]
) -> list[Finding]:
    """Find numbers in users' messages that follow ratings and no tape, at a receiver that may not read them exactly."""
    permits = case.card.scheme.permits
    bare = {
        (role_of(one.party), one.kind, one.field)
        for twice in changed
        for one in twice.deviations
        if not one.is_leak and (one.kind, one.field) not in covered
    }
    return [
        Finding(
            "missing-noise",
            f"{kind}.{name} follows the ratings of the user that sends it, and nothing that the user draws covers it.",
            (receiver,),
            "break",
            claimed=permits.get(receiver, LEVELS[0]),
            measured=f"{kind}.{name}",
            confidence="exact: the role runs again with other ratings, and with another tape",
            evidence=f"{len(changed)} users with other ratings, and users with another tape",
        )
        for receiver, kind, name in sorted(bare, key=str)
        if permits.get(receiver) != LEVELS[-1]
    ]


# --- shift -----------------------------------------------------------------------------------------------------------


def ratios(bound: ReleaseBound, twice: Twice) -> dict[int, float]:
    """Compute, by iteration, how far all protected numbers of the user move together, over the assumed sensitivity."""
    rows: dict[int, list[Any]] = {}
    for shift in twice.shifts:
        if shift.what == bound.what:
            rows.setdefault(shift.iteration, []).append(shift.rows.ravel())
    norms = {t: float(np.linalg.norm(np.concatenate(part), bound.order)) for t, part in rows.items()}
    return {t: norm / bound.at(t) for t, norm in norms.items()}


def _shift(bound: ReleaseBound, tried: Sequence[Twice]) -> Audited:
    found = [(by_time, one.change) for one in tried if (by_time := ratios(bound, one))]
    if not found:
        return {}, []
    first, first_change = max(((by_time[min(by_time)], change) for by_time, change in found), key=lambda pair: pair[0])
    largest, change = max(((max(by_time.values()), change) for by_time, change in found), key=lambda pair: pair[0])
    mean = max(float(np.mean(list(by_time.values()))) for by_time, _ in found)
    document = {
        "unit": bound.words,
        "pairs": len(found),
        "first_release": first,
        "largest_release": largest,
        "mean_over_run": mean,
        "pair": change.row(),
    }
    entries = max(one.rows.size for twice in tried for one in twice.shifts)
    rounding = ROUNDING + entries * bound.unit / bound.most
    if bound.each and largest > 1 + rounding:
        return document, [_sensitivity(bound, largest, change)]
    if first > 1 + rounding:
        return document, [_sensitivity(bound, first, first_change)]
    if largest > 1 + rounding and bound.reacts:
        return document, [_reaction(bound, largest, mean, change)]
    return document, []


def _sensitivity(bound: ReleaseBound, ratio: float, change: RatingChange) -> Finding:
    return Finding(
        "sensitivity",
        f"{'A changed input' if change.exchanged else 'One changed rating'} moves what a user releases "
        f"{'at once' if bound.each else 'first'} by {ratio:.3g} times the {bound.words} that the noise is made for: "
        f"{change.words()}.",
        ("user",),
        "break",
        claimed=1.0,
        measured=ratio,
        confidence="exact for this pair; found by search",
        evidence="the user's role, run twice on the same messages with the same tape"
        + ("" if bound.each else "; nothing has reacted to the rating yet in the first release"),
    )


def _reaction(bound: ReleaseBound, largest: float, mean: float, change: RatingChange) -> Finding:
    over = f", and all together by up to {mean:.3g} times what composition assumes" if mean > 1 + ROUNDING else ""
    return Finding(
        bound.reacts,
        f"One changed rating moves a later release by up to {largest:.3g} times the {bound.words}{over}, because what "
        f"the user keeps follows its ratings: {change.words()}.",
        ("recommender",),
        "weak",
        claimed=1.0,
        measured={"largest_release": largest, "mean_over_run": mean},
        chance=1.0,
        confidence="exact for this pair; found by search",
        evidence="the user's role, run twice on the same messages with the same tape",
    )


def _follows(tried: Iterable[Twice]) -> list[Finding]:
    """Find numbers that a role calls noise although they follow the ratings."""
    for twice in tried:
        for shift in twice.noise_shifts:
            if not shift.rows.any():
                continue
            return [
                Finding(
                    "missing-noise",
                    f"What a user calls noise ({shift.what}) follows its ratings, so it covers nothing.",
                    ("user",),
                    "break",
                    claimed=0.0,
                    measured=float(np.abs(shift.rows).max()),
                    confidence="exact: the role runs again with the same tape",
                    evidence=f"iteration {shift.iteration}: {twice.change.words()}",
                )
            ]
    return []


# --- ε of pairs ------------------------------------------------------------------------------------------------------


def _row_of(
    case: Case, exposure: Exposure, members: Coalition, ratings: Ratings, budget: int, twice: Any
) -> tuple[dict[str, Any], Finding] | None:
    """Search the pairs of one coalition; None if it sees nothing that a rating moves."""
    ranked = best_of_items(case.card.params, exposure, members, ratings)
    found: list[tuple[Loss, RatingChange]] = []
    for change in some_of(ranked, budget):
        if (loss := exposure.loss(members, twice(change))) is not None:
            found.append((loss, change))
    if not found:
        return None
    worst = exposure.worst(members, ratings)
    if worst and (loss := exposure.loss(members, twice(worst.change))) is not None:
        found.append((loss, worst.change))
    loss, change = max(found, key=lambda pair: pair[0].epsilon)
    row = loss.row() | change.row() | exposure.accounted(members, change) | {"pairs": len(found), "items": len(ranked)}
    row["every_pair"] = worst and worst.row()
    order = exposure.accounted_order(members)
    for name, place in (("worst_item", 0), ("median_item", len(order) // 2)) if order else ():
        row[name] = _beside_accounted(case, exposure, members, ratings, order[place], twice)
    finding = _epsilon_finding(case, exposure.limit(members), loss, change.words(), worst)
    moved, furthest = max(((one.shift or 0.0, change) for one, change in found), key=lambda pair: pair[0])
    if finding.severity == "info" and moved > exposure.farthest * (1 + ROUNDING):
        row["furthest"] = {"shift": moved, **furthest.row()}
        finding = _moved_finding(case, exposure, members, moved, furthest)
    return row, finding


def _own_kind(
    case: Case, exposure: Exposure, ratings: Ratings, budget: int
) -> tuple[dict[str, Any], Finding] | None:
    """Search the pairs that differ as the claim says, where that is by more than a changed value."""
    found = list(exposure.own_kind(ratings, budget))
    if not found:
        return None
    loss, words = max(found, key=lambda pair: pair[0].epsilon)
    claimed = case.card.params.epsilon
    row = loss.row() | {"pair": words, "pairs": len(found), "accounted": claimed}
    return row, _epsilon_finding(case, (claimed, "sensitivity"), loss, words)


def _beside_accounted(
    case: Case, exposure: Exposure, members: Coalition, ratings: Ratings, item: int, twice: Any
) -> dict[str, Any] | None:
    """Compare the pairs of `item`, of all its raters if they can be searched, with what is accounted for it."""
    worst = exposure.worst(members, ratings, item)
    some = raters_of(case.card.params, exposure, members, ratings, item, RATERS)
    changes = [worst.change] if worst and worst.complete else some
    found = [(loss, change) for change in changes if (loss := exposure.loss(members, twice(change))) is not None]
    if not found:
        return None
    loss, change = max(found, key=lambda pair: pair[0].epsilon)
    return loss.row() | change.row() | exposure.accounted(members, change) | {"every_pair": worst and worst.row()}


def _severity(case: Case, id_: str) -> Severity:
    return "weak" if id_ in case.card.scheme.known_weaknesses else "break"


def _epsilon_finding(
    case: Case, limit: tuple[float, str] | None, loss: Loss, words: str, worst: Worst | None = None
) -> Finding:
    most, id_ = limit or (math.inf, "pair-epsilon")
    members = loss.members
    over = loss.epsilon > most * (1 + ROUNDING)
    at = "δ = 0" if loss.mu is None else "δ = 1e-05"
    more = "" if math.isinf(most) else f", where at most {figure(most)} is claimed"
    return Finding(
        id_ if over else "pair-epsilon",
        f"To {', '.join(members)} one pair alone has ε {figure(loss.epsilon)} at {at}{more}: {words}.",
        members,
        _severity(case, id_) if over else "info",
        claimed=case.card.params.epsilon if math.isinf(most) else most,
        measured=loss.epsilon,
        confidence="exact for this pair and the course of this run; a lower bound on the ε of the scheme",
        evidence=f"{loss.releases} releases; the user's role ran twice on the same messages with the same tape"
        + (f"; of all {worst.pairs} pairs of the run none is worse" if worst and worst.complete else ""),
    )


def _moved_finding(case: Case, exposure: Exposure, members: Coalition, moved: float, change: RatingChange) -> Finding:
    _, id_ = exposure.limit(members) or (math.inf, "sensitivity")
    return Finding(
        id_,
        f"One changed rating moves what the noise protects by {moved:.3g} times the sensitivity that it is made for: "
        f"{change.words()}.",
        members,
        _severity(case, id_),
        claimed=1.0,
        measured=moved,
        confidence="exact for this pair; found by search",
        evidence="the change of the noise that leads to the same publication, in the norm of its law",
    )
