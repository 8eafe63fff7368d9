"""A lower bound on the cost of an iteration of `masked`: the same processes, connections, encryption and frames only.

A recommender, a third party, and users alone or in packs are forked from an interpreter with the same libraries as the
actors' zygote, and use blocking sockets. In every iteration the six kinds of frames take the same routes as in a run,
filled with zeros to the sizes in the layout. There are no roles, messages, views or ZAP handler, and only the frames
that arrive are counted.

    python -m actors.bare_frames < LAYOUT > RESULT        (msgpack, then a line of JSON)
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import mmap
import os
import select
import signal
import struct
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgpack
import zmq

from actors.transport.zeromq import BACKLOG, LINGER_MS, Context

KINDS = ("OpenSum", "ItemFactors", "MaskedGradient", "Contributors", "Agreed", "MaskedTotal")

Keys = list[bytes]  # public, secret
Tell = Callable[[Any], None]
Socket = zmq.Socket[bytes]

_LOST_MS = 120_000  # in which a frame must arrive, else the other end is considered lost
_COUNT = struct.Struct("=QQ")  # frames and bytes that one user has received
_LOOK_SECONDS = 0.2  # between two looks at processes that may have failed
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, slots=True)
class BareSizes:
    users: int
    users_per_process: int
    hello: int  # bytes of the first frame of a connection
    frames: list[list[int]]  # for every iteration the bytes of a frame of each of `KINDS`
    user_keys: list[Keys]
    server_keys: list[Keys]  # the recommender's, the third party's


@dataclass(slots=True)
class _Received:
    """The frames and bytes that have arrived, by kind."""

    frames: Counter[str] = field(default_factory=Counter)
    size: Counter[str] = field(default_factory=Counter)

    def add(self, kind: str, frame: bytes) -> None:
        self.frames[kind] += 1
        self.size[kind] += len(frame)

    def told(self) -> dict[str, list[int]]:
        return {kind: [self.frames[kind], self.size[kind]] for kind in self.frames}


def main() -> None:
    layout = BareSizes(**msgpack.unpackb(sys.stdin.buffer.read()))
    _die_with_parent()
    importlib.import_module("actors.launch.zygote")  # the memory of every actor; it also disables the hooks at a fork
    gc.disable()
    _warm_up(layout)
    gc.collect()
    gc.freeze()
    loaded = time.monotonic()
    third_party = _Server(partial(_third_party, layout))
    across = third_party.hear()
    recommender = _Server(partial(_recommender, layout, across))
    down = recommender.hear()
    shared = mmap.mmap(-1, _COUNT.size * layout.users)
    for first in range(0, layout.users, layout.users_per_process):
        pack = range(first, min(first + layout.users_per_process, layout.users))
        _fork(partial(_users, layout, pack, (down, across), shared))
    result, counted = recommender.hear(), third_party.hear()
    while _reap():
        pass
    each = [_COUNT.unpack_from(shared, _COUNT.size * user) for user in range(layout.users)]
    offers = [sum(frames for frames, _ in each), sum(size for _, size in each)]
    received = {**counted, **result.pop("received"), "ItemFactors": offers}
    print(json.dumps({"loaded": loaded, **result, "received": received}), flush=True)


class _Server:
    """A forked process that sends its parent lines of JSON."""

    def __init__(self, work: Callable[[Tell], None]) -> None:
        read, write = os.pipe()
        _fork(partial(work, lambda value: _write(write, value)))
        os.close(write)
        self._lines = os.fdopen(read, "rb")

    def hear(self) -> Any:
        """Read the next line. A process must not write its second line before the first has been read."""
        while not select.select([self._lines], [], [], _LOOK_SECONDS)[0]:
            while _reap(os.WNOHANG):
                pass
        return json.loads(self._lines.readline())


def _write(descriptor: int, value: Any) -> None:
    os.write(descriptor, json.dumps(value).encode() + b"\n")


def _fork(work: Callable[[], None]) -> None:
    """Do `work` in a new process, which never returns."""
    if os.fork():
        return
    code = 1
    try:
        _die_with_parent()
        work()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _die_with_parent() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _reap(options: int = 0) -> bool:
    """Reap one child that has ended; return False if no child has."""
    try:
        pid, status = os.waitpid(-1, options)
    except ChildProcessError:
        return False
    if status:
        raise SystemExit("A process of the floor has failed.")  # the kernel ends the others
    return pid != 0


# --- the parties -----------------------------------------------------------------------------------------------------


def _recommender(layout: BareSizes, across: str, tell: Tell) -> None:
    context: Context = zmq.Context()
    own, other = layout.server_keys
    users, third_party = _server(context, own), _client(context, across, own, other)
    third_party.send(bytes(layout.hello))
    tell(users.getsockopt_string(zmq.LAST_ENDPOINT))
    by_user: dict[int, bytes] = {}
    while len(by_user) < layout.users:
        route, hello = users.recv_multipart()
        by_user[int.from_bytes(hello[:4])] = route
    joined, seconds = time.monotonic(), []
    routes = [by_user[user] for user in range(layout.users)]  # in the order in which a run offers
    received = _Received()
    before = time.perf_counter()
    for opening, offer, _, _, agreed, _ in layout.frames:
        third_party.send(bytes(opening))
        frame = bytes(offer)
        for route in routes:
            users.send_multipart((route, frame))
        received.add("Contributors", third_party.recv())
        third_party.send(bytes(agreed))
        received.add("MaskedTotal", third_party.recv())
        now = time.perf_counter()
        seconds.append(now - before)
        before = now
    tell({"joined": joined, "seconds": seconds, "received": received.told()})
    context.destroy(LINGER_MS)


def _third_party(layout: BareSizes, tell: Tell) -> None:
    context: Context = zmq.Context()
    end = _server(context, layout.server_keys[1])
    tell(end.getsockopt_string(zmq.LAST_ENDPOINT))
    recommender, _ = end.recv_multipart()  # users learn the endpoint only after the recommender has connected
    received = _Received()
    for _, _, _, contributors, _, total in layout.frames:
        for _ in range(layout.users + 1):
            sender, frame = end.recv_multipart()
            received.add("OpenSum" if sender == recommender else "MaskedGradient", frame)
        end.send_multipart((recommender, bytes(contributors)))
        received.add("Agreed", end.recv_multipart()[1])
        end.send_multipart((recommender, bytes(total)))
    tell(received.told())
    context.destroy(LINGER_MS)


def _users(layout: BareSizes, pack: range, endpoints: tuple[str, str], shared: mmap.mmap) -> None:
    """Run the users of `pack`, each with its own connections.

    Every user is sent a frame in every iteration, so the sockets can be read in turn.
    """
    context: Context = zmq.Context()
    if len(pack) > 100:
        context.max_sockets = 1023 + 2 * len(pack)
    ends = []
    for user in pack:
        down, across = (
            _client(context, endpoint, layout.user_keys[user], server)
            for endpoint, server in zip(endpoints, layout.server_keys, strict=True)
        )
        down.send(user.to_bytes(4).ljust(layout.hello, b"\0"))
        ends.append((down, across))
    size = [0] * len(pack)
    for _, _, gradient, *_ in layout.frames:
        answer = bytes(gradient)
        for place, (down, across) in enumerate(ends):
            size[place] += len(down.recv())
            across.send(answer)
    for user, received in zip(pack, size, strict=True):
        _COUNT.pack_into(shared, _COUNT.size * user, len(layout.frames), received)
    context.destroy(LINGER_MS)


# --- their sockets ---------------------------------------------------------------------------------------------------


def _server(context: Context, keys: Keys) -> Socket:
    socket = _socket(context, zmq.ROUTER, keys)
    socket.setsockopt(zmq.CURVE_SERVER, 1)
    socket.setsockopt(zmq.BACKLOG, BACKLOG)
    socket.bind("tcp://127.0.0.1:*")
    return socket


def _client(context: Context, endpoint: str, keys: Keys, server: Keys) -> Socket:
    socket = _socket(context, zmq.DEALER, keys)
    socket.setsockopt(zmq.CURVE_SERVERKEY, server[0])
    socket.connect(endpoint)
    return socket


def _socket(context: Context, kind: int, keys: Keys) -> Socket:
    socket = context.socket(kind)
    socket.setsockopt(zmq.CURVE_PUBLICKEY, keys[0])
    socket.setsockopt(zmq.CURVE_SECRETKEY, keys[1])
    socket.setsockopt(zmq.RCVTIMEO, _LOST_MS)
    return socket


def _warm_up(layout: BareSizes) -> None:
    """Use the sockets once, so that memory of the first use is allocated before the fork; its threads end here."""
    context: Context = zmq.Context()
    server_keys, own = layout.server_keys
    server = _server(context, server_keys)
    client = _client(context, server.getsockopt_string(zmq.LAST_ENDPOINT), own, server_keys)
    client.send(bytes(layout.hello))
    server.send_multipart(server.recv_multipart())
    client.recv()
    context.destroy(0)
