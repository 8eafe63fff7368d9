"""The READMEs agree with the code: generated tables, links, files that they name, lengths."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tables import BLOCK, ROOT, TABLES, keys_of, readmes

MOST_LINES = 200
ROOMS = ("protocol", "actors", "sim", "sim/experiments", "tests")
PROSE = {path: path.read_text("utf-8") for path in readmes()}
LINK = re.compile(r"\]\(([^)\s]+)\)")
FILE = re.compile(r"\b((?:tests|protocol|sim|actors)/[\w/]+\.\w+)")


def anchors(text: str) -> set[str]:
    """Find the anchors that GitHub gives to the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", text, re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_front_page_is_short_and_every_room_has_its_own():
    assert len(PROSE[ROOT / "README.md"].splitlines()) <= MOST_LINES
    for room in ROOMS:
        assert PROSE[ROOT / room / "README.md"].startswith(f"# {room}/\n\nA ")


@pytest.mark.parametrize("name", TABLES)
def test_a_generated_table_is_what_the_code_says(name):
    found = [match[0] for text in PROSE.values() for match in BLOCK.finditer(text) if match[2] == name]
    made = f"<!-- table: {name} -->\n{TABLES[name]()}\n<!-- end -->"
    assert found == [made], "python tests/house/tables.py writes the tables anew"


def test_no_block_is_of_an_unknown_table():
    names = [match[2] for text in PROSE.values() for match in BLOCK.finditer(text)]
    assert sorted(names) == sorted(TABLES)


@pytest.mark.parametrize("path", PROSE, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_leads_somewhere(path):
    links = [link for link in LINK.findall(PROSE[path]) if not link.startswith("http")]
    for link in links:
        file, _, anchor = link.partition("#")
        target = path.parent / file if file else path
        assert target.exists(), link
        assert not anchor or anchor in anchors(target.read_text("utf-8")), link


@pytest.mark.parametrize("path", PROSE, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_file_that_is_named_is_there(path):
    named = {name for name in FILE.findall(PROSE[path]) if not re.search(r"my_|NAME|FAMILY", name)}
    assert not [name for name in named if not (ROOT / name).exists()]


def test_keys_of_a_document_are_listed_once_and_names_are_not_fields():
    document = {"a": 1, "b": [{"c": 1}, {"d": {"e": {"f": 1}}}], "by": {"user:0": 1}, "none": {}}
    assert keys_of(document) == "{a, b: [{c, d: {…}}], by: {…}, none}"
    assert Path(__file__).name not in keys_of({})
