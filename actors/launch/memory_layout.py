"""Memory layout before the forks: data that a new process writes to is moved together, onto as few pages as possible.

Memory that was freed while libraries were loaded leaves holes everywhere. A process that puts its few objects and
arrays into them writes to hundreds of pages that it would otherwise share. It also writes to every function that it
calls, since a use changes the reference count; functions lie where they were loaded, among thousands that it never
calls.
"""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Callable
from types import CodeType, FrameType, FunctionType
from typing import Any

_LARGEST, _SMALLEST = 16, 5  # sizes of the C library's blocks, as powers of two: no hole is below 32 bytes
_HEADER = 8  # bytes of each block
_POOL, _ARENA = 1 << 14, 1 << 20  # bytes in Python's own allocator; all blocks of a pool have one size
_BLOCKS = range(512, 0, -16)
_MOST_BYTES = 1 << 21  # per size: blocks of the size of an int are never contiguous, as this code makes ints itself


class _Info(ctypes.Structure):
    _fields_ = (("other", ctypes.c_size_t * 9), ("top", ctypes.c_size_t))


def code_of(action: Callable[[], Any]) -> dict[int, CodeType]:
    """Run `action` and collect the code of every Python function that it runs in this thread, by identity."""
    ran: dict[int, CodeType] = {}

    def note(frame: FrameType, event: str, _: Any) -> None:
        ran.setdefault(id(frame.f_code), frame.f_code)

    sys.setprofile(note)
    try:
        action()
    finally:
        sys.setprofile(None)
    return ran


def bring_together(ran: dict[int, CodeType]) -> None:
    """Give the functions of `ran` contiguous copies of their code, which must run again to regain their speed."""
    for function in gc.get_objects():
        if type(function) is FunctionType and id(function.__code__) in ran:
            function.__code__ = function.__code__.replace()


def fill_holes() -> None:
    """Fill the holes in memory, permanently; does nothing with another C library or interpreter."""
    if sys.platform == "linux" and sys.implementation.name == "cpython":
        for size in _BLOCKS:
            _fill_pools(size, _POOL)
        _fill_pools(_BLOCKS[0], _ARENA)  # uses up the free pools too, so that a new arena begins
        _fill_heap()


def _fill_pools(size: int, whole: int) -> None:
    """Take blocks of `size` until nearly `whole` bytes of them are contiguous: that memory was a free pool or arena."""
    take = ctypes.pythonapi.PyObject_Malloc
    take.argtypes, take.restype = [ctypes.c_size_t], ctypes.c_size_t
    first = last = 0
    for _ in range(_MOST_BYTES // size):
        block = take(size)
        if not 0 < block - last <= 8 * size:  # the ints made here are objects too, and may lie between two blocks
            first = block
        last = block
        if last - first > 0.9 * whole:
            return


def _fill_heap() -> None:
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "mallinfo2"):
        return
    libc.mallinfo2.restype, libc.sbrk.restype, libc.malloc.restype = _Info, ctypes.c_size_t, ctypes.c_size_t
    libc.malloc.argtypes = libc.free.argtypes = [ctypes.c_size_t]
    top = libc.sbrk(0) - libc.mallinfo2().top
    for power in range(_LARGEST, _SMALLEST - 1, -1):
        while (block := libc.malloc(2**power - _HEADER)) < top:
            pass
        libc.free(block)
