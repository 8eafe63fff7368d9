"""The page of planted faults says what the lists say: every fault has a row, and every count is that of the rows."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

AUDIT = Path(__file__).parents[1]
sys.path.insert(0, str(AUDIT))
import fault_table  # noqa: E402

from sim.audit.findings import QUESTIONS  # noqa: E402

PAGE = (AUDIT / "README.md").read_text("utf-8")
ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in PAGE.splitlines() if line.startswith("| ")]


def parsed() -> list[fault_table.Row]:
    rows = []
    for name, module, *marks, found in ROWS[2:]:
        hits = sorted(question for question, mark in zip(QUESTIONS, marks, strict=True) if mark)
        rows.append(fault_table.Row(name, module, hits, found if found.startswith("not shown") else ""))
    return rows


def test_the_page_has_a_row_for_every_fault_and_for_no_other():
    assert ROWS[0] == ["fault", "where", *QUESTIONS, "found"]
    assert [(module, name) for name, module, *_ in ROWS[2:]] == list(fault_table.faults())
    named = {*fault_table.SOUND, *fault_table.FLAGS, *fault_table.ELSEWHERE}
    assert named <= {name for _, name in fault_table.faults()}


def test_the_page_is_what_its_own_rows_and_the_lists_make():
    """Only what was measured is read from it: the marks, the alarms, and how many runs lost users."""
    (lossy,) = map(int, re.findall(r"processes; (\d+) of", PAGE))
    (alarms,) = map(int, re.findall(r"(\d+) are called beyond", PAGE))
    assert fault_table.page_of(parsed(), alarms, lossy) == PAGE
    assert alarms == 0 and lossy >= 3
    assert not [row for row in parsed() if fault_table.said(row) in ("**no**", "**alarm**")]


@pytest.mark.parametrize("name", ["DerivedKey", "SumsAsFloats", "LateForOne"])
def test_a_row_is_made_by_an_audit_of_its_fault(name):
    (written,) = [row for row in parsed() if row.name == name]
    assert fault_table.row_of(written.module, name).hits == written.hits
