"""The laws of `laplace-ratings` and `randomized-response`, as the receiver of the answers knows them."""

from __future__ import annotations

import itertools

import numpy as np
import numpy.typing as npt

from protocol.arrays import Floats
from protocol.schemes.collection.grid import Grid
from protocol.schemes.collection.mechanisms import ModifiedLaplace, RandomizedResponse
from sim.audit.attacks.channels import RandomizedChannel, nearest

_TAIL = 40.0  # range of Laplace noise, in scales: the rest is negligible
_STEPS = 4000  # of the integral, between neighbouring centres and on each side


class LaplaceEntries(RandomizedChannel):
    """The modified Laplace mechanism, on the scale from −1 to 1."""

    def __init__(self, scale: Floats, law: ModifiedLaplace, grid: Grid) -> None:
        self.scale = scale
        self._law = law
        self._centres = np.append(0.0, grid.scaled(scale))

    def density(self, answers: Floats) -> Floats:
        law = self._law
        came = np.append(law.flip, np.full(len(self.scale), law.keep))
        sizes = np.abs(answers[:, None] - self._centres) / law.scale
        found: Floats = np.where(np.isnan(sizes), 1 - came, came * np.exp(-sizes) / (2 * law.scale))
        return found

    def at_face_value(self, answers: Floats) -> tuple[npt.NDArray[np.bool_], Floats]:
        return ~np.isnan(answers), nearest(self.scale, self._centres[1:], answers)

    def space(self) -> tuple[Floats, Floats]:
        """Integrate by the trapezoid rule, piece by piece: the densities have corners at the centres."""
        reach = _TAIL * self._law.scale
        corners = np.unique(self._centres)
        corners = np.concatenate([[corners[0] - reach], corners, [corners[-1] + reach]])
        pieces = [np.linspace(low, high, _STEPS) for low, high in itertools.pairwise(corners.tolist())]
        places = np.unique(np.concatenate(pieces))
        gaps = np.diff(places)
        widths = (np.append(gaps, 0.0) + np.append(0.0, gaps)) / 2
        return np.append(places, np.nan), np.append(widths, 1.0)


class ResponseEntries(RandomizedChannel):
    """Randomized response over the levels, 0 for missing."""

    def __init__(self, scale: Floats, law: RandomizedResponse, grid: Grid) -> None:
        self.scale = scale
        self._law = law
        self._levels = np.append(0, grid.level_of(scale))

    def density(self, answers: Floats) -> Floats:
        found: Floats = np.where(answers[:, None] == self._levels, self._law.keep, self._law.other)
        return found

    def at_face_value(self, answers: Floats) -> tuple[npt.NDArray[np.bool_], Floats]:
        return np.asarray(answers > 0), nearest(self.scale, self._levels[1:].astype(np.float64), answers)

    def space(self) -> tuple[Floats, Floats]:
        answers = np.arange(self._law.levels + 1.0)
        return answers, np.ones(len(answers))
