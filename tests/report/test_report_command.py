"""`keyhole report`: where the page goes, its permissions, and what is refused before anything is lost."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from protocol.errors import BadInput
from sim.report.page import page_path, write_page


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_a_page_is_its_owners_alone_also_where_an_earlier_one_was_not(tmp_path):
    path = tmp_path / "page.html"
    path.write_text("earlier")
    path.chmod(0o644)
    write_page(path, "<p>later</p>")
    assert path.read_text("utf-8") == "<p>later</p>" and mode(path) == 0o600
    assert [file.name for file in tmp_path.iterdir()] == ["page.html"]


def test_what_is_no_page_is_not_replaced_by_one(tmp_path):
    assert page_path(tmp_path, None) == tmp_path / "report.html"
    for name in ("summary.json", "run.toml", "views"):
        with pytest.raises(BadInput, match=r"must end with \.html"):
            page_path(tmp_path, tmp_path / name)
    with pytest.raises(BadInput, match="a folder that exists"):
        page_path(tmp_path, tmp_path / "nowhere" / "page.html")
    (tmp_path / "folder.html").mkdir()
    with pytest.raises(BadInput, match="a folder that exists"):
        page_path(tmp_path, tmp_path / "folder.html")


def test_a_page_that_cannot_be_written_leaves_nothing(tmp_path):
    (tmp_path / "page.html").mkdir()
    with pytest.raises(BadInput, match="Cannot write"):
        write_page(tmp_path / "page.html", "<p>page</p>")
    assert [file.name for file in tmp_path.iterdir()] == ["page.html"]


def test_a_folder_that_cannot_be_written_is_refused_before_the_audit(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # the tests may run as root, which may write anywhere
    with pytest.raises(BadInput, match="cannot be written: name a file elsewhere with --out"):
        page_path(tmp_path, None)


def test_a_file_system_that_cannot_be_written_is_said_in_a_sentence(tmp_path, monkeypatch):
    def refuse(*given, **named):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(os, "open", refuse)
    monkeypatch.setattr(Path, "unlink", refuse)
    with pytest.raises(BadInput, match=r"Cannot write .*: Read-only file system"):
        write_page(tmp_path / "page.html", "<p>page</p>")
