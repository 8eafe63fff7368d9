"""The run iteration by iteration: the time it took, the size of the error, and the users present."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from markupsafe import Markup

from protocol.wire.messages import SETUP
from sim.console.console import number
from sim.report.charts import chart
from sim.report.charts.series import Steps, Values, legend_below, numbers, said, steps_of, whole_numbers
from sim.report.reported_run import Document, ReportedRun
from sim.report.section import Section, picture, render

FIVE_STARS = (1.0, 5.0)
MEANING = {
    "inprocess": "All parties were in one process and took turns: the seconds are those of their arithmetic, "
    "not of processes that wait for each other, nor of a network.",
    "tcp": "Every party was a process of this machine, and they spoke over its loopback: "
    "the seconds hold no delay of a real network.",
    "ipc": "Every party was a process of this machine, and they spoke over its sockets: "
    "the seconds hold no delay of a real network.",
}


def section(run: ReportedRun) -> Section:
    lines = [line for line in run.lines if line["iteration"] > SETUP]
    html = render(
        "iterations.html",
        why=_why_none(run) if not lines else "",
        startup=run.summary["seconds"]["startup"],
        meaning=MEANING.get(run.summary["transport"], ""),
        abort=run.summary["abort"],
        done=len(lines),
        planned=run.params.iterations,
        parts=[_error(run, lines), _test_error(run), _seconds(lines), _turnout(lines)] if lines else [],
    )
    return Section("iterations", "Iterations", html)


def _why_none(run: ReportedRun) -> str:
    summary, steps = run.summary, run.params.iterations
    if summary["abort"] is not None:
        return "The run ended before its first iteration, so there is nothing to draw."
    if run.scheme.factorizes and steps > 1:
        return (
            f"{summary['scheme']} exchanges nothing iteration by iteration: its {steps} steps take place inside one "
            "party, which tells no other how long one took or how large the error was, so there is nothing to draw."
        )
    return f"{summary['scheme']} has no iterations: everything is exchanged once, so there is nothing to draw."


def column(lines: Sequence[Document], name: str) -> list[float | None]:
    """List the figure `name` by iteration number; None where it is not known."""
    found: list[float | None] = [None] * (1 + max(line["iteration"] for line in lines))
    for line in lines:
        found[line["iteration"]] = line[name]
    return found


def _known(values: Values) -> list[float]:
    return [value for value in values if value is not None]


def _missing(title: str, words: str) -> Markup:
    return render("missing.html", title=title, words=words)


def _drawn(steps: Steps, values: Values) -> tuple[list[float], list[float]]:
    """Compute (x, y) of a line: each step at its middle, with a gap where a step is not known."""
    middles = [(left + right) / 2 for left, right in zip(steps.edges, steps.edges[1:], strict=False)]
    return middles, [float("nan") if value is None else value for value in steps.mean(values)]


def _line(axes: Any, steps: Steps, values: Values, **style: Any) -> None:
    marker = "o" if len(steps.starts) <= 30 else ""
    axes.plot(*_drawn(steps, values), linewidth=1.8, marker=marker, markersize=3.5, **style)


def _shown(values: Values, digits: int) -> list[str]:
    return ["not known" if value is None else f"{value:.{digits}f}" for value in values]


def _seconds(lines: Sequence[Document]) -> Markup:
    title, values = "Time of each iteration", column(lines, "seconds")
    known = _known(values)
    if not known:
        return _missing(title, "No iteration was timed.")
    steps = steps_of(len(values))
    scale, unit = (1e3, "milliseconds") if max(known) < 1 else (1.0, "seconds")
    scaled = [None if value is None else value * scale for value in values]
    made, axes = chart.new_figure("iteration", f"time of one iteration ({unit})")
    _line(axes, steps, scaled, color=chart.colour(chart.RUN))
    axes.set_ylim(bottom=0)
    whole_numbers(axes)
    median, p95 = (float(np.quantile(known, q)) for q in (0.5, 0.95))
    untold = len(values) - len(known)
    missing = f"{untold} iterations were not timed." if untold else ""
    rows, thinned = numbers(steps, [_shown(steps.mean(scaled), 2)])
    fact = f"Median {number(median)} s, 95 % of the iterations within {number(p95)} s."
    words = said(fact, missing, steps.words, thinned)
    return picture(made, "course-seconds", title, words, ["iteration", f"mean time, {unit}"], rows)


def _error(run: ReportedRun, lines: Sequence[Document]) -> Markup:
    title, values = "Training error by iteration", column(lines, "train_mae")
    known = _known(values)
    if not known:
        return _missing(title, "No iteration told a training error: only the final model was measured.")
    params, steps = run.params, steps_of(len(values))
    unit = "stars" if (params.rating_min, params.rating_max) == FIVE_STARS else "points of a rating"
    made, axes = chart.new_figure("iteration", f"mean absolute error ({unit})", height=3.6)
    _line(
        axes, steps, values, color=chart.colour(chart.RUN),
        label=f"{chart.name(run.summary['scheme'])}, before the iteration's step",
    )
    plain, final = (run.summary["accuracy"]["plain"]["train_mae"], run.summary["accuracy"]["train_mae"])
    if plain is not None:
        axes.axhline(plain, color=chart.INK, linewidth=1.4, linestyle=(0, (4, 2)), label="plain, its final model")
    axes.set_ylim(bottom=0)  # or a small fall would look like a large one
    whole_numbers(axes)
    legend_below(made, axes, columns=1)
    end = (
        "The final model was not measured." if final is None else f"The final model has {number(final)} over all users"
    )
    beside = "" if final is None else "." if plain is None else f", and that of plain {number(plain)}."
    fact = f"From {number(known[0])} to {number(known[-1])} {unit}, over the training ratings of those who took part."
    words = said(fact, end + beside, steps.words)
    rows, thinned = numbers(steps, [_shown(steps.mean(values), 4)])
    return picture(made, "course-error", title, said(words, thinned), ["iteration", f"train MAE, {unit}"], rows)


def _test_error(run: ReportedRun) -> Markup:
    """Draw the final model beside that without protection and beside guesses in which nothing leaves the device."""
    title, found = "Error on held-out ratings", run.summary["accuracy"]
    mine = found["test_rmse"]
    if mine is None:
        return _missing(title, "It was not measured: no rating was held out, or there is no result.")
    bars = [(run.summary["scheme"], mine, chart.colour(chart.RUN))]
    if found["plain"]["test_rmse"] is not None:
        bars.append(("without protection", found["plain"]["test_rmse"], chart.INK))
    guesses = [floor for floor in found.get("on_device") or () if floor["test_rmse"] is not None]
    bars += [(floor["title"], floor["test_rmse"], chart.MUTED) for floor in guesses]
    made, axes = chart.new_figure("test RMSE; less is better", "prediction", height=1.3 + 0.36 * len(bars))
    axes.grid(visible=False, axis="y")
    axes.grid(axis="x")
    axes.barh(range(len(bars)), [error for _, error, _ in bars], 0.66, color=[colour for *_, colour in bars])
    for place, (_, error, _) in enumerate(bars):
        axes.annotate(
            number(error), (error, place), xytext=(5, 0), textcoords="offset points", va="center", fontsize=9.5,
            color=chart.INK,
        )  # fmt: skip
    axes.set_yticks(range(len(bars)), [chart.name(name) for name, *_ in bars])
    axes.invert_yaxis()
    axes.set_xlim(0, 1.18 * max(error for _, error, _ in bars))
    words = f"{number(mine)} on {run.summary['ratings']['test']:,} held-out ratings."
    if guesses:
        words += " Grey: guesses in which nothing leaves the device."
    rows = [[name, number(error)] for name, error, _ in bars]
    return picture(made, "course-test", title, words, ["prediction", "test RMSE"], rows)


def _often(times: float) -> str:
    return "once" if times == 1 else f"{times:.0f} times"


def _turnout(lines: Sequence[Document]) -> Markup:
    title = "Users in each iteration"
    values = {name: column(lines, name) for name in ("online", "contributors", "dropouts")}
    if not _known(values["online"]):
        return _missing(title, "No iteration told who took part.")
    steps = steps_of(len(values["online"]))
    made, axes = chart.new_figure("iteration", "users", height=3.6)
    labels = {"online": "online and invited", "contributors": "contributed", "dropouts": "dropped out"}
    styles = {"online": (0, ()), "contributors": (0, (5, 3)), "dropouts": (0, (1, 1))}
    colours = {
        "online": chart.shade("user", 2),
        "contributors": chart.shade("user", 0),
        "dropouts": chart.INK,
    }
    for name, label in labels.items():
        heights = [float("nan") if value is None else value for value in steps.mean(values[name])]
        axes.stairs(
            heights, steps.edges, baseline=None, color=colours[name], linewidth=1.8, label=label,
            linestyle=styles[name],
        )  # fmt: skip
    axes.set_ylim(bottom=0)
    whole_numbers(axes)
    legend_below(made, axes, columns=3)
    online, gone = _known(values["online"]), sum(_known(values["dropouts"]))
    span = f"{min(online):.0f}" if min(online) == max(online) else f"{min(online):.0f} to {max(online):.0f}"
    lost = "none of them dropped out" if not gone else f"{_often(gone)} one of them dropped out before answering"
    rows, thinned = numbers(steps, [_shown(steps.mean(values[name]), 0 if steps.width == 1 else 1) for name in labels])
    words = said(f"{span} users were online and invited in each iteration; {lost}.", steps.words, thinned)
    return picture(made, "course-users", title, words, ["iteration", *labels.values()], rows)
