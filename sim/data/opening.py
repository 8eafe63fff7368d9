"""Open a file of ratings, plain or .gz. A .gz is unpacked while it is read, up to a bound."""

from __future__ import annotations

import gzip
import io
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, BinaryIO

from protocol.errors import BadInput
from sim.foreign.untrusted import BUFFER, open_regular

GZIP = b"\x1f\x8b"
MOST_UNPACKED = 1 << 33  # bytes
MOST_RATIO, SPARE_BYTES = 60, 1 << 24  # gzip packs ratings to a third or a tenth; the spare bytes are for small files


@contextmanager
def open_bytes(path: Path) -> Iterator[BinaryIO]:
    """Open the content of a file, unpacked if it is in gzip format; its name does not matter."""
    with open_regular(path) as file:
        packed = file.read(len(GZIP)) == GZIP
        file.seek(0)
        if not packed:
            yield file
            return
        most = min(MOST_UNPACKED, SPARE_BYTES + MOST_RATIO * os.fstat(file.fileno()).st_size)
        try:
            with gzip.GzipFile(fileobj=file) as stream:
                yield io.BufferedReader(_Bounded(stream, path, most), BUFFER)
        except (EOFError, zlib.error, gzip.BadGzipFile):
            raise BadInput(f"{path} is not a whole .gz file; fetch or pack it again") from None


@contextmanager
def open_text(path: Path) -> Iterator[IO[str]]:
    """Open the content of a file as UTF-8 text, with or without a byte order mark."""
    with open_bytes(path) as content, io.TextIOWrapper(content, encoding="utf-8-sig", newline="") as text:
        yield text


class _Bounded(io.RawIOBase):
    """A stream of unpacked bytes that raises `BadInput` after `most` bytes, more than any file of ratings has."""

    def __init__(self, stream: gzip.GzipFile, path: Path, most: int) -> None:
        self._stream, self._path, self._most, self._read = stream, path, most, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        data = self._stream.read(len(buffer))
        self._read += len(data)
        if self._read > self._most:
            words = f"unpacks to more than {self._most >> 20} MB, as no ratings do"
            raise BadInput(f"{self._path} {words}; look into it, unpack it yourself and name the file that comes out")
        buffer[: len(data)] = data
        return len(data)
