"""`keyhole replay`: a role, run again from its own view, writes the same bytes; otherwise a record is named."""

from __future__ import annotations

import itertools
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from support.tamper import (
    altered,
    bodies,
    joined,
    other,
    rebuild,
    rechained,
    small_folder,
    split,
    view_of,
)
from typer.testing import CliRunner

from protocol.errors import BadInput
from protocol.party.view import END, EVENT, PREAMBLE, RECEIVED, SENT
from sim.api import replay, verify
from sim.cli.app import app

PARTIES = ["recommender", "third_party", "user:0", "user:1", "user:2"]


def difference(folder: Path, party: str) -> dict[str, Any]:
    """Return the first difference of `party`, and check that no other party has one."""
    found = replay(folder)
    rows = {row["party"]: row for row in found["parties"]}
    assert [name for name, row in rows.items() if not row["identical"]] == [party] and not found["identical"]
    first = rows[party]["first_difference"]
    assert first["party"] == party
    return first


# --- the same bytes ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"wire": "paper"},
        {"scheme": "dynamic", "data": "synthetic:6x4:.6", "iterations": 3, "join": 0.5, "leave": 0.3},
        {"scheme": "dynamic", "data": "synthetic:6x4:.6", "wire": "paper"},
        {"scheme": "direct"},
        {"scheme": "trusted"},
        {"scheme": "plain"},
        {"transport": "tcp"},
        {"transport": "tcp", "users_per_process": 2, "seed": None},
        {"faults": "3:.2"},
    ],
    ids=lambda changes: "-".join(str(value) for value in changes.values()) or "masked",
)
def test_every_role_does_again_what_its_view_says(changes, tmp_path):
    folder = small_folder(tmp_path / "run", **changes)
    summary = json.loads((folder / "summary.json").read_text())
    found = replay(folder)
    assert found["identical"] and found["platform"] == "same"
    assert {row["party"]: row["records"] for row in found["parties"]} == {
        party: view["records"] for party, view in summary["views"].items()
    }
    for row in found["parties"]:
        assert row["identical"] and row["ended"] and row["first_difference"] is None
        assert row["frames"] == sum(body[0] == SENT for body in bodies(folder, row["party"])) > 0


def test_one_party_can_be_replayed_alone(folder):
    for party in PARTIES[1:]:
        view_of(folder, party).unlink()  # it needs no other view
    found = replay(folder, party="recommender")
    assert found["identical"] and [row["party"] for row in found["parties"]] == ["recommender"]


def test_only_the_views_that_were_kept_are_replayed(tmp_path):
    folder = small_folder(tmp_path / "servers", views="servers")
    assert [row["party"] for row in replay(folder)["parties"]] == ["recommender", "third_party"]
    with pytest.raises(BadInput, match="no view of user:0"):
        replay(folder, party="user:0")
    with pytest.raises(BadInput, match="nothing to replay"):
        replay(small_folder(tmp_path / "none", views="none"))


# --- another role than the view says ----------------------------------------------------------------------------------


@pytest.mark.parametrize("party", PARTIES)
def test_a_frame_or_result_that_was_never_made_is_named_with_both_digests(folder, party):
    """The chain is built anew and signed, so only the role itself can show the change."""
    contents = bodies(folder, party)
    made = [number for number, body in enumerate(contents) if body[0] in (SENT, END)]
    assert len(made) >= 6
    for number in made:
        rebuild(folder, party, [*contents[:number], altered(contents[number]), *contents[number + 1 :]])
        first = difference(folder, party)
        true = contents[number][5 if contents[number][0] == SENT else 1]
        assert (first["record"], first["derived"], first["recorded"]) == (number, true.hex(), other(true).hex())
        assert first["kind"] == (contents[number][2] if contents[number][0] == SENT else "end")


@pytest.mark.parametrize("party", PARTIES)
def test_what_a_party_brought_or_was_told_shows_in_what_it_says_next(folder, party):
    """A frame holds the head of its sender's view, so every change to the view changes the next frame."""
    contents = bodies(folder, party)
    sent = [number for number, body in enumerate(contents) if body[0] == SENT]
    for number in range(1, sent[-1]):
        if contents[number][0] == SENT:
            continue
        rebuild(folder, party, [*contents[:number], altered(contents[number]), *contents[number + 1 :]])
        first = difference(folder, party)
        assert number <= first["record"] <= next(at for at in sent if at > number)


@pytest.mark.parametrize("party", PARTIES)
def test_a_record_too_many_or_too_few_is_named(folder, party):
    contents = bodies(folder, party)
    for number in range(2, len(contents) - 2):
        if contents[number][0] != SENT:
            continue
        rebuild(folder, party, contents[:number] + contents[number + 1 :])
        assert difference(folder, party)["record"] == number
        rebuild(folder, party, [*contents[: number + 1], contents[number], *contents[number + 1 :]])
        assert difference(folder, party)["record"] == number + 1


def test_the_same_frame_under_another_name_is_told_by_the_records(folder):
    contents = bodies(folder, "user:0")
    contents[3] = [*contents[3][:2], "Gradient", *contents[3][3:]]
    rebuild(folder, "user:0", contents)
    first = difference(folder, "user:0")
    assert (first["record"], first["kind"]) == (3, "Gradient") and first["recorded"] != first["derived"]
    assert "which is Join" in first["what"]


def test_the_view_of_another_run_is_not_replayed_as_this_one(folder, tmp_path):
    stranger = small_folder(tmp_path / "stranger", seed=2)
    shutil.copy(view_of(stranger, "user:1"), view_of(folder, "user:1"))
    first = difference(folder, "user:1")
    assert (first["record"], first["what"]) == (0, "names another run than run.toml")


ODD_RECORDS = {
    "no header": (0, [END, bytes(32)], "is not a header"),
    "no input": (1, [END, bytes(32)], "is not what such a party brings"),
    "no ratings": (1, [1, {"tape_seed": bytes(32), "items": b"", "ratings": b""}], ""),
    "items out of range": (1, [1, {"tape_seed": bytes(32), "items": b"\xff" * 4, "ratings": bytes(8)}], ""),
    "half a rating": (1, [1, {"tape_seed": bytes(32), "items": bytes(4), "ratings": bytes(4)}], "is not what such a"),
    "a short tape seed": (1, [1, {"tape_seed": b"x", "items": bytes(4), "ratings": bytes(8)}], "is not what such a"),
    "other types": (2, [SENT, 1, 2, 3, 4, 5], "does not have the fields of its type"),
    "an event with too much in it": (4, [EVENT, "Deadline", 1, 2, 3], "does not have the fields of its type"),
    "an event of text": (4, [EVENT, "Deadline", "soon"], ""),
    "a frame that is all head": (4, [RECEIVED, "recommender", bytes(32)], "does not have the fields of its type"),
    "a frame of nobody": (4, [RECEIVED, "nobody", b"\x93\x00\x00\x00" + bytes(32)], "which is rejected"),
    "a header in the middle": (5, [0, bytes(32), "user:0", "masked", bytes(32), True, bytes(32)], ""),
}


@pytest.mark.parametrize("name", ODD_RECORDS)
def test_whatever_is_put_into_a_view_ends_in_words(folder, name):
    number, body, words = ODD_RECORDS[name]
    contents = bodies(folder, "user:0")
    view_of(folder, "user:0").write_bytes(joined(rechained([*contents[:number], body, *contents[number + 1 :]])))
    first = difference(folder, "user:0")
    assert number <= first["record"] <= number + 3 and first["what"] and words in first["what"]


# --- damage, cuts, other platforms ------------------------------------------------------------------------------------


@pytest.mark.parametrize("party", ["recommender", "user:0"])
def test_a_broken_chain_is_named(folder, party):
    path = view_of(folder, party)
    view = path.read_bytes()
    ends = list(itertools.accumulate(len(record) for record in split(view)))
    for at in range(0, len(view), 101):
        number = next(number for number, end in enumerate(ends) if at < len(PREAMBLE) + end)
        path.write_bytes(view[:at] + bytes([view[at] ^ 0x10]) + view[at + 1 :])
        assert difference(folder, party)["record"] == number
        rows = {row["party"]: row for row in replay(folder)["parties"]}
        assert rows[party]["broken"] and rows[party]["records"] == number


@pytest.mark.parametrize("party", PARTIES)
def test_a_completed_view_that_was_cut_is_named(folder, party):
    records = split(view_of(folder, party).read_bytes())
    for kept in range(len(records)):
        for part in (0, 9):
            view_of(folder, party).write_bytes(joined(records[:kept]) + records[kept][:part])
            first = difference(folder, party)
            assert (first["record"], first["recorded"]) == (kept, None)
            assert first["what"] == "is missing: the view stops before its end"


@pytest.mark.parametrize("party", PARTIES)
def test_an_unfinished_view_is_replayed_as_far_as_it_goes(folder, party):
    (folder / "summary.json").unlink()
    view = view_of(folder, party).read_bytes()
    ends = [len(PREAMBLE), *(len(PREAMBLE) + end for end in itertools.accumulate(map(len, split(view))))]
    for end in [*range(0, len(view), 53), *ends]:
        view_of(folder, party).write_bytes(view[:end])
        found = replay(folder, party=party)
        (row,) = found["parties"]
        assert found["identical"], (end, row)
        assert row["records"] == sum(known <= end for known in ends[1:])
        assert row["ended"] == (end == len(view))


def on_another_platform(folder: Path) -> None:
    text = (folder / "run.toml").read_text()
    assert text.count("numpy = ") == 1
    (folder / "run.toml").write_text(text.replace('numpy = "', 'numpy = "0.'))


def keyhole(*arguments: object) -> Any:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], env={"COLUMNS": "200"})


def test_another_platform_may_differ_and_is_told_where(folder):
    on_another_platform(folder)
    assert replay(folder)["platform"] == "other"
    same = keyhole("replay", folder)
    assert same.exit_code == 0 and same.stderr == ""
    contents = bodies(folder, "user:0")
    at = max(number for number, body in enumerate(contents) if body[0] == SENT)
    rebuild(folder, "user:0", [*contents[:at], altered(contents[at]), *contents[at + 1 :]])
    result = keyhole("replay", folder)
    assert result.exit_code == 0
    assert result.stderr == f"keyhole: Other platform, differs first at user:0, record {at} (MaskedGradient).\n"
    assert not json.loads(keyhole("replay", folder, "--json").stdout)["identical"]


def test_another_platform_does_not_excuse_a_broken_chain(folder):
    on_another_platform(folder)
    path = view_of(folder, "user:0")
    view = path.read_bytes()
    path.write_bytes(view[:-1] + bytes([view[-1] ^ 1]))
    result = keyhole("replay", folder)
    assert result.exit_code == 4 and "user:0, record 14, does not fit the hash chain" in result.stderr


# --- the command ------------------------------------------------------------------------------------------------------


def test_the_command_says_what_it_found(folder):
    good = keyhole("replay", folder, "--json")
    assert good.exit_code == 0 and good.stderr == "" and json.loads(good.stdout)["identical"]
    contents = bodies(folder, "user:1")
    rebuild(folder, "user:1", [*contents[:3], altered(contents[3]), *contents[4:]])
    bad = keyhole("replay", folder)
    assert bad.exit_code == 4 and bad.stderr.count("\n") == 1
    recorded, derived = other(contents[3][5]).hex(), contents[3][5].hex()
    assert f"user:1, record 3, is not what this role does: recorded {recorded}, derived {derived}" in bad.stderr
    assert "4 of 5 views replay to the same bytes" in bad.stdout
    assert keyhole("replay", folder, "--party", "user:0").exit_code == 0
    assert keyhole("replay", folder, "--party", "user:1", "--json").exit_code == 4


def test_the_command_refuses_what_is_no_run_or_party(folder, tmp_path):
    for arguments in ((tmp_path,), (folder, "--party", "user:9"), (folder, "--party", "../model")):
        result = keyhole("replay", *arguments)
        assert result.exit_code == 2 and result.stdout == "" and result.stderr.count("\n") == 1


def test_only_a_replay_knows_the_result_of_a_run_without_summary_and_model(folder):
    """No other party knows anything of the END record, and the summary is gone; only the role knows its result."""
    contents = bodies(folder, "recommender")
    (folder / "summary.json").unlink()
    (folder / "model" / "item_factors.npy").unlink()
    rebuild(folder, "recommender", [*contents[:-2], altered(contents[-2])])
    assert verify(folder)["verified"]
    assert difference(folder, "recommender")["record"] == len(contents) - 2
