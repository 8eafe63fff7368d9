"""The forms of the JSON and TOML files in a run folder: which fields each must have, of which types and bounds.

Fields that are not listed here may have any value, so that the file of a newer Keyhole can be read.
"""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct, defstruct

from protocol.params import MOST_ITERATIONS
from protocol.wire.messages import SETUP
from sim.foreign.bounds import MOST_PARTIES, Count, Digest, Real, Whole

FORMAT = 2

Figure = Real | None
Epsilon = float | str | None  # infinity is written as a text
Counts = dict[str, Count]
Iteration = Annotated[int, Meta(ge=SETUP, le=MOST_ITERATIONS)]
Row = tuple[Iteration, str, str, str, Count, Count, Count]  # sender, receiver, kind; messages, payload, wire bytes
ApartRow = tuple[str, str, str, Count, Count, Count]  # what, sender, receiver
KernelRow = tuple[Annotated[str, Meta(min_length=1)], str, Count, Count, Count]  # server, party ("": unknown)

def table(sometimes: dict[str, Any] | None = None, base: type[Struct] = Struct, /, **fields: Any) -> Any:
    """Make the form of a table with the fields of `base` and these; those in `sometimes` may be null or missing."""
    optional = [(name, form | None, None) for name, form in (sometimes or {}).items()]
    return defstruct("Table", [*fields.items(), *optional], bases=(base,), kw_only=True)


def each(form: Any, *names: str) -> dict[str, Any]:
    return dict.fromkeys(names, form)


# --- run.toml and names.json -----------------------------------------------------------------------------------------

Table = dict[str, Any]
Settings = table(each(str, "cheat"), scheme=str)
RunFile = table(run_id=Digest, nonce=Digest, simulation=bool, run=Settings, params=Table, platform=Table)


class NamesFile(Struct):
    users: list[str]
    items: list[str]
    titles: list[str] = []


# --- iterations.jsonl and bandwidth.json -----------------------------------------------------------------------------


class Commitment(Struct):
    opened: Count
    sealed: Count
    asked: dict[Annotated[str, Meta(pattern=r"^[0-9]{1,15}\Z")], str]  # users by the number of items asked for


class CourseFacts(Struct):
    """The facts whose form is known; the texts that name users are checked where they are read."""

    commitments: list[Commitment] = []
    answered: list[str] = []
    cells: list[Count] = []


class Histograms(Struct):
    """Pairs (wire bytes, how many users had them in this iteration)."""

    down: list[tuple[Count, Count]]
    up: list[tuple[Count, Count]]


class IterationLine(Struct):
    iteration: Iteration
    seconds: Figure
    online: Count | None
    contributors: Count | None
    dropouts: Count | None
    train_mae: Figure
    bytes: Count
    course: CourseFacts
    rows: list[Row]
    users: Histograms


class TotalsFile(Struct):
    format: int
    rows: list[Row]
    course: CourseFacts
    parties: list[Row]
    apart: list[ApartRow]
    apart_note: str | None
    kernel: list[KernelRow] | None
    kernel_note: str | None
    parties_note: str | None = None

    def __post_init__(self) -> None:
        if self.format != FORMAT:
            raise ValueError(f"it has format {self.format}, and this Keyhole reads format {FORMAT}")
        if (self.kernel is None) == (self.kernel_note is None):
            raise ValueError("it must have either counts of the kernel or a sentence why there are none")
        pairs = [row[:2] for row in self.kernel or ()]
        if len(set(pairs)) < len(pairs):
            raise ValueError("it has two counts of the kernel for the same connection")


# --- summary.json ----------------------------------------------------------------------------------------------------


MEANS = each(Figure, "train_mae", "train_rmse", "test_mae", "test_rmse")
READINGS = each(table(**MEANS), "as_published", "iterate")
ACCURACY = READINGS | {
    "ranking": table(users=Count, **each(Figure, "ndcg_10", "hit_10", "recall_10", "popular_ndcg_10")),
    "factor_bits": table(bits=Count, measured_on=str, **each(Figure, "train_mae_cost", "test_rmse_cost")),
    "on_device": list[table(name=str, title=str, test_rmse=Figure)],  # type: ignore[misc]
}
ACCOUNTED = each(Epsilon, "basic", "advanced", "tight") | {
    "releases": Count,
    "recommender": table(**each(Epsilon, "median", "p99", "worst", "direction_worst")),
}


class ViewEnd(Struct):
    records: Annotated[int, Meta(ge=1)]
    head: Digest


class Abort(Struct):
    reason: str
    sentence: str
    traceback: str | None = None


class Ending(Struct, kw_only=True):
    """The part of a summary that views confirm."""

    completed: bool
    views: dict[str, ViewEnd]
    abort: Abort | None

    def __post_init__(self) -> None:
        if self.completed != (self.abort is None):
            raise ValueError("completed and abort contradict each other")


Summary = table(
    {"predictions_sha256": str},
    Ending,
    **each(str, "run", "scheme", "data", "transport"),
    **each(str | None, "item_factors_sha256", "anchor"),
    **each(list[str], "notes", "gone"),
    **each(Count, "items", "dim", "iterations", "dropouts", "restarts"),
    **each(Counts, "processes", "rejected", "strangers"),
    seed=Annotated[int, Meta(ge=0)],
    simulation=bool,
    users=Annotated[int, Meta(ge=1, le=MOST_PARTIES)],
    ratings=table(train=Count, test=Count),
    ring=table(bits=Count | None, fraction_bits=Whole | None),
    accuracy=table(
        ACCURACY, **MEANS, mae_increase=Figure, plain=table(READINGS, **each(Figure, "train_mae", "test_rmse"))
    ),
    privacy=table(
        unit=str, claimed_epsilon=Epsilon, accounted=table(ACCOUNTED, epsilon=Epsilon, delta=Real, method=str)
    ),
    seconds=table(**each(Figure, "startup", "total", "iteration_median", "iteration_p95")),
    bytes=table(
        {"publication": table(total=Count, per_user=Count)},
        total=Count,
        **each(Counts, "edges", "per_iteration"),
        per_user_iteration=table(**each(Figure, "down_mean", "down_max", "up_mean", "up_max")),
    ),
)


# --- audit.json: the part that lists and compares runs ---------------------------------------------------------------


class AuditedParty(Struct):
    members: Annotated[list[str], Meta(min_length=1)]
    stands_for: Count = 1
    determines: str | None = None
    works_out: str | None = None
    measured: list[str] = []


class PublishedClaim(Struct):
    status: str | None = None


class AuditFile(Struct):
    verdict: str | None = None
    published_claim: PublishedClaim | None = None
    questions: dict[str, Any] | None = None
    not_shown: list[Any] | None = None
    parties: list[AuditedParty] = []
