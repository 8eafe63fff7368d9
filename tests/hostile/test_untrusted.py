"""Everything read from a run folder is only data: from regular files inside it, bounded, and shown visibly."""

from __future__ import annotations

import json
import os
import re
import resource
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pytest
from rich.console import Console
from support.tamper import bodies, joined, rechained, view_of

from protocol.errors import BadInput
from protocol.party import view
from protocol.party.view import EVENT, Broken, CutOff, read_records
from sim import api
from sim.console import console as show
from sim.folder.folder import locked, read_document, read_run, read_summary
from sim.foreign import plain_text, untrusted
from sim.foreign.bounds import check_params
from sim.notebook.notebook import load

ROOT = Path(__file__).parents[2]
START = "from sim.cli.entry import main; main()"
COMMANDS = ("verify", "audit", "bandwidth", "replay", "view", "report", "resume")
HANGS = 600.0  # seconds; a machine may be busy
EVIL = "\x1b[31m\u202eevil\x9b1m[red][link=http://x]l[/]\ud800"


def keyhole(*arguments: object, megabytes: int = 2000) -> subprocess.CompletedProcess[str]:
    def bound() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (megabytes << 20, megabytes << 20))

    command = [sys.executable, "-c", START, *map(str, arguments)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, errors="replace", timeout=HANGS, preexec_fn=bound
    )


def asked(command: str, folder: Path) -> list[str]:
    flags = {"view": ["user:0"], "audit": ["--only", "inventory"], "report": ["--quiet"]}
    return [command, str(folder), *flags.get(command, [])]


def refused_in_words(done: subprocess.CompletedProcess[str], *codes: int) -> None:
    assert done.returncode in codes, (done.returncode, done.stderr)
    assert done.stderr.startswith("keyhole: ") and done.stderr.count("\n") == 1


def with_toml(folder: Path, pattern: str, value: str) -> None:
    path = folder / "run.toml"
    text, count = re.subn(pattern, value, path.read_text("utf-8"), flags=re.M)
    assert count
    path.write_text(text, "utf-8")


# --- files that are not regular --------------------------------------------------------------------------------------

FILES = ("run.toml", "summary.json", "bandwidth.json", "iterations.jsonl", "views/user-0.view", "lock")


@pytest.mark.parametrize(
    ("file", "command"),
    [
        (file, command)
        for file in FILES
        for command in COMMANDS
        if command != "report" or file in ("run.toml", "iterations.jsonl")  # report audits first, which takes long
    ],
)
def test_a_fifo_hangs_nobody(folder, command, file):
    (folder / file).unlink()
    os.mkfifo(folder / file)
    done = keyhole(*asked(command, folder))
    assert done.returncode in (0, 2, 4), done.stderr
    if done.returncode:
        refused_in_words(done, 2, 4)


def test_a_device_and_a_fifo_are_no_regular_files(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    os.symlink("/dev/zero", tmp_path / "zero")
    for path in (tmp_path / "pipe", tmp_path / "zero"):
        with pytest.raises(untrusted.Unreadable, match="regular"):
            untrusted.open_regular(path)


def test_a_pipe_is_no_data(folder, tmp_path):
    os.mkfifo(tmp_path / "ratings.csv")
    with_toml(folder, r'^data = ".*"', f'data = "{tmp_path}/ratings.csv"')
    refused_in_words(keyhole("run", "--data", str(tmp_path / "ratings.csv"), "--out", str(tmp_path / "made")), 2)
    assert keyhole("bandwidth", folder).returncode == 0  # it reads supports from the views, and does not wait


@pytest.mark.parametrize("file", ["summary.json", "iterations.jsonl", "views/user-0.view", "model/item_factors.npy"])
def test_a_link_out_of_the_folder_is_not_followed(folder, tmp_path, file):
    (folder / file).rename(tmp_path / "elsewhere")
    os.symlink(tmp_path / "elsewhere", folder / file)
    with pytest.raises(untrusted.Unreadable, match="leads out"):
        untrusted.open_inside(folder, file)
    if file != "iterations.jsonl":  # a file that verify does not check
        assert not api.verify(folder)["verified"]


def test_a_link_within_the_folder_is_followed_and_one_to_itself_is_not(folder):
    os.symlink("user-0.view", folder / "views" / "again.view")
    untrusted.open_inside(folder, "views/again.view").close()
    os.symlink("loop", folder / "loop")
    with pytest.raises(untrusted.Unreadable):
        untrusted.open_inside(folder, "loop")


def test_folders_that_are_links_are_not_followed_either(folder, tmp_path):
    (folder / "views").rename(tmp_path / "views")
    os.symlink(tmp_path / "views", folder / "views")
    assert not api.verify(folder)["verified"]
    refused_in_words(keyhole("view", folder, "user:0"), 2)


@pytest.mark.parametrize("file", ["lock", "views/user-0.view", "iterations.jsonl", "views/user-0.view.cut", "model"])
def test_nothing_is_written_through_a_link(folder, tmp_path, file):
    victim = tmp_path / "victim"
    victim.write_text("mine")
    if (folder / file).exists():
        (folder / file).rename(folder / "aside")
    (folder / "summary.json").unlink()
    os.symlink(victim, folder / file)
    refused_in_words(keyhole("resume", folder), 2)
    with pytest.raises(BadInput, match="link"), locked(folder):
        pass
    assert victim.read_text() == "mine"


def test_a_page_replaces_a_link_and_not_what_it_leads_to(folder, tmp_path):
    victim = tmp_path / "victim.html"
    victim.write_text("mine")
    os.symlink(victim, folder / "report.html")
    os.symlink(victim, folder / "report.html.part")
    load(folder).report(repetitions=400)
    assert victim.read_text() == "mine" and not (folder / "report.html").is_symlink()


# --- sizes -----------------------------------------------------------------------------------------------------------


def test_a_record_is_held_against_what_is_left_before_it_is_read(tmp_path):
    path = tmp_path / "long.view"
    path.write_bytes(view.PREAMBLE + struct.pack("<I", (1 << 30) - 1) + b"x")

    class Stream:
        def __init__(self, inner):
            self.inner, self.asked = inner, []

        def read(self, count=-1):
            self.asked.append(count)
            return self.inner.read(count)

        def __getattr__(self, name):
            return getattr(self.inner, name)

    with path.open("rb") as inner, pytest.raises(CutOff):
        list(read_records(stream := Stream(inner)))
    assert max(stream.asked) < 100


@pytest.mark.parametrize(
    "body",
    [
        b"\x92\x05" + b"\xdd\x00\x10\x00\x00" * 1000 + bytes(1 << 20),  # an event of lists in lists
        b"\x92\x02" + b"\x91" * 2000,
        b"\x92\x01" + b"\xdf\x00\x10\x00\x00" + bytes(1 << 20),  # a map that claims a million entries
        b"\xdd\x00\x10\x00\x00" + bytes(1 << 20),
        b"",
    ],
    ids=["event", "nested", "map", "array", "empty"],
)
def test_a_record_of_another_form_is_broken_and_takes_no_memory(folder, body):
    contents = bodies(folder, "user:0")
    good = joined(rechained(contents[:2]))
    prefix = len(body).to_bytes(4, "little")
    head = view.hashlib.sha256(good[-32:] + prefix + body).digest()
    view_of(folder, "user:0").write_bytes(good + prefix + body + head)
    with view_of(folder, "user:0").open("rb") as stream, pytest.raises(Broken, match="record 2"):
        list(read_records(stream))


def test_an_event_may_not_be_longer_than_any_list_of_users(monkeypatch):
    monkeypatch.setattr(view, "MOST_EVENT_BYTES", 100)
    body = msgpack.packb([EVENT, "Due", 1, list(range(100))])
    with pytest.raises(Broken, match="an event of"):
        view._unpack(body, 3)


DEEP = 100_000
TEXTS = {
    "deep": "[" * DEEP + "]" * DEEP,
    "nested": "[" * 200 + "]" * 200,
    "not a number": '{"completed": NaN}',
    "no document": "7",
    "half a letter": '{"completed": true, "scheme": "\\ud800"}',
    "long number": '{"completed": ' + "9" * 5000 + "}",
}


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("file", ["summary.json", "bandwidth.json", "iterations.jsonl"])
def test_json_that_is_not_what_it_must_be_is_refused(folder, name, file):
    (folder / file).write_text(TEXTS[name] + "\n")
    if file == "summary.json":
        with pytest.raises(BadInput, match="damaged"):
            read_summary(folder)
    with pytest.raises(Broken):
        api.bandwidth(folder)


def _changed(document: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    *tables, last = path.split(".")
    place = document
    for name in tables:
        place = place[name]
    if value is GONE:
        del place[last]
    else:
        place[last] = value
    return document


GONE = object()
WRONG = [
    ("bytes.total", -1, "`$.bytes.total` must be a whole number of at least 0"),
    ("bytes.total", 2**53 + 1, "`$.bytes.total` must be a whole number of at most 9007199254740992"),
    ("bytes.edges", {"user->recommender": 1.0}, "`$.bytes.edges[...]` must be a whole number, not a number"),
    ("accuracy.plain.test_rmse", "1", "`$.accuracy.plain.test_rmse` must be a number or null, not a text"),
    ("accuracy.test_mae", True, "`$.accuracy.test_mae` must be a number or null, not true or false"),
    ("notes", ["x", 3], "`$.notes[1]` must be a text, not a whole number"),
    ("completed", GONE, "has no required field completed"),
    ("privacy.accounted.recommender", {}, "`$.privacy.accounted.recommender` has no required field median"),
    ("abort", {"reason": "STALLED", "sentence": "x"}, "completed and abort contradict each other"),
    ("users", 0, "`$.users` must be a whole number of at least 1"),
]


@pytest.mark.parametrize(("path", "value", "words"), WRONG)
def test_a_summary_that_is_refused_names_the_place(folder, path, value, words):
    file = folder / "summary.json"
    file.write_text(json.dumps(_changed(json.loads(file.read_text()), path, value)))
    with pytest.raises(BadInput) as refused:
        read_summary(folder)
    assert str(refused.value) == f"{file} is damaged ({words}): remove it and resume the run again."


def test_a_field_of_a_newer_keyhole_is_read_past(folder):
    file = folder / "summary.json"
    document = json.loads(file.read_text())
    for path in ("newer", "bytes.newer", "accuracy.plain.newer", "privacy.accounted.newer"):
        _changed(document, path, {"any": ["thing"]})
    file.write_text(json.dumps(document))
    assert read_summary(folder) == document


def test_what_is_nested_deeply_is_refused_as_soon_as_it_is_read():
    untrusted.parse_json(b"[" * 32 + b"]" * 32)
    for parse, text in ((untrusted.parse_json, "[" * 33 + "]" * 33), (untrusted.parse_toml, "a." * 40 + "b = 1")):
        with pytest.raises(ValueError, match="nested"):
            parse(text.encode())


@pytest.mark.parametrize(
    "text", ["a = " + "[" * 3000 + "]" * 3000, "a." * 200 + "b = 1", "x = 1\n" + "#" * (1 << 17), "run = 3", "\xff"]
)
def test_toml_that_is_not_what_it_must_be_is_refused(folder, text):
    (folder / "run.toml").write_bytes(text.encode("latin-1"))
    with pytest.raises(BadInput):
        read_document(folder)


def test_a_file_that_claims_nothing_but_is_endless_is_not_read(folder):
    os.truncate(folder / "summary.json", 1 << 40)
    os.truncate(folder / "run.toml", 1 << 40)
    with pytest.raises(ValueError, match="more than"):
        untrusted.read_bytes(folder, "summary.json", 1000)
    with pytest.raises(BadInput, match="more than"):
        read_document(folder)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("n_users", "1000000000"), ("n_users", "-3"), ("n_users", "0"), ("n_users", "1e3"), ("n_users", '"4"'),
        ("n_items", "4000000000"), ("dim", "1000000"), ("iterations", "99999999999"), ("iterations", "0"),
        ("ring_bits", "33"), ("ring_bits", "100000"), ("fraction_bits", "100000"), ("factor_bits", "8"),
        ("epsilon", "nan"), ("epsilon", "0.0"), ("clip", "inf"), ("rating_max", "-1.0"), ("max_raters", "0"),
        ("min_contributors", "9999"), ("dropout_allowance", "1.0"), ("wire", '"long"'), ("learning_rate", "inf"),
    ],
)  # fmt: skip
def test_a_parameter_out_of_range_is_refused_before_it_sizes_anything(folder, setting, value):
    with_toml(folder, rf"^{setting} = .*$", f"{setting} = {value}")
    with pytest.raises(BadInput):
        read_run(folder)


@pytest.mark.parametrize(
    ("cheat", "words"),
    [
        ("5", "`$.run.cheat` must be a text or null, not a whole number"),
        ('"user:sleep"', "There is no cheat 'user:sleep'"),
    ],
)
def test_a_cheat_that_is_none_is_refused(folder, cheat, words):
    file = folder / "run.toml"
    file.write_text(file.read_text().replace("[run]", f"[run]\ncheat = {cheat}", 1))
    with pytest.raises(BadInput) as refused:
        read_run(folder)
    assert words in str(refused.value)


def test_the_folder_of_an_earlier_keyhole_is_refused_in_words(folder):
    with_toml(folder, "^format = .*$", "format = 1")
    with pytest.raises(BadInput, match="has format 1, and this Keyhole reads format 2: read it with the Keyhole that"):
        read_run(folder)


def test_the_largest_runs_that_there_are_fit(folder):
    for users, items, dim in ((191_668, 100, 10), (162_541, 59_047, 50)):
        with_toml(folder, "^n_users = .*$", f"n_users = {users}")
        with_toml(folder, "^n_items = .*$", f"n_items = {items}")
        with_toml(folder, "^dim = .*$", f"dim = {dim}")
        check_params(read_run(folder)[1].params)


def test_an_array_is_held_against_the_file_before_it_is_mapped(folder):
    path = folder / "model" / "item_factors.npy"
    np.save(path, np.zeros((2, 3)))
    assert untrusted.map_array(folder, "model/item_factors.npy").shape == (2, 3)
    whole = path.read_bytes()
    for claimed in (b"(20000000000, 3)", b"(2, -3)", b"(2, 4)", b"(6,)", b"(2, 3.0)"):
        text = whole[10:128].replace(b"(2, 3)", claimed).rstrip() + b"\n"
        path.write_bytes(whole[:8] + struct.pack("<H", len(text)) + text + whole[128:])
        with pytest.raises(ValueError, match=r"shape|header"):
            untrusted.map_array(folder, "model/item_factors.npy")
    for array in (np.zeros((2, 3), object), np.zeros((2, 3), "<f4"), np.zeros((2, 3), order="F")):
        path.write_bytes(_header(array))
        with pytest.raises(ValueError, match=r"shape|header"):
            untrusted.map_array(folder, "model/item_factors.npy")


def _header(array: np.ndarray) -> bytes:
    """Build a file with the header of `array` and zeros as its data, so that nothing here makes a pickle."""
    import io

    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, np.lib.format.header_data_from_array_1_0(array))
    return file.getvalue() + bytes(48)


def test_what_is_left_is_a_sentence(monkeypatch, capsys):
    import typer

    from protocol import schemes
    from sim.cli.endings import guarded

    monkeypatch.setattr(schemes, "_OWN", {})  # with a person's own scheme loaded, this file would count as its code
    for error in (MemoryError, RecursionError):

        def fails(raised: type = error) -> None:
            raise raised

        with pytest.raises(typer.Exit) as ended:
            guarded(fails)()
        assert ended.value.exit_code == 2 and capsys.readouterr().err.startswith("keyhole: This needs more")


# --- names that are shown --------------------------------------------------------------------------------------------


def test_control_characters_are_shown_by_their_numbers():
    assert plain_text.visible("a\x1b[0m\n\tü λ") == "a⟨U+001B⟩[0m\n\tü λ"
    for character in "\x07\x7f\x9b\u061c\u200b\u202e\u2066\u2028\ufeff\ud800\U000e0041":
        assert plain_text.visible(character) == f"⟨U+{ord(character):04X}⟩"


def test_json_has_no_character_that_a_terminal_obeys_and_says_the_same():
    for text in (plain_text.json_text({EVIL: [EVIL, "ü"]}), plain_text.one_line({EVIL: [EVIL, "ü"]})):
        assert json.loads(text) == {EVIL: [EVIL, "ü"]}
        assert not plain_text._UNSEEN.search(text)
        text.encode()


def test_cells_that_would_be_formulas_are_text():
    assert [plain_text.csv_cell(text) for text in ("=1+1", "+1", "-1", "@x", "\tx", "\rx")] == [
        "'=1+1", "'+1", "'-1", "'@x", "'\tx", "'⟨U+000D⟩x",
    ]  # fmt: skip
    assert [plain_text.csv_cell(value) for value in (-1, -1.5, None, "a-b")] == [-1, -1.5, None, "a-b"]


def _evil_kind(folder: Path) -> None:
    """Give one kind of message a name that is a formula with an escape sequence, in both files."""
    kind = json.dumps("=" + EVIL)
    for file in ("iterations.jsonl", "bandwidth.json"):
        path = folder / file
        path.write_text(path.read_text("utf-8").replace('"Join"', kind), "utf-8")


@pytest.mark.parametrize("form", [[], ["--json"], ["--csv"], ["--by", "kind"]])
def test_names_in_a_folder_do_not_reach_the_terminal(folder, form):
    _evil_kind(folder)
    done = keyhole("bandwidth", folder, *form)
    assert done.returncode == 0, done.stderr
    assert "evil" in done.stdout and not plain_text._UNSEEN.search(done.stdout + done.stderr)
    if form == ["--csv"]:
        assert ",'=" in done.stdout and ",=" not in done.stdout
    elif form != ["--json"]:
        assert "[red]" in done.stdout.replace("\n", "").replace(" ", "")


def test_names_in_sentences_are_visible(folder):
    with_toml(folder, r'^scheme = "masked"', 'scheme = "\\\\u001b[31m\\\\u202e"')
    done = keyhole("verify", folder)
    refused_in_words(done, 2)
    assert not plain_text._UNSEEN.search(done.stderr.rstrip("\n"))


def test_what_is_printed_in_tables_is_visible(capsys):
    console = Console(force_terminal=True, highlight=False, width=200)
    console.push_render_hook(show._Visible())
    table = show.plain_table(EVIL, EVIL)
    console.print(table)
    printed = capsys.readouterr().out
    assert "[red]" in printed and "⟨U+202E⟩" in printed and "⟨U+001B⟩" in printed and "\u202e" not in printed


def test_names_on_a_page_are_visible_and_escaped(folder):
    from sim.report.charts import chart
    from sim.report.section import table

    html = str(table(["name"], [[f"<b>{EVIL}$x$"]]))
    assert "<b>" not in html and "⟨U+202E⟩" in html and not plain_text._UNSEEN.search(html)
    assert chart.name(f"{EVIL}$x$").endswith(r"\$x\$") and not plain_text._UNSEEN.search(chart.name(EVIL))
