"""`hardened` with `proof=norm`: whole runs, hostile users left out, what each role refuses."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from support.audit import made
from support.basics import params_with, small_run
from support.runs import play
from support.snapshot import snapshot

from protocol.arithmetic.prime_field import PRIME, add, element, from_signed, to_signed, uniform_elements
from protocol.arithmetic.tape import Tape
from protocol.errors import Aborted, BadInput, Rejected
from protocol.schemes.hardened.dense_sum import NOTHING, digest_of
from protocol.schemes.hardened.hardened import Hardened
from protocol.schemes.hardened.hardened_roles import posterior_of
from protocol.schemes.hardened.item_table import ItemTable
from protocol.schemes.hardened.norm_proof.norm_roles import NormUser, as_added, statement_for
from protocol.schemes.hardened.norm_proof.norm_statement import NormStatement
from protocol.schemes.hardened.share_law import draw_shares
from protocol.schemes.hardened.unit_vectors import first_vector
from protocol.wire.messages import (
    Agreed,
    Contributors,
    Deadline,
    Gone,
    Join,
    MaskedPart,
    MaskWelcome,
    NormAnswer,
    NormProof,
    NormQuery,
    NormTests,
    NormVerdict,
    NormWeights,
    PartTotal,
    ProvenPart,
)
from sim.api import bandwidth, replay, verify
from sim.drivers.inprocess import InProcess
from sim.experiments.bench.norm_bench import forced, hostile_vectors
from sim.folder.folder import read_summary
from sim.plan.config import RunConfig
from sim.run.run import run
from sim.views.viewing import Reader

USERS, ITEMS = 12, 9


def cast(**options):
    card, seats = small_run("hardened", n_users=USERS, n_items=ITEMS, proof="norm", **options)
    return card, seats, [seat.inputs for seat in seats if seat.inputs is not None]


def table_of(card, seats, inputs, third_party, without=()):
    """Make the table of the users' vectors and turned shares, without messages, fields and masks."""
    params, total = card.params, 0
    users = [user for user in range(USERS) if user not in without]
    for user in users:
        tape = Tape(next(seat.tape_seed for seat in seats if seat.party == f"user:{user}"))
        share = draw_shares(tape, params.first_scale, params.lengths[0], "share", 0)
        total = total + first_vector(params, inputs[user].items, inputs[user].ratings)
        total = total + as_added(third_party, user, 0, share)
    table = ItemTable.of(posterior_of(params, total / params.whole, len(users)), params.described())
    return np.stack([table.quality, table.popularity], axis=1)


def test_what_is_published_follows_from_the_vectors_and_the_turned_shares():
    card, seats, inputs = cast()
    played = play(card, seats)
    assert np.array_equal(
        played.outcome.item_factors, table_of(card, seats, inputs, played.parties["third_party"].role)
    )
    assert not played.parties["recommender"].role.refused


@pytest.mark.parametrize("options", [{"rounds": 2}, {"selected": 3}])
def test_every_round_is_proved(options):
    card, seats, _ = cast(**options)
    played = play(card, seats)
    assert played.outcome.abort is None and played.outcome.item_factors is not None
    assert played.parties["recommender"].role.iteration == 2 and not played.parties["recommender"].role.refused


class HostileUser(NormUser):
    """Commits to a vector of `kind`, with digits that make its equations fit, and proves it as well as it can."""

    kind = ""

    def _upload(self, iteration, vector):
        send = super()._upload(iteration, vector)
        one, honest = statement_for(self.params, iteration), self.committed
        parts = np.split(to_signed(honest[: one.length]), np.cumsum(one.lengths[:-1]))
        kinds = dict(hostile_vectors(one, parts, bytes(32)))
        self.committed = forced(one, kinds[self.kind])
        moved = [to_signed(part)[:, None] for part in self._moves(honest, one)]
        ring, message = self.setting.ring, send.message
        values, shares, digits = (
            ring.add(rows, ring.from_integers(more))
            for rows, more in zip((message.values, message.shares, message.digits), moved, strict=True)
        )
        changed = dataclasses.replace(message, values=values, shares=shares, digits=digits)
        return dataclasses.replace(send, message=changed)

    def _moves(self, honest, one):
        """Return what is added to vector and share together, to the share, and to the digits."""
        length = one.lengths[-1]
        change = add(self.committed, from_signed(-to_signed(honest)))
        vector, share, digits = change[:length], change[length : 2 * length], change[2 * length :]
        return add(vector, share), share, digits


KINDS = [
    "beyond the bound by 1",
    "10 times the bound",
    "1000 times the bound",
    "noise of twice its bound",
    "uniform elements",
    "large numbers whose squares cancel mod p",
    "halves mod p whose squares cancel",
]


def hostile(kinds):
    """Make the scheme in which user number i is hostile in the way of `kinds[i]`."""

    class Attacked(Hardened):
        def make_role(self, party, setting, tape, inputs):
            number = int(party.partition(":")[2] or USERS)
            if number >= len(kinds) or not kinds[number]:
                return super().make_role(party, setting, tape, inputs)
            role = HostileUser(setting, tape, inputs)
            role.kind = kinds[number]
            return role

    return Attacked()


@pytest.mark.parametrize("kind", KINDS)
def test_a_hostile_user_is_left_out_and_all_others_are_added(kind):
    card, seats, inputs = cast()
    played = play(dataclasses.replace(card, scheme=hostile(["", kind])), seats)
    recommender = played.parties["recommender"].role
    assert recommender.refused == [(0, 1)] and recommender.figures()["notes"] == [
        "user:1 was left out of round 1: it did not prove that its vector keeps its bound."
    ]
    third_party = played.parties["third_party"].role
    assert np.array_equal(played.outcome.item_factors, table_of(card, seats, inputs, third_party, {1}))


def test_with_too_many_hostile_users_nothing_is_released():
    card, seats, _ = cast()
    assert card.params.spare == 2
    two, three = (InProcess(dataclasses.replace(card, scheme=hostile(KINDS[:k])), seats).run() for k in (2, 3))
    assert two.abort is None and two.item_factors is not None
    assert three.abort.reason.name == "TOO_FEW_SHARES" and three.item_factors is None


OneHostile = hostile(["", "10 times the bound"]).__class__  # found by its name


def test_a_run_with_a_hostile_user_says_so_and_its_bytes_follow_the_formula(tmp_path):
    case = made(tmp_path / "run", "test_norm_roles:OneHostile", options={"proof": "norm"})
    summary = read_summary(case.folder)
    assert summary["completed"] and any("user:1 was left out of round 1" in note for note in summary["notes"])
    assert bandwidth(case.folder)["match"] and replay(case.folder)["identical"] and not verify(case.folder)["findings"]
    assert "mod 2^64 − 2^32 + 1" in Reader("third_party", None, case.card.params, None).units(ProvenPart)["values"]


# --- what roles refuse -----------------------------------------------------------------------------------------------


def refused(role, sender, message):
    def state():
        left_out = ("setting", "params", "tape", "sum")
        return snapshot({name: value for name, value in vars(role).items() if name not in left_out})

    before = state()
    with pytest.raises(Rejected) as error:
        role.receive(sender, message)
    assert state() == before, "a refused message changes nothing"
    return error.value.reason.name


def roles_of(card, seats):
    tapes = {seat.party: (Tape(seat.tape_seed), seat.inputs) for seat in seats}
    return {party: Hardened().make_role(party, card.setting, *tapes[party]) for party in tapes}


def test_a_user_answers_each_challenge_once():
    card, seats, _ = cast()
    user, key = roles_of(card, seats)["user:0"], bytes(32)
    assert refused(user, "third_party", NormTests(0, key)) in ("WRONG_KIND", "WRONG_ITERATION")
    (part,) = user.receive("recommender", MaskWelcome(key, NOTHING))
    assert isinstance(part.message, ProvenPart) and part.to == "third_party"
    assert refused(user, "recommender", NormTests(0, key)) == "UNKNOWN_SENDER"
    assert refused(user, "third_party", NormTests(1, key)) == "WRONG_ITERATION"
    assert refused(user, "third_party", NormWeights(0, key)) == "WRONG_KIND"
    (told,) = user.receive("third_party", NormTests(0, key))
    assert isinstance(told.message, NormAnswer)
    assert refused(user, "third_party", NormTests(0, bytes([1]) * 32)) == "DUPLICATE", "a mask hides one answer"
    (proof,) = user.receive("third_party", NormWeights(0, key))
    assert isinstance(proof.message, NormProof)
    assert refused(user, "third_party", NormWeights(0, bytes([1]) * 32)) == "DUPLICATE", "blinds hide one proof"
    assert refused(user, "recommender", MaskWelcome(key, NOTHING)) == "DUPLICATE"


def uploads_of(role, user, third_party):
    """Let a user and the third party talk until the third party has the proof; yield each message to it."""
    message = role.receive("recommender", MaskWelcome(bytes([user]) * 32, NOTHING))[0].message
    while True:
        given = yield message
        message = role.receive("third_party", given.message)[0].message


def test_the_third_party_takes_messages_in_their_order_and_closes_once():
    card, seats, _ = cast()
    roles = roles_of(card, seats)
    role, ring, floor = roles["third_party"], card.setting.ring, card.params.min_contributors
    for number in range(floor):
        talk = uploads_of(roles[f"user:{number}"], number, role)
        name, part = f"user:{number}", next(talk)
        assert refused(role, name, MaskedPart(0, NOTHING, part.values)) == "WRONG_KIND"
        empty = dataclasses.replace(part, digits=part.digits[:-1])
        assert refused(role, name, empty) == "WRONG_LENGTH"
        large = dataclasses.replace(part, values=np.full_like(part.values, PRIME))
        assert refused(role, name, large) == "OUT_OF_RANGE"
        assert refused(role, name, NormAnswer(0, part.values)) == "WRONG_KIND"
        assert refused(role, "user:12", part) == "UNKNOWN_SENDER"
        assert refused(role, name, dataclasses.replace(part, iteration=1)) == "WRONG_ITERATION"
        tests, *timer = role.receive(name, part)
        assert len(timer) == (number == 0) and isinstance(tests.message, NormTests) and tests.to == name
        assert refused(role, name, part) == "DUPLICATE", "no other vector once the tests are known"
        told = talk.send(tests)
        assert refused(role, name, NormProof(0, told.values)) == "WRONG_KIND"
        (weights,) = role.receive(name, told)
        assert refused(role, name, told) == "DUPLICATE", "no other answer once the weights are known"
        proof = talk.send(weights)
        assert role.receive(name, proof) == []
        assert refused(role, name, proof) == "DUPLICATE"
    role.receive("user:10", next(uploads_of(roles["user:10"], 10, role)))  # it never answers
    (query,) = role.tick(Deadline(0))
    assert isinstance(query.message, NormQuery) and query.to == "recommender"
    assert query.message.users.tolist() == list(range(floor))
    assert role.tick(Deadline(0)) == [] == role.tick(Gone(11))
    late = next(uploads_of(roles["user:11"], 11, role))
    assert refused(role, "user:11", late) == "WRONG_ITERATION"
    everyone = np.arange(floor, dtype=np.uint32)
    assert refused(role, "user:0", NormVerdict(0, everyone)) == "UNKNOWN_SENDER"
    assert refused(role, "recommender", NormVerdict(0, np.array([11], np.uint32))) == "OUT_OF_RANGE"
    assert refused(role, "recommender", Agreed(0, bytes(32))) == "WRONG_KIND", "no total before the verdict"
    (closed,) = role.receive("recommender", NormVerdict(0, everyone))
    assert isinstance(closed.message, Contributors)
    assert refused(role, "recommender", NormVerdict(0, everyone)) == "WRONG_KIND"
    total, _ = role.receive("recommender", Agreed(0, closed.message.digest))
    assert isinstance(total.message, PartTotal) and ring.fits(total.message.values, (card.params.lengths[0], 1))


def test_a_verdict_below_the_floor_ends_the_run():
    card, seats, _ = cast()
    roles = roles_of(card, seats)
    role, floor = roles["third_party"], card.params.min_contributors
    for number in range(floor):
        talk = uploads_of(roles[f"user:{number}"], number, role)
        told = talk.send(role.receive(f"user:{number}", next(talk))[0])
        role.receive(f"user:{number}", talk.send(role.receive(f"user:{number}", told)[0]))
    role.tick(Deadline(0))
    with pytest.raises(Aborted, match="9 contributed to round 1, and 10 are needed"):
        role.receive("recommender", NormVerdict(0, np.arange(9, dtype=np.uint32)))


def test_the_recommender_judges_once_and_agrees_only_with_its_verdict():
    card, seats, _ = cast()
    role = roles_of(card, seats)["recommender"]
    for user in range(USERS):
        role.receive(f"user:{user}", Join(NOTHING))
    length, users = statement_for(card.params, 0).verifier_length, np.arange(11, dtype=np.uint32)
    query = NormQuery(0, users, bytes(32), uniform_elements(bytes(32), 11 * length, "any"))
    closed = Contributors(0, users, NOTHING, digest_of(0, users))
    assert refused(role, "third_party", closed) == "WRONG_KIND", "no contributors before the verdict"
    assert refused(role, "user:0", query) == "UNKNOWN_SENDER"
    assert refused(role, "third_party", dataclasses.replace(query, iteration=1)) == "WRONG_ITERATION"
    assert refused(role, "third_party", dataclasses.replace(query, opened=query.opened[:-1])) == "WRONG_LENGTH"
    large = add(query.opened, element(0))
    large[0] = PRIME
    assert refused(role, "third_party", dataclasses.replace(query, opened=large)) == "OUT_OF_RANGE"
    (verdict,) = role.receive("third_party", query)
    assert verdict.message.users.tolist() == [] and len(role.refused) == 11, "what is no proof is refused"
    assert refused(role, "third_party", query) == "DUPLICATE"
    with pytest.raises(Aborted, match="was not accepted"):
        role.receive("third_party", closed)


def test_a_user_that_was_dealt_no_masks_is_left_out_and_ends_nothing(monkeypatch):
    card, seats, _ = cast()
    role = roles_of(card, seats)["recommender"]
    for user in range(USERS):
        role.receive(f"user:{user}", Join(NOTHING))
    monkeypatch.setattr(type(role), "_accepts", lambda *_: True)
    role.dealt = role.dealt[:-1]
    length, users = statement_for(card.params, 0).verifier_length, np.arange(USERS, dtype=np.uint32)
    (verdict,) = role.receive("third_party", NormQuery(0, users, bytes(32), np.zeros(USERS * length, np.uint64)))
    assert verdict.message.users.tolist() == list(range(USERS - 1))


def test_a_statement_that_would_let_too_much_pass_is_refused():
    assert NormStatement((2 * 1682, 3364), (1 << 20, 1 << 27)).error_bits > 56
    with pytest.raises(BadInput, match="too many for a proof of the norm"):
        NormStatement((40_000_000,), (1 << 20,))


def test_parameters_are_refused_in_words():
    for options, words in (
        ({"proof": "fish"}, "proof must be one of none, norm"),
        ({"proof": "norm", "unit": "rating"}, "Only the unit user .* leave proof=norm out"),
    ):
        with pytest.raises(BadInput, match=words):
            params_with("hardened", n_users=12, n_items=9, **options)
    assert not params_with("hardened", n_users=12, n_items=9)[0].ring_is_prime


# --- from the command line -------------------------------------------------------------------------------------------


def test_a_run_of_processes_is_the_run_of_one_process_and_can_be_checked(tmp_path):
    made = {}
    for transport in ("ipc", "inprocess"):
        folder = tmp_path / transport
        options = {"rounds": 2, "proof": "norm"}
        config = RunConfig(scheme="hardened", data="demo-small", seed=1, transport=transport, options=options)
        made[transport] = run(config, out=folder)
        assert verify(folder)["findings"] == [] and replay(folder)["identical"]
        assert bandwidth(folder)["match"]
    assert made["ipc"]["item_factors_sha256"] == made["inprocess"]["item_factors_sha256"]
    assert made["ipc"]["privacy"]["accounted"]["epsilon"] <= 8.0
