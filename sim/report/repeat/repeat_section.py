"""The run's configuration, and the commands that run it again and check it."""

from __future__ import annotations

import dataclasses
import shlex
from importlib import metadata
from typing import Any

from protocol.party.role import THIRD_PARTY
from sim.console.console import figure
from sim.foreign import untrusted
from sim.plan.config import FLAGS, flags_of
from sim.plan.flag import DECLARED
from sim.report.reported_run import ReportedRun
from sim.report.section import Section, render, table

_PACKAGES = ("keyhole", "numpy", "scipy", "dp-accounting", "matplotlib", "jinja2")


def section(run: ReportedRun) -> Section:
    summary = run.summary
    digests = [
        ("item factors, SHA-256", summary["item_factors_sha256"] or "none: the run has no result"),
        ("anchor over all views", summary["anchor"] or "none: no views were kept"),
        ("run id", run.case.card.run_id.hex()),
    ]
    html = render(
        "repeat.html",
        folder=str(run.folder),
        commands=commands(run),
        simulation=run.case.card.simulation,
        options=table(["option", "in run.toml", "in this run"], option_rows(run)),
        derived=table(["parameter", "value"], derived_rows(run)),
        digests=digests,
        platform=list(run.case.platform.items()),
        software=_software(),
        config=untrusted.read_bytes(run.folder, "run.toml", untrusted.MOST_TOML_BYTES).decode(),
    )
    return Section("again", "Configuration", html)


# --- commands --------------------------------------------------------------------------------------------------------


def commands(run: ReportedRun) -> list[tuple[str, str]]:
    """List (purpose, command); commands that need views are left out if there are none."""
    folder, scheme = shlex.quote(str(run.folder)), run.scheme
    toml = shlex.quote(str(run.folder / "run.toml"))
    again = "runs/again"
    found = [
        ("run it again, from its own configuration", f"keyhole run --config {toml} --out {again}"),
        ("the same with flags", f"keyhole run {flags_of(run.case.config)} --out {again}"),
    ]
    if not run.summary["completed"] and run.case.config.views == "full":
        found.append(("go on where it stopped", f"keyhole resume {folder}"))
    anchor = f" --anchor {run.summary['anchor']}" if run.summary["anchor"] else ""
    if run.summary["views"]:
        party = THIRD_PARTY if THIRD_PARTY in scheme.servers else scheme.servers[0]
        found += [
            ("check that no file was altered", f"keyhole verify {folder}{anchor}"),
            ("run every role again from its view, byte for byte", f"keyhole replay {folder}"),
            ("read what a party saw", f"keyhole view {folder} {party}"),
        ]
    if not [party for party in run.case.parties if not run.case.path(party).is_file()]:
        found.append(("audit it, with every finding", f"keyhole audit {folder} --all"))
    if run.summary["completed"]:
        found.append(("every byte, predicted and counted", f"keyhole bandwidth {folder}"))
    if run.summary["completed"] and run.params.publish == "all":
        found.append(("what a user would be shown", f"keyhole recommend {folder}"))
    return found


# --- options and parameters ------------------------------------------------------------------------------------------


def option_rows(run: ReportedRun) -> list[list[str]]:
    """List every flag of `run`: as run.toml has it, with defaults filled in, and the value that this run used."""
    config, params = run.case.config, run.params
    rows = []
    for name, flag in FLAGS.items():
        if name == "options":
            continue
        asked = getattr(config, name)
        made = _resolved(run, name, getattr(params, name, asked))
        rows.append([flag.option, "left open" if asked is None else _words(asked), made])
    given = config.options
    for name, default in run.scheme.options.items():
        made = getattr(params, name, given.get(name, default))
        rows.append([f"--set {name}", _words(given[name]) if name in given else "left open", _words(made)])
    return rows


def _resolved(run: ReportedRun, name: str, value: Any) -> str:
    """Format the value that this run used for the flag `name`; some flags have no parameter of their name."""
    shown = {
        "rating_range": (run.params.rating_min, run.params.rating_max),
        "users": run.params.n_users,
    }
    if name == "scheme":
        return _words(run.case.config.scheme)
    taken = name in run.scheme.flags or FLAGS[name].taken_by != DECLARED
    return _words(shown.get(name, value)) if taken else f"{run.scheme.name} does not take it"


def derived_rows(run: ReportedRun) -> list[list[str]]:
    """List the parameters that no flag sets: they follow from the data, the scheme and the options."""
    flags = set(FLAGS) | set(run.scheme.options)
    own = dataclasses.asdict(run.params)
    return [[name, _words(value)] for name, value in own.items() if name not in flags]


def _words(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return " to ".join(map(_words, value))
    if isinstance(value, float):
        return "∞" if value == float("inf") else f"{value:.6g}"
    return "none" if value is None else figure(value) if isinstance(value, str) else str(value)


def _software() -> list[tuple[str, str]]:
    """List the software that made this page; that of the run is in its run.toml."""
    found = []
    for name in _PACKAGES:
        try:
            found.append((name, metadata.version(name)))
        except metadata.PackageNotFoundError:
            found.append((name, "not installed"))
    return found
