"""The command line: exit codes, one helpful sentence, JSON and nothing else."""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import socket
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sim import api
from sim.cli import entry
from sim.cli.app import app

SMALL = ("--scheme", "masked", "--data", "synthetic:6x5:.5", "--iterations", "2", "--dim", "2")
INPROCESS = ("run", *SMALL, "--transport", "inprocess")


ENVIRONMENT = {"PYTHONPATH": str(Path(__file__).parents[3]), "COLUMNS": "200"}


def keyhole(*arguments: object, columns: int = 200):
    """Run the command in this process; return its exit code, stdout and stderr."""
    environment = {**ENVIRONMENT, "COLUMNS": str(columns)}
    return CliRunner().invoke(app, [str(argument) for argument in arguments], env=environment)


def refused(result, code: int, *words: str) -> None:
    """Check for this exit code, one sentence with these words on stderr, nothing on stdout and no traceback."""
    assert result.exit_code == code, result.stderr
    assert result.stdout == ""
    assert result.stderr.startswith("keyhole: ") and result.stderr.count("\n") == 1
    assert "Traceback" not in result.stderr
    for word in words:
        assert word in result.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--data", "no/such/file"], ["no/such/file"]),
        (["--epsilon", "0"], ["--epsilon", "above 0"]),
        (["--epsilon", "-1"], ["--epsilon", "above 0"]),
        (["--epsilon", "nan"], ["--epsilon"]),
        (["--dim", "0"], ["--dim"]),
        (["--iterations", "0"], ["--iterations"]),
        (["--users", "41"], ["40", "41"]),
        (["--users", "0"], ["40"]),
        (["--test-fraction", "1"], ["--test-fraction"]),
        (["--deadline", "0"], ["--deadline"]),
        (["--users-per-process", "0"], ["--users-per-process"]),
        (["--seed", "-1"], ["--seed"]),
        (["--transport", "pigeon"], ["tcp", "ipc", "inprocess"]),
        (["--wire", "thin"], ["compact", "paper"]),
        (["--views", "some"], ["full", "servers"]),
        (["--scheme", "nothing"], ["plain", "masked"]),
        (["--scheme", "no.such.module:Scheme"], ["cannot be imported"]),
        (["--scheme", "json:JSONDecoder"], ["not a subclass"]),
        (["--scheme", "plain", "--epsilon", "1"], ["plain", "--epsilon"]),
        (["--scheme", "plain", "--wire", "paper"], ["plain", "--wire"]),
        (["--set", "colour=red"], ["colour", "clip"]),
        (["--set", "clip"], ["OPTION=VALUE"]),
        (["--set", "clip=wide"], ["clip", "number"]),
        (["--set", "min_contributors=1.5"], ["min_contributors", "whole number"]),
        (["--set", "dropout_allowance=1"], ["dropout_allowance"]),
        (["--set", "ring_bits=20"], ["--ring-bits", "16, 24", "20"]),
        (["--ring-bits", "20"], ["--ring-bits", "16, 24", "20"]),
        (["--ring-bits", "16"], ["wrap mod 2^16", "--ring-bits"]),
        (["--ring-bits", "24", "--set", "ring_bits=32"], ["24", "32", "contradict"]),
        (["--scheme", "plain", "--ring-bits", "32"], ["plain", "--ring-bits"]),
        (["--factor-bits", "8"], ["--factor-bits", "32 or 16", "8"]),
        (["--scheme", "hybrid", "--factor-bits", "16"], ["hybrid", "--factor-bits"]),
        (["--wire", "paper", "--factor-bits", "16"], ["paper's form sends 32-bit numbers"]),
        (["--epsilon", "1e-9", "--set", "ring_bits=32"], ["wrap mod 2^32"]),
        (["--epsilon", "1e-14"], ["wrap mod 2^64"]),
        (["--rating-range", "5"], ["LOW:HIGH"]),
        (["--rating-range", "2:5"], ["1 to 5"]),
        (["--config", "no.toml"], ["no.toml"]),
        (["--online", "41"], ["--online", "40", "41"]),
        (["--online", "0"], ["--online"]),
        (["--join", "1.5"], ["--join", "probability"]),
        (["--leave", "-1"], ["--leave", "probability"]),
        (["--on-death", "panic"], ["restart", "drop"]),
        (["--set", "committers=1"], ["committers", "2 or more"]),
        (["--set", "committers=41"], ["pre-commitment", "41", "40"]),
        (["--join", ".001", "--leave", "1", "--seed", "1"], ["pre-commitment needs 3", "online at the start"]),
        (["--scheme", "masked", "--online", "5"], ["masked", "--online"]),
        (["--scheme", "masked", "--no-rho"], ["masked", "--no-rho"]),
        (["--scheme", "trusted", "--join", ".1"], ["trusted", "--join"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_bad_arguments_end_with_2_and_one_sentence(tmp_path, monkeypatch, arguments, words):
    monkeypatch.chdir(tmp_path)
    refused(keyhole("run", "--data", "demo-small", *arguments), 2, *words)
    assert not (tmp_path / "runs").exists(), "a refused run leaves nothing behind"


def test_an_unknown_option_ends_with_2():
    result = keyhole("run", "--colour", "red")
    assert result.exit_code == 2 and "--colour" in result.stderr and "Traceback" not in result.stderr


def test_a_broken_row_is_named_by_file_and_line(tmp_path):
    file = tmp_path / "ratings.csv"
    file.write_text("user,item,rating\n1,1,5\n1,2,five\n")
    refused(keyhole("run", "--data", file), 2, "ratings.csv", "line 3")


def test_an_empty_data_set_is_refused(tmp_path):
    file = tmp_path / "ratings.csv"
    file.write_text("user,item,rating\n")
    refused(keyhole("run", "--data", file), 2, "ratings.csv")


def test_a_rating_outside_the_range_is_refused_with_its_line(tmp_path):
    file = tmp_path / "ratings.csv"
    file.write_text("user,item,rating\n1,1,5\n1,2,9\n")
    refused(keyhole("run", "--data", file), 2, "line 3", "9")


def test_an_existing_folder_is_not_overwritten_without_force(tmp_path):
    folder = tmp_path / "run"
    assert keyhole(*INPROCESS, "--out", folder).exit_code == 0
    before = (folder / "summary.json").read_bytes()
    refused(keyhole(*INPROCESS, "--out", folder), 2, "--force")
    assert (folder / "summary.json").read_bytes() == before
    assert keyhole(*INPROCESS, "--out", folder, "--force").exit_code == 0


def test_force_does_not_delete_what_is_no_run(tmp_path):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter1.tex").write_text("years of work")
    refused(keyhole(*INPROCESS, "--out", tmp_path / "thesis", "--force"), 2, "not a run")
    assert (tmp_path / "thesis" / "chapter1.tex").exists()


def test_too_few_file_descriptors_are_refused_before_anything_starts(tmp_path):
    command = [sys.executable, "-m", "sim", "run", "--data", "demo-small", "--out", str(tmp_path / "run")]
    limit = partial(resource.setrlimit, resource.RLIMIT_NOFILE, (90, 90))
    result = subprocess.run(command, capture_output=True, text=True, env=os.environ | ENVIRONMENT, preexec_fn=limit)
    assert result.returncode == 2 and result.stdout == ""
    assert "open files" in result.stderr and "ulimit -n" in result.stderr and result.stderr.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_a_port_in_use_is_refused_by_the_actor(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        folder = tmp_path / "run"
        assert keyhole("prepare", "--data", "demo-small", "--out", folder, "--port", port).exit_code == 0
        where = ("--roster", folder / "roster.json", "--keys", folder / "keys")
        refused(keyhole("actor", "recommender", *where), 2, f":{port}", "choose another port")


def test_a_wider_ring_is_chosen_and_said(tmp_path):
    result = keyhole(*INPROCESS, "--epsilon", ".000001", "--out", tmp_path / "run", "--json")
    summary = json.loads(result.stdout)
    assert summary["ring"]["bits"] == 64 and any("64 ring bits" in note for note in summary["notes"])


def test_json_is_one_document_without_infinity(tmp_path):
    result = keyhole(*INPROCESS, "--epsilon", "inf", "--out", tmp_path / "run", "--json")
    assert result.stderr == ""

    def refuse(constant):
        raise AssertionError(constant)

    summary = json.loads(result.stdout, parse_constant=refuse)
    assert summary["privacy"]["claimed_epsilon"] == "inf"
    assert summary == json.loads((tmp_path / "run" / "summary.json").read_text())


def test_the_first_screen_answers_four_questions_and_the_tables_are_behind_verbose(tmp_path):
    result = keyhole(*INPROCESS, "--seed", "1", "--out", tmp_path / "run")
    assert result.exit_code == 0
    asked = ("Does it recommend?", "What does it cost?", "Who learns what?", "Is it ε = 8?")
    screen = " ".join(result.stdout.split())
    for words in (*asked, "Formula = count", "nothing beyond", "keyhole audit", "anchor", "not private"):
        assert words in screen
    assert "user → third_party" not in result.stdout and "item factors" not in result.stdout
    result = keyhole(*INPROCESS, "--seed", "1", "--out", tmp_path / "again", "--verbose")
    for words in (*asked, "user → third_party", "item factors", "keyhole view"):
        assert words in result.stdout


def test_a_run_can_be_repeated_from_its_own_configuration(tmp_path):
    first = keyhole(*INPROCESS, "--out", tmp_path / "a", "--json", "--seed", "5", "--set", "clip=3")
    again = keyhole("run", "--config", tmp_path / "a" / "run.toml", "--out", tmp_path / "b", "--json")
    digests = {json.loads(result.stdout)["item_factors_sha256"] for result in (first, again)}
    assert len(digests) == 1


def test_flags_win_over_the_configuration_file_and_unknown_settings_are_refused(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text('scheme = "plain"\ndata = "synthetic:6x5:.5"\niterations = 2\ntransport = "inprocess"\ndim = 2\n')
    result = keyhole("run", "--config", file, "--dim", "3", "--out", tmp_path / "run", "--json")
    assert (json.loads(result.stdout)["dim"], json.loads(result.stdout)["scheme"]) == (3, "plain")
    file.write_text("colour = 'red'\n")
    refused(keyhole("run", "--config", file), 2, "colour")
    file.write_text("dim = 'ten'\n")
    refused(keyhole("run", "--config", file), 2, "dim", "a whole number")


# --- view, schemes, datasets --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    folder = tmp_path_factory.mktemp("done") / "run"
    assert keyhole(*INPROCESS, "--seed", "1", "--out", folder).exit_code == 0
    return folder


def test_view_shows_the_records_of_a_party(done):
    rows = json.loads(keyhole("view", done, "third_party", "--json").stdout)
    assert [row["record"] for row in rows] == list(range(len(rows)))
    assert set(rows[0]) >= {"record", "iteration", "sender", "kind", "bytes", "fields", "digest"}
    gradients = json.loads(keyhole("view", done, "third_party", "--kind", "MaskedGradient", "--json").stdout)
    assert len(gradients) == 6 * 2 and {row["sender"] for row in gradients} == {f"user:{user}" for user in range(6)}
    values = gradients[0]["fields"]["values"]
    assert values["dtype"] == "uint32" and values["shape"][1] == 2 and len(values["first"]) <= 4


def test_view_filters_by_iteration_and_limit(done):
    rows = json.loads(keyhole("view", done, "user:0", "--iteration", "1", "--json").stdout)
    assert {row["iteration"] for row in rows} == {1}
    assert {row["kind"] for row in rows} == {"ItemFactors", "MaskedGradient"}
    assert len(json.loads(keyhole("view", done, "user:0", "--limit", "3", "--json").stdout)) == 3
    refused(keyhole("view", done, "user:0", "--kind", "Nothing", "--json"), 2, "kinds:", "ItemFactors")


def test_view_never_prints_the_tape_seed(done):
    for party in ("user:0", "recommender"):
        document = keyhole("view", done, party, "--json").stdout
        assert "not shown" in document
        seed = (done / "views" / f"{party.replace(':', '-')}.view").read_bytes().split(b"tape_seed")[1][2:34]
        assert seed.hex() not in document


def test_a_view_that_was_altered_ends_with_4_and_names_the_record(done, tmp_path):
    copy = tmp_path / "run"
    subprocess.run(["cp", "-r", done, copy], check=True)
    file = copy / "views" / "user-0.view"
    data = bytearray(file.read_bytes())
    data[-40] ^= 1
    file.write_bytes(data)
    result = keyhole("view", copy, "user:0")
    refused(result, 4, "record")


def test_view_of_what_does_not_exist_ends_with_2(done, tmp_path):
    refused(keyhole("view", done, "user:99"), 2, "user:99")
    refused(keyhole("view", tmp_path, "user:0"), 2, "not the folder of a run")


def test_a_view_of_another_party_or_run_is_not_shown_as_this_one(done, tmp_path):
    copy = tmp_path / "run"
    subprocess.run(["cp", "-r", done, copy], check=True)
    (copy / "views" / "user-0.view").write_bytes((done / "views" / "user-1.view").read_bytes())
    refused(keyhole("view", copy, "user:0"), 4, "another run or party")


def test_a_view_can_be_read_with_every_value(done):
    rows = json.loads(keyhole("view", done, "user:0", "--kind", "ItemFactors", "--json", "--full").stdout)
    names = json.loads((done / "names.json").read_text())
    factors = rows[0]["fields"]["factors"]
    assert len(factors) == len(rows[0]["fields"]["floors"]) and all(len(row) == 2 for row in factors)
    assert len(names["users"]) == 6 and len(names["items"]) == 5


def test_schemes_and_datasets_can_be_listed(tmp_path):
    schemes = json.loads(keyhole("schemes", "--json").stdout)
    fields = {"name", "title", "parties", "unit", "claims", "known_weaknesses", "options", "source"}
    assert {scheme["name"] for scheme in schemes} >= {"plain", "masked"} and all(set(s) >= fields for s in schemes)
    names = {entry["name"] for entry in json.loads(keyhole("datasets", "--json").stdout)}
    assert {"demo", "ml-100k"} <= names
    assert "masked" in keyhole("schemes").stdout and "demo" in keyhole("datasets").stdout


def test_names_and_paths_of_data_sets_can_be_copied_from_a_narrow_screen(tmp_path, monkeypatch):
    folder = tmp_path / ("long" * 30) / "ml-100k"
    folder.mkdir(parents=True)
    (folder / "u.data").write_text("1\t1\t3\t0\n")
    monkeypatch.setenv("KEYHOLE_DATA", str(folder.parent))
    printed = keyhole("datasets", columns=80).stdout.splitlines()
    for row in api.datasets():
        assert f"{row['name']}: {row['title']}" in printed and f"  {row['how']}" in printed
    assert f"  {folder}" in printed


COMMANDS = "run resume view bandwidth verify replay schemes datasets fetch prepare actor bench evaluate compare"
COMMANDS += " ls diff pair watch explain new report audit reproduce"


@pytest.mark.parametrize("command", COMMANDS.split())
def test_every_command_has_help_with_an_example(command):
    result = keyhole(command, "--help")
    assert result.exit_code == 0 and "Example: keyhole " + command in " ".join(result.stdout.split())


# --- parties started by hand ----------------------------------------------------------------------------------------


def two_free_ports() -> int:
    """Find two free neighbouring ports below those that the kernel hands out by itself; return the first."""
    for port in random.sample(range(20_000, 32_000, 2), 100):
        try:
            with socket.socket() as one, socket.socket() as other:
                one.bind(("127.0.0.1", port))
                other.bind(("127.0.0.1", port + 1))
                return port
        except OSError:
            continue
    raise AssertionError("no two ports are free")


@pytest.mark.parametrize("scheme", ["masked", "dynamic"])
def test_three_terminals_give_what_one_command_gives(tmp_path, scheme):
    config = ("--data", "synthetic:6x5:.5", "--iterations", "3", "--dim", "2", "--seed", "3", "--scheme", scheme)
    steady = ("--join", "0", "--leave", "0") if scheme == "dynamic" else ()
    result = keyhole("run", *config, *steady, "--out", tmp_path / "run", "--json")
    expected = json.loads(result.stdout)["item_factors_sha256"]
    port = two_free_ports()
    folder = tmp_path / "hand"
    assert "keyhole actor users" in keyhole("prepare", *config, "--out", folder, "--port", port).stdout
    where = ["--roster", str(folder / "roster.json"), "--keys", str(folder / "keys")]
    command = [sys.executable, "-m", "sim", "actor"]
    groups = (["user:0-3"], ["third_party"], ["user:4", "user:5"], ["recommender"])
    pipe = subprocess.PIPE
    actors = [
        subprocess.Popen([*command, *group, *where], stdout=pipe, stderr=pipe, text=True, env=os.environ | ENVIRONMENT)
        for group in groups
    ]
    outputs = [actor.communicate(timeout=60)[0] for actor in actors]
    assert [actor.returncode for actor in actors] == [0, 0, 0, 0]
    assert f"item factors {expected}" in outputs[3]
    assert {path.name for path in (folder / "views").iterdir()} >= {"recommender.view", "user-5.view"}
    again = keyhole("actor", "user:0", *where)  # it has done its part
    assert again.exit_code == 0 and "user:0 is done" in again.stdout


@pytest.mark.parametrize("scheme", ["masked", "dynamic"])
def test_an_actor_that_was_killed_is_started_again_by_hand_and_goes_on(tmp_path, scheme):
    config = ("--data", "synthetic:6x5:.5", "--iterations", "60", "--dim", "2", "--seed", "3", "--scheme", scheme)
    steady = ("--join", "0", "--leave", "0") if scheme == "dynamic" else ()
    result = keyhole("run", *config, *steady, "--out", tmp_path / "run", "--transport", "inprocess", "--json")
    expected = json.loads(result.stdout)["item_factors_sha256"]
    port = two_free_ports()
    folder = tmp_path / "hand"
    assert keyhole("prepare", *config, "--out", folder, "--port", port).exit_code == 0
    where = ["--roster", str(folder / "roster.json"), "--keys", str(folder / "keys"), "--deadline", "4"]
    command, pipe = [sys.executable, "-m", "sim", "actor"], subprocess.PIPE

    def start(party: str) -> subprocess.Popen[str]:
        environment = os.environ | ENVIRONMENT
        return subprocess.Popen([*command, party, *where], stdout=pipe, stderr=pipe, text=True, env=environment)

    actors = {party: start(party) for party in ("recommender", "third_party", "users")}
    for party in ("recommender", "third_party"):
        for line in actors[party].stderr:
            if "finished iteration" in line:
                break
        actors[party].send_signal(signal.SIGSTOP)  # the run must not end before the next line is done
        refused(keyhole("actor", "users", *where), 2, "Another process is still writing")
        actors[party].kill()
        actors[party].communicate()
        actors[party] = start(party)
    outputs = {party: actor.communicate(timeout=60) for party, actor in actors.items()}
    assert f"item factors {expected}" in outputs["recommender"][0], outputs
    assert "goes on from its view" in outputs["third_party"][1]


def test_keys_that_others_can_read_are_refused(tmp_path):
    folder = tmp_path / "hand"
    assert keyhole("prepare", "--data", "demo-small", "--out", folder).exit_code == 0
    where = ["--roster", folder / "roster.json", "--keys", folder / "keys"]
    assert {oct(path.stat().st_mode & 0o777) for path in (folder / "keys").iterdir()} == {"0o600"}
    os.chmod(folder / "keys", 0o750)
    refused(keyhole("actor", "user:0", *where), 2, "chmod 700")
    os.chmod(folder / "keys", 0o700)
    (folder / "keys" / "user-0.key").unlink()
    refused(keyhole("actor", "user:0", *where), 2, "no key of user:0")
    refused(keyhole("actor", "user:40", *where), 2, "user:40")
    refused(keyhole("actor", "user:0", "--roster", folder / "none.json", "--keys", folder / "keys"), 2, "none.json")


def test_the_verdict_of_verify_does_not_depend_on_its_reader(tmp_path):
    """`keyhole verify RUN | head -1` under pipefail: a reader that leaves early must not make a bad run good."""
    assert keyhole(*INPROCESS, "--out", tmp_path / "run").exit_code == 0
    view = tmp_path / "run" / "views" / "user-3.view"
    whole = view.read_bytes()
    view.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    for flags in ((), ("--json",)):
        command = [sys.executable, "-m", "sim", "verify", str(tmp_path / "run"), *flags]
        pipe = subprocess.PIPE
        process = subprocess.Popen(command, stdout=pipe, stderr=pipe, env=os.environ | ENVIRONMENT)
        process.stdout.close()
        assert b"user-3.view" in process.stderr.read() and process.wait() == 4
        process.stderr.close()


def test_a_broken_view_is_still_shown_as_one_document(tmp_path):
    assert keyhole(*INPROCESS, "--out", tmp_path / "run").exit_code == 0
    path = tmp_path / "run" / "views" / "user-3.view"
    view = path.read_bytes()
    path.write_bytes(view[:600] + bytes([view[600] ^ 1]) + view[601:])
    result = keyhole("view", tmp_path / "run", "user:3", "--json")
    assert result.exit_code == 4 and "does not fit the hash chain" in result.stderr
    assert len(json.loads(result.stdout)) >= 2


def test_a_complete_run_is_not_resumed_and_that_is_said(tmp_path):
    assert keyhole(*INPROCESS, "--out", tmp_path / "run").exit_code == 0
    result = keyhole("resume", tmp_path / "run", "--json")
    assert result.exit_code == 0 and json.loads(result.stdout)["completed"]
    assert "was complete, so nothing was done" in result.stderr


def test_an_interrupt_while_modules_are_loaded_ends_as_any_other(monkeypatch, capsys):
    class Slow:
        def __getattr__(self, name):
            raise KeyboardInterrupt

    monkeypatch.setitem(sys.modules, "sim.cli.app", Slow())
    with pytest.raises(SystemExit) as ended:
        entry.main()
    assert ended.value.code == 5
    assert capsys.readouterr().err == "keyhole: Interrupted.\n"


def test_who_keeps_no_views_is_not_told_to_go_on(tmp_path):
    """The factors of `direct` leave float32 when nothing bounds its steps."""
    wild = ("--scheme", "direct", "--data", "synthetic:6x5:.5", "--iterations", "60", "--dim", "2", "--seed", "1")
    wild = (*wild, "--set", "learning_rate=1e9", "--set", "clip=1e9", "--transport", "inprocess")
    for views, advised in (("full", True), ("none", False)):
        stopped = keyhole("run", *wild, "--views", views, "--out", tmp_path / views)
        assert stopped.exit_code == 5 and "aborted" in stopped.stderr
        assert ("keyhole resume" in stopped.stderr) == advised
