"""A comparison of schemes for people: as tables and sentences."""

from __future__ import annotations

from typing import Any

from protocol.schemes.base import LEVELS
from sim.console import console

Document = dict[str, Any]
Row = dict[str, Any]
Cells = tuple[str, ...]


COST_NOTE = (
    "Bytes: on the wire over the whole run, the mean of all users. Seconds: a run in one process, with loading the "
    "ratings and the run with no noise."
)


READINGS_NOTE = (
    "Test RMSE: with the profile that each user fits at home to what is published. Iterate: with u_i as the last "
    "iteration left it, for the schemes whose users have one."
)


# --- for people ------------------------------------------------------------------------------------------------------


def show_comparison(document: Document) -> None:
    """Print five narrow tables: fewer, wider ones would break words at 80 columns."""
    done = [row for row in document["rows"] if row["completed"]]
    console.out.print(f"{document['data']}: {setting(document)}", markup=False)
    _show_errors(document, several=len(document["seeds"]) > 1)
    console.out.print(READINGS_NOTE)
    _show_epsilons(document, done)
    console.out.print(document["epsilon_note"], markup=False)
    columns = ("scheme", "user sends", "user gets", "seconds", "recommender gets, declared")
    costs = [(named(document, row), *sizes(row), console.number(row["seconds"], 2), row["determines"]) for row in done]
    console.print_table("What it costs", columns, costs, whole=4)
    console.out.print(COST_NOTE)
    title = "Known weaknesses, declared by the scheme (keyhole explain ID explains one)"
    weak = dict.fromkeys((row["scheme"], ", ".join(row["known_weaknesses"]) or "none") for row in done)
    console.print_table(title, ("scheme", "known weaknesses"), list(weak), whole=1)
    title = "What the recommender is told (declared by the scheme; keyhole audit measures it)"
    told = dict.fromkeys((row["scheme"], "; ".join(row["recommender_sees"]), row["trust"]) for row in document["rows"])
    console.print_table(title, ("scheme", "sees", "whom users must trust"), list(told), whole=1)
    for sentence in sentences(document):
        console.out.print(sentence, markup=False)


def named(document: Document, row: Row) -> str:
    """Name the scheme of a row, with the claimed ε if several were asked for."""
    if not isinstance(document["epsilon"], list) or row["claimed_epsilon"] is None:
        return str(row["scheme"])
    return f"{row['scheme']}, ε {console.figure(row['claimed_epsilon'])}"


def setting(document: Document) -> str:
    """Describe the data and the seeds in one line."""
    seeds = document["seeds"]
    words = f"seed {seeds[0]}"
    if len(seeds) > 1:
        words = f"seeds {seeds[0]} to {seeds[-1]}: the mean, with the least and the most"
    sizes = f"{document['users']} users, {document['items']} items, {document['ratings']} ratings"
    return f"{sizes}, {document['test_fraction']:.0%} of them held out; {words}"


def _show_errors(document: Document, several: bool) -> None:
    rows: list[Cells | None] = []
    for row in document["rows"]:
        errors = _spread(row, "test_rmse", several), console.number(row["plain_test_rmse"]), iterate(row)[0]
        rows.append((named(document, row), *(errors if row["completed"] else ("not run", "", ""))))
    rows += [None, *((floor["title"], _spread(floor, "test_rmse", several), "", "") for floor in document["floors"])]
    columns = ("scheme", "test RMSE", "no noise", "iterate")
    console.print_table("Errors on the held-out ratings", columns, rows, whole=4)


def _show_epsilons(document: Document, done: list[Row]) -> None:
    rows: list[Cells | None] = [(named(document, row), claimed(row), accounted(row)) for row in done]
    rows += [None, *((floor["title"], "nothing is sent", "") for floor in document["floors"])]
    columns = ("scheme", "ε claimed, for", "ε accounted, for")
    console.print_table("ε, each for its own unit", columns, rows, whole=1)


def sizes(row: Row) -> list[str]:
    """Write the bytes that a user sends, and those that it gets."""
    return [console.size(row["bytes_per_user"][way]) for way in ("up", "down")]


def _spread(row: Row, name: str, several: bool) -> str:
    mean, ends = console.number(row[name]), row["ranges"][name]
    return f"{mean}\n{ends[0]:.3f}–{ends[1]:.3f}" if several and ends else mean


def iterate(row: Row) -> tuple[str, str]:
    """Write the test RMSE of the iterate, with noise and without; empty if the scheme has no u_i."""
    noisy, plain = row["iterate_test_rmse"], row["plain_iterate_test_rmse"]
    return ("", "") if noisy is None else (console.number(noisy), console.number(plain))


def claimed(row: Row) -> str:
    epsilon = row["claimed_epsilon"]
    return "none" if epsilon is None else f"{console.figure(epsilon)} {row['unit']}"


def accounted(row: Row) -> str:
    """Write the accounted ε with its unit and δ, or say that no ε is claimed or that no bound is known."""
    if row["claimed_epsilon"] is None:
        return "none"
    found = row["accounted"]
    if found["epsilon"] is None:
        return "no bound known"
    return f"{console.figure(found['epsilon'])} {found['unit']}{_at(found.get('delta'))}"


def _at(delta: Any) -> str:
    return f" (δ = {delta:g})" if delta else ""


def sentences(document: Document) -> list[str]:
    """List what a reader of the figures must know.

    These are the schemes that are no better than a floor, those whose ε does not protect from the recommender, those
    whose accounted ε has no bound, and the notes of the runs.
    """
    told, done = [], [row for row in document["rows"] if row["completed"]]
    for floor in document["floors"]:
        losers = [row["scheme"] for row in done if row["beats"] is not None and floor["floor"] not in row["beats"]]
        if losers:
            told.append(f"{floor['title']} needs {floor['needs']}. No better than that: {', '.join(losers)}.")
    if kept := [row for row in done if row["holds"]]:
        each = (f"{row['scheme']} ({accounted(row)}; test RMSE {console.number(row['test_rmse'])})" for row in kept)
        told.insert(0, f"ε of the whole run is no larger than claimed: {', '.join(each)}.")
    claiming = [row for row in done if row["claimed_epsilon"] is not None]
    if open_ := [row["scheme"] for row in claiming if row["determines"] == LEVELS[-1]]:
        words = "The ε is that of what is published; from the recommender, who has exact numbers, it is no protection"
        told.append(f"{words}: {', '.join(open_)}.")
    for row in document["rows"]:
        if row in claiming and row["accounted"]["epsilon"] is None:
            told.append(f"{row['scheme']}, accounted: {row['accounted']['method']}.")
        if row["note"]:
            told.append(f"{row['scheme']}{'' if row['completed'] else ' was not run'}: {row['note']}")
    return told
