"""Mutations of the model's file, and of files and folders as entries of the file system."""

from __future__ import annotations

import os
import re
import shutil
import socket
import struct
from collections.abc import Callable
from pathlib import Path

from tests.hostile.folders.values import EVIL_MODULES, Chance

SPARSE = 2 << 30
_EVIL = """import os
with open({marker!r}, "a") as file:
    file.write({name!r} + "\\n")
class Evil: pass
Careful = x = Evil
"""
_ODD_NAMES = (
    "user-0\x1b[31m.view", "user-[bold].view", "user-\u202e0.view", "user-99999999999999999999.view", "user-٣.view",
    "user--1.view", "user-.view", ".view", "user-0.view.view", "nobody.view", "user-\udcff.view", "a\nb.view",
    "x" * 240 + ".view", "user-000.view", "user-7.view", "users-0", "users-1", "*.view", "-rf.view", "evil.py",
)  # fmt: skip


def _pickle_of(command: str) -> bytes:
    """Build by hand the bytes of a pickle that runs `command` when it is loaded; nothing here loads it."""
    return b"cposix\nsystem\n(V" + command.encode() + b"\ntR."


def mutate_model(path: Path, chance: Chance, marker: Path) -> str:
    """Change the file of the item factors: its header, its type, its length."""
    data = path.read_bytes()
    rows = data[-40:]
    forms: dict[str, Callable[[], bytes]] = {
        "a huge shape": lambda: _npy("<f4", "(1000000000, 1000000)") + rows,
        "a large shape": lambda: _npy("<f4", "(700000000,)") + rows,
        "a negative shape": lambda: _npy("<f4", "(-1, 2)") + rows,
        "an overflowing shape": lambda: _npy("<f4", "(9223372036854775807, 2)") + rows,
        "a shape of numbers beyond 64 bits": lambda: _npy("<f4", "(36893488147419103232,)") + rows,
        "a shape of many dimensions": lambda: _npy("<f4", "(" + "1," * 40 + ")") + rows,
        "an empty shape": lambda: _npy("<f4", "()") + rows,
        "no rows": lambda: _npy("<f4", "(0, 2)"),
        "a shape that is none": lambda: _npy("<f4", "'x'") + rows,
        "true as shape": lambda: _npy("<f4", "(True, True)") + rows,
        "objects": lambda: _npy("|O", "(5, 2)") + _pickle_of(f"echo pickle >> '{marker}'"),
        "a pickle": lambda: _pickle_of(f"echo pickle >> '{marker}'"),
        "a zip": lambda: b"PK\x03\x04" + bytes(100),
        "fortran order": lambda: _npy("<f4", "(5, 2)", "True") + rows,
        "texts": lambda: _npy("<U1", "(5, 2)") + rows,
        "records": lambda: _npy([("a", "<f4")], "(5, 2)") + rows,
        "other byte order": lambda: _npy(">f4", "(5, 2)") + rows,
        "wider numbers": lambda: _npy("<f8", "(5, 2)") + rows * 2,
        "dates": lambda: _npy("<M8[ns]", "(5,)") + rows,
        "complex numbers": lambda: _npy("<c8", "(5,)") + rows,
        "items of no size": lambda: _npy("|V0", "(1000000000,)"),
        "not numbers": lambda: _npy("<f4", "(5, 2)") + struct.pack("<f", float("nan")) * 10,
        "version 9": lambda: b"\x93NUMPY\x09\x00" + data[8:],
        "version 2, of 4 GiB": lambda: b"\x93NUMPY\x02\x00\xff\xff\xff\xff" + data[10:],
        "code for a header": lambda: _header(b"__import__('os').system('echo code')") + rows,
        "a deep header": lambda: _header(b"[" * 5000 + b"]" * 5000) + rows,
        "a header that is no table": lambda: _header(b"[1, 2]") + rows,
        "a header that is no text": lambda: _header(b"\xff\xfe\x00") + rows,
        "cut": lambda: data[: chance.below(len(data))],
        "more behind it": lambda: data + bytes(1000),
        "empty": lambda: b"",
    }
    words = chance.of(list(forms))
    path.write_bytes(forms[words]())
    return words


def _npy(descr: object, shape: str, fortran: str = "False") -> bytes:
    return _header(f"{{'descr': {descr!r}, 'fortran_order': {fortran}, 'shape': {shape}, }}".encode())


def _header(text: bytes) -> bytes:
    text = text.ljust(54 + 64 * ((len(text) + 9) // 64)) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text


# --- the file system -------------------------------------------------------------------------------------------------


def mutate_place(target: Path, chance: Chance, outside: Path) -> str:
    """Put something else where a file or a folder is, or make something where nothing is."""
    change = chance.of(_PLACES)
    change(target, chance, outside)
    return change.__name__.strip("_").replace("_", " ")


def _remove(target: Path) -> None:
    if target.is_dir() and not target.is_symlink():
        shutil.rmtree(target)
    else:
        target.unlink(missing_ok=True)


def _link_to_a_secret(target: Path, chance: Chance, outside: Path) -> None:
    is_dir = target.is_dir()
    _remove(target)
    target.symlink_to(outside if is_dir else outside / "secret")


def _link_to_the_same_outside(target: Path, chance: Chance, outside: Path) -> None:
    """Move the target outside and link to it: its content is right, only its place is wrong."""
    moved = outside / f"moved-{target.name}"
    if target.exists() and not moved.exists():
        shutil.move(target, moved)
        target.symlink_to(moved)


def _link_to_zeros(target: Path, chance: Chance, outside: Path) -> None:
    _remove(target)
    target.symlink_to("/dev/zero")


def _link_to_nothing(target: Path, chance: Chance, outside: Path) -> None:
    _remove(target)
    target.symlink_to(outside / "made-by-keyhole")


def _link_to_itself(target: Path, chance: Chance, outside: Path) -> None:
    _remove(target)
    target.symlink_to(target.name)


def _link_to_its_folder(target: Path, chance: Chance, outside: Path) -> None:
    _remove(target)
    target.symlink_to(".")


def _pipe(target: Path, chance: Chance, outside: Path) -> None:
    _remove(target)
    os.mkfifo(target)


def _socket(target: Path, chance: Chance, outside: Path) -> None:
    _remove(target)
    back = os.getcwd()
    os.chdir(target.parent)  # the path of a socket must be short
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(target.name)
    finally:
        os.chdir(back)


def _other_kind(target: Path, chance: Chance, outside: Path) -> None:
    """Put a folder in place of a file, or a file in place of a folder."""
    if target.is_dir():
        shutil.rmtree(target)
        target.write_bytes(b"{}")
    else:
        _remove(target)
        target.mkdir()


def _empty(target: Path, chance: Chance, outside: Path) -> None:
    is_dir = target.is_dir()
    _remove(target)
    target.mkdir() if is_dir else target.write_bytes(b"")


def _missing(target: Path, chance: Chance, outside: Path) -> None:
    _remove(target)


def _sparse(target: Path, chance: Chance, outside: Path) -> None:
    """Extend the file to 2 GiB that take no space, with or without its true beginning."""
    if target.is_dir():
        target = target / "user-0.view"
    if target.is_symlink() or not target.is_file() or not chance.one_in(2):  # to open a pipe would block
        _remove(target)
    with target.open("ab") as file:
        file.truncate(SPARSE)


def _garbage(target: Path, chance: Chance, outside: Path) -> None:
    if not target.is_dir():
        _remove(target)
        target.write_bytes(chance.bytes(chance.of((1, 100, 5000))))


def _odd_file_in_it(target: Path, chance: Chance, outside: Path) -> None:
    place = (target if target.is_dir() else target.parent) / chance.of(_ODD_NAMES)
    views = [view for view in sorted(target.parent.rglob("*.view")) if view.is_file() and not view.is_symlink()]
    if place.is_file() or not place.exists():
        place.write_bytes(chance.of(views).read_bytes() if views and chance.one_in(2) else b"x")


def _thousands_of_files(target: Path, chance: Chance, outside: Path) -> None:
    place = target if target.is_dir() else target.parent
    for number in range(1500):
        (place / f"user-{number + 6}.view").touch()


def _unreadable(target: Path, chance: Chance, outside: Path) -> None:
    if target.exists():
        target.chmod(0)


_PLACES: list[Callable[[Path, Chance, Path], None]] = [
    _link_to_a_secret, _link_to_a_secret, _link_to_the_same_outside, _link_to_zeros, _link_to_nothing, _link_to_itself,
    _link_to_its_folder, _pipe, _pipe, _socket, _other_kind, _other_kind, _empty, _missing,
    _missing, _sparse, _garbage, _odd_file_in_it, _thousands_of_files, _unreadable,
]  # fmt: skip


def plant_modules(places: list[Path], chance: Chance, marker: Path) -> str:
    """Write modules into each of `places` that leave a mark when they are imported."""
    for place in places:
        for name in (*EVIL_MODULES, "keyhole_evil"):
            (place / f"{name}.py").write_text(_EVIL.format(marker=str(marker), name=f"{name} in {place.name}"))
    return "modules planted"


_ADDRESS = re.compile(rb'[a-zA-Z]+:/+[^"]*')
_LOOPBACK = re.compile(rb"tcp://127\.0\.0\.1:[0-9]{1,6}")


def stay_on_loopback(roster: Path) -> None:
    """Replace every address that is not on loopback, so that no case connects to another machine."""
    if not roster.is_file() or roster.is_symlink() or roster.stat().st_size > 1 << 20:
        return
    data = roster.read_bytes()
    kept = _ADDRESS.sub(lambda found: found[0] if _LOOPBACK.fullmatch(found[0]) else b"tcp://127.0.0.1:1", data)
    if kept != data:
        roster.write_bytes(kept)
