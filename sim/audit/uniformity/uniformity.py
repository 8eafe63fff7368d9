"""Test whether the values that a party receives under masks are uniform on Z_P.

`Leak.uniform` marks the fields for which a scheme claims it. The tests are applied to the values, and to differences of
values that would be small if a mask had been used twice:

    values       as received
    iterations   the same sender and item, from one message to the next
    senders      the same item, from one sender to the next in one iteration
    items        from one row of a message to the next
    coordinates  from one element of a row to the next

If the values are independent and uniform then so are the differences of each kind (a chain x0, x1 − x0, x2 − x1 … is a
bijection of x0, x1, x2 …). Each stream is tested for: how often every bit is 1, and all bits together (binomial,
exact); the highest and the lowest byte (χ²); how often a value is small, |x| < P/256 (binomial, exact); and whether a
value is correlated with that of the next message. Holm's correction covers all tests of all parties: a correct run is
flagged at most 1 time in 1000.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import optimize, stats

from protocol.arithmetic.ring import Ring
from protocol.arrays import Counts, Ids, RingArray
from protocol.party.role import RECOMMENDER
from protocol.schemes.base import Leak
from protocol.wire.messages import Message
from sim.audit.families.registry import family_of
from sim.audit.findings import Finding
from sim.views.evidence import Case
from sim.views.exhibits import Exhibits

LEVEL = 0.001  # for all tests of a run together
POWER = 0.9  # for which the smallest detectable bias is stated
SMALL = 2 / 256  # probability of |x| < P/256: the highest byte is 0 or 255
STREAMS = ("values", "iterations", "senders", "items", "coordinates")

_FEWEST = 64  # values that a test needs at least
_PER_CELL = 16  # fewest expected values per cell of a χ² test
_BATCH = 1 << 20

Rows = tuple[Ids, RingArray]  # items, and one row of values for each


@dataclass(frozen=True, slots=True)
class Check:
    stream: str
    name: str
    n: int
    p: float


class ByteTally:
    """Counts of the values of each byte: sufficient for all tests of a stream of any length."""

    def __init__(self, ring: Ring) -> None:
        self.ring = ring
        self.n = 0
        self._counts: Counts = np.zeros((ring.width, 256), np.int64)
        self._waiting: list[RingArray] = []
        self._held = 0

    def add(self, values: RingArray) -> None:
        self._waiting.append(values.ravel())
        self._held += values.size
        self.n += values.size
        if self._held >= _BATCH:
            self._flush()

    def _flush(self) -> None:
        if self._waiting:
            words = np.concatenate(self._waiting).astype(self.ring.dtype.newbyteorder("<"), copy=False)
            octets = words.view(np.uint8).reshape(len(words), words.itemsize)
            for place in range(self.ring.width):
                self._counts[place] += np.bincount(octets[:, place], minlength=256)
        self._waiting, self._held = [], 0

    def counts(self) -> Counts:
        """Return the counts per byte and value; row 0 is the lowest byte."""
        self._flush()
        return self._counts


def checks_of(stream: str, counts: Counts, n: int) -> Iterator[Check]:
    if n < _FEWEST:
        return
    set_bits = (np.arange(256)[:, None] >> np.arange(8)) & 1
    ones = (counts @ set_bits).ravel()
    for bit, p in enumerate(_binomial(ones, n, 0.5)):
        yield Check(stream, f"bit {bit}", n, float(p))
    yield Check(stream, "all bits", n * len(ones), float(_binomial(ones.sum(), n * len(ones), 0.5)))
    yield Check(stream, "highest byte", n, _cells(counts[-1]))
    if len(counts) > 1:
        yield Check(stream, "lowest byte", n, _cells(counts[0]))
    yield Check(stream, "small values", n, float(_binomial(counts[-1, 0] + counts[-1, 255], n, SMALL)))


def _binomial(found: Any, n: int, chance: float) -> Any:
    """Compute the exact two-sided p-value: twice the smaller tail."""
    tails = np.minimum(stats.binom.cdf(found, n, chance), stats.binom.sf(found - 1, n, chance))
    return np.minimum(1.0, 2 * tails)


def _cells(counts: Counts) -> float:
    """Compute the p-value of χ² over as many equal cells as the values fill; a byte's leading bits name its cell."""
    cells = 256
    while cells > 2 and counts.sum() < _PER_CELL * cells:
        cells //= 2
    return float(stats.chisquare(counts.reshape(cells, -1).sum(axis=1)).pvalue)


class Sample:
    """The values that one party received in one field: five streams, and the correlation between messages."""

    def __init__(self, ring: Ring) -> None:
        self.ring = ring
        self.tallies = {stream: ByteTally(ring) for stream in STREAMS}
        self.messages = 0
        self._latest: dict[str, Rows] = {}  # sender -> rows of its latest message
        self._before: tuple[Any, Rows] | None = None  # (round, rows) of the previous message
        self._pairs = 0
        self._products = 0.0

    def add(self, sender: str, round_: Any, items: Ids, values: RingArray) -> None:
        """Add the values of one message; messages of the same `round_` are compared across senders."""
        rows = (items, values)
        self.messages += 1
        self.tallies["values"].add(values)
        self.tallies["items"].add(self.ring.subtract(values[1:], values[:-1]))
        self.tallies["coordinates"].add(self.ring.subtract(values[:, 1:], values[:, :-1]))
        if sender in self._latest:
            before, now = _common(self._latest[sender], rows)
            self.tallies["iterations"].add(self.ring.subtract(now, before))
            self._pairs += now.size
            self._products += float(np.vdot(self._centred(before), self._centred(now)))
        if self._before and self._before[0] == round_:
            before, now = _common(self._before[1], rows)
            self.tallies["senders"].add(self.ring.subtract(now, before))
        self._latest[sender], self._before = rows, (round_, rows)

    def _centred(self, words: RingArray) -> npt.NDArray[np.float64]:
        """Map uniform values to reals of mean 0 and variance 1."""
        return np.asarray(self.ring.to_signed(words).ravel() / 2.0**self.ring.bits * math.sqrt(12))

    def tests(self) -> list[Check]:
        found = [test for name, tally in self.tallies.items() for test in checks_of(name, tally.counts(), tally.n)]
        if self._pairs >= _FEWEST:
            p = 2 * stats.norm.sf(abs(self._products) / math.sqrt(self._pairs))
            found.append(Check("iterations", "correlation", self._pairs, float(p)))
        return found


def _common(first: Rows, second: Rows) -> tuple[RingArray, RingArray]:
    """Select the values of the items that are in both."""
    if np.array_equal(first[0], second[0]):
        return first[1], second[1]
    _, here, there = np.intersect1d(first[0], second[0], assume_unique=True, return_indices=True)
    return first[1][here], second[1][there]


# --- power -----------------------------------------------------------------------------------------------------------


def smallest_bias(n: int, level: float) -> float | None:
    """Find q such that `n` bits with P(1) = 1/2 + q are detected with probability `POWER`; None if there is no q."""
    q = (stats.norm.isf(level / 2) + stats.norm.isf(1 - POWER)) / (2 * math.sqrt(n)) if n else 1.0
    return float(q) if q <= 0.5 else None


def smallest_fraction(n: int, level: float) -> float | None:
    """Find q such that `n` values, a fraction q of them small and the rest uniform, are detected likewise."""
    most = int(stats.binom.isf(level / 2, n, SMALL)) if n else 0  # most small values that the test accepts
    if most >= n:
        return None

    def excess(q: float) -> float:
        return float(stats.binom.sf(most, n, SMALL + (1 - SMALL) * q)) - POWER

    return float(optimize.brentq(excess, 0.0, 1.0, xtol=1e-9))


def power_of(sample: Sample, level: float) -> list[dict[str, Any]]:
    """List what each single test at `level` would detect with probability `POWER`."""
    sizes = {stream: tally.n for stream, tally in sample.tallies.items()}
    n, bits = sizes["values"], sample.ring.bits
    told = [
        ("one bit is 1 with probability 1/2 + q", n, smallest_bias(n, level)),
        ("every bit is 1 with probability 1/2 + q", n, smallest_bias(n * bits, level)),
        ("a fraction q of the values has no mask (and is below P/256)", n, smallest_fraction(n, level)),
    ]
    for stream in STREAMS[1:]:
        words = f"a fraction q of the masks is used again in the next of the {stream}"
        told.append((words, sizes[stream], smallest_fraction(sizes[stream], level)))
    return [{"alternative": words, "n": size, "smallest": q, "power": POWER} for words, size, q in told]


# --- a run -----------------------------------------------------------------------------------------------------------


def uniformity(case: Case) -> tuple[dict[str, Any], list[Finding]]:
    """Test every field that is declared uniform to its receiver, for every such party that keeps a view."""
    leaks = [leak for leak in case.card.scheme.leakage if leak.uniform]
    seen = [(leak, _collect(case, leak)) for leak in leaks if leak.receiver in case.kept]
    if sealed := _unblinded(case):
        seen.append((Leak(RECOMMENDER, "SealedTotal", "values less blinds", ""), sealed))
    found = [(leak, sample, sample.tests()) for leak, sample in seen]
    every = [test.p for _, _, tests in found for test in tests]
    corrected = iter(holm(every))
    fields = [
        _field(leak, sample, [(test, next(corrected)) for test in tests], len(every)) for leak, sample, tests in found
    ]
    notes = [] if leaks else ["The scheme claims of no field that it is uniform to its receiver."]
    notes += [f"{leak.receiver} keeps no view." for leak in leaks if leak.receiver not in case.kept]
    document = {"level": LEVEL, "correction": "Holm", "tests": len(every), "fields": fields, "notes": notes}
    return document, [_finding(case, entry, len(every)) for entry in fields if entry["values"]]


def holm(p_values: list[float]) -> list[float]:
    """Correct `p_values` jointly: any falls below `LEVEL` by chance with probability `LEVEL` at most."""
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    corrected, so_far = [0.0] * len(p_values), 0.0
    for rank, at in enumerate(order):
        so_far = max(so_far, min(1.0, (len(p_values) - rank) * p_values[at]))
        corrected[at] = so_far
    return corrected


def _collect(case: Case, leak: Leak) -> Sample:
    sample = Sample(case.card.setting.ring)
    for seen in Exhibits(case, (leak.receiver,)).received(leak.receiver, leak.kind):
        values = getattr(seen.message, leak.field)
        items = getattr(seen.message, "items", None)
        if items is None or len(items) != len(values):  # rows without item ids are numbered by position
            items = np.arange(len(values), dtype=np.uint32)
        sample.add(seen.sender, _round(seen.message), items, values)
    return sample


def _unblinded(case: Case) -> Sample | None:
    """Sample the sealed noise less the blinds that the recommender itself dealt: only another's masks must hide it."""
    sealed = family_of(case.card.scheme).unblinded(case) if RECOMMENDER in case.kept else None
    if sealed is None:
        return None
    sample = Sample(case.card.setting.ring)
    sample.add(RECOMMENDER, None, *sealed)
    return sample


def _round(message: Message) -> Any:
    return getattr(message, "iteration", None), getattr(message, "attempt", None)


def _field(leak: Leak, sample: Sample, tests: list[tuple[Check, float]], all_tests: int) -> dict[str, Any]:
    p_values: dict[str, dict[str, float]] = {}
    for test, _ in tests:
        p_values.setdefault(test.stream, {})[test.name] = test.p
    rejected = [(test, p) for test, p in tests if p < LEVEL]
    return {
        "party": leak.receiver,
        "kind": leak.kind,
        "field": leak.field,
        "messages": sample.messages,
        "values": sample.tallies["values"].n,
        "smallest_p": min((test.p for test, _ in tests), default=None),
        "smallest_p_corrected": min((p for _, p in tests), default=None),
        "rejected": [
            {"stream": test.stream, "test": test.name, "n": test.n, "p": test.p, "p_corrected": p}
            for test, p in sorted(rejected, key=lambda pair: pair[1])
        ],
        "p_values": p_values,
        "power": power_of(sample, LEVEL / max(1, all_tests)),
    }


def _finding(case: Case, entry: dict[str, Any], all_tests: int) -> Finding:
    party, name = entry["party"], f"{entry['kind']}.{entry['field']}"
    broken = entry["rejected"]
    whom = f"the {party.replace('_', ' ')}"
    if broken:
        title = f"What {whom} receives as {name} is not uniform: masks are missing, biased or used twice."
        told = "; ".join(f"{row['stream']}, {row['test']}: p = {row['p_corrected']:.2g}" for row in broken[:5])
        evidence = f"{len(broken)} of the tests reject; {told}"
    else:
        title = f"What {whom} receives as {name} was not told from uniform ring elements."
        if entry["smallest_p"] is None:
            title = f"What {whom} receives as {name} is too little to be tested: {entry['values']} values."
        evidence = "; ".join(_spoken(row) for row in entry["power"][:4])
    return Finding(
        id="mask-uniformity",
        title=title,
        coalition=(party,),
        severity="break" if broken else "info",
        claimed="uniform on Z_P",
        measured={"smallest_p_corrected": entry["smallest_p_corrected"], "values": entry["values"]},
        chance=LEVEL,
        confidence=f"Holm over {all_tests} tests: a correct run is flagged with probability {LEVEL} at most",
        evidence=f"{entry['values']} values in {case.file(party)}; {evidence}",
    )


def _spoken(row: dict[str, Any]) -> str:
    q = row["smallest"]
    found = (
        "would not be found whatever q" if q is None else f"found with probability {row['power']} from q = {q:.2g} on"
    )
    return f"{row['alternative']}: {found}"
