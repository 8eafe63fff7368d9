"""Assemble the sections of a report into one self-contained HTML file."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable, Iterable
from importlib import metadata
from pathlib import Path

from markupsafe import Markup

from actors.blame import in_brief
from protocol.errors import BadInput
from protocol.params import require
from protocol.schemes import is_ours
from sim.console.console import length
from sim.folder.folder import replace_private
from sim.report.epsilon import epsilon_section
from sim.report.explorer import explorer_section
from sim.report.findings import findings_section
from sim.report.iterations import iterations_section
from sim.report.parties import parties_section
from sim.report.recommended import recommended_section
from sim.report.repeat import repeat_section
from sim.report.reported_run import ReportedRun
from sim.report.section import Section, render, template_folders
from sim.report.sequence import received_section, sequence_section
from sim.report.tooltips import explained, glossary
from sim.report.traffic import traffic_section
from sim.report.verdict import figure_groups, verdict_section

SECTIONS: tuple[Callable[[ReportedRun], Section | None], ...] = (  # in this order on the page
    verdict_section.section,
    received_section.section,
    parties_section.section,
    sequence_section.section,
    explorer_section.section,
    traffic_section.section,
    iterations_section.section,
    recommended_section.section,
    epsilon_section.section,
    findings_section.section,
    figure_groups.section,
    repeat_section.section,
)


def report_page(run: ReportedRun) -> str:
    made = [found for section in SECTIONS if (found := _made(section, run)) is not None]
    summary = run.summary
    heading = f"{summary['scheme']} on {summary['data']}"
    turns = length(run.scheme.factorizes, summary["iterations"], summary["dim"])
    sizes = f"{summary['users']:,} users, {summary['items']:,} items, {turns}"
    bare = ", without the iteration noise (--no-rho)" if run.case.config.no_rho else ""
    lead = f"{sizes}, seed {summary['seed']}. {run.scheme.title}{bare}"
    explained_ = [dataclasses.replace(each, html=explained(each.html)) for each in made]
    started = time.localtime((run.folder / "run.toml").stat().st_mtime)  # by the clock of this machine
    return page(heading, lead, [*explained_, glossary()], f"{time.strftime('%Y-%m-%d', started)} · {run.folder}")


def _made(section: Callable[[ReportedRun], Section | None], run: ReportedRun) -> Section | None:
    """Make a section; if a custom scheme does something that it cannot handle, say so in its place."""
    if is_ours(run.scheme):
        return section(run)
    try:
        return section(run)
    except Exception as fault:
        name = section.__module__.rpartition(".")[2]
        why = in_brief(fault)
        html = render("missing.html", title="This part could not be made", words=why)
        return Section(name, name.capitalize(), html)


def page(heading: str, lead: str, sections: Iterable[Section], origin: str = "") -> str:
    """Render a page of `sections` with all styles and scripts; `origin` is the date and folder of a run."""
    version = metadata.version("keyhole")
    return str(
        render(
            "page.html",
            title=" · ".join(["Keyhole", heading, *([origin] if origin else [])]),
            origin=origin,
            heading=heading,
            lead=lead,
            sections=list(sections),
            style=_files(".css"),
            script=_files(".js"),
            version=version,
            foot=f"Keyhole {version}. A claim is printed as a claim, a measurement as a measurement.",
        )
    )


def _files(ending: str) -> Markup:
    """Join all templates with this `ending`, unescaped as they are ours: `page` first, then the others by name."""
    found = [file for folder in template_folders() for file in folder.glob(f"*{ending}")]
    found.sort(key=lambda file: (not file.name.startswith("page"), file.name))
    return Markup("\n".join(file.read_text(encoding="utf-8") for file in found))


# --- the file of a page ----------------------------------------------------------------------------------------------


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
