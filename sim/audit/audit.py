"""The live audit of a run folder: seven questions about its views, and one verdict.

`Audit` is made once for a folder and then asked. What an answer needs is read or computed on first use and stays: the
decoded views (with its `case`), the library of the algebra, the truth that attacks are scored against, every answer and
finding. Command, page, explorer and notebook all ask it; `audit.json` carries its answers to the next process.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from actors.blame import in_brief
from protocol.errors import BadInput, Rejected
from protocol.party.view import Broken
from protocol.schemes import is_ours
from sim.audit import coalitions as choosing
from sim.audit.algebra import solve as algebra
from sim.audit.algebra.knowledge import Library
from sim.audit.answers.not_shown import not_shown
from sim.audit.claim import published_claim
from sim.audit.findings import QUESTIONS, Finding, goes_beyond, verdict
from sim.audit.kept_answers import Kept, key_of, load, save
from sim.audit.undecoded import audit_undecoded
from sim.audit.verdict import FEW, verdict_rows
from sim.audit.victims import about_user, name_victims
from sim.console.progress import Tell
from sim.folder.folder import read_summary
from sim.folder.naming import Names, read_names
from sim.folder.unloaded import is_loaded
from sim.foreign.plain_text import jsonable
from sim.views.evidence import Case, at_rest, open_case

if TYPE_CHECKING:
    from sim.audit.attacks.coalition_views import Truth

OF_COALITIONS = ("algebra", "attacks")  # questions that are asked again for a further coalition
WITHOUT_USERS = {"inventory", "accounting", "empirical"}
REPETITIONS = 8_000
CANARIES = 2_000  # among the run's own ratings, one for each item
PAIRS = 12  # neighbouring data sets that are tried for each coalition
QUICK = ("inventory", "algebra", "accounting")
OF_SERVERS = ("inventory", "accounting")  # questions that the servers' views alone can answer
MOST_IN_PASSING = 40_000  # ratings times iterations: a second or two
MOST_IN_VECTORS = 200_000  # numbers that users send in whole vectors: a few seconds
MOST_HELD_TURNS = 20_000  # users times iterations: for a larger run the library is made anew rather than held

OnQuestion = Callable[[str], None]


def audit(folder: Path, coalitions: Sequence[str] = (), **settings: Any) -> dict[str, Any]:
    """Return the document that `keyhole audit --json` prints; `settings` as in `Audit.ask`."""
    return Audit(folder).ask(coalitions, **settings)


class Audit:
    """The live audit of one run folder: its views, and all that was worked out from them so far."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.repetitions = REPETITIONS
        self.part: int | None = None
        self.pairs, self.canaries = PAIRS, CANARIES
        self.kept = Kept()
        self._files = ""  # digest of the files that were read
        self._key: dict[str, Any] = {}  # what the kept answers depend on; empty: none are kept
        self._library: Library | None = None
        self._truth: tuple[int, Truth] | None = None
        self._cheat: dict[str, Any] | None = None

    @functools.cached_property
    def case(self) -> Case:
        return open_case(self.folder, unloaded=True)

    @functools.cached_property
    def names(self) -> Names:
        return read_names(self.folder)

    def _forget(self) -> None:
        """Forget what was read of the folder, and all that was made from it."""
        self.__dict__.pop("case", None)
        self.__dict__.pop("names", None)
        self._library = self._truth = self._cheat = None

    # --- asking --------------------------------------------------------------------------------------------------

    def ask(
        self,
        coalitions: Sequence[str] = (),
        *,
        only: Sequence[str] = (),
        colluders: int = choosing.COLLUDERS,
        repetitions: int = REPETITIONS,
        pairs: int = PAIRS,
        canaries: int = CANARIES,
        about: str | None = None,
        fresh: bool = False,
        part: int | None = None,
        on_question: OnQuestion = lambda question: None,
        tell: Tell = lambda done, total: None,
    ) -> dict[str, Any]:
        """Return the document of the questions in `only`, by default of all; the verdict covers those alone.

        `coalitions` are asked about in addition to the default ones. `about` is a user, by any of its names. Earlier
        answers, also those in the folder, are reused unless `fresh` is set. `part` makes the audit quick: it covers
        only the first `part` iterations (with 1, the servers' views alone), and nothing is kept.
        """
        unknown = set(only) - set(QUESTIONS)
        if unknown:
            raise BadInput(f"{', '.join(sorted(unknown))} is no question of the audit: ask {', '.join(QUESTIONS)}.")
        if not is_loaded(self.case.card):
            self._forget()  # the person may have allowed its scheme since
        if not is_loaded(self.case.card):
            with at_rest(self.folder):
                return audit_undecoded(self.case, only or QUESTIONS)
        extra = [choosing.parse(self.case, text, self.names) for text in coalitions]
        whom = None if about is None else self.names.party(about, self.case.party_set, self.folder)
        wanted = [question for question in QUESTIONS if not only or question in only]
        self.colluders, self.repetitions, self.fresh, self.part, self.tell = colluders, repetitions, fresh, part, tell
        self.pairs, self.canaries = pairs, canaries
        with at_rest(self.folder):
            _check_views(self.case, wanted)
            self._take_up()
            known = {one.members for one in self.kept.solved} or set(self.without_algebra())
            known |= set(self.kept.extra)
            self.new_coalitions = [members for members in dict.fromkeys(extra) if members not in known]
            try:
                asked = self._ask(wanted, on_question)
            except BaseException:
                self._key = {}  # half an answer is none: the next question begins with what the folder keeps
                raise
            if asked:
                default = {one.members for one in self.kept.solved if not one.extra} or set(self.without_algebra())
                self.kept.extra += [members for members in self.new_coalitions if members not in default]
                self.kept.memos.clear()
                self._save()
        document = self._document(wanted, extra)
        document["part"] = _describe_part(part)
        document["reused"] = [question for question in wanted if question not in asked]
        if whom is not None:
            document["about"] = about_user(document, whom, self.names)
        return document

    def _take_up(self) -> None:
        """Go on from the answers of this object, or of the folder, to the same settings, by the same files and code."""
        key = {} if self.part else key_of(self.case, self.colluders, self.repetitions, self.pairs, self.canaries)
        files = key.get("files", "")
        if self.fresh or (files and self._files not in ("", files)):
            self._forget()
        if self.fresh or not key or key != self._key:
            ours = is_ours(self.case.card.scheme)  # the code of a scheme from elsewhere may have changed since
            self.kept = load(self.case, key) if key and ours and not self.fresh else Kept()
        self._files, self._key = files, key

    def _save(self) -> None:
        if self._key:
            everything = [question for question in QUESTIONS if question in self.kept.seconds]
            save(self.case, self._key, self._document(everything, self.kept.extra), self.kept)

    def _ask(self, wanted: Sequence[str], on_question: OnQuestion) -> list[str]:
        """Ask every question that is unanswered or that has new coalitions to cover; return the questions asked."""
        kept, asked = self.kept, []
        for question in wanted:
            if question in kept.seconds and not (question in OF_COALITIONS and self.new_coalitions):
                continue
            on_question(question)
            from sim.audit.questions import ASK, FALSE_ALARMS  # slow, and not needed for answers that were kept

            self._question, started = question, time.perf_counter()
            kept.answers[question] = self._answer(question, ASK[question])
            kept.alarms[question] = FALSE_ALARMS.get(question, 0.0)
            kept.seconds[question] = round(time.perf_counter() - started, 3)
            asked.append(question)
        return asked

    def _answer(self, question: str, ask: Callable[[Audit], Any]) -> Any:
        """Answer `question` with `ask`.

        A user-written scheme may do what a question cannot follow: the reason is then recorded as unanswered, and the
        other questions are still asked.
        """
        if is_ours(self.case.card.scheme):
            try:
                return ask(self)
            except Rejected as refusal:  # forged views whose hash chains are intact
                words = f"a frame that stands in a view as received is refused by its role ({refusal})"
                raise Broken(words) from refusal
        try:
            return ask(self)
        except Broken:
            raise
        except Exception as fault:
            words = str(fault) if isinstance(fault, BadInput) else in_brief(fault)
            self.kept.unanswered[question] = " ".join(words.split())
            return None

    def add(self, found: tuple[Any, list[Finding]]) -> Any:
        """Keep the findings of an answer under the question that is being asked; return the answer itself."""
        self.kept.findings.setdefault(self._question, []).extend(found[1])
        return found[0]

    # --- what answers are made of --------------------------------------------------------------------------------

    @property
    def library(self) -> Library:
        """Return what all coalitions share of the algebra, made on first use."""
        library = self._library or algebra.library_of(self.case)
        self._library = library if self.turns <= MOST_HELD_TURNS else None
        return library

    @property
    def turns(self) -> int:
        params = self.case.card.params
        return params.n_users * params.iterations

    def truth(self, attackers: Iterable[choosing.Coalition]) -> Truth:
        """Return what attacks are scored against; `attackers` are all coalitions of the audit that attack."""
        alone = sum(len(members) == 1 for members in attackers)
        if self._truth is None or self._truth[0] != alone:
            from sim.audit.attacks.coalition_views import Truth, iterations_attacked  # slow to import

            truth = Truth(self.case, iterations_attacked(self.case.card.params), alone)
            if self.turns > MOST_HELD_TURNS:
                return truth
            self._truth = alone, truth
        return self._truth[1]

    def without_algebra(self) -> list[choosing.Coalition]:
        """List the coalitions that can be chosen without the algebra."""
        servers = self.case.card.scheme.servers
        return [*((server,) for server in servers), choosing.ordered(self.case, servers)]

    def remember(self, name: str, make: Callable[[], Any]) -> Any:
        """Return the JSON that `make` made from the answers, now or earlier; a new answer makes it forgotten."""
        if name not in self.kept.memos:
            self.kept.memos[name] = jsonable(make())
            self._save()
        return self.kept.memos[name]

    # --- the document --------------------------------------------------------------------------------------------

    def _document(self, questions: Sequence[str], extra: Sequence[choosing.Coalition]) -> dict[str, Any]:
        """Build the document for `questions` and, beyond the default coalitions, for `extra` alone."""
        case, kept, names = self.case, self.kept, self.names
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
        shown_rows = rows and [row for row in rows if tuple(row["members"]) not in left_out]
        open_ends = [row for question in questions for row in kept.unshown.get(question, ())]
        return {
            "run": str(case.folder),
            "scheme": scheme.name,
            "verdict": verdict(findings, scheme.known_weaknesses),
            "abort": _abort_of(case.folder),
            "published_claim": self._claim(),
            "parties": [
                row | {"names": [names.user(member) for member in row["members"]]}
                for row in verdict_rows(case, solved, answers.get("inventory"), findings)
            ],
            "findings": [
                {**dataclasses.asdict(finding), "coalition": list(finding.coalition), "question": question}
                | {"beyond": goes_beyond(finding, scheme.known_weaknesses)}
                | {"victims": name_victims(finding, solved, names)}
                for finding, question in found
            ],
            "inventory": answers.get("inventory"),
            "coalitions": shown_rows,
            "party_pairs": kept.party_pairs if rows else None,
            "attacks": answers.get("attacks"),
            "accounting": answers.get("accounting"),
            "pairs": answers.get("pairs"),
            "empirical": answers.get("empirical"),
            "statistics": answers.get("statistics"),
            "known_weaknesses": scheme.weakness_ids(),
            "weaknesses": [one.document() for one in scheme.weaknesses()],
            "cheat": self.cheat(),
            "questions": {question: kept.seconds[question] for question in questions},
            "unanswered": unanswered,
            "not_shown": [*not_shown(answers | {"algebra": shown_rows}, unanswered), *open_ends],
            "nothing_to_ask": idle,
            "false_alarm": sum(kept.alarms[question] for question in answers if question not in missing),
        }

    def cheat(self) -> dict[str, Any] | None:
        """Return what the party that cheats learned, what it cost and who noticed; None if all are honest."""
        if not self.case.card.cheat or self.part:
            return None
        if self._cheat is None:
            from sim.audit.cheating.cheat_audit import audit_cheat  # an honest run needs none of it

            self._cheat = jsonable(audit_cheat(self.case))
        return self._cheat

    def _claim(self) -> dict[str, Any]:
        """Judge the published claim by every known answer, including those of earlier audits."""
        kept = self.kept
        known = [question for question in QUESTIONS if question in kept.seconds]
        findings = [finding for question in known for finding in kept.findings.get(question, ())]
        silent = {**kept.unanswered, **kept.idle}
        missing = [question for question in QUESTIONS if question not in known or question in silent]
        accounting, empirical = (kept.answers.get(question) for question in ("accounting", "empirical"))
        return published_claim(self.case, accounting, empirical, findings, missing, silent)


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


def _abort_of(folder: Path) -> str | None:
    """Return the reason for which the run aborted; None if it did not, or if the summary is unreadable."""
    try:
        summary = read_summary(folder)
    except BadInput:  # damaged: `keyhole verify` reports it
        return None
    return None if summary is None or summary["abort"] is None else str(summary["abort"]["reason"])


def _describe_part(part: int | None) -> str | None:
    """Describe the part of a run that a quick audit covered; None means all of it."""
    if part is None:
        return None
    views = "the servers' views alone and " if part == 1 else ""
    return f"{views}the first {f'{part} iterations' if part > 1 else 'iteration'}"


# --- in passing -------------------------------------------------------------------------------------------------------


def brief(summary: dict[str, Any]) -> dict[str, Any] | str:
    """Answer at the end of a run what can be answered quickly, or say in a sentence why there is no audit.

    Only the first iterations of a large run are covered.
    """
    run = Path(summary["run"])
    try:
        live = Audit(run)
        whole = all(live.case.path(party).is_file() for party in live.case.parties)
        part = _part_of(live.case, summary)
        document = live.ask(only=QUICK if whole else OF_SERVERS, part=part)
        if whole and part != 1:
            _add_guesses(document, live.case, part or summary["iterations"])
        return document
    except (BadInput, Broken) as reason:
        return f"Not audited: {reason}"


def _add_guesses(document: dict[str, Any], case: Case, iterations: int) -> None:
    """Add to the servers' row the share of ratings that can be guessed from one noisy gradient each."""
    from sim.audit.attacks.attack import guess_ratings  # slow to import

    for row in document["parties"] or ():
        if row["determines"] == "noisy-individual" and set(row["members"]) == set(case.card.scheme.servers):
            for finding in guess_ratings(case, tuple(row["members"]), iterations):
                found, chance = finding.measured, finding.chance
                if isinstance(found, dict) and isinstance(chance, dict) and found.get("ratings", 0) >= FEW:
                    guessed, blind = found["accuracy"], chance["accuracy"]
                    row["measured"] = [f"from one each {guessed:.0%} of ratings are guessed, blindly {blind:.0%}"]


def _part_of(case: Case, summary: dict[str, Any]) -> int | None:
    """Return the number of iterations that can be audited quickly; None means all of them."""
    from sim.audit.questions import numbers_of  # slow to import

    fitting: int = max(1, MOST_IN_PASSING // max(1, summary["ratings"]["train"]))
    if fitting < summary["iterations"]:
        return fitting
    return 1 if numbers_of(case) > MOST_IN_VECTORS else None
