"""No secret of one party stands in a file that belongs to another, or in the command line of any process.

`run.toml` is exempt: it belongs to the auditor and holds the seed of the run, from which all tapes follow; its mode is
0600. `summary.json` also names that seed (a number, to repeat the run) and has the same mode, but it is searched.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import stat
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
import zmq.utils.z85

from actors.journal import view_path
from actors.launch.launcher import Launch
from actors.launch.reports import Finished
from protocol.arithmetic.tape import Tape
from protocol.errors import BadInput
from protocol.party.role import RECOMMENDER, THIRD_PARTY, user_name
from protocol.schemes.factorization.masked_sum import mask_rows
from protocol.wire.messages import MaskedGradient
from sim.drivers.inprocess import InProcess
from sim.plan.config import RunConfig
from sim.plan.plan import Plan, make_plan
from sim.run.key_files import key_path, read_roster, read_secret
from sim.run.manual_start import prepare
from sim.run.run import run

EXEMPT = {"run.toml"}
SHORTEST = 6  # bytes: a shorter form would be found by chance


@dataclass(frozen=True, slots=True)
class Secret:
    what: str
    holders: frozenset[str]  # parties that may have it in their views
    forms: tuple[bytes, ...] = field(repr=False)


def bytes_secret(what: str, data: bytes, *holders: str) -> Secret:
    """Make a secret of `data`: raw, in hexadecimal, and in base64 without the end, which depends on what follows."""
    in_base64 = base64.b64encode(data).rstrip(b"=")[:-1]
    return Secret(what, frozenset(holders), (data, data.hex().encode(), in_base64))


def numbers_secret(what: str, numbers: np.ndarray, *holders: str) -> Secret:
    """Make a secret of `numbers`: binary in three formats, these in hexadecimal, and printed as a list."""
    forms = [numbers.astype(kind).tobytes() for kind in ("<f8", "<f4", ">f8")]
    printed = [json.dumps(numbers.tolist())[1:-1].encode(), " ".join(map(repr, numbers.tolist())).encode()]
    return Secret(what, frozenset(holders), (*forms, *(form.hex().encode() for form in forms), *printed))


def secrets_of(plan: Plan, launch: Launch) -> list[Secret]:
    found = [bytes_secret("seed of the run", plan.run_seed)]
    for seat in plan.seats():
        name = seat.party
        found.append(bytes_secret(f"tape of {name}", seat.tape_seed, name))
        found.append(bytes_secret(f"signing key of {name}", seat.signer.secret))
        curve = launch._secrets[name].keys.secret
        found.append(bytes_secret(f"transport key of {name}", zmq.utils.z85.decode(curve)))
        found.append(Secret(f"transport key of {name}, as text", frozenset(), (curve,)))
        if seat.inputs is not None:
            found.append(numbers_secret(f"ratings of {name}", seat.inputs.ratings, name))
    return found + masks_of(plan) + moving_secrets(plan)


def masks_of(plan: Plan) -> list[Secret]:
    """List each user's mask key and masks; the recommender deals them, and keeps only digests of what it sent."""
    card, found = plan.card, []
    params = card.params
    dealer = Tape(next(seat.tape_seed for seat in plan.seats() if seat.party == RECOMMENDER))
    for user, own in enumerate(plan.data):
        name, key = user_name(user), dealer.key("mask", user)
        found.append(bytes_secret(f"mask key of {name}", key, name))
        for iteration in range(params.iterations):
            rows = mask_rows(card.setting.ring, key, card.run_id, iteration, len(own.items), params.dim)
            found.append(bytes_secret(f"masks of {name} at {iteration}", card.setting.ring.to_bytes(rows), name))
    return found


def moving_secrets(plan: Plan) -> list[Secret]:
    """List each user's factors after every step, its contributions without their masks, and the third party's seals."""
    churn, found = plan.churn(), []
    driver = InProcess(plan.card, plan.seats(), events_for=churn.events if churn else None)
    masks = {secret.what: secret.forms[0] for secret in masks_of(plan)}
    ring, dim = plan.card.setting.ring, plan.card.params.dim

    def watch(name: str, party) -> None:
        receive = party.receive

        def watched(sender: str, frame: bytes):
            step = receive(sender, frame)
            found.append(numbers_secret(f"factors of {name}", party.role.user_factors, name))
            for out in step.sends:
                if out.kind == MaskedGradient.__name__:
                    message = plan.card.codec.decode(out.frame)[1]
                    mask = ring.from_bytes(masks[f"masks of {name} at {out.iteration}"], dim)
                    bare = ring.to_bytes(ring.subtract(message.values, mask))
                    found.append(bytes_secret(f"contribution of {name} without its mask", bare))
            return step

        party.receive = watched

    for name, party in driver.parties.items():
        if name.startswith("user:"):
            found.append(numbers_secret(f"first factors of {name}", party.role.user_factors, name))
            watch(name, party)
    assert driver.run().abort is None
    if hasattr(driver.parties[THIRD_PARTY].role, "seal"):
        seals = driver.parties[THIRD_PARTY].role.seal.seals
        assert seals.all(), "every item is sealed"
        found += [bytes_secret("seal of the third party", ring.to_bytes(row[None]), THIRD_PARTY) for row in seals]
    return found


def owner_of(folder: Path, path: Path, parties: list[str]) -> str | None:
    """Return the party whose view `path` is; None for other files, which belong to no party."""
    return next((party for party in parties if Path(view_path(str(folder), party)) == path), None)


def hits(folder: Path, secrets: list[Secret], parties: list[str]) -> list[tuple[str, str]]:
    """List (file, secret) for every secret in a file that does not belong to its holder."""
    found = []
    for path in sorted(path for path in folder.rglob("*") if path.is_file() and path.name not in EXEMPT):
        content, owner = path.read_bytes(), owner_of(folder, path, parties)
        for secret in secrets:
            if owner not in secret.holders and any(form in content for form in secret.forms if len(form) >= SHORTEST):
                found.append((str(path.relative_to(folder)), secret.what))
    return found


class Seen(Launch):
    """Keeps a reference to itself, and what the system shows every user of the machine about its processes."""

    def run(self):
        Seen.current = self
        self.shown = {}
        return super().run()

    def _finished(self, report: Finished) -> None:
        early = report.iteration == 0  # later on processes may be ending
        for pid, parties in self._alive.items() if early else ():
            for name in ("cmdline", "environ"):
                with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # an ended process shows nothing
                    self.shown[f"{name} of {parties[0]}"] = Path(f"/proc/{pid}/{name}").read_bytes()
        super()._finished(report)


@dataclass(frozen=True, slots=True)
class Searched:
    plan: Plan
    folder: Path
    secrets: list[Secret]
    shown: dict[str, bytes]


RUNS = [("dynamic", "compact"), ("dynamic", "paper"), ("masked", "paper")]
SEED = 2**62 + 11


@pytest.fixture(scope="module", params=RUNS, ids="-".join)
def searched(request, tmp_path_factory):
    """Make a run of real processes with umask 0: its files are private only if Keyhole makes them so."""
    scheme, wire = request.param
    flags = {"join": 0.3, "leave": 0.1} if scheme == "dynamic" else {}
    size = {"data": "synthetic:8x7:.7", "dim": 3, "iterations": 5, "test_fraction": 0.0}
    config = RunConfig(scheme=scheme, wire=wire, seed=SEED, **size, **flags)
    folder = tmp_path_factory.mktemp("secrets") / "run"
    before = os.umask(0)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("sim.run.run.Launch", Seen)
            summary = run(config, out=folder)
    finally:
        os.umask(before)
    assert summary["completed"]
    plan = make_plan(config)
    return Searched(plan, folder, secrets_of(plan, Seen.current), Seen.current.shown)


def test_no_secret_of_one_party_stands_in_a_file_of_another(searched):
    assert hits(searched.folder, searched.secrets, searched.plan.parties) == []


def test_the_number_that_repeats_a_run_stands_where_it_is_said_to_and_nowhere_else(searched):
    files = [path for path in searched.folder.rglob("*") if path.is_file()]
    assert {path.name for path in files if str(SEED).encode() in path.read_bytes()} == {"run.toml", "summary.json"}


def test_the_secrets_are_the_true_ones(searched):
    """The secrets that a party's own view must hold are found there, so the search looks for the right bytes."""
    views = {party: Path(view_path(str(searched.folder), party)).read_bytes() for party in searched.plan.parties}
    in_own_view = Counter(
        secret.what.partition(" of ")[0]
        for secret in searched.secrets
        if any(form in views[holder] for holder in secret.holders for form in secret.forms)
    )
    assert in_own_view["tape"] == len(views) and in_own_view["ratings"] == len(views) - 2
    if searched.plan.config.wire == "compact":
        assert in_own_view["mask key"] == len(views) - 2
    else:  # here masks travel instead of keys, to the users that are online
        assert in_own_view["masks"] >= 20
    kinds = Counter(secret.what.partition(" of ")[0] for secret in searched.secrets)
    assert kinds["factors"] >= 20 and kinds["contribution"] >= 20
    assert kinds["seal"] == (7 if searched.plan.config.scheme == "dynamic" else 0)


def test_a_secret_that_leaks_is_found_in_any_form(searched, tmp_path):
    """A secret of each kind, in each form, is found in a log, in the model, and in the view of another party."""
    kinds = {secret.what.partition(" of ")[0]: secret for secret in searched.secrets}
    assert len(kinds) >= 8
    for secret in kinds.values():
        for form in secret.forms:
            for name in ("actors.log", "views/user-7.view", "model/item_factors.npy"):
                path = tmp_path / name
                path.parent.mkdir(exist_ok=True)
                path.write_bytes(b"before " + form + b" after")
            found = dict(hits(tmp_path, [secret], searched.plan.parties))
            assert found.keys() >= {"actors.log", "model/item_factors.npy"}
            assert ("views/user-7.view" in found) == ("user:7" not in secret.holders)


def test_no_secret_is_shown_by_the_system(searched):
    """Neither the command line nor the environment of a process holds one."""
    assert len(searched.shown) >= 2 * (2 + 8)
    for name, content in searched.shown.items():
        assert content
        leaked = [secret.what for secret in searched.secrets if any(form in content for form in secret.forms)]
        assert leaked == [], name


def test_what_is_private_is_closed_to_others(searched):
    """Whatever the umask, folders have mode 0700, and views, configuration, summary and names have 0600."""
    folder = searched.folder
    folders = [folder, *(path for path in folder.rglob("*") if path.is_dir())]
    assert {folder / "views", folder / "model"} <= set(folders)
    assert {stat.S_IMODE(path.stat().st_mode) for path in folders} == {0o700}
    private = [folder / "run.toml", folder / "summary.json", folder / "names.json", *(folder / "views").iterdir()]
    assert len(private) == 3 + len(searched.plan.parties)
    assert {stat.S_IMODE(path.stat().st_mode) for path in private} == {0o600}


SMALL = RunConfig(scheme="masked", data="synthetic:3x4:.9", seed=1)


def test_key_files_are_closed_to_others_and_an_open_key_folder_is_refused(tmp_path):
    before = os.umask(0)
    try:
        folder, roster, _ = prepare(SMALL, tmp_path / "run", False, "127.0.0.1", 5551)
    finally:
        os.umask(before)
    keys = folder / "keys"
    assert stat.S_IMODE(keys.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in keys.iterdir()} == {0o600}
    assert {path.name for path in keys.iterdir()} == {key_path(keys, party).name for party in roster.public_keys}
    assert read_secret(keys, "user:1", roster).seat.party == "user:1"
    for mode in (0o740, 0o710, 0o704, 0o701, 0o777):
        keys.chmod(mode)
        with pytest.raises(BadInput, match="chmod 700"):
            read_secret(keys, "user:1", roster)


def test_the_roster_that_everyone_holds_has_no_secret(tmp_path):
    folder, roster, _ = prepare(SMALL, tmp_path / "run", False, "127.0.0.1", 5551)
    written = (folder / "roster.json").read_bytes()
    for party in roster.public_keys:
        secret = read_secret(folder / "keys", party, roster)
        for data in (secret.seat.tape_seed, secret.seat.signer.secret, zmq.utils.z85.decode(secret.keys.secret)):
            assert not any(form in written for form in bytes_secret("", data).forms)
        assert secret.keys.secret not in written
        assert secret.keys.public in written


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"tape_seed": "00"}, "`$.tape_seed` must be a text matching regex"),
        ({"secret_key": "#" * 40}, "a key is not one of CURVE"),
        ({"public_key": "a" * 39}, "`$.public_key` must be a text"),
        ({"signer": ["00" * 32]}, "`$.signer` must be a list of length 2, not 1"),
        ({"train": "0" * 23}, "`$.train` must be a text"),
        ({"train": None}, "`$.train` must be a text, not null"),
        ({"train": "ff" * 12}, "its items are not those of the run"),
        ({"train": "00" * 10 + "f87f"}, "its ratings are not numbers"),
        ({"party": "user:2"}, "it is of another party"),
    ],
)
def test_a_key_file_that_is_refused_says_where(tmp_path, change, words):
    folder, roster, _ = prepare(SMALL, tmp_path / "run", False, "127.0.0.1", 5551)
    file = key_path(folder / "keys", "user:1")
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(BadInput, match="is not a key file") as refused:
        read_secret(folder / "keys", "user:1", roster)
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"run_id": "zz"}, "`$.run_id` must be a text matching regex"),
        ({"public_keys": {}}, "it has other parties than its parameters say"),
        ({"endpoints": {"recommender": 1}}, "`$.endpoints[...]` must be a text, not a whole number"),
        ({"endpoints": {"recommender": "x"}}, "it does not say where the servers listen"),
        ({"params": {"epsilon": 1}}, "'learning_rate'"),
        ({"cheat": 5}, "`$.cheat` must be a text, not a whole number"),
        ({"format": 1}, "it has format 1, and this Keyhole reads format 2"),
    ],
)
def test_a_roster_that_is_refused_says_where(tmp_path, change, words):
    folder, _, _ = prepare(SMALL, tmp_path / "run", False, "127.0.0.1", 5551)
    file = folder / "roster.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(BadInput, match="is not a roster") as refused:
        read_roster(file)
    assert words in str(refused.value)


def test_a_roster_with_a_cheat_that_is_none_is_refused(tmp_path):
    folder, _, _ = prepare(SMALL, tmp_path / "run", False, "127.0.0.1", 5551)
    file = folder / "roster.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"cheat": "recommender:sleep"}))
    with pytest.raises(BadInput, match="There is no cheat 'recommender:sleep'"):
        read_roster(file)
