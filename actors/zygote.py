"""A warmed, single-threaded interpreter that forks the actors: one process costs 2 MB instead of 17.

It is given what every party may know. The secrets of a party arrive with the order to start it and go into that
process only. When the launcher's end of the control channel closes, for whatever reason, everything here ends.

    python -m actors.zygote CONTROL_FD REPORT_FD OBSERVER_FD
"""

from __future__ import annotations

import ctypes
import gc
import mmap
import os
import select
import signal
import socket
import sys
import traceback
from pathlib import Path
from typing import Any, NoReturn

from actors.channel import Channel, Mailbox
from actors.host import Host, Place, Report
from actors.keys import Roster, Secret
from actors.observer import Observer
from protocol.errors import Aborted, BadInput

_PR_SET_PDEATHSIG = 1
_TICK = 0.05  # seconds between two looks at ended children


def main() -> None:
    control_fd, report_fd, observer_fd = (int(argument) for argument in sys.argv[1:4])
    control = Channel(socket.socket(fileno=control_fd))
    mailbox = Mailbox(socket.socket(fileno=report_fd))
    Zygote(control, mailbox, observer_fd).run()


class Zygote:
    def __init__(self, control: Channel, mailbox: Mailbox, observer_fd: int) -> None:
        self._control = control
        self._mailbox = mailbox
        self._observer_fd = observer_fd
        self._children: dict[int, list[str]] = {}
        self._common: dict[str, Any] = {}

    def run(self) -> None:
        gc.disable()
        while True:
            ready, _, _ = select.select([self._control], [], [], _TICK)
            if ready:
                orders = self._control.receive()
                if orders is None:
                    self._kill_all()
                    return
                for order in orders:
                    self._obey(order)
            self._reap()

    def _obey(self, order: dict[str, Any]) -> None:
        if order["order"] == "common":
            sys.path[:] = order["path"]  # so that a scheme of one's own is found here too
            self._common = order
            Roster.from_dict(order["roster"])  # imports what a child will need
            gc.freeze()
        elif order["order"] == "start":
            parties = [secret["party"] for secret in order["secrets"]]
            pid = os.fork()
            if pid == 0:
                self._child(order)
            self._children[pid] = parties
            self._control.send({"event": "started", "pid": pid, "parties": parties})
        elif order["order"] == "stop":
            self._kill_all()
            sys.exit(0)

    def _reap(self) -> None:
        while self._children:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            code = os.waitstatus_to_exitcode(status)
            self._control.send({"event": "exited", "pid": pid, "parties": self._children.pop(pid), "code": code})

    def _kill_all(self) -> None:
        for pid in self._children:
            os.kill(pid, signal.SIGKILL)
        for pid in self._children:
            os.waitpid(pid, 0)
        self._children = {}

    def _child(self, order: dict[str, Any]) -> NoReturn:
        """Everything from here on happens in the new process, which never returns."""
        code = 1
        try:
            die_with_parent()
            self._control.close()
            gc.enable()
            code = run_actors(self._common, order, self._mailbox.send, self._observer_fd)
        finally:
            os._exit(code)


def run_actors(common: dict[str, Any], order: dict[str, Any], report: Report, observer_fd: int) -> int:
    """Host the parties of one order until they are done; the exit code of the process."""
    folder = Path(common["run_folder"])
    parties = [secret["party"] for secret in order["secrets"]]
    try:
        roster = Roster.from_dict(common["roster"] | {"endpoints": order["endpoints"]})
        secrets = [Secret.from_dict(secret) for secret in order["secrets"]]
        views = frozenset(order["views"])
        place = Place(folder, views, common["deadline"], order["bind"])
        Host(roster, secrets, place, report, _observer(roster, observer_fd)).run()
    except Aborted as abort:
        report({"event": "abort", "party": parties[0], "reason": abort.reason.name, "detail": abort.detail})
        return 5
    except BadInput as refusal:
        report({"event": "refused", "party": parties[0], "sentence": str(refusal)})
        return 2
    except Exception:
        file = folder / f"bug-{parties[0].replace(':', '-')}.txt"
        file.write_text(traceback.format_exc(), "utf-8")
        report({"event": "bug", "party": parties[0], "file": str(file)})
        return 1
    return 0


def _observer(roster: Roster, descriptor: int) -> Observer:
    params = roster.card.params
    size = Observer.size(params.n_users, params.n_items, params.dim)
    shared = memoryview(mmap.mmap(descriptor, size))
    return Observer(params.n_users, params.n_items, params.dim, (params.rating_min, params.rating_max), shared)


def die_with_parent() -> None:
    """The kernel kills this process when its parent ends, however it ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    main()
