"""One entry of the glossary: what a word means, for whom, and which command shows it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Term:
    name: str
    line: str  # in a list
    meaning: str  # one to three sentences
    for_you: str  # what it means for the person whose ratings these are
    command: str  # that shows it
    aliases: tuple[str, ...] = ()
