"""The file of a page: its path is checked before the audit, and it is then written whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

from protocol.errors import BadInput
from protocol.params import require
from sim.folder.folder import replace_private


def page_path(run: Path, out: Path | None) -> Path:
    """Choose where the page goes; refuse, before the audit, a path that cannot be written or that names no page."""
    path = out or run / "report.html"
    if path.is_dir() or not path.parent.is_dir():
        raise BadInput(f"Cannot write {path}: name a file in a folder that exists with --out.")
    require(path.suffix.lower() in (".html", ".htm"), f"--out must end with .html, not {path.name!r}.")
    require(os.access(path.parent, os.W_OK), f"{path.parent} cannot be written: name a file elsewhere with --out.")
    return path


def write_page(path: Path, page: str) -> None:
    """Write the page whole or not at all, with mode 0600 even over an earlier page: only the auditor may see it."""
    try:
        replace_private(path, page)
    except OSError as error:
        raise BadInput(f"Cannot write {path}: {error.strerror}.") from error
