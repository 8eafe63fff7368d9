"""Memory before the forks: holes are filled, and functions that run lie together and do the same as before."""

from __future__ import annotations

import subprocess
import sys

import pytest

from actors.launch.memory_layout import bring_together, code_of

PAGES = """
import ctypes, sys
from actors.launch.memory_layout import fill_holes
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_size_t, [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_size_t]
objects = [bytes(100) for _ in range(40_000)]
blocks = [libc.malloc(3000) for _ in range(2000)]
del objects[::20]
for block in blocks[::4]:
    libc.free(block)
if sys.argv[1] == "fill":
    fill_holes()
small = [bytes(100) for _ in range(1000)]
large = [libc.malloc(3000) for _ in range(200)]
print(len({id(one) >> 12 for one in small}), len({block >> 12 for block in large}))
"""


def pages(how: str) -> tuple[int, int]:
    """Count the pages that 1000 objects of 133 bytes and 200 blocks of 3000 bytes occupy, in memory with many holes."""
    done = subprocess.run([sys.executable, "-c", PAGES, how], capture_output=True, text=True, check=True)
    small, large = map(int, done.stdout.split())
    return small, large


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing is filled")
def test_what_comes_after_filling_the_holes_lies_close_together():
    small, large = pages("fill")
    assert small <= 45, "1000 blocks of 144 bytes are 36 pages"
    assert large <= 160, "200 blocks of 3008 bytes are 147 pages"
    small, large = pages("leave")
    assert small > 200 and large > 180, "with the holes they are spread"


def _double(number: int) -> int:
    return 2 * number


def _triple(number: int) -> int:
    return 3 * number


def test_only_what_ran_is_moved_and_it_does_the_same():
    before, other = _double.__code__, _triple.__code__
    ran = code_of(lambda: _double(1))
    assert id(before) in ran and id(other) not in ran
    bring_together(ran)
    assert _double.__code__ is not before and _triple.__code__ is other
    assert [_double(4), _triple(4)] == [8, 12]
    assert sys.getprofile() is None
