"""`keyhole audit`: five questions to the views of a run, and one verdict."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from protocol.errors import BadInput
from protocol.messages import MaskedPart
from protocol.roles import THIRD_PARTY
from protocol.schemes import SCHEMES
from protocol.schemes.collecting import CollectingParams
from protocol.view import Broken
from sim.audit import account_noise, accounting, empirical, indistinguishable, inventory, sensitivity, statistics
from sim.audit import coalitions as choosing
from sim.audit.algebra import solve as algebra
from sim.audit.attacks import attack, scoring
from sim.audit.exhibits import Exhibits
from sim.audit.findings import Finding, verdict
from sim.audit.verdict import verdict_rows
from sim.evidence import Case, at_rest, open_case

QUESTIONS = ("inventory", "algebra", "attacks", "accounting", "empirical", "statistics")
WITHOUT_USERS = {"inventory", "accounting", "empirical"}
REPETITIONS = 8_000
MOST_NUMBERS = 2_000_000  # in whole vectors that the algebra follows: a minute or two
# how likely a correct run is called beyond its claims, at most: exact answers never err, each test has a level
FALSE_ALARMS = {
    "attacks": scoring.LEVEL,
    "accounting": 2 * account_noise.FALSE_ALARM,  # the noise of sums, and what users do to their ratings
    "empirical": 1 - empirical.CONFIDENCE,
    "statistics": statistics.LEVEL + indistinguishable.LEVEL,
}

OnQuestion = Callable[[str], None]


@dataclass(slots=True)
class Docket:
    """What has been found out so far."""

    case: Case
    extra: list[choosing.Coalition]
    colluders: int
    repetitions: int
    solved: list[algebra.Solved] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    unanswered: dict[str, str] = field(default_factory=dict)  # question -> why
    idle: dict[str, str] = field(default_factory=dict)  # question -> why it had nothing to ask about

    def add(self, found: tuple[Any, list[Finding]]) -> Any:
        self.findings += found[1]
        return found[0]


def audit(
    folder: Path,
    coalitions: Sequence[str] = (),
    *,
    only: Sequence[str] = (),
    colluders: int = choosing.COLLUDERS,
    repetitions: int = REPETITIONS,
    on_question: OnQuestion = lambda question: None,
) -> dict[str, Any]:
    """What `keyhole audit --json` prints. `only`: some of the questions; the verdict is then on those."""
    unknown = set(only) - set(QUESTIONS)
    if unknown:
        raise BadInput(f"{', '.join(sorted(unknown))} is no question of the audit: ask {', '.join(QUESTIONS)}.")
    case = open_case(folder)
    extra = [choosing.parse(case, text) for text in coalitions]
    docket = Docket(case, extra, colluders, repetitions)
    answers: dict[str, Any] = {}
    seconds: dict[str, float] = {}
    with at_rest(folder):
        _check_views(case, only or QUESTIONS)
        for question in QUESTIONS:
            if not only or question in only:
                on_question(question)
                started = time.perf_counter()
                answers[question] = _answer(docket, question)
                seconds[question] = round(time.perf_counter() - started, 3)
    return _document(docket, answers, seconds)


def _answer(docket: Docket, question: str) -> Any:
    """A scheme of one's own may do what a question cannot follow: that is said, and the other questions are asked."""
    if type(docket.case.card.scheme) in SCHEMES.values():
        return _ASK[question](docket)
    try:
        return _ASK[question](docket)
    except Broken:
        raise
    except Exception as fault:
        words = str(fault) if isinstance(fault, BadInput) else f"{type(fault).__name__}: {fault}"
        docket.unanswered[question] = " ".join(words.split())
        return None


def _check_views(case: Case, questions: Sequence[str]) -> None:
    """Some questions can be put to the servers' views alone."""
    whole = set(questions) - WITHOUT_USERS
    needed = case.parties if whole else case.card.scheme.servers
    missing = [party for party in needed if not case.path(party).is_file()]
    if missing:
        asked = " --only ".join(["", *sorted(WITHOUT_USERS)]).strip()
        servers = all(case.path(server).is_file() for server in case.card.scheme.servers)
        fewer = f", or ask what needs none of a user: {asked}" if whole and servers else ""
        what_to_do = f"run with --views full{fewer}"
        if missing[0] in case.kept:
            what_to_do = "let that party run, or bring its view back"
        count = "it alone is" if len(missing) == 1 else f"{len(missing)} are"
        raise BadInput(
            f"{case.folder} has no view of {missing[0]} ({count} missing), and an audit is about what parties saw: "
            f"{what_to_do}."
        )


def _document(docket: Docket, answers: dict[str, Any], seconds: dict[str, float]) -> dict[str, Any]:
    scheme = docket.case.card.scheme
    asked = [question for question in seconds if question not in {**docket.unanswered, **docket.idle}]
    rank = {"break": 0, "weak": 1, "info": 2}
    found = sorted(docket.findings, key=lambda finding: (rank[finding.severity], finding.id, finding.coalition))
    return {
        "run": str(docket.case.folder),
        "scheme": scheme.name,
        "verdict": verdict(found, scheme.known_weaknesses),
        "parties": verdict_rows(docket.case, docket.solved, answers.get("inventory"), docket.findings),
        "findings": [{**dataclasses.asdict(finding), "coalition": list(finding.coalition)} for finding in found],
        "inventory": answers.get("inventory"),
        "coalitions": answers.get("algebra"),
        "accounting": answers.get("accounting"),
        "empirical": answers.get("empirical"),
        "statistics": answers.get("statistics"),
        "known_weaknesses": list(scheme.known_weaknesses),
        "questions": seconds,
        "unanswered": docket.unanswered,
        "nothing_to_ask": docket.idle,
        "false_alarm": sum(FALSE_ALARMS.get(question, 0.0) for question in asked),
    }


# --- the questions ---------------------------------------------------------------------------------------------------


def _ask_algebra(docket: Docket) -> list[dict[str, Any]] | None:
    numbers = numbers_of(docket.case)
    if numbers > MOST_NUMBERS:
        docket.unanswered["algebra"] = (
            f"Users of this run sent {numbers} numbers, and the algebra follows {MOST_NUMBERS} at most: run it with "
            "fewer users or items to have it answered."
        )
        return None
    docket.solved = algebra.solve(docket.case, docket.extra, docket.colluders)
    docket.findings += algebra.findings(docket.case, docket.solved)
    return [algebra.row(one) for one in docket.solved]


def numbers_of(case: Case) -> int:
    """That users send in a scheme with whole vectors; in others they send a few for each rating (here 0)."""
    params, scheme, party = case.card.params, case.card.scheme, THIRD_PARTY
    if isinstance(params, CollectingParams):
        return params.cells
    if MaskedPart not in scheme.messages or not case.path(party).is_file():
        return 0
    return sum(len(seen.message.values) for seen in Exhibits(case, (party,)).received(party, MaskedPart.__name__))


def _ask_inventory(docket: Docket) -> Any:
    return docket.add(inventory.take(docket.case))


def _ask_attacks(docket: Docket) -> Any:
    """By every coalition of the algebra; without it, by the default ones that need no algebra to be chosen."""
    servers = docket.case.card.scheme.servers
    default = [*((server,) for server in servers), choosing.ordered(docket.case, servers), *docket.extra]
    found = attack(docket.case, list(dict.fromkeys([one.members for one in docket.solved] or default)))
    docket.add((None, found))
    if not found:
        docket.idle["attacks"] = "No attack that is known applies to this scheme."
    return [{"id": finding.id, "coalition": list(finding.coalition)} for finding in found]


def _ask_accounting(docket: Docket) -> Any:
    document = docket.add(accounting.account(docket.case))
    moved = docket.add(sensitivity.sensitivity(docket.case))
    if "composed" not in document and not moved:
        docket.idle["accounting"] = str(document.get("method", "Nothing is claimed."))
    return {**document, "sensitivity": moved}


def _ask_empirical(docket: Docket) -> Any:
    case = docket.case
    document = docket.add(empirical.measure(case, case.card.scheme, repetitions=docket.repetitions))
    if not document["rows"]:
        docket.idle["empirical"] = document["note"]
    return document


def _ask_statistics(docket: Docket) -> Any:
    uniform = docket.add(statistics.uniformity(docket.case))
    compared = docket.add(indistinguishable.compare(docket.case))
    if not uniform["tests"] and not compared["comparisons"]:
        docket.idle["statistics"] = " ".join(dict.fromkeys([*uniform["notes"], *compared["notes"]]))
    return {"uniformity": uniform, "ideal_against_real": compared}


_ASK: dict[str, Callable[[Docket], Any]] = {
    "inventory": _ask_inventory,
    "algebra": _ask_algebra,
    "attacks": _ask_attacks,
    "accounting": _ask_accounting,
    "empirical": _ask_empirical,
    "statistics": _ask_statistics,
}
