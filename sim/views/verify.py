"""`keyhole verify`: check that a run folder is what the parties wrote. Every view is streamed once, record by record.

Each view is checked by itself (`viewcheck.py`), then all of them together, as every frame stands in two views
(`exchange.py`), then the claims of summary and model (`summary_claims.py`). Rewriting every file to fit the others
still changes the anchor.
"""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

from protocol.errors import BadInput, Reason
from protocol.party.role import user_index
from protocol.party.view import HASH_BYTES
from sim.foreign import untrusted
from sim.run.summary import anchor_of
from sim.views import summary_claims
from sim.views.evidence import Case, Report, at_rest, open_case
from sim.views.exchange import Exchange
from sim.views.viewcheck import OnBytes, ViewCheck, ViewDemand

_PRIVATE = 0o600


def verify(folder: Path, anchor: str | None = None, on_bytes: OnBytes = lambda count: None) -> dict[str, Any]:
    """Make the document that `keyhole verify --json` prints; `BadInput` if `folder` is no run, or still in progress."""
    wanted = None if anchor is None else _read_anchor(anchor)
    case, report = open_case(folder, unloaded=True), Report()
    with at_rest(folder):
        case.check_run_toml(report)
        summary = summary_claims.read_summary(case, report)
        checks = _check_views(case, summary, report, on_bytes)
        _check_files(case, report)
        not_covered = summary_claims.check(case, summary, checks, report)
    found = _anchor(checks, summary)
    matches = None if wanted is None else found == wanted
    if matches is False:
        words = f"have the anchor {found or 'none'}, not {wanted}: these are not the views of the run that printed it"
        report.find("views", None, words)
    return {
        "run": str(folder),
        "verified": not report.findings,
        "views": len(checks),
        "records": sum(check.records for check in checks.values()),
        "findings": [{"file": one.file, "record": one.record, "what": one.what} for one in report.findings],
        "notes": report.notes,
        "not_covered": not_covered,
        "anchor": found,
        "anchor_matches": matches,
    }


def _check_views(
    case: Case, summary: summary_claims.Summary, report: Report, on_bytes: OnBytes
) -> dict[str, ViewCheck]:
    exchange, checks = Exchange(case, report), {}
    for party in case.parties:
        if party in case.kept and (check := _check_view(case, party, summary, exchange, report, on_bytes)):
            checks[party] = check
    exchange.conclude({party: check.records for party, check in checks.items()})
    return checks


def _check_view(
    case: Case, party: str, summary: summary_claims.Summary, exchange: Exchange, report: Report, on_bytes: OnBytes
) -> ViewCheck | None:
    demand, path = _demand(party, summary, report, case), case.path(party)
    if not path.is_file():
        if demand.ended or demand.records is not None:
            exchange.close(party, usable=False)
            report.find(case.file(party), None, "is missing, though run.toml says that this party kept a view")
        else:
            report.notes.append(f"{case.file(party)} is missing: the party had not begun, or its view is elsewhere.")
        return None
    check = ViewCheck(case, party, demand, exchange, report)
    try:
        with untrusted.open_inside(case.folder, case.file(party)) as stream:
            check.read(stream, on_bytes)
    except OSError as error:
        exchange.close(party, usable=False)
        report.find(case.file(party), None, f"cannot be read: {error.strerror}")
        return None
    return check


def _demand(party: str, summary: summary_claims.Summary, report: Report, case: Case) -> ViewDemand:
    if party in summary.views:
        return ViewDemand(summary.completed, *summary.views[party], disk_full=summary.abort == Reason.DISK_FULL.name)
    if summary.completed and user_index(party) >= 0:
        report.notes.append(f"{case.file(party)} is not in summary.json: the run went on to its end without this user.")
        return ViewDemand()
    return ViewDemand(summary.completed)


def _check_files(case: Case, report: Report) -> None:
    """Find views that this run does not keep, and files that other accounts can read."""
    views = {case.file(party) for party in case.parties if party in case.kept}
    for name in sorted(untrusted.view_files(case.folder)):
        if name not in views:
            report.find(name, None, "is not a view that this run keeps")
    for name in ("run.toml", "summary.json", *sorted(views)):
        path = case.folder / name
        mode = stat.S_IMODE(path.stat().st_mode) if path.is_file() else _PRIVATE
        if mode != _PRIVATE:
            report.find(name, None, f"has mode {mode:03o} and must have {_PRIVATE:o}: only its owner may read it")


def _read_anchor(text: str) -> str:
    anchor = text.strip().lower()
    if len(anchor) != 2 * HASH_BYTES or set(anchor) - set("0123456789abcdef"):
        raise BadInput("--anchor takes the 64 hexadecimal digits that keyhole run printed as the anchor.")
    return anchor


def _anchor(checks: dict[str, ViewCheck], summary: summary_claims.Summary) -> str | None:
    """Compute the anchor of the files as they are: those in the summary, or all without one; None if one is damaged."""
    parties = list(summary.views) if summary.there else list(checks)
    if not all(party in checks and checks[party].whole for party in parties):
        return None
    return anchor_of({party: (checks[party].records, checks[party].head) for party in parties})
