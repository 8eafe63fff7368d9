"""The command `keyhole report`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from protocol.errors import BadInput
from protocol.params import require
from sim.console.plain_text import visible
from sim.folder.folder import read_run, replace_private


def report(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run.")],
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="The page. (report.html in the run folder)")] = None,
    open_: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Say nothing while it asks.")] = False,
) -> None:
    """One HTML file that shows the run: who saw what, who can work out what, what it cost. It needs no network."""
    from sim.console.audit_tables import Asking  # slow to import, and not needed by any other command
    from sim.report.page import report_page
    from sim.report.sources import gather

    read_run(run)  # is it one? That first
    path = page_path(run, out)
    with Asking(enabled=not quiet) as asking:
        page = report_page(gather(run, on_question=asking, tell=asking.tell))
    write_page(path, page)
    print(path)
    if open_:
        open_page(path)


def open_page(path: Path) -> None:
    """Show the page in the person's browser, or say that there is none."""
    import webbrowser

    if not webbrowser.open(path.absolute().as_uri()):
        print(f"keyhole: No browser could be started: open {visible(str(path))} in one.", file=sys.stderr)


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
