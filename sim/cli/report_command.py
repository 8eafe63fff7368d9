"""The command `keyhole report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sim.cli.flags import Quiet, RunFolder
from sim.console.console import say
from sim.folder.folder import read_run


def report(
    run: RunFolder,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="The page. (report.html in the run folder)")] = None,
    open_: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
    quiet: Quiet = False,
) -> None:
    """Write one HTML file about the run: who saw what, who can work out what, what it cost. It needs no network."""
    from sim.audit.audit import Audit
    from sim.report.page import report_page
    from sim.report.page_file import page_path, write_page
    from sim.report.reported_run import ask_for_page
    from sim.tables.audit_tables import Asking  # slow to import

    read_run(run)  # refuses a folder that is not a run, before anything slow begins
    path = page_path(run, out)
    with Asking(quiet) as asking:
        page = report_page(ask_for_page(Audit(run), on_question=asking, tell=asking.to))
    write_page(path, page)
    print(path)
    if open_:
        open_page(path)


def open_page(path: Path) -> None:
    """Show the page in the person's browser, or report that there is no browser."""
    import webbrowser

    if not webbrowser.open(path.absolute().as_uri()):
        say(f"No browser could be started: open {path} in one.")


