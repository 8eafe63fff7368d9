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

import numpy as np

from actors.journal import view_path
from protocol.arithmetic.tape import derive
from protocol.card import Card, all_parties, make_run_id, tape_seed
from protocol.params import Params, require
from protocol.party.party import read_event
from protocol.party.role import UserInput, user_index
from protocol.party.signing import Signer, make_signer
from protocol.party.view import END, EVENT, HASH_BYTES, RECEIVED, REJECTED, SENT, Header, Record
from protocol.wire.framing import HEAD_BYTES
from protocol.wire.messages import EVENTS
from sim.folder.folder import read_run, take_lock
from sim.folder.unloaded import is_loaded
from sim.foreign import untrusted
from sim.plan.config import RunConfig, chosen_views, config_of
from sim.plan.plan import run_seed_of

_DIGESTS = {SENT: 4, REJECTED: 3, END: 0}  # which field of such a record is a digest
_HEADER_WORDS = {
    "run_id": "names another run than run.toml",
    "party": "names another party than the file",
    "scheme": "names another scheme than run.toml",
    "params_digest": "is of other parameters than run.toml",
    "simulation": "differs from run.toml in whether the seed was given",
    "signer": "names another key of the signature than follows from the seed of the run",
}
_NOTES = {"Again": (str, int), "Refused": (str, int)}  # events that concern no role
TAPE_BYTES = 32


@dataclass(frozen=True, slots=True)
class ViewFinding:
    file: str  # in the run folder
    record: int | None  # None: the file as a whole
    what: str


@dataclass(slots=True)
class Report:
    findings: list[ViewFinding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # sentences about what an honest run may leave too

    def find(self, file: str, record: int | None, what: str) -> None:
        self.findings.append(ViewFinding(file, record, " ".join(what.split())))


@dataclass(frozen=True, eq=False)  # compared by identity: a case is one reading of a folder
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
        """Find the parties that keep a view."""
        return chosen_views(self.config.views, self.parties)

    def file(self, party: str) -> str:
        """Name the view file of `party` as findings do, relative to the run folder."""
        return view_path(".", party).removeprefix("./")

    def path(self, party: str) -> Path:
        return self.folder / self.file(party)

    def signer(self, party: str) -> Signer:
        return make_signer(self.run_seed, party)

    def tape_seed(self, party: str) -> bytes:
        return tape_seed(self.run_seed, party)

    def header_fault(self, party: str, fields: list[Any]) -> str | None:
        """Say what is wrong with the header `fields` of the view of `party`; None if they are right."""
        card = self.card
        public = self.signer(party).public
        true = Header(card.run_id, party, card.scheme.name, card.params_digest, card.simulation, public)
        pairs = zip(_HEADER_WORDS.values(), fields, dataclasses.astuple(true), strict=True)
        return next((words for words, found, expected in pairs if found != expected), None)

    def check_run_toml(self, report: Report) -> None:
        """Check that `run.toml` is consistent in itself; whether the views fit it is checked with their headers."""
        params, config = self.card.params, self.config
        if not is_loaded(self.card):  # then the order in which it names its parties is not known
            why = f"The scheme {config.scheme!r} is not loaded (--trust-scheme loads it)"
            report.notes.append(f"{why}, so the run id was not checked.")
        elif make_run_id(params, self.parties, self.nonce) != self.card.run_id:
            report.find("run.toml", None, "is not at one: its run id is not that of its parameters, parties and nonce")
        if self.card.simulation and self.nonce != derive(self.run_seed, "nonce"):
            report.find("run.toml", None, "is not at one: its nonce does not follow from its seed")
        for name in ("dim", "iterations", "epsilon", "wire", "ring_bits", "factor_bits", "publish", "online"):
            asked = getattr(config, name)
            own = name == "iterations" and not self.card.scheme.factorizes  # the scheme decides
            if asked is not None and not own and hasattr(params, name) and asked != getattr(params, name):
                words = f"is not at one: {name} is {asked} under [run] and another under [params]"
                report.find("run.toml", None, words)


@contextlib.contextmanager
def at_rest(folder: Path) -> Iterator[None]:
    """Lock the run in `folder` against writing processes: of two views that grow, one is always ahead of the other."""
    try:
        lock = os.open(folder / "lock", os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:  # a copy without its lock, or a folder of another account
        yield
        return
    try:
        take_lock(lock, folder, fcntl.LOCK_SH)
        for view in untrusted.view_files(folder):  # an actor started by hand holds only a shared lock
            with untrusted.open_inside(folder, view) as stream:
                take_lock(stream.fileno(), folder, fcntl.LOCK_SH)
        yield
    finally:
        os.close(lock)


def open_case(folder: Path, unloaded: bool = False) -> Case:
    """Open the run in `folder`, `unloaded` as in `read_run`; `BadInput` if its `run.toml` is missing or damaged."""
    document, card = read_run(folder, unloaded)
    config = config_of(document, folder / "run.toml")
    require(config.seed is not None, f"{folder}/run.toml is damaged (it names no seed).")
    config.check()
    return Case(folder, card, config, bytes.fromhex(document["nonce"]), document["platform"])


def is_well_formed(record: Record) -> bool:
    """Check the lengths of the frame and digests in `record`; the reader has checked the types of its fields."""
    if record.type == RECEIVED:
        return len(record.fields[1]) > HEAD_BYTES
    if record.type == EVENT:
        return _is_event(*record.fields)
    return record.type not in _DIGESTS or len(record.fields[_DIGESTS[record.type]]) == HASH_BYTES


def _is_event(kind: str, *fields: Any) -> bool:
    if kind not in EVENTS:
        return tuple(map(type, fields)) == _NOTES.get(kind)
    try:
        read_event(kind, *fields)
    except ValueError:
        return False
    return True


def ratings_in(inputs: dict[str, Any]) -> UserInput | None:
    """Read the ratings in `inputs`, which are those of a party; None for a server."""
    if "items" not in inputs:
        return None
    items, ratings = np.frombuffer(inputs["items"], "<u4"), np.frombuffer(inputs["ratings"], "<f8")
    return UserInput(items.astype(np.uint32), ratings.astype(np.float64))


def is_input_of(party: str, inputs: dict[str, Any], params: Params) -> bool:
    """Check that `inputs` are a tape seed and, for a user, existing items in order, each with a rating in range."""
    names = {"tape_seed"} if user_index(party) < 0 else {"tape_seed", "items", "ratings"}
    if set(inputs) != names or not all(type(value) is bytes for value in inputs.values()):
        return False
    if len(inputs["tape_seed"]) != TAPE_BYTES:
        return False
    if "items" not in inputs:
        return True
    if len(inputs["items"]) % 4 or len(inputs["ratings"]) != 2 * len(inputs["items"]):
        return False
    items, ratings = np.frombuffer(inputs["items"], "<u4"), np.frombuffer(inputs["ratings"], "<f8")
    in_order = bool(np.all(items[1:] > items[:-1])) and (not len(items) or int(items[-1]) < params.n_items)
    return in_order and bool(np.all((ratings >= params.rating_min) & (ratings <= params.rating_max)))
