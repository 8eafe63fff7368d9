"""`keyhole view`: the signature and its key, the heads in frames, and events that concern no role."""

from __future__ import annotations

import hashlib
import json

import pytest
from support.tamper import bodies, joined, rebuild, rechained, small_folder, split, view_of
from typer.testing import CliRunner

from protocol.party.signing import is_signed
from protocol.party.view import EVENT, RECEIVED, SENT
from sim.api import view
from sim.cli.app import app

CONTRACT = {"record", "iteration", "sender", "kind", "bytes", "fields", "digest"}


@pytest.fixture
def folder(tmp_path):
    return small_folder(tmp_path / "run")


def test_a_view_ends_with_a_signature_under_the_key_in_its_header(folder):
    first, *_, before, last = view(folder, "user:1")
    records = split(view_of(folder, "user:1").read_bytes())
    assert (before["type"], last["type"], last["record"]) == ("end", "signed", len(records) - 1)
    key, signature = bytes.fromhex(first["fields"]["signer"]), bytes.fromhex(last["fields"]["signature"])
    run_id = bytes.fromhex(first["fields"]["run_id"])
    assert is_signed(key, signature, run_id, "user:1", len(records) - 1, records[-2][-32:])
    assert all(set(record) >= CONTRACT for record in view(folder, "user:1"))


def test_a_received_frame_is_shown_with_the_head_of_its_sender(folder):
    """The head is that of the sender's view just before the record of that frame."""
    heads = {}
    for sender in ("recommender", "third_party", "user:0", "user:1", "user:2"):
        records = split(view_of(folder, sender).read_bytes())
        for number, body in enumerate(bodies(folder, sender)):
            if body[0] == SENT:
                heads[body[5]] = records[number - 1][-32:].hex()
    received = [record for record in view(folder, "recommender") if record["type"] == "received"]
    assert len(received) == sum(body[0] == RECEIVED for body in bodies(folder, "recommender")) > 5
    for record in received:
        assert record["sender_head"] == heads[bytes.fromhex(record["digest"])]
        assert "sender_head" not in record["fields"]  # they are those of the message
    assert all(record["sender_head"] is None for record in view(folder, "user:0") if record["type"] != "received")


def test_a_sender_without_a_view_has_no_head(tmp_path):
    folder = small_folder(tmp_path / "run", views="servers")
    heads = {record["sender"]: record["sender_head"] for record in view(folder, "recommender") if record["sender"]}
    assert heads["user:0"] is None and len(heads["third_party"]) == 64


def test_events_that_concern_no_role_are_shown_with_names(folder):
    contents = bodies(folder, "third_party")
    notes = [[EVENT, "Again", "user:2", 3], [EVENT, "Refused", "UNKNOWN_KEY", 4], [EVENT, "Gone", 1]]
    rebuild(folder, "third_party", [*contents[:4], *notes, *contents[4:]])
    again, refused, gone = [record for record in view(folder, "third_party") if record["type"] == "event"]
    assert (again["kind"], again["sender"], again["fields"]) == ("Again", "user:2", {"sender": "user:2", "received": 3})
    assert (refused["kind"], refused["fields"]) == ("Refused", {"reason": "UNKNOWN_KEY", "count": 4})
    assert (gone["kind"], gone["fields"], gone["sender"]) == ("Gone", {"user": 1}, None)
    shown = CliRunner().invoke(app, ["view", str(folder), "third_party", "--kind", "event"], env={"COLUMNS": "120"})
    assert shown.exit_code == 0 and "reason = UNKNOWN_KEY" in shown.stdout and "received (frames) = 3" in shown.stdout


def test_a_record_without_the_fields_of_its_type_is_told_in_one_sentence(folder):
    contents = bodies(folder, "user:0")
    view_of(folder, "user:0").write_bytes(joined(rechained([*contents[:4], [RECEIVED, 1], *contents[5:]])))
    result = CliRunner().invoke(app, ["view", str(folder), "user:0", "--json"])
    assert result.exit_code == 4 and "record 4 does not have the fields of its type" in result.stderr


def test_the_command_prints_the_head_of_the_sender(folder):
    result = CliRunner().invoke(app, ["view", str(folder), "user:0", "--json", "--kind", "received"])
    rows = json.loads(result.stdout)
    frames = [body[2] for body in bodies(folder, "user:0") if body[0] == RECEIVED]
    assert [row["sender_head"] for row in rows] == [frame[-32:].hex() for frame in frames]
    assert [row["digest"] for row in rows] == [hashlib.sha256(frame).hexdigest() for frame in frames]
    table = CliRunner().invoke(app, ["view", str(folder), "user:0", "--kind", "received"])
    assert "sender_head" in table.stdout and frames[0][-32:].hex()[:20] in table.stdout  # cut to the terminal's width
