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
from sim.report.section import Section, render, table
from sim.report.sources import Material

_PACKAGES = ("keyhole", "numpy", "scipy", "dp-accounting", "matplotlib", "jinja2")


def section(material: Material) -> Section:
    summary = material.summary
    digests = [
        ("item factors, SHA-256", summary["item_factors_sha256"] or "none: the run has no result"),
        ("anchor over all views", summary["anchor"] or "none: no views were kept"),
        ("run id", material.case.card.run_id.hex()),
    ]
    html = render(
        "repeat.html",
        folder=str(material.folder),
        commands=commands(material),
        simulation=material.case.card.simulation,
        options=table(["option", "in run.toml", "in this run"], option_rows(material)),
        derived=table(["parameter", "value"], derived_rows(material)),
        digests=digests,
        platform=list(material.case.platform.items()),
        software=_software(),
        config=untrusted.read_bytes(material.folder, "run.toml", untrusted.MOST_TOML_BYTES).decode(),
    )
    return Section("again", "Configuration", html)


# --- commands --------------------------------------------------------------------------------------------------------


def commands(material: Material) -> list[tuple[str, str]]:
    """List (purpose, command); commands that need views are left out if there are none."""
    run, scheme = shlex.quote(str(material.folder)), material.scheme
    toml = shlex.quote(str(material.folder / "run.toml"))
    again = "runs/again"
    found = [
        ("run it again, from its own configuration", f"keyhole run --config {toml} --out {again}"),
        ("the same with flags", f"keyhole run {flags_of(material.case.config)} --out {again}"),
    ]
    if not material.summary["completed"] and material.case.config.views == "full":
        found.append(("go on where it stopped", f"keyhole resume {run}"))
    anchor = f" --anchor {material.summary['anchor']}" if material.summary["anchor"] else ""
    if material.summary["views"]:
        party = THIRD_PARTY if THIRD_PARTY in scheme.servers else scheme.servers[0]
        found += [
            ("check that no file was altered", f"keyhole verify {run}{anchor}"),
            ("run every role again from its view, byte for byte", f"keyhole replay {run}"),
            ("read what a party saw", f"keyhole view {run} {party}"),
        ]
    if not [party for party in material.case.parties if not material.case.path(party).is_file()]:
        found.append(("audit it, with every finding", f"keyhole audit {run} --all"))
    if material.summary["completed"]:
        found.append(("every byte, predicted and counted", f"keyhole bandwidth {run}"))
    if material.summary["completed"] and material.params.publish == "all":
        found.append(("what a user would be shown", f"keyhole recommend {run}"))
    return found


# --- options and parameters ------------------------------------------------------------------------------------------


def option_rows(material: Material) -> list[list[str]]:
    """List every flag of `run`: as run.toml has it, with defaults filled in, and the value that this run used."""
    config, params = material.case.config, material.params
    rows = []
    for name, flag in FLAGS.items():
        if name == "options":
            continue
        asked = getattr(config, name)
        made = _resolved(material, name, getattr(params, name, asked))
        rows.append([flag.option, "left open" if asked is None else _words(asked), made])
    given = config.options
    for name, default in material.scheme.options.items():
        made = getattr(params, name, given.get(name, default))
        rows.append([f"--set {name}", _words(given[name]) if name in given else "left open", _words(made)])
    return rows


def _resolved(material: Material, name: str, value: Any) -> str:
    """Format the value that this run used for the flag `name`; some flags have no parameter of their name."""
    shown = {
        "rating_range": (material.params.rating_min, material.params.rating_max),
        "users": material.params.n_users,
    }
    if name == "scheme":
        return _words(material.case.config.scheme)
    taken = name in material.scheme.flags or FLAGS[name].taken_by != DECLARED
    return _words(shown.get(name, value)) if taken else f"{material.scheme.name} does not take it"


def derived_rows(material: Material) -> list[list[str]]:
    """List the parameters that no flag sets: they follow from the data, the scheme and the options."""
    flags = set(FLAGS) | set(material.scheme.options)
    own = dataclasses.asdict(material.params)
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
