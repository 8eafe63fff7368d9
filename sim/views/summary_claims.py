"""Check the claims of `summary.json` and of the model against `run.toml` and the views."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from protocol.errors import Reason
from protocol.party.party import result_digest
from protocol.party.role import RECOMMENDER, user_index
from sim.folder.forms import FORMAT, Ending
from sim.folder.unloaded import is_loaded
from sim.foreign import untrusted
from sim.foreign.plain_text import jsonable
from sim.run.summary import anchor_of, digest_of_predictions
from sim.views.evidence import Case, Report
from sim.views.viewcheck import ViewCheck

SUMMARY, MODEL = "summary.json", "model/item_factors.npy"

# keys of a summary that no view can confirm, in words; any other key that is not checked is named as it is
_WORDS = {
    "run": "where the folder was when the run was made",
    "notes": "the notes of the run",
    "figures": "the figures of the recommender's end",
    "ratings.test": "how many ratings were held out",
    "processes": "how many processes there were",
    "clipped": "how many errors were clipped",
    "accuracy": "accuracy (it needs the held-out ratings and every user's factors)",
    "privacy.unit": "the unit of the claim (it needs the scheme)",
    "privacy.accounted": "the accounted privacy",
    "seconds": "seconds",
    "bytes": "bytes on the wire",
    "memory": "memory",
    "strangers": "how many strangers knocked",
    "dropouts": "dropouts",
    "restarts": "restarts",
    "gone": "which users were gone",
    "abort.sentence": "the sentence of the abort",
    "abort.traceback": "the traceback of the abort",
    "rejected": "how many frames were refused (it needs every view of a completed run)",
    "ratings.train": "how many ratings were trained on (it needs every view of a completed run)",
    "items_without_raters": "how many items have no rater (it needs every view of a completed run)",
}
_REST = (
    "settings of run.toml that reach no party (such as data or deadline)",
    "iterations.jsonl",
    "bandwidth.json",
    "names.json",
)


@dataclass(frozen=True, slots=True)
class Summary:
    document: dict[str, Any] = field(default_factory=dict)
    there: bool = False  # and readable
    completed: bool = False
    abort: str = ""  # its reason
    views: dict[str, tuple[int, bytes]] = field(default_factory=dict)  # party -> (records, head)


def read_summary(case: Case, report: Report) -> Summary:
    """Read the summary of `case`; one that cannot be used is a finding, a missing one is a note."""
    path = case.folder / SUMMARY
    if not path.exists():
        report.notes.append("There is no summary.json, so nothing says where each view should end.")
        return Summary()
    try:
        document = untrusted.read_json(case.folder, SUMMARY)
        ending = untrusted.fit(document, Ending)
        reason = "" if ending.abort is None else ending.abort.reason
        if reason and reason not in Reason.__members__:
            raise ValueError(f"`$.abort.reason`: {reason[:40]!r} is not a reason")
    except (OSError, ValueError) as error:
        report.find(SUMMARY, None, f"is damaged ({error})")
        return Summary()
    if not ending.completed:
        report.notes.append(f"The run was aborted ({reason}), so its views may stop anywhere.")
    for party in sorted(set(ending.views) - case.kept):
        report.find(SUMMARY, None, f"lists a view of {party}, of which run.toml says that none was kept")
    ends = {party: (end.records, bytes.fromhex(end.head)) for party, end in ending.views.items() if party in case.kept}
    return Summary(document, True, ending.completed, reason, ends)


def check(case: Case, summary: Summary, views: dict[str, ViewCheck], report: Report) -> list[str]:
    """Check the summary and the model; findings go to `report`, and the result lists what was not checked, in words."""
    model = _read_model(case, summary, report)
    _check_model(case, summary, views, model, report)
    if not summary.there:
        return list(_REST)
    covered = {"completed", "abort.reason", "views", "anchor", "item_factors_sha256"}
    for path, expected in (_from_run_toml(case) | _from_views(case, summary, views)).items():
        covered.add(path)
        found = _at(summary.document, path)
        if json.dumps(found, sort_keys=True) != json.dumps(jsonable(expected), sort_keys=True):
            report.find(SUMMARY, None, f"says {path} = {_brief(found)}, which is {_brief(jsonable(expected))}")
    _check_completed(case, summary, views, report)
    if summary.document.get("anchor") != anchor_of(summary.views):
        report.find(SUMMARY, None, "has an anchor that is not the digest over the heads that it lists")
    uncovered = [path for path in _paths(summary.document) if path not in covered]
    return [*(_WORDS.get(path, path) for path in uncovered), *_REST]


# --- the summary -----------------------------------------------------------------------------------------------------


def _from_run_toml(case: Case) -> dict[str, Any]:
    params, config, scheme = case.card.params, case.config, case.card.scheme
    return {
        "format": FORMAT,
        "scheme": scheme.name,
        "data": config.data,
        "seed": config.seed,
        "simulation": case.card.simulation,
        "users": params.n_users,
        "items": params.n_items,
        "dim": params.dim,
        "iterations": params.iterations,
        "transport": config.transport,
        "wire": params.wire,
        "users_per_process": config.users_per_process,
        "ring": {"bits": params.ring_bits, "fraction_bits": params.fraction_bits},
        "privacy.claimed_epsilon": config.epsilon,
        **({"cheat.name": case.card.cheat} if case.card.cheat else {"cheat": None}),
        **({"privacy.unit": scheme.unit} if is_loaded(case.card) else {}),
    }


def _from_views(case: Case, summary: Summary, views: dict[str, ViewCheck]) -> dict[str, Any]:
    """Compute the figures that need every view; none if a view is missing or faulty."""
    if set(views) != set(case.parties) or not all(view.sound for view in views.values()):
        return {}
    users = [view.items for party, view in views.items() if user_index(party) >= 0]
    rated = {item for items in users for item in items.tolist()}
    figures: dict[str, Any] = {
        "ratings.train": sum(map(len, users)),
        "items_without_raters": case.card.params.n_items - len(rated),
    }
    if summary.completed:
        refused: Counter[str] = Counter()
        for party in summary.views:
            refused += views[party].rejected
        figures["rejected"] = dict(refused)
        told = [party for party in summary.views if user_index(party) >= 0]  # a view may end without a report of it
        ends = {party: end for party in told if (end := views[party].end) is not None}
        made = {party: end.hex() for party, end in ends.items() if end != result_digest(None)}
        figures["predictions_sha256"] = digest_of_predictions(made)
    return figures


def _check_completed(case: Case, summary: Summary, views: dict[str, ViewCheck], report: Report) -> None:
    servers = [party for party in case.parties if user_index(party) < 0 and party in case.kept]
    if summary.completed:
        for party in servers:
            if party not in summary.views:
                report.find(SUMMARY, None, f"does not list the view of {party}")
    elif views and set(views) == case.kept and all(view.signed and view.sound for view in views.values()):
        report.find(SUMMARY, None, "says that the run did not complete, though every view has its end and signature")


def _at(document: Any, path: str) -> Any:
    for key in path.split("."):
        document = document.get(key) if isinstance(document, dict) else None
    return document


def _paths(document: dict[str, Any]) -> list[str]:
    """List the keys of a summary, and of tables that are checked in part their own keys."""
    paths: list[str] = []
    for key, value in document.items():
        parts = key in ("ratings", "privacy", "abort") and isinstance(value, dict)
        paths += [f"{key}.{part}" for part in value] if parts else [key]
    return [path for path in paths if path != "abort"]  # without an abort there is nothing to check


def _brief(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "…"


# --- the model -------------------------------------------------------------------------------------------------------


def _read_model(case: Case, summary: Summary, report: Report) -> str | None:
    """Compute the digest of the item factors; None if there are none or they cannot be read."""
    path = case.folder / MODEL
    if not path.is_file():
        return None
    params = case.card.params
    width = f"{params.dim}" if case.card.scheme.factorizes else "some"
    try:
        factors = untrusted.map_array(case.folder, MODEL)
        wide = params.dim if case.card.scheme.factorizes else factors.shape[-1]  # else only the digest is checked
        if factors.shape != (params.n_items, wide):
            raise ValueError(f"shape {factors.shape}")
    except (OSError, ValueError) as error:
        report.find(MODEL, None, f"is not an array of {params.n_items} × {width} numbers ({type(error).__name__})")
        return None
    return result_digest(factors).hex()


def _check_model(case: Case, summary: Summary, views: dict[str, ViewCheck], model: str | None, report: Report) -> None:
    there = (case.folder / MODEL).is_file()
    recommender = views.get(RECOMMENDER)
    ended = recommender.end if recommender and recommender.sound else None
    if not there and summary.completed:
        report.find(MODEL, None, "is missing")
    elif not there and ended is not None:
        report.notes.append(f"{MODEL} is missing, though the recommender had completed.")
    if model is not None and ended is not None and model != ended.hex():
        report.find(MODEL, None, f"is not the result that {case.file(RECOMMENDER)} ends with")
    if model is not None and recommender is not None and recommender.sound and ended is None:
        report.find(MODEL, None, f"is there, though {case.file(RECOMMENDER)} has no end")
    claimed = summary.document.get("item_factors_sha256")
    made = ended.hex() if ended is not None else model
    if summary.there and (claimed is not None or summary.completed) and made is not None and claimed != made:
        report.find(SUMMARY, None, f"says item_factors_sha256 = {_brief(claimed)}, which is {_brief(made)}")
