"""Tell an error in a person's own scheme from a bug in Keyhole, and show it by the lines of that scheme.

A traceback holds names and lines of code and no values; anything that may be a key or a seed is removed from the
exception's message. The length is bounded, because the text is sent in a process's report.
"""

from __future__ import annotations

import re
import sys
import sysconfig
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

from actors.source_root import ROOT
from protocol.errors import During, SchemeFailed
from protocol.schemes import find_scheme, is_ours, own_schemes

if TYPE_CHECKING:
    from protocol.schemes import Scheme

_MOST_WORDS, _MOST_FRAMES, _LAST_FRAMES = 400, 20, 4
_SECRET = re.compile(r"""\bb(['"]).*?(?<!\\)\1|(?<![0-9A-Za-z])[0-9a-fA-F]{32,}""", re.S)  # bytes
_KEYHOLE = tuple(f"{ROOT}/{name}/" for name in ("protocol", "actors", "sim"))
_INSTALLED = tuple(f"{sysconfig.get_paths()[name]}/" for name in ("stdlib", "platstdlib", "purelib", "platlib"))


def is_own(scheme: Scheme) -> bool:
    """Tell whether `scheme` is a person's own, not one of Keyhole's."""
    return not is_ours(scheme)


def scheme_failed(error: BaseException, scheme: Scheme | None = None) -> SchemeFailed | None:
    """Make a typed reason of an `error` that the code of `scheme` raised; None if `scheme` is one of Keyhole's.

    Without `scheme`, all schemes that a person has loaded are considered.
    """
    schemes = [find_scheme(name) for name in own_schemes()] if scheme is None else [scheme]
    schemes = [one for one in schemes if is_own(one)]
    own = _own_frames(error, schemes) if schemes else []
    if not schemes or (not own and isinstance(error, (MemoryError, RecursionError))):
        return None
    notes = [str(note) for note in getattr(error, "__notes__", ()) if isinstance(note, During)]
    who = notes[0] if notes else schemes[0].name
    return SchemeFailed(f"{who}: {_words(error)}", _trace(error, own))


def in_brief(error: BaseException) -> str:
    """Describe `error` in one line, with the place in code that is not Keyhole's."""
    own = _own_frames(error, [])
    at = f", in {own[-1].name} at {own[-1].filename}, line {own[-1].lineno}" if own else ""
    return f"{_words(error)}{at}"


def _words(error: BaseException) -> str:
    """Write `error` in one line, without anything that may be a key or a seed."""
    said = _SECRET.sub("…", " ".join(str(error).split()))
    said = said if len(said) <= _MOST_WORDS else f"{said[:_MOST_WORDS]}…"
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


def _own_frames(error: BaseException, schemes: list[Scheme]) -> list[traceback.FrameSummary]:
    """List the frames of files that are neither Keyhole's nor installed, and those of the packages of `schemes`."""
    modules = [sys.modules.get(type(scheme).__module__.partition(".")[0]) for scheme in schemes]
    places = [place for module in modules for place in getattr(module, "__path__", [getattr(module, "__file__", None)])]
    frames = traceback.extract_tb(error.__traceback__)
    return [frame for frame in frames if _is_own_file(frame.filename, [place for place in places if place])]


def _is_own_file(file: str, places: list[str]) -> bool:
    if file.startswith(("<", *_KEYHOLE)):
        return False
    installed = file.startswith(_INSTALLED) or "/dist-packages/" in file
    return not installed or any(Path(file).is_relative_to(place) for place in places)


def _trace(error: BaseException, own: list[traceback.FrameSummary]) -> str:
    """Format the frames `own` and the one that raised; the last few frames if `own` is empty."""
    every = list(traceback.extract_tb(error.__traceback__))
    frames = [*own, *every[-1:]] if own and own[-1] != every[-1] else own or every[-_LAST_FRAMES:]
    half = _MOST_FRAMES // 2
    lines = "".join(traceback.format_list(frames if len(frames) <= _MOST_FRAMES else [*frames[:half], *frames[-half:]]))
    return f"Traceback (most recent call last):\n{lines}{_words(error)}"
