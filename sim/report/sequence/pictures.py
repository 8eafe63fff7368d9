"""Draw the numbers that a server received in a message, beside those that they were made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from markupsafe import Markup

from protocol.arithmetic.ring import Ring
from protocol.arrays import Floats, Ids
from protocol.party.role import RECOMMENDER, UserInput
from protocol.wire.fields import RingField
from protocol.wire.messages import Message
from sim.audit.attacks.recomputed import RecommenderStory
from sim.audit.families.registry import family_of
from sim.audit.role_rerun import fraction_bits
from sim.audit.truth import ratings_of
from sim.console.console import counted
from sim.report.charts import chart
from sim.report.reported_run import ReportedRun
from sim.report.sequence.arrows import Arrow, Edge
from sim.report.sequence.first_records import Scan
from sim.report.sequence.histograms import BINS, Series, draw
from sim.report.sequence.numbers_behind import UploadsBehind, stamp, value_field, values_of
from sim.views.exhibits import Exhibits, Seen

MOST_VALUES = 5000  # in a histogram
MOST_STEPS = 3000  # of users' roles that are run again for one sum

_ONLY_HERE = "Only the auditor, who has the users' views, can draw this."
_RATING = "rating (scale of the data)"
_BEHIND = {  # label that a role gives -> (words, axis with its unit)
    "gradient": ("gradients", "gradient (units of a rating)"),
    "part": ("parts of the sums", "part of the sum (weighted rating)"),
    "rating": ("ratings", _RATING),
    "eta": ("noise shares", "noise share (units of a rating)"),
}
_SUMS = {
    "gradient": ("sums of gradients", "sum of gradients (units of a rating)"),
    "part": ("sums", "sum (weighted ratings)"),
    "rating": ("sums of ratings", "sum of ratings (scale of the data)"),
    "eta": ("noise: the sums of all shares", "sum of noise shares (units of a rating)"),
}


class Pictures(NamedTuple):
    drawn: list[Markup]
    words: list[str]


def pictures_of(run: ReportedRun, arrow: Arrow, scan: Scan, truth: UploadsBehind) -> Pictures:
    """Draw the messages of `arrow`; nothing if they have no numbers, or are in no server's view."""
    seen = scan.received.get(arrow.edge, [])
    if arrow.connects or not seen or value_field(type(seen[0].message)) is None:
        return Pictures([], [])
    seen = [one for one in seen if values_of(one.message).size]
    if not seen:
        return Pictures([], ["No message of this kind held a number, so there is nothing to draw."])
    if arrow.edge[1] == "user":
        return _of_users(run, arrow, seen, truth)
    return _of_sums(run, arrow, seen, scan, truth)


# --- what users sent -------------------------------------------------------------------------------------------------


def _of_users(run: ReportedRun, arrow: Arrow, seen: list[Seen], truth: UploadsBehind) -> Pictures:
    known = [one for one in seen if truth.knows(one.sender)]
    chosen = _few(known or seen)
    words = [] if len(chosen) == len(seen) else [_extent(arrow, chosen, seen, bool(known))]
    received = np.concatenate([_received(run, one.message).ravel() for one in chosen])
    behind = [_behind(run, arrow.edge[2], one, truth) for one in chosen] if known else []
    ring = _is_ring(chosen[0].message)
    if not known or any(found is None for found in behind):
        other = "a role that was run again did not send the same numbers, or did not name them"
        why = other if known else "the users' views were not kept"
        words.append(f"The truth behind them is not drawn: {why}.")
        first = _first_series(run, arrow, received, ring, "number, as it was sent")
        return Pictures(draw(arrow.key, [first]), [*words, *_uniformity(run, arrow)])
    (what, axis), *_ = [found[0] for found in behind if found is not None]
    true = np.concatenate([found[1].ravel() for found in behind if found is not None])
    first = _first_series(run, arrow, received, ring, axis)
    second = Series(f"The true {what} behind them", true, axis, chart.TRUTH, _ONLY_HERE)
    words.append(_how_hidden(run, arrow.edge[0], true) if ring else _how_far(received, true))
    return Pictures(draw(arrow.key, [first, second]), [*words, *_uniformity(run, arrow)])


def _few(seen: list[Seen]) -> list[Seen]:
    """Take the first messages, until there are enough values."""
    chosen: list[Seen] = []
    for one in seen:
        if chosen and sum(values_of(other.message).size for other in chosen) >= MOST_VALUES:
            break
        chosen.append(one)
    return chosen


def _extent(arrow: Arrow, chosen: list[Seen], seen: list[Seen], known: bool) -> str:
    why = "whose sender's view was kept" if known else "as they came"
    return f"Drawn from a sample: the first {len(chosen):,} of {counted(len(seen), 'message')}, {why}."


def _is_ring(message: Message) -> bool:
    found = value_field(type(message))
    return found is not None and found[1] is RingField


def _received(run: ReportedRun, message: Message) -> Floats:
    """Convert ring elements to shares of half the ring, and grades to ratings; others keep their unit."""
    values, params = values_of(message), run.params
    if _is_ring(message):
        return _share(run.case.card.setting.ring, values)
    if type(message).__name__ == "GradedRatings":
        return params.rating_min + getattr(params, "rating_step", 1.0) * values.astype(np.float64)
    return values.astype(np.float64)


def _share(ring: Ring, words: npt.NDArray[Any]) -> Floats:
    """Convert residues in [−P/2, P/2) to shares of P/2."""
    shares: Floats = ring.to_signed(words) / 2.0 ** (ring.bits - 1)
    return shares


def _behind(
    run: ReportedRun, receiver: str, seen: Seen, truth: UploadsBehind
) -> tuple[tuple[str, str], Floats] | None:
    """Find ((what the true numbers are, axis with unit), the numbers) behind one message; None if not known."""
    name = type(seen.message).__name__
    if name in _OPEN_RATINGS:
        words, of = _OPEN_RATINGS[name]
        return words, of(run, ratings_of(run.case, seen.sender))
    upload = truth.upload(seen, receiver)
    mark = upload.behind() if upload is not None else None
    if mark is None:
        return None
    what, axis = _BEHIND.get(mark.label.what, (f"numbers ({mark.label.what})", mark.label.what))
    if mark.label.what == "rating":
        axis = family_of(run.scheme).rating_axis
    return (what, axis), mark.values


_Of = Callable[[ReportedRun, UserInput], Floats]
_OPEN_RATINGS: dict[str, tuple[tuple[str, str], _Of]] = {  # messages whose numbers have no label
    "GradedRatings": (("ratings", _RATING), lambda run, own: own.ratings),
    "RatingsHandover": (("ratings", _RATING), lambda run, own: own.ratings),
    "RandomizedLevels": (
        ("levels", "level of the scale (0: not rated)"),
        lambda run, own: family_of(run.scheme).levels(run.params, own),
    ),
}


# --- sums that one server hands to another ---------------------------------------------------------------------------


def _of_sums(run: ReportedRun, arrow: Arrow, seen: list[Seen], scan: Scan, truth: UploadsBehind) -> Pictures:
    ring = _is_ring(seen[0].message)
    received = np.concatenate([_received(run, one.message).ravel() for one in seen])
    first = _first_series(run, arrow, received, ring, "")
    more, words = _true_sums(run, arrow.edge, seen, scan, truth)
    drawn = draw(arrow.key, [first, *more])
    return Pictures(drawn, [*words, *_uniformity(run, arrow)])


def _true_sums(
    run: ReportedRun, edge: Edge, seen: list[Seen], scan: Scan, truth: UploadsBehind
) -> tuple[list[Series], list[str]]:
    iteration, holder = edge[0], edge[1]
    totals, what = [], ""
    for one in seen:
        parts = _parts(one.message, holder, scan)
        steps = len(parts) * (iteration + 2)
        if steps > MOST_STEPS:
            why = (
                f"{counted(len(parts), 'role')} of users would have to be run again through {iteration + 1} iterations"
            )
            return [], [f"The true sum is not drawn: {why}."]
        total = truth.total(parts, holder, _ids(one.message))
        if total is None or total.shape != values_of(one.message).shape:
            why = "not every user's view was kept" if parts else "what it adds up was not received from users"
            return [], [f"The true sum is not drawn: {why}."]
        totals.append(total.ravel())
        first = truth.upload(parts[0], holder)
        mark = first.behind() if first is not None else None
        what = mark.label.what if mark is not None else ""
    name, axis = _SUMS.get(what, (f"sums ({what})", f"sum of {what}"))
    true = np.concatenate(totals)
    noisy = _unmasked(run, edge, seen)
    series = [] if noisy is None else [Series("Unmasked by the recommender", noisy, axis, chart.HUES[RECOMMENDER])]
    words = [_how_hidden(run, iteration, true)]
    if noisy is not None:
        words.append(f"Unmasked and true sums are drawn over the same bins. {_how_far(noisy, true)}")
    return [*series, Series(f"The true {name}", true, axis, chart.TRUTH, _ONLY_HERE)], words


def _parts(message: Message, holder: str, scan: Scan) -> list[Seen]:
    """Find the messages that users sent to `holder` for this sum."""
    found = []
    for edge, seen in scan.received.items():
        if edge[1] == "user" and edge[2] == holder and _is_ring(seen[0].message):
            found += [one for one in seen if stamp(one.message) == stamp(message)]
    return found


def _ids(message: Message) -> Ids:
    """Find the item, or place, that each row of `message` is about."""
    items = getattr(message, "items", None)
    rows = len(values_of(message))
    return items if items is not None and len(items) == rows else np.arange(rows, dtype=np.uint32)


def _unmasked(run: ReportedRun, edge: Edge, seen: list[Seen]) -> Floats | None:
    """Run the recommender's role again to get the noisy sums that it makes of a MaskedTotal."""
    iteration, _, receiver, kind = edge
    if kind != "MaskedTotal" or receiver != RECOMMENDER or not family_of(run.scheme).masks:
        return None
    told = RecommenderStory(Exhibits(run.case, (RECOMMENDER,)), iteration + 1).rounds.get(iteration)
    if told is None or not np.array_equal(told.items, seen[0].message.items):
        return None
    return np.asarray(told.sums, np.float64).ravel()


# --- words -----------------------------------------------------------------------------------------------------------


def _first_series(run: ReportedRun, arrow: Arrow, received: Floats, ring: bool, axis: str) -> Series:
    title = f"What the {arrow.edge[2].replace('_', ' ')} received"
    hue = chart.HUES.get(arrow.edge[1], 0)  # of the sender
    if not ring:
        return Series(title, received, axis or _RATING, hue)
    bits = run.params.ring_bits
    words = f"A uniform law puts {100 / BINS:.0f} % into each."
    return Series(title, received, f"signed ring element (share of 2^{bits - 1})", hue, words, (-1.0, 1.0))


def _how_hidden(run: ReportedRun, iteration: int, true: Floats) -> str:
    """Say how small a part of the ring the true numbers would fill."""
    params = run.params
    reach = float(np.abs(true).max()) * 2.0 ** (fraction_bits(params, iteration) - params.ring_bits + 1)
    if not reach:
        return "The true numbers are all 0."
    return f"The axes differ: on that of the ring the true numbers would lie between −{reach:.2g} and {reach:.2g}."


def _how_far(received: Floats, true: Floats) -> str:
    """Say how far `received` numbers are from the `true` ones, in the same unit."""
    if received.shape != true.shape:
        return ""
    apart = np.abs(received - true)
    if float(apart.max()) <= 1e-5 * max(1.0, float(np.abs(true).max())):
        return "They are the same numbers, up to rounding: nothing hides them."
    equal = int((apart == 0).sum())
    same = f"; {equal:,} of {apart.size:,} are the same" if equal else ""
    return f"Each differs from the true one by {float(apart.mean()):.3g} on average (absolute difference){same}."


def _uniformity(run: ReportedRun, arrow: Arrow) -> list[str]:
    """Quote the audit's own test of uniformity, on the whole run."""
    _, _, receiver, kind = arrow.edge
    leaks = [leak for leak in run.scheme.leakage if (leak.receiver, leak.kind) == (receiver, kind)]
    if not any(leak.uniform for leak in leaks):
        return []
    tested = (run.audit.get("statistics") or {}).get("uniformity")
    found = [row for row in (tested or {"fields": []})["fields"] if (row["party"], row["kind"]) == (receiver, kind)]
    if tested is None or not found or found[0]["smallest_p_corrected"] is None:
        return ["Claimed: uniform to its receiver. The audit did not test it on this run."]
    row, tests = found[0], tested["tests"]
    told = "told from uniform" if row["rejected"] else "not told from uniform"
    return [
        f"Claimed: uniform to its receiver. Measured on all {row['values']:,} values of the run: {told} "
        f"(smallest p = {row['smallest_p_corrected']:.2g} after {tested['correction']}'s correction over {tests:,} "
        f"tests; below {tested['level']:g} it would be rejected)."
    ]
