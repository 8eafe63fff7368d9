"""The pre-commitment of noise, by hand on an 8-bit ring and then on vectors of the paper's size with real tapes."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from support.basics import FALSE_ALARM, small_run, steadily, uniform_p

from protocol.arithmetic.fixedpoint import FixedPoint
from protocol.arithmetic.noise import noise_share
from protocol.arithmetic.ring import Ring
from protocol.arithmetic.tape import Tape, derive, exponential
from protocol.errors import Reason, Rejected
from protocol.party.role import THIRD_PARTY
from protocol.schemes.factorization.machines.commitment import SealHolder, blind_rows, choose_committers, unblind
from protocol.wire.messages import Commit, CommitInFull, OpenCommitment, SealedTotal
from sim.drivers.inprocess import InProcess
from tests.protocol.schemes.test_dynamic import CHURNED, WIRES, Seen, dropping

RUN, KEY, OTHER_KEY = bytes(range(32)), bytes(range(64, 96)), bytes(range(96, 128))


def ids(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.uint32)


def rows(*values: list[int]) -> np.ndarray:
    return np.array(values, np.uint32).reshape(len(values), -1)


def opening(attempt: int, users: list[int], counts: dict[int, int]) -> OpenCommitment:
    return OpenCommitment(attempt, ids(*users), ids(*counts), ids(*counts.values()))


def sealed(total: SealedTotal) -> dict[int, list[int]]:
    return dict(zip(total.items.tolist(), total.values.tolist(), strict=True))


# ---- by hand: 8 bits, two committers, two items, two coordinates

SHARES = {0: rows([3, 250], [10, 0]), 1: rows([255, 7], [1, 128])}  # enc(η share): user 0 and user 1 on items 0 and 1
BLINDS = {0: rows([100, 200], [50, 60]), 1: rows([7, 8], [250, 1])}
SENT = {0: rows([103, 194], [60, 60]), 1: rows([6, 15], [251, 129])}  # 250 + 200 - 256 and 255 + 7 - 256 wrap
ALPHA = {0: rows([40, 90], [0, 255]), 1: rows([17, 5], [99, 1])}  # by attempt
BOTH = ids(0, 1)


class HolderByHand(SealHolder):
    """A seal holder with small fixed seals, so that a reader can add them up."""

    def _draw(self, count):
        return ALPHA[self.attempt][:count]


def holder_by_hand(n_items: int = 4) -> SealHolder:
    return HolderByHand(Ring(8), 2, 3, n_items, Tape(KEY))


def test_a_blinded_share_is_the_share_plus_the_blind():
    ring = Ring(8)
    assert all(ring.add(SHARES[user], BLINDS[user]).tolist() == SENT[user].tolist() for user in (0, 1))


def test_two_committers_by_hand():
    holder = holder_by_hand()
    assert not holder.complete and not holder.sealed.any()
    holder.open(opening(0, [0, 1], {0: 2, 1: 2}))
    holder.add(1, 0, BOTH, SENT[1])
    assert not holder.complete
    holder.add(0, 0, BOTH, SENT[0])
    assert holder.complete

    total = holder.seal()
    assert total.attempt == 0
    # 40 + 103 + 6, 90 + 194 + 15 - 256; 0 + 60 + 251 - 256, 255 + 60 + 129 - 256
    assert sealed(total) == {0: [149, 43], 1: [55, 188]}
    assert holder.seals.tolist() == [[40, 90], [0, 255], [0, 0], [0, 0]]
    assert holder.sealed.tolist() == [True, True, False, False]

    hidden = unblind(Ring(8), 2, total, {user: (BOTH, BLINDS[user]) for user in (0, 1)})
    # 149 - 107, 43 - 208 + 256; 55 - 300 + 256, 188 - 61
    assert hidden.tolist() == [[42, 91], [11, 127]]
    # the same from seal and shares: 40 + 3 + 255 - 256, 90 + 250 + 7 - 256; 0 + 10 + 1, 255 + 0 + 128 - 256
    assert Ring(8).add(ALPHA[0], SHARES[0], SHARES[1]).tolist() == hidden.tolist()


def test_a_missing_committer_leaves_its_item_out_and_its_sum_is_forgotten():
    """Users 0 and 1 commit to item 0; for item 1 only the share of user 0 arrives. The next attempt has other seals."""
    holder = holder_by_hand()
    holder.open(opening(0, [0, 1], {0: 2, 1: 2}))
    holder.add(0, 0, BOTH, SENT[0])
    holder.add(1, 0, ids(0), SENT[1][:1])
    total = holder.seal()
    assert sealed(total) == {0: [149, 43]}
    assert holder.sealed.tolist() == [True, False, False, False]
    assert holder.seals[1].tolist() == [0, 0]  # not the 0, 255 that was drawn for it
    committers = {user: (BOTH, BLINDS[user]) for user in (0, 1)}
    assert unblind(Ring(8), 2, total, committers).tolist() == [[42, 91]]  # blinds of absent items are left out

    assert holder.attempt == 1 and holder.opening is None and not holder.complete
    holder.open(opening(1, [1, 2], {1: 2}))
    assert not holder.complete  # nothing of attempt 0 is left
    holder.add(1, 1, ids(1), rows([20, 30]))
    holder.add(2, 1, ids(1), rows([4, 250]))
    assert sealed(holder.seal()) == {1: [41, 29]}  # 17 + 20 + 4, 5 + 30 + 250 - 256
    assert holder.seals[:2].tolist() == [[40, 90], [17, 5]]


def test_a_committer_that_is_lost_is_not_waited_for_but_what_it_sent_counts():
    holder = holder_by_hand()
    holder.open(opening(0, [0, 1], {0: 2, 1: 2}))
    holder.add(0, 0, BOTH, SENT[0])
    holder.lose(0)
    assert not holder.complete
    holder.lose(1)
    assert holder.complete and sealed(holder.seal()) == {}
    again = holder_by_hand()
    again.open(opening(0, [0, 1], {0: 2, 1: 2}))
    again.add(0, 0, BOTH, SENT[0])
    again.lose(0)
    again.add(1, 0, BOTH, SENT[1])
    assert again.complete and sealed(again.seal()) == {0: [149, 43], 1: [55, 188]}


def test_shares_that_arrive_before_the_opening_are_kept_and_those_of_others_are_not():
    holder = holder_by_hand()
    for user in (0, 1):
        holder.add(user, 0, BOTH, SENT[user])
    holder.add(2, 0, BOTH, rows([7, 7], [7, 7]))
    holder.open(opening(0, [0, 1], {0: 2, 1: 2}))
    assert holder.complete and sealed(holder.seal()) == {0: [149, 43], 1: [55, 188]}


def refused(reason: Reason):
    return pytest.raises(Rejected, match=reason.name)


def test_what_the_holder_refuses():
    holder = holder_by_hand()
    for users, items, counts, reason in [
        (ids(0, 3), ids(0), ids(2), Reason.OUT_OF_RANGE),
        (ids(0, 1), ids(4), ids(2), Reason.UNKNOWN_ITEM),
        (ids(0, 1), ids(0, 1), ids(2, 1), Reason.OUT_OF_RANGE),  # a sole committer would know the noise
        (ids(0, 1), ids(0, 1), ids(2), Reason.WRONG_LENGTH),
    ]:
        with refused(reason):
            holder.open(OpenCommitment(0, users, items, counts))
    with refused(Reason.WRONG_ITERATION):
        holder.open(opening(1, [0, 1], {0: 2}))
    holder.open(opening(0, [0, 1], {0: 2, 1: 2}))
    with refused(Reason.WRONG_KIND):
        holder.open(opening(0, [0, 1], {0: 2, 1: 2}))
    for user, attempt, items, values, reason in [
        (2, 0, ids(0), rows([1, 1]), Reason.UNKNOWN_SENDER),
        (-1, 0, ids(0), rows([1, 1]), Reason.UNKNOWN_SENDER),
        (0, 1, ids(0), rows([1, 1]), Reason.WRONG_ITERATION),
        (0, 0, ids(2), rows([1, 1]), Reason.UNKNOWN_ITEM),
        (0, 0, ids(0, 4), rows([1, 1], [1, 1]), Reason.UNKNOWN_ITEM),
        (0, 0, ids(0, 1), rows([1, 1]), Reason.WRONG_LENGTH),
        (0, 0, ids(0), rows([1, 256]), Reason.OUT_OF_RANGE),
        (0, 0, ids(0), rows([1, 1, 1]), Reason.OUT_OF_RANGE),
    ]:
        with refused(reason):
            holder.add(user, attempt, items, values)
    holder.add(0, 0, BOTH, SENT[0])
    with refused(Reason.DUPLICATE):
        holder.add(0, 0, BOTH, SENT[0])
    holder.add(1, 0, BOTH, SENT[1])
    assert sealed(holder.seal()) == {0: [149, 43], 1: [55, 188]}


def test_a_sealed_item_and_a_used_attempt_are_never_opened_again():
    """A second sum under one α would differ from the first by the noise itself."""
    holder = holder_by_hand()
    holder.open(opening(0, [0, 1], {0: 2}))
    for user in (0, 1):
        holder.add(user, 0, ids(0), SENT[user][:1])
    holder.seal()
    for attempt, items, reason in [
        (0, {1: 2}, Reason.WRONG_ITERATION), (1, {0: 2}, Reason.UNKNOWN_ITEM), (1, {0: 2, 1: 2}, Reason.UNKNOWN_ITEM)
    ]:
        with refused(reason):
            holder.open(opening(attempt, [0, 1], items))
    with refused(Reason.WRONG_ITERATION):
        holder.add(1, 0, ids(1), SENT[1][1:])  # late
    assert holder.seals.tolist() == [[40, 90], [0, 0], [0, 0], [0, 0]]


# ---- everything is fresh in another attempt


def test_no_seal_is_drawn_twice():
    """All 64-bit words of ten failed attempts and a last one on two tapes differ (by chance two agree: p < 10^-14)."""
    words = []
    for key in (KEY, OTHER_KEY):
        holder = SealHolder(Ring(64), 4, 2, 6, Tape(key))
        for _ in range(10):
            words += holder._draw(6).ravel().tolist()
            holder.open(opening(holder.attempt, [0, 1], dict.fromkeys(range(6), 2)))
            assert sealed(holder.seal()) == {}
        zeros = np.zeros((6, 4), np.uint64)
        holder.open(opening(10, [0, 1], dict.fromkeys(range(6), 2)))
        for user in (0, 1):
            holder.add(user, 10, ids(*range(6)), zeros)
        total = holder.seal()  # the shares are zero, so the total holds the seals
        assert total.values.tolist() == holder.seals.tolist()
        words += total.values.ravel().tolist()
    assert len(set(words)) == len(words) == 2 * 11 * 24


def test_blinds_and_envelope_keys_differ_by_attempt_user_and_run():
    ring = Ring(64)
    words = [
        word
        for key in (KEY, OTHER_KEY)
        for run in (RUN, bytes(32))
        for attempt in range(8)
        for word in blind_rows(ring, key, run, attempt, 6, 4).ravel().tolist()
    ]
    assert len(set(words)) == len(words) == 2 * 2 * 8 * 24
    assert blind_rows(ring, KEY, RUN, 3, 6, 4).tolist() == blind_rows(ring, KEY, RUN, 3, 6, 4).tolist()
    keys = {derive(KEY, "eta", attempt) for attempt in range(8)}
    assert len(keys) == 8
    assert len({exponential([key], 2, "eta").tobytes() for key in keys}) == 8


@steadily(100)
@given(st.integers(2, 9), st.integers(0, 30), st.integers(2, 9), st.integers(0, 5))
def test_every_item_has_as_many_committers_as_wanted_spread_evenly(n_users, n_items, wanted, attempt):
    wanted = min(wanted, n_users)
    users, items = [7 + 3 * user for user in range(n_users)], ids(*(2 * item + 1 for item in range(n_items)))
    chosen = choose_committers(Tape(KEY), attempt, items, users, wanted)
    assert list(chosen) == sorted(chosen) and set(chosen) <= set(users)
    assert all(len(own) and (np.diff(own.astype(int)) > 0).all() for own in chosen.values())
    per_item = Counter(int(item) for own in chosen.values() for item in own)  # a user counts once for an item
    assert per_item == dict.fromkeys(items.tolist(), wanted)
    loads = [len(chosen.get(user, ())) for user in users]
    assert max(loads) - min(loads) <= 1


def test_the_choice_of_committers_follows_from_tape_and_attempt():
    items, users = ids(*range(40)), list(range(20))

    def choice(key: bytes, attempt: int) -> dict[int, list[int]]:
        return {user: own.tolist() for user, own in choose_committers(Tape(key), attempt, items, users, 3).items()}

    assert choice(KEY, 0) == choice(KEY, 0)
    assert choice(KEY, 0) != choice(KEY, 1) != choice(OTHER_KEY, 1)


# ---- in a run (more such tests are in test_churn.py)


@pytest.mark.parametrize("wire", WIRES)
def test_a_committer_that_never_answers_is_replaced_with_everything_fresh_for_its_items_only(tmp_path, wire):
    (tmp_path / "whole").mkdir()
    (tmp_path / "again").mkdir()
    card, seats = small_run("dynamic", wire=wire, **CHURNED)
    whole = Seen(card, seats, tmp_path / "whole")
    seen = Seen(dropping(card, skipped={0: {3}}), seats, tmp_path / "again")
    failed = set(seen.shares[0][3])
    assert 0 < len(failed) < 9
    assert list(whole.sealed_totals) == [0] and list(seen.sealed_totals) == [0, 1]
    assert set(seen.sealed_totals[0].items.tolist()) == set(range(9)) - failed
    assert set(seen.sealed_totals[1].items.tolist()) == failed
    seals = [each.run.parties[THIRD_PARTY].role.seal.seals.tolist() for each in (whole, seen)]
    assert {item for item in range(9) if seals[0][item] != seals[1][item]} == failed
    keys: dict[tuple[int, int], set[bytes]] = {}  # envelope keys, or envelopes, by attempt and item
    blinds: list[tuple[int, ...]] = []
    for view in seen.user_views.values():
        for ask in (m for m in view if isinstance(m, Commit | CommitInFull)):
            rows = ask.item_keys if wire == "compact" else [row.tobytes() for row in ask.envelopes]
            for item, key in zip(ask.items.tolist(), rows, strict=True):
                keys.setdefault((ask.attempt, item), set()).add(key)
            blinds += [tuple(row) for row in ask.blinds.tolist()] if wire == "paper" else []
    assert all(len(known) == 1 for known in keys.values())  # the committers of an item have one envelope
    assert sorted(item for attempt, item in keys if attempt == 1) == sorted(failed)
    assert not any(keys[0, item] & keys[1, item] for item in failed)
    assert len(set(blinds)) == len(blinds)
    both = [(user, item) for user, share in seen.shares[1].items() for item in share if item in seen.shares[0][user]]
    assert both and not any(seen.shares[0][user][item] == seen.shares[1][user][item] for user, item in both)
    seen.check_seals()
    seen.check_noise()


# ---- the paper's size: 50 coordinates, 300 items, 20 users; tests of size 1e-6 on fixed seeds

DIM, ITEMS, USERS, WANTED = 50, 300, 20, 3


def commit(seed: int, scale: float, bits: int = 32, fraction_bits: int = 11) -> SimpleNamespace:
    """Make a whole pre-commitment whose parts are all known, and sum up η beside it in Python's own integers."""
    ring = Ring(bits)
    fixed = FixedPoint(ring, fraction_bits)
    seeds = [bytes([seed, part]) * 16 for part in range(3)]
    chosen = choose_committers(Tape(seeds[0]), 0, ids(*range(ITEMS)), list(range(USERS)), WANTED)
    holder = SealHolder(ring, DIM, USERS, ITEMS, Tape(seeds[1]))
    holder.open(opening(0, list(chosen), dict.fromkeys(range(ITEMS), WANTED)))
    eta, blinds, sent = np.zeros((ITEMS, DIM), object), {}, []
    for user, items in chosen.items():
        normal = Tape(seeds[2]).normal(len(items), DIM, "share", user)
        envelope = exponential([derive(seeds[0], "item", int(item)) for item in items], DIM, "eta")
        share = noise_share(scale, envelope, np.full(len(items), WANTED, np.uint32), normal)
        eta[items] += np.rint(share * 2.0**fraction_bits).astype(np.int64).astype(object)
        blinds[user] = (items, blind_rows(ring, Tape(seeds[0]).key("mask", user), RUN, 0, len(items), DIM))
        sent.append(ring.add(fixed.encode(share), blinds[user][1]))
        holder.add(user, 0, items, sent[-1])
    hidden = unblind(ring, DIM, holder.seal(), blinds)
    return SimpleNamespace(
        eta=eta, seals=holder.seals, hidden=hidden, sent=np.concatenate(sent), modulus=1 << bits
    )


def octets(values: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(values, "<u4").view(np.uint8).astype(np.int64)


def same_law_p(first: np.ndarray, second: np.ndarray) -> float:
    """Compute the p-value of a chi-square test that the bytes of two samples have one distribution."""
    table = [np.bincount(octets(sample).ravel(), minlength=256) for sample in (first, second)]
    return float(stats.chi2_contingency(table).pvalue)


SCALE = 2 * 4 * DIM**0.5 / 8  # Lemma 1 on five stars at ε = 8


@pytest.mark.parametrize("bits", [24, 32, 40, 64])
def test_the_sealed_noise_is_seal_plus_noise_and_both_servers_together_recover_it(bits):
    done = commit(1, SCALE, bits)
    assert done.eta.min() < -100 < 100 < done.eta.max()
    assert done.hidden.astype(object).tolist() == ((done.seals.astype(object) + done.eta) % done.modulus).tolist()
    together = (done.hidden.astype(object) - done.seals.astype(object)) % done.modulus
    assert together.tolist() == (done.eta % done.modulus).tolist()


def test_each_server_alone_holds_uniform_numbers():
    done = commit(2, SCALE)
    assert uniform_p(octets(done.hidden), 256) > FALSE_ALARM  # the recommender
    assert uniform_p(octets(done.sent), 256) > FALSE_ALARM  # the third party
    assert uniform_p(octets(done.seals), 256) > FALSE_ALARM


def test_the_uniformity_test_finds_noise_that_is_not_hidden():
    done = commit(2, SCALE)
    bare = (done.eta % done.modulus).astype(np.uint32)
    assert uniform_p(octets(bare), 256) < FALSE_ALARM
    half = np.where(np.arange(bare.size).reshape(bare.shape) % 20 == 0, bare, done.hidden)  # every twentieth is bare
    assert uniform_p(octets(half), 256) < FALSE_ALARM


def test_what_each_server_holds_does_not_depend_on_the_noise():
    """Without noise and with a thousand times the usual noise, the numbers of each server have the same law."""
    none, much = commit(3, 0.0), commit(4, 1000 * SCALE)
    assert not none.eta.any() and abs(much.eta).max() > 10**6
    assert same_law_p(none.hidden, much.hidden) > FALSE_ALARM
    assert same_law_p(none.sent, much.sent) > FALSE_ALARM


def test_that_comparison_finds_a_difference_where_there_is_one():
    little, much = (commit(seed, scale).eta for seed, scale in ((3, SCALE), (4, 2 * SCALE)))
    bare = [(eta % 2**32).astype(np.uint32) for eta in (little, much)]
    assert same_law_p(*bare) < FALSE_ALARM


def test_the_seal_does_not_go_with_the_noise():
    """If the seal followed the noise, one of τ^ + η, τ^ - η and τ^ + 2η would not be uniform; all are, like τ^."""
    done = commit(5, SCALE)
    for sign in (1, -1, 2):
        shifted = (done.hidden.astype(object) + sign * done.eta) % done.modulus
        assert uniform_p(octets(shifted.astype(np.uint32)), 256) > FALSE_ALARM


def test_an_early_share_for_an_item_that_was_not_opened_is_left_out():
    """The share came before the opening, which would have refused it; its committer then counts as missing."""
    ring = Ring(8)
    holder = SealHolder(ring, 2, n_users=2, n_items=4, tape=Tape(bytes(32)))
    row = np.ones((2, 2), np.uint32)
    holder.add(0, 0, np.array([0, 1], np.uint32), row)
    holder.add(1, 0, np.array([0, 2], np.uint32), row)
    users, items = np.array([0, 1], np.uint32), np.array([0, 2], np.uint32)
    holder.open(OpenCommitment(0, users, items, np.array([2, 2], np.uint32)))
    assert not holder.complete
    assert len(holder.seal().items) == 0


def test_an_attempt_that_seals_nothing_is_followed_by_another():
    card, seats = small_run("dynamic", n_users=5)
    run = InProcess(card, seats)
    for user in range(5):
        role = run.parties[f"user:{user}"].role
        answer = role._commit
        role._commit = lambda message, answer=answer: [] if message.attempt == 0 else answer(message)
    outcome = run.run()
    assert outcome.abort is None
    assert run.parties["third_party"].role.seal.attempt == 2
