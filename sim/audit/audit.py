"""`keyhole audit`: ask six questions about the views of a run and reach one verdict."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from actors.blame import in_brief
from protocol.errors import BadInput, Rejected
from protocol.party.view import Broken
from protocol.schemes import is_ours
from sim.audit import coalitions as choosing
from sim.audit import inventory, scoring
from sim.audit.accounting import account, data_pair, neighbours, noise_test
from sim.audit.algebra import solve as algebra
from sim.audit.attacks import attack
from sim.audit.canary import empirical
from sim.audit.canary.canary_cache import cached_canary
from sim.audit.claim import published_claim
from sim.audit.families.registry import family_of
from sim.audit.findings import QUESTIONS, Finding, verdict
from sim.audit.kept_answers import Kept, key_of, load, save
from sim.audit.undecoded import audit_undecoded
from sim.audit.uniformity import indistinguishable, uniformity
from sim.audit.verdict import verdict_rows
from sim.audit.victims import about_user, known_of_users, name_victims
from sim.console.progress import Tell
from sim.folder.folder import read_summary
from sim.folder.naming import Names, read_names
from sim.folder.unloaded import is_loaded
from sim.views.evidence import Case, at_rest, open_case

OF_COALITIONS = ("algebra", "attacks")  # questions that are asked again for a further coalition
WITHOUT_USERS = {"inventory", "accounting", "empirical"}
REPETITIONS = 8_000
FLIPS_IN_PASSING = 20  # ratings flipped in users' roles by a quick audit, to measure their sensitivity
MOST_NUMBERS = 2_000_000  # numbers in whole vectors that the algebra follows: a minute or two
# upper bounds on the probability of calling a correct run beyond its claims; exact answers never err
FALSE_ALARMS = {
    "attacks": scoring.LEVEL,
    "accounting": 2 * noise_test.FALSE_ALARM,  # two tests: sums' noise, and users' randomized ratings
    "empirical": 1 - empirical.CONFIDENCE,
    "statistics": uniformity.LEVEL + indistinguishable.LEVEL,
}

OnQuestion = Callable[[str], None]


@dataclass(slots=True)
class Docket:
    """The questions of one audit, and the answers found so far."""

    case: Case
    extra: list[choosing.Coalition]
    colluders: int
    repetitions: int
    kept: Kept
    new_coalitions: list[choosing.Coalition]  # coalitions of `extra` that no earlier audit covered
    fresh: bool = False
    part: int | None = None  # quick audit: iterations to read; 1 reads the servers' views alone
    question: str = ""
    tell: Tell = lambda done, total: None

    def add(self, found: tuple[Any, list[Finding]]) -> Any:
        self.kept.findings.setdefault(self.question, []).extend(found[1])
        return found[0]

    @property
    def default(self) -> set[choosing.Coalition]:
        """Return the coalitions that are asked about without being requested."""
        return {one.members for one in self.solved if not one.extra} or set(_default(self.case))

    @property
    def solved(self) -> list[algebra.Solved]:
        return self.kept.solved


def audit(
    folder: Path,
    coalitions: Sequence[str] = (),
    *,
    only: Sequence[str] = (),
    colluders: int = choosing.COLLUDERS,
    repetitions: int = REPETITIONS,
    about: str | None = None,
    fresh: bool = False,
    part: int | None = None,
    on_question: OnQuestion = lambda question: None,
    tell: Tell = lambda done, total: None,
) -> dict[str, Any]:
    """Return the document that `keyhole audit --json` prints.

    `only` limits the questions, and the verdict then covers those alone. `coalitions` are asked about in addition to
    the default ones. `about` is a user, by any of its names. Answers kept in the folder are reused unless `fresh` is
    set. `part` makes the audit quick: it covers only the first `part` iterations (with 1, the servers' views alone),
    and nothing is kept.
    """
    unknown = set(only) - set(QUESTIONS)
    if unknown:
        raise BadInput(f"{', '.join(sorted(unknown))} is not a question of the audit: ask {', '.join(QUESTIONS)}.")
    case = open_case(folder, unloaded=True)
    if not is_loaded(case.card):
        with at_rest(folder):
            return audit_undecoded(case, only or QUESTIONS)
    names = read_names(folder)
    extra = [choosing.parse(case, text, names) for text in coalitions]
    whom = None if about is None else names.party(about, case.party_set, folder)
    wanted = [question for question in QUESTIONS if not only or question in only]
    with at_rest(folder):
        _check_views(case, wanted)
        key = {} if part else key_of(case, colluders, repetitions)
        ours = is_ours(case.card.scheme)  # the code of a scheme from elsewhere may have changed since
        kept = load(case, key) if ours and not fresh and not part else Kept()
        known = {one.members for one in kept.solved} or set(_default(case))
        new = [members for members in dict.fromkeys(extra) if members not in known and members not in kept.extra]
        docket = Docket(case, extra, colluders, repetitions, kept, new, fresh, part, tell=tell)
        asked = _ask(docket, wanted, on_question)
        if asked and not part:
            everything = [question for question in QUESTIONS if question in kept.seconds]
            kept.extra += [members for members in new if members not in docket.default]
            save(case, key, _document(docket, everything, kept.extra, names), kept)
    document = _document(docket, wanted, extra, names)
    document["part"] = _describe_part(part)
    document["reused"] = [question for question in wanted if question not in asked]
    if whom is not None:
        document["about"] = about_user(document, whom, names)
    return document


def _ask(docket: Docket, wanted: Sequence[str], on_question: OnQuestion) -> list[str]:
    """Ask every question that is unanswered or that has new coalitions to cover; return the questions asked."""
    kept, asked = docket.kept, []
    for question in wanted:
        if question in kept.seconds and not (question in OF_COALITIONS and docket.new_coalitions):
            continue
        on_question(question)
        docket.question, started = question, time.perf_counter()
        kept.answers[question] = _answer(docket, question)
        kept.seconds[question] = round(time.perf_counter() - started, 3)
        asked.append(question)
    return asked


def _answer(docket: Docket, question: str) -> Any:
    """Answer `question`.

    A user-written scheme may do what a question cannot follow: the reason is then recorded as unanswered, and the other
    questions are still asked.
    """
    if is_ours(docket.case.card.scheme):
        try:
            return _ASK[question](docket)
        except Rejected as refusal:  # forged views whose hash chains are intact
            raise Broken(f"a frame that stands in a view as received is refused by its role ({refusal})") from refusal
    try:
        return _ASK[question](docket)
    except Broken:
        raise
    except Exception as fault:
        words = str(fault) if isinstance(fault, BadInput) else in_brief(fault)
        docket.kept.unanswered[question] = " ".join(words.split())
        return None


def _check_views(case: Case, questions: Sequence[str]) -> None:
    """Raise `BadInput` if a view that `questions` need is missing; some need the servers' views alone."""
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


def _document(
    docket: Docket, questions: Sequence[str], extra: Sequence[choosing.Coalition], names: Names
) -> dict[str, Any]:
    """Build the document for `questions` and, beyond the default coalitions, for `extra` alone."""
    case, kept = docket.case, docket.kept
    scheme, answers = case.card.scheme, {question: kept.answers[question] for question in questions}
    unanswered = {question: why for question, why in kept.unanswered.items() if question in answers}
    idle = {question: why for question, why in kept.idle.items() if question in answers}
    left_out = set(kept.extra) - set(extra)
    solved = [one for one in kept.solved if one.members not in left_out] if "algebra" in answers else []
    rank = {"break": 0, "weak": 1, "info": 2}
    found = [
        (finding, question)
        for question in questions
        for finding in kept.findings.get(question, ())
        if question not in OF_COALITIONS or finding.coalition not in left_out
    ]
    found.sort(key=lambda pair: (rank[pair[0].severity], pair[0].id, pair[0].coalition))
    findings = [finding for finding, _ in found]
    missing = [question for question in QUESTIONS if question not in answers or question in {**unanswered, **idle}]
    rows = answers.get("algebra")
    return {
        "run": str(case.folder),
        "scheme": scheme.name,
        "verdict": verdict(findings, scheme.known_weaknesses),
        "abort": _abort_of(case.folder),
        "published_claim": _claim(docket),
        "parties": [
            row | {"names": [names.user(member) for member in row["members"]]}
            for row in verdict_rows(case, solved, answers.get("inventory"), findings)
        ],
        "findings": [
            {**dataclasses.asdict(finding), "coalition": list(finding.coalition), "question": question}
            | {"victims": name_victims(finding, solved, names)}
            for finding, question in found
        ],
        "inventory": answers.get("inventory"),
        "coalitions": rows and [row for row in rows if tuple(row["members"]) not in left_out],
        "attacks": answers.get("attacks"),
        "accounting": answers.get("accounting"),
        "empirical": answers.get("empirical"),
        "statistics": answers.get("statistics"),
        "known_weaknesses": list(scheme.known_weaknesses),
        "questions": {question: kept.seconds[question] for question in questions},
        "unanswered": unanswered,
        "nothing_to_ask": idle,
        "false_alarm": sum(FALSE_ALARMS.get(question, 0.0) for question in answers if question not in missing),
    }


def _claim(docket: Docket) -> dict[str, Any]:
    """Judge the published claim by every known answer, including those of earlier audits."""
    kept = docket.kept
    known = [question for question in QUESTIONS if question in kept.seconds]
    findings = [finding for question in known for finding in kept.findings.get(question, ())]
    silent = {**kept.unanswered, **kept.idle}
    missing = [question for question in QUESTIONS if question not in known or question in silent]
    answers = kept.answers
    return published_claim(docket.case, answers.get("accounting"), answers.get("empirical"), findings, missing, silent)


def _abort_of(folder: Path) -> str | None:
    """Return the reason for which the run aborted; None if it did not, or if the summary is unreadable."""
    try:
        summary = read_summary(folder)
    except BadInput:  # damaged: `keyhole verify` reports it
        return None
    return None if summary is None or summary["abort"] is None else str(summary["abort"]["reason"])


# --- the questions ---------------------------------------------------------------------------------------------------


def _describe_part(part: int | None) -> str | None:
    """Describe the part of a run that a quick audit covered; None means all of it."""
    if part is None:
        return None
    views = "the servers' views alone and " if part == 1 else ""
    return f"{views}the first {f'{part} iterations' if part > 1 else 'iteration'}"


def _ask_algebra(docket: Docket) -> list[dict[str, Any]] | None:
    kept, before = docket.kept, docket.solved
    numbers = 0 if docket.part else numbers_of(docket.case)
    if docket.part:
        kept.solved = (
            algebra.solve_servers(docket.case, until=1)
            if docket.part == 1
            else algebra.solve(docket.case, (), docket.colluders, docket.tell, docket.part)
        )
        docket.add((None, algebra.findings(docket.case, kept.solved)))
        return [algebra.row(one) for one in kept.solved]
    if numbers > MOST_NUMBERS:
        kept.unanswered["algebra"] = (
            f"Users of this run sent {numbers} numbers, and the algebra follows {MOST_NUMBERS} at most: run it with "
            "fewer users or items to have it answered."
        )
        return None
    if before:
        library = algebra.library_of(docket.case)
        new = [algebra.solve_one(docket.case, library, members, extra=True) for members in docket.new_coalitions]
    else:
        kept.drop("attacks")  # the coalitions chosen here decide which attacks are tried
        new = algebra.solve(docket.case, [*kept.extra, *docket.new_coalitions], docket.colluders, docket.tell)
    kept.solved = [*before, *new]
    docket.add((None, algebra.findings(docket.case, new)))
    names = read_names(docket.case.folder)
    return [algebra.row(one) | known_of_users(one, names) for one in kept.solved]


def numbers_of(case: Case) -> int:
    """Count the numbers that users send in whole vectors; 0 in schemes that send only a few per rating."""
    return family_of(case.card.scheme).numbers_of(case)


def _ask_inventory(docket: Docket) -> Any:
    servers = docket.case.card.scheme.servers
    return docket.add(inventory.take(docket.case, servers if docket.part == 1 else None))


def _default(case: Case) -> list[choosing.Coalition]:
    """List the coalitions that can be chosen without the algebra."""
    servers = case.card.scheme.servers
    return [*((server,) for server in servers), choosing.ordered(case, servers)]


def _ask_attacks(docket: Docket) -> Any:
    """Attack with every coalition of the algebra; without it, with those that need no algebra to be chosen."""
    kept, known = docket.kept, "attacks" in docket.kept.seconds
    default = [*_default(docket.case), *kept.extra]
    everyone = list(dict.fromkeys([*([one.members for one in docket.solved] or default), *docket.new_coalitions]))
    new = [members for members in everyone if not known or members in docket.new_coalitions]
    docket.add((None, attack(docket.case, everyone, new)))
    found = kept.findings.get("attacks", [])
    if not found:
        kept.idle["attacks"] = "No attack that is known applies to this scheme."
    return [{"id": finding.id, "coalition": list(finding.coalition)} for finding in found]


def _ask_accounting(docket: Docket) -> Any:
    document = docket.add(account.account(docket.case))
    moved = docket.add(neighbours.sensitivity(docket.case, FLIPS_IN_PASSING if docket.part else None))
    if "composed" not in document and not moved:
        docket.kept.idle["accounting"] = str(document.get("method", "Nothing is claimed."))
    pair = None if docket.part else docket.add(data_pair.data_pair(docket.case))
    return {**document, "sensitivity": moved, "data_pair": pair}


def _ask_empirical(docket: Docket) -> Any:
    document = docket.add(cached_canary(docket.case, docket.repetitions, docket.fresh, docket.tell))
    if not document["rows"]:
        docket.kept.idle["empirical"] = document["note"]
    return document


def _ask_statistics(docket: Docket) -> Any:
    uniform = docket.add(uniformity.uniformity(docket.case))
    compared = docket.add(indistinguishable.compare(docket.case))
    if not uniform["tests"] and not compared["comparisons"]:
        docket.kept.idle["statistics"] = " ".join(dict.fromkeys([*uniform["notes"], *compared["notes"]]))
    return {"uniformity": uniform, "ideal_against_real": compared}


_ASK: dict[str, Callable[[Docket], Any]] = {
    "inventory": _ask_inventory,
    "algebra": _ask_algebra,
    "attacks": _ask_attacks,
    "accounting": _ask_accounting,
    "empirical": _ask_empirical,
    "statistics": _ask_statistics,
}
