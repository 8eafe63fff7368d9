"""Write `iterations.jsonl` during a run, and make `summary.json` at its end."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgpack
import numpy as np

from actors.metering.accuracy import Accuracy, ProfileErrors
from actors.metering.meter import UNDELIVERED, Tally, as_row
from actors.metering.observer import Observer
from actors.metering.outcome import IterationDone, Outcome
from protocol.arithmetic.tape import Tape
from protocol.card import tape_seed
from protocol.cheats.cheat import parse_cheat
from protocol.errors import Aborted, SchemeFailed
from protocol.party.party import result_digest
from protocol.party.role import RECOMMENDER, user_index
from protocol.schemes.base import DELTA
from protocol.wire.framing import Traffic
from protocol.wire.messages import SETUP, Publication
from sim.data.device_guesses import errors, floors
from sim.folder.byte_records import LINES, checked_line
from sim.folder.folder import open_private
from sim.folder.forms import FORMAT
from sim.folder.traffic import spread
from sim.foreign import untrusted
from sim.foreign.plain_text import jsonable
from sim.plan.plan import Plan

DIRECTIONS = ("down", "up")  # to a user, and from it
STILL_FALLING = 0.002  # relative fall of the training error in one iteration


class IterationLog:
    """The log of a run: one flushed line per iteration, and the sums that the summary needs."""

    def __init__(self, folder: Path, roles: Iterable[str] = (), iterations: int = 0) -> None:
        """Open the log; given the `roles` and `iterations` of a stopped run, keep its lines up to a damaged one."""
        self.observer: Observer | None = None
        self.seconds: list[float] = []
        self.dropouts = 0
        self.rows: list[Traffic] = []
        self.users = {direction: Counter[int]() for direction in DIRECTIONS}  # wire bytes of a user in an iteration
        self.latest: dict[str, Any] = {}
        self._errors: list[float | None] = []
        self._fall: tuple[float, float] | None = None  # errors of the same users in the last two iterations, if known
        self.reported = SETUP - 1  # the last iteration that has its line
        end = self._go_on(folder, frozenset(roles), iterations) if roles else 0
        self._file = open_private(folder / LINES)  # it names the users that took part
        self._file.truncate(end)

    def _go_on(self, folder: Path, roles: frozenset[str], iterations: int) -> int:
        """Count the lines that are there already, and return where the last of them ends in the file."""
        end = 0
        with contextlib.suppress(FileNotFoundError, ValueError):
            for text in untrusted.read_lines(folder, LINES, untrusted.MOST_JSON_BYTES, iterations + 1):
                self._count(checked_line(text, self.reported + 1, roles))
                end += len(text)
        return end

    def add(self, done: IterationDone) -> None:
        line = jsonable(self._line(done, histograms(done.tally)))
        self._file.write(json.dumps(line, allow_nan=False) + "\n")
        self._file.flush()
        self._count(line)
        if self.observer:
            self._fall = self.observer.train_fall(done.iteration, done.contributors)

    def _count(self, line: dict[str, Any]) -> None:
        """Add a line to the sums, whether it has just been written or was there when the run was resumed."""
        self.latest, self.reported = line, line["iteration"]
        self.rows += [Traffic(*row) for row in line["rows"]]
        if line["iteration"] < 0:
            return
        for direction, counts in line["users"].items():
            self.users[direction] += Counter(dict(counts))
        self.dropouts += line["dropouts"]
        self._errors.append(line["train_mae"])
        if line["seconds"] is not None:
            self.seconds.append(line["seconds"])

    def _line(self, done: IterationDone, users: dict[str, Counter[int]]) -> dict[str, Any]:
        own = [row for row in done.tally.rows if row.iteration == done.iteration]
        turnout: dict[str, Any] = dict.fromkeys(("online", "contributors", "dropouts", "train_mae"))
        if done.iteration >= 0:  # no user contributes in the set-up
            error = self.observer.train_mae(done.iteration, done.contributors) if self.observer else None
            values = (done.invited, done.contributors, done.invited - done.contributors, error)
            turnout = dict(zip(turnout, values, strict=True))
        return {
            "iteration": done.iteration,
            "seconds": done.seconds,
            **turnout,
            "bytes": sum(row.wire_bytes for row in own),
            "course": done.course,
            "rows": [as_row(row) for row in done.tally.rows],
            "users": {direction: sorted(counts.items()) for direction, counts in users.items()},
        }

    @property
    def iterations(self) -> int:
        return len(self._errors)

    def notes(self) -> list[str]:
        """Tell if the training error was still falling when the run ended."""
        before, after = self._fall or (0.0, 0.0)
        if not before or after > before * (1 - STILL_FALLING):
            return []
        percent = 100 * (1 - after / before)
        return [f"Training error still fell by {percent:.1f} % at the end."]

    def close(self) -> None:
        self._file.close()


def histograms(tally: Tally) -> dict[str, Counter[int]]:
    """Count users by the wire bytes that they received, and sent, in an iteration; users without any are left out."""
    found = {direction: Counter[int]() for direction in DIRECTIONS}
    for amounts in tally.users.values():
        for direction, amount in zip(DIRECTIONS, amounts, strict=True):
            if amount:
                found[direction][amount] += 1
    return found


def anchor_of(views: dict[str, tuple[int, bytes]]) -> str | None:
    """Compute a digest over the heads of all `views`: it changes even if every file is rewritten to fit the others."""
    if not views:
        return None
    heads = [[party, records, head] for party, (records, head) in sorted(views.items())]
    return hashlib.sha256(msgpack.packb(["anchor", heads])).hexdigest()


def digest_of_predictions(digests: Mapping[str, str]) -> str | None:
    """Compute a digest over the `digests` of all users' predictions; None if users end without any."""
    if not digests:
        return None
    ordered = sorted((user_index(user), digest) for user, digest in digests.items())
    return hashlib.sha256(msgpack.packb(["predictions", ordered])).hexdigest()


def summarise(
    plan: Plan,
    folder: Path,
    outcome: Outcome,
    log: IterationLog,
    accuracy: Accuracy,
    plain: Accuracy | None,
    narrow: Accuracy | None,
    honest: Accuracy | None,
    seconds: float,
) -> dict[str, Any]:
    params, shape, config = plan.card.params, plan.shape, plan.config
    held_out = len(plan.data.held_out.values)
    return jsonable(  # type: ignore[no-any-return]
        {
            "run": str(folder),
            "format": FORMAT,
            "scheme": plan.card.scheme.name,
            "data": config.data,
            "seed": config.seed,
            "simulation": plan.card.simulation,
            "completed": outcome.abort is None,
            "abort": _abort(outcome.abort),
            "cheat": _cheat(plan, accuracy, honest),
            "notes": [*plan.notes, *log.notes(), *outcome.figures.get("notes", ())],
            "figures": {name: value for name, value in outcome.figures.items() if name != "notes"},
            "users": shape.n_users,
            "items": shape.n_items,
            "items_without_raters": shape.n_items - shape.rated_items,
            "ratings": {"train": sum(shape.support_sizes), "test": held_out},
            "dim": params.dim,
            "iterations": params.iterations,
            "transport": config.transport,
            "wire": params.wire,
            "processes": outcome.processes,
            "users_per_process": config.users_per_process,
            "ring": {"bits": params.ring_bits, "fraction_bits": params.fraction_bits},
            "clipped": accuracy.clipped,
            "accuracy": {
                **_accuracy(accuracy, plain),
                "factor_bits": _narrow(params.factor_bits, narrow, plain),
                "on_device": _on_device(plan),
            },
            "privacy": {
                "unit": plan.card.scheme.unit,
                "claimed_epsilon": config.epsilon,
                "accounted": _accounted(plan, completed=outcome.abort is None),
            },
            "seconds": _seconds(outcome, log, seconds),
            "bytes": _bytes(outcome, log),
            "memory": _memory(outcome.user_process_uss) | {"peak": outcome.peaks},
            "rejected": dict(sorted(outcome.rejected.items())),
            "strangers": dict(sorted(outcome.strangers.items())),
            "dropouts": log.dropouts,
            "restarts": outcome.restarts,
            "gone": outcome.gone,
            "predictions_sha256": digest_of_predictions(outcome.predictions),
            "item_factors_sha256": None if outcome.item_factors is None else result_digest(outcome.item_factors),
            "anchor": anchor_of(outcome.views),
            "views": {party: {"records": n, "head": head} for party, (n, head) in sorted(outcome.views.items())},
        }
    )


def bandwidth_document(outcome: Outcome) -> dict[str, Any]:
    """Collect what `iterations.jsonl` does not hold: the end, sums by party, what was apart, the kernel's counts."""
    return {
        "format": FORMAT,
        "rows": [as_row(row) for row in outcome.rest.rows],
        "course": outcome.course,
        "parties": outcome.parties,
        "parties_note": outcome.parties_note,
        "apart": outcome.apart,
        "apart_note": outcome.apart_note,
        "kernel": outcome.kernel,
        "kernel_note": outcome.kernel_note,
    }


def _accounted(plan: Plan, completed: bool) -> dict[str, Any]:
    """Account for the releases as the scheme does; the recommender's tape determines the envelopes that it knows."""
    if not completed:
        words = "the run did not complete, so its releases are not accounted"
        return {"epsilon": None, "delta": DELTA, "method": words}
    tape = Tape(tape_seed(plan.run_seed, RECOMMENDER))
    return plan.card.scheme.account(plan.card.params, tape, plan.shape)


def _abort(abort: Aborted | None) -> dict[str, str] | None:
    if abort is None:
        return None
    trace = {"traceback": abort.trace} if isinstance(abort, SchemeFailed) else {}
    return {"reason": abort.reason.name, "sentence": str(abort)} | trace


def _accuracy(accuracy: Accuracy, plain: Accuracy | None) -> dict[str, Any]:
    return {
        "train_mae": accuracy.train_mae,
        "train_rmse": accuracy.train_rmse,
        "test_mae": accuracy.test_mae,
        "test_rmse": accuracy.test_rmse,
        "as_published": _reading(accuracy.as_published),
        "iterate": _reading(accuracy.iterate),
        "ranking": None if accuracy.ranking is None else dataclasses.asdict(accuracy.ranking),
        "plain": {
            "train_mae": plain and plain.train_mae,
            "test_rmse": plain and plain.test_rmse,
            "as_published": _reading(plain.as_published if plain else None),
            "iterate": _reading(plain.iterate if plain else None),
        },
        "mae_increase": _difference(accuracy.train_mae, plain.train_mae if plain else None),
    }


def _cheat(plan: Plan, reached: Accuracy, honest: Accuracy | None) -> dict[str, Any] | None:
    """Describe the party that cheats, and what that cost: the errors of the run less those of its honest twin."""
    if not plan.card.cheat:
        return None
    cheat, names = parse_cheat(plan.card.cheat).cheat, ("train_mae", "test_rmse")
    cost = None
    if honest is not None:
        twin = {name: getattr(honest, name) for name in names}
        cost = {
            "honest": twin,
            "increase": {name: _difference(getattr(reached, name), twin[name]) for name in names},
        }
    return {"name": plan.card.cheat, "party": cheat.party, "kind": cheat.kind, "does": cheat.does, "cost": cost}


def _on_device(plan: Plan) -> list[dict[str, Any]]:
    """Measure the guesses in which nothing leaves the device, on the same held-out ratings."""
    return [
        {"name": floor.name, "title": floor.title, "test_rmse": errors(floor, plan.data)["test_rmse"]}
        for floor in floors(plan.data, plan.shape.rating_range, plan.shape.features)
    ]


def _reading(reading: ProfileErrors | None) -> dict[str, float | None] | None:
    return None if reading is None else dataclasses.asdict(reading)


def _narrow(bits: int, narrow: Accuracy | None, plain: Accuracy | None) -> dict[str, Any] | None:
    """Compute the cost of sending users narrower factors: `plain` with them minus `plain` with 32-bit ones."""
    if narrow is None or plain is None:
        return None
    return {
        "bits": bits,
        "train_mae_cost": _difference(narrow.train_mae, plain.train_mae),
        "test_rmse_cost": _difference(narrow.test_rmse, plain.test_rmse),
        "measured_on": "plain",
    }


def _difference(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one - other


def _seconds(outcome: Outcome, log: IterationLog, total: float) -> dict[str, Any]:
    return {
        "startup": outcome.startup_seconds,
        "total": total,
        "iterations": sum(log.seconds) if log.seconds else None,
        "iteration_median": statistics.median(log.seconds) if log.seconds else None,
        "iteration_p95": float(np.quantile(log.seconds, 0.95)) if log.seconds else None,
    }


def _memory(uss: list[int]) -> dict[str, Any]:
    return {
        "user_process_uss_mean": round(statistics.mean(uss)) if uss else None,
        "user_process_uss_max": max(uss, default=None),
    }


def _bytes(outcome: Outcome, log: IterationLog) -> dict[str, Any]:
    """Sum the wire bytes, framing and encryption included."""
    edges: dict[str, int] = defaultdict(int)
    whole: dict[str, int] = defaultdict(int)
    for row in [*log.rows, *outcome.rest.rows]:
        whole[f"{row.sender}->{row.receiver}"] += row.wire_bytes
    for row in log.rows:
        if 0 <= row.iteration < log.iterations:
            edges[f"{row.sender}->{row.receiver}"] += row.wire_bytes
    course = sum(whole.values())
    apart = sum(-wire if what == UNDELIVERED else wire for what, *_, wire in outcome.apart)  # those never left
    return {
        "total": course + apart,
        "edges": dict(whole),
        "per_iteration": {edge: round(total / log.iterations) for edge, total in edges.items()},
        "publication": _publication(outcome),
        "per_user_iteration": {
            f"{direction}_{name}": None if value is None else round(value)
            for direction in DIRECTIONS
            for name, value in spread(log.users[direction]).items()
        },
    }


def _publication(outcome: Outcome) -> dict[str, int] | None:
    """Sum the bytes of the publication after the last iteration; None if no message is a publication."""
    rows = [row for row in outcome.rest.rows if row.kind == Publication.__name__]
    messages, total = sum(row.messages for row in rows), sum(row.wire_bytes for row in rows)
    return {"total": total, "per_user": round(total / messages)} if messages else None
