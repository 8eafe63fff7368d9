"""The claims of the paper's text about its figures. The curves are not in the text, so their points are not drawn."""

from __future__ import annotations

from dataclasses import dataclass

from sim.bandwidth.paper_bytes import SOURCE
from sim.data.ratings import NETFLIX_SHAPED
from sim.experiments.reproduce.figure_plan import CDF, INCREASE, MOVIELENS, Figure
from sim.experiments.reproduce.scenario_cells import DYNAMIC, MASKED, TRUSTED

CLAIMED, MEASURED = f"claimed in the paper ({SOURCE})", "measured"
NEAR = 0.05  # an increase this close to a figure that the paper calls "around" or "near" agrees with it


@dataclass(frozen=True, slots=True)
class PaperClaim:
    data: str
    scenario: str
    epsilon: float
    relation: str  # "<" or "≈"
    value: float  # of the mean increase over the unprotected baseline
    iterations: str
    words: str

    @property
    def short(self) -> str:
        return f"{self.relation} {self.value:g} at ε = {self.epsilon:g}"

    def holds(self, measured: float) -> bool:
        return measured < self.value if self.relation == "<" else abs(measured - self.value) <= NEAR


CLAIMS = (
    PaperClaim(
        NETFLIX_SHAPED, TRUSTED, 0.15, "<", 0.03, "after 70 iterations",
        "negligible when ε ≥ .15 after 70 iterations; the mean increase is below .03",
    ),
    PaperClaim(
        MOVIELENS, TRUSTED, 0.05, "≈", 0.0, "after 40 iterations",
        "extremely close to the baseline just after 40 iterations when ε = .05; the mean error even slightly decreases",
    ),
    PaperClaim(
        NETFLIX_SHAPED, MASKED, 0.15, "≈", 0.14, "after 100 iterations",
        "very close to S1; the mean increase is around .14 when ε = .15",
    ),
    PaperClaim(
        MOVIELENS, MASKED, 0.15, "≈", 0.0, "after 100 iterations",
        "very close to S1; the mean increase is near 0 when ε = .15",
    ),
    PaperClaim(
        NETFLIX_SHAPED, DYNAMIC, 0.8, "<", 0.1, "after 10,000 iterations",
        "extremely close to the baseline after 10,000 iterations; the mean increase is below .1 when ε = .8",
    ),
    PaperClaim(
        MOVIELENS, DYNAMIC, 0.05, "≈", 0.0, "after 10,000 iterations",
        "indistinguishable from the baseline after 10,000 iterations even when ε ≥ .05",
    ),
)  # fmt: skip

JOINING = "the mean increase declines as the joining probability grows between .005 and .02"
LEAVING = "the effect of the leaving probability is not so obvious, especially for Netflix"


def claims_of(figure: Figure) -> list[PaperClaim]:
    """Return the claims about `figure` that have a number; those about figures 9 and 10 are in words."""
    if figure.kind == CDF:
        return [claim for claim in CLAIMS if (claim.data, claim.scenario) == (figure.data, figure.scenario)]
    return [claim for claim in CLAIMS if claim.data == figure.data] if figure.kind == INCREASE else []
