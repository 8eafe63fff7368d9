"""Readers for files from others: a run folder is treated as data that is not trusted.

Every file of a folder is opened here. Only regular files are opened, because a FIFO or a device would hang a reader,
and no link that leads out of the folder is followed. The size that a file claims for its content is compared with the
real size before memory is taken for it. A file that is refused raises `Unreadable`, or a `ValueError` that says why.
"""

from __future__ import annotations

import errno
import json
import math
import os
import re
import stat
import tomllib
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NoReturn, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from protocol.errors import BadInput

BUFFER = 1 << 20  # bytes of a read buffer
MOST_TOML_BYTES = 1 << 16  # a run.toml has about two thousand
MOST_JSON_BYTES = 1 << 26
MOST_BYTES_PER_USER = 1 << 11  # in files that list all users, in addition to a megabyte
MOST_NUMBERS = 5 * 10**7  # in an array
MOST_DEPTH = 32
Form = TypeVar("Form")
_WORDS = {  # of msgspec, and what a person is told
    "Expected": "must be", "got": "not", "Object missing": "has no", "Number": "is",
    "object": "a table", "array": "a list", "str": "a text", "int": "a whole number", "float": "a number",
    "bool": "true or false", " | ": " or ", ">=": "of at least", "<=": "of at most",
}  # fmt: skip
_FOLDER = re.compile(r"views|model|keys|users-[0-9]+")
_FILE = re.compile(r"^lock$|\.(view|cut|json|jsonl|toml|npy|log|part|key|html|txt)$")
_READING = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY


class Unreadable(BadInput, OSError):
    """A file that must not be opened. It can be handled as an `OSError`, and is reported as a `BadInput` otherwise."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(errno.EINVAL, why, str(path))

    def __str__(self) -> str:
        return f"{self.filename} {self.strerror}: put the file itself there."


def open_inside(folder: Path, name: str, buffer: int = BUFFER) -> BinaryIO:
    """Open a file in `folder` for reading; `name` is its path in the folder."""
    path = folder / name
    if leads_out(folder, name):
        raise Unreadable(path, "is a link that leads out of its folder")
    return open_regular(path, buffer)


def open_regular(path: Path, buffer: int = BUFFER) -> BinaryIO:
    """Open a regular file for reading, and refuse any other: opening a FIFO would wait for a writer."""
    try:
        file = os.open(path, _READING)
    except FileNotFoundError:
        raise
    except OSError as error:  # a socket, or a file that this account may not read
        raise Unreadable(path, f"cannot be opened ({error.strerror})") from None
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise Unreadable(path, "is not a regular file")
    return os.fdopen(file, "rb", buffer)


def leads_out(folder: Path, name: str) -> bool:
    """Tell whether a link on the path from `folder` to the file `name` leads out of the folder."""
    path, links = str(folder), False
    for part in name.split("/"):
        path = f"{path}/{part}"
        links = links or os.path.islink(path)
    try:
        return links and not Path(path).resolve().is_relative_to(folder.resolve())
    except (OSError, RuntimeError):  # a link that leads to itself
        return True


def is_there(folder: Path, name: str) -> bool:
    """Tell whether `name` in `folder` is a regular file, or a link to one."""
    return (folder / name).is_file()


def view_files(folder: Path) -> Iterator[str]:
    """Yield the paths of all views in `folder`, relative to it; links do not count as views."""
    if os.path.islink(folder / "views"):
        return
    for place, _, files in os.walk(folder / "views"):
        for name in files:
            path = f"{place}/{name}"
            if name.endswith(".view") and stat.S_ISREG(os.lstat(path).st_mode):
                yield os.path.relpath(path, folder)


def refuse_links(folder: Path) -> None:
    """Refuse a folder with links, FIFOs or devices in it, before a process writes into it.

    A name that Keyhole gives to folders must be a folder, and a name that it gives to files a regular file.
    """
    for place, folders, files in os.walk(folder):
        for name in (*folders, *files):
            mode = os.lstat(f"{place}/{name}").st_mode
            if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISSOCK(mode)):
                raise Unreadable(Path(place) / name, "is a link, a FIFO or a device, and a run is written to")
            wanted = stat.S_ISDIR if _FOLDER.fullmatch(name) else stat.S_ISREG
            if (_FOLDER.fullmatch(name) or _FILE.search(name)) and not wanted(mode):
                raise Unreadable(Path(place) / name, "is neither a file where one belongs nor a folder where one does")


def read_bytes(folder: Path, name: str, most: int = MOST_JSON_BYTES) -> bytes:
    with open_inside(folder, name) as stream:
        return read_at_most(stream, most)


def read_at_most(stream: BinaryIO, most: int) -> bytes:
    """Read all of `stream`; `ValueError` if it has more than `most` bytes."""
    data = stream.read(most + 1)
    if len(data) > most:
        raise ValueError(f"it has more than {most} bytes")
    return data


# --- text ------------------------------------------------------------------------------------------------------------


def parse_toml(data: bytes) -> dict[str, Any]:
    try:
        document = tomllib.loads(data.decode())
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    check_depth(document)
    return document


def read_json(folder: Path, name: str, most: int = MOST_JSON_BYTES) -> Any:
    return parse_json(read_bytes(folder, name, most))


def parse_json(data: bytes) -> Any:
    try:
        document = json.loads(data, parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    check_depth(document)
    return document


def fit(document: Any, form: type[Form]) -> Form:
    """Convert `document` to `form`; `ValueError` names the place that has another type, or is out of bounds."""
    try:
        return msgspec.convert(document, form)
    except msgspec.ValidationError as error:
        what, _, where = str(error).replace("`", "").partition(" - at ")
        plain = re.sub("|".join(map(re.escape, _WORDS)), lambda found: _WORDS[found[0]], what)
        raise ValueError(f"`{where}` {plain}" if where else plain) from None


def read_lines(folder: Path, name: str, most_bytes: int, most_lines: int) -> Iterator[bytes]:
    """Yield the lines of a file. `ValueError` names a line that does not end with a newline.

    It also names a line with more than `most_bytes`, and one after the first `most_lines` lines.
    """
    with open_inside(folder, name) as stream:
        number = 0
        while line := stream.readline(most_bytes + 1):
            number += 1
            if not line.endswith(b"\n") or number > most_lines:
                long = len(line) > most_bytes or number > most_lines
                raise ValueError(f"line {number} {'is more than this run can have' if long else 'is cut off'}")
            yield line


def check_depth(value: Any, most: int = MOST_DEPTH) -> None:
    """Refuse a document that is nested so deeply that a recursive walk through it would exhaust the stack."""
    level = [value]
    for _ in range(most):
        level = [child for node in level if isinstance(node, (dict, list)) for child in _children(node)]
        if not level:
            return
    raise ValueError("it is nested too deeply")


def _children(node: dict[Any, Any] | list[Any]) -> Any:
    return node.values() if isinstance(node, dict) else node


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number of JSON")


def most_bytes(n_users: int) -> int:
    """Compute the most bytes that a file may have that lists `n_users` users."""
    return (1 << 20) + MOST_BYTES_PER_USER * n_users


# --- arrays ----------------------------------------------------------------------------------------------------------


def map_array(folder: Path, name: str) -> npt.NDArray[np.float64]:
    """Map a .npy file of two-dimensional float64 numbers; it must be exactly as long as its header says."""
    with open_inside(folder, name) as stream:
        size = os.fstat(stream.fileno()).st_size
        try:
            shape, by_columns, dtype = _read_header(stream)
        except Exception as error:  # numpy's header reader lets any exception of its tokenizer through
            raise ValueError(f"its header cannot be read ({type(error).__name__})") from None
        if dtype != np.dtype("<f8") or by_columns or len(shape) != 2 or min(shape) < 1:
            raise ValueError(f"{dtype} of shape {shape}")
        if math.prod(shape) > MOST_NUMBERS or stream.tell() + math.prod(shape) * dtype.itemsize != size:
            raise ValueError(f"{size} bytes are not those of shape {shape}")
        return np.memmap(stream, dtype, "r", stream.tell(), shape)


def _read_header(stream: BinaryIO) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if np.lib.format.read_magic(stream) != (1, 0):
            raise ValueError("another version")
        shape, by_columns, dtype = np.lib.format.read_array_header_1_0(stream)
    return shape, by_columns, dtype
