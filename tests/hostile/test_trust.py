"""Opening a run of unknown origin runs none of its code: its scheme is loaded only if the person says so."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.tamper import small_folder

from protocol.errors import BadInput
from protocol.schemes import UntrustedScheme, find_scheme
from sim import api

ROOT = Path(__file__).parents[2]
README = (ROOT / "protocol" / "README.md").read_text(encoding="utf-8")
MINE = next(block for block in re.findall(r"```python\n(.*?)```", README, re.S) if block.startswith("# mine.py"))
FLAGS = ("--data", "synthetic:5x6:.5", "--dim", "2", "--iterations", "2", "--seed", "1", "--transport", "inprocess")
MARKS = "import pathlib\npathlib.Path('marker').write_text('ran')\n"
START = "import sys; sys.path.pop(0); from sim.cli.entry import main; main()"  # as the console script does


def keyhole(cwd: Path, *arguments: str, start: tuple[str, ...] = ("-c", START)) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
    command = [sys.executable, *start, *map(str, arguments)]
    environment["PYTHONPATH"] = str(ROOT)
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=600)


def renamed(folder: Path, scheme: str) -> Path:
    """Let run.toml of `folder` name another scheme; return the folder."""
    path = folder / "run.toml"
    text = path.read_text("utf-8")
    path.write_text(re.sub(r'^scheme = "masked"', f'scheme = "{scheme}"', text, count=1, flags=re.M), "utf-8")
    return folder


@pytest.fixture
def place(base, tmp_path):
    """Make a current folder with a run that asks for `evil:Scheme`, and with that module."""
    (tmp_path / "evil.py").write_text(MARKS)
    shutil.copytree(base, tmp_path / "run")
    renamed(tmp_path / "run", "evil:Scheme")
    return tmp_path


ASKED = {  # command -> its exit code without the scheme
    "audit run": 0,
    "audit run --json --strict": 2,
    "view run user:0": 0,
    "verify run": 0,
    "bandwidth run": 0,
    "replay run": 2,
    "report run": 2,
    "resume run": 2,
    "run --config run/run.toml --out again": 2,
    "prepare --config run/run.toml --transport tcp --out again": 2,
    "bandwidth --predict --config run/run.toml": 2,
    "actor recommender --roster roster.json --keys keys": 2,
}


INSTALLED = ("verify run", "replay run", "actor recommender --roster roster.json --keys keys")  # three are enough


@pytest.mark.parametrize(
    ("scheme", "command"),
    [*(("evil:Scheme", command) for command in ASKED), *(("test.autotest:x", command) for command in INSTALLED)],
)
def test_what_a_file_names_is_not_imported(place, command, scheme):
    renamed_toml = place / "run" / "run.toml"
    renamed_toml.write_text(renamed_toml.read_text("utf-8").replace("evil:Scheme", scheme), "utf-8")
    roster = {"run_id": "0" * 64, "simulation": True, "params": {"epsilon": "1.0"}, "endpoints": {}, "public_keys": {}}
    (place / "roster.json").write_text(json.dumps({"format": 2, "scheme": scheme, **roster}))
    done = keyhole(place, *command.split())
    assert done.returncode == ASKED[command], done.stderr
    assert not (place / "marker").exists() and not (place / "again").exists()
    said = done.stderr if done.returncode else done.stdout + done.stderr
    if not command.startswith("view"):  # view shows everything but the fields
        assert "--trust-scheme" in said
    if done.returncode:
        assert done.stderr.startswith("keyhole: ") and done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "command",
    [
        *(f"{command} --trust-scheme" for command in ASKED if not command.startswith("actor")),
        "audit run --scheme evil:Scheme",
        "resume run --scheme evil:Scheme",
        "run --config run/run.toml --out again --scheme evil:Scheme",
    ],
)
def test_with_the_persons_word_it_is_imported_and_what_it_is_not_is_said(place, command):
    done = keyhole(place, *command.split())
    assert (place / "marker").exists()
    assert done.returncode == 2 and "evil:Scheme cannot be imported" in done.stderr


@pytest.mark.parametrize("command", ["audit run", "view run user:0", "verify run", "bandwidth run", "replay run"])
def test_a_scheme_that_the_run_does_not_ask_for_is_refused(place, command):
    done = keyhole(place, *command.split(), "--scheme", "masked")
    assert done.returncode == 2 and "'evil:Scheme'" in done.stderr and "'masked'" in done.stderr
    assert not (place / "marker").exists()


# --- what can be asked without the scheme ----------------------------------------------------------------------------


def test_what_needs_no_role_is_answered_all_the_same(place):
    document = json.loads(keyhole(place, "verify", "run", "--json").stdout)
    assert document["verified"] and document["views"] == 5 and "run id was not checked" in document["notes"][-1]
    document = json.loads(keyhole(place, "bandwidth", "run", "--json").stdout)
    assert document["total"]["predicted_bytes"] is None and document["match"] is None
    assert document["total"]["wire_bytes"] > 0 and "--trust-scheme" in document["prediction_note"]
    assert {row["predicted_bytes"] for row in document["rows"]} == {None}
    document = json.loads(keyhole(place, "audit", "run", "--json").stdout)
    assert document["verdict"] is None and "--trust-scheme" in document["unanswered"]["algebra"]
    kinds = {(row["plane"], row["party"], row["kind"]): row for row in document["inventory"]}
    assert kinds["sent", "third_party", "MaskedGradient"]["count"] == 6
    assert kinds["sent", "third_party", "MaskedGradient"]["bytes"] > 0
    assert sum(row["count"] for row in document["inventory"] if row["plane"] == "message") == sum(
        row["count"] for row in document["inventory"] if row["plane"] == "sent"
    )
    records = json.loads(keyhole(place, "view", "run", "user:0", "--json").stdout)
    received = [record for record in records if record["type"] == "received"]
    assert received and all(record["fields"] == {} and record["kind"].startswith("kind ") for record in received)
    assert all(record["bytes"] > 32 for record in received)


@pytest.mark.parametrize("how", ["a record", "the signature"])
def test_what_was_altered_is_found_without_the_scheme(place, how):
    path = place / "run" / "views" / "user-1.view"
    data = bytearray(path.read_bytes())
    data[60 if how == "a record" else -40] ^= 1
    path.write_bytes(bytes(data))
    done = keyhole(place, "verify", "run")
    assert done.returncode == 4 and "user-1.view" in done.stdout


# --- a scheme that is trusted ----------------------------------------------------------------------------------------


def test_a_scheme_that_is_named_runs_and_is_audited_by_worker_processes(tmp_path):
    """Its module is in the current folder, which is on the path of no process."""
    (tmp_path / "mine.py").write_text(MINE)
    done = keyhole(tmp_path, "run", "--scheme", "mine:Careful", *FLAGS, "--out", "run")
    said = " ".join(done.stdout.split())  # lines may break anywhere
    assert done.returncode == 0 and "othing beyond what" in said and "--trust-scheme" in said
    done = keyhole(tmp_path, "audit", "run", "--trust-scheme", "--json", "--only", "empirical", "--repetitions", "4000")
    document = json.loads(done.stdout)
    assert document["unanswered"] == {} and document["empirical"]["rows"]
    assert json.loads(keyhole(tmp_path, "replay", "run", "--scheme", "mine:Careful", "--json").stdout)["identical"]
    again = ("run", "--config", "run/run.toml", "--trust-scheme", "--out", "again", "--json")
    assert json.loads(keyhole(tmp_path, *again).stdout)["completed"]


def test_a_package_of_ones_own_may_have_modules(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "__init__.py").write_text("")
    (tmp_path / "mine" / "careful.py").write_text(MINE)
    done = keyhole(tmp_path, "run", "--scheme", "mine.careful:Careful", *FLAGS, "--out", "run", "--json")
    assert done.returncode == 0, done.stderr


def test_only_the_module_that_was_named_is_looked_for_in_the_current_folder(tmp_path):
    (tmp_path / "mine.py").write_text("import beside\n" + MINE)
    (tmp_path / "beside.py").write_text(MARKS)
    done = keyhole(tmp_path, "run", "--scheme", "mine:Careful", *FLAGS, "--out", "run")
    assert done.returncode == 2 and "No module named 'beside'" in done.stderr and not (tmp_path / "marker").exists()


def test_an_installed_module_comes_before_one_in_the_current_folder(tmp_path):
    (tmp_path / "wave.py").write_text(MARKS)
    done = keyhole(tmp_path, "run", "--scheme", "wave:Wave_read", *FLAGS, "--out", "run")
    assert done.returncode == 2 and "not a subclass" in done.stderr and not (tmp_path / "marker").exists()


# --- nothing is imported from the current folder by chance -----------------------------------------------------------

TAKEN = (
    "random", "secrets", "socket", "typing", "numpy", "typer", "msgpack", "tempfile", "json", "actors", "protocol",
)  # fmt: skip


@pytest.fixture
def littered(base, tmp_path):
    """Make a current folder with modules named like those of Python and Keyhole, which leave a mark and raise."""
    for name in TAKEN:
        (tmp_path / f"{name}.py").write_text(f"{MARKS}raise SystemExit('{name} of the current folder')\n")
    shutil.copytree(base, tmp_path / "run")
    return tmp_path


@pytest.mark.parametrize("start", [("-c", START), ("-m", "sim")], ids=["keyhole", "python -m sim"])
@pytest.mark.parametrize(
    "command",
    [
        "verify run",
        f"evaluate --jobs 2 --seeds 2 --out cells {' '.join(FLAGS[:6])}",
        f"run {' '.join(FLAGS[:-2])} --out new --json",
    ],
    ids=["reading", "worker processes", "actors"],
)
def test_no_module_of_the_current_folder_is_imported(littered, start, command):
    done = keyhole(littered, *command.split(), start=start)
    assert done.returncode == 0, done.stderr
    assert not (littered / "marker").exists()


def test_worker_processes_of_a_notebook_do_not_import_from_the_current_folder(littered):
    script = (
        f"import sys; sys.path[0] = {str(ROOT)!r}\nfrom sim.drivers.workers import map_cells\n"
        "if __name__ == '__main__':\n"
        "    print(map_cells(abs, [(-1,), (-2,)], 2))\n"
    )
    done = keyhole(littered, start=("-c", script))
    assert (done.returncode, done.stdout) == (0, "[1, 2]\n"), done.stderr
    assert not (littered / "marker").exists()


def test_a_clone_that_is_not_installed_is_found_where_it_is(tmp_path):
    """With `python -m sim` in the folder of the clone, that folder comes last on the path."""
    for package in ("sim", "actors", "protocol"):
        os.symlink(ROOT / package, tmp_path / package)
    (tmp_path / "random.py").write_text(MARKS)
    script = "import sys, runpy; sys.argv = ['sim', 'schemes']; runpy.run_module('sim', run_name='__main__')"
    hidden = "import sys; sys.meta_path[:] = [f for f in sys.meta_path if 'editable' not in repr(f)]; "
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONSAFEPATH", "PYTHONPATH")}
    command = [sys.executable, "-c", hidden + script]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0 and "masked" in done.stdout, done.stderr
    assert not (tmp_path / "marker").exists()


# --- in a notebook ---------------------------------------------------------------------------------------------------


def test_a_notebook_loads_what_it_is_told_to_trust(tmp_path, monkeypatch):
    folder = renamed(small_folder(tmp_path / "run"), "of_a_notebook:Own")
    (tmp_path / "of_a_notebook.py").write_text(
        "from protocol.schemes.factorization import masked\nclass Own(masked.Masked): pass\n"
    )
    monkeypatch.chdir(tmp_path)
    run = api.load(folder)
    assert run.verify()["verified"] and len(run.views) == 5 and run.audit().verdict == "None"
    assert next(iter(api.view(folder, "user:0")))["kind"] == "header"
    for ask in (api.replay, api.resume, api.report):
        with pytest.raises(UntrustedScheme, match="--trust-scheme"):
            ask(folder)
    with pytest.raises(BadInput, match="not 'plain'"):
        api.load(folder, scheme="plain")
    assert "of_a_notebook" not in sys.modules
    assert api.replay(folder, trust_scheme=True)["identical"]
    assert run.replay()["identical"] and run.audit(only=["inventory"]).verdict == "within-claims"  # trusted now


@pytest.mark.parametrize("verb", ["load", "verify", "replay", "audit", "bandwidth", "resume"])
def test_every_verb_of_a_notebook_takes_the_name(tmp_path, verb):
    folder = renamed(small_folder(tmp_path / "run"), "protocol.schemes.factorization.masked:Masked")
    more = {"only": ["inventory"]} if verb == "audit" else {}
    assert getattr(api, verb)(folder, scheme="protocol.schemes.factorization.masked:Masked", **more)


def test_a_name_is_not_looked_up_by_itself():
    with pytest.raises(UntrustedScheme, match="'json:JSONDecoder'"):
        find_scheme("json:JSONDecoder")
