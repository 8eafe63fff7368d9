"""The four tiles at the top of the page: the questions of the terminal's first screen, with the same figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from protocol.errors import BadInput
from protocol.party.view import Broken
from sim.audit.findings import SUPPORT
from sim.console.console import counted, figure, number, size
from sim.report.parties.parties_section import style_of
from sim.report.reported_run import ReportedRun
from sim.tables.first_screen import agreement, best_guess, chosen, claim_question, epsilons, once_per_user

_LEARNS = {
    "nothing": "nothing",
    "aggregate": "sums",
    "noisy-individual": "noisy numbers",
    "exact-individual": "exact numbers",
}


@dataclass(frozen=True, slots=True)
class ClaimAnswer:
    """The answer to the first question: does the published claim hold?"""

    style: str
    status: str  # holds, refuted or not tested
    claim: str  # "ε = 8 per release"; empty: nothing is claimed
    why: str


@dataclass(frozen=True, slots=True)
class Sentence:
    """The answer to the second question: did this run leak beyond what its scheme declares?"""

    style: str
    status: str  # as declared, beyond, not shown or not asked
    headline: str
    beyond: list[str]  # ids of findings
    gravest: str  # what the first of them says
    declared: list[str]
    notes: list[str]


@dataclass(frozen=True, slots=True)
class Value:
    name: str
    figure: str
    note: str = ""
    style: str = ""


@dataclass(frozen=True, slots=True)
class Tile:
    question: str
    answer: str
    style: str  # of the answer
    values: Sequence[Value]
    words: Sequence[str] = ()
    proof: tuple[str, str] = ("", "")  # style and words of what the figures were checked against
    chain: bool = False  # each value follows from the one before it


def tiles(run: ReportedRun, claim: ClaimAnswer, told: Sentence) -> list[Tile]:
    return [_accuracy(run), _bytes(run), _epsilon(run, claim), _adversaries(run, told)]


def _accuracy(run: ReportedRun) -> Tile:
    question, found = "Does it recommend?", run.summary["accuracy"]
    mine, plain, best = found["test_rmse"], found["plain"]["test_rmse"], best_guess(found)
    if mine is None:
        held_out = run.summary["ratings"]["test"]
        why = "There is no result to measure." if held_out else "No rating was held out."
        return Tile(question, "Not measured", "", [], [why])
    values = [Value("this run", number(mine), "test RMSE"), Value("unprotected", number(plain))]
    if best is None:
        return Tile(question, "Not compared", "", values, ["No guess that needs no protocol was measured."])
    values.append(Value("best guess on the device", number(best["test_rmse"]), best["title"]))
    better = mine < best["test_rmse"]
    ranking = found.get("ranking")
    words = [] if ranking is None else [f"A list of ten has a liked item for {100 * ranking['hit_10']:.0f} % of users."]
    return Tile(question, "Yes" if better else "No", "good" if better else "bad", values, ["Less is better.", *words])


def _bytes(run: ReportedRun) -> Tile:
    question, told = "What does it cost?", run.summary["bytes"]
    user = told["per_user_iteration"]
    if told["per_iteration"] and user["down_mean"] is not None:
        of, means = "per user and iteration", {way: user[f"{way}_mean"] for way in ("down", "up")}
    else:
        of, means = "per user, once", once_per_user(run.summary)
    answer = f"{size(sum(means.values()))} {of}"
    values = [Value(way, size(mean), "mean") for way, mean in means.items()]
    if published := told.get("publication"):
        values.append(Value("at the end, once", size(published["per_user"]), "the published factors"))
    try:
        agrees, words = agreement(run.bandwidth)
    except (BadInput, Broken) as refusal:
        return Tile(question, answer, "", values, [f"Not compared with the formula: {refusal}"])
    style = "" if agrees is None else "good" if agrees else "bad"
    return Tile(question, answer, "", values, proof=(style, words))


def _epsilon(run: ReportedRun, claim: ClaimAnswer) -> Tile:
    question, privacy = claim_question(run.summary), run.summary["privacy"]
    answer = {"holds": "It holds", "refuted": "No: refuted"}.get(claim.status, "Not tested")
    if privacy["claimed_epsilon"] in (None, "inf"):
        return Tile(question, "No ε is claimed", "weak", [], [claim.why])
    found = epsilons(privacy, run.audit.get("accounting") or {})
    values = [Value(name, figure(value), note) for name, value, note in found]
    shown = run.audit["published_claim"]
    told = isinstance(shown["shown"], int | float | str)
    at = [f"Shown: ε = {figure(shown['shown'])} ({shown['confidence']})."] if told else []
    delta = f"At δ = {privacy['accounted']['delta']:g}; the claim is of one release." if len(values) > 1 else ""
    return Tile(question, answer, claim.style, values, [*at, *([delta] if delta else [])], chain=True)


def _adversaries(run: ReportedRun, told: Sentence) -> Tile:
    rows = list(chosen(run.audit["parties"] or ()))
    values = [Value(name.replace("+", " + "), _learns(row), _of(row), style_of(row)) for name, row in rows]
    words = [] if rows else ["Who can work out what was not asked."]
    answers = {"as declared": "As declared", "beyond": "Beyond what it declares", "not shown": "Not shown"}
    answer = answers.get(told.status, "No verdict")
    return Tile("Who learns what?", answer, told.style, values, words)


def _learns(row: Mapping[str, Any]) -> str:
    """Say in a few words what was learned; a party that is told which items each user rated learns at least that."""
    told = row.get("support") and len(row["members"]) == 1
    return SUPPORT if told and row["determines"] == "nothing" else _LEARNS[row["determines"]]


def _of(row: Mapping[str, Any]) -> str:
    """Say how many users the knowledge is about."""
    if row["determines"] == "aggregate":
        return f"of {row['smallest_group']} users or more" if row["smallest_group"] else "only what is published"
    return f"of {counted(row['individuals'], 'user')}" if row["individuals"] else ""
