"""The claimed ε beside the ε of all releases together: as a curve over the iterations, or as figures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from sim.audit.accounting.curve_points import EXPECTED, IN_VIEW, UPLOADS, EpsilonCurve
from sim.audit.accounting.epsilon_cells import epsilon
from sim.audit.families.registry import family_of
from sim.audit.verdict import promised
from sim.console.console import figure
from sim.report.charts import chart
from sim.report.charts.series import legend_below
from sim.report.reported_run import ReportedRun
from sim.report.section import Section, picture, render, table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TO_WHOM = {
    IN_VIEW: "a party without the envelopes",
    EXPECTED: "a party without the envelopes",
    UPLOADS: "the recommender, who does not know the noise",
}
SOURCES = {
    IN_VIEW: "Exact, from the sums in the recommender's view and the envelopes that its tape deals; over the {items} "
    "items that were released, for a change that is even over the coordinates.",
    EXPECTED: "The recommender kept no view: the envelopes are those that its tape deals, and every one of {items} "
    "items counts as released in all iterations. The audit could not check that.",
    UPLOADS: "Exact for uploads whose noise has the published law; whether it has is tested among the findings.",
}
NOT_COVERED = (
    "One rating's value changes, and the user's factors are taken as fixed: that they react to the rating is not "
    "covered by any line. The constant objective noise is not counted on."
)
FIGURES = {  # of `composed` and of the summary's `accounted`, in words
    "releases": "releases (number)",
    "theta": "θ, the scheme's own parameter",
    "claimed": "ε that the budget says",
    "published_formula": "ε by the paper's formula",
    "tight": "ε accounted, all releases together",
    "epsilon": "ε accounted, all releases together",
    "entry": "ε of one entry",
    "vector": "ε of the whole vector of one user",
    "two_users_most": "ε between the two users with the most ratings",
    "two_users_mean": "ε between two users with the mean number of ratings",
    "basic": "ε by basic composition",
    "advanced": "ε by advanced composition",
    "mu": "μ of the Gaussian release",
    "excess": "factor by which the printed sensitivity is too small (1: not)",
    "half_of_users_collude": "ε to the recommender with half of the users",
    "to_recommender": "ε to the recommender",
}


def curve_of(run: ReportedRun) -> EpsilonCurve | str:
    """Ask the scheme's family for the curve, or for the reason why there is none."""
    accounting = run.audit.get("accounting") or {}
    return family_of(run.scheme).curve(run.case, run.summary["privacy"]["accounted"], accounting)


def section(run: ReportedRun) -> Section:
    found = run.audit.get("accounting") or {}
    made = curve_of(run)
    privacy = run.summary["privacy"]
    claimed = privacy["claimed_epsilon"]
    drawn, notes = None, []
    if isinstance(made, EpsilonCurve):
        drawn, notes = _draw(made, claimed, privacy["accounted"]["delta"]), _notes(made, run)
    html = render(
        "epsilon.html",
        claim=_claim(run, claimed),
        drawn=drawn,
        notes=notes,
        method=str(found.get("method") or privacy["accounted"]["method"]).rstrip("."),
        figures=None if drawn else _figures(run),
        sentences=[_not_drawn(run, claimed, made)] if isinstance(made, str) else [],
    )
    return Section("accounting", "Accounting", html)


def _claim(run: ReportedRun, claimed: Any) -> str:
    """State the claim in the scheme's own measure: θ is no ε."""
    if claimed is None:
        return "Nothing is claimed."
    if claimed == "inf":
        return "No ε is claimed: no noise was asked for (ε = ∞)."
    name = promised(run.case).partition(" = ")[0]
    return f"Claimed (a claim, not a measurement): {name} = {figure(claimed)}, {run.summary['privacy']['unit']}."


# --- the curve -------------------------------------------------------------------------------------------------------


def _draw(made: EpsilonCurve, claimed: float, delta: float) -> Markup:
    what = "uploads (one in each iteration)" if made.source == UPLOADS else "iterations that have ended"
    built, axes = chart.new_figure(f"{what}, logarithmic", f"ε at δ = {delta:g}, logarithmic", height=5.2)
    points = made.points
    at = [point.iterations for point in points]
    to_whom = chart.HUES["recommender" if made.source == UPLOADS else "third_party"]
    recommender = chart.HUES["recommender"]
    lines: dict[str, tuple[Sequence[float | None], str, Any]] = {
        "basic composition": ([point.basic for point in points], chart.MUTED, "-"),
        "advanced composition": ([point.advanced for point in points], chart.MUTED, (0, (5, 3))),
        f"tight, to {TO_WHOM[made.source]}": ([point.tight for point in points], chart.colour(to_whom), "-"),
        "to the recommender, median item": (
            [point.median for point in points], chart.colour(recommender), (0, (5, 3)),
        ),
        "to the recommender, worst item": ([point.worst for point in points], chart.colour(recommender), "-"),
    }  # fmt: skip
    for label, (values, colour, style) in lines.items():
        if any(value is not None for value in values):
            heights = [value if value else math.nan for value in values]  # a logarithmic axis has no 0
            axes.plot(
                at, heights, color=colour, linestyle=style, linewidth=1.8, marker="o", markersize=3.2,
                label=label,
            )  # fmt: skip
    axes.axhline(claimed, color=chart.INK, linewidth=1.4, linestyle=(0, (2, 2)), label="claimed, for one release")
    _logarithmic(axes, at, [claimed, *(value for values, *_ in lines.values() for value in values if value)])
    legend_below(built, axes, columns=1)
    columns, rows = _numbers(made)
    title = "ε of all releases together"
    return picture(built, "accounting-curve", title, _fact(made, claimed, delta), columns, rows)


def _logarithmic(axes: Axes, at: Sequence[int], values: Sequence[float]) -> None:
    from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator  # slow to import

    axes.set_xscale("log")
    axes.set_yscale("log")
    ticks = [step * 10**power for power in range(7) for step in (1, 2, 5) if step * 10**power <= at[-1]]
    axes.xaxis.set_major_locator(FixedLocator([float(tick) for tick in ticks]))
    axes.xaxis.set_minor_locator(NullLocator())
    near = max(values) / min(values) < 300
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if near else (1.0,)))
    axes.yaxis.set_minor_locator(NullLocator())
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axes.set_xlim(0.93, at[-1] * 1.08 if at[-1] > 1 else 1.5)


def _fact(made: EpsilonCurve, claimed: float, delta: float) -> str:
    last = made.points[-1]
    after = f"After {last.iterations} {'uploads' if made.source == UPLOADS else 'iterations'}"
    inside = "" if last.releases == last.iterations else f" (the rating in the most sums was in {last.releases})"
    said = (
        f"{after}{inside} ε is {figure(last.tight)} to {TO_WHOM[made.source]} at δ = {delta:g}, "
        f"where {figure(claimed)} is claimed for one release"
    )
    if last.median is not None:
        known = f"{figure(last.median)} for the median item and {figure(last.worst)} for the worst"
        said += f"; to the recommender, who knows the envelopes, {known}"
    same = " Advanced composition gives no less than basic here." if last.advanced == last.basic else ""
    return f"{said}.{same}"


def _numbers(made: EpsilonCurve) -> tuple[list[str], list[list[str]]]:
    columns = ["uploads" if made.source == UPLOADS else "iterations", "releases", "basic", "advanced", "tight"]
    with_envelopes = made.source != UPLOADS
    rows = []
    for point in made.points:
        cells = [str(point.iterations), str(point.releases), *map(figure, (point.basic, point.advanced, point.tight))]
        known = ["none released" if value is None else figure(value) for value in (point.median, point.worst)]
        rows.append(cells + (known if with_envelopes else []))
    return columns + (["recommender, median item", "recommender, worst item"] if with_envelopes else []), rows


def _notes(made: EpsilonCurve, run: ReportedRun) -> list[str]:
    points = ", ".join(str(point.iterations) for point in made.points)
    what = "uploads" if made.source == UPLOADS else "iterations"
    notes = [
        SOURCES[made.source].format(items=made.items),
        f"Evaluated after {points} {what}; lines join these points.",
    ]
    accounted, last = run.summary["privacy"]["accounted"], made.points[-1]
    if made.source == IN_VIEW and "recommender" in accounted and accounted["recommender"]["worst"] != last.worst:
        worst = figure(accounted["recommender"]["worst"])
        notes.append(
            f"The summary says {worst} for the worst item: it counts every item as released in all "
            f"{accounted['releases']} iterations, by as many contributors as its floor asks for."
        )
    return [*notes, NOT_COVERED]


# --- figures without a curve -----------------------------------------------------------------------------------------


def _not_drawn(run: ReportedRun, claimed: Any, why: str) -> str:
    if claimed is None:
        return "So no curve is drawn."
    if claimed == "inf":
        return "ε = ∞: no noise is added, so nothing bounds what is released, and no curve is drawn."
    if not run.summary["completed"]:
        return "The run did not complete, and no release of it could be accounted, so no curve is drawn."
    composed = (run.audit.get("accounting") or {}).get("composed") or {}
    if composed.get("tight") == "inf":
        return f"Nothing bounds {composed['releases']} releases together, so no curve is drawn."
    if "releases" in run.summary["privacy"]["accounted"]:
        return f"No curve is drawn. {why}"
    return "Nothing is released again and again, so there is no curve: these figures are of the whole run."


def _figures(run: ReportedRun) -> Markup | None:
    """Tabulate the figures of the audit, or else of the summary, with the unit of each ε."""
    found, privacy = run.audit.get("accounting") or {}, run.summary["privacy"]
    composed = dict(found.get("composed") or {})
    source = "audit" if composed else "summary"
    composed = composed or dict(privacy["accounted"])
    delta = composed.pop("delta", found.get("delta"))
    if composed.get("tight") == "inf":  # then these are no bounds
        composed = {name: value for name, value in composed.items() if name not in ("basic", "advanced")}
    rows = [
        [FIGURES.get(name, name), epsilon(value)]
        for name, value in composed.items()
        if isinstance(value, (int, float)) or value == "inf"
    ]
    if not rows:
        return None
    unit = privacy["accounted"].get("unit") or privacy["unit"]
    caption = f"Of: {unit}. δ = {delta:g}. From the {source}."
    return table(["figure", "value"], rows, caption=caption, numeric=1)
