"""`keyhole explain` and `keyhole schemes`: words in plain sentences, and schemes that fit 80 columns."""

from __future__ import annotations

import json
import re

import pytest
from test_cli import keyhole, refused

from protocol.schemes import SCHEMES
from sim import api
from sim.cli import app
from sim.glossary import TERMS, find_term

WORDS = [
    "release", "envelope", "mask", "ring", "contributor", "floor", "canary", "seal", "anchor", "view", "coalition",
    "claim",
]  # fmt: skip


def test_the_dozen_words_are_there_with_two_or_three_sentences_each():
    assert list(TERMS) == WORDS
    for term in TERMS.values():
        assert len(re.findall(r"[.](?:\s|$)", term.meaning)) in (2, 3) and len(term.meaning) < 400
        assert term.for_you.endswith(".") and len(term.line) < 65


def test_every_command_that_a_word_names_is_one():
    import typer

    commands = typer.main.get_command(app).commands
    for term in TERMS.values():
        assert term.command.split()[0] == "keyhole" and term.command.split()[1] in commands


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
