"""`dynamic` in one process, read back from views and tapes: the constant noise, its pieces, what each party sees."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import math
from collections import Counter
from collections.abc import Iterable
from fractions import Fraction
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pytest
from support import reference as reference
from support.basics import FALSE_ALARM, STARS, received, small_ratings, small_run, uniform_p
from support.runs import by_item, play, unit

from protocol.arithmetic.tape import Tape, exponential
from protocol.card import Card, Seat
from protocol.schemes.factorization.dynamic import Dynamic, DynamicUser
from protocol.wire.messages import (
    BlindedShare,
    Commit,
    CommitInFull,
    Contributors,
    ItemFactors,
    ItemFactorsWithPieces,
    MaskedGradient,
    MaskedTotal,
    OpenSum,
    SealedTotal,
    Welcome,
)
from sim.plan.churn import ChurnPlan

WIRES = ("compact", "paper")
SPARSE = [  # items 0 and 1 have three raters and one, the others nine or ten
    {j: r for j, r in rated.items() if j > 1 or (i + j) % 5 == 0} for i, rated in enumerate(small_ratings(12, 9))
]
CHURNED: dict[str, Any] = {"ratings": SPARSE, "n_items": 9, "iterations": 15}
OFFERS = (ItemFactors, ItemFactorsWithPieces)


def churn(seed: int = 1, n_users: int = 12) -> ChurnPlan:
    return ChurnPlan(n_users, 0.3, 0.3, seed.to_bytes(32, "little"))


class Dropping(DynamicUser):
    """A user that is silent in some iterations (it steps, and its answer gets lost) and in some attempts to commit."""

    silent: frozenset[int] = frozenset()
    skipped: frozenset[int] = frozenset()

    def receive(self, sender, message):
        if isinstance(message, Commit | CommitInFull) and message.attempt in self.skipped:
            return []
        effects = super().receive(sender, message)
        return [] if isinstance(message, OFFERS) and message.iteration in self.silent else effects


class WithDropping(Dynamic):
    def __init__(self, silent: dict[int, set[int]], skipped: dict[int, set[int]]) -> None:
        self._silent, self._skipped = silent, skipped  # iteration or attempt -> users

    def make_role(self, party, setting, tape, inputs):
        if not party.startswith("user:"):
            return super().make_role(party, setting, tape, inputs)
        user = Dropping(setting, tape, inputs)
        number = int(party.partition(":")[2])
        user.silent = frozenset(t for t, users in self._silent.items() if number in users)
        user.skipped = frozenset(attempt for attempt, users in self._skipped.items() if number in users)
        return user


def dropping(card: Card, silent: dict[int, set[int]] | None = None, skipped: dict[int, set[int]] | None = None) -> Card:
    return dataclasses.replace(card, scheme=WithDropping(silent or {}, skipped or {}))


class Seen:
    """A run, the contents of its views, and the values that follow from them and the users' tapes in plain integers."""

    def __init__(self, card: Card, seats: list[Seat], folder: Path, **options: Any) -> None:
        self.card, self.params = card, card.params
        self.modulus, self.bits = 1 << card.params.ring_bits, card.params.fraction_bits
        self.run = play(card, seats, folder, [seat.party for seat in seats], **options)
        views = {seat.party: received(card, folder, seat.party) for seat in seats}
        recommender, third_party = ([m for _, m in views[name]] for name in ("recommender", "third_party"))
        self.openings = {m.iteration: m for m in third_party if isinstance(m, OpenSum)}
        self.contributors = {m.iteration: m.users.tolist() for m in recommender if isinstance(m, Contributors)}
        self.totals = {
            m.iteration: by_item(m.items, m.values) for m in recommender if isinstance(m, MaskedTotal)
        }
        self.sealed_totals = {m.attempt: m for m in recommender if isinstance(m, SealedTotal)}
        self.masked: dict[tuple[int, int], dict[int, list[int]]] = {}
        self.third_party_got: list[np.ndarray] = []
        for sender, message in views["third_party"]:
            if isinstance(message, MaskedGradient):
                self.masked[message.iteration, number(sender)] = by_item(message.items, message.values)
            if isinstance(message, MaskedGradient | BlindedShare):
                self.third_party_got.append(message.values)
        self.inputs = {number(seat.party): seat.inputs for seat in seats if seat.inputs is not None}
        self.tapes = {number(seat.party): Tape(seat.tape_seed) for seat in seats}
        self.user_views = {user: [m for _, m in views[f"user:{user}"]] for user in self.inputs}
        self.offers = {
            (m.iteration, user): m for user, view in self.user_views.items() for m in view if isinstance(m, OFFERS)
        }
        self.welcomes = {user: m for user, view in self.user_views.items() for m in view if isinstance(m, Welcome)}
        self.n_raters = Counter(int(item) for inputs in self.inputs.values() for item in inputs.items)
        span = STARS[1] - STARS[0]
        self.scale = 2 * span * math.sqrt(self.params.dim) / self.params.epsilon
        self._commitment()

    def stream(self, user: int, rows: int, purpose: str, at: int) -> list[list[int]]:
        """Compute masks or blinds of the compact wire: SHAKE-256 over the user's key and a name."""
        width, dim = self.params.ring_bits // 8, self.params.dim
        name = msgpack.packb((self.card.run_id, purpose, at))
        data = hashlib.shake_256(self.welcomes[user].mask_key + name).digest(rows * dim * width)
        words = [int.from_bytes(data[at : at + width], "little") for at in range(0, len(data), width)]
        return [words[at : at + dim] for at in range(0, len(words), dim)]

    def _commitment(self) -> None:
        """Compute enc(η^i_j) and β of every attempt from the users' views and tapes, and τ^ from the recommender's."""
        self.shares: dict[int, dict[int, dict[int, list[int]]]] = {}  # attempt -> user -> item
        blinds: dict[int, dict[int, dict[int, list[int]]]] = {}
        for user, view in self.user_views.items():
            for ask in (m for m in view if isinstance(m, Commit | CommitInFull)):
                items, attempt = ask.items.tolist(), ask.attempt
                full = isinstance(ask, CommitInFull)
                envelopes = ask.envelopes if full else exponential(ask.item_keys, self.params.dim, "eta")
                rows = ask.blinds.tolist() if full else self.stream(user, len(items), "beta", attempt)
                blinds.setdefault(attempt, {})[user] = dict(zip(items, rows, strict=True))
                draws = self.tapes[user].normal(len(items), self.params.dim, "eta", attempt)
                self.shares.setdefault(attempt, {})[user] = {
                    item: self.encode(reference.noise_share(self.scale, h, count, c))
                    for item, h, count, c in zip(
                        items, envelopes.tolist(), ask.counts.tolist(), draws.tolist(), strict=True
                    )
                }
        self.eta: dict[int, list[int]] = {}
        self.hidden: dict[int, list[int]] = {}  # τ^
        for attempt, total in self.sealed_totals.items():
            for item, row in by_item(total.items, total.values).items():
                assert item not in self.eta
                self.eta[item] = self.add(*(share[item] for share in self.shares[attempt].values() if item in share))
                dealt = [mine[item] for mine in blinds[attempt].values() if item in mine]
                assert len(dealt) == self.params.committers
                self.hidden[item] = self.subtract(row, *dealt)

    def encode(self, row: Iterable[float]) -> list[int]:
        return [reference.encode(x, self.bits, self.modulus) for x in row]

    def add(self, *rows: list[int]) -> list[int]:
        return [sum(column) % self.modulus for column in zip(*rows, strict=True)]

    def subtract(self, first: list[int], *others: list[int]) -> list[int]:
        return [(x - sum(column)) % self.modulus for x, *column in zip(first, *others, strict=True)]

    def raters(self, t: int, item: int, users: Iterable[int]) -> list[int]:
        return [user for user in users if item in self.inputs[user].items]

    def masks(self, t: int, user: int) -> dict[int, list[int]]:
        offer, items = self.offers[t, user], self.inputs[user].items.tolist()
        if isinstance(offer, ItemFactorsWithPieces):
            return by_item(items, offer.masks)
        return dict(zip(items, self.stream(user, len(items), "psi", t), strict=True))

    def pieces(self, t: int, user: int) -> dict[int, list[int]]:
        return by_item(self.inputs[user].items, self.offers[t, user].pieces)

    def check_seals(self) -> None:
        """Check that τ^ - Ση and, in every iteration, Σφ - total are the third party's α, bit for bit."""
        seals = self.run.parties["third_party"].role.seal.seals.tolist()
        assert sorted(self.hidden) == sorted(self.n_raters)
        for item, hidden in self.hidden.items():
            assert self.subtract(hidden, self.eta[item]) == seals[item]
        for t, totals in self.totals.items():
            for item, total in totals.items():
                sent = [self.masked[t, user][item] for user in self.raters(t, item, self.contributors[t])]
                assert self.subtract(self.add(*sent), total) == seals[item]

    def check_noise(self) -> None:
        """Check that η_j is what is left of every sum that the recommender completes, minus ∇ and ρ."""
        params = self.params
        users = {
            user: reference.User(
                {int(item): rating for item, rating in by_item(inputs.items, inputs.ratings).items()},
                unit(self.tapes[user].normal(1, params.dim, "user factors"))[0], {},
            )
            for user, inputs in self.inputs.items()
        }
        setting = reference.Setting(
            self.modulus, self.bits, self.scale, params.clip, params.learning_rate,
            params.user_regularisation, params.item_regularisation,
        )
        factors = unit(self.tapes[-1].normal(params.n_items, params.dim, "item factors"))
        for t in range(params.iterations):
            opening = self.openings[t]
            invited = opening.users.tolist()
            assert invited == sorted(user for at, user in self.offers if at == t)
            floors = by_item(opening.items, opening.floors)
            assert floors == self.expected_floors(invited)
            assert set(self.contributors[t]) == {user for at, user in self.masked if at == t} <= set(invited)
            known: dict[int, dict[int, list[int]]] = {}  # user -> item -> enc(∇) + enc(ρ)
            for user in invited:
                known[user] = self.own_part(t, user, users[user], factors, floors, setting)
            released = {j for j in floors if len(self.raters(t, j, self.contributors[t])) >= floors[j]}
            assert set(self.totals[t]) == released
            for item in released:
                raters = self.raters(t, item, self.contributors[t])
                unmasked = self.subtract(self.totals[t][item], *(self.masks(t, user)[item] for user in raters))
                if params.wire == "compact":
                    completed = self.add(unmasked, self.hidden[item])
                else:
                    lost = [user for user in self.raters(t, item, invited) if user not in raters]
                    completed = self.add(unmasked, *(self.pieces(t, user)[item] for user in lost))
                assert self.subtract(completed, *(known[user][item] for user in raters)) == self.eta[item]
                for at, residue in enumerate(completed):
                    slope = reference.decode(residue, self.bits, self.modulus) / self.n_raters[item]
                    slope += 2 * params.item_regularisation * factors[item][at]
                    factors[item][at] -= params.learning_rate * slope
        assert self.run.outcome.item_factors == pytest.approx(np.array(factors), abs=1e-12)

    def own_part(self, t, user, model, factors, floors, setting) -> dict[int, list[int]]:
        offer, items = self.offers[t, user], self.inputs[user].items.tolist()
        seen = by_item(items, offer.factors)
        assert offer.floors.tolist() == [floors[item] for item in items]
        assert np.array(list(seen.values())) == pytest.approx(np.array([factors[item] for item in items]), abs=1e-6)
        full = isinstance(offer, ItemFactorsWithPieces)
        keys = None if full else self.welcomes[user].item_keys
        envelopes = by_item(items, offer.envelopes if full else exponential(keys, self.params.dim, "rho", t))
        draws = by_item(items, self.tapes[user].normal(len(items), self.params.dim, "rho", t))
        errors, _ = reference.errors_of(model, seen, setting.clip)
        part = {}
        for item in items:
            rho = reference.noise_share(self.scale, envelopes[item], floors[item], draws[item])
            part[item] = self.add(self.encode([-2 * u * errors[item] for u in model.factors]), self.encode(rho))
        model.factors = reference.moved_user(model, seen, errors, setting)
        return part

    def expected_floors(self, invited: list[int]) -> dict[int, int]:
        kept = 1 - Fraction(str(self.params.dropout_allowance))
        counts = Counter(int(item) for user in invited for item in self.inputs[user].items)
        return {j: max(math.ceil(k * kept), self.params.min_contributors) for j, k in sorted(counts.items())}


def number(party: str) -> int:
    return int(party.partition(":")[2]) if party.startswith("user:") else -1 - (party == "third_party")


# ---- the noise is the same in every iteration, whichever users are online


@pytest.fixture(scope="module")
def churned(tmp_path_factory):
    @functools.cache
    def of(wire: str) -> Seen:
        card, seats = small_run("dynamic", wire=wire, **CHURNED)
        return Seen(card, seats, tmp_path_factory.mktemp(wire), events_for=churn().events)

    return of


@pytest.mark.parametrize("wire", WIRES)
def test_with_churn_seal_and_noise_of_an_item_never_change(churned, wire):
    seen, plan = churned(wire), churn()
    sets = [opening.users.tolist() for _, opening in sorted(seen.openings.items())]
    assert sets == [np.flatnonzero(plan.online(t)).tolist() for t in range(15)]
    assert len({tuple(invited) for invited in sets}) >= 12 and min(map(len, sets)) < 5
    assert all(len(total) for total in seen.totals.values())
    seen.check_seals()
    seen.check_noise()


def test_the_noise_is_there(churned):
    """Without one share of the noise both checks fail."""
    seen = churned("compact")
    first = min(seen.shares[0])
    item, share = next(iter(seen.shares[0][first].items()))
    assert any(share)
    kept, seen.eta[item] = seen.eta[item], seen.subtract(seen.eta[item], share)
    with pytest.raises(AssertionError):
        seen.check_noise()
    with pytest.raises(AssertionError):
        seen.check_seals()
    seen.eta[item] = kept


# ---- the pieces of the paper wire; the compact wire has no pieces


def test_all_pieces_of_an_iteration_sum_to_the_sealed_noise_and_a_sole_contributor_holds_it(churned):
    seen, alone = churned("paper"), 0
    for t, opening in seen.openings.items():
        for item in opening.items.tolist():
            pieces = [seen.pieces(t, user)[item] for user in seen.raters(t, item, opening.users.tolist())]
            assert seen.add(*pieces) == seen.hidden[item]
            alone += pieces == [seen.hidden[item]]
    assert alone >= 3


@pytest.fixture(scope="module")
def wide(tmp_path_factory):
    """Give a function that plays three users with the same 30 items, 50 coordinates and 12 iterations."""

    @functools.cache
    def of(wire: str) -> Seen:
        ratings = [{item: 1.0 + (item + user) % 5 for item in range(30)} for user in range(3)]
        card, seats = small_run("dynamic", ratings=ratings, n_items=30, dim=50, iterations=12, wire=wire)
        return Seen(card, seats, tmp_path_factory.mktemp(wire))

    return of


def octets(values: Any, width: int) -> np.ndarray:
    return np.array(values, "<u8").reshape(-1, 1).view(np.uint8)[:, :width].astype(np.int64)


SUBSETS = [(0,), (1,), (2,), (0, 1), (0, 2), (1, 2)]


def subset_sums(seen: Seen, coalition: tuple[int, ...]) -> list[list[int]]:
    pieces = {(t, user): seen.pieces(t, user) for t in seen.openings for user in coalition}
    return [seen.add(*(pieces[t, user][item] for user in coalition)) for t in seen.openings for item in range(30)]


@pytest.mark.parametrize("coalition", SUBSETS)
def test_who_misses_a_piece_learns_nothing_of_the_sealed_noise(wide, coalition):
    """The sum of its pieces is uniform (size 1e-6), and so is the part that it misses, though τ^ never changes."""
    seen, width = wide("paper"), wide("paper").params.ring_bits // 8
    held = subset_sums(seen, coalition)
    missed = [seen.subtract(seen.hidden[at % 30], row) for at, row in enumerate(held)]
    assert uniform_p(octets(held, width), 256) > FALSE_ALARM
    assert uniform_p(octets(missed, width), 256) > FALSE_ALARM
    assert len({tuple(row) for row in held}) == len(held) == 12 * 30  # and no sum occurs twice


def test_with_all_pieces_nothing_is_missed_and_the_test_sees_it(wide):
    seen, width = wide("paper"), wide("paper").params.ring_bits // 8
    held = subset_sums(seen, (0, 1, 2))
    missed = [seen.subtract(seen.hidden[at % 30], row) for at, row in enumerate(held)]
    assert not np.array(missed, np.uint64).any()
    assert uniform_p(octets(missed, width), 256) < FALSE_ALARM
    assert len({tuple(row) for row in held}) == 30
    some = [row if at % 20 else [0] * 50 for at, row in enumerate(subset_sums(seen, (0, 1)))]  # one in twenty is zero
    assert uniform_p(octets(some, width), 256) < FALSE_ALARM


@pytest.mark.parametrize("wire", WIRES)
def test_what_the_third_party_receives_is_uniform(wide, wire):
    seen, width = wide(wire), wide(wire).params.ring_bits // 8
    assert len(seen.third_party_got) == 3 + 3 * 12
    assert uniform_p(octets(np.concatenate(seen.third_party_got), width), 256) > FALSE_ALARM


def test_without_the_masks_it_would_not_be(wide):
    seen, width = wide("compact"), wide("compact").params.ring_bits // 8
    bare = [seen.subtract(seen.masked[t, user][item], seen.masks(t, user)[item]) for t, user in seen.masked
            for item in range(30)]
    assert uniform_p(octets(bare, width), 256) < FALSE_ALARM
    shares = [row for share in seen.shares[0].values() for row in share.values()]
    assert uniform_p(octets(shares, width), 256) < FALSE_ALARM


@pytest.mark.parametrize("wire", WIRES)
def test_other_seals_change_nothing_for_users_but_their_pieces(churned, tmp_path, wire):
    """The third party gets another tape. α cancels, so V is the same; a user of the compact wire sees nothing of τ^."""
    first = churned(wire)
    card, seats = small_run("dynamic", wire=wire, **CHURNED)
    others = [dataclasses.replace(seat, tape_seed=bytes(32)) if seat.party == "third_party" else seat for seat in seats]
    second = Seen(card, others, tmp_path, events_for=churn().events)
    assert second.run.outcome.item_factors.tobytes() == first.run.outcome.item_factors.tobytes()
    assert not any(second.hidden[item] == first.hidden[item] for item in first.hidden)
    shown = [
        {user: [content(m) for m in view] for user, view in seen.user_views.items()} for seen in (first, second)
    ]
    assert shown[0] == shown[1]
    if wire == "paper":
        changed = sum(m.pieces.tolist() != second.offers[at].pieces.tolist() for at, m in first.offers.items())
        assert changed > len(first.offers) // 4


def content(message: Any) -> tuple[Any, ...]:
    named = {field.name: getattr(message, field.name) for field in dataclasses.fields(message)}
    assert ("pieces" in named) == isinstance(message, ItemFactorsWithPieces)
    named.pop("pieces", None)
    return type(message).__name__, {k: v.tobytes() if isinstance(v, np.ndarray) else v for k, v in named.items()}
