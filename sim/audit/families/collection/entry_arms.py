"""Canaries of entries that a user randomizes itself, and the statistics that the recommender computes from them.

| arm | neighbours | what is measured |
|---|---|---|
| `release` | one entry of a vector | the received entry, for each pair of its possible values |
| `beside` | the same, in a vector whose other entry is known | draws that two entries share |
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from protocol.arithmetic.tape import derive
from protocol.party.role import RECOMMENDER
from sim.audit.canary.bound_rows import Asked, Found, NamedArm, Statistic
from sim.audit.families.collection.randomized_entries import VECTOR, beside_known, log_ratio, receive, vectors_of

ENTRIES = 20  # per requested repetition: entries are cheap
PAIRS = (("least", "greatest"), ("missing", "greatest"), ("missing", "least"))
# In this range entries can tell too little noise from enough and show the claimed ε; outside, ε = 1 is measured too.
MEASURABLE = (0.1, 6.0)
STAND_IN = 1.0


def of_entries(asked: Asked) -> Iterator[Found]:
    measurable = MEASURABLE[0] <= asked.claim <= MEASURABLE[1]
    for epsilon in (asked.claim,) if measurable else (STAND_IN, asked.claim):
        for pair in PAIRS:
            yield of_entry(asked, epsilon, pair)
        if epsilon == asked.claim and not measurable:
            continue
        for pair in PAIRS[:2]:
            yield of_entry(asked, epsilon, pair, beside=True)


def of_entry(asked: Asked, epsilon: float, pair: tuple[str, str], beside: bool = False) -> Found:
    arm, words = NamedArm("beside" if beside else "release"), " or ".join(pair)
    problem = vectors_of(asked.scheme, asked.params, epsilon, pair, beside)
    seed = derive(asked.seed, "canary", arm.name, words, repr(epsilon))
    received = receive(problem, seed, asked.repetitions * (1 if beside else ENTRIES))
    if beside:
        knows, name = "the other entry of a vector of two", f"entry beside a known one, {words}"
        values = beside_known(problem, received)
    else:
        knows, name = "that the entry is one of two (likelihood ratio by the exact law)", f"entry, {words}"
        values = log_ratio(problem, received)
    return arm, problem, received, Statistic((RECOMMENDER,), f"the upload, and {knows}", name, "noise", values)


def entry_problem(asked: Asked) -> dict[str, Any]:
    return {
        "users": 1,
        "items": VECTOR,
        "dim": 1,
        "neighbours": "one entry of a user's vector is the least rating, the greatest, or missing; each entry of a "
        "vector is a repetition, and of a vector of two the first",
        "other_rating": None,
        "unit": asked.scheme.unit,
    }
