"""A warmed, single-threaded interpreter that forks the actors: one process costs a few MB instead of 17 and more.

It is given only what every party may know. The secrets of a party never pass through here: the launcher puts them into
a memory file and sends its descriptor to the new process that takes the order. Between two forks as little memory as
possible changes, because a page that the zygote writes to later is no longer shared with the child.
When the launcher's end of the control channel closes, for any reason, the zygote and all its children end.

`main` takes the descriptors of control channel, orders, reports and observer as its arguments (`forkserver.py`).
"""

from __future__ import annotations

import os

# Hooks that libraries run in every child (for locks of threads that do not exist here, and for a generator that is not
# used here) would cost each process a third of a megabyte; this interpreter has one thread whenever it forks.
os.register_at_fork = lambda **_: None

# libraries first: modules imported after them lie together in memory, so that a process dirties fewer pages
import cryptography.hazmat.primitives.asymmetric.ed25519  # noqa: F401
import numpy  # noqa: F401
import psutil  # noqa: F401
import scipy.optimize
import scipy.sparse
import scipy.special  # noqa: F401
import zmq.auth.thread
import zmq.utils.monitor  # noqa: F401

# isort: split
from actors.launch.memory_layout import bring_together, code_of, fill_holes

fill_holes()

# isort: split
import contextlib
import ctypes
import gc
import mmap
import select
import signal
import socket
import sys
import traceback
from typing import Any, NoReturn

from actors.blame import scheme_failed
from actors.crowd.calling import CallingHost
from actors.crowd.crowd import CrowdHost
from actors.crowd.secret_rows import Ranks
from actors.faults import Faults
from actors.host import Host
from actors.keys import Roster, Secret
from actors.launch.preload import warm_up
from actors.launch.reports import Common, Exited, Failed, Fork, Hosting, Started, Stop, read, write
from actors.metering.observer import Observer
from actors.pipes import Channel, Mailbox, receive_order, unpack
from actors.seats import Place
from protocol.errors import Aborted, BadInput, Bug
from protocol.party.view import Broken

_PR_SET_PDEATHSIG = 1
_prctl = ctypes.CDLL(None).prctl if sys.platform == "linux" else None  # looked up before the fork
_TICK = 0.05  # seconds between two looks at ended children


def main() -> None:
    control, orders, reports, observer = (int(argument) for argument in sys.argv[1:5])
    channel, mailbox = Channel(socket.socket(fileno=control)), Mailbox(socket.socket(fileno=reports))
    Zygote(channel, socket.socket(fileno=orders), mailbox, observer).run()


class Zygote:
    def __init__(self, control: Channel, orders: socket.socket, mailbox: Mailbox, observer_fd: int) -> None:
        self._control = control
        self._orders = orders
        self._mailbox = mailbox
        self._observer_fd = observer_fd
        self._children: set[int] = set()
        self._pid = os.getpid()

    def run(self) -> None:
        gc.disable()
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the launcher has gone
            self._follow_orders()
        self._kill_all()

    def _follow_orders(self) -> None:
        while True:
            self._control.flush()
            ready, _, _ = select.select([self._control], [], [], _TICK)
            if ready:
                values = self._control.receive_one()
                order = Stop() if values is None else read(values)
                if isinstance(order, Stop):
                    return
                if isinstance(order, Common):
                    self._prepare(order)
                elif isinstance(order, Fork):
                    self._fork(order.processes)
            self._reap()

    def _prepare(self, common: Common) -> None:
        sys.path += [folder for folder in common.path if folder not in sys.path]  # last, so as to shadow no module
        self._common = common
        self._roster = Roster.from_dict(common.roster)
        params = self._roster.card.params
        shared = mmap.mmap(self._observer_fd, Observer.size(params))  # shared memory stays shared after a fork
        self._observer = Observer(params, memoryview(shared))
        ran = code_of(lambda: warm_up(self._roster.card))
        gc.collect()
        fill_holes()
        bring_together(ran)
        del ran
        warm_up(self._roster.card)
        gc.collect()
        gc.freeze()
        fill_holes()

    def _fork(self, count: int) -> None:
        children = []
        for _ in range(count):
            pid = os.fork()
            if pid == 0:
                self._child()
            children.append(pid)
        self._children.update(children)

    def _reap(self) -> None:
        while self._children:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            self._children.discard(pid)
            self._control.send(write(Exited(pid, os.waitstatus_to_exitcode(status))))

    def _kill_all(self) -> None:
        for pid in self._children:
            os.kill(pid, signal.SIGKILL)
        for pid in self._children:
            os.waitpid(pid, 0)

    def _child(self) -> NoReturn:
        """Take an order and carry it out, in the new process, which never returns."""
        code = 1
        try:
            if _prctl is not None:
                _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # the kernel ends this process when the zygote ends
            if os.getppid() != self._pid:  # the zygote ended before the call above
                os._exit(code)
            self._control.close()
            order = receive_order(self._orders)
            self._orders.close()
            if order:
                gc.enable()
                code = run_actors(self._roster, self._common, *order, self._mailbox, self._observer)
                self._mailbox.flush(wait=True)  # waiting is safe, as it has nothing left to read
        except BaseException:
            traceback.print_exc()  # into the log, the only place left to report it
        finally:
            os._exit(code)


def run_actors(
    roster: Roster,
    common: Common,
    details: bytes,
    line: int,
    shared: int | None,
    mailbox: Mailbox,
    observer: Observer,
) -> int:
    """Host the parties of the order `details` until they are done; return the exit code of the process."""

    def report(message: tuple[Any, ...]) -> None:
        mailbox.send(write(message))

    order: Hosting = read(unpack(details))
    first = order.parties[0]
    report(Started(os.getpid(), order.parties))
    try:
        roster = Roster(roster.card, roster.scheme_name, roster.public_keys, order.endpoints)
        place, channel = _place_of(common, order), Channel(socket.socket(fileno=line))
        ends = report, observer, channel, mailbox
        if shared is not None and order.connected is not None:
            ranks = Ranks(mmap.mmap(shared, 0, prot=mmap.PROT_READ))
            CrowdHost(roster, ranks, place, *ends, order.connected).run()
        else:
            kind = Host if common.connected is None else CallingHost
            kind(roster, [Secret.from_dict(secret) for secret in order.secrets], place, *ends).run()
    except (Exception, SystemExit) as error:
        failure: Exception | None = error if isinstance(error, (Aborted, Broken, BadInput)) else None
        failure = failure or scheme_failed(error, roster.card.scheme)
        if failure is None:
            failure = Bug(f"{first} failed; the traceback is in {_write_traceback(common.run_folder, first)}")
        failed = Failed.of(first, failure)
        report(failed)
        return failed.exit_code
    return 0


def _write_traceback(folder: str, party: str) -> str:
    path = f"{folder}/bug-{party.replace(':', '-')}.txt"
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
    with open(os.open(path, flags, 0o600), "w", encoding="utf-8") as file:
        file.write(traceback.format_exc())
    return path


def _place_of(common: Common, order: Hosting) -> Place:
    return Place(
        common.run_folder,
        frozenset(order.views),
        common.deadline,
        order.bind,
        frozenset(order.resume),
        order.reported,
        common.silence,
        Faults.from_list(common.faults) if common.faults else None,
        order.incarnation,
        common.connected,
    )
