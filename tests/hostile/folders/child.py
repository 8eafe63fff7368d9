"""One command in its own process, forked from a process that has already imported everything."""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.hostile.folders.checks import Finding, Printed
from tests.hostile.folders.commands import Command
from tests.hostile.folders.values import NAMED_MODULES
from tests.hostile.folders.watch import Watch, innermost, watch_memory

Call = Callable[[list[str]], None]
STOPPED = 5


@dataclass(frozen=True, slots=True)
class Limits:
    seconds: float = 60.0
    megabytes: int = 1024  # of resident memory
    address_megabytes: int = 4096  # of address space; beyond it an allocation fails
    patience: float = 1.5  # seconds before a command that waits for other processes is stopped
    to_stop: float = 8.0  # seconds that it may then take to end


@dataclass(frozen=True, slots=True)
class Scene:
    """The paths of one case."""

    top: Path
    folder: Path

    @property
    def cwd(self) -> Path:
        return self.top / "cwd"

    @property
    def outside(self) -> Path:
        return self.top / "outside"

    @property
    def tmp(self) -> Path:
        return self.top / "tmp"

    @property
    def marker(self) -> Path:
        return self.outside / "marker"


@dataclass(frozen=True, slots=True)
class Ended:
    printed: Printed
    seconds: float
    megabytes: float
    findings: list[Finding]


def run_child(call: Call, command: Command, argv: list[str], scene: Scene, limits: Limits) -> Ended:
    """Run `command` in a forked child and wait for it; the findings say what it did besides its output."""
    sys.stdout.flush()
    sys.stderr.flush()
    started = time.monotonic()
    pid = os.fork()
    if pid == 0:
        _live(call, command, argv, scene, limits)
    status, usage, overdue = _wait(pid, command, limits)
    seconds, megabytes = time.monotonic() - started, usage.ru_maxrss / 1024
    code = os.waitstatus_to_exitcode(status)
    stdout, stderr = (_read(scene.top / name) for name in ("stdout", "stderr"))
    if command.waits and code == -signal.SIGTERM:  # on a busy machine the signal comes before its handler is set
        code, stderr = STOPPED, stderr or b"stopped"
    printed = Printed(argv, code, stdout, stderr)
    findings = _noted(scene)
    if overdue:
        place = innermost(_read(scene.top / "stack").decode("utf-8", "replace"), first=True)
        findings.append(Finding("timeout", f"{overdue} ({seconds:.0f} s)", place))
    if megabytes > limits.megabytes:
        place = innermost(_read(scene.top / "memory").decode("utf-8", "replace"))
        findings.append(Finding("memory", f"{megabytes:.0f} MB", place))
    return Ended(printed, seconds, megabytes, findings)


def _read(path: Path) -> bytes:
    """Read a file, at most its first 100 MB; a missing file is empty."""
    if not path.exists():
        return b""
    with path.open("rb") as file:
        return file.read(100_000_000)


def _noted(scene: Scene) -> list[Finding]:
    try:
        notes = json.loads(_read(scene.top / "notes") or b"[]")
    except ValueError:
        return []  # it was killed while it wrote them
    return list(dict.fromkeys(Finding(*note) for note in notes))


def _wait(pid: int, command: Command, limits: Limits) -> tuple[int, Any, str]:
    """Wait for the child; return (status, usage, why it had to be killed)."""
    ends = os.pidfd_open(pid)
    overdue = ""
    try:
        if command.waits and not _ends_within(ends, limits.patience):
            os.kill(pid, signal.SIGTERM)
            if not _ends_within(ends, limits.to_stop):
                overdue = "a signal does not stop it"
        elif not command.waits and not _ends_within(ends, limits.seconds):
            overdue = "it does not end"
        if overdue:
            os.kill(pid, signal.SIGKILL)
    finally:
        os.close(ends)
    _, status, usage = os.wait4(pid, 0)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)  # processes that it started and left behind
    return status, usage, overdue


def _ends_within(descriptor: int, seconds: float) -> bool:
    return bool(select.select([descriptor], [], [], seconds)[0])


# --- in the child ----------------------------------------------------------------------------------------------------


def _live(call: Call, command: Command, argv: list[str], scene: Scene, limits: Limits) -> None:
    code = 1
    try:
        notes, watch = _settle(command, scene, limits)
        watch.begin()
        try:
            code = _call(call, argv)
        finally:
            watch._busy = True  # the watch ignores what follows: the command does not cause it
            watch.end()
            os.write(notes, json.dumps(watch.notes).encode("ascii", "replace"))
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _call(call: Call, argv: list[str]) -> int:
    """Call the command, and return the exit code that the interpreter would give."""
    try:
        call(argv)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 1
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except Exception:
        traceback.print_exc()
        code = 120
    return code


def _settle(command: Command, scene: Scene, limits: Limits) -> tuple[int, Watch]:
    """Set up the child like the process of a command line, with limits and without the tests on its path."""
    os.setsid()
    os.chdir(scene.cwd)
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    descriptors = [os.open(scene.top / name, flags, 0o600) for name in ("stdout", "stderr", "notes", "stack", "memory")]
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(descriptors[0], 1)
    os.dup2(descriptors[1], 2)
    sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
    sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = os.fdopen(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False)
    tempfile.tempdir = os.environ["TMPDIR"] = os.environ["XDG_CACHE_HOME"] = str(scene.tmp)
    sys.path[:] = [place for place in sys.path if place and not _is_of_the_tests(place)]
    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, signal.SIG_DFL if name != signal.SIGINT else signal.default_int_handler)
    ceiling = limits.address_megabytes << 20
    resource.setrlimit(resource.RLIMIT_AS, (ceiling, ceiling))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    due = limits.patience + limits.to_stop if command.waits else limits.seconds
    faulthandler.dump_traceback_later(max(0.1, 0.9 * due), file=descriptors[3])
    watch_memory(limits.megabytes << 20, lambda text: os.write(descriptors[4], text.encode()) and None)
    return descriptors[2], make_watch(command, scene)


def _is_of_the_tests(place: str) -> bool:
    return Path(place).resolve() == Path(__file__).parents[2]


def make_watch(command: Command, scene: Scene) -> Watch:
    """Make the watch of a command, which may write to the folder for temporary files and to its own files."""
    folder = os.path.realpath(scene.folder)
    tmp = os.path.realpath(scene.tmp)
    allowed = [os.devnull, "/dev/shm/", "/proc/", tmp, f"{tmp}/"]
    if "*" in command.writes:
        allowed += [folder, f"{folder}/"]
    allowed += [f"{folder}/{name}" for name in command.writes]
    if command.name == "run":
        allowed += [str(scene.cwd / "made"), f"{scene.cwd}/made/"]
    secrets = frozenset() if command.is_named else frozenset(str(each) for each in scene.outside.rglob("*"))
    return Watch(scene.top, tuple(allowed), frozenset(NAMED_MODULES), secrets, command.starts or command.waits)


def make_scene(top: Path, seed: Path, name: str, secret: str) -> Scene:
    """Make a copy of the run, a folder to work in, and a folder outside that no command may touch."""
    shutil.rmtree(top, ignore_errors=True)
    scene = Scene(top, top / "home" / name)
    for place in (scene.cwd, scene.outside, scene.tmp, top / "home"):
        place.mkdir(parents=True)
    (scene.outside / "secret").write_text(secret + "\n")
    shutil.copytree(seed, scene.folder)
    return scene
