"""Where a page goes: refused before the audit if it cannot be written, and then written whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

from protocol.errors import BadInput
from protocol.params import require
from sim.folder.folder import replace_private


def page_path(run: Path, out: Path | None) -> Path:
    """Where the page will be; what cannot be is refused before the audit, and so is a file that is no page."""
    path = out or run / "report.html"
    if path.is_dir() or not path.parent.is_dir():
        raise BadInput(f"Cannot write {path}: name a file in a folder that exists with --out.")
    require(path.suffix.lower() in (".html", ".htm"), f"--out must end with .html, not {path.name!r}.")
    require(os.access(path.parent, os.W_OK), f"{path.parent} cannot be written: name a file elsewhere with --out.")
    return path


def write_page(path: Path, page: str) -> None:
    """Mode 0600, also if an earlier page is replaced: it holds what only the auditor may see. All of it, or none."""
    try:
        replace_private(path, page)
    except OSError as error:
        raise BadInput(f"Cannot write {path}: {error.strerror}.") from error
