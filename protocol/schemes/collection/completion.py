"""The recovery (4):  min ‖M‖_*  subject to  ‖P_Ω(M − Z)‖_F ≤ ρ.

With a multiplier λ it is  min ½ ‖P_Ω(M − Z)‖² + λ ‖M‖_*  (`Path.solve`): M ← S_λ(Y + P_Ω(Z − Y)), where S_λ subtracts λ
from every singular value and Y is M with momentum (SoftImpute, accelerated and restarted). The residual grows with λ,
from 0 to ‖P_Ω Z‖ at λ_max = ‖P_Ω Z‖_2; λ is lowered from there, each solution the start of the next, until the
residual is below ρ. Then λ is bisected until the residual is ρ (`complete`). For ρ ≥ ‖P_Ω Z‖ the answer is M = 0.

The distance of a result from the optimum is proved, not assumed. Let R = P_Ω(Z − M), with largest singular value ‖R‖_2:
Y = R/‖R‖_2 is feasible for the dual problem, max ⟨Y, Z⟩ − ρ ‖Y‖_F over ‖Y‖_2 ≤ 1 and Y = 0 outside Ω. For ρ = ‖R‖, the
residual that was reached, its value is ⟨R, M⟩/‖R‖_2: no matrix with that residual has a smaller nuclear norm.

Z and R are sparse on Ω and M is a product of thin factors: no m×n matrix is made. If Ω is most of the matrix (a small
ε), the sparse matrices hold most of its cells, at about 50 bytes per cell in all; steps then cost more, and fewer are
needed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_matrix

from protocol.arrays import Floats
from protocol.schemes.collection.lowrank import (
    Cells,
    Follower,
    LowRank,
    first_block,
    largest_singular_value,
    nothing,
)

GAP = 1e-4  # relative gap of the objective at which a solution for one λ is good enough
RESIDUAL = 1e-4  # fraction of ρ by which the residual may differ from ρ
LOWEST = 1e-5  # fraction of λ_max below which ρ is taken to be out of reach
DOWN = 0.75  # factor from one λ of the path to the next
_MOST_STEPS = 2000  # for one λ
_CHECK = 8  # steps between two computations of the gap
_MOST_BISECTIONS = 60


@dataclass(frozen=True, slots=True, eq=False)
class Completion:
    """M, and the figures that prove its quality."""

    matrix: LowRank
    radius: float  # ρ
    residual: float  # ‖P_Ω(M − Z)‖
    known_norm: float  # ‖P_Ω Z‖
    multiplier: float  # λ; infinite where M = 0 is the answer
    gap: float  # 1 − ⟨R, M⟩/(‖R‖_2 ‖M‖_*): 0 at the optimum
    steps: int

    @property
    def is_zero(self) -> bool:
        """Return True if ρ is so large that M = 0 meets the constraint."""
        return self.radius >= self.known_norm

    @property
    def meets(self) -> bool:
        return self.residual <= self.radius * (1 + 2 * RESIDUAL)


class Path:
    """Solutions for a sequence of λ, each started from the one before."""

    def __init__(self, known: csr_matrix) -> None:
        self.cells = Cells(known)
        self.norm = float(np.sqrt((self.cells.values**2).sum()))
        self.highest = largest_singular_value(self.cells, self.cells.values)
        self.matrix = nothing(self.cells.shape)
        self.fitted = np.zeros(len(self.cells.values))  # P_Ω M
        self.steps = 0
        width = min(8, *self.cells.shape)
        self._follower = Follower(first_block(self.cells.shape[1], width))

    @property
    def rest(self) -> Floats:
        """Compute R = P_Ω(Z − M)."""
        return self.cells.values - self.fitted

    @property
    def residual(self) -> float:
        return float(np.sqrt((self.rest**2).sum()))

    def objective(self, multiplier: float) -> float:
        return 0.5 * float((self.rest**2).sum()) + multiplier * self.matrix.nuclear_norm

    def gap(self, multiplier: float) -> float:
        """Bound the relative distance of the objective from its minimum, by the dual point R, scaled to ‖·‖_2 ≤ λ."""
        rest, value = self.rest, self.objective(multiplier)
        length = largest_singular_value(self.cells, rest)
        dual = rest * min(1.0, multiplier / length) if length else rest
        bound = float((dual * self.cells.values).sum()) - 0.5 * float((dual**2).sum())
        return max(0.0, value - bound) / value if value else 0.0

    def solve(self, multiplier: float, gap: float = GAP) -> float:
        """Move to the solution for λ = `multiplier`; return the gap that was reached."""
        before, momentum, last = (self.matrix, self.fitted), 1.0, math.inf
        reached = math.inf
        for step in range(1, _MOST_STEPS + 1):
            following = (1 + math.sqrt(1 + 4 * momentum**2)) / 2
            weight = (momentum - 1) / following
            now = (self.matrix, self.fitted)
            looked = (1 + weight) * now[1] - weight * before[1]
            parts = [(1 + weight, now[0]), (-weight, before[0])] if weight else [(1.0, now[0])]
            self.matrix = self._follower.threshold(self.cells.matrix(self.cells.values - looked), parts, multiplier)
            self.fitted = self.matrix.at(self.cells.rows, self.cells.columns)
            before, value = now, self.objective(multiplier)
            momentum = 1.0 if value > last else following  # restart where momentum led uphill
            last = value
            self.steps += 1
            if step % _CHECK == 0 and (reached := self.gap(multiplier)) <= gap:
                break
        return reached


def complete(known: csr_matrix, radius: float) -> Completion:
    """Solve (4) for ρ = `radius`; `known` holds Z on Ω, explicit zeros included."""
    path = Path(known)
    if radius >= path.norm:
        return Completion(path.matrix, radius, path.norm, path.norm, math.inf, 0.0, 0)
    high, multiplier = path.highest, path.highest
    while path.residual > radius and multiplier > LOWEST * path.highest:
        high, multiplier = multiplier, multiplier * DOWN
        path.solve(multiplier)
    low = multiplier
    for _ in range(_MOST_BISECTIONS):
        if abs(path.residual - radius) <= RESIDUAL * radius or low <= LOWEST * path.highest:
            break
        multiplier = math.sqrt(low * high)
        path.solve(multiplier)
        low, high = (multiplier, high) if path.residual < radius else (low, multiplier)
    return _proved(path, radius, multiplier)


def _proved(path: Path, radius: float, multiplier: float) -> Completion:
    rest, norm = path.rest, path.matrix.nuclear_norm
    length = largest_singular_value(path.cells, rest)
    bound = float((rest * path.fitted).sum()) / length if length else norm
    gap = max(0.0, norm - bound) / norm if norm else 0.0
    return Completion(path.matrix, radius, path.residual, path.norm, multiplier, gap, path.steps)
