"""The answers of an audit, kept in the run folder (`audit.json`) and reused by later audits.

They are reused only if this account wrote them (`sim/folder/sealed.py`) for the same files, code and settings;
otherwise every question is asked again. `audit.json` is the document of `audit --json` over everything asked so far;
its key `kept` holds what a later audit needs to continue.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sim.audit.algebra.grade import Answer
from sim.audit.algebra.solve import Solved
from sim.audit.findings import Finding
from sim.folder import sealed
from sim.foreign import untrusted
from sim.views.evidence import Case, open_case

FILE, PURPOSE = "audit.json", "audit"
BESIDE = ("run.toml", "names.json")  # files besides the views that an answer depends on
FORMAT = 3


@dataclass(slots=True)
class Kept:
    """Answers found so far, by question."""

    answers: dict[str, Any] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    findings: dict[str, list[Finding]] = field(default_factory=dict)
    alarms: dict[str, float] = field(default_factory=dict)  # probability of calling a correct run beyond its claims
    unanswered: dict[str, str] = field(default_factory=dict)  # question -> reason
    unshown: dict[str, list[Any]] = field(default_factory=dict)  # question -> rows that its answer does not imply
    idle: dict[str, str] = field(default_factory=dict)  # question -> reason that it does not apply to this run
    solved: list[Solved] = field(default_factory=list)
    party_pairs: dict[str, int] | None = None  # how many pairs of parties the algebra tried, and of how many
    extra: list[tuple[str, ...]] = field(default_factory=list)  # coalitions beyond the default ones
    memos: dict[str, Any] = field(default_factory=dict)  # JSON that follows from the answers: what a page adds to them

    def drop(self, question: str) -> None:
        """Forget the answer to `question`, because it is asked again."""
        for held in (self.answers, self.seconds, self.alarms, self.findings, self.unanswered, self.unshown, self.idle):
            held.pop(question, None)


def key_of(case: Case, colluders: int, repetitions: int, pairs: int, canaries: int) -> dict[str, Any]:
    """Return everything that an answer depends on.

    Files are digested whole, because a changed record leaves the head of its view unchanged. Raises `OSError` or
    `ValueError` if a file cannot be read; the audit then says which.
    """
    digest = hashlib.sha256()
    beside = [name for name in BESIDE if (case.folder / name).exists()]
    for name in sorted([*untrusted.view_files(case.folder), *beside]):
        with untrusted.open_inside(case.folder, name) as stream:
            one = hashlib.sha256()
            while part := stream.read(untrusted.BUFFER):
                one.update(part)
            digest.update(os.fsencode(f"{name}\n") + one.digest())
    return {
        "format": FORMAT,
        "code": sealed.code_version(),
        "files": digest.hexdigest(),
        "scheme": case.config.scheme,
        "colluders": colluders,
        "repetitions": repetitions,
        "pairs": pairs,
        "canaries": canaries,
    }


def load(case: Case, key: dict[str, Any]) -> Kept:
    """Load the kept answers; none if the file is missing, not written by this account, or has another `key`."""
    document = sealed.read(case.folder, FILE, PURPOSE)
    if document is None or document["kept"]["key"] != key:
        return Kept()
    held = document["kept"]
    kept = Kept(seconds=document["questions"], unanswered=document["unanswered"], idle=document["nothing_to_ask"])
    kept.answers = {question: document[place] for question, place in _places(kept.seconds)}
    names = [one.name for one in dataclasses.fields(Finding)]
    for row in document["findings"]:
        finding = Finding(**{name: row[name] for name in names} | {"coalition": tuple(row["coalition"])})
        kept.findings.setdefault(row["question"], []).append(finding)
    kept.solved = [_solved(one) for one in held["solved"]]
    kept.extra, kept.memos = [tuple(members) for members in held["extra"]], held["memos"]
    kept.alarms, kept.unshown, kept.party_pairs = held["alarms"], held["unshown"], held["party_pairs"]
    return kept


def kept_document(folder: Path) -> dict[str, Any] | None:
    """Return the document of the audits so far; None unless this account can vouch for it."""
    document = sealed.read(folder, FILE, PURPOSE)
    if document is None:
        return None
    key = document.pop("kept")["key"]
    settings = (key[name] for name in ("colluders", "repetitions", "pairs", "canaries"))
    same = key == key_of(open_case(folder, unloaded=True), *settings)
    return document if same else None


def save(case: Case, key: dict[str, Any], document: dict[str, Any], kept: Kept) -> None:
    solved = [dataclasses.asdict(one) for one in kept.solved]
    for one in solved:
        one["answer"]["noises"] = sorted(one["answer"]["noises"])
    held: dict[str, Any] = {"key": key, "solved": solved, "extra": kept.extra, "memos": kept.memos}
    held |= {"alarms": kept.alarms, "unshown": kept.unshown, "party_pairs": kept.party_pairs}
    sealed.write(case.folder / FILE, PURPOSE, {**document, "kept": held})


def _places(questions: Iterable[str]) -> list[tuple[str, str]]:
    return [(question, {"algebra": "coalitions"}.get(question, question)) for question in questions]


def _solved(one: dict[str, Any]) -> Solved:
    answer = {**one["answer"], "noises": frozenset(one["answer"]["noises"]), "clear": tuple(one["answer"]["clear"])}
    return Solved(tuple(one["members"]), Answer(**answer), one["stands_for"], one["extra"], one["sample"])
