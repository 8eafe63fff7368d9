"""`trusted`: the recommender has every rating, and publishes item factors with noise, once."""

from __future__ import annotations

from typing import Any

import numpy as np

from protocol.params import Params
from protocol.party.role import UserInput, user_name
from protocol.schemes.factorization.trusted import RatingBook, train
from sim.audit.accounting.account_findings import noise_finding
from sim.audit.accounting.noise_test import LAPLACE_MEDIAN, NoiseTest
from sim.audit.coalitions import Coalition
from sim.audit.families.factorization.factorization_family import FactorizationFamily
from sim.audit.families.family import ReleaseBound
from sim.audit.families.trusted.moving_factors import Likelihood, factors_moved, likelihood_ratio
from sim.audit.families.trusted.trusted_noise import NoiseMap, Published, read_publication
from sim.audit.findings import Audited
from sim.audit.pairs.exposure import Exposure, Loss
from sim.audit.pairs.twice import Twice
from sim.views.evidence import Case


class TrustedFamily(FactorizationFamily):
    def account_claim(self, case: Case, head: dict[str, Any]) -> Audited:
        """Test the noise, worked back from the publication; nothing bounds its ε."""
        if (made := read_publication(case)) is None:
            return {**head, "method": "nothing was published, so nothing is accounted"}, []
        words = (
            "not bounded: one release has the claimed ε for user factors that do not depend on the ratings; these were "
            "trained on them. The published factors are one release whatever the number of steps, so nothing is "
            "composed; the recommender itself draws the noise and sees every rating"
        )
        document: dict[str, Any] = {**head, "method": words, "composed": {"releases": 1}}
        book = RatingBook(made.handed, made.params.n_items)
        noise, _ = NoiseMap(book, made.user_factors, made.params, made.tape).after_steps(made.item_factors)
        test = NoiseTest(made.params.n_items)
        test.add("published factors", book.rated, np.abs(noise) / (LAPLACE_MEDIAN * made.params.noise_scale))
        document["noise"] = test.result()
        how = "values of η, worked back from the published factors and the ratings"
        return document, noise_finding(document["noise"], [], "item", how)

    def release_bound(self, params: Params) -> ReleaseBound | None:
        """Return nothing: users add no noise."""
        return None

    def exposure(self, case: Case) -> Exposure | None:
        made = read_publication(case)
        return None if made is None else PublicationExposure(made)

    def sensitivity(self, case: Case, sample: int | None, draw: np.random.Generator) -> Audited:
        return factors_moved(case, sample, draw)


class PublicationExposure(Exposure):
    """The other users hold the published factors: their exact likelihood ratio, with the U that training gives."""

    def __init__(self, made: Published) -> None:
        self.made = made
        self.base = self._likelihood(made.handed)

    def _likelihood(self, handed: dict[int, UserInput]) -> Likelihood:
        made, book = self.made, RatingBook(handed, self.made.params.n_items)
        return NoiseMap(book, train(book, made.params, made.tape)[0], made.params, made.tape).after_steps(
            made.item_factors
        )

    def coalitions(self) -> list[Coalition]:
        return [(user_name(0),)] if len(self.made.handed) > 1 else []

    def loss(self, members: Coalition, twice: Twice) -> Loss | None:
        change = twice.change
        if change.party in members:
            return None
        other = self._likelihood({**self.made.handed, change.user: change.after})
        params = self.made.params
        bound = params.noise_scale * params.epsilon  # 2Δ√d
        shift = float(np.abs(other[0] - self.base[0]).sum()) / bound
        return Loss(members, 1, pure=likelihood_ratio(self.base, other, params), shift=shift)

    def limit(self, members: Coalition) -> tuple[float, str] | None:
        return self.made.params.epsilon, "moving-user-factors"
