"""A view replayed gives the same chain, a run goes on from any cut in a view, and no change to a view is missed."""

from __future__ import annotations

import hashlib
import itertools
import random
from collections import Counter
from typing import Any

import msgpack
import pytest
from support.replay import RUNS, Told, Troupe, chained, contents, numbered, played
from support.snapshot import snapshot
from support.wire import code_of, framed

from actors.journal import resume_party
from protocol.party.party import Party
from protocol.party.role import RECOMMENDER, THIRD_PARTY
from protocol.party.signing import make_signer
from protocol.party.view import END, EVENT, RECEIVED, REJECTED, SENT, SIGNED, Broken, Differs
from protocol.wire.messages import Churn, Deadline, Due, OpenSum

TROUBLE = {"in order": (0.0, 0.0), "lossy": (0.15, 0.0), "lossy and hurried": (0.15, 0.1)}
CASES = [
    pytest.param(scheme, wire, seed, *TROUBLE[trouble], id=f"{scheme}-{wire}-{trouble}-{seed}")
    for scheme, wire in RUNS
    for trouble, seeds in (("in order", (1, 2, 3)), ("lossy", (4,)), ("lossy and hurried", (5,)))
    for seed in seeds
]


CUT = [case for case in CASES if case.values[2] in (1, 4) or case.values[::2] == ("masked", 5, 0.1)]


def say(party: Party, told: Told) -> Any:
    return getattr(party, told.how)(*told.given)


# --- the same chain --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("scheme", "wire", "seed", "loss", "hurry"), CASES)
def test_replay_gives_the_very_chain_and_the_very_party(scheme, wire, seed, loss, hurry):
    run = played(scheme, wire, seed, loss, hurry)
    for name, party in run.parties.items():
        records, fresh, sent = run.records(name), run.fresh(name), []
        step = fresh.replay(iter(records[2:]), sent.append)
        assert (fresh.view.head, fresh.view.records) == (records[-1].head, len(records))
        assert (step.records, step.sends, step.done, step.abort) == ([], [], True, None)
        assert sent == run.frames(name)
        assert snapshot([fresh.role, fresh.result]) == snapshot([party.role, party.result])
        for peer in run.parties:  # it remembers the same about every peer
            again = framed(code_of(scheme, "Again"), 0, 0, 1)
            assert fresh.receive(peer, again) == party.receive(peer, again)


def test_the_runs_have_every_kind_of_record_and_trouble():
    """The other tests of this file rely on this."""
    runs = [played(*case.values) for case in CASES]
    types = {(record.type, record.fields[0] if record.type == EVENT else None) for run in runs for name in run.parties
             for record in run.records(name)[2:]}  # fmt: skip
    assert types == {
        *((type_, None) for type_ in (RECEIVED, SENT, REJECTED, END, SIGNED)),
        *((EVENT, kind) for kind in ("Again", "Deadline", "Churn", "Due")),
    }
    assert {reason for run in runs for reason in run.rejected} >= {"REPLAYED", "GAP", "WRONG_ITERATION"}
    assert all(not run.rejected for run, case in zip(runs, CASES, strict=True) if not case.values[3])


@pytest.mark.parametrize(("scheme", "wire"), RUNS)
def test_what_gets_lost_or_comes_twice_does_not_change_the_result(scheme, wire):
    results = {played(scheme, wire, seed, loss).parties[RECOMMENDER].result.tobytes()
               for seed, loss in ((1, 0.0), (4, 0.15), (6, 0.3))}  # fmt: skip
    assert len(results) == 1


def test_a_view_replays_without_the_secret_up_to_its_signature():
    run = played("masked")
    records, fresh = run.records("user:1"), run.fresh("user:1")
    keyless = Party("user:1", fresh.role, fresh.codec, run.card.run_id, run.card.params_digest, fresh.view)
    step = keyless.replay(records[2:])
    assert [record.type for record in records[-2:]] == [END, SIGNED]
    assert (keyless.view.head, step.records, step.sends, step.done) == (records[-2].head, [], [], True)


# --- from any cut the run goes on -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("scheme", "wire", "seed", "loss", "hurry"), CUT)
def test_from_every_cut_between_records_the_same_view_is_written_and_the_same_frames_leave(
    scheme, wire, seed, loss, hurry
):
    run = played(scheme, wire, seed, loss, hurry)
    for name in run.parties:
        view, records, frames = bytes(run.views[name]), run.records(name), run.frames(name)
        end = len(view)
        for cut in range(len(records), 1, -1):
            fresh, sent = run.fresh(name), []
            steps = [fresh.replay(records[2:cut], sent.append)]
            steps += [say(fresh, told) for told in run.after(name, cut)]
            written = b"".join(record for step in steps for record in step.records)
            assert view[:end] + written == view
            assert sent + numbered(out for step in steps for out in step.sends) == frames
            assert fresh.done and snapshot(fresh.result) == snapshot(run.parties[name].result)
            end -= len(msgpack.packb([records[cut - 1].type, *records[cut - 1].fields])) + 36


@pytest.mark.parametrize(
    ("scheme", "wire", "name"),
    [("masked", "compact", THIRD_PARTY), ("masked", "paper", "user:1"), ("dynamic", "paper", RECOMMENDER)],
)
def test_from_a_file_that_ends_inside_any_record_the_same_file_is_written(scheme, wire, name, tmp_path):
    """The cuts are at each record boundary, shortly before and behind it, and in the first bytes of the file."""
    run = played(scheme, wire, 4, 0.15)
    view, records = bytes(run.views[name]), run.records(name)
    ends = list(itertools.accumulate((len(msgpack.packb([r.type, *r.fields])) + 36 for r in records), initial=14))
    cuts = sorted({near for end in ends for near in (end - 1, end, end + 1, end + 5)})
    path = tmp_path / "one.view"
    for cut in (0, 1, 13, *(cut for cut in cuts if 14 <= cut <= len(view))):
        path.write_bytes(view[:cut])
        party, journal, step = resume_party(run.card, run.seats[name], str(path))
        whole = sum(end <= cut for end in ends[1:])
        later = [say(party, told) for told in run.after(name, whole)]
        for each in (step, *later):
            if each.records:
                journal.append(each.records)
        journal.close()
        assert path.read_bytes() == view, cut


def test_who_comes_back_waits_for_the_deadline_that_it_waited_for():
    run = played("masked", seed=4, loss=0.15)
    records, opened = run.records(THIRD_PARTY), []
    for cut in range(2, len(records) + 1):
        if records[cut - 1].type == RECEIVED:
            message = run.card.codec.decode(records[cut - 1].fields[1])[1]
            opened = [message.iteration] if isinstance(message, OpenSum) else opened
        assert run.fresh(THIRD_PARTY).replay(records[2:cut]).timers == opened
    assert opened == [2]


def test_a_file_of_another_run_is_not_gone_on_with(tmp_path):
    run, path = played("masked"), tmp_path / "one.view"
    before = bytes(run.views["user:1"])
    path.write_bytes(before)
    for name in ("user:0", RECOMMENDER):
        with pytest.raises(Broken, match="other data, another seed or other parameters"):
            resume_party(run.card, run.seats[name], str(path))
    assert path.read_bytes() == before


# --- a restarted party is told its events again ----------------------------------------------------------------------


@pytest.mark.parametrize(("seed", "loss", "hurry"), [(1, 0.0, 0.0), (5, 0.15, 0.1)])
@pytest.mark.parametrize("wire", ["compact", "paper"])
def test_an_event_that_is_told_again_at_any_later_moment_changes_nothing(wire, seed, loss, hurry):
    run, repeated = played("dynamic", wire, seed, loss, hurry), Counter()
    for name in run.parties:
        fresh, heard = run.fresh(name), []
        fresh.start()
        for told in run.after(name, 2):
            say(fresh, told)
            heard += told.given if told.how == "tick" else []
            before = snapshot(fresh.role)
            for event in heard:
                assert fresh.role.tick(event) == [], (name, event)
                assert snapshot(fresh.role) == before
                repeated[type(event)] += 1
    assert min(repeated[kind] for kind in (Due, Churn, *([Deadline] if hurry else []))) > 10
    returned = [told.given[0] for told in run.told["user:3"] if told.how == "tick"]
    assert returned == [Churn(0, True), Churn(1, False)], "the first is told again after the second, too"


# --- changes that the chain does not show are found ------------------------------------------------------------------


def difference(run: Troupe, name: str, bodies: list[list[Any]]) -> int | None:
    """Return the number of the record that a replay of these `bodies` in a sound chain names, None without one."""
    try:
        run.fresh(name).replay(chained(bodies)[2:])
    except Differs as differs:
        return differs.number
    return None


def changed_values(value: Any) -> list[Any]:
    if isinstance(value, bytes):
        flipped = [value[:at] + bytes([value[at] ^ 1]) + value[at + 1 :] for at in (0, len(value) // 2, len(value) - 1)]
        return [*flipped, value[:-1], value + b"\x00"]
    if isinstance(value, bool):
        return [not value]
    return [value + 1] if isinstance(value, int) else [value + "x", ""]


@pytest.mark.parametrize("name", [RECOMMENDER, THIRD_PARTY, "user:1"])
@pytest.mark.parametrize(("scheme", "wire"), [("masked", "compact"), ("dynamic", "paper")])
def test_every_altered_effect_is_named(scheme, wire, name):
    """Each field of each SENT, END and SIGNED record is changed in turn."""
    run = played(scheme, wire, 4, 0.15)
    bodies, tried = contents(run.records(name)), 0
    assert difference(run, name, bodies) is None
    for number, body in enumerate(bodies):
        if body[0] not in (SENT, END, SIGNED):
            continue
        for field in range(1, len(body)):
            for value in changed_values(body[field]):
                altered = [*body[:field], value, *body[field + 1 :]]
                assert difference(run, name, [*bodies[:number], altered, *bodies[number + 1 :]]) == number
                tried += 1
    assert tried > 50


@pytest.mark.parametrize("name", [RECOMMENDER, THIRD_PARTY, "user:1"])
def test_an_effect_that_was_removed_added_or_moved_is_named(name):
    run = played("masked", seed=4, loss=0.15)
    bodies = contents(run.records(name))
    sent = [number for number, body in enumerate(bodies) if body[0] == SENT]
    assert len(sent) > 4
    for number in sent:
        before, body, behind = bodies[:number], bodies[number], bodies[number + 1 :]
        assert difference(run, name, [*before, *behind]) == number
        assert difference(run, name, [*before, body, body, *behind]) == number + 1
        assert difference(run, name, [*before, behind[0], body, *behind[1:]]) == number


def test_a_difference_says_what_it_is_and_what_the_role_would_have_written():
    """In the view of user 1, records 2 and 3 are its Hello and its Join, record 4 is the first frame it receives."""
    run = played("masked")
    bodies = contents(run.records("user:1"))
    assert [body[0] for body in bodies[2:5]] == [SENT, SENT, RECEIVED]
    cases = [
        ([*bodies[:3], *bodies[4:]], "record 3 stands where this role would have sent something", bodies[3]),
        ([*bodies[:3], bodies[2], *bodies[4:]], "record 3 is not what this role does", bodies[3]),
        ([*bodies[:4], bodies[3], *bodies[4:]], "record 4 is not what this role does", None),
    ]
    for altered, words, derived in cases:
        with pytest.raises(Differs) as caught:
            run.fresh("user:1").replay(chained(altered)[2:])
        assert str(caught.value) == words
        assert (msgpack.unpackb(caught.value.derived[4:-32]) if derived else caught.value.derived) == (derived or b"")


@pytest.mark.parametrize("name", [RECOMMENDER, THIRD_PARTY, "user:1"])
@pytest.mark.parametrize(("scheme", "wire"), [("masked", "compact"), ("dynamic", "paper")])
def test_every_altered_input_is_seen_at_the_next_effect(scheme, wire, name):
    """Even a refusal or a note, which no role sees, changes the head in the next frame or under the signature."""
    run = played(scheme, wire, 4, 0.15)
    bodies = contents(run.records(name))
    effects = [number for number, body in enumerate(bodies) if body[0] in (SENT, SIGNED)]
    for number, body in enumerate(bodies):
        if body[0] in (SENT, END, SIGNED) or number < 2:
            continue
        following = next(effect for effect in effects if effect > number)
        removed = difference(run, name, [*bodies[:number], *bodies[number + 1 :]])
        assert removed is not None and number <= removed <= following
        for value in changed_values(body[-1]) if not isinstance(body[-1], list) else [[*body[-1], 4]]:
            altered = [*body[:-1], value]
            found = difference(run, name, [*bodies[:number], altered, *bodies[number + 1 :]])
            assert found is not None and number <= found <= following


def test_another_tape_or_key_is_seen_at_the_first_effect_that_depends_on_it():
    run = played("masked")
    records = run.records("user:1")
    first = next(record.number for record in records if record.type == SENT)
    for changes in ({"tape_seed": bytes(32)}, {"signer": make_signer(bytes(32), "user:1")}):
        with pytest.raises(Differs) as caught:  # both are in the opening, whose head the first frame carries
            run.fresh("user:1", **changes).replay(records[2:])
        assert caught.value.number == first


# --- records that no party writes -----------------------------------------------------------------------------------

ODD = [None, True, -1, 0, 2**64 - 1, 1.5, "", "Due", "Deadline", "third_party", b"", bytes(32), [], [1], ["x"], {}]
STRANGE_EVENTS = [
    (kind, number, *rest)
    for kind, rests in {
        "Deadline": [(), (0,)],
        "Gone": [(), (0,)],
        "Churn": [(True,), (False,), (None,), ()],
        "Due": [([],), ([0, 0, 10**9],), ([-1],), (["x"],), ([[0]],), (7,), ()],
    }.items()
    for number in (-(2**63), -1, 0, 1, 10**9, 2**64 - 1, "0", None)
    for rest in rests
]


@pytest.mark.parametrize("name", [RECOMMENDER, THIRD_PARTY, "user:1"])
def test_whatever_stands_in_a_view_is_refused_as_one_or_replays(name):
    """Records and fields are replaced at random, in a sound chain; a bad view raises `Broken` and no other error."""
    run, chance = played("dynamic", "paper", 4, 0.15), random.Random(name)
    bodies, refused = contents(run.records(name)), 0
    for _ in range(1500):
        altered = [list(body) for body in bodies]
        body = altered[chance.randrange(2, len(bodies))]
        match chance.randrange(5):
            case 0:
                body[1:] = chance.choices(ODD, k=chance.randrange(6))
            case 1:
                body[:] = [chance.randrange(8), *chance.choices(ODD, k=chance.randrange(6))]
            case 2:
                body[0] = chance.randrange(8)
            case 3:
                body[:] = [EVENT, *chance.choice(STRANGE_EVENTS)]
            case _:
                body[chance.randrange(1, len(body))] = chance.choice(ODD)
        try:
            run.fresh(name).replay(chained(altered)[2:])
        except Broken:
            refused += 1
        else:
            assert altered == bodies
    assert refused > 1000


# --- heads -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("scheme", "wire", "seed", "loss", "hurry"), CASES)
def test_every_frame_ends_with_the_head_that_its_senders_view_had_before_it_was_sent(scheme, wire, seed, loss, hurry):
    run = played(scheme, wire, seed, loss, hurry)
    heads: dict[tuple[str, str, bytes], bytes] = {}
    for name in run.parties:
        for before, record in itertools.pairwise(run.records(name)):
            if record.type == SENT:
                heads[name, record.fields[0], record.fields[4]] = before.head
    received = 0
    for name in run.parties:
        for record in run.records(name):
            if record.type == RECEIVED:
                sender, frame = record.fields
                assert frame[-32:] == heads[sender, name, hashlib.sha256(frame).digest()]
                received += 1
    assert received > 15
    assert len(set(heads.values())) == len(heads), "no two places of any view look alike"
