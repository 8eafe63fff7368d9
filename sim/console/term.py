"""One entry of the glossary: what a word means, what it means for the user, and which command shows it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Term:
    name: str
    line: str  # the short form, for lists
    meaning: str  # one to three sentences
    for_you: str  # what it means for the person whose ratings these are
    command: str  # the command that shows it
    aliases: tuple[str, ...] = ()
