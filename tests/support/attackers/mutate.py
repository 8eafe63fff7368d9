"""Frames that are almost right: true ones of a run with something changed, by bytes or by fields."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from support.attackers.acceptable import HEAD, Parts, read
from support.wire import framed, pack_uint

HUGE = (1 << 31, (1 << 32) - 1, 1 << 32, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)
_WORDS = [
    bytes(4),
    b"\xff" * 4,
    b"\1\0\0\0",
    b"\0\0\0\x80",
    b"\0\0\xc0\x7f",  # not a number
    b"\0\0\x80\x7f",  # infinity
    b"\0\0\x80\xff",
    b"\0\0\x80\x5d",  # 2^60, the largest factor
    b"\1\0\x80\x5d",
    b"\0\0\x80\x42",  # 64, the largest envelope
    b"\1\0\x80\x42",
    b"\0\0\xf0\x7f",
]


@dataclass(frozen=True, slots=True)
class TrueFrame:
    """A frame that was sent in the run."""

    sender: str
    receiver: str
    frame: bytes
    parts: Parts

    @property
    def head(self) -> bytes:
        return self.frame[-HEAD:]


def true_frame(sender: str, receiver: str, frame: bytes) -> TrueFrame:
    parts = read(frame)
    assert parts is not None, "a true frame is in the shortest form"
    return TrueFrame(sender, receiver, frame, parts)


class Mutator:
    def __init__(self, seed: int, pool: list[TrueFrame], kinds: int, max_frame: int) -> None:
        self._random = random.Random(seed)
        self._pool = pool
        self._kinds = kinds
        self._max_frame = max_frame
        self._by_bytes: list[Callable[[bytes], bytes]] = [
            self._flip,
            self._flip,
            self._cut,
            self._splice,
            self._insert,
            self._longer_form,
            self._header,
            self._head,
            self._extreme,
        ]
        self._by_fields: list[Callable[[Parts], None]] = [
            *(4 * [self._number]),
            *(4 * [self._word]),
            *(2 * [self._swap_words]),
            *(2 * [self._byte]),
            *(2 * [self._resize]),
            self._swap_fields,
            self._borrow_field,
            self._drop_or_double_field,
            self._other_type,
            self._kind,
        ]  # changes that leave more of a frame intact get further, and are drawn more often

    def below(self, bound: int) -> int:
        return int(self._random.random() * bound)

    def mutate(self, base: TrueFrame, number: int) -> bytes:
        """Change `base`, mostly with the `number` that is due, so that a frame of another time passes the session."""
        if self.below(4) == 0:
            frame = base.frame
            for _ in range(1 + self.below(2)):
                frame = self._by_bytes[self.below(len(self._by_bytes))](frame)
            return frame
        parts = list(base.parts)
        for _ in range(1 + self.below(3) // 2):
            self._by_fields[self.below(len(self._by_fields))](parts)
        if self.below(4) and len(parts) > 1:
            parts[1] = number
        frame = framed(*parts[:15], head=base.head)
        return frame if self.below(20) else self._by_bytes[self.below(len(self._by_bytes))](frame)

    # --- bytes -------------------------------------------------------------------------------------------------------

    def _flip(self, frame: bytes) -> bytes:
        changed = bytearray(frame)
        for _ in range(1 + self.below(3)):
            if changed:
                changed[self.below(max(1, len(changed) - HEAD))] ^= 1 << self.below(8)
        return bytes(changed)

    def _cut(self, frame: bytes) -> bytes:
        at = self.below(len(frame) + 1)
        return frame[at:] if self.below(4) == 0 else frame[:at] + (frame[-HEAD:] if self.below(2) else b"")

    def _splice(self, frame: bytes) -> bytes:
        other = self._pool[self.below(len(self._pool))].frame
        return frame[: self.below(len(frame) + 1)] + other[self.below(len(other) + 1) :]

    def _insert(self, frame: bytes) -> bytes:
        at = self.below(len(frame) + 1)
        return frame[:at] + self._random.randbytes(1 + self.below(8)) + frame[at:]

    def _longer_form(self, frame: bytes) -> bytes:
        """Write a small number in more bytes than it needs, or as a type that is no number here."""
        at = 1 + self.below(3)
        if len(frame) <= at or frame[at] >= 0x80:
            return frame[:1] + b"\xcd\x00" + frame[1:]
        small = frame[at]
        forms = (b"\xcc%c", b"\xcd\0%c", b"\xce\0\0\0%c", b"\xcf\0\0\0\0\0\0\0%c", b"\xd0%c", b"\xcb\0\0\0\0\0\0\0%c")
        return frame[:at] + forms[self.below(6)] % small + frame[at + 1 :]

    def _header(self, frame: bytes) -> bytes:
        """Change the length of the array or of a byte string, or the type of one of them."""
        places = [0, *(at for at, byte in enumerate(frame[:-HEAD]) if byte in (0xC4, 0xC5))]
        at = places[self.below(len(places))]
        changed = bytearray(frame)
        if at == 0:
            changed[:1] = (
                bytes([0x90 + self.below(16)]),
                b"\xdc\0" + bytes([frame[0] & 15]) if frame else b"",
                b"\xdd\xff\xff\xff\xff",
                b"\x81",
                b"\xc1",
            )[self.below(5)]
        elif self.below(2):
            changed[at + 1] = (changed[at + 1] + (1, 255, 128, 4)[self.below(4)]) & 255
        else:
            changed[at : at + 1] = (b"\xc5\0", b"\xc6\0\0\0", b"\xd9", b"\xa0", b"\xc7", b"\xd4")[self.below(6)]
        return bytes(changed)

    def _head(self, frame: bytes) -> bytes:
        packed = frame[:-HEAD]
        size = HEAD if self.below(2) else self.below(2 * HEAD)
        return packed + (bytes(size) if self.below(2) else self._random.randbytes(size))

    def _extreme(self, frame: bytes) -> bytes:
        choices = (b"", bytes(HEAD), frame * 2, bytes(self._max_frame + HEAD + self.below(3)), b"\x90" + frame[-HEAD:])
        return choices[self.below(len(choices))]

    # --- fields ------------------------------------------------------------------------------------------------------

    def _places(self, parts: Parts, kind: type, first: int = 2) -> list[int]:
        return [at for at in range(first, len(parts)) if type(parts[at]) is kind]

    def _number(self, parts: Parts) -> None:
        places = self._places(parts, int, first=1)
        if not places:
            return
        at = places[self.below(len(places))]
        if self.below(3):
            parts[at] = min(max(0, parts[at] + (-2, -1, 1, 2)[self.below(4)]), HUGE[-1])
        else:
            parts[at] = (*HUGE, self.below(300))[self.below(len(HUGE) + 1)]

    def _swap_fields(self, parts: Parts) -> None:
        if len(parts) > 3:
            a, b = 2 + self.below(len(parts) - 2), 2 + self.below(len(parts) - 2)
            parts[a], parts[b] = parts[b], parts[a]

    def _borrow_field(self, parts: Parts) -> None:
        other = self._pool[self.below(len(self._pool))].parts
        if len(parts) > 2 and len(other) > 2:
            parts[2 + self.below(len(parts) - 2)] = other[2 + self.below(len(other) - 2)]

    def _drop_or_double_field(self, parts: Parts) -> None:
        at = self.below(len(parts))
        if self.below(2):
            parts.insert(at, parts[at])
        elif len(parts) > 1:
            del parts[at]

    def _other_type(self, parts: Parts) -> None:
        at = self.below(len(parts))
        parts[at] = pack_uint(parts[at]) if type(parts[at]) is int else len(parts[at])

    def _some_bytes(self, parts: Parts) -> int | None:
        places = [at for at in self._places(parts, bytes) if parts[at]]
        return places[self.below(len(places))] if places else None

    def _word(self, parts: Parts) -> None:
        if (at := self._some_bytes(parts)) is not None:
            data, word = parts[at], _WORDS[self.below(len(_WORDS))]
            place = 4 * self.below(len(data) // 4 + 1)
            parts[at] = (data[:place] + word + data[place + 4 :])[: len(data)]

    def _byte(self, parts: Parts) -> None:
        """Change a byte; in packed numbers it is one number, or the end of one and the beginning of the next."""
        if (at := self._some_bytes(parts)) is not None:
            data = bytearray(parts[at])
            place = self.below(len(data))
            data[place] = (data[place] ^ 1 << self.below(8), data[place - 1], 0, 255)[self.below(4)]
            parts[at] = bytes(data)

    def _resize(self, parts: Parts) -> None:
        if (at := self._some_bytes(parts)) is not None:
            data, unit = parts[at], (1, 4, 8, 32, 64)[self.below(5)]
            parts[at] = data[:-unit] if self.below(2) else data + data[:unit]

    def _swap_words(self, parts: Parts) -> None:
        if (at := self._some_bytes(parts)) is not None:
            data = bytearray(parts[at])
            a, b = 4 * self.below(len(data) // 4 or 1), 4 * self.below(len(data) // 4 or 1)
            data[a : a + 4], data[b : b + 4] = data[b : b + 4], data[a : a + 4]
            parts[at] = bytes(data)

    def _kind(self, parts: Parts) -> None:
        parts[0] = self.below(self._kinds + 2)
