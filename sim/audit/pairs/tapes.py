"""Tape pairs: the same data and messages, another tape for one user, with the same first factors.

Every number that a role names as noise must follow the tape of its own user, at every item, coordinate and iteration,
beside every number that it protects, and in what is sent. Between two tapes the changes of noise have independent
signs: noise that is the same, or the opposite, for two items, coordinates or iterations covers less than it says. What
was drawn with either tape follows the law that is stated for it (`noise_laws.py`).
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import stats

from protocol.arrays import Floats
from protocol.party.role import user_index
from sim.audit.accounting.data_pair import FreshNoise
from sim.audit.families.registry import family_of
from sim.audit.findings import Finding
from sim.audit.pairs.added_noise import left_out
from sim.audit.pairs.noise_laws import LawTest, StatedLaw, enough
from sim.audit.pairs.twice import Shift, TwoRuns, note_turn, only, paired_turns, time_of
from sim.audit.role_rerun import fraction_bits, inputs_of
from sim.views.evidence import Case
from sim.views.exhibits import Brought, Exhibits, Seen

FEWEST = 6  # entries of a group that is judged
FEW = 2  # pieces of noise of one name that are compared with those of another
LAGS = 4  # neighbours that are compared
FALSE_ALARM = 1e-6  # of all tests of signs together, at most


@dataclass(slots=True, eq=False)
class Retaped(TwoRuns):
    """How the runs of one user's role with two tapes differ."""

    iterations: frozenset[int] = frozenset()  # in which it drew noise
    left_out: tuple[str, str] | None = None  # noise that was drawn and not added, and the message that lacks it
    laws: list[tuple[Shift, StatedLaw]] = field(default_factory=list)  # of noise whose law is stated


def another_tape(case: Case, user: str, iterations: frozenset[int] | None, number: int = 0) -> Retaped:
    """Run the role of `user` on what its view recorded, with its own tape and a fresh one; later, with two fresh.

    Given `iterations`, only the messages of these and those of the set-up reach it; a role that refuses to leave
    others out is given all.
    """
    exhibits, params = Exhibits(case, (user,)), case.card.params
    brought, given = exhibits.brought(user), only(inputs_of(exhibits, user), iterations)
    own = FreshNoise(brought.tape, 1.0, 2 * number) if number else brought.tape
    fresh = FreshNoise(brought.tape, 1.0, 2 * number + 1)
    twice, earlier = Retaped(user), dict[str, Shift]()
    told = [one.message for one in given if isinstance(one, Seen)]
    law_of = family_of(case.card.scheme).told_shares(params, told)
    sides = ((Brought(tape, brought.inputs), given) for tape in (own, fresh))
    turns = 0
    for one, other in paired_turns(case, user, *sides):
        if one is None or other is None:
            break
        turns += 1
        drawn = note_turn(case, twice, one, other)
        if drawn and twice.left_out is None:
            twice.left_out = left_out(params, earlier, drawn, one, other)
        earlier |= {shift.what: shift for shift in drawn}
        twice.laws += [(shift, law) for shift in drawn if (law := law_of(shift)) is not None]
    if iterations is not None and turns <= len(given) and turns and time_of(given[turns - 1]) >= 0:
        return another_tape(case, user, None, number)
    twice.iterations = frozenset(shift.iteration for shift in twice.noise_shifts)
    return twice


def pairs_needed(tried: Iterable[Retaped], most: int) -> int:
    """Count the pairs of tapes for half of its noise to show in every group of values of the users `tried`."""
    sizes: Counter[tuple[str, ...]] = Counter()
    for twice in tried:
        for shift, law in twice.laws:
            sizes[twice.party, shift.what, f"iteration {shift.iteration}"] += law.degrees * shift.before.size
            for item in shift.items.tolist():
                sizes[twice.party, shift.what, f"item {item}"] += law.degrees * shift.before.shape[1]
    return min(most, -(-enough(len(sizes)) // (2 * max(1, min(sizes.values()))))) if sizes else 1


def audit_tapes(case: Case, tried: Iterable[Retaped], vanish: bool) -> tuple[dict[str, Any], list[Finding]]:
    """Judge the noise of all users that were `tried`; one finding of each kind. `vanish`: shares may be 0."""
    signs = Signs()
    found: dict[str, Finding] = {}
    beside: dict[tuple[str, int], set[str]] = {}  # by user and iteration: which noise was drawn beside a number
    entries, law = 0, LawTest()
    for twice in tried:
        by_what: dict[str, list[Shift]] = defaultdict(list)
        for shift in twice.noise_shifts:
            by_what[shift.what].append(shift)
            entries += shift.rows.size
        times = {shift.iteration for shift in twice.shifts}
        for t in times:
            beside[twice.party, t] = {shift.what for shift in twice.noise_shifts if shift.iteration == t}
        for what, shifts in by_what.items():
            if (still := _still(shifts, vanish)) is not None:
                found.setdefault("still", _still_finding(twice.party, what, still))
            for way, products in _agreements(shifts):
                signs.add(what, way, twice.party, products)
        for (what, shifts), (other, more) in itertools.combinations(by_what.items(), 2):
            for one, two in itertools.product(shifts[:FEW], more[:FEW]):
                if one.rows.shape == two.rows.shape:
                    signs.add(what, f"noise {other}", twice.party, _signs(one) * _signs(two))
        if twice.left_out is not None:
            found.setdefault("left out", _left_out_finding(twice.party, *twice.left_out))
        for shift, stated in twice.laws:
            for values in (shift.before, shift.after):
                law.add(user_index(twice.party), shift, values, _unit(case, shift, values), stated)
    if (bare := _missing(beside)) is not None:
        found["missing"] = bare
    if (alike := signs.alike()) is not None:
        found["alike"] = alike
    figures, small = law.judge()
    document = {"entries": entries, "users": len({party for party, _ in beside}), "law": figures}
    return document, [*found.values(), *small]


def _unit(case: Case, shift: Shift, values: Floats) -> float:
    """Return the unit of the numbers; 0 for reals."""
    unit = 2.0 ** -fraction_bits(case.card.params, shift.iteration)
    scaled = values[:FEWEST] / unit
    return unit if np.array_equal(scaled, np.rint(scaled)) else 0.0


class Signs:
    """Counts neighbours whose changes have the same sign, by user and of all users together."""

    def __init__(self) -> None:
        self._tallies: dict[tuple[str, str, str], tuple[int, int]] = {}  # by noise, way and user; "": all users

    def add(self, what: str, way: str, user: str, products: npt.NDArray[np.int8]) -> None:
        """Add neighbours by the `products` of their signs: 1 if they are equal, 0 if one has not changed."""
        agree, apart = int(np.count_nonzero(products > 0)), int(np.count_nonzero(products < 0))
        for name in (user, "") if agree + apart else ():
            equal, of = self._tallies.get((what, way, name), (0, 0))
            self._tallies[what, way, name] = equal + agree, of + agree + apart

    def alike(self) -> Finding | None:
        """Find neighbours, of one user or of all, whose changes agree more or less often than by chance."""
        for (what, way, _), (equal, of) in sorted(self._tallies.items()):  # all users together first
            if 2 * stats.binom.cdf(min(equal, of - equal), of, 0.5) * len(self._tallies) < FALSE_ALARM:
                return _alike_finding(what, way, equal / of, of)
        return None


def _still(shifts: list[Shift], vanish: bool) -> str | None:
    """Name a group of entries most of which do not follow the tape: an iteration, an item or a coordinate."""
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0])  # entries that are the same, and all that are judged
    for some in _alike_in(shifts, lambda shift: shift.items.tobytes()):
        same = np.stack([shift.rows == 0 for shift in some])
        judged = np.stack([~shift.idle for shift in some]) if vanish else np.ones(same.shape, np.bool_)
        names = (
            [f"iteration {shift.iteration}" for shift in some],
            [f"item {item}" for item in some[0].items.tolist()],
            [f"coordinate {at}" for at in range(same.shape[2])],
        )
        for axis, of_axis in enumerate(names):
            others = tuple({0, 1, 2} - {axis})
            tallies = (same & judged).sum(axis=others), judged.sum(axis=others)
            for name, equal, of in zip(of_axis, *(tally.tolist() for tally in tallies), strict=True):
                counts[name][0] += equal
                counts[name][1] += of
    return next((name for name, (equal, of) in counts.items() if of >= FEWEST and 2 * equal > of), None)


def _alike_in(shifts: list[Shift], key: Callable[[Shift], Any]) -> list[list[Shift]]:
    """Group shifts that can be stacked: those with the same `key` and shape."""
    groups: dict[Any, list[Shift]] = defaultdict(list)
    for shift in shifts:
        groups[key(shift), shift.rows.shape].append(shift)
    return list(groups.values())


def _agreements(shifts: list[Shift]) -> Iterable[tuple[str, npt.NDArray[np.int8]]]:
    """Yield, for neighbours of each kind, the products of the signs of the changes of their noise."""
    for some in _alike_in(shifts, lambda shift: None):
        signs = np.stack([_signs(shift) for shift in some])
        place = {shift.iteration: at for at, shift in enumerate(some)}
        for lag in range(1, LAGS + 1):
            yield f"items at distance {lag}", signs[:, :-lag] * signs[:, lag:]
            yield f"coordinates at distance {lag}", signs[:, :, :-lag] * signs[:, :, lag:]
            first = [t for t in place if t + lag in place]
            one, other = (signs[[place[t + by] for t in first]] for by in (0, lag))
            yield f"iterations at distance {lag}", one * other


def _signs(shift: Shift) -> npt.NDArray[np.int8]:
    return np.sign(shift.rows).astype(np.int8)


def _missing(beside: dict[tuple[str, int], set[str]]) -> Finding | None:
    """Find numbers beside which less noise was drawn than beside those of other users or iterations."""
    counts = Counter(what for drawn in beside.values() for what in drawn)
    usual = {what for what, count in counts.items() if 2 * count > len(beside)}
    for (user, t), drawn in beside.items():
        if usual - drawn or (counts and not drawn):
            names = " or ".join(sorted(usual - drawn) or sorted(counts))
            return _finding(f"{user} draws no {names} in iteration {t}, as others do.", 1.0, "the labels of its role")
    return None


def _still_finding(user: str, what: str, where: str) -> Finding:
    title = f"The noise {what} of {user} does not follow its own tape at {where}: whoever can compute it takes it away."
    return _finding(title, 1.0, "the role runs again on the same messages, with another tape")


def _left_out_finding(user: str, what: str, where: str) -> Finding:
    title = f"{user} draws the noise {what} and leaves it out of {where}."
    return _finding(title, 1.0, "with another tape, what is sent moves exactly as it does without this noise")


def _alike_finding(what: str, way: str, rate: float, entries: int) -> Finding:
    title = f"The noise {what} depends on others, {way}: {rate:.0%} of their changes have equal signs."
    return _finding(title, rate, f"{entries} pairs of entries; half of them would agree")


def _finding(title: str, measured: float, evidence: str) -> Finding:
    return Finding(
        "own-randomness",
        title,
        ("recommender",),
        "break",
        claimed=None,
        measured=measured,
        confidence=f"a correct run is called so with a probability of {FALSE_ALARM:g} at most",
        evidence=evidence,
    )
