"""The masked sum: by hand on an 8-bit ring, against the reference, and the law of its masks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import reference as reference
from support.basics import FALSE_ALARM, steadily, uniform_p

from protocol.arithmetic.ring import Ring
from protocol.arithmetic.tape import Tape
from protocol.errors import Aborted, Reason, Rejected
from protocol.schemes.factorization.masked_sum import MaskDealer, SumHolder, contributor_digest, mask_rows
from protocol.wire.messages import MaskedTotal, OpenSum

RUN, OTHER_RUN = bytes(range(32)), bytes(range(32, 64))
KEY, OTHER_KEY = bytes(range(64, 96)), bytes(range(96, 128))


def ids(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.uint32)


def rows(*values: list[int]) -> np.ndarray:
    return np.array(values, np.uint32).reshape(len(values), -1)


def opening(iteration: int, users: list[int], floors: dict[int, int]) -> OpenSum:
    return OpenSum(iteration, ids(*users), ids(*floors), np.array(list(floors.values()), np.uint32))


def released(total: MaskedTotal) -> dict[int, list[int]]:
    return {int(item): row for item, row in zip(total.items, total.values.tolist(), strict=True)}


# ---- by hand: 8 bits, two users, two coordinates

FIRST = (ids(0, 1), rows([200, 10], [250, 3]))  # user 0 sends items 0 and 1
SECOND = (ids(1), rows([10, 255]))  # user 1 sends item 1


class DealerByHand(MaskDealer):
    """A mask dealer with small fixed masks, so that a reader can add them up."""

    def masks(self, user, iteration, items):
        by_hand = {0: {0: [190, 20], 1: [100, 0]}, 1: {1: [200, 254]}}
        return rows(*(by_hand[user][int(item)] for item in items))


def holder_by_hand(floors: dict[int, int], users: tuple[int, ...] = (0, 1)) -> SumHolder:
    holder = SumHolder(Ring(8), dim=2, n_users=3, n_items=4)
    holder.open(opening(0, list(users), floors))
    return holder


def unmasked(dealer: MaskDealer, total: MaskedTotal, supports, opened):
    return dealer.unmask(total, dealer.sum(total.iteration, supports, opened), opened)


def test_two_users_by_hand():
    holder = holder_by_hand({0: 1, 1: 2})
    holder.add(0, 0, *FIRST)
    assert not holder.complete
    holder.add(1, 0, *SECOND)
    assert holder.complete

    closing = holder.close()
    assert closing.iteration == 0
    assert closing.users.tolist() == [0, 1]
    assert closing.counts.tolist() == [1, 2]

    total = holder.release(0, closing.digest)
    assert total.iteration == 0
    assert released(total) == {0: [200, 10], 1: [4, 2]}  # 250 + 10 - 256, 3 + 255 - 256

    dealer = DealerByHand(Ring(8), 2, RUN, Tape(KEY))
    sums = unmasked(dealer, total, {0: ids(0, 1), 1: ids(1)}, ids(0, 1))
    # 200 - 190, 10 - 20 + 256; 4 - 100 - 200 + 512, 2 - 0 - 254 + 256
    assert sums.tolist() == [[10, 246], [216, 4]]


def test_an_item_below_its_floor_is_absent():
    holder = holder_by_hand({0: 2, 1: 2})
    holder.add(0, 0, *FIRST)
    holder.add(1, 0, *SECOND)
    closing = holder.close()
    assert closing.counts.tolist() == [1, 2]
    assert released(holder.release(0, closing.digest)) == {1: [4, 2]}


def test_unmasking_leaves_out_what_was_not_released():
    dealer = DealerByHand(Ring(8), 2, RUN, Tape(KEY))
    total = MaskedTotal(0, ids(1), rows([4, 2]))
    assert unmasked(dealer, total, {0: ids(0, 1), 1: ids(1)}, ids(0, 1)).tolist() == [[216, 4]]


def test_unmasking_takes_away_the_masks_of_contributors_only():
    dealer = DealerByHand(Ring(8), 2, RUN, Tape(KEY))
    total = MaskedTotal(0, ids(1), rows([10, 255]))
    assert unmasked(dealer, total, {1: ids(1)}, ids(0, 1)).tolist() == [[66, 1]]  # 10 - 200 + 256, 255 - 254


def test_an_item_without_any_contributor_is_absent_and_not_zero():
    holder = holder_by_hand({0: 1, 1: 1, 3: 1})
    holder.add(0, 0, *FIRST)
    holder.add(1, 0, *SECOND)
    closing = holder.close()
    assert closing.counts.tolist() == [1, 2, 0]
    assert list(released(holder.release(0, closing.digest))) == [0, 1]


def test_a_total_that_happens_to_be_zero_is_released():
    holder = holder_by_hand({1: 2})
    holder.add(0, 0, ids(1), rows([1, 128]))
    holder.add(1, 0, ids(1), rows([255, 128]))
    assert released(holder.release(0, holder.close().digest)) == {1: [0, 0]}


def test_nobody_came():
    holder = holder_by_hand({0: 1, 1: 1})
    closing = holder.close()
    assert closing.users.tolist() == [] and closing.counts.tolist() == [0, 0]
    assert released(holder.release(0, closing.digest)) == {}


# ---- which users are in the sum


def test_contributions_that_arrive_before_the_opening_are_kept():
    holder = SumHolder(Ring(8), 2, n_users=3, n_items=4)
    holder.add(0, 0, *FIRST)
    assert not holder.complete
    holder.open(opening(0, [0, 1], {0: 1, 1: 1}))
    holder.add(1, 0, *SECOND)
    assert holder.complete
    assert released(holder.release(0, holder.close().digest)) == {0: [200, 10], 1: [4, 2]}


def test_everyone_may_arrive_before_the_opening():
    holder = SumHolder(Ring(8), 2, n_users=3, n_items=4)
    holder.add(1, 0, *SECOND)
    holder.add(0, 0, *FIRST)
    holder.open(opening(0, [0, 1], {0: 1, 1: 1}))
    assert holder.complete
    assert released(holder.release(0, holder.close().digest)) == {0: [200, 10], 1: [4, 2]}


def test_an_early_user_who_is_then_not_invited_is_left_out():
    holder = SumHolder(Ring(8), 2, n_users=3, n_items=4)
    holder.add(0, 0, *FIRST)
    holder.add(2, 0, ids(1), rows([7, 7]))
    holder.open(opening(0, [0, 1], {0: 1, 1: 1}))
    holder.add(1, 0, *SECOND)
    assert holder.complete
    closing = holder.close()
    assert closing.users.tolist() == [0, 1]
    assert released(holder.release(0, closing.digest)) == {0: [200, 10], 1: [4, 2]}


def test_an_early_user_with_an_item_that_is_not_opened_is_left_out():
    holder = SumHolder(Ring(8), 2, n_users=3, n_items=4)
    holder.add(0, 0, ids(0, 3), rows([1, 1], [1, 1]))
    holder.open(opening(0, [0, 1], {0: 1, 1: 1}))
    holder.add(1, 0, *SECOND)
    assert not holder.complete
    closing = holder.close()
    assert closing.users.tolist() == [1]
    assert released(holder.release(0, closing.digest)) == {1: [10, 255]}


def refused(reason: Reason):
    return pytest.raises(Rejected, match=reason.name)


def test_a_user_who_is_not_invited_is_refused_after_the_opening():
    holder = holder_by_hand({0: 1, 1: 1})
    with refused(Reason.UNKNOWN_SENDER):
        holder.add(2, 0, ids(1), rows([7, 7]))
    with refused(Reason.UNKNOWN_SENDER):
        holder.add(-1, 0, ids(1), rows([7, 7]))
    with refused(Reason.UNKNOWN_ITEM):
        holder.add(1, 0, ids(1, 2), rows([7, 7], [7, 7]))
    assert holder.close().users.tolist() == []


@pytest.mark.parametrize("early", [True, False])
def test_one_contribution_per_user_and_iteration(early):
    holder = SumHolder(Ring(8), 2, n_users=3, n_items=4)
    if not early:
        holder.open(opening(0, [0, 1], {0: 1, 1: 1}))
    holder.add(0, 0, *FIRST)
    with refused(Reason.DUPLICATE):
        holder.add(0, 0, *FIRST)
    if early:
        holder.open(opening(0, [0, 1], {0: 1, 1: 1}))
    assert released(holder.release(0, holder.close().digest)) == {0: [200, 10], 1: [250, 3]}


# ---- one contributor set per iteration, which never changes


def test_whoever_comes_after_the_close_is_not_in_the_sum():
    holder = holder_by_hand({0: 1, 1: 1})
    holder.add(0, 0, *FIRST)
    closing = holder.close()
    with refused(Reason.WRONG_ITERATION):
        holder.add(1, 0, *SECOND)
    assert released(holder.release(0, closing.digest)) == {0: [200, 10], 1: [250, 3]}


def test_a_closed_iteration_cannot_be_closed_again():
    holder = holder_by_hand({0: 1, 1: 1})
    holder.close()
    with pytest.raises(AssertionError):
        holder.close()


def test_an_open_iteration_cannot_be_opened_for_others():
    holder = holder_by_hand({0: 1, 1: 1})
    with refused(Reason.WRONG_KIND):
        holder.open(opening(0, [0], {0: 1}))
    holder.close()
    with refused(Reason.WRONG_KIND):
        holder.open(opening(0, [0], {0: 1}))


def test_nothing_is_released_before_the_close_nor_twice():
    holder = holder_by_hand({0: 1, 1: 1})
    holder.add(0, 0, *FIRST)
    with refused(Reason.WRONG_KIND):
        holder.release(0, contributor_digest(0, [(0, FIRST[0])]))
    digest = holder.close().digest
    holder.release(0, digest)
    with refused(Reason.WRONG_KIND):
        holder.release(0, digest)


def test_the_number_of_a_released_iteration_is_never_used_again():
    holder = holder_by_hand({0: 1, 1: 1})
    holder.add(0, 0, *FIRST)
    holder.release(0, holder.close().digest)
    assert holder.iteration == 1
    with refused(Reason.WRONG_ITERATION):
        holder.open(opening(0, [0, 1], {0: 1, 1: 1}))
    with refused(Reason.WRONG_ITERATION):
        holder.add(1, 0, *SECOND)
    holder.open(opening(1, [0, 1], {0: 1, 1: 1}))
    with refused(Reason.WRONG_ITERATION):
        holder.add(1, 0, *SECOND)
    holder.add(1, 1, *SECOND)  # and nothing of iteration 0 is left in it
    assert released(holder.release(1, holder.close().digest)) == {1: [10, 255]}


def test_another_digest_ends_the_run_and_releases_nothing():
    holder = holder_by_hand({0: 1, 1: 1})
    holder.add(0, 0, *FIRST)
    holder.close()
    with pytest.raises(Aborted, match="DISAGREEMENT"):
        holder.release(0, contributor_digest(0, [(0, FIRST[0]), (1, SECOND[0])]))


def test_the_digest_tells_every_contributor_set_apart():
    sets = [
        (0, [(0, ids(0, 1)), (1, ids(1))]),
        (1, [(0, ids(0, 1)), (1, ids(1))]),
        (0, [(0, ids(0, 1))]),
        (0, [(0, ids(0)), (1, ids(1))]),
        (0, [(0, ids(0)), (1, ids(0, 1))]),
        (0, [(0, ids(0, 1)), (2, ids(1))]),
        (0, [(0, ids(0, 1)), (1, ids())]),
        (0, []),
    ]
    assert len({contributor_digest(iteration, supports) for iteration, supports in sets}) == len(sets)


def test_the_order_of_arrival_does_not_show():
    closings = []
    for arrival in ([0, 1], [1, 0]):
        holder = holder_by_hand({0: 1, 1: 1})
        for user in arrival:
            holder.add(user, 0, *(FIRST, SECOND)[user])
        closings.append(holder.close())
    assert closings[0].digest == closings[1].digest
    assert closings[0].digest == contributor_digest(0, [(0, ids(0, 1)), (1, ids(1))])


# ---- against the reference


@steadily(200)
@given(data=st.data())
def test_random_sums_are_those_of_the_reference(data):
    """Rings, supports, floors, arrival and absence are random; the masks are real and given to the reference."""
    bits = data.draw(st.sampled_from([8, 16, 24, 32, 40, 64]))
    dim, iteration = data.draw(st.integers(1, 3)), data.draw(st.integers(0, 2))
    ring, modulus = Ring(bits), 1 << bits
    items = sorted(data.draw(st.sets(st.integers(0, 9), min_size=1, max_size=5)))
    floors = {item: data.draw(st.integers(1, 4)) for item in items}
    supports = data.draw(st.lists(st.sets(st.sampled_from(items), min_size=1).map(sorted), min_size=1, max_size=5))
    present = sorted(data.draw(st.sets(st.sampled_from(range(len(supports))))))
    early = data.draw(st.sets(st.sampled_from(present))) if present else set()
    row = st.lists(st.integers(0, modulus - 1), min_size=dim, max_size=dim)
    values = {user: {item: data.draw(row) for item in supports[user]} for user in present}

    dealer = MaskDealer(ring, dim, RUN, Tape(KEY))
    masks = {}
    for user in present:
        drawn = dealer.masks(user, iteration, ids(*supports[user])).tolist()
        masks[user] = dict(zip(supports[user], drawn, strict=True))
    expected = reference.masked_sum(values, masks, floors, modulus)

    holder = SumHolder(ring, dim, len(supports), 10)
    holder.iteration = iteration
    for user in data.draw(st.permutations(sorted(early))):
        holder.add(user, iteration, ids(*supports[user]), sent_by(ring, values[user], masks[user]))
    holder.open(opening(iteration, list(range(len(supports))), floors))
    for user in data.draw(st.permutations(sorted(set(present) - early))):
        holder.add(user, iteration, ids(*supports[user]), sent_by(ring, values[user], masks[user]))
    assert holder.complete == (len(present) == len(supports))

    closing = holder.close()
    assert closing.users.tolist() == present
    assert dict(zip(items, closing.counts.tolist(), strict=True)) == expected.counts
    total = holder.release(iteration, closing.digest)
    assert released(total) == expected.totals
    sums = unmasked(dealer, total, {user: ids(*supports[user]) for user in present}, ids(*items))
    assert dict(zip(total.items.tolist(), sums.tolist(), strict=True)) == expected.sums


def sent_by(ring: Ring, values: dict[int, list[int]], masks: dict[int, list[int]]) -> np.ndarray:
    return ring.add(np.array(list(values.values()), ring.dtype), np.array(list(masks.values()), ring.dtype))


# ---- masks: tests of size 1e-6 on fixed keys; beside each, the same test finds a planted error


def test_masks_are_uniform_on_all_residues_of_eight_bits():
    masks = mask_rows(Ring(8), KEY, RUN, 0, 50_000, 4)
    assert set(np.unique(masks).tolist()) == set(range(256))
    assert uniform_p(masks, 256) > FALSE_ALARM


def test_the_uniformity_test_finds_a_missing_residue_and_a_small_bias():
    masks = mask_rows(Ring(8), KEY, RUN, 0, 50_000, 4)
    assert uniform_p(masks % 255, 256) < FALSE_ALARM
    biased = np.where(np.arange(masks.size) % 20 == 0, 0, masks.ravel())  # every twentieth is 0
    assert uniform_p(biased, 256) < FALSE_ALARM


@pytest.mark.parametrize("bits", [16, 24, 32, 40, 48, 56, 64])
def test_every_byte_of_a_mask_is_uniform(bits):
    masks = mask_rows(Ring(bits), KEY, RUN, 0, 20_000, 2)
    for place in range(bits // 8):
        byte = ((masks >> masks.dtype.type(8 * place)) & masks.dtype.type(255)).astype(np.int64)
        assert uniform_p(byte, 256) > FALSE_ALARM
    assert int(masks.max()) < 1 << bits


def test_no_mask_is_used_twice():
    """All 64-bit words of 8 users, 8 iterations and 2 runs, 24 each, differ (by chance with p = 1 - 10^-13)."""
    words = []
    for run in (RUN, OTHER_RUN):
        dealer = MaskDealer(Ring(64), 4, run, Tape(KEY))
        for user in range(8):
            for iteration in range(8):
                words += dealer.masks(user, iteration, ids(*range(6))).ravel().tolist()
    assert len(set(words)) == len(words) == 2 * 8 * 8 * 24


def test_another_tape_gives_other_masks():
    first, second = (MaskDealer(Ring(64), 4, RUN, Tape(key)) for key in (KEY, OTHER_KEY))
    words = [word for dealer in (first, second) for word in dealer.masks(0, 0, ids(*range(6))).ravel().tolist()]
    assert len(set(words)) == 48


def test_a_user_derives_from_its_key_what_the_dealer_deals():
    ring = Ring(24)
    dealer = MaskDealer(ring, 3, RUN, Tape(KEY))
    for user, iteration in [(0, 0), (1, 0), (0, 7), (5, 300)]:
        dealt = dealer.masks(user, iteration, ids(2, 5, 9))
        assert ring.fits(dealt, (3, 3))
        assert mask_rows(ring, dealer.key(user), RUN, iteration, 3, 3).tolist() == dealt.tolist()


def test_keys_of_users_differ_and_stay():
    dealer = MaskDealer(Ring(32), 2, RUN, Tape(KEY))
    keys = [dealer.key(user) for user in range(50)]
    assert len(set(keys)) == 50 and {len(key) for key in keys} == {32}
    assert [MaskDealer(Ring(32), 2, RUN, Tape(KEY)).key(user) for user in range(50)] == keys
