"""The sections of a report, put together into one HTML file that needs nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import metadata, resources

from markupsafe import Markup

from protocol.schemes import SCHEMES
from sim.report import accounting, again, course, explorer, findings, sequence, traffic, verdict
from sim.report.material import Material
from sim.report.section import Section, render
from sim.show import length

SECTIONS: tuple[Callable[[Material], Section | None], ...] = (  # in this order on the page
    verdict.section,
    sequence.section,
    explorer.section,
    traffic.section,
    course.section,
    accounting.section,
    findings.section,
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
    return page(heading, lead, made)


def _made(section: Callable[[Material], Section | None], material: Material) -> Section | None:
    """A scheme of one's own may do what a section cannot follow: that is said, and the others are made."""
    if type(material.scheme) in SCHEMES.values():
        return section(material)
    try:
        return section(material)
    except Exception as fault:
        name = section.__module__.rpartition(".")[2]
        why = " ".join(f"{type(fault).__name__}: {fault}".split())
        html = render("missing.html", title="This part could not be made", words=why)
        return Section(name, name.capitalize(), html)


def page(heading: str, lead: str, sections: Iterable[Section]) -> str:
    """Style and script of every part that has them, and the sections."""
    version = metadata.version("keyhole")
    return str(
        render(
            "page.html",
            title=f"{heading} · Keyhole",
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
