"""A few hundred hostile folders in every test run (twenty thousand: `python -m tests.hostile.folders.fuzz_folder`).

Planted faults of each kind must be found: a fuzzer that cannot fail proves nothing.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from tests.hostile.folders.cases import SECRET, Fuzzer
from tests.hostile.folders.checks import Printed, check_printed
from tests.hostile.folders.child import Limits
from tests.hostile.folders.commands import COMMANDS
from tests.hostile.folders.seeds import make_seeds

ROOT = Path(__file__).parents[2]
CASES = 300


def small() -> Limits:
    """Set limits above what this process has now: after many tests it may be large, and a child inherits its memory."""
    own = psutil.Process().memory_info()
    return Limits(
        seconds=20.0,
        megabytes=(own.rss >> 20) + 600,
        address_megabytes=(own.vms >> 20) + 4096,
        patience=0.5,
        to_stop=1.0,
    )



def test_no_command_does_anything_but_answer_or_refuse_whatever_the_folder():
    words = [sys.executable, "-m", "tests.hostile.folders.fuzz_folder", "--cases", str(CASES), "--seed", "7", "--quiet"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line.split() for line in done.stdout.splitlines() if line.split()]
    rows = {row[0]: list(map(int, row[1:7])) for row in lines if row[0] in (*COMMANDS, "all")}
    assert rows["all"][0] == CASES == sum(rows["all"][1:]), "every case ended with one of the codes"
    assert rows["all"][1] > CASES / 10 and rows["all"][2] > CASES / 10, "some are answered, some are refused"
    assert rows["all"][4] > CASES / 10, "some tampering is named as such"
    assert set(rows) >= {"view", "verify", "replay", "audit", "bandwidth", "resume", "actor", "api"}


@pytest.fixture(scope="module")
def fuzzer(tmp_path_factory):
    work = tmp_path_factory.mktemp("fuzz").resolve()
    (work / "seeds").mkdir()
    return Fuzzer(make_seeds(work / "seeds"), work, 1, small(), "verify")


def kinds(fuzzer: Fuzzer, planted, only: str = "verify", number: int = 3) -> set[str]:
    result = replace(fuzzer, call=planted, only=only).try_case(number)
    return {finding.kind for finding in result.findings}


def test_a_command_that_does_nothing_wrong_is_no_finding(fuzzer):
    def refuse(argv):
        print("keyhole: No.", file=sys.stderr)
        raise SystemExit(2)

    assert kinds(fuzzer, refuse) == set()
    assert not list(fuzzer.work.glob("case-*")), "what was made for a case is gone"


def test_a_case_follows_from_its_number(fuzzer):
    def nothing(argv):
        pass

    twice = [replace(fuzzer, call=nothing, only=None).try_case(number) for number in (5, 6, 5)]
    told = [(result.command, result.seed, result.words, result.argv) for result in twice]
    assert told[0] == told[2] != told[1]


# --- what a command must not do --------------------------------------------------------------------------------------


def raises(argv):
    raise KeyError("views")


def leaves_a_bug_file(argv):
    import tempfile

    try:
        {}["x"]
    except KeyError:
        import traceback

        with tempfile.NamedTemporaryFile("w", prefix="keyhole-bug-", suffix=".txt", delete=False) as file:
            file.write(traceback.format_exc())
    print("keyhole: Keyhole has a bug", file=sys.stderr)
    raise SystemExit(1)


def kills_itself(argv):
    os.kill(os.getpid(), 9)


def allocates(argv):
    kept = b"x" * (1200 << 20)
    time.sleep(0.3)
    del kept


def prints_an_escape(argv):
    print("a name: \x1b[31mred")


def prints_a_turned_name(argv):
    print("a name: \u202egnp.exe", file=sys.stderr)


def writes_outside(argv):
    (Path(argv[1]).parent.parent / "outside" / "new").write_text("x")


def writes_through_a_link(argv):
    place = Path(argv[1])
    link = Path(os.environ["TMPDIR"]) / "link"
    link.symlink_to(place.parent.parent / "outside" / "secret")
    with link.open("a") as file:
        file.write("x")


def writes_into_the_folder_it_only_reads(argv):
    (Path(argv[1]) / "cache").write_text("x")


def writes_into_the_current_folder(argv):
    Path("cache").mkdir()


def removes_a_file_of_the_folder(argv):
    import shutil

    shutil.rmtree(argv[1])


def opens_relative_to_a_descriptor(argv):
    folder = os.open(argv[1] + "/..", os.O_RDONLY)
    os.close(os.open("beside", os.O_WRONLY | os.O_CREAT, dir_fd=folder))


def prints_the_secret(argv):
    print((Path(argv[1]).parent.parent / "outside" / "secret").read_text())


def imports_what_is_there(argv):
    Path(os.environ["TMPDIR"], "helpful.py").write_text("x = 1\n")
    sys.path.append(os.environ["TMPDIR"])
    sys.dont_write_bytecode = True
    import helpful  # noqa: F401


def imports_what_the_folder_names(argv):
    import contextlib
    import importlib

    with contextlib.suppress(ImportError):
        importlib.import_module("evil")


def takes_what_is_loaded_already(argv):
    import importlib

    importlib.import_module("os")


def runs_a_pickle(argv):
    """Cause the audit events of a pickle that names `posix.system`: the lookup of the name, and the call."""
    sys.audit("pickle.find_class", "posix", "system")
    os.system("true")


def starts_a_process(argv):
    subprocess.run(["true"])


def connects(argv):
    import contextlib
    import socket

    with contextlib.suppress(OSError), socket.socket() as made:
        made.settimeout(0.1)
        made.connect(("127.0.0.1", 9))


def says_nothing(argv):
    raise SystemExit(4)


PLANTED = [
    (raises, {"exit 1"}),
    (leaves_a_bug_file, {"bug"}),
    (kills_itself, {"exit -9"}),
    (allocates, {"memory"}),
    (prints_an_escape, {"control character"}),
    (prints_a_turned_name, {"control character"}),
    (writes_outside, {"write"}),
    (writes_through_a_link, {"write"}),
    (writes_into_the_folder_it_only_reads, {"write"}),
    (writes_into_the_current_folder, {"write"}),
    (removes_a_file_of_the_folder, {"write"}),
    (opens_relative_to_a_descriptor, {"write"}),
    (prints_the_secret, {"secret printed", "read outside"}),
    (imports_what_is_there, {"import"}),
    (imports_what_the_folder_names, {"import"}),
    (takes_what_is_loaded_already, {"import"}),
    (runs_a_pickle, {"import", "process"}),
    (starts_a_process, {"process"}),
    (connects, {"network"}),
    (says_nothing, {"silent"}),
]


@pytest.mark.parametrize(("planted", "found"), PLANTED, ids=lambda each: getattr(each, "__name__", ""))
def test_each_of_these_is_found(fuzzer, planted, found):
    assert kinds(fuzzer, planted) == found


def test_a_command_that_does_not_end_is_found(fuzzer):
    def hangs(argv):
        time.sleep(60)

    assert kinds(replace(fuzzer, limits=replace(small(), seconds=1.0)), hangs) == {"timeout"}


def test_an_actor_that_a_signal_does_not_stop_is_found(fuzzer):
    def deaf(argv):
        import signal

        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(60)

    def patient(argv):
        import signal

        def stop(signum, frame):
            print("keyhole: Interrupted.", file=sys.stderr)
            raise SystemExit(5)

        signal.signal(signal.SIGTERM, stop)
        time.sleep(60)

    assert kinds(fuzzer, deaf, "actor") == {"timeout"}
    assert kinds(fuzzer, patient, "actor") == set()


def test_a_report_may_write_its_page_and_nothing_of_others_in_it(fuzzer):
    def sound(argv):
        (Path(argv[1]) / "report.html").write_text("<p>&lt;img src=kh")

    def careless(argv):
        (Path(argv[1]) / "report.html").write_text(f"<p><img src=kh onerror=x> \x1b {SECRET}")

    number = next(n for n in range(99) if "report.html" not in str(words_of(fuzzer, n)))
    assert kinds(fuzzer, sound, "report", number) == set()
    assert kinds(fuzzer, careless, "report", number) == {"markup in the page", "control character", "secret printed"}


def words_of(fuzzer: Fuzzer, number: int) -> list[str]:
    return replace(fuzzer, call=lambda argv: None, only="report").try_case(number).words


@pytest.mark.parametrize(
    ("argv", "stdout", "found"),
    [
        (["verify", "--json"], '{"x": 1}\n', set()),
        (["verify", "--json"], '{"x": NaN}\n', {"not one JSON document"}),
        (["verify", "--json"], "{}\n{}\n", {"not one JSON document"}),
        (["verify", "--json"], "", {"not one JSON document"}),
        (["bandwidth", "--csv"], "a,b\n-1,'=1\n", set()),
        (["bandwidth", "--csv"], "a,b\n=1+1,2\n", {"cell that is a formula"}),
        (["bandwidth", "--csv"], "a,b\n-1+1,2\n", {"cell that is a formula"}),
        (["view"], "tab\tand newline\n", set()),
        (["view"], "\x9b31m\n", {"control character"}),
    ],
)
def test_the_form_of_what_is_printed_is_checked(argv, stdout, found):
    printed = Printed(argv, 0, stdout.encode(), b"")
    assert {finding.kind for finding in check_printed(printed, SECRET)} == found


def test_every_command_that_reads_a_folder_is_tried():
    """The list contains every command that takes a folder, a roster or a configuration."""
    from sim.cli import commands

    names = set(commands.COMMANDS)
    elsewhere = {"schemes", "datasets", "fetch", "prepare", "bench", "evaluate", "compare", "reproduce"}
    elsewhere |= {"explain", "new"}
    assert names - elsewhere <= set(COMMANDS)


def test_one_case_can_be_repeated_with_all_that_is_known_of_it():
    words = [sys.executable, "-m", "tests.hostile.folders.fuzz_folder", "--seed", "1", "--case", "4", "--only", "view"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    assert re.search(r"case 4: view on .*\n(  mutation: .*\n)+  command: keyhole 'view'", done.stdout)
    assert json.dumps(done.stdout) and "stdout, " in done.stdout
