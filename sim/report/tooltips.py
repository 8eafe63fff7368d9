"""The glossary on the page: a tooltip at the first mention of a term in each section, and all of them at the end."""

from __future__ import annotations

import re

from markupsafe import Markup, escape

from sim.console.glossary import TERMS, Term, find_term
from sim.report.section import Section, render

_IN = {"p", "li", "dd"}  # running text
_NOT_IN = {"a", "svg", "code", "pre", "button", "summary", "label", "strong", "figcaption", "form"}
_VOID = {"br", "input", "img", "hr"}
_NAMES = sorted((name for term in TERMS.values() for name in (term.name, *term.aliases)), key=len, reverse=True)
_MENTION = re.compile(rf"(?<![\w-])({'|'.join(map(re.escape, _NAMES))})(s?)(?![\w-])", re.IGNORECASE)
_TAG = re.compile(r"(<[^>]*>)")


def explained(html: Markup) -> Markup:
    """Link the first mention of each term: its tooltip gives the meaning, its target more."""
    seen: set[str] = set()
    inside: list[str] = []
    parts = _TAG.split(str(html))
    for place, part in enumerate(parts):
        if part.startswith("<"):
            _follow(inside, part)
        elif not _NOT_IN.intersection(inside) and _IN.intersection(inside):
            parts[place] = _MENTION.sub(lambda found: _linked(found, seen), part)
    return Markup("".join(parts))  # every part was escaped before


def _follow(inside: list[str], tag: str) -> None:
    name = re.split(r"[\s/>]", tag.lstrip("</"), maxsplit=1)[0].lower()
    if tag.startswith("</"):
        while inside and inside.pop() != name:
            pass
    elif not tag.endswith("/>") and not tag.startswith("<!") and name not in _VOID:
        inside.append(name)


def _linked(found: re.Match[str], seen: set[str]) -> str:
    term = find_term(found[1])
    if term.name in seen:
        return found[0]
    seen.add(term.name)
    tip = f"{term.name}: {term.line}"
    link = Markup('<a class="term" href="#{}" title="{}" data-tip="{}">').format(key_of(term), tip, tip)
    return f"{link}{found[0]}</a>"


def key_of(term: Term) -> str:
    return f"word-{escape(term.name)}"


def glossary() -> Section:
    terms = [(key_of(term), term) for term in TERMS.values()]
    return Section("words", "Words", render("words.html", terms=terms))
