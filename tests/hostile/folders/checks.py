"""Checks of what a command printed and left behind; the same rules hold for every command and every folder."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.hostile.folders.values import MARKUP
from tests.hostile.folders.watch import innermost

EXITS = (0, 2, 3, 4, 5)
MOST_STDERR = 200_000
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


@dataclass(frozen=True, slots=True)
class Finding:
    kind: str
    what: str
    where: str = ""  # the innermost frame of Keyhole

    @property
    def key(self) -> tuple[str, str]:
        return self.kind, re.sub(r":[0-9]+ ", " ", self.where) or re.sub(r"[0-9]+", "#", self.what)[:60]


@dataclass(frozen=True, slots=True)
class Printed:
    argv: list[str]
    code: int
    stdout: bytes
    stderr: bytes

    @property
    def text(self) -> str:
        return self.stdout.decode("utf-8", "replace")

    @property
    def errors(self) -> str:
        return self.stderr.decode("utf-8", "replace")


def check_printed(printed: Printed, secret: str) -> list[Finding]:
    """Check the exit code, tracebacks, control characters, the secret, and the form of JSON and CSV."""
    found = []
    both = printed.text + printed.errors
    if printed.code not in EXITS:
        found.append(Finding(f"exit {printed.code}", _last(printed.errors), innermost(printed.errors)))
    elif "Traceback (most recent call last)" in both:
        found.append(Finding("traceback", _last(printed.errors), innermost(both)))
    if "Keyhole has a bug" in both and printed.code in EXITS:
        found.append(Finding("bug", _last(printed.errors)))
    if odd := _CONTROL.search(both):
        around = both[max(0, odd.start() - 40) : odd.end() + 20]
        found.append(Finding("control character", ascii(around), _shape(printed.argv)))
    if secret in both:
        at = both.index(secret)
        found.append(Finding("secret printed", ascii(both[max(0, at - 60) : at + 20]), _shape(printed.argv)))
    if len(printed.stderr) > MOST_STDERR:
        found.append(Finding("floods stderr", f"{len(printed.stderr)} bytes", _shape(printed.argv)))
    if printed.argv[0] != "api" and printed.code in (2, 4, 5) and not printed.stderr.strip():
        found.append(Finding("silent", f"exit {printed.code} without a sentence"))
    return found + _check_form(printed)


def _check_form(printed: Printed) -> list[Finding]:
    if "--json" in printed.argv and (printed.stdout.strip() or printed.code == 0) and printed.code in EXITS:
        return _check_json(printed)
    if "--csv" in printed.argv and printed.code == 0:
        cells = [cell for row in csv.reader(io.StringIO(printed.text)) for cell in row]
        odd = [cell for cell in cells if cell[:1] in tuple("=+-@\t\r") and cell and not _is_number(cell)]
        return [Finding("cell that is a formula", ascii(odd[0])[:80])] if odd else []
    return []


def _check_json(printed: Printed) -> list[Finding]:
    def refuse(word: str) -> Any:
        raise ValueError(f"it has {word}")

    try:
        json.loads(printed.stdout.decode("utf-8"), parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        return [Finding("not one JSON document", f"{str(error)[:100]} (exit {printed.code})", _shape(printed.argv))]
    return []


def _is_number(cell: str) -> bool:
    try:
        return math.isfinite(float(cell))
    except ValueError:
        return False


def _last(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else ""


def _shape(argv: list[str]) -> str:
    """Return the command and its flags, without the values that differ from case to case."""
    return " ".join([argv[0], *(word for word in argv[1:] if word.startswith("--"))])


def check_bug_files(tmp: Path) -> list[Finding]:
    """Turn each traceback file in `tmp` into one finding, and delete the file."""
    found = []
    for file in sorted(tmp.glob("keyhole-bug-*.txt")):
        text = file.read_text("utf-8", "replace")
        found.append(Finding("bug", _last(text), f"{_last(text).split(':')[0]} in {innermost(text)}"))
        file.unlink()
    return found


def check_page(folder: Path, secret: str) -> list[Finding]:
    """Check that the page of a report has no markup from the folder, no control character and no secret."""
    path = folder / "report.html"
    if not path.is_file() or path.is_symlink() or path.stat().st_size > 1 << 28:
        return []
    text = path.read_text("utf-8", "replace")
    found = []
    if MARKUP[:12] in text or "<script>kh()" in text:
        at = max(text.find(MARKUP[:12]), text.find("<script>kh()"))
        found.append(Finding("markup in the page", ascii(text[max(0, at - 80) : at + 40])))
    if odd := re.search("[\x00-\x08\x0b\x0c\x0e-\x1f\x80-\x9f\u202a-\u202e\u2066-\u2069]", text):
        around = text[max(0, odd.start() - 60) : odd.end() + 9]
        found.append(Finding("control character", f"in the page: {around!a}"))
    if secret in text:
        found.append(Finding("secret printed", "in the page"))
    return found


def look_at(top: Path) -> dict[str, tuple[Any, ...]]:
    """Describe every entry below `top`: its kind, the size of a file, the digest of a small file. Follow no link."""
    seen: dict[str, tuple[Any, ...]] = {}
    for folder, dirs, files in os.walk(top):
        for name in (*dirs, *files):
            path = os.path.join(folder, name)
            info = os.lstat(path)
            regular = stat.S_ISREG(info.st_mode)
            digest = b""
            if regular and info.st_size < 100_000:
                with open(path, "rb") as file:
                    digest = hashlib.sha256(file.read()).digest()
            seen[os.path.relpath(path, top)] = (stat.S_IFMT(info.st_mode), info.st_size if regular else 0, digest)
    return seen


def changes(before: dict[str, tuple[Any, ...]], after: dict[str, tuple[Any, ...]]) -> list[str]:
    return [name for name in sorted({*before, *after}) if before.get(name) != after.get(name)]
