"""The run folder: `run.toml`, `summary.json`, `iterations.jsonl`, `bandwidth.json`, `views/`, `model/`.

It belongs to the auditor.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import math
import os
import platform
import shutil
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import tomli_w

from actors.journal import view_path
from actors.keys import write_private
from protocol.errors import BadInput
from protocol.schemes import find_scheme
from protocol.seating import Card
from sim.config import RunConfig

FORMAT = 1


def jsonable(value: Any) -> Any:
    """JSON without NaN or Infinity: infinity is "inf", what is not a number is null; bytes become hexadecimal."""
    if isinstance(value, dict):
        return {str(key): jsonable(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [jsonable(entry) for entry in value]
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else "inf" if value > 0 else "-inf"
    return value


def open_private(path: Path) -> TextIO:
    """To write at its end; only the owner can read it."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "a", encoding="utf-8")


def new_folder(out: Path | None, scheme: str, force: bool) -> Path:
    """A fresh private folder; `--force` replaces an earlier run, and nothing that is not one."""
    folder = out or Path("runs") / f"{time.strftime('%Y%m%d-%H%M%S')}-{scheme.replace(':', '-')}"
    if folder.exists():
        empty = folder.is_dir() and not any(folder.iterdir())
        if not empty and not force:
            raise BadInput(f"{folder} exists already: choose another --out, or replace that run with --force.")
        if not empty and not (folder / "run.toml").is_file():
            raise BadInput(f"{folder} is not a run, so --force will not replace it: choose another --out.")
        if not empty:
            with locked(folder):
                pass  # nobody works in it
        shutil.rmtree(folder)
    try:
        folder.mkdir(mode=0o700, parents=True)
    except OSError as error:
        raise BadInput(f"Cannot make the folder {folder}: {error.strerror}.") from error
    return folder


@contextlib.contextmanager
def locked(folder: Path, patience: float = 0.0, shared: bool = False) -> Iterator[int]:
    """Alone in this run: the descriptor is handed on to every actor, so that the lock holds as long as one lives.

    `patience`: seconds to wait for the last actors of a launcher that was killed; they end by themselves.
    `shared`: with other actors that were started by hand.
    """
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        take_lock(lock, folder, fcntl.LOCK_SH if shared else fcntl.LOCK_EX, patience)
        yield lock
    finally:
        os.close(lock)


def take_lock(file: int, folder: Path, kind: int, patience: float = 0.0) -> None:
    until = time.monotonic() + patience
    while True:
        try:
            fcntl.flock(file, kind | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() >= until:
                raise BadInput(f"A process of {folder} still lives: wait for it, or stop that run first.") from None
            time.sleep(0.05)


def describe_platform() -> dict[str, str]:
    """What decides the last bits of floating-point results."""
    features = np.__config__.show(mode="dicts") or {}
    return {
        "python": platform.python_version(),
        "system": platform.platform(),
        "machine": platform.machine(),
        "numpy": np.__version__,
        "blas": str(features.get("Build Dependencies", {}).get("blas", {}).get("name", "unknown")),
        "cpu_features": " ".join(features.get("SIMD Extensions", {}).get("found", [])),
    }


def write_run(folder: Path, config: RunConfig, card: Card, nonce: bytes) -> None:
    settings = {name: value for name, value in dataclasses.asdict(config).items() if value is not None}
    settings["seed"] = str(settings["seed"])
    document = {
        "format": FORMAT,
        "simulation": card.simulation,
        "nonce": nonce.hex(),
        "run_id": card.run_id.hex(),
        "run": settings,
        "params": dataclasses.asdict(card.params),
        "platform": describe_platform(),
    }
    write_private(folder / "run.toml", tomli_w.dumps(document))


def write_names(folder: Path, users: tuple[str, ...], items: tuple[str, ...]) -> None:
    """Which identifier of the data is user:17, and which is row 3 of the item factors."""
    write_private(folder / "names.json", json.dumps({"users": users, "items": items}, ensure_ascii=False) + "\n")


def read_run(folder: Path) -> tuple[dict[str, Any], Card]:
    """(the document, the card) of a run folder."""
    try:
        with (folder / "run.toml").open("rb") as file:
            document = tomllib.load(file)
        scheme = find_scheme(document["run"]["scheme"])
        card = Card(
            scheme,
            scheme.params_class(**document["params"]),
            bytes.fromhex(document["run_id"]),
            document["simulation"],
        )
    except OSError:
        words = "is not the folder of a run, it has no run.toml that can be read: name one that keyhole run made."
        raise BadInput(f"{folder} {words}") from None
    except (tomllib.TOMLDecodeError, KeyError, TypeError, ValueError) as error:
        raise BadInput(f"{folder}/run.toml is damaged ({error}).") from error
    if document.get("format") != FORMAT:
        raise BadInput(f"{folder} has format {document.get('format')}; this Keyhole reads format {FORMAT}.")
    return document, card


def view_file(folder: Path, party: str) -> Path:
    path = Path(view_path(str(folder), party))
    if not path.is_file():
        raise BadInput(f"{folder} has no view of {party}: see --views of keyhole run, and the names in {folder}/views.")
    return path


def read_summary(folder: Path) -> dict[str, Any] | None:
    """None if the run has not come to one."""
    try:
        summary = json.loads((folder / "summary.json").read_text("utf-8"))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise BadInput(f"{folder}/summary.json is damaged ({error}): remove it and resume the run again.") from error
    return summary if isinstance(summary, dict) else None


def write_summary(folder: Path, summary: dict[str, Any]) -> None:
    replace_private(folder / "summary.json", json.dumps(summary, indent=1, allow_nan=False) + "\n")


def write_bandwidth(folder: Path, document: dict[str, Any]) -> None:
    """One line for each row: there may be many."""
    parts = [f"{json.dumps(key)}: {_by_line(value)}" for key, value in document.items()]
    replace_private(folder / "bandwidth.json", "{" + ",\n".join(parts) + "}\n")


def _by_line(value: Any) -> str:
    if not isinstance(value, list) or not value:
        return json.dumps(value, allow_nan=False)
    return "[\n" + ",\n".join(json.dumps(row, allow_nan=False) for row in value) + "\n]"


def replace_private(path: Path, text: str) -> None:
    """In one step, so that a reader never sees half of it; only its owner can read it."""
    part = path.with_name(f"{path.name}.part")
    part.unlink(missing_ok=True)
    try:
        write_private(part, text)
        os.replace(part, path)
    except OSError:
        with contextlib.suppress(OSError):  # a file system that cannot be written has no part either
            part.unlink()
        raise
