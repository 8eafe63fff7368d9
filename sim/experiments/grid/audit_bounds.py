"""What the bounds of the canary show of ideal mechanisms, at 95 %: medians over many draws, beside a reference.

Pure ε: m canaries in one run under Laplace noise on a grid of 2^-20, as integers of a ring give it; the surest are
guessed. Gaussian noise of μ, at δ = 1e-5: the one-run theorem at (ε, δ), its form for a Gaussian law, and the means
where the party knows the law. The references are those of an independent computation, with draws of its own.

In d dimensions a rating moves its gradient by 2Δ in the direction of u_i, and each coordinate has noise of scale
b = 2Δ√d/ε. The log likelihood ratio is a sum of d terms, ε |u_l|/√d at most, and can reach ε only in the even direction
|u_l| = 1/√d. For that all d coordinates must point to the same side, although each has noise of d/ε times its own
shift: (1 + e^−ε)/2^d of the canaries do. `attainable` computes the law of the ratio, and what the best choice
of guesses shows of it. By Neyman and Pearson no guesser of single canaries does better than by the ratio.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from protocol.arrays import Flags, Floats
from protocol.schemes.base import DELTA
from protocol.schemes.composition import gaussian_epsilon

CONFIDENCE, DRAWS, GRID = 0.95, 401, 2.0**20
CANARIES = (500, 1682, 8000)
PURE = {  # ε: the reference for each of CANARIES
    0.5: (0.36, 0.41, 0.46),
    1.0: (0.79, 0.89, 0.94),
    2.0: (1.60, 1.83, 1.90),
    4.0: (3.29, 3.58, 3.77),
    8.0: (4.41, 5.64, 6.73),
}
GAUSSIAN_CANARIES = 1682
SUREST = 0.1  # part of the canaries that is guessed where a Gaussian law is supposed
WAYS = ("one run at (ε, δ)", "one run, Gaussian law", "means, known law")
GAUSSIAN = {0.5: (0.66, 0.87, 1.70), 1.0: (1.71, 2.26, 3.90), 2.0: (3.41, 5.10, 9.48)}  # μ: for each of WAYS

DIMENSIONS = (1, 2, 5, 10)
CELLS = 64  # of the ratio's largest term, in its law


def laplace_draws(draw: np.random.Generator, epsilon: float, *shape: int) -> tuple[Floats, Flags]:
    """Draw (places, coins): a place is 0 or 1 without noise."""
    truth: Flags = draw.random(shape) < 0.5
    places: Floats = np.round((draw.laplace(0, 1 / epsilon, shape) + truth) * GRID) / GRID
    return places, truth


def shown_of_laplace(draw: np.random.Generator, epsilon: float, canaries: int) -> float:
    from sim.audit.canary.guesses import guess, laplace_ratio
    from sim.audit.canary.one_run import one_run_epsilon

    places, truth = laplace_draws(draw, epsilon, canaries)
    made = guess(laplace_ratio(places, epsilon), truth, 1 - CONFIDENCE)
    return one_run_epsilon(canaries, made.number, made.right, CONFIDENCE)


def shown_of_gaussian(draw: np.random.Generator, mu: float, canaries: int = GAUSSIAN_CANARIES) -> tuple[float, ...]:
    """Compute ε at δ by each of `WAYS`."""
    from sim.audit.canary.gaussian_run import one_run_mu
    from sim.audit.canary.guesses import guess
    from sim.audit.canary.known_law import shown_share
    from sim.audit.canary.one_run import one_run_epsilon

    truth = draw.random(canaries) < 0.5
    ratios = mu * (draw.normal(size=canaries) + mu * truth - mu / 2)
    made = guess(ratios, truth, 1 - CONFIDENCE)
    surest = np.argsort(-np.abs(ratios))[: round(SUREST * canaries)]
    right = int(((ratios > 0) == truth)[surest].sum())
    mus = (
        one_run_mu(canaries, len(surest), right, CONFIDENCE),
        mu * shown_share(ratios, np.full(canaries, mu), truth, CONFIDENCE),
    )
    at_delta = one_run_epsilon(canaries, made.number, made.right, CONFIDENCE, DELTA)
    return at_delta, *(gaussian_epsilon(one, DELTA) for one in mus)


def shown_in(draw: np.random.Generator, dim: int, epsilon: float, canaries: int) -> float:
    """Compute the ε shown where a canary moves `dim` coordinates evenly."""
    from sim.audit.canary.guesses import guess, laplace_ratio
    from sim.audit.canary.one_run import one_run_epsilon

    truth = draw.random(canaries) < 0.5
    places = draw.laplace(0, dim / epsilon, (canaries, dim)) + truth[:, None]
    made = guess(laplace_ratio(places, epsilon / dim).sum(axis=1), truth, 1 - CONFIDENCE)
    return one_run_epsilon(canaries, made.number, made.right, CONFIDENCE)


def ratio_law(dim: int, epsilon: float) -> tuple[Floats, Floats]:
    """Compute (|log likelihood ratio|, its probabilities): of `dim` even coordinates, on a grid.

    With the shift s = ε/d in units of the noise, a coordinate's term is −s with probability 1/2, s with e^−s/2, and in
    between 2x − s for the place x in (0, s), of density e^−x/2; so under the lowest rating. The highest mirrors it.
    """
    step = epsilon / dim
    edges = np.linspace(0, step, CELLS + 1)
    one = np.zeros(2 * CELLS + 1)  # terms −s … s
    one[1::2] = -np.diff(np.exp(-edges)) / 2  # at the middle of each cell
    one[0], one[-1] = 0.5, math.exp(-step) / 2
    law = np.ones(1)
    for _ in range(dim):
        law = np.convolve(law, one)
    ratios = np.linspace(-epsilon, epsilon, len(law))
    return np.abs(ratios), law


def attainable(dim: int, epsilon: float, canaries: int) -> float:
    """Compute the ε that the best choice of guesses shows, at the expected numbers of guesses and right ones."""
    from sim.audit.canary.one_run import one_run_epsilon

    sizes, law = ratio_law(dim, epsilon)
    order = np.argsort(-sizes, kind="stable")
    guesses = canaries * np.cumsum(law[order])
    right = canaries * np.cumsum((law / (1 + np.exp(-sizes)))[order])
    shown = [
        one_run_epsilon(canaries, number, hits, CONFIDENCE)
        for number, hits in {(round(all_), round(good)) for all_, good in zip(guesses, right, strict=True)}
        if number
    ]
    return max(shown)


def rows(draws: int = DRAWS, seed: int = 1) -> list[dict[str, Any]]:
    """Measure the medians; a row for each true ε or dimension, its figures in the order of their reference."""
    draw = np.random.default_rng(seed)
    found: list[dict[str, Any]] = []
    for epsilon, reference in PURE.items():
        shown = [[shown_of_laplace(draw, epsilon, number) for number in CANARIES] for _ in range(draws)]
        found.append(_row("Laplace", epsilon, epsilon, shown, reference))
    for mu, reference in GAUSSIAN.items():
        shown = [list(shown_of_gaussian(draw, mu)) for _ in range(draws)]
        found.append(_row("Gaussian", mu, gaussian_epsilon(mu, DELTA), shown, reference))
    for dim in DIMENSIONS:
        shown = [[shown_in(draw, dim, 1.0, number) for number in CANARIES] for _ in range(draws)]
        found.append(_row("dim", dim, 1.0, shown, [attainable(dim, 1.0, number) for number in CANARIES]))
    return found


def _row(
    law: str, parameter: float, true: float, shown: Sequence[Sequence[float]], reference: Sequence[float]
) -> dict[str, Any]:
    medians = np.median(np.array(shown), axis=0).tolist()
    return {"law": law, "parameter": parameter, "epsilon": true, "shown": medians, "reference": list(reference)}


def markdown(found: Sequence[dict[str, Any]]) -> str:
    """Write the tables as the README has them: measured (reference, or attainable)."""
    numbers = [f"{number:,} canaries" for number in CANARIES]
    tables = (
        ("Laplace", "ε", numbers),
        ("Gaussian", f"μ, {GAUSSIAN_CANARIES:,} canaries", list(WAYS)),
        ("dim", "dim, ε 1", numbers),
    )
    return "\n".join(_table([row for row in found if row["law"] == law], first, names) for law, first, names in tables)


def _table(found: Sequence[dict[str, Any]], first: str, columns: Sequence[str]) -> str:
    gaussian = found[0]["law"] == "Gaussian"
    lines = ["| " + " | ".join([first, *columns]) + " |", "|---" * (1 + len(columns)) + "|"]
    for row in found:
        true = f"{row['parameter']:g}" + (f" (ε {row['epsilon']:.2f})" if gaussian else "")
        cells = [f"{own:.2f} ({other:.2f})" for own, other in zip(row["shown"], row["reference"], strict=True)]
        lines.append("| " + " | ".join([true, *cells]) + " |")
    return "\n".join(lines) + "\n"
