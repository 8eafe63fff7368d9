"""`keyhole view` for a person: units, filters, missing values, pages, and a view that is larger than the memory."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from support.runs import long
from support.tamper import bodies, small_folder, view_of
from typer.testing import CliRunner

from protocol.party.view import Header, ViewWriter
from protocol.schemes import SCHEMES
from protocol.wire.fields import field_kinds
from protocol.wire.messages import Again, MaskedGradient
from sim.api import run, view
from sim.cli.app import app
from sim.console import console
from sim.views.evidence import open_case
from sim.views.viewing import Filter, Reader, Selection, brief, read_view


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return small_folder(tmp_path_factory.mktemp("pages") / "run")


def keyhole(*arguments: object, width: int = 200):
    with mock.patch.object(console.out, "_width", width):  # COLUMNS is read once, when the console is made
        return CliRunner().invoke(app, ["view", *map(str, arguments)])


def refused(result, *words: str) -> None:
    assert (result.exit_code, result.stdout) == (2, "") and result.stderr.count("\n") == 1
    for word in words:
        assert word in result.stderr


# --- units -----------------------------------------------------------------------------------------------------------


def test_fields_are_shown_with_their_units(folder):
    params = open_case(folder).card.params
    unit = f"values (ring elements mod 2^{params.ring_bits}, unit 2^-{params.fraction_bits}) = uint32["
    text = keyhole(folder, "third_party", "--iteration", 0).stdout
    for words in (unit, "items (item ids) =", "users (user ids) =", "floors (contributors, one count per item) ="):
        assert words in text
    text = keyhole(folder, "user:0").stdout
    for words in ("factors (float32 factors, one row per item)", "mask_key (32-byte key)", "item_keys (32-byte keys)"):
        assert words in text
    assert "ratings (on the scale of the data)" in text


def test_json_has_the_units_beside_the_fields(folder):
    rows = json.loads(keyhole(folder, "recommender", "--kind", "received", "--json").stdout)
    assert len(rows) > 5 and all(set(row["units"]) == set(row["fields"]) for row in rows)
    total = next(row for row in rows if row["kind"] == "MaskedTotal")
    assert total["units"]["values"].startswith("ring elements mod 2^32") and total["units"]["items"] == "item ids"


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_field_of_every_message_has_a_unit(scheme, folder):
    card = open_case(folder).card
    reader = Reader("user:0", card.codec, card.params, brief)
    for cls in (*SCHEMES[scheme].messages, Again):
        units = reader.units(cls)
        assert list(units) == [name for name, _ in field_kinds(cls)] and all(units.values())


# --- filters, and values that the view does not have -----------------------------------------------------------------


def test_a_kind_that_is_not_there_is_refused_with_those_that_are(folder):
    for flags in ((), ("--json",)):
        refused(keyhole(folder, "user:0", "--kind", "Nope", *flags), "kinds:", "ItemFactors", "Welcome", "signed")


def test_an_iteration_that_is_not_there_is_refused_with_those_that_are(folder):
    for flags in ((), ("--json",)):
        refused(keyhole(folder, "user:0", "--iteration", 99, *flags), "iterations: 0 to 2 and -1")


def test_a_sender_that_is_not_there_is_refused_with_those_that_are(folder):
    refused(keyhole(folder, "third_party", "--sender", "user:9"), "has no party 'user:9'", "user:0 … user:2")
    refused(keyhole(folder, "user:0", "--sender", "third_party"), "senders: user:0, recommender")
    rows = json.loads(keyhole(folder, "third_party", "--sender", "user:1", "--json").stdout)
    assert {row["sender"] for row in rows} == {"user:1"} and len(rows) == 3  # Hello and two iterations


def test_what_exists_apart_but_not_together_is_refused_too(folder):
    refused(keyhole(folder, "user:0", "--kind", "Welcome", "--iteration", 1), "kinds:", "iterations:")


def test_records_are_a_half_open_span(folder):
    rows = json.loads(keyhole(folder, "user:0", "--records", "2:5", "--json").stdout)
    assert [row["record"] for row in rows] == [2, 3, 4]
    last = json.loads(keyhole(folder, "user:0", "--json").stdout)[-1]["record"]
    assert [
        row["record"] for row in json.loads(keyhole(folder, "user:0", "--records", f"{last}:", "--json").stdout)
    ] == [last]
    assert len(json.loads(keyhole(folder, "user:0", "--records", ":3", "--json").stdout)) == 3
    for wrong in ("5", "5:2", "3:3", "a:b", "-1:4"):
        refused(keyhole(folder, "user:0", f"--records={wrong}"), "--records")
    refused(keyhole(folder, "user:0", "--records", "900:"), f"ends with record {last}")


# --- pages -----------------------------------------------------------------------------------------------------------


def test_the_last_line_says_what_is_further_and_how_to_see_it(folder):
    """A person who follows the last lines page by page sees every record once."""
    whole = [row["record"] for row in view(folder, "third_party")]
    shown, flags, pages = [], ["--limit", "7"], 0
    while True:
        result = keyhole(folder, "third_party", *flags)
        assert result.exit_code == 0
        shown += numbers(result.stdout)
        pages += 1
        if "more record" not in result.stdout:
            break
        last = result.stdout.strip().splitlines()[-1]
        assert last.startswith(f"{len(whole) - len(shown)} more record")
        flags = last.partition("third_party ")[2].split()
    assert shown == whole and pages == -(-len(whole) // 7) > 2


def test_what_is_further_is_counted_among_what_is_asked_for(folder):
    result = keyhole(folder, "third_party", "--kind", "MaskedGradient", "--limit", 4)
    last = result.stdout.strip().splitlines()[-1]
    assert last.startswith("2 more records: keyhole view ") and "--kind MaskedGradient" in last  # 3 users, 2 iterations
    spanned = keyhole(folder, "third_party", "--records", "0:9", "--limit", 4).stdout.strip().splitlines()[-1]
    assert spanned.startswith("5 more records") and "--records 4:9" in spanned


@pytest.mark.parametrize("width", [60, 80, 130])
def test_a_page_is_not_wider_than_the_terminal(folder, width):
    lines = keyhole(folder, "third_party", "--limit", 12, width=width).stdout.splitlines()
    table = [line for line in lines if line.startswith(("│", "┃", "└"))]
    assert len(table) > 12 and all(line.endswith(("│", "┃", "┘")) and len(line) <= width for line in table)


def test_a_page_is_printed_before_the_next_is_read(folder, monkeypatch):
    """No more than one page of records is therefore held at a time."""
    (record,) = Selection(read_view(folder, "user:0"), Filter(kind="Welcome"))
    printed = []
    monkeypatch.setattr(console.out, "print", lambda table: printed.append(table.row_count))

    def many():
        for number in range(120):
            assert sum(printed) == number // 50 * 50
            yield record | {"record": number}

    console.show_records(many(), "user:0")
    assert printed == [50, 50, 20]


def numbers(text: str) -> list[int]:
    cells = [line.split("│")[1].strip() for line in text.splitlines() if line.startswith("│")]
    return [int(cell) for cell in cells if cell]


def test_records_stream_and_the_limit_stops_the_reading(folder):
    """The reader is not asked for more than one record beyond the limit."""
    read = []

    def watched():
        for record in read_view(folder, "third_party"):
            read.append(record["record"])
            yield record

    chosen = Selection(watched(), Filter(), 3)
    assert [record["record"] for record in chosen] == [0, 1, 2] and read == [0, 1, 2, 3]
    assert chosen.next_record == 3


# --- a view that is larger than the memory ---------------------------------------------------------------------------

MEASURE = """
import sys
from sim.cli.app import app
try:
    app(sys.argv[1:])
except SystemExit as end:
    assert not end.code, end
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(peak.split()[1], file=sys.stderr)
"""


def peak_of(*arguments: object) -> tuple[int, str]:
    """Run `keyhole view` in its own process; return (the most bytes that it held, its output)."""
    command = [sys.executable, "-c", MEASURE, "view", *map(str, arguments)]
    result = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[3], check=True)
    return 1024 * int(result.stderr.split()[-1]), result.stdout


def large_view(folder: Path, size: int) -> int:
    """Write a third party's view of `size` bytes with messages of about 1 MB, and return its number of records."""
    flags = {"data": "synthetic:3x30000:.9", "dim": 8, "iterations": 1, "epsilon": float("inf"), "test_fraction": 0.0}
    assert run(scheme="masked", transport="inprocess", seed=1, out=folder, **flags)["completed"]
    card = open_case(folder).card
    header, opening = (body[1:] for body in bodies(folder, "third_party")[:2])
    writer, items = ViewWriter(), np.arange(30_000, dtype=np.uint32)
    rows = np.arange(30_000 * 8, dtype=np.uint32).reshape(-1, 8)
    frame = card.codec.encode(MaskedGradient(0, items, rows), 1)
    with view_of(folder, "third_party").open("wb") as stream:
        stream.write(writer.opening(Header(*header), opening[0]))
        while stream.tell() < size:
            stream.write(writer.received("user:0", frame))
    return writer.records


def check_memory(folder: Path, size: int) -> None:
    """Check that a view of `size` bytes takes at most 30 MB more memory than a view of 5 MB."""
    few, many = large_view(folder / "few", 5_000_000), large_view(folder / "many", size)
    assert many > 15 * few
    for flags in (["--limit", 10**9], ["--json"]):
        small, _ = peak_of(folder / "few", "third_party", *flags)
        large, text = peak_of(folder / "many", "third_party", *flags)
        assert large - small < 30e6, flags
        assert text.count("MaskedGradient") == many - 2
    assert f"{many - 50} more records" in peak_of(folder / "many", "third_party")[1]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="The peak is read from /proc.")
def test_a_view_of_150_mb_is_paged_without_being_loaded(tmp_path):
    check_memory(tmp_path, 150_000_000)


@long
def test_a_view_of_1_gb_is_paged_without_being_loaded(tmp_path):
    check_memory(tmp_path, 1_000_000_000)
