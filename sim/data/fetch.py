"""`keyhole fetch`: put a named data set into the cache folder.

GroupLens is the source. Where it cannot be reached, ml-100k also comes through pip, from the copy that the
recbole wheel carries: the same bytes below one header line, and beside them titles, years (of the title, where
`u.item` has that of the release) and the same genres. No package of pip was found that carries ml-1m, or
ml-latest-small as of 2018: these two need GroupLens.

A download is checked, written to a temporary folder and renamed into place as the last step, so a data set is there
as a whole or not at all.

Checksums guard against damage and mix-ups. No name from an archive is ever used as a path: members are read
by exact names that stand in this file, and written under these names.
"""

from __future__ import annotations

import hashlib
import http.client
import io
import os
import subprocess
import sys
import tempfile
import urllib.request
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from protocol.errors import BadInput
from sim.data.ratings import NAMED, cache_folder
from sim.data.titles import TABLE

GROUPLENS = "https://files.grouplens.org/datasets/movielens/"
WHEEL = "recbole==1.2.1"
WHEEL_MEMBER = "recbole/dataset_example/ml-100k/ml-100k.inter"
WHEEL_ITEMS = f"recbole/dataset_example/ml-100k/{TABLE}"
TIMEOUT_SECONDS = 10
PIP_SECONDS = 180
MAX_DOWNLOAD = 64 << 20
MAX_MEMBER = 128 << 20

Report = Callable[[str], None]


@dataclass(frozen=True)
class Origin:
    """The members to take from a GroupLens archive (only the ratings must be there), and the checksums."""

    members: tuple[str, ...]
    archive_sha256: str | None = None
    ratings_md5: str | None = None


ORIGINS = {
    # The md5 is that of u.data itself, so it also holds for the copy in the wheel.
    "ml-100k": Origin(
        ("u.data", "u.item", "u.user", "README"),
        ratings_md5="6e47046882bad158b0efbb84cd5cb987",
    ),
    "ml-1m": Origin(
        ("ratings.dat", "movies.dat", "README"),
        archive_sha256="a6898adb50b9ca05aa231689da44c217cb524e7ebd39d264c56e2832f2c54e20",
    ),
    # GroupLens revises this set in place, so no checksum would stay right; the archive's own CRCs remain.
    "ml-latest-small": Origin(("ratings.csv", "movies.csv", "README.txt")),
}


class Unreachable(Exception):
    """Raised if a source gave nothing usable; another source may be tried."""


def _say(text: str) -> None:
    print(text, file=sys.stderr)


def fetch(name: str, *, report: Report = _say) -> Path:
    """Download the set `name` unless it is there already; return its folder."""
    if name not in ORIGINS:
        raise BadInput(f'"{name}" cannot be fetched; choose one of {", ".join(ORIGINS)}')
    folder = cache_folder() / name
    if _is_good(name, folder):
        report(f"{name} is already in {folder}")
        return folder
    files = _download(name, report)
    _check_ratings(name, files)
    try:
        _install(files, folder)
    except OSError as error:
        reason = f"{folder} cannot be written ({error.strerror})"
        raise BadInput(f"{reason}; set XDG_CACHE_HOME to a folder that can be") from None
    report(f"{name} is now in {folder}")
    return folder


def _is_good(name: str, folder: Path) -> bool:
    ratings = folder / NAMED[name].file
    if not ratings.is_file():
        return False
    expected = ORIGINS[name].ratings_md5
    return expected is None or _md5(ratings.read_bytes()) == expected


def _md5(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


def _check_ratings(name: str, files: dict[str, bytes]) -> None:
    expected = ORIGINS[name].ratings_md5
    found = _md5(files[NAMED[name].file])
    if expected is not None and found != expected:
        raise BadInput(f"the download of {name} has md5 {found} instead of {expected}; try again later")


def _install(files: dict[str, bytes], folder: Path) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    # beside the target, because a rename is atomic only within one file system.
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=folder.parent) as temporary:
        fresh = Path(temporary) / folder.name
        fresh.mkdir()
        for name, content in files.items():
            (fresh / name).write_bytes(content)
        if folder.exists():  # it is damaged: `fetch` does not replace a sound one
            os.replace(folder, Path(temporary) / "old")
        os.replace(fresh, folder)


# ---- sources


def _download(name: str, report: Report) -> dict[str, bytes]:
    """Download the files of the set `name`; return their contents by file name."""
    reasons = []
    try:
        report(f"downloading {GROUPLENS}{name}.zip")
        return _from_grouplens(name, download_archive(f"{GROUPLENS}{name}.zip"))
    except Unreachable as error:
        reasons.append(f"GroupLens: {error}")
    if name == "ml-100k":
        try:
            report(f"GroupLens cannot be reached; downloading the copy in {WHEEL} with pip")
            return _from_wheel(download_wheel(WHEEL))
        except Unreachable as error:
            reasons.append(f"pip: {error}")
    raise BadInput(
        f"{name} could not be downloaded ({'; '.join(reasons)}); try again later, "
        f"or unpack {GROUPLENS}{name}.zip and set KEYHOLE_DATA to the folder that contains {name}"
    )


def _from_grouplens(name: str, archive: bytes) -> dict[str, bytes]:
    expected = ORIGINS[name].archive_sha256
    found = hashlib.sha256(archive).hexdigest()
    if expected is not None and found != expected:
        raise BadInput(f"the archive of {name} has sha256 {found} instead of {expected}; try again later")
    members = {member: _member(archive, f"{name}/{member}") for member in ORIGINS[name].members}
    if members[NAMED[name].file] is None:
        raise Unreachable(f"the archive lacks {NAMED[name].file}")
    return {member: content for member, content in members.items() if content is not None}


def _from_wheel(wheel: bytes) -> dict[str, bytes]:
    """Take `u.data` from the recbole wheel, whose table is the same bytes below a header line, and its items' table."""
    table = _member(wheel, WHEEL_MEMBER)
    if table is None:
        raise Unreachable(f"the wheel lacks {WHEEL_MEMBER}")
    items = _member(wheel, WHEEL_ITEMS)
    return {"u.data": table.partition(b"\n")[2]} | ({} if items is None else {TABLE: items})


def _member(archive: bytes, name: str) -> bytes | None:
    """Read one member by its exact name; None if the archive lacks it.

    The size that the archive states is not trusted.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(archive)) as opened:
            if name not in opened.namelist():
                return None
            with opened.open(name) as member:
                content = member.read(MAX_MEMBER + 1)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise Unreachable(f"what arrived is not a sound archive: {error}") from None
    if len(content) > MAX_MEMBER:
        raise Unreachable(f"{name} is larger than {MAX_MEMBER:,} bytes")
    return content


def download_archive(url: str) -> bytes:
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT_SECONDS) as response:
            content = bytes(response.read(MAX_DOWNLOAD + 1))
    except (OSError, http.client.HTTPException) as error:  # URLError and timeouts are OSErrors
        raise Unreachable(str(error)) from None
    if len(content) > MAX_DOWNLOAD:
        raise Unreachable(f"the archive is larger than {MAX_DOWNLOAD:,} bytes")
    return content


def download_wheel(requirement: str) -> bytes:
    """Download a wheel with pip, never a source package: building one would run code from the network."""
    options = ["--no-deps", "--only-binary=:all:", "--disable-pip-version-check", "--no-input", "--quiet"]
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", *options, requirement, "-d", folder]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=PIP_SECONDS, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise Unreachable(str(error)) from None
        wheels = sorted(Path(folder).glob("*.whl"))
        if done.returncode != 0 or not wheels:
            lines = done.stderr.strip().splitlines()
            raise Unreachable(lines[-1] if lines else f"pip ended with code {done.returncode}")
        return wheels[0].read_bytes()
