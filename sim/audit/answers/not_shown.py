"""Collect what an audit could not show: the third answer, beside what it found and what it looked for in vain.

A question that crashed, rows that the algebra left undecided, a test with too little to test, refused frames that no
disturbance explains: none of these is a finding, and none of them is evidence that nothing leaked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from protocol.errors import BadInput, Reason
from protocol.party.view import Broken
from sim.bandwidth.bandwidth import bandwidth
from sim.console.console import counted
from sim.folder.folder import read_summary
from sim.views.evidence import Case

OF_SESSIONS = {Reason.REPLAYED.name}  # a sender that waited long repeats a frame: its role has no part in that
Row = dict[str, Any]  # question, reason, coalition (null: it concerns no party in particular)


def row(question: str, reason: str, coalition: Iterable[str] | None = None) -> Row:
    return {"question": question, "reason": reason, "coalition": None if coalition is None else list(coalition)}


def not_shown(answers: Mapping[str, Any], unanswered: Mapping[str, str]) -> list[Row]:
    """List what the `answers` of an audit leave open, by question; `unanswered` are those that ended in a fault."""
    found = [row(question, f"The question could not be asked: {why}") for question, why in unanswered.items()]
    for question, look in _LOOK.items():
        answer = answers.get(question)
        found += look(answer) if answer else ()
    if not answers.get("algebra") and not (answers.get("empirical") or {}).get("rows"):
        found += _of_noise(answers.get("accounting") or {})  # otherwise another question looked for the noise
    return found


def disturbances(case: Case, part: int | None, inventory: Sequence[Mapping[str, Any]]) -> list[Row]:
    """List what does not fit an undisturbed run: frames that were refused, and bytes that no formula gives.

    A `part` of a run is not judged, nor a run that did not complete.
    """
    summary = None if part else read_summary(case.folder)
    if summary is None or not summary["completed"]:
        return []
    return [*_refused(case, summary, inventory), *_bytes_differ(case.folder)]


def _refused(case: Case, summary: Mapping[str, Any], inventory: Sequence[Mapping[str, Any]]) -> Iterator[Row]:
    """Name the parties that refused frames although nothing was lost, late or repeated."""
    if case.config.faults is not None or summary["dropouts"] or summary["restarts"]:
        return
    for entry in inventory:
        if entry["plane"] == "rejected" and entry["count"] and entry["field"] not in OF_SESSIONS:
            frames = counted(entry["count"], "frame")
            why = f"{frames} refused ({entry['field']}) in a run that nothing disturbed: a refusal can tell something"
            yield row("inventory", f"{why}, and the view keeps no contents of it.", [entry["party"]])


def _bytes_differ(folder: Path) -> Iterator[Row]:
    """Say whether the bytes on the wire are those that the scheme's formula gives."""
    try:
        document = bandwidth(folder)
    except (BadInput, Broken) as reason:
        yield row("inventory", f"The bytes of the run cannot be compared with the formula: {reason}")
        return
    except Exception as fault:  # the formula is the scheme's own code
        yield row("inventory", f"The scheme's formula ends with {type(fault).__name__}, so it gives no bytes.")
        return
    if document["match"] is False:
        why = "Bytes on the wire are not those of the scheme's formula, so lengths may depend on what is secret"
        yield row("inventory", f"{why}: keyhole bandwidth {folder} says where.")


# --- one question each ------------------------------------------------------------------------------------------------


def _of_algebra(rows: Any) -> Iterator[Row]:
    for one in rows:
        if one["undecided"]:
            words = f"{counted(one['undecided'], 'row')} of what these parties hold could not be decided"
            yield row("algebra", f"{words}, so they may be able to work out more.", one["members"])


def _of_noise(accounting: Mapping[str, Any]) -> Iterator[Row]:
    noise = accounting.get("noise") or {}
    if noise.get("tests") and not noise.get("missing") and not noise.get("finds_below"):
        yield row("accounting", "The released values are too few, or vary too much, to show whether noise is missing.")


def _of_accounting(document: Any) -> Iterator[Row]:
    if untested := document.get("untested"):
        yield row("accounting", str(untested))


def _of_pairs(document: Any) -> Iterator[Row]:
    """Name keys whose seeds could not be tried, and users whose noise was not tried in all iterations."""
    tapes = document.get("tapes") or {}
    if unplayed := (tapes.get("seeds") or {}).get("unplayed"):
        yield row("pairs", f"Whether keys come from short seeds cannot be tried: {unplayed}.")
    tried = tapes.get("tried") or {}
    if some := tried.get("in_some"):
        part = f"in {tried['fewest']} of {tried['iterations']} iterations, which the run id draws"
        yield row("pairs", f"The noise of {some} of {counted(tried['users'], 'user')} was tried {part}: {_ELSEWHERE}")
    if tried and (untried := tried["users"] - tried["in_all"] - tried["in_some"]):
        yield row("pairs", f"The noise of {untried} of {counted(tried['users'], 'user')} was not tried: {_ELSEWHERE}")


_ELSEWHERE = "what it lacks there for one of them is not seen (keyhole audit --pairs N tries more)."


def _of_empirical(document: Any) -> Iterator[Row]:
    """Name the parties for which no row of the canary could have exceeded its claim, whatever the scheme does."""
    rows = document["rows"]
    if not rows and "cannot be measured" in document.get("note", ""):
        yield row("empirical", document["note"])
    could: dict[tuple[str, ...], bool] = {}
    for one in rows:
        key = tuple(one["coalition"])
        claimed = one["claimed"]
        could[key] = could.get(key, False) or claimed is None or one["certifiable"] > claimed
    for coalition, enough in could.items():
        if not enough:
            yield row("empirical", "The canary had too few repetitions to show any ε above the claim.", coalition)


def _of_statistics(document: Any) -> Iterator[Row]:
    for one in document["uniformity"]["fields"]:
        if one["smallest_p"] is None and one["values"]:
            name = f"{one['kind']}.{one['field']}"
            words = f"The {counted(one['values'], 'value')} of {name} are too few to show whether masks are uniform."
            yield row("statistics", words, [one["party"]])


_LOOK = {
    "algebra": _of_algebra,
    "accounting": _of_accounting,
    "pairs": _of_pairs,
    "empirical": _of_empirical,
    "statistics": _of_statistics,
}
