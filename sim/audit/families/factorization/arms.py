"""The canaries of a factorization, and the statistics that each coalition computes from them.

| arm | iterations | noise that is zero | what a fault in it means |
|---|---|---|---|
| `release` | 1 | η | ρ alone must keep the claim, because η cancels in the difference of two releases |
| `whole` | 1 | none | one release as it is made |
| `difference` | 2 | none | ρ that is drawn once and used twice, or no ρ, cancels |
| `constant` | 8 | ρ | η that is drawn anew in every iteration averages out; else eight sums tell as much as one |

In `constant` the learning rate is so small that no factor moves: without ρ the difference of two sums of a moving run
is known to tell the rating (the paper's own difference attack), whatever η is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from protocol.params import Params
from protocol.party.role import RECOMMENDER
from protocol.schemes.base import Scheme
from sim.audit.canary.bound_rows import Statistic
from sim.audit.canary.canary import CanaryProblem, make_problem
from sim.audit.canary.guesses import laplace_ratio
from sim.audit.families.factorization import batch
from sim.audit.families.factorization.adversary_statistics import (
    centred_publication,
    centred_sums,
    centred_uploads,
    difference,
    likelihood_ratio,
    own_share,
    released_sums,
    work_out,
)
from sim.audit.families.factorization.repeat import Observed

STILL = 2.0**-20  # a learning rate at which nothing moves, but v in float64 still shows a sum
_CARRIED = ("wire", "factor_bits")  # settings of a run that its canary adopts, besides the scheme's options
# a canary has its own size, which determines these; `profile_ridge` matters only locally, to a user's own profile
_SIZED = frozenset(
    {"ring_bits", "clip", "dropout_allowance", "min_contributors", "committers", "learning_rate", "profile_ridge"}
)


@dataclass(frozen=True)
class Arm:
    name: str
    iterations: int
    part: float  # fraction of the requested repetitions
    statistics: Callable[[CanaryProblem, Observed], Iterator[Statistic]]
    silent: tuple[str, ...] = ()
    learning_rate: float | None = None

    def problem(self, scheme: Scheme, epsilon: float, params: Params | None) -> CanaryProblem:
        settings: dict[str, Any] = {"iterations": self.iterations, "epsilon": epsilon, **_carried(scheme, params)}
        if self.learning_rate is not None and "learning_rate" in scheme.options:
            settings["learning_rate"] = self.learning_rate
        rating_range = (1.0, 5.0) if params is None else (params.rating_min, params.rating_max)
        return make_problem(scheme, rating_range, self.silent, **settings)


def _carried(scheme: Scheme, params: Params | None) -> dict[str, Any]:
    names = [name for name in _CARRIED if name in scheme.flags]
    names += [name for name in scheme.options if name not in _SIZED]
    return {name: getattr(params, name) for name in names if params is not None and hasattr(params, name)}


# --- statistics by coalition -----------------------------------------------------------------------------------------

OUTSIDER = "the item factors, every other rating and every first factor"


def of_one_release(problem: CanaryProblem, observed: Observed) -> Iterator[Statistic]:
    params, known_eta = problem.params, "eta" in problem.silent
    given = ", and η" if known_eta else ""
    centred, shift = centred_sums(problem, observed)
    by_law = laplace_ratio((centred / shift)[:, 0], params.epsilon)
    yield Statistic((), OUTSIDER + given, "released sum", "noise", centred[:, 0], ratio=by_law)
    yield from _of_an_upload(problem, observed, given)
    if not observed.rho_envelopes.size:
        return
    envelope = observed.rho_envelopes if known_eta else observed.rho_envelopes + observed.eta_envelopes
    ratio = likelihood_ratio(params, centred, shift, envelope)[:, 0]
    knows = f"{OUTSIDER}, the envelopes that it dealt{given}"
    yield Statistic((RECOMMENDER,), knows, "likelihood ratio given the envelope", "envelope", ratio, ratio=ratio)
    if known_eta:
        share = own_share(params, envelope, observed.witness_normals) * np.sign(work_out(problem, observed).shift)
        ratio = likelihood_ratio(params, centred - share, shift, envelope, 1 - 1 / params.n_users)[:, 0]
        knows = f"{OUTSIDER}, the envelope, η, and its own share, one of {params.n_users}"
        name = "likelihood ratio given envelope and own share"
        yield Statistic(("user",), knows, name, "shares", ratio, ratio=ratio)


def _of_an_upload(problem: CanaryProblem, observed: Observed, given: str) -> Iterator[Statistic]:
    if not observed.uploads.size:
        return
    centred, shift = centred_uploads(problem, observed)
    values, coalition = centred[:, 0], (observed.receiver,)
    if not observed.masked:
        ratio = laplace_ratio((centred / shift)[:, 0], problem.params.epsilon)
        yield Statistic(coalition, f"the upload of user 0{given}", "upload", "noise", values, ratio=ratio)
    elif given:  # one arm suffices
        knows = f"the masked upload of user 0, its first factors, that its rating is one of two{given}"
        yield Statistic(coalition, knows, "masked upload, read as a signed number", "mask", values, releases=0)


def of_two_releases(problem: CanaryProblem, observed: Observed) -> Iterator[Statistic]:
    sums = released_sums(problem.params, observed.item_factors)
    score = difference(problem, observed, sums, with_others=True)
    of_sums = Statistic((), OUTSIDER, "difference of two released sums", "noise", score, releases=2)
    yield replace(of_sums, ratio=score / problem.params.noise_scale, reacting=True)
    if observed.uploads.size and not observed.masked:
        score = difference(problem, observed, observed.uploads, with_others=False)
        whose, knows, name = (observed.receiver,), "the uploads of user 0", "difference of two uploads"
        ratio = score / problem.params.noise_scale
        yield replace(of_sums, coalition=whose, knows=knows, name=name, values=score, ratio=ratio, reacting=True)


def of_constant_noise(problem: CanaryProblem, observed: Observed) -> Iterator[Statistic]:
    centred, shift = centred_sums(problem, observed)
    values, knows = centred.mean(axis=1), f"{OUTSIDER}, and ρ"
    ratio = laplace_ratio(values / shift[:, 0], problem.params.epsilon)
    yield Statistic((), knows, f"mean of {problem.params.iterations} released sums", "noise", values, ratio=ratio)


def of_a_publication(problem: CanaryProblem, observed: Observed) -> Iterator[Statistic]:
    places = centred_publication(observed)
    ratio = laplace_ratio(places, problem.params.epsilon)
    yield Statistic((), OUTSIDER, "published item factors", "noise", places, ratio=ratio)


RELEASE = Arm("release", 1, 1.0, of_one_release, silent=("eta",))
SUMS = (
    RELEASE,
    Arm("whole", 1, 0.5, of_one_release),
    Arm("difference", 2, 0.25, of_two_releases),
    Arm("constant", 8, 0.25, of_constant_noise, silent=("rho",), learning_rate=batch.STILL),
)
PUBLICATION = Arm("publication", 1, 1.0, of_a_publication, learning_rate=STILL)
