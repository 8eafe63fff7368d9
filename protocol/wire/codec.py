"""Message <-> frame: one canonical msgpack array [kind, sequence number, field, ...], then 32 bytes.

The 32 bytes are the head of the sender's view when it sent this (zeros if it keeps none). No role sees them; they stand
in the receiver's view, so that a view cannot be rewritten later without contradicting the views of other parties.

`fields.py` says how each field travels. Decoding checks the size before parsing, must consume everything, and requires
that the message encodes to the same bytes; so there is one frame per message.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgpack
import numpy as np

from protocol.errors import Reason, Rejected
from protocol.params import Params
from protocol.wire.fields import FieldKind, bind
from protocol.wire.framing import HEAD_BYTES
from protocol.wire.messages import SETUP, Again, Message

WIRE_VERSION = 5
NO_HEAD = bytes(HEAD_BYTES)
_MOST_FIELDS = 16
_START = 32  # bytes of a frame that hold its kind, its number and a first integer
_EACH, _MOST_REMEMBERED = 4, 1 << 14  # remembered lists: for each peer, and in all

Encoder = Callable[[Any], Any]
_Layout = list[tuple[str, Encoder, Encoder, bool]]  # field, put, get, whether equal values often come again


class Codec:
    """The frames of one scheme: its messages in a fixed order (the index is the kind on the wire)."""

    def __init__(self, messages: Sequence[type], params: Params, max_frame: int) -> None:
        self.max_frame = max_frame + HEAD_BYTES
        self.n_users = params.n_users
        self._classes = (*messages, Again)
        self._codes = {cls: code for code, cls in enumerate(self._classes)}
        fields = bind(self._classes, params)
        self._layouts = [_layout(fields[cls]) for cls in self._classes]

    def code(self, message: Message) -> int:
        return self._codes[type(message)]

    def kind(self, code: int) -> str:
        return self._classes[code].__name__

    def encode(self, message: Message, sequence: int, head: bytes = NO_HEAD, memo: Memo | None = None) -> bytes:
        code = self._codes[type(message)]
        body: list[Any] = [code, sequence]
        for name, put, _, comes_again in self._layouts[code]:
            value = getattr(message, name)
            body.append(memo.put(put, value) if comes_again and memo else put(value))
        packed: bytes = msgpack.packb(body)
        return packed + head

    def decode(self, frame: bytes, memo: Memo | None = None) -> tuple[int, Message]:
        """Decode `frame` into (sequence number, message), or raise `Rejected` with the reason."""
        body = self._unpack(frame)
        code, sequence = body[0], body[1]
        if type(code) is not int or not 0 <= code < len(self._classes) or type(sequence) is not int or sequence < 0:
            raise Rejected(Reason.MALFORMED)
        layout = self._layouts[code]
        if len(body) != 2 + len(layout):
            raise Rejected(Reason.MALFORMED)
        for place, (_, _, get, comes_again) in enumerate(layout, 2):
            value = body[place]
            body[place] = memo.get(get, value) if comes_again and memo else get(value)
        return sequence, self._classes[code](*body[2:])

    def peek(self, frame: bytes) -> tuple[str, int]:
        """Read the kind and the iteration of a `frame` that was decoded before, without decoding it again."""
        reader = msgpack.Unpacker()
        reader.feed(frame[:_START])
        reader.read_array_header()
        code, _ = reader.unpack(), reader.unpack()
        layout = self._layouts[code]
        numbered = bool(layout) and layout[0][0] == "iteration"
        return self._classes[code].__name__, reader.unpack() if numbered else SETUP

    def _unpack(self, frame: bytes) -> list[Any]:
        if len(frame) > self.max_frame:
            raise Rejected(Reason.OVERSIZED)
        packed = frame[:-HEAD_BYTES]
        try:
            body = msgpack.unpackb(
                packed, max_array_len=_MOST_FIELDS, max_map_len=0, max_str_len=0, max_ext_len=0, strict_map_key=True
            )
        except (ValueError, msgpack.UnpackException):
            raise Rejected(Reason.MALFORMED) from None
        if type(body) is not list or len(body) < 2 or not {int, bytes}.issuperset(map(type, body)):
            raise Rejected(Reason.MALFORMED)
        if msgpack.packb(body) != packed:
            raise Rejected(Reason.NOT_CANONICAL)
        return body


def head_in(frame: bytes) -> bytes:
    """Return the head of the sender's view when it sent `frame`."""
    return frame[-HEAD_BYTES:]


class Memo:
    """A cache of encoded and decoded identifiers and counts: a peer names the same ones in every iteration."""

    __slots__ = ("_known", "_most")

    def __init__(self, peers: int) -> None:
        """Bound the cache by the number of `peers`, so that churn cannot fill it with lists that never recur."""
        self._known: dict[tuple[Encoder, bytes], Any] = {}
        self._most = min(_EACH * (peers + 2), _MOST_REMEMBERED)

    def put(self, put: Encoder, value: Any) -> Any:
        return self._recall(put, value, value.tobytes()) if value.dtype == np.uint32 else put(value)

    def get(self, get: Encoder, value: Any) -> Any:
        return self._recall(get, value, value) if type(value) is bytes else get(value)

    def _recall(self, make: Encoder, value: Any, key: bytes) -> Any:
        made = self._known.get((make, key))
        if made is None:
            made = make(value)
            if len(self._known) >= self._most:
                self._known.clear()
            self._known[make, key] = made
        return made


def _layout(fields: dict[str, FieldKind]) -> _Layout:
    return [(name, field.put, field.get, field.recurs) for name, field in fields.items()]
