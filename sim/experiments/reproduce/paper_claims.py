"""The claims of the paper's text about its figures. The curves are not in the text, so their points are not drawn."""

from __future__ import annotations

from dataclasses import dataclass

from sim.bandwidth.paper_bytes import SOURCE
from sim.experiments.reference import reference
from sim.experiments.reproduce.figure_plan import CDF, INCREASE, Figure

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


CLAIMS = tuple(PaperClaim(**claim) for claim in reference(__file__))
JOINING = "the mean increase declines as the joining probability grows between .005 and .02"
LEAVING = "the effect of the leaving probability is not so obvious, especially for Netflix"


def claims_of(figure: Figure) -> list[PaperClaim]:
    """Return the claims about `figure` that have a number; those about figures 9 and 10 are in words."""
    if figure.kind == CDF:
        return [claim for claim in CLAIMS if (claim.data, claim.scenario) == (figure.data, figure.scenario)]
    return [claim for claim in CLAIMS if claim.data == figure.data] if figure.kind == INCREASE else []
