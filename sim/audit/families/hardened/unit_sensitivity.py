"""Measure how far one user, or one rating, moves the sums of `hardened`, on its own data: exactly, in integers."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from protocol.arrays import Ints
from protocol.party.role import UserInput
from protocol.schemes.composition import gaussian_epsilon
from protocol.schemes.hardened.budget import USER, VALUE, mu_left
from protocol.schemes.hardened.hardened_params import HardenedParams
from protocol.schemes.hardened.unit_vectors import first_vector
from sim.audit import truth
from sim.audit.accounting.neighbours import FLIPS
from sim.audit.families.hardened.hardened_account import vector_of
from sim.audit.findings import Audited, Finding
from sim.views.evidence import Case

SECOND = 10  # neighbours in round 1 for each in round 2, where a vector takes longer to make



def vectors_moved(case: Case, sample: int | None, draw: np.random.Generator) -> Audited:
    """Try `sample` neighbours of the run's data: ratings removed, added or set at the ends, users removed."""
    params, known = case.card.params, truth.all_ratings(case)
    assert isinstance(params, HardenedParams)
    if not known:
        return {}, []
    owned, tries = list(known.items()), FLIPS if sample is None else sample
    moved = [[int(np.sum(change * change)) for change in _changes(case, owned, tries, draw)]]
    if params.rounds == 2:
        users = [owned[int(at)] for at in draw.integers(len(owned), size=tries // SECOND)]
        moved.append([int(np.sum(vector_of(case, name, own, 1) ** 2)) for name, own in users])
    largest = {
        f"round {t}": math.sqrt(max(each, default=0) / square)
        for t, (each, square) in enumerate(zip(moved, params.squares, strict=True), 1)
    }
    parts = (
        mu_left([square], [scale], params.min_contributors)
        for square, scale in zip(params.squares, params.scales, strict=True)
    )
    mu = math.sqrt(math.fsum((ratio * part) ** 2 for ratio, part in zip(largest.values(), parts, strict=True)))
    document = {
        "unit": "sensitivity that the noise is made for",
        "records": sum(map(len, moved)),
        "largest": largest,
        "worst_pair_epsilon": gaussian_epsilon(mu, params.delta),
    }
    over = any(max(each, default=0) > square for each, square in zip(moved, params.squares, strict=True))
    finding = Finding(
        "sensitivity",
        f"A sum, with {params.neighbour}, moves by at most {max(largest.values()):.4f} of what its noise is made for.",
        ("user",),
        "break" if over else "info",
        claimed=1.0,
        measured=largest,
        confidence=f"{document['records']} neighbours drawn by the run id, each exact in integers; the bound is proved",
        evidence="L2 norm of the change of a user's vector over the bound",
    )
    return document, [finding]


def _changes(
    case: Case, owned: list[tuple[str, UserInput]], tries: int, draw: np.random.Generator
) -> Iterator[Ints]:
    params = HardenedParams.of(case.card.params)
    for turn in range(tries):
        name, own = owned[int(draw.integers(len(owned)))]
        items, ratings = own.items.astype(np.int64), own.ratings
        whole = vector_of(case, name, own, 0)
        if params.unit_of == USER:
            yield whole
        elif params.unit_of == VALUE:
            changed = ratings.copy()
            changed[int(draw.integers(len(items)))] = draw.choice([params.rating_min, params.rating_max])
            yield first_vector(params, items, changed) - whole
        elif turn % 2 == 0 and len(items):
            place = int(draw.integers(len(items)))
            yield whole - first_vector(params, np.delete(items, place), np.delete(ratings, place))
        elif len(free := np.setdiff1d(np.arange(params.n_items), items)):
            item, end = int(draw.choice(free)), draw.choice([params.rating_min, params.rating_max])
            place = int(np.searchsorted(items, item))
            yield first_vector(params, np.insert(items, place, item), np.insert(ratings, place, end)) - whole
