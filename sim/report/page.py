"""The sections of a report, put together into one HTML file that needs nothing else."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable
from importlib import metadata, resources

from markupsafe import Markup

from actors.blame import in_brief
from protocol.schemes import SCHEMES
from sim.console.console import length
from sim.report import (
    accounting,
    again,
    course,
    explorer,
    findings,
    parties,
    received,
    recommended,
    sequence,
    traffic,
    verdict,
    verdict_cards,
)
from sim.report.material import Material
from sim.report.section import Section, render
from sim.report.words import explained, glossary

SECTIONS: tuple[Callable[[Material], Section | None], ...] = (  # in this order on the page
    verdict.section,
    received.section,
    parties.section,
    sequence.section,
    explorer.section,
    traffic.section,
    course.section,
    recommended.section,
    accounting.section,
    findings.section,
    verdict_cards.section,
    again.section,
)


def report_page(material: Material) -> str:
    made = [found for section in SECTIONS if (found := _made(section, material)) is not None]
    summary = material.summary
    heading = f"{summary['scheme']} on {summary['data']}"
    turns = length(material.scheme.factorizes, summary["iterations"], summary["dim"])
    sizes = f"{summary['users']:,} users, {summary['items']:,} items, {turns}"
    bare = ", without the iteration noise (--no-rho)" if material.case.config.no_rho else ""
    lead = f"{sizes}, seed {summary['seed']}. {material.scheme.title}{bare}"
    explained_ = [dataclasses.replace(each, html=explained(each.html)) for each in made]
    return page(heading, lead, [*explained_, glossary()], f"{_date(material)} · {material.folder}")


def _date(material: Material) -> str:
    """Tell the day on which the run was begun, as the clock of this machine has it."""
    return time.strftime("%Y-%m-%d", time.localtime((material.folder / "run.toml").stat().st_mtime))


def _made(section: Callable[[Material], Section | None], material: Material) -> Section | None:
    """A scheme of one's own may do what a section cannot follow: that is said, and the others are made."""
    if type(material.scheme) in SCHEMES.values():
        return section(material)
    try:
        return section(material)
    except Exception as fault:
        name = section.__module__.rpartition(".")[2]
        why = in_brief(fault)
        html = render("missing.html", title="This part could not be made", words=why)
        return Section(name, name.capitalize(), html)


def page(heading: str, lead: str, sections: Iterable[Section], origin: str = "") -> str:
    """Style and script of every part that has them, and the sections; `origin`: date and folder of a run."""
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
    """All templates with this ending, ours and so not escaped: `page` first, then the others by name."""
    folder = resources.files("sim.report").joinpath("templates")
    found = sorted((file for file in folder.iterdir() if file.name.endswith(ending)), key=lambda file: file.name)
    found.sort(key=lambda file: not file.name.startswith("page"))
    return Markup("\n".join(file.read_text(encoding="utf-8") for file in found))
