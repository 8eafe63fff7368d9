"""`keyhole verify`: every altered view is named; a run that is rewritten as a whole still has another anchor."""

from __future__ import annotations

import hashlib
import io
import itertools
import json
import re
import shutil
from pathlib import Path

import pytest
from support.tamper import (
    adapt_summary,
    altered,
    bodies,
    copy_of,
    joined,
    last_held,
    name_of,
    other,
    parties_of,
    rebuild,
    rechain,
    rechained,
    small_folder,
    split,
    view_of,
)

from protocol.party.view import END, PREAMBLE, RECEIVED, REJECTED, SENT, SIGNED
from sim.api import verify
from sim.views.evidence import Report, open_case
from sim.views.exchange import Exchange
from sim.views.viewcheck import ViewCheck, ViewDemand

PARTIES = ["recommender", "third_party", "user:0", "user:1", "user:2"]


@pytest.fixture(scope="module")
def another(tmp_path_factory):
    """Make the same run with another seed."""
    return small_folder(tmp_path_factory.mktemp("another") / "run", seed=2)


@pytest.fixture
def folder(base, tmp_path):
    return copy_of(base, tmp_path)


def findings(folder: Path, **options) -> list[tuple[str, int | None, str]]:
    found = verify(folder, **options)
    assert found["verified"] == (not found["findings"])
    return [(row["file"], row["record"], row["what"]) for row in found["findings"]]


def places(folder: Path) -> list[tuple[str, int | None]]:
    return [(file, record) for file, record, _ in findings(folder)]


# --- untouched runs ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"wire": "paper"},
        {"scheme": "dynamic", "data": "synthetic:6x4:.6", "iterations": 3, "join": 0.5, "leave": 0.3},
        {"scheme": "direct"},
        {"scheme": "trusted"},
        {"scheme": "plain"},
        {"transport": "tcp"},
        {"seed": None},
        {"faults": "3:.2"},
        {"views": "servers"},
        {"views": "sample:1"},
        {"views": "none"},
    ],
    ids=lambda changes: "-".join(str(value) for value in changes.values()) or "masked",
)
def test_an_untouched_run_verifies(changes, tmp_path):
    folder = small_folder(tmp_path / "run", **changes)
    summary = json.loads((folder / "summary.json").read_text())
    found = verify(folder, anchor=summary["anchor"]) if summary["anchor"] else verify(folder)
    assert found["findings"] == [] and found["notes"] == [] and found["verified"]
    assert found["views"] == len(summary["views"])
    assert found["records"] == sum(view["records"] for view in summary["views"].values())
    assert found["anchor"] == summary["anchor"]
    assert found["anchor_matches"] is (True if summary["anchor"] else None)


def test_what_cannot_be_derived_is_named(base):
    words = " ".join(verify(base)["not_covered"])
    assert all(word in words for word in ("accuracy", "seconds", "memory", "bytes on the wire", "iterations.jsonl"))
    assert "refused" not in words and "trained" not in words  # all views are here


# --- single bytes and records -----------------------------------------------------------------------------------------


def check_alone(case, party: str, view: bytes, known: tuple[int, bytes]) -> list[tuple[str, int | None]]:
    """Check one view as bytes, without the others, and return (file, record) of every finding."""
    report = Report()
    ViewCheck(case, party, ViewDemand(True, *known), Exchange(case, report), report).read(
        io.BytesIO(view), lambda count: None
    )
    return [(finding.file, finding.record) for finding in report.findings]


@pytest.mark.parametrize("party", PARTIES)
def test_every_flipped_byte_of_a_view_is_named(base, party):
    case, view = open_case(base), view_of(base, party).read_bytes()
    records = split(view)
    known = (len(records), records[-1][-32:])
    numbers = [None] * len(PREAMBLE) + [number for number, record in enumerate(records) for _ in record]
    assert len(numbers) == len(view) and check_alone(case, party, view, known) == []
    for at, number in enumerate(numbers):
        for flip in (0x01, 0x80):
            flipped = view[:at] + bytes([view[at] ^ flip]) + view[at + 1 :]
            assert check_alone(case, party, flipped, known) == [(name_of(party), number)], (at, flip)


@pytest.mark.parametrize("party", PARTIES)
def test_a_flipped_byte_is_the_only_finding_of_the_whole_run(folder, party):
    path = view_of(folder, party)
    view = path.read_bytes()
    ends = list(itertools.accumulate(len(record) for record in split(view)))
    for at in range(len(PREAMBLE), len(view), 61):
        number = next(number for number, end in enumerate(ends) if at < len(PREAMBLE) + end)
        path.write_bytes(view[:at] + bytes([view[at] ^ 0x10]) + view[at + 1 :])
        assert places(folder) == [(name_of(party), number)]


@pytest.mark.parametrize("party", PARTIES)
def test_a_view_cut_between_any_two_records_is_named(folder, party):
    records = split(view_of(folder, party).read_bytes())
    for kept in range(len(records)):
        view_of(folder, party).write_bytes(joined(records[:kept]))
        assert places(folder) == [(name_of(party), kept)]


@pytest.mark.parametrize("party", PARTIES)
def test_a_removed_a_repeated_and_two_exchanged_records_are_named(folder, party):
    records = split(view_of(folder, party).read_bytes())
    for at in range(len(records) - 1):
        for changed, named in (
            (records[:at] + records[at + 1 :], at),
            ([*records[: at + 1], records[at], *records[at + 1 :]], at + 1),
            ([*records[:at], records[at + 1], records[at], *records[at + 2 :]], at),
        ):
            view_of(folder, party).write_bytes(joined(changed))
            assert places(folder) == [(name_of(party), named)]


@pytest.mark.parametrize("party", PARTIES)
def test_a_record_of_another_run_is_named(folder, another, party):
    ours, theirs = (split(view_of(where, party).read_bytes()) for where in (folder, another))
    for at in range(len(ours)):
        view_of(folder, party).write_bytes(joined([*ours[:at], theirs[at], *ours[at + 1 :]]))
        assert places(folder)[0] == (name_of(party), at)


def test_a_record_of_another_party_is_named(folder):
    ours, theirs = (split(view_of(folder, party).read_bytes()) for party in ("user:0", "user:1"))
    for at in range(len(ours)):
        view_of(folder, "user:0").write_bytes(joined([*ours[:at], theirs[at], *ours[at + 1 :]]))
        assert places(folder)[0] == (name_of("user:0"), at)


@pytest.mark.parametrize("party", PARTIES)
def test_the_view_of_another_run_or_party_does_not_pass_for_this_one(folder, another, party):
    shutil.copy(view_of(another, party), view_of(folder, party))
    assert findings(folder) == [(name_of(party), 0, "names another run than run.toml")]
    stranger = "user:1" if party == "user:0" else "user:0"
    shutil.copy(view_of(folder, stranger), view_of(folder, party))
    assert findings(folder) == [(name_of(party), 0, "names another party than the file")]


def test_whatever_stands_behind_the_signature_is_named(folder):
    path = view_of(folder, "user:0")
    records = split(path.read_bytes())
    contents = [record[4:-32] for record in records]
    path.write_bytes(joined(rechain([*contents, contents[2]])))
    assert (name_of("user:0"), len(records)) in places(folder)
    path.write_bytes(joined(records) + b"\x00")
    assert places(folder) == [(name_of("user:0"), len(records))]


# --- a chain that is built anew ---------------------------------------------------------------------------------------


def names(folder: Path, party: str, number: int) -> bool:
    """Tell whether a finding names this record: by itself, as the other side of a frame, or in a range."""
    file = name_of(party)
    for where, record, what in findings(folder):
        between = re.search(r"one of the records (\d+) to (\d+)|: record (\d+) was altered", what)
        if where == file and between:
            first, last = int(between[1] or between[3]), int(between[2] or between[3])
            if first <= number <= last:
                return True
        if (where, record) == (file, number) or f"{file}, record {number}," in what:
            return True
    return False


@pytest.mark.parametrize("party", PARTIES)
def test_who_builds_a_chain_anew_contradicts_the_heads_that_others_hold(folder, party):
    """Every hash and the signature fit, and the summary is adapted, too."""
    contents, last = bodies(folder, party), last_held(folder)[party]
    assert last >= 10
    for number in range(1, last + 1):
        rebuild(folder, party, [*contents[:number], altered(contents[number]), *contents[number + 1 :]])
        adapt_summary(folder)
        assert names(folder, party, number), (number, findings(folder))
    rebuild(folder, party, contents)
    adapt_summary(folder)
    assert findings(folder) == []  # so it was not the rebuilding that was noticed


def test_the_heads_that_others_hold_narrow_down_what_was_altered(folder):
    """The input of user:0 is altered, which comes before its Hello, and then the record before its last frame."""
    contents = bodies(folder, "user:0")
    assert [body[0] == SENT for body in contents[1:11]] == [0, 1, 1, 0, 0, 0, 1, 1, 0, 1]
    rebuild(folder, "user:0", [contents[0], altered(contents[1]), *contents[2:]])
    assert any(what.endswith("one of the records 0 to 1 was altered afterwards") for _, _, what in findings(folder))
    rebuild(folder, "user:0", [*contents[:9], altered(contents[9]), *contents[10:]])
    assert any(what.endswith("one of the records 8 to 9 was altered afterwards") for _, _, what in findings(folder))


@pytest.mark.parametrize("party", PARTIES)
def test_what_is_altered_after_the_last_frame_contradicts_the_summary(folder, party):
    contents, last = bodies(folder, party), last_held(folder)[party]
    tail = range(last, len(contents) - 1)
    assert contents[tail[-1]][0] == END
    for number in tail:
        rebuild(folder, party, [*contents[:number], altered(contents[number]), *contents[number + 1 :]])
        assert (name_of(party), len(contents) - 1) in places(folder)


@pytest.mark.parametrize("party", PARTIES)
def test_who_drops_what_it_sent_last_and_signs_again_is_contradicted(folder, party):
    contents, last = bodies(folder, party), last_held(folder)[party]
    rebuild(folder, party, [*contents[:last], contents[-2]])
    adapt_summary(folder)
    words = "holds a frame that this view does not know"
    found = [(file, record) for file, record, what in findings(folder) if words in what]
    assert found == [(name_of(party), last + 2)]  # behind END and SIGNED


def test_a_frame_that_came_after_the_last_word_contradicts_its_sender(folder):
    """No party holds a later head of this view, but the view of the frame's sender shows what it was."""
    for party in PARTIES[1:]:
        contents = bodies(folder, party)
        assert contents[-3][0] == RECEIVED and last_held(folder)[party] < len(contents) - 3
        rebuild(folder, party, [*contents[:-3], altered(contents[-3]), *contents[-2:]])
        adapt_summary(folder)
        (found,) = findings(folder)
        assert found[:2] == (name_of(party), len(contents) - 3) and "views/recommender.view, record" in found[2]
        rebuild(folder, party, contents)


def test_a_refused_frame_that_used_its_number_is_compared_too(folder):
    contents = bodies(folder, "user:0")
    assert contents[11][0] == RECEIVED
    sender, frame = contents[11][1:]
    refused = [REJECTED, sender, "WRONG_KIND", len(frame), hashlib.sha256(frame).digest(), True]
    rebuild(folder, "user:0", [*contents[:11], refused, *contents[12:]])
    adapt_summary(folder)
    count = ("summary.json", None, 'says rejected = {}, which is {"WRONG_KIND": 1}')
    assert findings(folder) == [count]
    refused[4] = other(refused[4])
    rebuild(folder, "user:0", [*contents[:11], refused, *contents[12:]])
    adapt_summary(folder)
    assert (name_of("user:0"), 11) in places(folder)


@pytest.mark.parametrize("party", PARTIES)
def test_a_view_that_was_cut_has_no_end_whatever_the_summary_says(folder, party):
    records = split(view_of(folder, party).read_bytes())
    for kept in (len(records) - 1, len(records) - 2):
        view_of(folder, party).write_bytes(joined(records[:kept]))
        adapt_summary(folder)
        assert (name_of(party), kept) in places(folder)


def test_an_event_that_is_altered_is_noticed_too(tmp_path):
    folder = small_folder(tmp_path / "run", scheme="dynamic", data="synthetic:6x4:.6", join=0.5, leave=0.3)
    count = 0
    for party, last in last_held(folder).items():
        contents = bodies(folder, party)
        for number in range(2, last):
            if contents[number][0] in (SENT, RECEIVED):
                continue
            rebuild(folder, party, [*contents[:number], altered(contents[number]), *contents[number + 1 :]])
            adapt_summary(folder)
            assert names(folder, party, number)
            count += 1
        rebuild(folder, party, contents)
    assert count >= 5


ODD_RECORDS = {
    "a second header": (3, lambda body, first: first, "is a second header"),
    "no header": (0, lambda body, first: [END, bytes(32)], "is not a header"),
    "no input": (1, lambda body, first: [END, bytes(32)], "is not what the party brought"),
    "an input without ratings": (1, lambda body, first: [1, {"tape_seed": bytes(32)}], "is not what such a party"),
    "an input in words": (1, lambda body, first: [1, {"tape_seed": "x"}], "is not what such a party brings"),
    "other types": (2, lambda body, first: [SENT, 1, 2, 3, 4, 5], "does not have the fields of its type"),
    "too few fields": (4, lambda body, first: [RECEIVED, "recommender"], "does not have the fields of its type"),
    "a type that is true": (4, lambda body, first: [True, "recommender"], "is of no known type"),
    "a type with a point": (2, lambda body, first: [3.0, *body[1:]], "is of no known type"),
    "a digest that is too long": (2, lambda body, first: [*body[:5], bytes(33)], "does not have the fields"),
    "a result that is too short": (-2, lambda body, first: [END, bytes(31)], "does not have the fields of its type"),
    "a frame that is all head": (4, lambda body, first: [*body[:2], bytes(32)], "does not have the fields of its type"),
    "an event of nothing": (2, lambda body, first: [5], "does not have the fields of its type"),
    "a party that is none": (4, lambda body, first: [RECEIVED, "user:3", body[2]], "names a party that does not exist"),
    "a reason that is none": (4, lambda body, first: [4, "user:1", "TIRED", 3, bytes(32), False], "for a reason that"),
    "a signature too soon": (4, lambda body, first: [SIGNED, bytes(64)], "where the view has no end"),
    "something after the end": (11, lambda body, first: [END, bytes(32)], "stands behind the end"),
    "another key": (0, lambda body, first: [*body[:-1], bytes(32)], "another key of the signature"),
    "no simulation": (0, lambda body, first: [*body[:5], False, body[6]], "whether the seed was given"),
    "other parameters": (0, lambda body, first: [*body[:4], bytes(32), *body[5:]], "is of other parameters"),
    "another scheme": (0, lambda body, first: [*body[:3], "plain", *body[4:]], "names another scheme"),
}


@pytest.mark.parametrize("name", ODD_RECORDS)
def test_a_record_that_no_party_writes_is_named(folder, name):
    number, change, words = ODD_RECORDS[name]
    contents = bodies(folder, "user:0")
    contents[number] = change(contents[number], contents[0])
    view_of(folder, "user:0").write_bytes(joined(rechained(contents)))
    at = number + 1 if "after the end" in name else number % len(contents)
    assert any((file, record) == (name_of("user:0"), at) and words in what for file, record, what in findings(folder))


def test_a_signature_of_somebody_else_is_named(folder):
    contents = bodies(folder, "user:0")
    for forged in (other(contents[-1][1]), bodies(folder, "user:1")[-1][1], b"", bytes(64)):
        view_of(folder, "user:0").write_bytes(joined(rechained([*contents[:-1], [SIGNED, forged]])))
        adapt_summary(folder)
        assert findings(folder) == [(name_of("user:0"), len(contents) - 1, "is not this party's signature")]


# --- everything rewritten ---------------------------------------------------------------------------------------------


def test_who_rewrites_every_file_is_caught_by_the_anchor_alone(base, another):
    """Another run is put in the place of this one, so every file fits every other."""
    printed = json.loads((base / "summary.json").read_text())["anchor"]
    assert verify(another)["verified"]
    found = verify(another, anchor=printed)
    assert not found["verified"] and found["anchor_matches"] is False
    assert [row["file"] for row in found["findings"]] == ["views"]
    assert printed in found["findings"][0]["what"] and found["anchor"] in found["findings"][0]["what"]
    assert verify(base, anchor=printed.upper())["anchor_matches"] is True


def test_a_view_that_cannot_be_read_has_no_part_in_an_anchor(folder):
    printed = verify(folder)["anchor"]
    view_of(folder, "user:2").write_bytes(b"KEYHOLE")
    found = verify(folder, anchor=printed)
    assert found["anchor"] is None and found["anchor_matches"] is False
    assert parties_of(folder) == PARTIES
