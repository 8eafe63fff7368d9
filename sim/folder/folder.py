"""The run folder: `run.toml`, `summary.json`, `iterations.jsonl`, `bandwidth.json`, `views/`, `model/`.

It belongs to the auditor.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
import platform
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, TextIO

import numpy as np
import tomli_w

from actors.journal import view_path, write_private
from actors.own_scheme import load_scheme
from protocol.card import Card
from protocol.cheats.cheat import check_cheat
from protocol.errors import BadInput
from protocol.party.role import RECOMMENDER, THIRD_PARTY, nearest_party
from protocol.schemes import UntrustedScheme, find_scheme
from sim.folder.forms import FORMAT, RunFile, Summary
from sim.folder.unloaded import unloaded_card
from sim.foreign import untrusted
from sim.foreign.bounds import check_params
from sim.plan.config import RunConfig, settings_for_file


def open_private(path: Path) -> TextIO:
    """Open a file for appending, which only its owner can read; a link is refused."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
    return os.fdopen(os.open(path, flags, 0o600), "a", encoding="utf-8")


def new_folder(out: Path | None, scheme: str, force: bool) -> Path:
    """Make an empty private folder; `force` replaces the folder of an earlier run, but no other folder with files."""
    folder = out or Path("runs") / f"{time.strftime('%Y%m%d-%H%M%S')}-{scheme.replace(':', '-')}"
    if folder.exists():
        empty = folder.is_dir() and not any(folder.iterdir())
        if not empty and not force:
            raise BadInput(f"{folder} exists already: choose another --out, or replace that run with --force.")
        if not empty and not (folder / "run.toml").is_file():
            raise BadInput(f"{folder} is not a run, so --force will not replace it: choose another --out.")
        if not empty:
            with locked(folder):
                pass  # no process works in it
        shutil.rmtree(folder)
    try:
        folder.mkdir(mode=0o700, parents=True)
    except OSError as error:
        raise BadInput(f"Cannot make the folder {folder}: {error.strerror}.") from error
    return folder


@contextlib.contextmanager
def locked(folder: Path, patience: float = 0.0, shared: bool = False) -> Iterator[int]:
    """Lock the folder of a run and yield the descriptor of the lock.

    The descriptor is handed on to every actor, so the lock holds as long as one of them runs. `patience` is the time
    in seconds to wait for the last actors of a launcher that was killed; they end by themselves. `shared` locks the
    folder together with other actors that were started by hand. A process locks a folder to write into it, so a folder
    with links in it is refused.
    """
    untrusted.refuse_links(folder)
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
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
                raise BadInput(f"A process of {folder} is still running: wait for it, or stop it first.") from None
            time.sleep(0.05)


def describe_platform() -> dict[str, str]:
    """Describe the parts of the platform that decide the last bits of floating-point results."""
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
    document = {
        "format": FORMAT,
        "simulation": card.simulation,
        "nonce": nonce.hex(),
        "run_id": card.run_id.hex(),
        "run": settings_for_file(config),
        "params": dataclasses.asdict(card.params),
        "platform": describe_platform(),
    }
    write_private(folder / "run.toml", tomli_w.dumps(document))


def write_names(
    folder: Path, users: tuple[str, ...], items: tuple[str, ...], titles: tuple[str, ...] | None = None
) -> None:
    """Write the data's identifiers of users and items, in the order of their numbers, and the titles of items."""
    document = {"users": users, "items": items} | ({} if titles is None else {"titles": titles})
    write_private(folder / "names.json", json.dumps(document, ensure_ascii=False) + "\n")


def read_document(folder: Path) -> dict[str, Any]:
    """Read `run.toml` and check its format and its form; settings and parameters are not checked."""
    try:
        document = untrusted.parse_toml(untrusted.read_bytes(folder, "run.toml", untrusted.MOST_TOML_BYTES))
        if document.get("format", FORMAT) == FORMAT:
            untrusted.fit(document, RunFile)
    except OSError:
        words = "is not the folder of a run, it has no run.toml that can be read: name one that keyhole run made."
        raise BadInput(f"{folder} {words}") from None
    except ValueError as error:
        raise damaged(folder, error) from error
    if document.get("format") != FORMAT:
        words = f"and this Keyhole reads format {FORMAT}: read it with the Keyhole that made it, or run it again."
        raise BadInput(f"{folder} has format {document.get('format')!r}, {words}")
    return document


def read_run(folder: Path, unloaded: bool = False) -> tuple[dict[str, Any], Card]:
    """Read (the document, the card) of a run folder.

    `UntrustedScheme` if its scheme is not one of Keyhole's and was not allowed. With `unloaded` the card then has a
    stand-in for the scheme, which knows names and sizes, but nothing that needs the scheme's own code
    (`sim/folder/unloaded.py`).
    """
    document = read_document(folder)
    try:
        run_id, simulation = bytes.fromhex(document["run_id"]), document["simulation"]
        try:
            scheme = find_scheme(document["run"]["scheme"])
        except UntrustedScheme as refusal:
            if not unloaded:
                raise UntrustedScheme(f"{folder}: {refusal}") from None
            return document, unloaded_card(folder, document["params"], run_id, simulation)
        params = scheme.params_class(**document["params"])
        cheat = document["run"].get("cheat", "")
        if cheat:
            check_cheat(cheat, scheme.name, document["params"].get("wire"))
        check_params(params)
        return document, Card(scheme, params, run_id, simulation, cheat)
    except (KeyError, TypeError, ValueError) as error:
        raise damaged(folder, error) from error


def damaged(folder: Path, error: Exception) -> BadInput:
    why = f"it has no {error}" if isinstance(error, KeyError) else " ".join(str(error).split())
    return BadInput(f"{folder}/run.toml is damaged ({why}).")


def trust_scheme(folder: Path, scheme: str | None, trusted: bool) -> None:
    """Load the scheme that a run names, if the person also named it (`scheme`) or allowed it (`trusted`)."""
    if scheme is None and not trusted:
        return
    named = read_document(folder)["run"]["scheme"]
    if scheme not in (None, named):
        raise BadInput(f"{folder} was run with the scheme {named!r}, not {scheme!r}: leave --scheme out, or name that.")
    load_scheme(named)


def has_view(folder: Path, party: str) -> bool:
    """Tell whether `folder` holds a view of `party`."""
    return untrusted.is_there(folder, view_path(".", party).removeprefix("./"))


def view_name(folder: Path, party: str) -> str:
    """Name the file of a party's view in the folder; `BadInput` if there is no such file."""
    name = view_path(".", party).removeprefix("./")
    if "/" in party or "\0" in party or not has_view(folder, party):
        number = "".join(filter(str.isdigit, party))[:18]
        parties = [name for name in (RECOMMENDER, THIRD_PARTY, f"user:{number}") if has_view(folder, name)]
        words = f"see --views of keyhole run, and the names in {folder}/views{nearest_party(party, parties)}"
        raise BadInput(f"{folder} has no view of {party}: {words}.")
    return name


def open_view(folder: Path, party: str) -> BinaryIO:
    return untrusted.open_inside(folder, view_name(folder, party))


def read_summary(folder: Path) -> dict[str, Any] | None:
    """Read and check the summary of a run; None if it has not been written."""
    try:
        return summary_of(folder)
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise BadInput(f"{folder}/summary.json is damaged ({error}): remove it and resume the run again.") from error


def summary_of(folder: Path) -> dict[str, Any]:
    """Read and check the summary of a run; `OSError` or `ValueError` says what is wrong with the file."""
    summary = untrusted.read_json(folder, "summary.json")
    untrusted.fit(summary, Summary)
    return dict(summary)


def write_summary(folder: Path, summary: dict[str, Any]) -> None:
    replace_private(folder / "summary.json", json.dumps(summary, indent=1, allow_nan=False) + "\n")


def write_bandwidth(folder: Path, document: dict[str, Any]) -> None:
    """Write `bandwidth.json` with one line for each row, as there may be many rows."""
    parts = [f"{json.dumps(key)}: {_by_line(value)}" for key, value in document.items()]
    replace_private(folder / "bandwidth.json", "{" + ",\n".join(parts) + "}\n")


def _by_line(value: Any) -> str:
    if not isinstance(value, list) or not value:
        return json.dumps(value, allow_nan=False)
    return "[\n" + ",\n".join(json.dumps(row, allow_nan=False) for row in value) + "\n]"


def replace_private(path: Path, text: str) -> None:
    """Replace a file in one step, so that a reader never sees half of it; only its owner can read it."""
    part = path.with_name(f"{path.name}.part")
    part.unlink(missing_ok=True)
    try:
        write_private(part, text)
        os.replace(part, path)
    except OSError:
        with contextlib.suppress(OSError):  # on a file system that cannot be written, this fails as well
            part.unlink()
        raise
