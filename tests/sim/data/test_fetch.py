"""Named data sets: how they are fetched, kept and found. No test here uses the network."""

from __future__ import annotations

import hashlib
import io
import os
import subprocess
import time
import urllib.request
import zipfile
from pathlib import Path

import numpy as np
import pytest

from protocol.errors import BadInput
from sim.data import fetch as module
from sim.data.described_items import AUTO, describe_items
from sim.data.fetch import Unreachable, fetch
from sim.data.ratings import NAMED, available, load, split

U_DATA = b"9\t10\t4\t881250949\n10\t2\t1\t881250949\n"
WHEEL_HEADER = b"user_id:token\titem_id:token\trating:float\ttimestamp:float\n"


def archive(members: dict[str, bytes]) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as opened:
        for name, content in members.items():
            opened.writestr(name, content)
    return target.getvalue()


class Internet:
    """A stand-in for the two download functions: gives bytes, or Unreachable without them, and notes the calls."""

    def __init__(self) -> None:
        self.archive: bytes | None = None
        self.wheel: bytes | None = None
        self.asked: list[str] = []

    def download_archive(self, url: str) -> bytes:
        return self._answer(url, self.archive)

    def download_wheel(self, requirement: str) -> bytes:
        return self._answer(requirement, self.wheel)

    def _answer(self, wanted: str, content: bytes | None) -> bytes:
        self.asked.append(wanted)
        if content is None:
            raise Unreachable("no route")
        return content


@pytest.fixture
def internet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Internet:
    """Set up a machine without data sets, with the cache folder tmp_path/keyhole; ml-100k is U_DATA."""
    made = Internet()
    monkeypatch.setattr(module, "download_archive", made.download_archive)
    monkeypatch.setattr(module, "download_wheel", made.download_wheel)
    tiny = module.Origin(("u.data", "u.item"), ratings_md5=hashlib.md5(U_DATA).hexdigest())
    monkeypatch.setitem(module.ORIGINS, "ml-100k", tiny)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("KEYHOLE_DATA", raising=False)
    return made


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


# ---- fetching


def test_grouplens_comes_first_and_only_known_members_are_taken(tmp_path: Path, internet: Internet) -> None:
    others = dict.fromkeys(["ml-100k/u.item", "ml-100k/u.more", "../escaped", "/absolute"], b"x")
    internet.archive = archive({"ml-100k/u.data": U_DATA, **others})
    said: list[str] = []
    folder = fetch("ml-100k", report=said.append)
    assert internet.asked == ["https://files.grouplens.org/datasets/movielens/ml-100k.zip"]
    assert files(tmp_path) == ["keyhole/ml-100k/u.data", "keyhole/ml-100k/u.item"]
    assert (folder / "u.data").read_bytes() == U_DATA and len(load("ml-100k")) == 2
    assert any(f"ml-100k is now in {folder}" in line for line in said)


def test_the_wheel_gives_the_same_bytes_when_grouplens_does_not_answer(internet: Internet) -> None:
    internet.wheel = archive({module.WHEEL_MEMBER: WHEEL_HEADER + U_DATA})
    assert (fetch("ml-100k") / "u.data").read_bytes() == U_DATA
    assert internet.asked[1:] == ["recbole==1.2.1"]


def test_the_wheel_gives_what_is_known_of_items_too(internet: Internet) -> None:
    items = b"item_id:token\tmovie_title:token_seq\trelease_year:token\tclass:token_seq\n10\tKolya\t1996\tComedy War\n"
    internet.wheel = archive({module.WHEEL_MEMBER: WHEEL_HEADER + U_DATA, module.WHEEL_ITEMS: items})
    assert files(fetch("ml-100k")) == ["ml-100k.item", "u.data"]
    ratings = load("ml-100k")
    described, at = describe_items(ratings, AUTO), ratings.item_names.index("10")
    assert ratings.item_titles is not None and ratings.item_titles[at] == "Kolya (1996)"
    assert described is not None and described.flags[at].all() and described.flags.sum() == 2
    assert described.numbers[at] * 21 + 1985 == 1996


def test_a_page_instead_of_an_archive_counts_as_no_answer(internet: Internet) -> None:
    internet.archive = b"<html>please log in</html>"
    internet.wheel = archive({module.WHEEL_MEMBER: WHEEL_HEADER + U_DATA})
    assert (fetch("ml-100k") / "u.data").read_bytes() == U_DATA


def test_what_is_right_is_kept_and_what_is_damaged_is_replaced(tmp_path: Path, internet: Internet) -> None:
    internet.archive = archive({"ml-100k/u.data": U_DATA})
    folder = fetch("ml-100k")
    said: list[str] = []
    assert fetch("ml-100k", report=said.append) == folder
    assert len(internet.asked) == 1 and said == [f"ml-100k is already in {folder}"]
    (folder / "u.data").write_bytes(b"damaged")
    assert (fetch("ml-100k") / "u.data").read_bytes() == U_DATA
    assert len(internet.asked) == 2 and files(tmp_path) == ["keyhole/ml-100k/u.data"]


@pytest.mark.parametrize("way", ["archive", "wheel"])
def test_a_wrong_md5_is_refused_and_leaves_nothing(tmp_path: Path, internet: Internet, way: str) -> None:
    internet.archive = archive({"ml-100k/u.data": b"other"}) if way == "archive" else None
    internet.wheel = archive({module.WHEEL_MEMBER: WHEEL_HEADER + b"other"})
    with pytest.raises(BadInput, match="has md5 795f3202b17cb6bc3d4b771d8c6c9eaf instead"):  # md5 of "other"
        fetch("ml-100k")
    assert not list(tmp_path.iterdir())


def test_a_wrong_archive_of_ml_1m_is_refused(tmp_path: Path, internet: Internet) -> None:
    internet.archive = archive({"ml-1m/ratings.dat": b"1::1::5::0\n"})
    with pytest.raises(BadInput, match=r"has sha256 .* instead of a6898adb"):
        fetch("ml-1m")
    assert not list(tmp_path.iterdir())


def test_ml_latest_small_needs_no_checksum(internet: Internet) -> None:
    ratings = b"userId,movieId,rating,timestamp\n1,1,0.5,0\n"
    internet.archive = archive({"ml-latest-small/ratings.csv": ratings})
    fetch("ml-latest-small")
    assert load("ml-latest-small").rating_range == (0.5, 5.0)


@pytest.mark.parametrize("name", ["ml-100k", "ml-1m", "ml-latest-small"])
def test_no_answer_says_what_to_do(tmp_path: Path, internet: Internet, name: str) -> None:
    with pytest.raises(BadInput, match=rf"no route.*unpack https://.*{name}\.zip and set KEYHOLE_DATA"):
        fetch(name)
    assert len(internet.asked) == (2 if name == "ml-100k" else 1)  # pip has only ml-100k
    assert not list(tmp_path.iterdir())


def test_archives_that_lack_the_ratings_or_are_too_large(
    internet: Internet, monkeypatch: pytest.MonkeyPatch
) -> None:
    internet.archive = archive({"ml-100k/README": b"x"})
    internet.wheel = archive({"recbole/other": b"x"})
    with pytest.raises(BadInput, match=r"archive lacks u\.data; pip: the wheel lacks recbole/"):
        fetch("ml-100k")
    internet.archive = archive({"ml-100k/u.data": U_DATA})
    monkeypatch.setattr(module, "MAX_MEMBER", len(U_DATA) - 1)
    with pytest.raises(BadInput, match=r"ml-100k/u\.data is larger than"):
        fetch("ml-100k")


def test_unknown_names_and_folders_that_cannot_be_written(
    tmp_path: Path, internet: Internet, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(BadInput, match=r'"ml-9" cannot be fetched; .* ml-100k, ml-1m, ml-latest-small'):
        fetch("ml-9")
    (tmp_path / "a file").write_bytes(b"")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "a file"))
    internet.archive = archive({"ml-100k/u.data": U_DATA})
    with pytest.raises(BadInput, match=r"cannot be written .*; set XDG_CACHE_HOME"):
        fetch("ml-100k")


# ---- the two ways to download


def test_a_download_is_limited_in_time_and_size(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(url: str, timeout: float) -> io.BytesIO:
        if timeout > 10:
            raise AssertionError("the timeout is too long")
        return io.BytesIO(b"1234")

    monkeypatch.setattr(urllib.request, "urlopen", answer)
    assert module.download_archive("https://x") == b"1234"
    monkeypatch.setattr(module, "MAX_DOWNLOAD", 3)
    with pytest.raises(Unreachable, match="larger than 3 bytes"):
        module.download_archive("https://x")


def test_pip_downloads_a_wheel_and_builds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        assert {"--no-deps", "--only-binary=:all:", "recbole==1.2.1"} <= set(command)
        Path(command[-1], "recbole.whl").write_bytes(b"wheel")
        return subprocess.CompletedProcess(command, code, stderr="first\nlast\n")

    monkeypatch.setattr(subprocess, "run", run)
    code = 0
    assert module.download_wheel("recbole==1.2.1") == b"wheel"
    code = 1
    with pytest.raises(Unreachable, match=r"^last$"):
        module.download_wheel("recbole==1.2.1")


# ---- finding


@pytest.mark.parametrize("name", ["u.data", "ratings.dat", "ratings.csv"])
def test_a_folder_is_searched_for_its_ratings(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(U_DATA)
    assert len(load(str(tmp_path))) == 2


def test_missing_sources_are_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r'no file or folder ".*gone\.csv"; .* one of demo, .*ml-100k'):
        load(str(tmp_path / "gone.csv"))
    with pytest.raises(BadInput, match=r"contains none of u\.data, ratings\.dat, ratings\.csv"):
        load(str(tmp_path))


def test_named_sets_come_from_keyhole_data_before_the_cache(
    tmp_path: Path, internet: Internet, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(
        BadInput, match=r'^run "keyhole fetch ml-1m" or set KEYHOLE_DATA to .* contains ml-1m$'
    ):
        load("ml-1m")
    for root, text in (("keyhole", "1::1::3::0\n"), ("mine", "1::1::4::0\n")):
        (tmp_path / root / "ml-1m").mkdir(parents=True)
        (tmp_path / root / "ml-1m" / "ratings.dat").write_text(text)
    assert load("ml-1m").values.tolist() == [3.0]
    monkeypatch.setenv("KEYHOLE_DATA", str(tmp_path / "mine"))
    assert load("ml-1m").values.tolist() == [4.0] and load("ml-1m").name == "ml-1m"


def test_available_tells_present_from_absent(internet: Internet) -> None:
    internet.archive = archive({"ml-100k/u.data": U_DATA})
    folder = fetch("ml-100k")
    sets = {entry.name: entry for entry in available()}
    assert set(sets) == {"demo", "demo-small", "synthetic:USERSxITEMS[:DENSITY[:RANK]]", "netflix-shaped", *NAMED}
    for name in ("demo", "demo-small"):
        assert (sets[name].where, sets[name].ratings) == ("built in", len(load(name)))
    assert (sets["ml-100k"].where, sets["ml-100k"].users) == (str(folder), 943)
    assert (sets["ml-1m"].where, sets["ml-1m"].how) == (None, "keyhole fetch ml-1m")


def test_the_real_ml_100k() -> None:
    path = Path(os.environ.get("KEYHOLE_DATA", ""), "ml-100k", "u.data")
    if not path.is_file():
        pytest.skip("ml-100k is absent: set KEYHOLE_DATA or run keyhole fetch ml-100k")
    start = time.perf_counter()
    ratings = load("ml-100k")
    loaded = time.perf_counter()
    users = split(ratings, 0.2, bytes(32))
    assert loaded - start < 1.0 and time.perf_counter() - loaded < 0.5
    assert hashlib.md5(path.read_bytes()).hexdigest() == module.ORIGINS["ml-100k"].ratings_md5
    assert (ratings.n_users, ratings.n_items, len(ratings)) == (943, 1682, 100_000)
    assert np.bincount(ratings.values.astype(int)).tolist() == [0, 6110, 11370, 27145, 34174, 21201]
    first = (ratings.users == 195) & (ratings.items == 241)  # u.data begins: 196, 242, 3
    assert ratings.user_names[195] == "196" and ratings.values[first].tolist() == [3.0]
    assert sum(len(user.items) + len(user.held_out_items) for user in users) == 100_000
