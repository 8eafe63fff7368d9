"""What a command does besides printing: files it writes or reads outside, modules it imports, processes it starts."""

from __future__ import annotations

import contextlib
import importlib
import importlib.abc
import os
import sys
import sysconfig
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
TRUSTED = tuple(
    os.path.realpath(place) + os.sep
    for place in {os.path.dirname(os.__file__), *sysconfig.get_paths().values(), str(ROOT)}
    if place
)
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_CHANGING = {  # event -> which arguments are (path, folder's descriptor)
    "os.rename": ((0, 2), (1, 3)),
    "os.link": ((1, 3),),
    "os.symlink": ((1, 2),),
    "os.remove": ((0, 1),),
    "os.rmdir": ((0, 1),),
    "os.mkdir": ((0, 2),),
    "os.chmod": ((0, 2),),
    "os.chown": ((0, 3),),
    "os.utime": ((0, 3),),
    "os.truncate": ((0, None),),
    "shutil.rmtree": ((0, 1),),
}
_STARTING = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "pty.spawn")
_REACHING = ("socket.connect", "socket.getaddrinfo", "socket.sendto", "urllib.Request")


@dataclass
class Watch:
    """Hears every audit event after `begin`, and notes each forbidden one with the frame that caused it."""

    scratch: Path  # everything of the case is below it
    may_write: tuple[str, ...]  # real paths; what ends with a slash stands for all below it
    named: frozenset[str]  # modules that only the folder can have named
    secrets: frozenset[str]  # real paths that the command may not read
    starts: bool
    notes: list[tuple[str, str, str]] = field(default_factory=list)  # kind, what, where
    _busy: bool = False
    _dir_fd: int | None = None

    def begin(self) -> None:
        self._known = set(sys.modules)
        self._watch_imports()
        self._watch_descriptors()
        sys.addaudithook(self._hear)

    def end(self) -> None:
        """Note every new module that comes from an untrusted place."""
        for name in sorted(set(sys.modules) - self._known):
            file = getattr(sys.modules[name], "__file__", None)
            if file and not os.path.realpath(file).startswith(TRUSTED):
                self._note("import", f"the module {name} of {self._short(file)}")

    def _watch_imports(self) -> None:
        watch, true = self, importlib.import_module

        class Finder(importlib.abc.MetaPathFinder):
            def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
                watch._importing(name)

        def import_module(name: str, package: str | None = None) -> Any:
            watch._importing(name)
            return true(name, package)

        sys.meta_path.insert(0, Finder())
        importlib.import_module = import_module

    def _importing(self, name: str) -> None:
        if name in self.named:
            self._note("import", f"the module {name}, which only the folder names")

    def _watch_descriptors(self) -> None:
        """Replace `os.open` to record `dir_fd`: the audit event does not say which folder a name is relative to."""
        true = os.open

        def opened(path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
            self._dir_fd = dir_fd
            try:
                return true(path, flags, mode, dir_fd=dir_fd)
            finally:
                self._dir_fd = None

        os.open = opened

    def _hear(self, event: str, args: tuple[Any, ...]) -> None:
        if self._busy:
            return
        self._busy = True
        try:
            self._judge(event, args)
        finally:
            self._busy = False

    def _judge(self, event: str, args: tuple[Any, ...]) -> None:
        if event == "open":
            self._opened(args[0], args[2])
        elif event in _CHANGING:
            for path, folder in _CHANGING[event]:
                self._written(self._real(args[path], args[folder] if folder is not None else None, last=False), event)
        elif event in _STARTING and not self.starts:
            self._note("process", f"{event} {str(args)[:200]}")
        elif event in _REACHING and not self.starts:
            self._note("network", f"{event} {str(args[1:])[:200]}")
        elif event == "exec" and args[0].co_filename.startswith(str(self.scratch)):
            self._note("import", f"code of {self._short(args[0].co_filename)}")
        elif event == "pickle.find_class" and args[1] == "system":
            self._note("import", f"a pickle of {args[0]}.{args[1]}")

    def _opened(self, path: Any, flags: Any) -> None:
        if isinstance(path, int) or path is None:
            return
        flags = flags if isinstance(flags, int) else 0
        follows = not flags & os.O_NOFOLLOW and flags & (os.O_CREAT | os.O_EXCL) != os.O_CREAT | os.O_EXCL
        real = self._real(path, self._dir_fd, last=follows)
        if flags & _WRITING:
            self._written(real, "open")
        elif follows and real in self.secrets:
            self._note("read outside", self._short(real))

    def _written(self, real: str | None, event: str) -> None:
        if real is None or any(real.startswith(p) if p.endswith("/") else real == p for p in self.may_write):
            return
        self._note("write", f"{event} {self._short(real)}")

    def _real(self, path: Any, folder: Any, last: bool) -> str | None:
        """Resolve `path`, relative to the descriptor `folder` if given; follow a link at its end only if `last`."""
        if isinstance(path, int):
            return None
        path = os.fsdecode(path)
        if isinstance(folder, int) and folder >= 0 and not os.path.isabs(path):
            path = os.path.join(os.readlink(f"/proc/self/fd/{folder}"), path)
        if last:
            return os.path.realpath(path)
        parent, name = os.path.split(os.path.abspath(path))
        return os.path.join(os.path.realpath(parent), name)

    def _short(self, path: str) -> str:
        return path.replace(str(self.scratch), "…")

    def _note(self, kind: str, what: str) -> None:
        if len(self.notes) < 50:
            self.notes.append((kind, what, innermost("".join(traceback.format_stack()))))


def innermost(text: str, first: bool = False) -> str:
    """Find the innermost frame of Keyhole's own code, as file:line function; it is the first one if `first`."""
    frames = []
    for line in text.splitlines():
        for part in ("sim", "protocol", "actors"):
            if f"{ROOT}/{part}/" in line and " in " in line:
                file = part + "/" + line.split(f"{ROOT}/{part}/", 1)[1].split('"')[0]
                number = line.split(" line ", 1)[1].split(" ")[0].rstrip(",") if " line " in line else "?"
                frames.append(f"{file}:{number} {line.rsplit(' in ', 1)[1].strip()}")
    return (frames[0] if first else frames[-1]) if frames else "no frame of Keyhole"


def watch_memory(most: int, tell: Callable[[str], None]) -> None:
    """Look at the memory five times a second; `tell` the stack once when it is more than `most` bytes."""
    import signal

    page = os.sysconf("SC_PAGE_SIZE")

    def look(signum: int, frame: Any) -> None:
        with open("/proc/self/statm") as file:
            if int(file.read().split()[1]) * page > most:
                signal.setitimer(signal.ITIMER_REAL, 0)
                tell("".join(traceback.format_stack(frame)))

    with contextlib.suppress(ValueError):  # this is not the main thread
        signal.signal(signal.SIGALRM, look)
        signal.setitimer(signal.ITIMER_REAL, 0.2, 0.2)
