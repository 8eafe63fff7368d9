"""The list of guards in `guards.py` fits the code: each guard is in its file, once."""

from __future__ import annotations

import pytest
from guards import GUARDS, ROOT


@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: guard.what)
def test_every_guard_of_the_list_stands_once_in_its_file(guard):
    assert (ROOT / guard.file).read_text("utf-8").count(guard.guard) == 1
    assert guard.without != guard.guard
    files = [argument for argument in guard.tests.split() if argument.startswith("tests/")]
    assert files and all((ROOT / file).is_file() for file in files)
