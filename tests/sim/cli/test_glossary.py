"""`keyhole explain` and `keyhole schemes`: words in plain sentences, and schemes that fit 80 columns."""

from __future__ import annotations

import json
import re

import pytest
from markupsafe import Markup

from protocol.schemes import SCHEMES
from sim import api
from sim.audit.findings import IDS
from sim.cli.commands import COMMANDS
from sim.console.glossary import BASICS, FINDINGS, TERMS, find_term
from sim.report.tooltips import explained
from tests.sim.cli.test_cli import keyhole, refused

STABLE = {
    "undeclared-field", "known-envelope", "known-shares", "missing-noise", "composition", "support",
    "single-contributor", "released-sums", "difference-attack", "unmasking", "moving-user-factors",
    "reacting-user-factors", "diluted-sum", "mask-uniformity", "rating-inference", "membership", "uniform-noise",
    "sensitivity", "shape", "pair-epsilon", "interference", "own-randomness",
}  # fmt: skip
WORDS = [
    "release", "envelope", "mask", "ring", "contributor", "floor", "canary", "seal", "anchor", "view", "coalition",
    "claim",
]  # fmt: skip


def test_the_dozen_words_are_there_with_two_or_three_sentences_each():
    assert list(TERMS) == WORDS
    for term in TERMS.values():
        assert len(re.findall(r"[.](?:\s|$)", term.meaning)) in (2, 3) and len(term.meaning) < 400
        assert term.for_you.endswith(".") and len(term.line) < 65


def test_what_a_newcomer_asks_besides_is_explained_in_one_to_three_sentences():
    assert list(BASICS) == ["epsilon", "gradient", "noise", "aggregate", "declared"]
    for term in (*BASICS.values(), *FINDINGS.values()):
        assert len(re.findall(r"[.](?:\s|$)", term.meaning)) in (1, 2, 3) and len(term.meaning) < 400
        assert term.for_you.endswith(".") and len(term.line) < 80
    assert find_term("ε") is find_term("epsilons") is BASICS["epsilon"]
    assert find_term("weaknesses") is find_term("leakage") is BASICS["declared"]


def test_every_finding_of_the_audit_is_explained_by_its_id():
    assert STABLE <= IDS  # scripts depend on them: none goes away
    for name in IDS:
        assert keyhole("explain", name).stdout.startswith(f"{name}: ") and api.explain(name)["name"] == name
    declared = {name for scheme in SCHEMES.values() for name in scheme.known_weaknesses}
    assert declared <= set(FINDINGS)
    assert find_term("released sums").name == "released-sums" and find_term("released sum").name == "release"


def test_findings_are_listed_apart_and_are_no_links_on_the_page():
    words, _, last = keyhole("explain").stdout.partition("Findings of an audit are explained too: ")
    assert last.rstrip().removesuffix(".").replace(",", "").split() == list(FINDINGS)
    assert not any(line.startswith(name) for line in words.splitlines() for name in IDS)
    text = f"<p>{', '.join([*IDS, *BASICS])}</p>"
    assert str(explained(Markup(text))) == text


def test_a_scheme_says_where_its_weaknesses_are_explained():
    last = keyhole("schemes", "masked").stdout.splitlines()[-1]
    assert last.startswith("A weakness is explained by: keyhole explain ID")


def test_every_command_that_a_word_names_is_one():
    for term in (*TERMS.values(), *BASICS.values(), *FINDINGS.values()):
        assert term.command.split()[0] == "keyhole" and term.command.split()[1] in COMMANDS


@pytest.mark.parametrize(("word", "name"), [("Masks", "mask"), ("published claim", "claim"), ("COLLUDER", "coalition")])
def test_plurals_and_other_names_are_understood(word, name):
    assert find_term(word).name == name
    assert keyhole("explain", *word.split()).stdout.startswith(f"{name}: ")


def test_without_a_word_all_are_listed_and_an_unknown_one_gets_the_nearest():
    printed = keyhole("explain").stdout
    assert all(f"\n{name} " in f"\n{printed}" for name in WORDS)
    refused(keyhole("explain", "canery"), 2, "canery", "did you mean canary")
    refused(keyhole("explain", "xyzzy"), 2, "keyhole explain lists")
    assert api.explain("ring")["command"].startswith("keyhole ")


@pytest.mark.parametrize("name", [None, *SCHEMES])
def test_schemes_fit_80_columns_and_no_name_of_theirs_is_broken(name):
    printed = keyhole("schemes", *([name] if name else []), columns=80).stdout
    assert max(map(len, printed.splitlines())) <= 80
    words = set(re.split(r"[\s,=]+", printed))
    if name is None:
        assert set(SCHEMES) <= words
        return
    assert set(SCHEMES[name].known_weaknesses) <= words and set(SCHEMES[name].options) <= words
    assert json.loads(keyhole("schemes", name, "--json").stdout)["name"] == name


def test_an_unknown_scheme_gets_the_nearest():
    refused(keyhole("schemes", "dynamc"), 2, "did you mean dynamic")
    refused(keyhole("schemes", "xyzzy"), 2, "plain", "module:Class")
    refused(keyhole("schemes", "nowhere_at_all:X"), 2, "cannot be imported")
    assert json.loads(keyhole("schemes", "example_shares:Shares", "--json").stdout)["name"] == "shares"
