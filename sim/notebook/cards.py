"""HTML cards that a notebook displays for a run, a view, an audit or a comparison. They need no style sheet."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from sim.audit.claim import REFUTED
from sim.console import console
from sim.experiments import compare_tables
from sim.experiments.compare import with_unit
from sim.report.section import render
from sim.tables.party_rows import NOT_ASKED, PartyRow, party_rows

if TYPE_CHECKING:
    from sim.notebook.notebook import AuditDocument, Run, View

FIRST_RECORDS = 8
_LEVELS = {"within-claims": "good", "beyond-claims": "bad"}

Cells = Sequence[Any]


def card(
    heading: str,
    lead: str,
    *,
    facts: Iterable[tuple[str, str]] = (),
    columns: Sequence[str] = (),
    rows: Iterable[Cells] = (),
    notes: Iterable[str] = (),
    mark: str = "",
) -> Markup:
    """Render a card; `mark` (good, weak or bad) adds a coloured dot beside words that say the same."""
    given = {"facts": list(facts), "columns": columns, "rows": list(rows), "notes": list(notes), "mark": mark}
    return render("notebook_card.html", heading=heading, lead=lead, **given)


# --- a run -----------------------------------------------------------------------------------------------------------


def run_card(run: Run) -> Markup:
    heading = f"{run['scheme']} on {run['data']}"
    seed = f"seed {run['seed']}" + (" (given: simulation, not private)" if run["simulation"] else " (fresh)")
    rounds = "iteration" if run["bytes"]["per_iteration"] else "round"
    length = console.counted(run["iterations"], rounds)
    lead = f"{run['users']} users, {run['items']} items, {length}, {seed}; {run.folder}"
    facts: list[tuple[str, str]] = []
    if run["completed"]:
        facts += [*_accuracy(run["accuracy"]), _bytes(run), *_privacy(run["privacy"])]
    else:
        facts.append(("aborted", run["abort"]["sentence"]))
    facts.append(("verdict", _verdict(run.audited)))
    mark = "bad" if not run["completed"] else _mark(run.audited) if run.audited else ""
    return card(heading, lead, facts=facts, notes=run["notes"], mark=mark)


def _accuracy(accuracy: Mapping[str, Any]) -> list[tuple[str, str]]:
    told = []
    for name, words in {"test_rmse": "test RMSE, measured", "train_mae": "train MAE, measured"}.items():
        error, plain = (console.number(figure) for figure in (accuracy[name], accuracy["plain"][name]))
        nothing = "none: no ratings were held out" if name == "test_rmse" else "not known"
        told.append((words, nothing if accuracy[name] is None else f"{error}; without protection {plain}"))
    return told


def _bytes(run: Run) -> tuple[str, str]:
    """Format the bytes of each edge: per iteration, or of the whole run for a scheme without iterations."""
    per_iteration = run["bytes"]["per_iteration"]
    how = "by formula" if run["transport"] == "inprocess" else "measured"
    of = "wire bytes per iteration" if per_iteration else "wire bytes, whole run"
    edges = per_iteration or run["bytes"]["edges"]
    return f"{of}, {how}", ", ".join(f"{edge.replace('->', ' → ')} {console.size(n)}" for edge, n in edges.items())


def _privacy(privacy: Mapping[str, Any]) -> list[tuple[str, str]]:
    row = {**privacy, "accounted": with_unit(privacy["accounted"], privacy["unit"])}
    return [("ε claimed, for", compare_tables.claimed(row)), ("ε accounted, for", compare_tables.accounted(row))]


def _verdict(audit: AuditDocument | None) -> str:
    if audit is None:
        return "not asked: .audit() does"
    far = f"; not answered: {', '.join(audit['unanswered'])}" if audit["unanswered"] else ""
    claim = f"the published claim: {audit['published_claim']['status'].replace('-', ' ')}"
    return f"{audit.verdict}, {claim} (asked: {', '.join(audit['questions'])}{far})"


# --- a view ----------------------------------------------------------------------------------------------------------


def view_card(view: View) -> Markup:
    """Show the first records as `keyhole view` does. Kinds are not counted: that would take reading the whole file."""
    count = len(view)
    first = list(itertools.islice(view, FIRST_RECORDS))
    rows = [console.cells(record) for record in first]
    notes = [f"{count - len(first)} more records: go through them, or .frame()."] if count > len(first) else []
    columns = ("record", "t", "what", "bytes", "fields")
    return card(f"What {view.party} saw", f"{count} records; {view.folder}", columns=columns, rows=rows, notes=notes)


# --- an audit --------------------------------------------------------------------------------------------------------


def audit_card(document: dict[str, Any]) -> Markup:
    scheme, claim = document["scheme"], document["published_claim"]
    beyond = document["verdict"] == "beyond-claims"
    told = "beyond what it declares" if beyond else "nothing beyond what it declares"
    told += ", but not everything was shown" if document["not_shown"] and not beyond else ""
    heading = f"{scheme} leaked {told}" if document["verdict"] else f"{scheme} is not loaded, so there is no verdict"
    measured = any(row["measured"] for row in document["parties"])
    columns = ("who", "saw", "can work out (exact algebra)", "permitted", *(["measured"] if measured else []))
    rows = [_party(row)[: len(columns)] for row in party_rows(document["parties"])]
    notes = [f"Not shown: {row['question']}. {row['reason']}" for row in document["not_shown"]]
    notes += [f"Nothing to ask: {question}. {why}" for question, why in document["nothing_to_ask"].items()]
    if not rows:
        notes.append("Who can work out what was not asked: that is the question algebra.")
    notes.insert(0, f"The published claim: {claim['status'].replace('-', ' ')}. {claim['why']}")
    lead = f"asked: {', '.join(document['questions'])}; {_found(document)}; {document['run']}"
    mark = _mark(document)
    return card(heading, lead, columns=columns if rows else (), rows=rows, notes=notes, mark=mark)


def _mark(document: Mapping[str, Any]) -> str:
    """Rate an audit as good only if the run leaked nothing beyond the declaration and the claim is not refuted."""
    mark = _LEVELS.get(document["verdict"], "")
    doubtful = document["published_claim"]["status"] == REFUTED or document["not_shown"]
    return "weak" if mark == "good" and doubtful else mark


def _party(row: PartyRow) -> Cells:
    return row.who, row.saw or NOT_ASKED, row.learned, row.permitted, "; ".join(row.measured) or "nothing"


def _found(document: Mapping[str, Any]) -> str:
    found = document["findings"]
    beyond = [each for each in found if each["beyond"]]
    grave = [each for each in found if each["severity"] != "info"]
    words = f"{len(beyond)} beyond the claims, {len(grave) - len(beyond)} of weaknesses that it declares"
    return f"findings: {words}, {len(found) - len(grave)} not grave"


# --- a comparison ----------------------------------------------------------------------------------------------------


def compared_card(document: dict[str, Any]) -> Markup:
    columns = ("scheme", "test RMSE", "ε claimed, for", "ε accounted, for", "user sends", "user gets")
    rows: list[Cells] = []
    for row in document["rows"]:
        if row["completed"]:
            claims = compare_tables.claimed(row), compare_tables.accounted(row)
            rows.append((row["scheme"], console.number(row["test_rmse"]), *claims, *compare_tables.sizes(row)))
        else:
            rows.append((row["scheme"], "not run", "", "", "", ""))
    for floor in document["floors"]:
        rows.append((floor["title"], console.number(floor["test_rmse"]), "nothing is sent", "", "", ""))
    heading = f"{len(document['rows'])} schemes on {document['data']}"
    notes = [document["epsilon_note"], *compare_tables.sentences(document)]
    return card(heading, compare_tables.setting(document), columns=columns, rows=rows, notes=notes)
