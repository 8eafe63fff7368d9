"""Selection of items by a sketch: its bound, what it finds, and a run that goes by it."""

from __future__ import annotations

import numpy as np
import pytest
from support.basics import small_run
from support.runs import play

from protocol.arithmetic.tape import Tape
from protocol.errors import BadInput, Rejected
from protocol.schemes.base import Shape
from protocol.schemes.hardened.budget import mu_of
from protocol.schemes.hardened.dense_sum import NOTHING
from protocol.schemes.hardened.hardened import Hardened
from protocol.schemes.hardened.hardened_roles import HardenedUser, posterior_of
from protocol.schemes.hardened.item_sketch import chosen_items, hashes, sketch_vector
from protocol.schemes.hardened.item_table import ItemTable
from protocol.schemes.hardened.share_law import draw_shares
from protocol.schemes.hardened.unit_vectors import first_vector
from protocol.wire.messages import MaskWelcome, OpenTable, OpenTaste, PublishedTable
from sim.api import audit, bandwidth, predict_bandwidth, replay, run, verify

USERS, ITEMS, SELECTED = 12, 9, 4
RUN_ID = bytes(range(32))


def params_of(items, users=1000, **settings):
    shape = Shape(users, items, (1.0, 5.0), (3,) * users, np.full(items, 1, np.int64))
    return Hardened().make_params(shape, **settings)[0]


def test_a_sketch_is_never_too_long_and_finds_the_popular_items():
    params, draw, longest = params_of(10_000, epsilon=1.0), np.random.default_rng(1), 0
    popular, total = np.sort(draw.choice(10_000, 50, replace=False)), np.zeros(params.lengths[0])
    for turn in range(2000):
        items = draw.choice(10_000, int(draw.integers(1, 60)), replace=False)
        sketch = sketch_vector(params, RUN_ID, np.union1d(items, popular) if turn % 2 else items)
        longest, total = max(longest, int(np.sum(sketch * sketch))), total + sketch
    for items in (np.arange(10_000), np.zeros(0, np.int64)):
        sketch = sketch_vector(params, RUN_ID, items)
        assert int(np.sum(sketch * sketch)) <= params.squares[0] and sketch.any() == bool(len(items))
    assert 0.99 * params.squares[0] < longest <= params.squares[0] == params.whole**2
    assert np.isin(popular, chosen_items(params, RUN_ID, total)).all()
    cells, signs = hashes(RUN_ID, 10_000, params.sketch_width)
    assert (np.bincount(cells[1], minlength=2 * params.sketch_width)[params.sketch_width :] > 0).mean() > 0.98
    assert abs(signs.mean()) < 0.02 and not np.array_equal(signs, hashes(bytes(32), 10_000, params.sketch_width)[1])


def test_above_8192_items_the_upload_does_not_grow_and_both_rounds_are_accounted():
    for users, items, bits, most in ((1000, 8193, 24, 4000), (1000, 10**6, 24, 4000), (10**6, 10**6, 32, 3000)):
        params = params_of(items, users, epsilon=1.0)
        assert (params.ring_bits, params.selected, params.sketch_width) == (bits, most, most // 2)
        assert sum(params.lengths) * bits // 8 == 48_000
        parts = [
            square / (scale / 2**16) ** 2 / params.min_contributors
            for square, scale in zip(params.squares, params.scales, strict=True)
        ]
        assert parts == pytest.approx([0.2 * mu_of(1.0, 1e-5) ** 2, 0.8 * mu_of(1.0, 1e-5) ** 2], rel=1e-4)
        assert sum(parts) <= mu_of(1.0, 1e-5) ** 2 and params.mu(params.min_contributors) == pytest.approx(
            sum(parts) ** 0.5
        )
    predicted = predict_bandwidth(scheme="hardened", epsilon=1.0, data="synthetic:24x100000:.0005")
    sent = sum(row["predicted_bytes"] for row in predicted["rows"] if row["sender"] == "user")
    assert 48_000 < sent / 24 <= 50_000, "handshakes included"
    assert params_of(8192, epsilon=1.0).selected == 0 == params_of(9000, epsilon=1.0, rounds=1).selected
    assert params_of(9000, epsilon=1.0, unit="rating").lengths == (18_000,)
    for options in ({"unit": "rating", "selected": 5}, {"selected": 5, "rounds": 1}, {"selected": 10}):
        with pytest.raises(BadInput, match=r"selected|selects"):
            params_of(9, epsilon=1.0, **options)


def test_what_is_published_follows_from_the_two_sums_alone():
    card, seats = small_run("hardened", n_users=USERS, n_items=ITEMS, selected=SELECTED)
    params, inputs = card.params, [seat.inputs for seat in seats if seat.inputs is not None]
    tapes = {seat.party: Tape(seat.tape_seed) for seat in seats}

    def opened(t, vector_of):
        shares = (draw_shares(tapes[f"user:{user}"], params.scales[t], params.lengths[t], "share", t)
                  for user in range(USERS))  # fmt: skip
        return sum(vector_of(own) + share for own, share in zip(inputs, shares, strict=True)) / params.whole

    chosen = chosen_items(params, card.run_id, opened(0, lambda own: sketch_vector(params, card.run_id, own.items)))
    noisy = opened(1, lambda own: first_vector(params, own.items, own.ratings, chosen))
    table = ItemTable.of(posterior_of(params, noisy, USERS, chosen), params.described())
    found = play(card, seats).outcome.item_factors
    assert np.array_equal(found, np.stack([table.quality, table.popularity], axis=1))
    others = np.setdiff1d(np.arange(ITEMS), chosen)
    assert len(chosen) == SELECTED and len(np.unique(found[others], axis=0)) == 1, "nothing tells these apart"
    assert (found[others, 1] <= found[chosen, 1].mean()).all()
    own = first_vector(params, np.arange(ITEMS), np.arange(ITEMS) % 5 + 1.0, chosen)
    assert params.squares[1] * 0.99 < int(np.sum(own * own)) <= params.squares[1]


def test_a_user_refuses_all_but_the_course_of_the_rounds():
    card, seats = small_run("hardened", n_users=USERS, n_items=ITEMS, selected=SELECTED)
    role = HardenedUser(card.setting, Tape(bytes(32)), next(seat.inputs for seat in seats if seat.inputs))
    numbers, rows = np.ones((ITEMS, 1), np.float32), np.ones((4, 1), np.float32)
    covered = np.arange(SELECTED, dtype=np.uint32)

    def refused(message):
        with pytest.raises(Rejected) as error:
            role.receive("recommender", message)
        return error.value.reason.name

    role.receive("recommender", MaskWelcome(bytes(32), NOTHING))
    assert refused(PublishedTable(1, numbers, numbers, rows)) == "WRONG_KIND"
    assert refused(OpenTaste(1, numbers, numbers, rows, covered, numbers)) == "WRONG_KIND"
    assert refused(OpenTable(1, covered[1:])) == "WRONG_LENGTH"
    assert refused(OpenTable(1, covered + ITEMS)) == "UNKNOWN_ITEM"
    (sent,) = role.receive("recommender", OpenTable(1, covered))
    assert len(sent.message.values) == 2 * SELECTED and role.iteration == 1
    assert refused(OpenTable(1, covered)) == "WRONG_ITERATION" and refused(OpenTable(2, covered)) == "WRONG_KIND"
    role.receive("recommender", PublishedTable(2, numbers, numbers, rows))
    assert role.predict(np.arange(ITEMS, dtype=np.uint32)).shape == (ITEMS,)


def test_a_run_with_selection_keeps_its_claim_and_its_formula(tmp_path):
    run(scheme="hardened", data="demo-small", seed=1, transport="ipc", options={"selected": 20},
             out=tmp_path / "run")  # fmt: skip
    assert bandwidth(tmp_path / "run")["match"] and replay(tmp_path / "run")["identical"]
    assert not verify(tmp_path / "run")["findings"]
    document = audit(tmp_path / "run", repetitions=400)
    assert document["verdict"] == "within-claims" and document["published_claim"]["status"] == "holds"
    assert document["unanswered"] == {} and document["accounting"]["noise"]["shares"] == 40
    assert all(0.98 < part <= 1.0 for part in document["accounting"]["sensitivity"]["largest"].values())
    assert document["accounting"]["sensitivity"]["worst_pair_epsilon"] <= 8.0
