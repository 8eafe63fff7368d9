"""The inventory of the fields that every party received: complete, counted, and undeclared fields are named."""

from __future__ import annotations

import dataclasses
from collections import Counter
from dataclasses import dataclass
from typing import ClassVar

import pytest
from support.tamper import bodies, name_of, rebuild, small_folder

from protocol.party.role import role_of
from protocol.party.view import EVENT, RECEIVED, REJECTED, Broken
from protocol.schemes import SCHEMES
from protocol.schemes.factorization.masked import Masked
from protocol.wire.codec import WIRE_VERSION
from protocol.wire.fields import Count
from protocol.wire.messages import Finish, Hello
from sim.audit.inventory import take
from sim.views.evidence import open_case
from sim.views.exhibits import Exhibits

USERS = ("user:0", "user:1", "user:2")
PARTIES = ("recommender", "third_party", *USERS)


class Reticent(Masked):
    """`masked` whose leakage policy does not declare the contributors."""

    name = "reticent"
    leakage = tuple(leak for leak in Masked.leakage if (leak.kind, leak.field) != ("Contributors", "users"))


@dataclass(frozen=True, slots=True, eq=False)
class Chatty:
    iteration: Count
    mood: Count


class Talkative(Masked):
    """`masked` with one more message, whose fields are not declared."""

    name = "talkative"
    messages: ClassVar[tuple[type, ...]] = (*Masked.messages, Chatty)


def rows_of(folder) -> list[dict]:
    return take(open_case(folder))[0]


def counted(rows: list[dict], plane: str = "message") -> dict[tuple[str, str, str], int]:
    return {(row["party"], row["kind"], row["field"]): row["count"] for row in rows if row["plane"] == plane}


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_scheme_declares_what_its_parties_receive(tmp_path, scheme):
    stay = {"join": 0.0, "leave": 0.0} if scheme == "dynamic" else {}
    rows, findings = take(open_case(small_folder(tmp_path / "run", scheme=scheme, **stay)))
    assert findings == []
    assert all(row["declared"] is True for row in rows)
    received = [row for row in rows if row["plane"] == "message" and row["count"]]
    assert {row["party"] for row in received} >= {"recommender", "user"}
    leaks = {(leak.receiver, leak.kind, leak.field) for leak in SCHEMES[scheme].leakage}
    assert set(counted(rows)) == leaks


def test_the_counts_are_those_of_the_messages(tmp_path):
    """The counts are compared with the messages themselves, read independently of the inventory."""
    folder = small_folder(tmp_path / "run")
    case, expected = open_case(folder), Counter()
    for party in PARTIES:
        for seen in Exhibits(case, PARTIES).received(party):
            for field in dataclasses.fields(seen.message):
                expected[role_of(party), type(seen.message).__name__, field.name] += 1
    rows = rows_of(folder)
    found = counted(rows) | counted(rows, "session")
    assert {key: count for key, count in found.items() if count} == dict(expected)
    assert {row["parties"] for row in rows if row["party"] == "user" and row["count"]} == {3}


def test_what_is_declared_and_never_came_has_count_0(tmp_path):
    never = {key[1] for key, count in counted(rows_of(small_folder(tmp_path / "run"))).items() if count == 0}
    assert never == {"WelcomeInFull", "ItemFactorsInFull"}  # of the other wire form


def test_without_views_of_users_nothing_is_said_of_them(tmp_path):
    rows, findings = take(open_case(small_folder(tmp_path / "run", views="servers")))
    assert findings == []
    assert {row["count"] for row in rows if row["party"] == "user"} == {None}
    assert all(row["count"] for row in rows if row["party"] == "recommender")


def test_a_field_that_the_policy_does_not_name_is_a_break(tmp_path):
    folder = small_folder(tmp_path / "run", scheme="test_inventory:Reticent")
    rows, (finding,) = take(open_case(folder))
    assert (finding.id, finding.severity, finding.coalition) == ("undeclared-field", "break", ("recommender",))
    assert finding.measured == 2 and "users of Contributors" in finding.title
    numbers = [
        number for number, body in enumerate(bodies(folder, "recommender")) if is_a(folder, body, "Contributors")
    ]
    assert len(numbers) == 2
    for number in numbers:
        assert f"record {number} of {name_of('recommender')}" in finding.evidence
    assert [row["field"] for row in rows if row["declared"] is False] == ["users"]


def is_a(folder, body: list, kind: str) -> bool:
    codec = open_case(folder).card.codec
    return body[0] == RECEIVED and type(codec.decode(body[2])[1]).__name__ == kind


def test_a_new_field_of_a_message_is_found_at_every_party_that_received_it(tmp_path):
    """A message in a view has one field more than the policy declares: each user and the record are named."""
    folder = small_folder(tmp_path / "run", scheme="test_inventory:Talkative")
    codec = open_case(folder).card.codec
    for party in USERS:
        contents = bodies(folder, party)
        for body in contents:
            if is_a(folder, body, "Finish"):
                sequence, message = codec.decode(body[2])
                assert isinstance(message, Finish)
                body[2] = codec.encode(Chatty(message.iteration, 7), sequence)
        rebuild(folder, party, contents)
    _, findings = take(open_case(folder))
    assert [finding.title.split("which")[0] for finding in findings] == [
        "The users received the field iteration of Chatty, ",
        "The users received the field mood of Chatty, ",
    ]
    assert all(finding.measured == 3 and "by 3 of the parties" in finding.evidence for finding in findings)
    assert all(name_of(party) in findings[0].evidence for party in USERS)


def test_a_hello_that_says_something_else_is_a_break(tmp_path):
    folder = small_folder(tmp_path / "run")
    case, contents = open_case(folder), bodies(folder, "user:1")
    at = next(number for number, body in enumerate(contents) if is_a(folder, body, "Hello"))
    smuggled = Hello(WIRE_VERSION, case.card.run_id, b"a 32-byte secret in a greeting!!")
    contents[at][2] = case.card.codec.encode(smuggled, 0)
    rebuild(folder, "user:1", contents)
    _, (finding,) = take(open_case(folder))
    assert finding.severity == "break" and "Hello" in finding.title
    assert f"record {at} of {name_of('user:1')}" in finding.evidence


def test_notes_events_and_refused_frames_are_counted_apart(tmp_path):
    folder = small_folder(tmp_path / "run")
    extra = [
        [EVENT, "Again", "user:2", 3],
        [EVENT, "Gone", 1],
        [REJECTED, "user:2", "REPLAYED", 100, bytes(32), False],
        [REJECTED, "user:1", "REPLAYED", 90, bytes(32), False],
    ]
    contents = bodies(folder, "third_party")
    rebuild(folder, "third_party", [*contents[:4], *extra, *contents[4:]])
    rows, findings = take(open_case(folder))
    assert findings == []
    assert counted(rows, "rejected") == {("third_party", "rejected", "REPLAYED"): 2}
    assert [row["declared"] for row in rows if row["plane"] == "rejected"] == [None]
    assert counted(rows, "event") == {("third_party", "Gone", "user"): 1}
    assert counted(rows, "session")["third_party", "Again", "received"] == 1


def test_a_view_that_is_not_what_the_party_wrote_is_not_taken_for_an_inventory(tmp_path):
    folder = small_folder(tmp_path / "run")
    path = folder / name_of("user:1")
    data = bytearray(path.read_bytes())
    data[-40] ^= 1
    path.write_bytes(data)
    with pytest.raises(Broken, match="record"):
        take(open_case(folder))
