"""Memory before the forks: holes are filled."""

from __future__ import annotations

import subprocess
import sys

import pytest

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
