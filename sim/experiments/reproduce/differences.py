"""One sentence for each figure: how our result differs from the paper's, and why, in measured numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from protocol.arithmetic.noise import noise_scale
from sim.bandwidth import paper_bytes
from sim.console.console import size as bytes_shown
from sim.experiments.reproduce.byte_figures import WHATS
from sim.experiments.reproduce.curves import JOINED, LEFT, ComparedClaim, CurvePoint, shown
from sim.experiments.reproduce.figure_plan import CHURN, DIM, JOIN, LEAVE, SCENARIOS, Figure, Size, comparable, said
from sim.experiments.reproduce.scenario_cells import DYNAMIC, ITERATE, READINGS, SOLVED, ratings_of

FEW = 30  # raters
FLAT, SMALL = 0.02, 0.005  # stars: the least change that counts, with one seed and with several
Alone = dict[str, dict[str, float]]
ENGINE_WORDS = (
    "Made by whole-matrix steps with the rule and the law of noise of the roles and without messages: masks cancel "
    "exactly; a test checks its factors against those of the roles, given the same noise."
)


READINGS_NOTE = (
    "The paper publishes V and does not say which u_i its figures use, so both are drawn: iterate is the u_i that the "
    "last iteration left, solved the u_i that is the best for the V of that iteration (λ = .001), at home, without "
    "any message. An increase is over a baseline that is read in the same way, unless it says otherwise. A user with "
    "fewer ratings than dimensions fits its training ratings with any V, so that solved training errors say little "
    "where most users have few: the figure of a V that has learned nothing stands beside them."
)


def caption(figure: Figure, quick: bool) -> str:
    source = "Generated data, Netflix-shaped: not the Netflix Prize. " if figure.generated else ""
    metric = (
        "Errors are of the training ratings, as in the paper; predictions are clipped to the rating range, which can "
        "only lessen an error."
    )
    return f"{source}{said(figure, quick)}. {metric} {READINGS_NOTE} {ENGINE_WORDS}"


def sentence(figure: Figure, size: Size, claims: list[ComparedClaim], rows: list[CurvePoint], alone: Alone) -> str:
    """Write the sentence of a figure; `alone` is the increase without any noise, by reading and scenario."""
    if figure.kind == CHURN:
        return _of_churn(figure, size, rows)
    compared = "; ".join(_compared(found, size, alone) for found in claims)
    smallest = min(found.claim.epsilon for found in claims)
    churns = any(found.claim.scenario == DYNAMIC for found in claims)
    return f"{compared}: {_noise(figure, size, smallest, churns)}."


def _compared(found: ComparedClaim, size: Size, alone: Alone) -> str:
    claim = found.claim
    says = f"{SCENARIOS[claim.scenario]}: the paper says {claim.short}"
    if found.iterate is None or found.solved is None or found.solved_over_iterate is None:
        return f"{says}, which was not run in this size"
    same = comparable(size, claim.scenario)

    def here(measured: float, reading: str = "", tells: bool = True) -> str:
        words = f"{measured:+.3f}"
        if claim.scenario in alone.get(reading, {}):
            words += f" ({alone[reading][claim.scenario]:+.3f} without any noise)"
        if not same:
            return words
        if not tells:
            return f"{words}, which says nothing, as the claim holds for a V that has learned nothing"
        agrees = claim.holds(measured)
        return f"{words}, which {'agrees' if agrees else 'is higher' if measured > claim.value else 'is lower'}"

    words = (
        f"{says}; here it is, for the iterate, {here(found.iterate, ITERATE)}; solved, "
        f"{here(found.solved, SOLVED, found.tells)}; solved, over the baseline's iterate, "
        f"{here(found.solved_over_iterate, tells=found.tells_over_iterate)}"
    )
    if found.unlearned is not None:
        words += f" (a V that has learned nothing, solved: {found.unlearned:+.3f})"
    return words if same else f"{words}; not comparable because these runs are smaller"


def _noise(figure: Figure, size: Size, epsilon: float, churns: bool) -> str:
    """Say how large the noise scale b is for an item with the median number of raters."""
    ratings = ratings_of(figure.data, size.users)
    raters = np.bincount(ratings.items, minlength=ratings.n_items)
    low, high = ratings.rating_range
    scale, middle = noise_scale(epsilon, high - low, DIM), float(np.median(raters))
    few = f" ({np.mean(raters < FEW):.0%} of the items have fewer than {FEW})" if np.any(raters < FEW) else ""
    words = (
        f"Lemma 1 puts noise of scale b = {scale:.0f} (ε = {epsilon:g}) on every coordinate of an item's gradient sum, "
        f"so at the median of {middle:,.0f} raters{few} the mean gradient has a standard deviation of "
        f"{math.sqrt(2) * scale / middle:.2g} per coordinate, while errors of one star make it at most 2 long"
    )
    if churns:
        part = min(size.online, ratings.n_users * JOIN / (JOIN + LEAVE)) / ratings.n_users
        steps = size.dynamic_checkpoints[-1]
        words += (
            f"; in S3 a sum has about {part:.2g} of the raters and all of the noise, and its {steps:,} iterations are "
            f"worth about {steps * part:.0f} of the baseline's {size.checkpoints[-1]}"
        )
    return words


def _of_churn(figure: Figure, size: Size, rows: list[CurvePoint]) -> str:
    parts = [
        f"at ε = {shown(epsilon)}, {reading}, {_trend(kept, epsilon, JOINED)} and {_trend(kept, epsilon, LEFT)}"
        for epsilon in size.churn_epsilons
        for reading in READINGS
        for kept in [[row for row in rows if row.reading == reading]]
    ]
    ratings = ratings_of(figure.data, size.users)
    least = ratings.n_users * JOIN / (JOIN + max(size.leaves))
    why = f"with about {least:,.0f} users online the limit of {size.online:,} does not always bind"
    if least > size.online:
        why = (
            f"never fewer than about {least:,.0f} users are online and at most {size.online:,} of them take part, so "
            "the probabilities change who takes part and how soon others do, but not how many"
        )
    says = "The paper says that the increase falls with joining and hardly moves with leaving"
    return f"{says}; here {'; '.join(parts)}: {why}."


def _trend(rows: list[CurvePoint], epsilon: float, x_name: str) -> str:
    """Say whether the increase rises, falls or hardly moves along `x_name`.

    With one seed, a change counts from `FLAT` on. With several, it counts from `SMALL` on if their ranges are apart.
    """
    series = f"ε = {shown(epsilon)}"
    found = [row for row in rows if row.series == series and row.x_name == x_name and row.y is not None]
    first, last = found[0], found[-1]
    assert first.y is not None and last.y is not None and first.x is not None and last.x is not None
    assert first.low is not None and first.high is not None and last.low is not None and last.high is not None
    apart = first.high < last.low or last.high < first.low
    change = abs(last.y - first.y)
    moves = change >= FLAT if first.seeds == 1 else apart and change >= SMALL
    verb = "hardly moves" if not moves else "falls" if last.y < first.y else "rises"
    name = x_name.split()[0]
    return f"it {verb} ({first.y:+.3f} to {last.y:+.3f}) as {name} goes from {first.x:g} to {last.x:g}"


def bytes_sentence(formula: dict[str, Any], lines: list[dict[str, Any]]) -> str:
    full, short = ({row["what"]: row[form] for row in formula["rows"]} for form in ("wire_paper", "wire_compact"))
    down, up, total = WHATS
    ran = " and ".join(line["cell"]["wire"] for line in lines if line["measured"]) or "no form"
    return (
        f"A user downloads {bytes_shown(full[down])} in the paper's form, which has a fourth vector per item (the "
        f"envelopes of the iteration noise) that the {bytes_shown(paper_bytes.DOWN)} of the paper leave out, and "
        f"{bytes_shown(short[down])} in the compact form, which derives masks and envelopes from keys; uploads "
        f"({bytes_shown(full[up])}) and the third party's total ({bytes_shown(full[total])}) are below the paper's "
        f"bounds; measured over TCP: {ran}."
    )


def bytes_caption(lines: list[dict[str, Any]], quick: bool) -> str:
    words = [
        f"{'quick: ' if quick else ''}{paper_bytes.USERS:,} users with {paper_bytes.RATED} of {paper_bytes.ITEMS:,} "
        f"items each, dim {paper_bytes.DIM}. "
        "By formula: one iteration in which everyone takes part and every item is rated."
    ]
    for line in lines:
        wire = line["cell"]["wire"]
        if line["measured"] is None:
            words.append(f"The run in the {wire} form was aborted, so it measured nothing: {line['abort']}.")
        else:
            words.append(
                f"Measured over TCP, {wire} form: generated ratings, with {line['items']:,} items that anyone rated, "
                "which is why the third party sends less than by formula."
            )
    missing = {"compact", "paper"} - {line["cell"]["wire"] for line in lines}
    words += [f"The {wire} form was not measured here." for wire in sorted(missing)]
    return " ".join(words)
