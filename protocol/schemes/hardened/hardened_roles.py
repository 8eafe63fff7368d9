"""The three roles of `hardened`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from protocol.arithmetic.ring import Label, everywhere
from protocol.arithmetic.tape import Tape
from protocol.arrays import Floats, Ints, RingArray
from protocol.attendance import spans
from protocol.errors import Aborted, Reason
from protocol.party.role import (
    RECOMMENDER,
    THIRD_PARTY,
    Done,
    Effects,
    Facts,
    LeadingRecommender,
    PredictingUser,
    Role,
    Send,
    Timer,
    UserInput,
    expect,
    require,
    user_index,
    user_name,
    users_without,
)
from protocol.schemes.base import Setting
from protocol.schemes.hardened.budget import USER, VALUE
from protocol.schemes.hardened.dense_sum import NOTHING, DenseSum, digest_of
from protocol.schemes.hardened.hardened_params import HardenedParams, keeps_claim
from protocol.schemes.hardened.item_posterior import Posterior, among_all, fit_items
from protocol.schemes.hardened.item_sketch import chosen_items, sketch_vector
from protocol.schemes.hardened.item_table import FRAME, MOST_QUALITY, ItemTable, predict_stars
from protocol.schemes.hardened.share_law import draw_shares
from protocol.schemes.hardened.taste import Taste, directions, learn, second_vector
from protocol.schemes.hardened.unit_vectors import first_vector
from protocol.wire.messages import (
    SETUP,
    Agreed,
    Contributors,
    Deadline,
    Event,
    Gone,
    Join,
    MaskedPart,
    MaskWelcome,
    Message,
    OpenTable,
    OpenTaste,
    PartTotal,
    PublishedTable,
    PublishedTaste,
)

MOST_LOG = 60.0  # of a count, and of an entry of the frame
MOST_DIRECTION = 1e6  # an honest one is below the root of the largest eigenvalue


def params_of(setting: Setting) -> HardenedParams:
    return HardenedParams.of(setting.params)


def masks_of(setting: Setting, key: bytes, iteration: int) -> RingArray:
    rows = params_of(setting).lengths[iteration]
    return setting.ring.uniform(key, rows, 1, setting.run_id, "psi", iteration)


class HardenedUser(PredictingUser):
    """A user that adds to each round once, by scales that keep the claim, and then never again."""

    def __init__(self, setting: Setting, tape: Tape, inputs: UserInput) -> None:
        self.setting = setting
        self.params = params_of(setting)
        self.tape = tape
        self.inputs = inputs
        self.mask_key = b""
        self.published: list[Floats] = []  # quality, popularity, frame; empty before they are published
        self.covered = NOTHING  # where there is a second round, the items that it is about, and X
        self.basis: Floats = np.zeros((0, 0))
        self.learned: Floats = np.zeros((0, 0))  # X'

    def start(self) -> Effects:
        return [Send(RECOMMENDER, Join(NOTHING))]

    def receive(self, sender: str, message: Message) -> Effects:
        expect(message, MaskWelcome, PublishedTable, OpenTable, OpenTaste, PublishedTaste)
        require(sender == RECOMMENDER, Reason.UNKNOWN_SENDER)
        if isinstance(message, MaskWelcome):
            return self._first(message)
        require(self.mask_key, Reason.WRONG_KIND)
        require(message.iteration == self.iteration + 1, Reason.WRONG_ITERATION)
        if isinstance(message, PublishedTaste):
            return self._finish(message)
        require(isinstance(message, OpenTable) == (self.iteration < self.params.table_round), Reason.WRONG_KIND)
        if isinstance(message, OpenTable):
            return self._turn_to(message)
        require(self.iteration == self.params.table_round, Reason.WRONG_KIND)
        require(isinstance(message, OpenTaste) == self.params.tastes, Reason.WRONG_KIND)
        require(not self.published, Reason.DUPLICATE)
        return self._learn(message)

    def _first(self, welcome: MaskWelcome) -> Effects:
        require(not self.mask_key, Reason.DUPLICATE)
        require(not len(welcome.counts), Reason.WRONG_LENGTH)
        params = self.params
        if not keeps_claim(params):
            raise Aborted(Reason.TOO_LITTLE_NOISE, f"ε {params.epsilon:g} at δ {params.delta:g}")
        self.mask_key, self.iteration = welcome.mask_key, 0
        return [self._upload(0, first_upload(params, self.setting.run_id, self.inputs))]

    def _upload(self, iteration: int, vector: Ints) -> Send:
        """Send x + e + ψ; x and e enter the ring apart, for an audit to tell them apart."""
        params, ring = self.params, self.setting.ring
        places = np.arange(len(vector), dtype=np.uint32)
        shares = draw_shares(self.tape, params.scales[iteration], len(vector), "share", iteration)
        floor = np.full(len(vector), params.min_contributors, np.uint32)
        sent = ring.add(
            ring.from_integers(vector[:, None], Label("part", iteration, places)),
            ring.from_integers(shares[:, None], Label("share", iteration, places, floor)),
            masks_of(self.setting, self.mask_key, iteration),
        )
        return Send(THIRD_PARTY, MaskedPart(iteration, NOTHING, sent))

    def _turn_to(self, told: OpenTable) -> Effects:
        """Add to the table's sum, which is about the items that were selected."""
        params, own = self.params, self.inputs
        require(len(told.covered) == params.selected, Reason.WRONG_LENGTH)
        require(told.covered[-1] < params.n_items, Reason.UNKNOWN_ITEM)
        self.covered, self.iteration = told.covered, 1
        return [self._upload(1, first_vector(params, own.items, own.ratings, told.covered.astype(np.int64)))]

    def _learn(self, told: PublishedTable | OpenTaste) -> Effects:
        """Keep what is published after round 1: the end, or the ground of round 2."""
        params = self.params
        m, d = params.n_items, params.flag_columns + params.number_columns
        fits = (len(told.qualities), len(told.popularities), len(told.frame)) == (m, m, FRAME + d)
        require(fits, Reason.WRONG_LENGTH)
        bounded = everywhere(np.abs(told.qualities) <= MOST_QUALITY) and everywhere(
            np.abs(told.popularities) <= MOST_LOG
        )
        require(bounded and everywhere(np.abs(told.frame) <= MOST_LOG), Reason.OUT_OF_RANGE)
        require(everywhere(told.frame[2:FRAME] > 0), Reason.OUT_OF_RANGE)
        if isinstance(told, OpenTaste):
            require(len(told.covered) == params.covered, Reason.WRONG_LENGTH)
            require(told.covered[-1] < m, Reason.UNKNOWN_ITEM)
            self._check_directions(told.directions, m)
            self.covered, self.basis = told.covered, rows_of(told.directions, m)
        self.published = [rows[:, 0].astype(np.float64) for rows in (told.qualities, told.popularities, told.frame)]
        self.popularity = self.published[1]
        self.iteration += 1
        if isinstance(told, PublishedTable):
            return [Done()]
        own = self.inputs
        return [self._upload(1, second_vector(params, self.table, self.taste, own.items, own.ratings))]

    def _check_directions(self, rows: npt.NDArray[np.float32], items: int) -> None:
        require(len(rows) == items * self.params.directions, Reason.WRONG_LENGTH)
        require(everywhere(np.abs(rows) <= MOST_DIRECTION), Reason.OUT_OF_RANGE)

    def _finish(self, told: PublishedTaste) -> Effects:
        require(self.iteration == 1 and self.params.tastes, Reason.WRONG_KIND)
        self._check_directions(told.directions, self.params.covered)
        self.learned = rows_of(told.directions, self.params.covered)
        self.iteration = 2
        return [Done()]

    @property
    def table(self) -> ItemTable:
        return ItemTable(*self.published)

    @property
    def taste(self) -> Taste:
        return Taste(self.covered.astype(np.int64), self.basis, self.learned if len(self.learned) else None)

    def predict(self, items: npt.NDArray[np.uint32]) -> Floats:
        params, own = self.params, self.inputs
        above = (own.ratings - params.centre) / params.star
        more = self.taste.more if params.tastes else None
        stars = predict_stars(self.table, params.described(), own.items, above, items, more)
        return np.asarray(params.centre + params.star * stars)


def first_upload(params: HardenedParams, run_id: bytes, own: UserInput) -> Ints:
    """Make the vector of the first round: a sketch of the items, or all of them and their ratings."""
    if params.selected:
        return sketch_vector(params, run_id, own.items)
    return first_vector(params, own.items, own.ratings)


def rows_of(numbers: npt.NDArray[np.float32], items: int) -> Floats:
    return numbers.astype(np.float64).reshape(items, -1)


class HardenedThirdParty(Role):
    """The third party: it adds what it cannot read, and releases a total only if enough users contributed."""

    def __init__(self, setting: Setting) -> None:
        self.params = params = params_of(setting)
        self.sum = DenseSum(setting.ring, params.lengths, params.n_users, params.min_contributors)
        self.iteration = 0

    def awaited(self) -> Sequence[str]:
        return list(map(user_name, self.sum.missing())) or (RECOMMENDER,)

    def tick(self, event: Event) -> Effects:
        if self.sum.done or self.sum.closing is not None:
            return []
        if isinstance(event, Gone):
            self.sum.lose(event.user)
            return self._close() if self.sum.complete else []
        return self._close() if isinstance(event, Deadline) and event.iteration == self.iteration else []

    def receive(self, sender: str, message: Message) -> Effects:
        if isinstance(message, MaskedPart):
            require(not len(message.items), Reason.WRONG_LENGTH)
            first = not self.sum.added
            self.sum.add(user_index(sender), message.iteration, message.values)
            return self._close() if self.sum.complete else [Timer(self.iteration)] * first
        agreed = expect(message, Agreed)
        require(sender == RECOMMENDER, Reason.UNKNOWN_SENDER)
        total = PartTotal(agreed.iteration, self.sum.release(agreed.iteration, agreed.digest))
        self.iteration = self.sum.iteration
        return [Send(RECOMMENDER, total), *([Done()] if self.sum.done else [])]

    def _close(self) -> Effects:
        return [Send(RECOMMENDER, self.sum.close())]


class HardenedRecommender(LeadingRecommender):
    """A recommender that learns noisy sums, and works out from them what it publishes."""

    def __init__(self, setting: Setting, tape: Tape) -> None:
        self.setting = setting
        self.params = params_of(setting)
        self.tape = tape
        self.joined: set[int] = set()
        self.gone: set[int] = set()
        self.welcomed: tuple[int, ...] = ()
        self.dealt: tuple[int, ...] = ()  # the users that may add to this round
        self.agreed: tuple[int, ...] = ()  # the contributors of this round
        self.selected: Ints | None = None  # the items of the table's sum, if not all
        self.found: Posterior | None = None
        self.table: ItemTable | None = None
        self.taste: Taste | None = None
        self.values: Floats = np.zeros(0)  # eigenvalues of the directions

    def facts(self) -> Facts:
        if self.iteration >= self.params.rounds:
            return {**super().facts(), "finished": spans(self._there())}
        return super().facts() or {"joined": spans(self.joined), "welcomed": spans(self.welcomed)}

    def _there(self) -> list[int]:
        return sorted(self.joined - self.gone)

    def awaited(self) -> Sequence[str]:
        waits = self.iteration == SETUP
        return users_without(self.params.n_users, self.joined | self.gone) if waits else (THIRD_PARTY,)

    def tick(self, event: Event) -> Effects:
        if isinstance(event, Gone):
            self.gone.add(event.user)
            return self._begin() if self.iteration == SETUP else []
        return []

    def receive(self, sender: str, message: Message) -> Effects:
        if isinstance(message, Join):
            return self._join(sender, message)
        expect(message, Contributors, PartTotal)
        require(sender == THIRD_PARTY, Reason.UNKNOWN_SENDER)
        require(message.iteration == self.iteration < self.params.rounds, Reason.WRONG_ITERATION)
        return self._agree(message) if isinstance(message, Contributors) else self._open(message)

    def _join(self, sender: str, message: Join) -> Effects:
        user = user_index(sender)
        require(0 <= user < self.params.n_users, Reason.UNKNOWN_SENDER)
        require(self.iteration == SETUP, Reason.WRONG_KIND)
        require(user not in self.joined, Reason.DUPLICATE)
        require(not len(message.items), Reason.WRONG_LENGTH)
        self.joined.add(user)
        return self._begin()

    def _begin(self) -> Effects:
        """Deal masks once every user of the roster has joined or has gone."""
        if len(self.joined | self.gone) < self.params.n_users:
            return []
        there, floor = self._there(), self.params.min_contributors
        if len(there) < floor:
            raise Aborted(Reason.TOO_FEW_SHARES, f"{len(there)} of {floor} joined")
        self.welcomed = self.dealt = tuple(there)
        self.iteration = 0
        return [Send(user_name(user), MaskWelcome(self.tape.key("mask", user), NOTHING)) for user in there]

    def _agree(self, closed: Contributors) -> Effects:
        require(not self.agreed, Reason.WRONG_KIND)
        require(not len(closed.counts), Reason.WRONG_LENGTH)
        users = tuple(closed.users.tolist())
        if not set(users) <= set(self.dealt):
            raise Aborted(Reason.DISAGREEMENT, f"round {self.iteration + 1}: a contributor was dealt no masks")
        if closed.digest != digest_of(self.iteration, closed.users):
            raise Aborted(Reason.DISAGREEMENT, f"round {self.iteration + 1}: another digest")
        require(len(users) >= self.params.min_contributors, Reason.OUT_OF_RANGE)
        self.agreed = users
        return [Send(THIRD_PARTY, Agreed(self.iteration, closed.digest))]

    def _open(self, total: PartTotal) -> Effects:
        require(self.agreed, Reason.WRONG_KIND)
        params, ring = self.params, self.setting.ring
        require(ring.fits(total.values, (params.lengths[self.iteration], 1)), Reason.OUT_OF_RANGE)
        masks = ring.zeros(len(total.values), 1)
        for user in self.agreed:
            masks = ring.add(masks, self._masks_of(user))
        whole = ring.to_signed(ring.subtract(total.values, masks))
        places, t = np.arange(len(whole), dtype=np.uint32), self.iteration
        sums = whole / float(params.whole)
        noisy = self.setting.reals.computed(sums, Label("total", t, places))[:, 0]
        self.last_invited, self.last_contributors = self.dealt, self.agreed
        self.agreed, self.iteration = (), t + 1
        if t < params.table_round:
            return self._select(noisy)
        return self._publish_table(noisy) if t == params.table_round else self._publish_taste(noisy)

    def _masks_of(self, user: int) -> RingArray:
        return masks_of(self.setting, self.tape.key("mask", user), self.iteration)

    def _select(self, noisy: Floats) -> Effects:
        self.selected = chosen_items(self.params, self.setting.run_id, noisy)
        there = self._there()
        self.dealt = tuple(there)
        return sent_to(there, OpenTable(1, self.selected.astype(np.uint32)))

    def _publish_table(self, noisy: Floats) -> Effects:
        params, there = self.params, self._there()
        self.found = found = posterior_of(params, noisy, len(self.last_contributors), self.selected)
        self.table = table = ItemTable.of(found, params.described())
        quality, popularity, frame = (
            column.astype(np.float32)[:, None] for column in (table.quality, table.popularity, table.frame)
        )
        if not params.tastes:
            last = PublishedTable(self.iteration, quality, popularity, frame)
            return [*sent_to(there, last), Done(self._result())]
        self.taste, self.values = directions(params, table, found.counts)
        self.dealt = tuple(there)
        covered, basis = self.taste.covered.astype(np.uint32), self.taste.basis.astype(np.float32).reshape(-1, 1)
        return sent_to(there, OpenTaste(1, quality, popularity, frame, covered, basis))

    def _publish_taste(self, noisy: Floats) -> Effects:
        assert self.taste is not None and self.found is not None
        contributors = len(self.last_contributors)
        self.taste = learn(self.params, self.taste, self.values, noisy, self.found.counts, contributors)
        assert self.taste.learned is not None
        last = PublishedTaste(2, self.taste.learned.astype(np.float32).reshape(-1, 1))
        return [*sent_to(self._there(), last), Done(self._result())]

    def _result(self) -> Floats:
        """Return a row for each item: quality and popularity, then its directions, which are 0 without any."""
        assert self.table is not None
        result = np.stack([self.table.quality, self.table.popularity], axis=1)
        if self.taste is None or self.taste.learned is None:
            return result
        learned = self.taste.basis.copy()
        learned[self.taste.covered] = self.taste.learned
        return np.concatenate([result, learned], axis=1)


def sent_to(users: Sequence[int], message: Message) -> list[Send]:
    return [Send(user_name(user), message) for user in users]


def posterior_of(
    params: HardenedParams, noisy: Floats, contributors: int, selected: Ints | None = None
) -> Posterior:
    """Work out what the noisy sums of the table's round say about every item; they are about all, or the `selected`."""
    if params.unit_of == VALUE:  # of those that dropped out nobody knows what they rated
        known = params.raters().astype(np.float64) * (contributors / params.n_users)
        deviation = params.noise_deviation(0, contributors)
        return fit_items(known, noisy, deviation, params.described(), 1.0, exact=True)
    counts, sums = np.split(noisy, 2)
    per_count = contributors / max(float(counts.sum()), 1.0) if params.unit_of == USER else 1.0
    deviation, described = params.noise_deviation(params.table_round, contributors), params.described()
    if selected is None:
        return fit_items(counts, sums, deviation, described, per_count)
    return among_all(fit_items(counts, sums, deviation, described[selected], per_count), selected, described)
