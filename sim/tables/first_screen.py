"""The first screen after a run: four questions with one answer each, and what to do next, on 24 lines of 80 columns."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from rich.markup import escape
from rich.table import Table

from protocol.party.role import RECOMMENDER, THIRD_PARTY, user_index
from protocol.schemes import Scheme, is_ours
from protocol.schemes.base import LEVELS
from sim.audit.findings import SUPPORT
from sim.console.console import counted, disturbances, figure, length, number, out, size

Document = Mapping[str, Any]

_GOOD, _AMBER, _BAD = "green", "yellow", "bold red"
_WIDTH = 18  # of the column of questions
_WEIGHT = {level: place for place, level in enumerate(LEVELS)}


def show_screen(summary: Document, scheme: Scheme, audited: Document | str, bytes_: Document | None) -> None:
    """Print the screen; `audited` is the quick audit or why it was not made, `bytes_` the result of `bandwidth`."""
    run = shlex.quote(summary["run"])
    trust = "" if is_ours(scheme) else " --trust-scheme"
    _show_head(summary, scheme)
    grid = Table.grid(padding=(0, 1))
    grid.add_column(width=_WIDTH, no_wrap=True, style="bold")
    grid.add_column(overflow="fold")
    grid.add_row("Does it recommend?", " ".join(_recommends(summary)))
    grid.add_row("What does it cost?", " ".join(_costs(summary, bytes_)))
    grid.add_row("Who learns what?", "\n".join(_learned(summary, audited)))
    grid.add_row(claim_question(summary), " ".join(_claim(summary, audited)))
    out.print(grid)
    for words, command in (("Lists", "recommend"), ("Audit", "audit"), ("Page", "report")):
        out.print(f"{words}:".ljust(7), f"keyhole {command} {run}{trust}", soft_wrap=True, markup=False)
    out.print(f"anchor {summary['anchor'] or 'none: no views were kept'}", soft_wrap=True, markup=False)


def show_abort(summary: Document, scheme: Scheme) -> None:
    """Print how far an aborted run got and why it ended."""
    _show_head(summary, scheme)
    out.print(f"[bold red]aborted[/]: {escape(summary['abort']['sentence'])}")
    out.print(f"anchor        {summary['anchor'] or 'none'} (so far)", markup=False)


def _show_head(summary: Document, scheme: Scheme) -> None:
    processes = sum(summary["processes"].values())
    sizes = f"{summary['users']:,} users, {summary['items']:,} items"
    steps = length(scheme.factorizes, summary["iterations"], summary["dim"]).partition(", dim")[0]
    count = counted(processes, "process", "processes")
    told = f"{sizes}, {steps}; {count}, {summary['seconds']['total']:.1f} s."
    out.print(f"[bold]{escape(summary['scheme'])}[/] on {escape(summary['data'])}: {told}")
    seed = [f"Seed {summary['seed']} was given: not private."] if summary["simulation"] else []
    if notes := [*summary["notes"], *disturbances(summary), *seed]:
        out.print(" ".join(notes), markup=False, style="dim")


# --- accuracy --------------------------------------------------------------------------------------------------------


def _recommends(summary: Document) -> Iterator[str]:
    """Compare the run with the best guess in which nothing leaves the device, and with the run without protection."""
    accuracy = summary["accuracy"]
    mine, plain = accuracy["test_rmse"], accuracy["plain"]["test_rmse"]
    if mine is None:
        why = "there is no result to measure" if summary["ratings"]["test"] else "no rating was held out"
        yield f"Not measured: {why}."
        return
    best = best_guess(accuracy)
    if best is not None:
        better = mine < best["test_rmse"]
        answer = f"[{_GOOD}]Yes[/]" if better else f"[{_BAD}]No[/]"
        title = escape(best["title"][0].lower() + best["title"][1:])
        yield f"{answer}: test RMSE {number(mine)}; unprotected {number(plain)}; the best guess in which nothing leaves"
        yield f"the device ({title}) {number(best['test_rmse'])}."
    else:
        yield f"Test RMSE {number(mine)}; unprotected {number(plain)}."
    if best is None or better:  # a run that a mere guess beats should not advertise its lists
        yield from _lists(accuracy.get("ranking"))


def best_guess(accuracy: Document) -> Document | None:
    """Find the best guess in which nothing leaves the device; None if none was measured."""
    guesses = [floor for floor in accuracy.get("on_device") or () if floor["test_rmse"] is not None]
    return min(guesses, key=lambda floor: float(floor["test_rmse"]), default=None)


def _lists(ranking: Document | None) -> Iterator[str]:
    if ranking is not None:
        yield f"A list of ten has a liked item for {100 * ranking['hit_10']:.0f} % of users."


# --- bytes -----------------------------------------------------------------------------------------------------------


def _costs(summary: Document, bytes_: Document | None) -> Iterator[str]:
    told, user = summary["bytes"], summary["bytes"]["per_user_iteration"]
    if told["per_iteration"]:
        yield f"A user's mean per iteration: {size(user['down_mean'])} down, {size(user['up_mean'])} up."
    else:
        each = {way: size(mean) for way, mean in once_per_user(summary).items()}
        yield f"A user's mean, once: {each['down']} down, {each['up']} up."
    if published := told.get("publication"):
        yield f"Publication: {size(published['per_user'])}."
    if bytes_ is not None:
        agrees, words = agreement(bytes_)
        yield f"[{_BAD}]{words}[/]" if agrees is False else words


def once_per_user(summary: Document) -> dict[str, float]:
    """Compute a user's mean bytes in the whole run, down and up, for a scheme without iterations."""
    edges = summary["bytes"]["edges"]
    sums = {way: sum(n for edge, n in edges.items() if _is_way(edge, way)) for way in ("down", "up")}
    return {way: total / summary["users"] for way, total in sums.items()}


def _is_way(edge: str, way: str) -> bool:
    sender, _, receiver = edge.partition("->")
    return (receiver if way == "down" else sender) == "user"


def agreement(bytes_: Document) -> tuple[bool | None, str]:
    """Judge whether formula, count and kernel agree (None: the formula has no figure), and say it in words."""
    if bytes_["match"] is False:
        return False, "Formula and count differ: keyhole bandwidth says where."
    if bytes_.get("prediction_note") is not None:
        kernel = "Count = kernel, to the byte; the" if bytes_["kernel_match"] else "The"
        return None, f"{kernel} formula's figure needs the ratings: keyhole bandwidth says more."
    if bytes_["kernel_match"]:
        return True, "Formula = count = kernel, to the byte."
    return True, "Formula = count, to the byte; the kernel has no count here."


# --- knowledge -------------------------------------------------------------------------------------------------------


def _learned(summary: Document, audited: Document | str) -> Iterator[str]:
    """Say what each server, both together, a user alone and the worst small coalition learn."""
    if isinstance(audited, str):
        yield escape(audited)
        return
    for title, row in chosen(audited["parties"] or ()):
        measured = "".join(f" ({text})" for text in row["measured"][:1])
        yield f"{title}: {escape(known_words(row, summary['users']) + measured)}"
    if part := audited.get("part"):
        yield f"(asked of {escape(part)}; keyhole audit: of all)"


def chosen(rows: Any) -> Iterator[tuple[str, Document]]:
    """Choose from `rows` one for each kind of coalition: the one that knows most."""
    kinds: dict[str, Document] = {}
    for row in rows:
        kind = _kind(row["members"])
        if kind not in kinds or _weight(row) > _weight(kinds[kind]):
            kinds[kind] = row
    for kind in ("recommender", "third party", "both servers", "a user alone", "worst few"):
        if kind in kinds:
            name = kind if kind != "worst few" else "+".join(kinds[kind]["members"])  # as --coalition takes them
            yield name, kinds[kind]


def _kind(members: list[str]) -> str:
    users = [member for member in members if user_index(member) >= 0]
    if len(members) == 1:
        return "a user alone" if users else members[0].replace("_", " ")
    return "both servers" if set(members) == {RECOMMENDER, THIRD_PARTY} else "worst few"


def _weight(row: Document) -> tuple[int, int]:
    return _WEIGHT[row["determines"]], row["individuals"]


def known_words(row: Document, n_users: int) -> str:
    count, of, whose = row["individuals"], row["of"], ""
    inside = sum(user_index(member) >= 0 for member in row["members"])
    other = "other " if inside else ""
    if count:
        whose = "one user's" if count == 1 else f"{count} {other}users'"
        whose = f"every {other}user's" if count == n_users - inside else whose
    group = row["smallest_group"]
    sums = f"sums of ≥ {group} {'others' if inside else 'users'}" if group else "what is published"
    words = {
        "nothing": "nothing about anyone",
        "aggregate": sums,
        "noisy-individual": f"{whose} noisy {of}s",
        "exact-individual": f"{whose} exact {of}s",
    }[row["determines"]]
    if row["items"]:
        words += f"; {counted(row['items'], 'place' if of == 'part' else 'item')} of one user only"
    if row.get("support") and len(row["members"]) == 1:
        words = f"{SUPPORT}, and {'no number of anyone' if row['determines'] == 'nothing' else words}"
    return words


# --- the claim -------------------------------------------------------------------------------------------------------


def claim_question(summary: Document) -> str:
    claimed = summary["privacy"]["claimed_epsilon"]
    return "Is it private?" if claimed is None or claimed == "inf" else f"Is it ε = {figure(claimed)}?"


def _claim(summary: Document, audited: Document | str) -> Iterator[str]:
    """Answer whether the published claim holds, then whether this run leaked more than its scheme declares."""
    privacy, document = summary["privacy"], {} if isinstance(audited, str) else audited
    claim = document.get("published_claim")
    if claim is not None:
        yield from _published(claim)
    if privacy["claimed_epsilon"] not in (None, "inf"):
        yield _epsilons(privacy, document.get("accounting") or {})
    if document.get("verdict") == "beyond-claims":
        yield f"[{_BAD}]This run leaked beyond what {escape(summary['scheme'])} declares.[/]"
    elif document.get("not_shown"):
        things = counted(len(document["not_shown"]), "thing")
        yield f"No undeclared leak found; [{_AMBER}]{things} not shown[/]."
    elif document.get("verdict"):
        yield f"This run leaked nothing beyond what {escape(summary['scheme'])} declares."


def _published(claim: Document) -> Iterator[str]:
    status = claim["status"]
    if claim["claimed"] is None:
        yield escape(claim["why"])
        return
    style = {"holds": _GOOD, "refuted": _AMBER}.get(status, "dim")
    word = {"holds": "It holds", "refuted": "No, the published claim is refuted"}.get(status, "Not tested")
    why = claim["why"].partition(". ")[0].rstrip(".")
    yield f"[{style}]{word}[/]: {escape(why[:1].lower() + why[1:])}."


def _epsilons(privacy: Document, accounting: Document) -> str:
    told = []
    for name, value, note in epsilons(privacy, accounting):
        told.append(f"{name} {figure(value)}{f' ({escape(note)})' if note else ''}")
    return f"ε: {', '.join(told)}; at δ = {privacy['accounted']['delta']:g}."


def epsilons(privacy: Document, accounting: Document) -> list[tuple[str, Any, str]]:
    """List one ε of each kind: as claimed, of the whole run, and to the recommender from what was really released.

    Each is (name, value, what it applies to).
    """
    accounted = privacy["accounted"]
    parts = [("claimed", privacy["claimed_epsilon"], str(privacy["unit"]).rpartition(", ")[2])]
    if "tight" in accounted:
        parts.append(("whole run", accounted["tight"], ""))
    elif accounted["epsilon"] is not None:
        parts.append(("accounted", accounted["epsilon"], ""))
    worst = ((accounting.get("all_releases") or {}).get("even") or {}).get("worst")
    if worst is not None and not (isinstance(worst, float) and math.isnan(worst)):
        parts.append(("to the recommender", worst, "worst item"))
    return parts
