"""Start the roles by hand: `keyhole prepare` makes roster and keys, `keyhole actor` runs parties from them."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import re
from pathlib import Path

from actors import capacity
from actors.by_hand import HostByHand
from actors.journal import make_view_folders, view_path, write_private
from actors.keys import Roster
from actors.metering.recorder import Report
from actors.own_scheme import load_scheme
from actors.seats import Place
from protocol.errors import BadInput
from protocol.everyone_online import everyone_stays, takes_presence
from protocol.params import require
from protocol.party.role import nearest_party, user_name
from protocol.schemes import UntrustedScheme, find_scheme
from sim.folder.folder import locked, new_folder, write_run
from sim.foreign import untrusted
from sim.plan.config import RunConfig
from sim.plan.plan import make_plan
from sim.run.key_files import read_roster, read_secret, write_secret
from sim.run.run import make_roster

FIRST_PORT = 5551
PATIENCE = 600.0  # seconds without a step after which a party that was started by hand gives up
SILENCE = 3.0  # seconds after which a server is asked again: there is no launcher to report that it was restarted


def prepare(config: RunConfig, out: Path | None, force: bool, host: str, port: int) -> tuple[Path, Roster, list[str]]:
    """Make a run folder with `roster.json` and one key file per party; return (it, roster, sentences for the person).

    No process is started.
    """
    if config.users_per_process is None:
        config = dataclasses.replace(config, users_per_process=1)
    fixed = {"transport": "tcp", "users_per_process": 1, "views": "full", "deadline": 60.0, "on_death": "restart"}
    for name, value in (fixed | {"faults": None}).items():
        flag = name.replace("_", "-")
        require(getattr(config, name) == value, f"Parties started by hand do not take --{flag} here: leave it out.")
    if takes_presence(find_scheme(config.scheme)):
        steady = not config.join and not config.leave
        require(steady, "Parties started by hand are online as long as they run: leave out --join and --leave.")
        config = dataclasses.replace(config, join=0.0, leave=0.0)
    plan = make_plan(config)
    servers = plan.card.scheme.servers
    require(1 <= port <= 65536 - len(servers), f"--port must be between 1 and {65536 - len(servers)}, not {port}.")
    endpoints = {server: f"tcp://{host}:{port + at}" for at, server in enumerate(servers)}
    folder = new_folder(out, plan.card.scheme.name, force)
    write_run(folder, plan.config, plan.card, plan.nonce)
    secrets, roster = make_roster(plan, endpoints)
    (folder / "keys").mkdir(mode=0o700)
    for secret in secrets:
        write_secret(folder / "keys", secret)
    write_private(folder / "roster.json", json.dumps(roster.to_dict(), indent=1))
    return folder, roster, plan.notes


def expand_parties(names: list[str], roster: Roster) -> list[str]:
    """Expand `names` to parties: `user:3-9` is a range, and `users` stands for all users."""
    parties: list[str] = []
    last = roster.card.params.n_users - 1
    for name in names:
        span = re.fullmatch(r"user:(\d+)-(\d+)", name)
        if name == "users":
            parties += [user_name(user) for user in range(roster.card.params.n_users)]
        elif span:
            require(int(span[1]) <= int(span[2]), f"{name} is an empty range: give the smaller number first.")
            require(int(span[2]) <= last, f"{name} is beyond the roster's last user, {user_name(last)}.")
            parties += [user_name(user) for user in range(int(span[1]), int(span[2]) + 1)]
        else:
            parties.append(name)
    for party in parties:
        if party not in roster.public_keys:
            there = f"it has the servers and user:0 to {user_name(last)}{nearest_party(party, roster.public_keys)}"
            raise BadInput(f"The roster has no party {party!r}: {there}.")
    require(len(set(parties)) == len(parties), "A party is named twice.")
    return parties


def read_trusted(file: Path, scheme: str | None, trusted: bool) -> Roster:
    """Read the roster in `file`; its scheme is loaded only if `scheme` names it too, or `trusted` is set."""
    if scheme is not None:
        load_scheme(scheme)
    try:
        roster = read_roster(file, trusted)
    except UntrustedScheme as refusal:
        raise UntrustedScheme(f"{file}: {refusal}") from None
    if scheme not in (None, roster.scheme_name):
        raise BadInput(f"{file} names the scheme {roster.scheme_name!r}, not {scheme!r}: leave --scheme out.")
    return roster


def act(
    names: list[str],
    roster: Roster,
    keys: Path,
    out: Path,
    deadline: float,
    patience: float,
    report: Report,
) -> None:
    """Run the parties `names` in this process until they are done, or nothing has moved for `patience` seconds."""
    require(patience > deadline, f"--patience must be longer than the deadline of {deadline:g} s, not {patience:g} s.")
    require(deadline > 0 and math.isfinite(deadline), f"--deadline must be above 0 seconds, not {deadline:g}.")
    parties = expand_parties(names, roster)
    secrets = [read_secret(keys, party, roster) for party in parties]
    folder = str(out.absolute())
    untrusted.refuse_links(out)
    capacity.check_files(capacity.files_of(roster.card.params.n_users, len(parties)))
    make_view_folders(folder, parties)
    before = frozenset(party for party in parties if os.path.exists(view_path(folder, party)))  # these resume
    rule = everyone_stays(roster.card.params.n_users) if takes_presence(roster.card.scheme) else None
    with locked(Path(folder), shared=True):
        silence = min(deadline / 2, SILENCE)
        place = Place(folder, frozenset(parties), deadline, resume=before, silence=silence)
        HostByHand(roster, secrets, place, report, patience, rule).run()
