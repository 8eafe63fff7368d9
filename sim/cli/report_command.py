"""The command `keyhole report`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from sim.folder.folder import read_run
from sim.foreign.plain_text import visible


def report(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run.")],
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="The page. (report.html in the run folder)")] = None,
    open_: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Say nothing while it asks.")] = False,
) -> None:
    """Write one HTML file about the run: who saw what, who can work out what, what it cost. It needs no network."""
    from sim.audit.audit import Audit
    from sim.report.page import report_page
    from sim.report.page_file import page_path, write_page
    from sim.report.reported_run import ask_for_page
    from sim.tables.audit_tables import Asking  # slow to import

    read_run(run)  # refuses a folder that is not a run, before anything slow begins
    path = page_path(run, out)
    with Asking(enabled=not quiet) as asking:
        page = report_page(ask_for_page(Audit(run), on_question=asking, tell=asking.tell))
    write_page(path, page)
    print(path)
    if open_:
        open_page(path)


def open_page(path: Path) -> None:
    """Show the page in the person's browser, or say that there is none."""
    import webbrowser

    if not webbrowser.open(path.absolute().as_uri()):
        print(f"keyhole: No browser could be started: open {visible(str(path))} in one.", file=sys.stderr)


