"""The roles of `hardened` with `proof=norm`: every user proves to both servers that its vector keeps its bound.

    user -> third party          ProvenPart     vector, share of the noise and digits, each masked
    third party -> user          NormTests      a key, once the vector has arrived
    user -> third party          NormAnswer     digits of the tests, masked
    third party -> user          NormWeights    a key, once the answer has arrived
    user -> third party          NormProof      the proof, masked
    third party -> recommender   NormQuery      the round is closed: its half of what decides about each user
    recommender -> third party   NormVerdict    whose vectors are added

Contributors and what follows are as without proofs. The noise of each user is added turned (`turned`).
"""

from __future__ import annotations

import functools
from collections.abc import Collection

import numpy as np

from protocol.arithmetic.prime_field import fits, subtract, to_signed, uniform_elements
from protocol.arithmetic.ring import Label
from protocol.arithmetic.tape import Tape, derive
from protocol.arrays import FieldArray, Ints, RingArray
from protocol.attendance import spans
from protocol.errors import Aborted, Reason
from protocol.party.role import (
    RECOMMENDER,
    THIRD_PARTY,
    Effects,
    Facts,
    Role,
    Send,
    Timer,
    UserInput,
    expect,
    require,
    user_index,
    user_name,
)
from protocol.schemes.base import Setting
from protocol.schemes.hardened.dense_sum import DenseSum
from protocol.schemes.hardened.hardened_params import HardenedParams
from protocol.schemes.hardened.hardened_roles import (
    HardenedRecommender,
    HardenedThirdParty,
    HardenedUser,
    masks_of,
    params_of,
)
from protocol.schemes.hardened.norm_proof.norm_prover import answer, commit, prove
from protocol.schemes.hardened.norm_proof.norm_statement import (
    Challenges,
    NormStatement,
    ProofMessages,
    statement_of,
)
from protocol.schemes.hardened.norm_proof.norm_verifier import accepts, turned, verifier_share
from protocol.schemes.hardened.share_law import draw_shares
from protocol.wire.messages import (
    Agreed,
    Contributors,
    Deadline,
    Event,
    Gone,
    Message,
    NormAnswer,
    NormProof,
    NormQuery,
    NormTests,
    NormVerdict,
    NormWeights,
    PartTotal,
    ProvenPart,
)

VALUES, SHARES, DIGITS, ANSWER, PROOF = "values", "shares", "digits", "answer", "proof"  # streams of masks
NONE: FieldArray = np.zeros(0, np.uint64)


@functools.lru_cache(maxsize=4)
def statement_for(params: HardenedParams, iteration: int) -> NormStatement:
    return statement_of(params, iteration)


def rows_by_stream(statement: NormStatement) -> dict[str, int]:
    length = statement.lengths[-1]
    digits = statement.committed - 2 * length
    return {VALUES: length, SHARES: length, DIGITS: digits, ANSWER: statement.answered, PROOF: statement.proof_length}


def norm_mask(setting: Setting, key: bytes, stream: str, iteration: int) -> RingArray:
    rows = rows_by_stream(statement_for(params_of(setting), iteration))[stream]
    return setting.ring.uniform(key, rows, 1, setting.run_id, "norm", stream, iteration)


def challenges_for(statement: NormStatement, key: bytes, user: int) -> Challenges:
    """Derive what a user is asked from the key of the round."""
    return statement.challenges(*(derive(key, name, user) for name in ("tests", "weights", "point")))


def turn_key(key: bytes, user: int) -> bytes:
    return derive(key, "turn", user)


def column(rows: RingArray) -> FieldArray:
    return np.asarray(rows)[:, 0]


def unmasked_upload(setting: Setting, key: bytes, message: Message) -> tuple[Ints, Ints]:
    """Return what both servers together read of an upload: (vector, share); of a MaskedPart (their sum, zeros)."""
    ring, t = setting.ring, message.iteration
    if not isinstance(message, ProvenPart):
        bare = ring.to_signed(ring.subtract(message.values, masks_of(setting, key, t)))[:, 0]
        return bare, np.zeros_like(bare)
    values = ring.subtract(message.values, norm_mask(setting, key, VALUES, t))
    share = ring.subtract(message.shares, norm_mask(setting, key, SHARES, t))
    vector = ring.subtract(values, share)
    return ring.to_signed(vector)[:, 0], ring.to_signed(share)[:, 0]


def as_added(third_party: Role, user: int, iteration: int, share: Ints) -> Ints:
    """Turn a user's share of the noise as `third_party` does before it adds it."""
    if not isinstance(third_party, NormThirdParty):
        return share
    ring, key = third_party.setting.ring, turn_key(third_party.round_key(iteration), user)
    return ring.to_signed(turned(ring, ring.from_integers(share[:, None]), key))[:, 0]


class NormUser(HardenedUser):
    """A user that proves, of each vector that it sends, that it keeps its bound."""

    def __init__(self, setting: Setting, tape: Tape, inputs: UserInput) -> None:
        super().__init__(setting, tape, inputs)
        self.committed = self.answered = NONE
        self.proved = False

    def receive(self, sender: str, message: Message) -> Effects:
        if not isinstance(message, NormTests | NormWeights):
            return super().receive(sender, message)
        require(sender == THIRD_PARTY, Reason.UNKNOWN_SENDER)
        require(message.iteration == self.iteration, Reason.WRONG_ITERATION)
        require(len(self.committed), Reason.WRONG_KIND)
        return self._answer(message) if isinstance(message, NormTests) else self._prove(message)

    @property
    def statement(self) -> NormStatement:
        return statement_for(self.params, self.iteration)

    def _masked(self, integers: Ints, stream: str, label: Label, *more: RingArray) -> RingArray:
        masks = norm_mask(self.setting, self.mask_key, stream, label.iteration)
        return self.setting.ring.add(self.setting.ring.from_integers(integers[:, None], label), masks, *more)

    def _share(self, iteration: int, length: int) -> Ints:
        return draw_shares(self.tape, self.params.scales[iteration], length, "share", iteration)

    def _upload(self, iteration: int, vector: Ints) -> Send:
        params, statement = self.params, statement_for(self.params, iteration)
        length = len(vector)
        shares = self._share(iteration, length)
        parts = np.split(vector, np.cumsum(statement.lengths[:-2], dtype=np.int64))
        self.committed, self.answered, self.proved = commit(statement, [*parts, shares]), NONE, False
        digits = to_signed(self.committed[statement.length :])
        floor = np.full(length, params.min_contributors, np.uint32)
        ring = self.setting.ring
        noise = ring.from_integers(shares[:, None], Label("share", iteration, _places(shares), floor))
        part = ProvenPart(
            iteration,
            self._masked(vector, VALUES, Label("part", iteration, _places(vector)), noise),
            ring.add(noise, norm_mask(self.setting, self.mask_key, SHARES, iteration)),
            self._masked(digits, DIGITS, Label("digits", iteration, _places(digits))),
        )
        return Send(THIRD_PARTY, part)

    def _answer(self, tests: NormTests) -> Effects:
        require(not len(self.answered), Reason.DUPLICATE)
        self.answered = answer(self.statement, self.committed, self.statement.signs(tests.key))
        told = to_signed(self.answered)
        values = self._masked(told, ANSWER, Label("answer", self.iteration, _places(told)))
        return [Send(THIRD_PARTY, NormAnswer(self.iteration, values))]

    def _prove(self, told: NormWeights) -> Effects:
        require(len(self.answered), Reason.WRONG_KIND)
        require(not self.proved, Reason.DUPLICATE)
        statement, self.proved = self.statement, True
        blinds = uniform_elements(self.tape.key("blinds", self.iteration), statement.height, "blinds")
        wires = np.concatenate([self.committed, self.answered])
        proof = to_signed(prove(statement, wires, statement.weights(told.key), blinds))
        values = self._masked(proof, PROOF, Label("proof", self.iteration, _places(proof)))
        return [Send(THIRD_PARTY, NormProof(self.iteration, values))]


def _places(numbers: Ints) -> np.ndarray[tuple[int], np.dtype[np.uint32]]:
    return np.arange(len(numbers), dtype=np.uint32)


class JudgedSum(DenseSum):
    """A sum that keeps every user's vector until it is known which are added."""

    def _begin(self) -> None:
        super()._begin()
        self.parts: dict[int, RingArray] = {}

    def hold(self, user: int, iteration: int, values: RingArray) -> None:
        self.check(user, iteration)
        self.parts[user] = values
        self.added.add(user)

    def keep(self, accepted: Collection[int]) -> None:
        """Add up the vectors of the `accepted` users, and forget all others."""
        parts, self.parts = self.parts, {}
        self.added = set(accepted)
        self.total = self._ring.add(self.total, *(parts[user] for user in accepted))


class NormThirdParty(HardenedThirdParty):
    """A third party that asks every user for a proof, and adds the vectors that both servers accept."""

    sum: JudgedSum

    def __init__(self, setting: Setting, tape: Tape) -> None:
        super().__init__(setting)
        params = self.params
        self.setting = setting
        self.tape = tape
        self.sum = JudgedSum(setting.ring, params.lengths, params.n_users, params.min_contributors)
        self._clear()

    def _clear(self) -> None:
        self.committed: dict[int, ProvenPart] = {}  # of users whose proof has not come yet
        self.answered: dict[int, FieldArray] = {}
        self.opened: dict[int, FieldArray] = {}
        self.asked: tuple[int, ...] | None = None  # the users that the recommender was asked about

    def round_key(self, iteration: int) -> bytes:
        return self.tape.key("norm", iteration)

    def tick(self, event: Event) -> Effects:
        if self.asked is not None and isinstance(event, Deadline | Gone):
            return []
        return super().tick(event)

    def receive(self, sender: str, message: Message) -> Effects:
        if isinstance(message, NormVerdict):
            return self._judged(sender, message)
        if isinstance(message, Agreed):
            effects = super().receive(sender, message)
            self._clear()
            return effects
        expect(message, ProvenPart, NormAnswer, NormProof)
        user = user_index(sender)
        require(self.asked is None, Reason.WRONG_ITERATION)
        self.sum.check(user, message.iteration)
        if isinstance(message, ProvenPart):
            return self._commit(user, message)
        return self._hear_answer(user, message) if isinstance(message, NormAnswer) else self._hear_proof(user, message)

    def _fits(self, values: RingArray, stream: str) -> None:
        rows = rows_by_stream(statement_for(self.params, self.iteration))[stream]
        require(len(values) == rows, Reason.WRONG_LENGTH)
        require(self.setting.ring.fits(values, (rows, 1)), Reason.OUT_OF_RANGE)

    def _commit(self, user: int, part: ProvenPart) -> Effects:
        require(user not in self.committed, Reason.DUPLICATE)
        for values, stream in ((part.values, VALUES), (part.shares, SHARES), (part.digits, DIGITS)):
            self._fits(values, stream)
        first = not self.committed and not self.sum.added
        self.committed[user] = part
        asked = NormTests(self.iteration, derive(self.round_key(self.iteration), "tests", user))
        return [Send(user_name(user), asked), *[Timer(self.iteration)] * first]

    def _hear_answer(self, user: int, told: NormAnswer) -> Effects:
        require(user in self.committed, Reason.WRONG_KIND)
        require(user not in self.answered, Reason.DUPLICATE)
        self._fits(told.values, ANSWER)
        self.answered[user] = column(told.values)
        key = derive(self.round_key(self.iteration), "weights", user)
        return [Send(user_name(user), NormWeights(self.iteration, key))]

    def _hear_proof(self, user: int, told: NormProof) -> Effects:
        require(user in self.answered, Reason.WRONG_KIND)
        self._fits(told.values, PROOF)
        ring, part, answered = self.setting.ring, self.committed.pop(user), self.answered.pop(user)
        key = self.round_key(self.iteration)
        statement = statement_for(self.params, self.iteration)
        vector = ring.subtract(part.values, part.shares)
        committed = np.concatenate([column(rows) for rows in (vector, part.shares, part.digits)])
        shares = ProofMessages(committed, answered, column(told.values))
        self.opened[user] = verifier_share(statement, shares, challenges_for(statement, key, user), constants=True)
        self.sum.hold(user, self.iteration, ring.add(vector, turned(ring, part.shares, turn_key(key, user))))
        return self._close() if self.sum.complete else []

    def _close(self) -> Effects:
        if len(self.sum.added) < self.params.min_contributors:
            return super()._close()  # which ends the run
        self.asked = tuple(sorted(self.sum.added))
        opened = np.concatenate([self.opened[user] for user in self.asked])
        query = NormQuery(self.iteration, np.array(self.asked, np.uint32), self.round_key(self.iteration), opened)
        return [Send(RECOMMENDER, query)]

    def _judged(self, sender: str, verdict: NormVerdict) -> Effects:
        require(sender == RECOMMENDER, Reason.UNKNOWN_SENDER)
        require(self.asked is not None and self.sum.closing is None, Reason.WRONG_KIND)
        require(verdict.iteration == self.iteration, Reason.WRONG_ITERATION)
        accepted = verdict.users.tolist()
        require(set(accepted) <= set(self.asked or ()), Reason.OUT_OF_RANGE)
        self.sum.keep(accepted)
        return super()._close()


class NormRecommender(HardenedRecommender):
    """A recommender that decides with the third party whose vectors are added."""

    def __init__(self, setting: Setting, tape: Tape) -> None:
        super().__init__(setting, tape)
        self.accepted: tuple[int, ...] | None = None  # in this round
        self.round_key = b""
        self.proved: tuple[int, ...] = ()  # the users that sent a proof in the latest round
        self.refused: list[tuple[int, int]] = []  # (round, user)

    def facts(self) -> Facts:
        return {**super().facts(), **({"proved": spans(self.proved)} if self.iteration > 0 else {})}

    def figures(self) -> Facts:
        left_out = "was left out of round {}: it did not prove that its vector keeps its bound."
        words = [f"{user_name(user)} {left_out.format(t + 1)}" for t, user in self.refused]
        return {**super().figures(), **({"notes": words} if words else {})}

    def receive(self, sender: str, message: Message) -> Effects:
        if isinstance(message, NormQuery):
            require(sender == THIRD_PARTY, Reason.UNKNOWN_SENDER)
            require(message.iteration == self.iteration < self.params.rounds, Reason.WRONG_ITERATION)
            return self._judge(message)
        if isinstance(message, Contributors) and sender == THIRD_PARTY:
            require(self.accepted is not None, Reason.WRONG_KIND)
            if set(message.users.tolist()) != set(self.accepted or ()):
                raise Aborted(Reason.DISAGREEMENT, f"round {self.iteration + 1}: a contributor was not accepted")
        return super().receive(sender, message)

    def _judge(self, query: NormQuery) -> Effects:
        require(self.accepted is None, Reason.DUPLICATE)
        statement, users = statement_for(self.params, self.iteration), query.users.tolist()
        length = statement.verifier_length * len(users)
        require(len(query.opened) == length, Reason.WRONG_LENGTH)
        require(fits(query.opened, (length,)), Reason.OUT_OF_RANGE)
        rows = query.opened.reshape(len(users), statement.verifier_length)
        judged = [  # a user that was dealt no masks proves nothing
            user in self.dealt and self._accepts(statement, query.key, user, row)
            for user, row in zip(users, rows, strict=True)
        ]
        self.round_key, self.proved = query.key, tuple(users)
        self.accepted = tuple(user for user, fine in zip(users, judged, strict=True) if fine)
        self.refused += [(self.iteration, user) for user, fine in zip(users, judged, strict=True) if not fine]
        return [Send(THIRD_PARTY, NormVerdict(self.iteration, np.array(self.accepted, np.uint32)))]

    def _accepts(self, statement: NormStatement, key: bytes, user: int, opened: FieldArray) -> bool:
        mask_key, zero = self.tape.key("mask", user), np.zeros(1, np.uint64)
        own = {
            name: subtract(zero, column(norm_mask(self.setting, mask_key, name, self.iteration)))
            for name in (VALUES, SHARES, DIGITS, ANSWER, PROOF)
        }
        committed = np.concatenate([subtract(own[VALUES], own[SHARES]), own[SHARES], own[DIGITS]])
        shares = ProofMessages(committed, own[ANSWER], own[PROOF])
        mine = verifier_share(statement, shares, challenges_for(statement, key, user), constants=False)
        return accepts(statement, opened, mine)

    def _masks_of(self, user: int) -> RingArray:
        ring, key, t = self.setting.ring, self.tape.key("mask", user), self.iteration
        values, noise = (norm_mask(self.setting, key, name, t) for name in (VALUES, SHARES))
        return ring.add(ring.subtract(values, noise), turned(ring, noise, turn_key(self.round_key, user)))

    def _open(self, total: PartTotal) -> Effects:
        effects = super()._open(total)
        self.accepted = None
        return effects


