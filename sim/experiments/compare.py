"""`keyhole compare`: run every scheme on the same ratings, split and seed, beside guesses that need no protocol.

A row holds figures from the run's own summary, and the bytes that are counted in its folder. Schemes publish an ε for
different things, so every ε that leaves this module carries its unit.
"""

from __future__ import annotations

import math
import shlex
import statistics
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from actors.own_scheme import load_schemes
from protocol.arithmetic.tape import derive
from protocol.card import all_parties
from protocol.errors import Aborted, BadInput, Reason
from protocol.params import require
from protocol.party.role import RECOMMENDER, THIRD_PARTY, role_of
from protocol.schemes import SCHEMES, Scheme, find_scheme
from protocol.schemes.base import LEVELS
from protocol.schemes.factorization.factorization import FactorizationParams
from protocol.wire.fields import DigestField, field_kinds
from sim.data.described_items import AUTO, describe_items
from sim.data.device_guesses import errors, floors
from sim.data.ratings import Dealt, Ratings, load, split
from sim.folder.byte_records import UNDELIVERED, read_ledger
from sim.foreign.plain_text import jsonable
from sim.plan.config import FLAGS, RunConfig, resolve
from sim.plan.flag import words_of
from sim.plan.plan import run_seed_of
from sim.run.run import run

EPSILON_NOTE = (
    "Every ε is the scheme's own published parameter and means what stands beside it: figures with different units are "
    "not comparable."
)
FIGURES = (  # each as the mean and the range over the seeds; `iterate`: with u_i of the last iteration, if any
    "test_rmse", "test_mae", "plain_test_rmse", "iterate_test_rmse", "plain_iterate_test_rmse", "seconds",
)  # fmt: skip
# What a claim is about, from all of a user to one number. An entry is a rating or none: where the two of any entry
# cannot be told apart by more than ε, neither can a rating that is there and one that is not. So it meets those.
MEETING = {
    "user": "user added or removed, whole run",
    "rating added": "rating added or removed, whole run",
    "entry": "rating added or removed, whole run",
    "rating value": "rating value, whole run",
}
_PACE = "the number of the iteration"  # known to every party
_MOST_SEEDS = 1000
_SAID = ("data", "seed")  # in a command, even if they are the default

OnRun = Callable[[str, int], None]  # called with scheme and seed before each run
Row = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The options of a comparison. With None, the scheme or the data decides, as in `keyhole run`."""

    data: str = "demo"
    schemes: tuple[str, ...] = ()  # if empty, all of `SCHEMES`
    epsilon: float | tuple[float, ...] | None = None  # for every scheme that takes one; of several, a row for each
    unit: str | None = None  # likewise
    iterations: int | None = None  # this and `dim`: for every scheme that factorizes
    dim: int | None = None
    users: int | None = None
    rating_range: tuple[float, float] | None = None
    columns: str | None = None  # this and the next two: how a file is read, as in `keyhole run`
    on_duplicate: str = "refuse"
    on_missing: str = "refuse"
    seed: int = 1
    seeds: int = 1
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # by scheme

    def every_epsilon(self, scheme: Scheme) -> list[float | None]:
        """List the ε with which `scheme` is run; one row, if it takes none."""
        if not FLAGS["epsilon"].takes(scheme):
            return [None]
        return list(self.epsilon) if isinstance(self.epsilon, tuple) else [self.epsilon]

    def every_seed(self) -> list[int]:
        return list(range(self.seed, self.seed + self.seeds))

    def command(self) -> str:
        """Write the command line that asks for the same comparison."""
        given = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        default = Comparison()
        given = {name: value for name, value in given.items() if name in _SAID or value != getattr(default, name)}
        options = ((scheme, name, value) for scheme, chosen in self.options.items() for name, value in chosen.items())
        given["options"] = {f"{scheme}:{name}": value for scheme, name, value in options}
        if self.schemes:
            given["schemes"] = ",".join(self.schemes)
        if isinstance(self.epsilon, tuple):
            given["epsilon"] = ",".join(f"{epsilon:g}" for epsilon in self.epsilon)
        return shlex.join(["keyhole", "compare", *(word for one in given.items() for word in words_of(*one))])

    def config(self, name: str, scheme: Scheme, seed: int, epsilon: float | None) -> RunConfig:
        shared = {entry.name for entry in fields(self)} & set(FLAGS) - {"seed", "options", "epsilon"}
        taken = {flag: getattr(self, flag) for flag in shared if FLAGS[flag].takes(scheme)} | {"epsilon": epsilon}
        options = dict(self.options.get(name, {}))
        return RunConfig(scheme=name, **taken, transport="inprocess", views="none", seed=seed, options=options)

    def check(self) -> dict[str, Scheme]:
        """Refuse bad options before anything runs, and return the schemes by the names that were asked for."""
        for epsilon in self.epsilon if isinstance(self.epsilon, tuple) else (self.epsilon,):
            require(epsilon is None or epsilon > 0, f"--epsilon must be above 0 (or inf for no noise), not {epsilon}.")
        require(1 <= self.seeds <= _MOST_SEEDS, f"--seeds must be between 1 and {_MOST_SEEDS}, not {self.seeds}.")
        sizes = {"dim": self.dim, "iterations": self.iterations}
        FactorizationParams.check(**{name: size for name, size in sizes.items() if size is not None})
        load_schemes(self.schemes)
        chosen = {name: find_scheme(name) for name in self.schemes or SCHEMES}
        for name in self.options:
            words = f"--set {name}:… is for a scheme that is not compared: it can be for {', '.join(chosen)}."
            require(name in chosen, words)
        for name, scheme in chosen.items():
            for epsilon in self.every_epsilon(scheme):
                resolve(self.config(name, scheme, self.seed, epsilon))
        return chosen


def parse_settings(assignments: Iterable[str]) -> dict[str, dict[str, str]]:
    """Group the `assignments` of `--set`, SCHEME:OPTION=VALUE, by scheme. The scheme may be module:Class."""
    options: dict[str, dict[str, str]] = {}
    for assignment in assignments:
        whole, equals, value = assignment.partition("=")
        scheme, colon, option = whole.rpartition(":")
        require(bool(equals and colon and scheme and option), f"--set takes SCHEME:OPTION=VALUE, not {assignment!r}.")
        options.setdefault(scheme, {})[option] = value
    return options


def compare(asked: Comparison, on_run: OnRun | None = None) -> dict[str, Any]:
    """Run every scheme with every seed, and return the document of the comparison.

    Runs follow one another: in parallel they would distort each other's seconds.
    """
    chosen = asked.check()
    any_config = asked.config(*next(iter(chosen.items())), asked.seed, None)
    ratings = load(asked.data, asked.rating_range, any_config.reading())
    if asked.users is not None:
        ratings = ratings.first_users(asked.users)
    below = _floors(ratings, asked)
    rows = []
    for name, scheme in chosen.items():
        for epsilon in asked.every_epsilon(scheme):
            runs = []
            for seed in asked.every_seed():
                if on_run:
                    on_run(name if epsilon is None else f"{name}, ε {epsilon:g}", seed)
                runs.append(_run(asked.config(name, scheme, seed, epsilon), scheme))
            rows.append(_row(name, scheme, asked, runs, below))
    if not asked.schemes:
        rows.sort(key=_rank)
    document = {
        "data": asked.data,
        "users": ratings.n_users,
        "items": ratings.n_items,
        "ratings": len(ratings),
        "rating_range": ratings.rating_range,
        "test_fraction": RunConfig().test_fraction,
        "seed": asked.seed,
        "seeds": asked.every_seed(),
        "epsilon": asked.epsilon,
        "epsilon_note": EPSILON_NOTE,
        "command": asked.command(),
        "rows": rows,
        "floors": below,
    }
    return jsonable(document)  # type: ignore[no-any-return]


# --- the floors ------------------------------------------------------------------------------------------------------


def deal(ratings: Ratings, seed: int) -> Dealt:
    """Split the `ratings` as a run with this `seed` splits them."""
    return split(ratings, RunConfig().test_fraction, derive(run_seed_of(seed), "split"))


def _floors(ratings: Ratings, asked: Comparison) -> list[Row]:
    found: dict[str, list[Row]] = {}
    features = describe_items(ratings, AUTO)
    for seed in asked.every_seed():
        data = deal(ratings, seed)
        for floor in floors(data, ratings.rating_range, features):
            head = {"floor": floor.name, "title": floor.title, "needs": floor.needs}
            found.setdefault(floor.name, []).append(head | errors(floor, data))
    rows = []
    for each in found.values():
        means, ranges = _over_seeds(each, ("test_rmse", "test_mae"))
        nothing = {"recommender_sees": [], "determines": LEVELS[0], "bytes_per_user": {"up": 0, "down": 0}}
        rows.append({**each[0], **means, "ranges": ranges, **nothing})
    return rows


# --- one run ---------------------------------------------------------------------------------------------------------


def _run(config: RunConfig, scheme: Scheme) -> Row:
    """Make one run and return its figures; if there are none, `reason` says why."""
    with tempfile.TemporaryDirectory(prefix="keyhole-compare-") as folder:
        path = Path(folder) / "run"
        try:
            summary = run(config, out=path)
        except (BadInput, Aborted) as refusal:
            return {"seed": config.seed, "reason": str(refusal)}
        abort = summary["abort"]
        if abort is not None and abort["reason"] == Reason.INTERRUPTED.name:
            raise KeyboardInterrupt  # the person stops the comparison, not one of its runs
        if abort is not None:
            return {"seed": config.seed, "reason": f"aborted: {abort['sentence']}"}
        sizes = _bytes_per_user(path, summary, scheme)
    accuracy, privacy = summary["accuracy"], summary["privacy"]
    return {
        "seed": config.seed,
        "reason": None,
        "test_rmse": accuracy["test_rmse"],
        "test_mae": accuracy["test_mae"],
        "plain_test_rmse": accuracy["plain"]["test_rmse"],
        "iterate_test_rmse": (accuracy["iterate"] or {}).get("test_rmse"),
        "plain_iterate_test_rmse": (accuracy["plain"]["iterate"] or {}).get("test_rmse"),
        "claimed_epsilon": privacy["claimed_epsilon"],
        "unit": privacy["unit"],
        "accounted": with_unit(privacy["accounted"], privacy["unit"]),
        "bytes_per_user": sizes,
        "seconds": summary["seconds"]["total"],
        "iterations": summary["iterations"],
        "notes": summary["notes"],
    }


def _bytes_per_user(folder: Path, summary: Row, scheme: Scheme) -> dict[str, float]:
    """Compute the wire bytes from and to a user over the whole run, with the set-up.

    The figures are means over all users, also absent ones.
    """
    ledger = read_ledger(folder, summary, all_parties(scheme, summary["users"]))
    flows = [(sender, receiver, counts[2]) for (_, sender, receiver, _), counts in ledger.rows.items()]
    for row in ledger.apart:
        flows.append((row.sender, row.receiver, -row.wire_bytes if row.what == UNDELIVERED else row.wire_bytes))
    up = sum(wire for sender, _, wire in flows if role_of(sender) == "user")
    down = sum(wire for _, receiver, wire in flows if role_of(receiver) == "user")
    return {"up": up / summary["users"], "down": down / summary["users"]}


def with_unit(accounted: Row, unit: str) -> Row:
    """Add the unit of the accounted ε: that of the claimed ε, for the whole run. `accounted` may name another."""
    return {"unit": f"{unit.partition(',')[0]}, whole run", **accounted}


# --- one scheme ------------------------------------------------------------------------------------------------------


def sees(scheme: Scheme, receiver: str = RECOMMENDER) -> list[str]:
    """List what `receiver` is told, in the scheme's own words.

    The list leaves out the number of the iteration, digests, and values that are uniform to this receiver alone.
    """
    kinds = {(cls.__name__, name): kind for cls in scheme.messages for name, kind in field_kinds(cls)}
    words = [
        leak.words
        for leak in scheme.leakage
        if leak.receiver == receiver
        and leak.words != _PACE
        and not leak.uniform
        and kinds.get((leak.kind, leak.field)) is not DigestField
    ]
    return list(dict.fromkeys(words))


_TRUST = {
    "nothing": "no party with anything of a user",
    "aggregate": "the recommender with sums over users",
    "noisy-individual": "the recommender with noisy numbers of each user",
    "exact-individual": "the recommender with exact numbers of each user",
}


def trust(scheme: Scheme) -> str:
    """Say what users must trust the recommender with, from what the scheme permits.

    If there is a third party, users must also trust that the two servers do not collude.
    """
    words = _TRUST[scheme.permits.get(RECOMMENDER, LEVELS[0])]
    return f"{words}; that it and the third party do not collude" if THIRD_PARTY in scheme.servers else words


def _row(name: str, scheme: Scheme, asked: Comparison, runs: Sequence[Row], below: Sequence[Row]) -> Row:
    done = [each for each in runs if each["reason"] is None]
    means, ranges = _over_seeds(done, FIGURES)
    accounted = [each["accounted"] for each in done]
    ranges["accounted_epsilon"] = _range([each["epsilon"] for each in accounted if each["epsilon"] is not None])
    first = done[0] if done else None
    return {
        "scheme": name,
        "title": scheme.title,
        "completed": bool(done),
        "trust": trust(scheme),
        **means,
        "ranges": ranges,
        "claimed_epsilon": first and first["claimed_epsilon"],
        "unit": first["unit"] if first else scheme.unit,
        "holds": _holds(scheme, first, accounted),
        "accounted": max(accounted, key=lambda each: _size(each["epsilon"]), default=None),  # the worst of the seeds
        "recommender_sees": sees(scheme),
        "determines": scheme.permits.get(RECOMMENDER, LEVELS[0]),
        "known_weaknesses": scheme.weakness_ids(),
        "bytes_per_user": {
            way: round(statistics.fmean(each["bytes_per_user"][way] for each in done)) if done else None
            for way in ("up", "down")
        },
        "iterations": first and first["iterations"],
        "beats": _beaten(means["test_rmse"], below),
        "options": dict(asked.options.get(name, {})),
        "note": _note(runs, first),
        "runs": list(runs),
    }


def _holds(scheme: Scheme, first: Row | None, accounted: Sequence[Row]) -> bool | None:
    """Tell whether ε, as accounted for the whole run, is no larger than claimed; None where none protects.

    That is so where none is claimed, or where the recommender is given exact numbers of each user.
    """
    if first is None or first["claimed_epsilon"] is None or scheme.permits.get(RECOMMENDER) == LEVELS[-1]:
        return None
    return all(_size(each["epsilon"]) <= _size(first["claimed_epsilon"]) * (1 + 1e-9) for each in accounted)


def _rank(row: Row) -> tuple[bool, str, float]:
    """Put schemes whose claim holds first, one unit after the other, the most accurate of each unit before others."""
    if not row["holds"]:
        return True, "", 0.0
    order, unit = list(dict.fromkeys(MEETING.values())), meeting_unit(row["accounted"]["unit"])
    return False, str(order.index(unit)) if unit in order else "9", row["test_rmse"]


def meeting_unit(unit: str) -> str:
    """Name the unit whose chart an accounted ε belongs into: that of the change which it hides."""
    return next((meeting for word, meeting in MEETING.items() if word in unit), unit)


def _note(runs: Sequence[Row], first: Row | None) -> str | None:
    """Say why there are no figures, or fewer than were asked for, and repeat the notes of the first completed run."""
    failed = {each["seed"]: each["reason"] for each in runs if each["reason"] is not None}
    if first is None:
        return " ".join(dict.fromkeys(failed.values()))
    told = [f"Not with seed {seed}: {reason}" for seed, reason in failed.items()]
    return " ".join([*told, *first["notes"]]) or None


def _beaten(rmse: float | None, below: Sequence[Row]) -> list[str] | None:
    """Return the names of the floors that have a larger mean error than `rmse`; None without an `rmse`."""
    if rmse is None:
        return None
    return [row["floor"] for row in below if row["test_rmse"] is not None and rmse < row["test_rmse"]]


def _over_seeds(rows: Sequence[Row], names: Sequence[str]) -> tuple[Row, Row]:
    """Compute ({name: mean}, {name: [least, most]}) over `rows`; None where no run has that figure."""
    known = {name: [row[name] for row in rows if row[name] is not None] for name in names}
    means = {name: statistics.fmean(values) if values else None for name, values in known.items()}
    return means, {name: _range(values) for name, values in known.items()}


def _range(values: Sequence[Any]) -> list[Any] | None:
    return [min(values, key=_size), max(values, key=_size)] if values else None


def _size(epsilon: Any) -> float:
    """Return the number to sort `epsilon` by: a summary writes infinity as text; None, no bound, sorts as infinity."""
    return math.inf if epsilon is None else float(epsilon)
