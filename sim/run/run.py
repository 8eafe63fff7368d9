"""Carry out a run from its configuration to its folder, with any driver, or resume a stopped run from its folder."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from actors import capacity
from actors.blame import scheme_failed
from actors.faults import Faults
from actors.journal import if_full, view_path
from actors.keys import Roster, Secret
from actors.launch.launcher import Launch, Staff
from actors.metering.accuracy import Accuracy
from actors.metering.observer import Observer
from actors.metering.outcome import IterationDone, OnIteration, OnJoin, OnReplay, Outcome
from actors.metering.recorder import save_factors
from actors.transport.zeromq import make_key_pair
from protocol.card import Card, all_parties, make_run_id
from protocol.errors import Aborted, BadInput, Reason
from protocol.params import require
from protocol.party.role import RECOMMENDER, user_name
from protocol.party.view import EVENT, WholeRecords
from sim.drivers.faulty import FaultyInProcess, parse_faults, with_a_full_disk
from sim.drivers.inprocess import InProcess
from sim.folder.folder import (
    locked,
    new_folder,
    read_run,
    read_summary,
    write_bandwidth,
    write_names,
    write_run,
    write_summary,
)
from sim.foreign.plain_text import jsonable
from sim.foreign.untrusted import open_regular
from sim.plan.config import RunConfig, config_of
from sim.plan.plan import Plan, make_plan
from sim.run.baseline import plain_accuracy
from sim.run.summary import IterationLog, bandwidth_document, summarise

_ORPHANS_SECONDS = 3.0

OnPlan = Callable[[Plan], None]
OnLine = Callable[[dict[str, Any]], None]  # one line of iterations.jsonl
OnReplayed = Callable[[int, int | None], None]  # (iterations that the views hold, how many of them are replayed)


@dataclass(frozen=True, slots=True)
class _Listener:
    """The callbacks through which the driver reports progress."""

    on_plan: OnPlan | None = None
    on_line: OnLine | None = None
    on_join: OnJoin | None = None
    on_replay: OnReplayed | None = None


@dataclass(frozen=True, slots=True)
class _Course:
    """The conditions of this execution: from the beginning or from the views, and with which faults."""

    lock: int
    resume: bool = False
    faults: Faults | None = None


def run(
    config: RunConfig,
    *,
    out: Path | None = None,
    force: bool = False,
    on_plan: OnPlan | None = None,
    on_line: OnLine | None = None,
    on_join: OnJoin | None = None,
) -> dict[str, Any]:
    """Carry out the run that `config` describes and return its summary; an aborted run has one too."""
    started = time.perf_counter()
    faults = parse_faults(config.faults) if config.faults is not None else None
    plan = make_plan(config)
    if faults and plan.views:
        faults = with_a_full_disk(faults, sorted(plan.views))
    plan = check_limits(plan, out or Path())
    require(not (faults and _in_turns(plan)), "Faults need users who stay connected: use fewer users, or no --faults.")
    folder = new_folder(out, plan.card.scheme.name, force)
    with locked(folder) as lock:
        write_names(folder, plan.user_names, plan.item_names, plan.item_titles)
        write_run(folder, plan.config, plan.card, plan.nonce)  # written last: it makes the folder a run
        return _carry_out(plan, folder, _Course(lock, faults=faults), started, _Listener(on_plan, on_line, on_join))


def resume(
    folder: Path,
    *,
    on_plan: OnPlan | None = None,
    on_line: OnLine | None = None,
    on_join: OnJoin | None = None,
    on_replay: OnReplayed | None = None,
) -> dict[str, Any]:
    """Resume the stopped run in `folder` and return its summary; the summary of a completed run is only read."""
    started = time.perf_counter()
    document, card = read_run(folder)
    with locked(folder, _ORPHANS_SECONDS) as lock:
        summary = read_summary(folder)
        if summary is not None and summary.get("completed"):
            return summary | {"run": str(folder)}  # the folder may have been moved
        config = config_of(document, folder / "run.toml")
        require(config.views == "full", f"Not every party of {folder} keeps a view, so it cannot go on: run it again.")
        plan = make_plan(config, bytes.fromhex(document["nonce"]), card.simulation)
        if plan.card.run_id != card.run_id:
            raise BadInput(f"{config.data} is not what it was when {folder} was started: put the same data there.")
        plan = check_limits(plan, folder)
        require(not _in_turns(plan), f"Users of {folder} take turns to be connected, so it cannot go on: run it again.")
        course = _Course(lock, resume=True)
        return _carry_out(plan, folder, course, started, _Listener(on_plan, on_line, on_join, on_replay))


def _carry_out(plan: Plan, folder: Path, course: _Course, started: float, listener: _Listener) -> dict[str, Any]:
    if listener.on_plan:
        listener.on_plan(plan)
    roles = ("user", *plan.card.scheme.servers) if course.resume else ()
    log = IterationLog(folder, roles, plan.card.params.iterations)
    if course.resume and listener.on_replay:
        listener.on_replay(log.reported + 1, None)

    def on_iteration(done: IterationDone) -> None:
        log.add(done)
        if listener.on_line:
            listener.on_line(log.latest)

    def on_server(server: str, iteration: int) -> None:
        if listener.on_replay and server == RECOMMENDER:
            listener.on_replay(log.reported + 1, max(iteration, 0))

    try:
        outcome, observer = _drive(plan, folder, course, log, on_iteration, on_server, listener.on_join)
    except OSError as error:
        raise if_full(error, str(folder)) from error
    finally:
        with contextlib.suppress(OSError):  # a full disk has been reported already
            log.close()
    completed, bits, reached = outcome.abort is None, plan.card.params.factor_bits, observer.accuracy()
    plain = unprotected_accuracy(plan, reached) if completed else None
    narrow = with_factors(plan, bits) if completed and bits != 32 else None
    seconds = time.perf_counter() - started
    honest = honest_accuracy(plan) if completed and plan.card.cheat else None
    summary = summarise(plan, folder, outcome, log, reached, plain, narrow, honest, seconds)
    try:
        write_bandwidth(folder, jsonable(bandwidth_document(outcome)))
        write_summary(folder, summary)
    except OSError as error:
        raise if_full(error, str(folder)) from error
    return summary


def check_limits(plan: Plan, out: Path) -> Plan:
    """Lay `plan` out on this machine; refuse, with the reason, what does not fit it or the disk of `out`."""
    capacity.check_disk(out, plan.view_bytes())
    return plan.laid_out()


def _in_turns(plan: Plan) -> bool:
    return plan.layout is not None and plan.layout.turns(plan.shape.n_users) is not None


def _drive(
    plan: Plan,
    folder: Path,
    course: _Course,
    log: IterationLog,
    on_iteration: OnIteration,
    on_replay: OnReplay,
    on_join: OnJoin | None,
) -> tuple[Outcome, Observer]:
    if plan.config.transport == "inprocess":
        return _drive_in_process(plan, folder, course, log, on_iteration)
    secrets, roster = make_roster(plan)
    config, layout = plan.config, plan.layout
    assert layout is not None
    staff = Staff(
        folder.absolute(),
        plan.views,
        config.deadline,
        config.transport,
        layout.users_per_process,
        config.on_death,
        course.faults,
        course.resume,
        gone_users(folder, plan.card.scheme.servers) if course.resume else frozenset(),
        course.lock,
        log.reported,
        connected=layout.turns(plan.shape.n_users),
    )
    churn = plan.churn()
    launch = Launch(roster, secrets, staff, on_iteration, churn.events if churn else None, on_replay, on_join)
    log.observer = launch.observer
    return launch.run(), launch.observer


def _drive_in_process(
    plan: Plan, folder: Path, course: _Course, log: IterationLog, on_iteration: OnIteration
) -> tuple[Outcome, Observer]:
    log.observer = observer = Observer(plan.card.params)
    churn = plan.churn()
    settings: dict[str, Any] = {
        "observer": observer,
        "held_out": plan.held_out(),
        "run_folder": str(folder),
        "with_view": plan.views,
        "on_iteration": on_iteration,
        "events_for": churn.events if churn else None,
    }
    driver: InProcess
    try:
        if course.faults:
            driver = FaultyInProcess(plan.card, plan.seats(), course.faults, **settings)
        else:
            driver = InProcess(plan.card, plan.seats(), resume=course.resume, reported=log.reported, **settings)
    except (Exception, SystemExit) as error:  # a role could not be made
        failed = scheme_failed(error, plan.card.scheme)
        if failed is None:
            raise
        return Outcome(processes={"inprocess": 1}, abort=failed), observer
    try:
        outcome = driver.run()
    except KeyboardInterrupt:
        outcome = driver.outcome
        outcome.abort = Aborted(Reason.INTERRUPTED)
    if outcome.item_factors is not None:
        save_factors(str(folder), outcome.item_factors)
    return outcome, observer


def gone_users(folder: Path, servers: Iterable[str]) -> frozenset[str]:
    """Find the users that had gone for good when the run was stopped, according to the view of any server."""
    gone: set[str] = set()
    for server in servers:
        path = Path(view_path(str(folder), server))
        if path.is_file():
            with open_regular(path) as stream:
                events = (record.fields for record in WholeRecords(stream) if record.type == EVENT)
                gone |= {user_name(fields[1]) for fields in events if fields[0] == "Gone"}
    return frozenset(gone)


def make_roster(plan: Plan, endpoints: dict[str, str] | None = None) -> tuple[list[Secret], Roster]:
    """Make fresh transport keys for every party, and the roster that all parties are given."""
    held_out = plan.held_out()
    secrets = [Secret(seat, make_key_pair(), held_out.get(seat.party)) for seat in plan.seats()]
    keys = {secret.seat.party: secret.keys.public for secret in secrets}
    return secrets, Roster(plan.card, plan.config.scheme, keys, endpoints or {})


# --- the cost of protection ------------------------------------------------------------------------------------------


def unprotected_accuracy(plan: Plan, reached: Accuracy) -> Accuracy:
    """Measure the accuracy of `plain`, or of the same pipeline without protection if the scheme does not factorize.

    `reached` is the accuracy of the run itself, which is the result if that had no protection to remove.
    """
    if plan.card.scheme.factorizes:
        return with_factors(plan, 32)
    scheme, params = plan.card.scheme.unprotected(plan.card.params)
    if params == plan.card.params:
        return reached
    run_id = make_run_id(params, all_parties(scheme, params.n_users), plan.nonce)
    return _carried_out(plan, Card(scheme, params, run_id, plan.card.simulation))


def honest_accuracy(plan: Plan) -> Accuracy:
    """Measure the accuracy of the same run without the party that cheats."""
    return _carried_out(plan, dataclasses.replace(plan.card, cheat=""))


def with_factors(plan: Plan, bits: int) -> Accuracy:
    """Measure the accuracy of `plain` where users receive factors of `bits` bits."""
    return plain_accuracy(plan.card.params, plan.data, plan.run_seed, plan.churn(), bits)


def _carried_out(plan: Plan, card: Card) -> Accuracy:
    """Run the roles themselves, all in this process, and keep only how well users predict."""
    there = set(all_parties(card.scheme, card.params.n_users))  # this scheme may need fewer servers
    seats = [seat for seat in plan.seats() if seat.party in there]
    observer, churn = Observer(card.params), plan.churn()
    events = churn.events if churn else None
    outcome = InProcess(card, seats, observer=observer, held_out=plan.held_out(), events_for=events).run()
    if outcome.abort is not None:
        raise outcome.abort
    return observer.accuracy()
