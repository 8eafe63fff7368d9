"""One run, from its configuration to its folder, with any driver."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from actors import limits
from actors.host import save_factors
from actors.keys import Roster, Secret
from actors.launch import Launch, Staff
from actors.observer import Observer
from actors.outcome import IterationDone, Outcome
from actors.transport import make_key_pair
from protocol.errors import Aborted, Reason
from sim.baseline import plain_accuracy
from sim.config import RunConfig
from sim.folder import new_folder, write_names, write_run, write_summary
from sim.inprocess import InProcess
from sim.plan import Plan, make_plan
from sim.summary import IterationLog, summarise

OnLine = Callable[[dict[str, Any]], None]  # one line of iterations.jsonl


def run(
    config: RunConfig,
    *,
    out: Path | None = None,
    force: bool = False,
    on_plan: Callable[[Plan], None] | None = None,
    on_line: OnLine | None = None,
) -> dict[str, Any]:
    """Run it and return the summary; an aborted run has one too."""
    started = time.perf_counter()
    plan = make_plan(config)
    check_limits(plan, out or Path())
    folder = new_folder(out, plan.card.scheme.name, force)
    write_run(folder, plan.config, plan.card, plan.nonce)
    write_names(folder, plan.user_names, plan.item_names)
    if on_plan:
        on_plan(plan)
    log = IterationLog(folder)

    def on_iteration(done: IterationDone) -> None:
        log.add(done)
        if on_line:
            on_line(log.latest)

    try:
        outcome, observer = _drive(plan, folder, log, on_iteration)
    finally:
        log.close()
    completed = outcome.abort is None
    plain = plain_accuracy(plan.card.params, plan.data, plan.run_seed, plan.churn()) if completed else None
    seconds = time.perf_counter() - started
    summary = summarise(plan, folder, outcome, log, observer.accuracy(), plain, seconds)
    write_summary(folder, summary)
    return summary


def check_limits(plan: Plan, out: Path) -> None:
    limits.check_disk(out, plan.view_bytes())
    if plan.config.transport == "inprocess":
        return
    users, packed = plan.shape.n_users, plan.config.users_per_process
    processes = -(-users // packed)
    limits.check_files(users, 2 * packed)
    limits.check_processes(processes + len(plan.card.scheme.servers) + 1)
    limits.check_memory(processes, users)


def _drive(
    plan: Plan, folder: Path, log: IterationLog, on_iteration: Callable[[IterationDone], None]
) -> tuple[Outcome, Observer]:
    if plan.config.transport == "inprocess":
        return _drive_in_process(plan, folder, log, on_iteration)
    secrets, roster = make_roster(plan)
    config = plan.config
    layout = (config.deadline, config.transport, config.users_per_process, config.on_death)
    staff = Staff(folder.absolute(), plan.views, *layout)
    churn = plan.churn()
    launch = Launch(roster, secrets, staff, on_iteration, churn.events if churn else None)
    log.observer = launch.observer
    return launch.run(), launch.observer


def _drive_in_process(
    plan: Plan, folder: Path, log: IterationLog, on_iteration: Callable[[IterationDone], None]
) -> tuple[Outcome, Observer]:
    params = plan.card.params
    log.observer = observer = Observer.in_memory(
        params.n_users, params.n_items, params.dim, (params.rating_min, params.rating_max)
    )
    churn = plan.churn()
    driver = InProcess(
        plan.card,
        plan.seats(),
        observer=observer,
        held_out=plan.held_out(),
        run_folder=str(folder),
        with_view=plan.views,
        on_iteration=on_iteration,
        events_for=churn.events if churn else None,
    )
    try:
        outcome = driver.run()
    except KeyboardInterrupt:
        outcome = driver.outcome
        outcome.abort = Aborted(Reason.INTERRUPTED)
    if outcome.item_factors is not None:
        save_factors(str(folder), outcome.item_factors)
    return outcome, observer


def make_roster(plan: Plan, endpoints: dict[str, str] | None = None) -> tuple[list[Secret], Roster]:
    """Fresh transport keys for every party, and the list that all of them are given."""
    held_out = plan.held_out()
    secrets = [Secret(seat, make_key_pair(), held_out.get(seat.party)) for seat in plan.seats()]
    keys = {secret.seat.party: secret.keys.public for secret in secrets}
    return secrets, Roster(plan.card, plan.config.scheme, keys, endpoints or {})
