"""Limits of this machine on files, tasks, memory and disk; a run that exceeds one is refused before it starts."""

from __future__ import annotations

import os
import resource
import shutil
from dataclasses import dataclass
from pathlib import Path

import psutil

from protocol.errors import BadInput

SPARE_FILES = 64  # for the interpreter and ZeroMQ's own signalling
HOST_FILES = 5  # per user in a packed host: two sockets with a connection and a signal each, and the user's view
SERVER_FILES = 2  # per user in a server: the connection, and a second descriptor that reads the kernel's byte counts
USER_TASKS, SERVER_TASKS, OWN_TASKS = 3, 7, 2  # the limit counts threads too; the launcher and the zygote are two
USER_PROCESS_BYTES = 4 << 20
SERVER_PROCESS_BYTES = 200 << 20
# A connected user takes 100 to 120 KB of its host and 50 to 75 KB of each server, at 20 items and dim 10 to 50. Each
# further number of a message adds about 16 bytes in the host and 30 in a server.
HOST_USER_BYTES, SERVER_USER_BYTES = 150 << 10, 120 << 10
HOST_NUMBER_BYTES, SERVER_NUMBER_BYTES, COUNTED_NUMBERS = 16, 30, 1000
PARKED_USER_BYTES = 4 << 10  # the keys and ratings of a user without a connection
MOST_CONNECTED = 4000  # users connected at once, where users take turns
FEWEST_CONNECTED = 100  # with fewer connected at once, a run would spend its time on taking turns

CGROUPS = Path("/sys/fs/cgroup")
OWN_CGROUP = Path("/proc/self/cgroup")


@dataclass(frozen=True, slots=True)
class Need:
    """The resources that a run takes."""

    files: int  # of the process that needs the most
    tasks: int
    memory: int


@dataclass(frozen=True, slots=True)
class Lack:
    """A limit that is too low. `words` continue "This run"; `advice` lists remedies other than fewer users."""

    words: str
    advice: tuple[str, ...] = ()
    fewer_processes: bool = True  # packing users into fewer processes would help

    def sentence(self, packed: bool) -> str:
        """Write the sentence with all remedies; `packed` users are not advised to be packed."""
        pack = ("pack several users into a process with --users-per-process",)
        ways = (*self.advice, *(pack if self.fewer_processes and not packed else ()), "use fewer users")
        return f"{self.words}: {', or '.join(ways)}."


def need_of(users: int, per_process: int, servers: int, numbers: int = COUNTED_NUMBERS, connected: int = 0) -> Need:
    """Estimate the resources of a run.

    `numbers` is the length of a message to or from a user, items × dim; `connected` is how many users are connected at
    once, 0 for all of them.
    """
    at_once = connected or users
    processes = -(-users // per_process)
    packed = min(per_process, -(-at_once // processes))
    more = max(0, numbers - COUNTED_NUMBERS)
    host = HOST_USER_BYTES + HOST_NUMBER_BYTES * more
    server = SERVER_USER_BYTES + SERVER_NUMBER_BYTES * more
    own = processes * max(USER_PROCESS_BYTES, host) if per_process == 1 else processes * USER_PROCESS_BYTES
    own += at_once * host if per_process > 1 else 0
    memory = own + servers * (SERVER_PROCESS_BYTES + at_once * server) + (users - at_once) * PARKED_USER_BYTES
    tasks = USER_TASKS * processes + SERVER_TASKS * servers + OWN_TASKS
    return Need(files_of(at_once, packed), tasks, memory)


def files_of(connections: int, packed: int) -> int:
    """Count the open files of a server with `connections` clients or of a host of `packed` users, whichever is more.

    The descriptors that read the kernel's counts are left out: a run works without them.
    """
    return max(connections, HOST_FILES * packed) + SPARE_FILES


def most_connected(users: int, hosts: int, servers: int = 2, numbers: int = COUNTED_NUMBERS) -> int:
    """Compute how many of `users`, packed into `hosts`, may be connected at once; the others wait for their turn."""
    most = min(users, MOST_CONNECTED)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard != resource.RLIM_INFINITY:
        room = max(0, hard - 2 * SPARE_FILES)
        most = min(most, room // SERVER_FILES, hosts * (room // HOST_FILES))
    more = max(0, numbers - COUNTED_NUMBERS)
    each = HOST_USER_BYTES + HOST_NUMBER_BYTES * more + servers * (SERVER_USER_BYTES + SERVER_NUMBER_BYTES * more)
    fixed = servers * SERVER_PROCESS_BYTES + hosts * USER_PROCESS_BYTES + users * PARKED_USER_BYTES
    free = _free_memory()
    return max(1, most if free is None else min(most, (free - fixed) // each))


def shortage(need: Need) -> Lack | None:
    """Find the first limit that a run with this `need` would hit."""
    return _files(need.files) or _tasks(need.tasks) or _memory(need.memory)


def check(need: Need) -> None:
    """Refuse a run that this machine cannot hold, else raise the soft limit on open files to what it needs."""
    if lack := shortage(need):
        raise BadInput(f"This run {lack.sentence(packed=False)}")
    check_files(need.files)


def check_files(need: int) -> None:
    """Raise the soft limit to `need` open files, since a ROUTER that runs out of descriptors hangs silently."""
    if lack := _files(need):
        raise BadInput(f"This run {lack.sentence(packed=True)}")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < need:
        resource.setrlimit(resource.RLIMIT_NOFILE, (need, hard))


def _files(need: int) -> Lack | None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard == resource.RLIM_INFINITY or need <= hard:
        return None
    words = f"needs {need} open files in one process and the limit is {hard}"
    return Lack(words, (f"raise it with ulimit -n {need}",), fewer_processes=False)


def _tasks(need: int) -> Lack | None:
    soft = resource.getrlimit(resource.RLIMIT_NPROC)[0]
    if soft != resource.RLIM_INFINITY and soft < need:
        words = f"needs {need} processes and threads and the limit is {soft}"
        return Lack(words, (f"raise it with ulimit -u {need}",))
    room = cgroup_tasks()
    if room is not None and room < need:
        words = f"needs {need} processes and threads and its control group has room for {room} (pids.max)"
        return Lack(words, ("raise pids.max",))
    return None


def cgroup_tasks() -> int | None:
    """Count the tasks that may be added before a control group is full; None if no group sets a limit."""
    rooms = []
    for line in _lines(OWN_CGROUP):
        _, controllers, path = line.split(":", 2)
        root = CGROUPS if not controllers else CGROUPS / "pids"
        if controllers and "pids" not in controllers.split(","):
            continue
        own = root / path.lstrip("/")
        for folder in [own, *own.parents]:
            most, there = _lines(folder / "pids.max"), _lines(folder / "pids.current")
            if most and there and most[0].isdecimal() and there[0].isdecimal():
                rooms.append(int(most[0]) - int(there[0]))
            if folder == root:
                break
    return min(rooms, default=None)


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text("utf-8").splitlines()
    except OSError:  # a system without control groups
        return []


def _memory(need: int) -> Lack | None:
    free = _free_memory()
    if free is None or need <= free:
        return None
    return Lack(f"needs about {amount(need)} of memory and {_free(free)}")


def _free_memory() -> int | None:
    """Read how many bytes of memory are available; None where the system does not say, as without /proc."""
    try:
        return int(psutil.virtual_memory().available)
    except (OSError, RuntimeError, ValueError):
        return None


def amount(size: int) -> str:
    """Write `size` in MB, or in kB if it is below 1 MB."""
    return f"{size >> 20} MB" if size >> 20 else f"{-(-size >> 10)} kB"


def _free(size: int) -> str:
    return f"{amount(size)} are free" if size else "none is free"


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def make_room_for_twice(connections: int) -> str | None:
    """Raise the soft limit to two descriptors for each of `connections`, or return a sentence that says why not."""
    need = SERVER_FILES * connections + 2 * SPARE_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < need:
        return (
            f"A server would need {need} open files to read what the kernel counted, and the limit is {hard}: "
            f"raise it with ulimit -n {need}."
        )
    if soft != resource.RLIM_INFINITY and soft < need:
        resource.setrlimit(resource.RLIMIT_NOFILE, (need, hard))
    return None


def check_disk(folder: Path, view_bytes: int) -> None:
    existing = next(parent for parent in [folder, *folder.absolute().parents] if parent.exists())
    disk = shutil.disk_usage(existing)
    if not disk.total:  # such as /proc or /sys
        raise BadInput(f"{existing} is not a place for files, it shows what the system knows: choose another --out.")
    if disk.free < view_bytes:
        raise BadInput(
            f"The views of this run will take about {amount(view_bytes)} and {_free(disk.free)} in {existing}: "
            "use --views servers or none, fewer iterations, or another --out."
        )
