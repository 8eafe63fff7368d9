"""Near the top of the page: what a server received, beside the truth that it was made of."""

from __future__ import annotations

from sim.report.reported_run import ReportedRun
from sim.report.section import Section, render
from sim.report.sequence.panels import spoken
from sim.report.sequence.sequence_section import tell

ID = "received"


def section(run: ReportedRun) -> Section:
    """Show the panel that "Who sends what" opens first, if it has a picture."""
    told = tell(run)
    panels = [] if told is None else [one for one in told.panels if one.key == told.chosen and one.pictures]
    if told is None or not panels:
        words = "No server's view with numbers of users was kept, so what it received cannot be drawn: --views full."
        html = render("missing.html", title="Not drawn", words=words)
        return Section(ID, "What a server received", html, "Received")
    panel = panels[0]
    sender, receiver = next(
        arrow.edge[1:3] for diagram in told.diagrams for arrow in diagram.arrows if arrow.key == panel.key
    )
    whose = spoken(receiver)
    pictures = [drawn.replace(f"{panel.key}-h", f"{ID}-h") for drawn in panel.pictures]  # ids on a page are unique
    html = render(
        "received.html", lead=_lead(len(pictures), spoken(sender), whose), pictures=pictures,
        about=panel.about, link=panel.key,
    )  # fmt: skip
    return Section(ID, f"What the {whose} received", html, "Received")


def _lead(pictures: int, sender: str, receiver: str) -> str:
    first = f"The first picture is what the {receiver} got from {sender}"
    if pictures == 1:
        return f"{first}."
    last = "second" if pictures == 2 else "last"
    return f"{first}; the {last} one is the truth behind it, which only the auditor has."
