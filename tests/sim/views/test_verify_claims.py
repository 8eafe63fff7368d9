"""`keyhole verify`: summary, model and run.toml against the views; too many, too few or too open files."""

from __future__ import annotations

import copy
import io
import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.tamper import (
    adapt_summary,
    edit_summary,
    findings,
    name_of,
    small_folder,
    split,
    the_finding,
    view_of,
)

from protocol.errors import BadInput
from sim.api import verify
from sim.run.summary import anchor_of


def replace_in(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert text.count(old) == 1, old
    path.write_text(text.replace(old, new))


# --- summary.json -----------------------------------------------------------------------------------------------------


def leaves(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    if isinstance(value, dict) and value:
        for key, entry in value.items():
            yield from leaves(entry, (*path, key))
    else:
        yield path


def other_value(value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1
    if isinstance(value, str):
        return ("0" if value[:1] != "0" else "1") + value[1:]
    return {"GAP": 1} if value == {} else ["x"] if value == [] else 1


UNCOVERED = {
    "figures": "figures of the recommender",
    "run": "where the folder was",
    "notes": "notes",
    "ratings.test": "held out",
    "processes": "processes",
    "clipped": "clipped",
    "accuracy": "accuracy",
    "privacy.accounted": "accounted",
    "seconds": "seconds",
    "bytes": "bytes",
    "memory": "memory",
    "strangers": "strangers",
    "dropouts": "dropouts",
    "restarts": "restarts",
    "gone": "gone",
}


def test_every_value_of_the_summary_is_checked_or_named_as_not_covered(folder):
    path = folder / "summary.json"
    summary = json.loads(path.read_text())
    checked = set()
    for leaf in leaves(summary):
        changed = copy.deepcopy(summary)
        *way, last = leaf
        table = changed
        for key in way:
            table = table[key]
        table[last] = other_value(table[last])
        path.write_text(json.dumps(changed))
        found = verify(folder)
        uncovered = UNCOVERED.get(leaf[0]) or UNCOVERED.get(".".join(leaf[:2]))
        if uncovered:
            assert any(uncovered in words for words in found["not_covered"]), leaf
        else:
            assert not found["verified"], leaf
            checked.add(leaf[0])
    assert checked >= {"scheme", "seed", "users", "dim", "iterations", "ring", "rejected", "anchor", "views"}
    assert checked >= {"item_factors_sha256", "ratings", "privacy", "wire", "data", "items", "completed", "abort"}


@pytest.mark.parametrize("gone", ["views", "anchor", "completed", "abort", "seed", "rejected", "item_factors_sha256"])
def test_a_value_that_is_taken_out_of_the_summary_is_missed(folder, gone):
    edit_summary(folder, lambda summary: summary.pop(gone))
    assert the_finding(folder)[0] == "summary.json"


@pytest.mark.parametrize("party", ["recommender", "third_party", "user:1"])
def test_a_view_that_is_taken_out_of_the_summary_is_missed(folder, party):
    edit_summary(folder, lambda summary: summary["views"].pop(party))
    assert "summary.json" in [file for file, _, _ in findings(folder)]


@pytest.mark.parametrize("party", ["recommender", "third_party"])
def test_a_completed_run_lists_its_servers_whatever_its_anchor_says(folder, party):
    edit_summary(folder, lambda summary: summary["views"].pop(party))
    adapt_summary(folder)
    assert ("summary.json", None, f"does not list the view of {party}") in findings(folder)


def test_a_completed_run_has_no_abort(folder):
    edit_summary(folder, lambda summary: summary.update(abort={"reason": "STALLED", "sentence": "…"}))
    assert "completed and abort contradict each other" in the_finding(folder)[2]


def test_a_summary_lists_only_views_that_were_kept(tmp_path):
    folder = small_folder(tmp_path / "run", views="servers")
    edit_summary(folder, lambda summary: summary["views"].update({"user:0": {"records": 3, "head": "00" * 32}}))
    assert the_finding(folder)[2] == "lists a view of user:0, of which run.toml says that none was kept"


def test_a_summary_that_knows_less_than_the_view_is_contradicted(folder):
    records = split(view_of(folder, "user:1").read_bytes())

    def know_less(summary: dict[str, Any]) -> None:
        summary["views"]["user:1"] = {"records": len(records) - 1, "head": records[-2][-32:].hex()}
        heads = {party: (view["records"], bytes.fromhex(view["head"])) for party, view in summary["views"].items()}
        summary["anchor"] = anchor_of(heads)

    edit_summary(folder, know_less)
    assert the_finding(folder)[:2] == ("views/user-1.view", len(records) - 1)


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", '"x"', "{}", '{"views": 3}', "\x00", "[" * 100_000, '{"views": {"user:0": {}}}', "\ud800"],
    ids=["empty", "cut", "list", "null", "text", "nothing in it", "number", "zero", "deep", "no head", "no unicode"],
)
def test_a_summary_that_is_none_is_a_finding_in_words(folder, text):
    (folder / "summary.json").write_bytes(text.encode("utf-8", "surrogatepass"))
    file, record, what = the_finding(folder)
    assert (file, record) == ("summary.json", None) and what.startswith("is damaged (")


# --- the model --------------------------------------------------------------------------------------------------------


def test_every_flipped_byte_of_the_model_is_noticed(folder):
    path = folder / "model" / "item_factors.npy"
    model = path.read_bytes()
    for at in range(len(model)):
        path.write_bytes(model[:at] + bytes([model[at] ^ 0x10]) + model[at + 1 :])
        assert [file for file, _, _ in findings(folder)] == ["model/item_factors.npy"], at


def test_a_model_that_is_no_array_of_factors_is_a_finding(folder):
    path = folder / "model" / "item_factors.npy"
    model, factors = path.read_bytes(), np.load(path)

    def saved(array: Any, save: Any = np.save) -> bytes:
        buffer = io.BytesIO()
        save(buffer, array)
        return buffer.getvalue()

    harmful = f"cos\nmkdir\n(V{folder}/harm\ntR.".encode()  # unpickling this makes a folder
    header = b"{'descr': '|O', 'fortran_order': False, 'shape': (1,), }"
    for data in (
        b"",
        model[:-1],
        model + b"\x00",
        saved(factors, np.savez),
        saved(factors.astype(np.float32)),
        saved(factors.T),
        saved(factors.reshape(-1)),
        saved(factors.astype(">f8")),
        b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + harmful,
        harmful,
    ):
        path.write_bytes(data)
        assert the_finding(folder)[0] == "model/item_factors.npy"
    assert not (folder / "harm").exists()
    path.unlink()
    assert the_finding(folder) == ("model/item_factors.npy", None, "is missing")


# --- run.toml ---------------------------------------------------------------------------------------------------------


_NEXT = '\npublish = "all"\nno_rho'  # under [run], not under [params]


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('seed = "1"', 'seed = "2"', "nonce does not follow from its seed"),
        ("clip = 57", "clip = 56", "its run id is not that of its parameters"),
        ("n_users = 3", "n_users = 4", "its run id is not that of its parameters"),
        ('nonce = "8', 'nonce = "9', "its run id is not that of its parameters"),
        ("simulation = true", "simulation = false", "whether the seed was given"),
        ('views = "full"', 'views = "servers"', "is not a view that this run keeps"),
        ('wire = "compact"\nfactor', 'wire = "paper"\nfactor', "wire is paper under [run] and another under [params]"),
        (f"factor_bits = 32{_NEXT}", f"factor_bits = 16{_NEXT}", "factor_bits is 16 under [run] and another"),
        (f"factor_bits = 32{_NEXT}", f"ring_bits = 48{_NEXT}", "ring_bits is 48 under [run] and another"),
        ('publish = "all"\nno_rho', 'publish = "rated"\nno_rho', "publish is rated under [run] and another"),
        ('data = "synthetic:3x4:.6"', 'data = "demo"', 'says data = "synthetic:3x4:.6", which is "demo"'),
    ],
)
def test_what_is_altered_in_run_toml_contradicts_the_rest(folder, old, new, words):
    replace_in(folder / "run.toml", old, new)
    assert any(words in what for _, _, what in findings(folder))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("[run]", "[run"),
        ("[params]", "[parameters]"),
        ("n_users = 3", 'n_users = "3"'),
        ("n_users = 3", "n_users = 10000001"),
        ("n_users = 3", "n_users = -1"),
        ('nonce = "', 'nonce = "x'),
        ("simulation = true", 'simulation = "yes"'),
        ('seed = "1"', 'seed = "one"'),
        ('seed = "1"', ""),
        ('views = "full"', 'views = "some"'),
        ('[run]\nscheme = "masked"', '[run]\nscheme = "rot13"'),
        ("format = 2", "format = 9"),
    ],
)
def test_a_run_toml_that_cannot_be_read_is_refused_in_one_sentence(folder, old, new):
    replace_in(folder / "run.toml", old, new)
    with pytest.raises(BadInput) as refusal:
        verify(folder)
    assert str(refusal.value).count("\n") == 0


# --- files ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["run.toml", "summary.json", "views/recommender.view", "views/user-2.view"])
def test_a_file_that_others_can_read_is_named(folder, name):
    (folder / name).chmod(0o640)
    assert the_finding(folder)[:2] == (name, None) and "640" in the_finding(folder)[2]


def test_a_view_that_is_missing_is_named(folder):
    for party in ("third_party", "user:1"):
        view_of(folder, party).unlink()
        assert (name_of(party), None) in [(file, record) for file, record, _ in findings(folder)]


def test_a_view_of_nobody_is_named(folder):
    for stray in ("views/user-3.view", "views/users-1/user-1000.view", "views/user-1.view.view"):
        (folder / stray).parent.mkdir(exist_ok=True)
        (folder / stray).write_bytes(view_of(folder, "user:1").read_bytes())
        assert the_finding(folder)[:2] == (stray, None)
        (folder / stray).unlink()


def test_a_view_that_run_toml_is_made_to_deny_is_told_of_by_the_others(folder):
    """The view, its line in the summary and the setting are gone; the frames of that party still carry its heads."""
    replace_in(folder / "run.toml", 'views = "full"', 'views = "sample:2"')  # of three users: 0 and 1
    view_of(folder, "user:2").unlink()
    edit_summary(folder, lambda summary: summary["views"].pop("user:2"))
    adapt_summary(folder)
    told = [file for file, _, what in findings(folder) if "carries the head of a view of user:2" in what]
    assert told == ["views/recommender.view", "views/third_party.view"]
