"""`trusted`: the recommender has every rating, and publishes item factors with noise, once."""

from __future__ import annotations

from typing import Any

import numpy as np

from protocol.schemes.factorization.trusted import RatingBook
from sim.audit.accounting.account_findings import noise_finding
from sim.audit.accounting.noise_test import LAPLACE_MEDIAN, NoiseTest
from sim.audit.families.factorization.factorization_family import FactorizationFamily
from sim.audit.families.trusted.moving_factors import factors_moved
from sim.audit.families.trusted.trusted_noise import NoiseMap, read_publication
from sim.audit.findings import Audited
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

    def sensitivity(self, case: Case, sample: int | None, draw: np.random.Generator) -> Audited:
        return factors_moved(case, sample, draw)
