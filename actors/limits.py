"""What this machine allows, looked at before anything starts and refused in words."""

from __future__ import annotations

import resource
import shutil
from pathlib import Path

import psutil

from protocol.errors import BadInput

SPARE_FILES = 64  # what an interpreter, a view and ZeroMQ's own signalling need
USER_PROCESS_BYTES = 4 << 20
PACKED_USER_BYTES = 1 << 20
SERVER_PROCESS_BYTES = 200 << 20


def check_files(connections: int, sockets: int) -> None:
    """A ROUTER that runs out of descriptors hangs without a word, so have them beforehand."""
    need = max(connections, 4 * sockets) + SPARE_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < need:
        raise BadInput(
            f"This run needs {need} open files in one process and the limit is {hard}: "
            f"raise it with ulimit -n {need}, or use fewer users."
        )
    if soft != resource.RLIM_INFINITY and soft < need:
        resource.setrlimit(resource.RLIMIT_NOFILE, (need, hard))


def make_room_for_twice(connections: int) -> str | None:
    """Two descriptors for each, or a sentence that says why there will be one."""
    need = 2 * connections + 2 * SPARE_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < need:
        return (
            f"A server would need {need} open files to read what the kernel counted, and the limit is {hard}: "
            f"raise it with ulimit -n {need}."
        )
    if soft != resource.RLIM_INFINITY and soft < need:
        resource.setrlimit(resource.RLIMIT_NOFILE, (need, hard))
    return None


def check_processes(processes: int) -> None:
    soft, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    if soft != resource.RLIM_INFINITY and soft < processes:
        raise BadInput(
            f"This run needs {processes} processes and the limit is {soft}: "
            "raise it with ulimit -u, or pack several users into a process with --users-per-process."
        )


def check_memory(user_processes: int, users: int) -> None:
    need = 2 * SERVER_PROCESS_BYTES + user_processes * USER_PROCESS_BYTES + users * PACKED_USER_BYTES
    free = psutil.virtual_memory().available
    if free < need:
        raise BadInput(
            f"This run needs about {need >> 20} MB of memory and {free >> 20} MB are free: "
            "pack several users into a process with --users-per-process, or use fewer users."
        )


def check_disk(folder: Path, view_bytes: int) -> None:
    existing = next(parent for parent in [folder, *folder.absolute().parents] if parent.exists())
    free = shutil.disk_usage(existing).free
    if free < view_bytes:
        raise BadInput(
            f"The views of this run will take about {view_bytes / 1e6:.0f} MB and {free / 1e6:.0f} MB are free in "
            f"{existing}: use --views servers or none, fewer iterations, or another --out."
        )
