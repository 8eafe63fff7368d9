"""The terms of Keyhole that a newcomer may not know: what each means, what it means for the user, and where to see it.

The texts are data (`glossary.json`): `keyhole explain` shows all of them, the page and the README only the dozen in
`TERMS`. Findings stand under the stable ids of `sim.audit.findings`, in the order of a reader: leaks of messages, then
of noise, of sums, of uploads, and of proofs.
"""

from __future__ import annotations

import difflib
import json
from dataclasses import dataclass
from pathlib import Path

from protocol.errors import BadInput


@dataclass(frozen=True, slots=True)
class Term:
    name: str
    line: str  # the short form, for lists: 80 characters at most
    meaning: str  # one to three sentences
    for_you: str  # what it means for the person whose ratings these are
    command: str  # the command that shows it
    aliases: tuple[str, ...] = ()


_TEXTS = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
TERMS, BASICS, FINDINGS = (
    {term["name"]: Term(**term | {"aliases": tuple(term.get("aliases", ()))}) for term in _TEXTS[part]}
    for part in ("terms", "basics", "findings")  # basics are too frequent for a link at each mention
)
_NAMES = {name: term for term in (TERMS | BASICS).values() for name in (term.name, *term.aliases)}
_NAMES |= {name.replace("-", " "): term for name, term in FINDINGS.items()}


def find_term(word: str) -> Term:
    """Find a term or a finding by its name, an alias or a plural; `BadInput` suggests the nearest match."""
    asked = " ".join(word.lower().replace("-", " ").replace("_", " ").split())
    for name in (asked, asked.removesuffix("es"), asked.removesuffix("s")):
        if name in _NAMES:
            return _NAMES[name]
    near = [_NAMES[name].name for name in difflib.get_close_matches(asked, _NAMES, 1, 0.5)]
    hint = f"did you mean {near[0]}?" if near else "keyhole explain lists the terms."
    raise BadInput(f"The glossary has no {word!r}: {hint}")
