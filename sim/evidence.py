"""A run folder as an auditor finds it: what `run.toml` says the files must be, and what is found to be wrong."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import functools
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from actors.journal import view_path
from protocol.errors import BadInput
from protocol.framing import HEAD_BYTES
from protocol.params import Params, require
from protocol.roles import user_index
from protocol.seating import Card, all_parties, make_run_id, tape_seed
from protocol.signing import Signer, make_signer
from protocol.tape import derive
from protocol.view import END, HASH_BYTES, RECEIVED, REJECTED, SENT, Header, Record
from sim.config import RunConfig, chosen_views, read_config
from sim.folder import read_run, take_lock
from sim.plan import run_seed_of

MOST_PARTIES = 10**7  # their names are listed in memory

_DIGESTS = {SENT: 4, REJECTED: 3, END: 0}  # which of their fields is one
_HEADER_WORDS = {
    "run_id": "names another run than run.toml",
    "party": "names another party than the file",
    "scheme": "names another scheme than run.toml",
    "params_digest": "is of other parameters than run.toml",
    "simulation": "differs from run.toml in whether the seed was given",
    "signer": "names another key of the signature than follows from the seed of the run",
}
_TYPES: dict[str, tuple[type, ...]] = {"int": (int,), "float": (int, float), "str": (str,), "bool": (bool,)}


@dataclass(frozen=True, slots=True)
class Finding:
    file: str  # in the run folder
    record: int | None  # None: the file as a whole
    what: str


@dataclass(slots=True)
class Report:
    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # sentences; nothing that an honest run could not leave

    def find(self, file: str, record: int | None, what: str) -> None:
        self.findings.append(Finding(file, record, " ".join(what.split())))


@dataclass(frozen=True)
class Case:
    folder: Path
    card: Card
    config: RunConfig
    nonce: bytes
    platform: dict[str, Any]

    @functools.cached_property
    def run_seed(self) -> bytes:
        assert self.config.seed is not None
        return run_seed_of(self.config.seed)

    @functools.cached_property
    def parties(self) -> list[str]:
        return all_parties(self.card.scheme, self.card.params.n_users)

    @functools.cached_property
    def party_set(self) -> frozenset[str]:
        return frozenset(self.parties)

    @functools.cached_property
    def kept(self) -> frozenset[str]:
        """The parties that keep a view."""
        return chosen_views(self.config.views, self.parties)

    def file(self, party: str) -> str:
        """The view of this party, as it is named in findings."""
        return view_path(".", party).removeprefix("./")

    def path(self, party: str) -> Path:
        return self.folder / self.file(party)

    def signer(self, party: str) -> Signer:
        return make_signer(self.run_seed, party)

    def tape_seed(self, party: str) -> bytes:
        return tape_seed(self.run_seed, party)

    def header_fault(self, party: str, fields: list[Any]) -> str | None:
        """What is wrong with the header of this party's view."""
        card = self.card
        public = self.signer(party).public
        true = Header(card.run_id, party, card.scheme.name, card.params_digest, card.simulation, public)
        pairs = zip(_HEADER_WORDS.values(), fields, dataclasses.astuple(true), strict=True)
        return next((words for words, found, expected in pairs if found != expected), None)

    def check_run_toml(self, report: Report) -> None:
        """It is at one with itself; that the views fit it is checked with their headers."""
        params, config = self.card.params, self.config
        if make_run_id(params, self.parties, self.nonce) != self.card.run_id:
            report.find("run.toml", None, "is not at one: its run id is not that of its parameters, parties and nonce")
        if self.card.simulation and self.nonce != derive(self.run_seed, "nonce"):
            report.find("run.toml", None, "is not at one: its nonce does not follow from its seed")
        for name in ("dim", "iterations", "epsilon", "wire", "ring_bits", "factor_bits", "online"):
            asked = getattr(config, name)
            if asked is not None and hasattr(params, name) and asked != getattr(params, name):
                words = f"is not at one: {name} is {asked} under [run] and another under [params]"
                report.find("run.toml", None, words)


@contextlib.contextmanager
def at_rest(folder: Path) -> Iterator[None]:
    """While no process of the run writes: of two views that grow, one is always ahead of the other."""
    try:
        lock = os.open(folder / "lock", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:  # a copy of the files, or another's
        yield
        return
    try:
        take_lock(lock, folder, fcntl.LOCK_SH)
        for view in (folder / "views").rglob("*.view"):  # an actor that was started by hand shares the lock, too
            with view.open("rb") as stream:
                take_lock(stream.fileno(), folder, fcntl.LOCK_SH)
        yield
    finally:
        os.close(lock)


def open_case(folder: Path) -> Case:
    """`BadInput` where the folder is no run or its `run.toml` cannot be read."""
    document, card = read_run(folder)
    try:
        _check_types(card.params)
        if type(card.simulation) is not bool:
            raise ValueError("simulation must be true or false")
        nonce = bytes.fromhex(document["nonce"])
        platform = dict(document["platform"])
    except (KeyError, TypeError, ValueError) as error:
        raise BadInput(f"{folder}/run.toml is damaged ({error}).") from error
    config = read_config(folder / "run.toml")
    require(config.seed is not None, f"{folder}/run.toml is damaged (it names no seed).")
    config.check()
    return Case(folder, card, config, nonce, platform)


def _check_types(params: Params) -> None:
    for entry in dataclasses.fields(params):
        wanted = _TYPES.get(getattr(entry.type, "__name__", str(entry.type)))
        if wanted and type(getattr(params, entry.name)) not in wanted:
            raise ValueError(f"{entry.name} is of the wrong type")
    if not 1 <= params.n_users <= MOST_PARTIES:
        raise ValueError(f"n_users must be between 1 and {MOST_PARTIES}")


def is_well_formed(record: Record) -> bool:
    """Its frame and digests are as long as they must be; the reader has seen to the types of its fields."""
    if record.type == RECEIVED:
        return len(record.fields[1]) > HEAD_BYTES
    return record.type not in _DIGESTS or len(record.fields[_DIGESTS[record.type]]) == HASH_BYTES


def is_input_of(party: str, inputs: dict[str, Any]) -> bool:
    """A tape seed, and for a user as many ratings as items."""
    if not all(type(value) is bytes for value in inputs.values()):
        return False
    if user_index(party) < 0:
        return set(inputs) == {"tape_seed"}
    if set(inputs) != {"tape_seed", "items", "ratings"}:
        return False
    return len(inputs["items"]) % 4 == 0 and len(inputs["ratings"]) == 2 * len(inputs["items"])
