"""A cache of answers that this account has computed; answers from other accounts are not believed.

A file is JSON with a message authentication code under a random key. The key lies in the account's cache folder and is
readable by its owner alone. A run folder may come from another account, so a file with a wrong code is ignored.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import hmac
import json
import os
import stat
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from actors.source_root import ROOT
from sim.data.ratings import cache_folder
from sim.folder.folder import replace_private
from sim.foreign import untrusted
from sim.foreign.plain_text import jsonable, numbers_again

KEY, KEY_BYTES = "answers.key", 32
CODE = "code"  # the entry with the authentication code
MOST_BYTES = 1 << 26


def read(folder: Path, name: str, purpose: str) -> dict[str, Any] | None:
    """Read the document that this account wrote for `purpose`; None if it is missing, or not from this account."""
    secret = _secret()
    if secret is None:
        return None
    try:
        document = untrusted.read_json(folder, name, MOST_BYTES)
    except (OSError, ValueError):
        return None
    if not isinstance(document, dict) or not isinstance(code := document.pop(CODE, None), str):
        return None
    with contextlib.suppress(ValueError, TypeError, UnicodeError):
        if hmac.compare_digest(code.encode(), _code(secret, purpose, document).encode()):
            return dict(numbers_again(document))
    return None


def write(path: Path, purpose: str, document: dict[str, Any]) -> bool:
    """Write `document`, readable by its owner alone; return False if that is not possible, which is no error."""
    secret = _secret()
    if secret is None:
        return False
    plain = jsonable(document)
    try:
        if not path.parent.is_dir():  # a run folder exists, a cache folder may not
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_private(path, json.dumps({**plain, CODE: _code(secret, purpose, plain)}, allow_nan=False) + "\n")
    except OSError:
        return False
    return True


def _code(secret: bytes, purpose: str, document: dict[str, Any]) -> str:
    text = json.dumps([purpose, document], sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hmac.new(secret, text.encode(), hashlib.sha256).hexdigest()


def _secret() -> bytes | None:
    """Return the key of this account, and make it on first use; None if there is no private place for it."""
    path = cache_folder() / KEY
    with contextlib.suppress(OSError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            made = path.with_name(f"{KEY}.{os.getpid()}")
            with os.fdopen(os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "wb") as file:
                file.write(os.urandom(KEY_BYTES))
            try:
                os.link(made, path)  # in one step, and only if there is no key yet
            finally:
                os.unlink(made)
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            found = os.fstat(file.fileno())
            private = stat.S_ISREG(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077
            secret = file.read(KEY_BYTES + 1)
            return secret if private and len(secret) == KEY_BYTES else None
    return None


@functools.cache
def code_version() -> str:
    """Digest Keyhole's version, its source and numpy's version, because other code may give other answers."""
    digest = hashlib.sha256(f"{metadata.version('keyhole')} {np.__version__}\n".encode())
    root = Path(ROOT)
    for package in ("protocol", "actors", "sim"):
        for path in sorted((root / package).rglob("*.py")):
            digest.update(f"{path.relative_to(root)}\n".encode() + path.read_bytes())
    return digest.hexdigest()
