"""`direct` and `plain`: the recommender receives each user's gradients, noisy or not."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from protocol.arithmetic.ring import Label
from protocol.arrays import Floats, Matrix
from protocol.params import Params
from protocol.party.role import RECOMMENDER, user_index
from protocol.schemes.base import DELTA
from protocol.schemes.composition import basic_composition, composed
from protocol.schemes.factorization.direct import DirectParams
from protocol.schemes.factorization.factorization import GradientParams
from protocol.wire.messages import Join, NoisyGradient
from sim.audit.accounting.account_findings import noise_finding
from sim.audit.accounting.curve_points import UPLOADS, EpsilonCurve, EpsilonPoint, curve_iterations
from sim.audit.accounting.epsilon_cells import EpsilonEntry, uploads_cell
from sim.audit.accounting.noise_test import LAPLACE_MEDIAN, NoiseTest
from sim.audit.attacks.coalition_views import Scene
from sim.audit.attacks.difference_guesses import RealUpload, attack_difference
from sim.audit.attacks.inference import attack_inference
from sim.audit.attacks.isolating import attack_by_users
from sim.audit.attacks.membership import attack_counts, attack_presence
from sim.audit.attacks.over_time.averaging import attack_average
from sim.audit.attacks.single import attack_single
from sim.audit.coalitions import Coalition
from sim.audit.families.factorization.factorization_family import FactorizationFamily
from sim.audit.families.factorization.to_a_user import to_a_user
from sim.audit.families.factorization.told_shares import told_shares
from sim.audit.families.family import AccountedBound, Attack
from sim.audit.findings import Audited, Finding
from sim.audit.pairs.change import RatingChange
from sim.audit.pairs.exposure import Exposure, Loss
from sim.audit.pairs.noise_laws import LAPLACE, LawOf, StatedLaw
from sim.audit.pairs.twice import Twice
from sim.console.console import counted, figure
from sim.views.evidence import Case
from sim.views.exhibits import Exhibits

UPLOADS_TESTED = 20  # iterations whose uploads are tested for noise: they are long


class DirectFamily(FactorizationFamily):
    uploads_openly = True

    def account_claim(self, case: Case, head: dict[str, Any]) -> Audited:
        return account_uploads(case, DirectParams.of(case.card.params), head)

    def curve(self, case: Case, summed: Mapping[str, Any], accounting: Mapping[str, Any]) -> EpsilonCurve | str:
        """Draw it to the recommender, which does not know the noise of an upload."""
        found = accounting.get("composed") or summed
        if not isinstance(found.get("tight"), float):
            return super().curve(case, summed, accounting)
        params = DirectParams.of(case.card.params)
        at = curve_iterations(int(found["releases"]))
        return EpsilonCurve([EpsilonPoint(t, **composed(params, t)) for t in at], UPLOADS)

    def accounted(self, accounting: Mapping[str, Any], members: Sequence[str]) -> EpsilonEntry:
        uploads = accounting["composed"].get("releases", 0)
        return uploads_cell(accounting, members, f"{counted(uploads, 'upload')} of a rating's gradient")

    def bound(self, accounting: Mapping[str, Any], findings: Sequence[Finding]) -> AccountedBound | None:
        each = accounting["composed"]["basic"] / accounting["composed"]["releases"]
        return AccountedBound(each, f"One upload alone has ε = {figure(each)} for user factors that stay.")

    def exposure(self, case: Case) -> Exposure | None:
        return UploadExposure(GradientParams.of(case.card.params))

    def told_shares(self, params: Params, messages: Iterable[Any]) -> LawOf:
        """Know also ρ, which is Laplace(0, b) whatever the user is told."""
        own = GradientParams.of(params)
        rho, law_of_eta = StatedLaw(np.full((1, 1), own.noise_scale), LAPLACE), told_shares(own, messages)
        return lambda shift: rho if shift.what == "rho" else law_of_eta(shift)

    def zero_chance(self, params: Params, label: Label) -> Floats:
        """Know that no draw of a normal law is 0 (`Tape.normal` takes midpoints of cells)."""
        return np.full(len(label.items), 0.0 if GradientParams.of(params).noise_scale else 1.0)

    def attacks(self, scene: Scene, apart: frozenset[str]) -> Iterator[Attack]:
        yield from super().attacks(scene, apart)
        if RECOMMENDER in apart:
            yield from (attack_single, attack_presence)
        if RECOMMENDER in apart or scene.users:
            yield from (attack_inference, attack_average)
        if RECOMMENDER in apart:
            yield attack_difference
        if scene.truth.is_whole and scene.users and not scene.has_recommender:
            yield from (attack_by_users, attack_counts)

    def uploads(self, scene: Scene) -> Iterable[tuple[int, RealUpload]]:
        supports = scene.recommender.supports
        for seen in scene.received(RECOMMENDER, "NoisyGradient", "Gradient"):
            user, values = user_index(seen.sender), seen.message.values.astype(np.float64)
            yield user, RealUpload(seen.iteration, supports[user], values)

    def iteration_noise(self, params: Params, keys: list[bytes], floors: Matrix, iteration: int) -> Matrix | float:
        """Return 1, the variance of a coordinate's own Laplace(0, b) over 2b²; 0 without ρ."""
        return float(params.rho) if isinstance(params, DirectParams) else 0.0


# --- pairs: the uploads of the user that has the changed rating -------------------------------------------------------


class UploadExposure(Exposure):
    """The recommender holds every upload: to it the noise of a coordinate is the user's own Laplace ρ of scale b."""

    def __init__(self, params: GradientParams) -> None:
        self.params = params

    def coalitions(self) -> list[Coalition]:
        return [(RECOMMENDER,)]

    def loss(self, members: Coalition, twice: Twice) -> Loss | None:
        """Compute Σ|s|/b over the uploads; infinite if two of them differ by more than η, which is in both."""
        covered = {label.iteration for label in twice.noises if label.what == "rho"}
        moved = [shift for shift in twice.shifts if shift.what == "gradient" and shift.rows.any()]
        bare = [shift.rows for shift in moved if shift.iteration not in covered]
        if not moved:
            return None
        if any(not np.allclose(rows, bare[0]) for rows in bare):
            return Loss(members, len(moved), pure=math.inf)
        size = sum(float(np.abs(shift.rows).sum()) for shift in moved if shift.iteration in covered)
        return Loss(members, len(moved), pure=size / self.params.noise_scale)

    def accounted(self, members: Coalition, change: RatingChange) -> dict[str, Any]:
        return {"accounted": basic_composition(self.params.epsilon, self.params.iterations)}


# --- accounting: the uploads of one rating's gradient, composed ------------------------------------------------------


def account_uploads(case: Case, params: DirectParams, head: dict[str, Any]) -> Audited:
    uploads, test = _test_uploads(case)
    releases = max(uploads, default=0)
    if not releases:
        return {**head, "method": "nothing was uploaded, so nothing is accounted"}, []
    rho = "with a ρ that its user drew and no other party knows, through the privacy loss distribution"
    words = (
        f"to the recommender: {releases} uploads of one rating's gradient, each {rho if params.rho else 'without ρ'}. "
        "The envelope of η is known, and so are the η shares of colluding raters; neither is counted on, because η is "
        "constant"
    )
    figures = composed(params, releases)
    if not params.rho:
        figures["tight"] = math.inf if releases > 1 else None  # the difference of two uploads has no noise
    document = {**head, "method": words, "composed": figures, "noise": test.result()}
    document["to_a_user"] = to_a_user(params, document, whole=min(uploads) == releases)
    finding = Finding(
        "composition",
        _uploaded(releases, figures["tight"], params.epsilon),
        (RECOMMENDER,),
        "weak" if figures["tight"] is None or figures["tight"] > params.epsilon else "info",
        claimed=params.epsilon,
        measured=figures,
        confidence="exact, at δ = 1e-05",
        evidence=words,
    )
    return document, [finding, *noise_finding(document["noise"], [], "user")]


def _uploaded(releases: int, tight: float | None, claim: float) -> str:
    if releases == 1:
        return "Every rating is in one upload, and the claim is for one."
    if tight is None or math.isinf(tight):
        return f"Every rating is in {releases} uploads, and without ρ nothing bounds ε of two or more of them."
    return f"Every rating is in {releases} uploads: together ε {tight:.3g} at δ = {DELTA:g}, not {claim:g}."


def _test_uploads(case: Case) -> tuple[list[int], NoiseTest]:
    """Count each user's uploads, and test whether the first ones carry ρ; the guess is the mean so far."""
    exhibits, params = Exhibits(case, (RECOMMENDER,)), DirectParams.of(case.card.params)
    size = LAPLACE_MEDIAN * params.noise_scale
    test, sums, counts = NoiseTest(params.n_users), dict[int, Matrix](), dict[int, int]()
    for seen in exhibits.received(RECOMMENDER, Join.__name__, NoisyGradient.__name__):
        if isinstance(seen.message, Join):
            continue
        user = user_index(seen.sender)
        counts[user] = counts.get(user, 0) + 1
        if counts[user] > UPLOADS_TESTED:
            continue
        values = seen.message.values.astype(np.float64)
        if user in sums:
            whose = np.full(len(values), user)
            test.add("uploads", whose, np.abs(values - sums[user] / (counts[user] - 1)) / size)
        sums[user] = sums.get(user, 0) + values
    return list(counts.values()), test
