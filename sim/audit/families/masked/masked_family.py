"""`masked` and `dynamic`: the recommender opens masked sums, whose noise has envelopes that it dealt itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from protocol.arithmetic.fixedpoint import FixedPoint
from protocol.arithmetic.ring import Label
from protocol.arithmetic.tape import exponential
from protocol.arrays import Floats, Ids, Matrix, RingArray
from protocol.params import Params
from protocol.party.role import RECOMMENDER, THIRD_PARTY
from protocol.schemes.base import Scheme
from protocol.schemes.composition import composed
from protocol.schemes.factorization.dynamic import Dynamic
from protocol.schemes.factorization.dynamic_recommender import DynamicRecommender
from protocol.schemes.factorization.factorization import MaskedParams
from sim.audit.accounting.curve_points import IN_VIEW, EpsilonCurve, points_in
from sim.audit.accounting.epsilon_cells import EpsilonEntry, sums_cell
from sim.audit.attacks.coalition_views import Scene
from sim.audit.attacks.difference_guesses import RealUpload, attack_difference
from sim.audit.attacks.inference import attack_inference
from sim.audit.attacks.isolating import attack_by_users, attack_with_recommender
from sim.audit.attacks.membership import attack_counts, attack_presence
from sim.audit.attacks.over_time.averaging import attack_average
from sim.audit.attacks.over_time.counts_over_time import attack_changes
from sim.audit.attacks.single import attack_single
from sim.audit.families.factorization.factorization_family import FactorizationFamily
from sim.audit.families.factorization.told_shares import told_shares
from sim.audit.families.family import AccountedBound, Attack
from sim.audit.families.masked.disaggregation import attack_sums
from sim.audit.families.masked.envelope_account import account_envelopes
from sim.audit.families.masked.envelope_check import check_users
from sim.audit.families.masked.expected_curve import expected_curve
from sim.audit.families.masked.pair_noise import MaskedExposure
from sim.audit.families.masked.recommender_glimpse import recommender_glimpse
from sim.audit.families.masked.unmasking import attack_alone, attack_together, attack_totals, unmasked, uploads
from sim.audit.findings import Audited, Finding
from sim.audit.pairs.exposure import Exposure
from sim.audit.pairs.noise_laws import LawOf
from sim.audit.role_rerun import rerun
from sim.audit.uniformity.indistinguishable import Glimpse
from sim.console.console import figure
from sim.views.evidence import Case
from sim.views.exhibits import Exhibits


class MaskedFamily(FactorizationFamily):
    masks = True

    def __init__(self, scheme: Scheme) -> None:
        super().__init__(scheme)
        self.commits = isinstance(scheme, Dynamic)

    def account_claim(self, case: Case, head: dict[str, Any]) -> Audited:
        return account_envelopes(case, head)

    def exposure(self, case: Case) -> Exposure | None:
        return MaskedExposure(case, self.commits)

    def told_shares(self, params: Params, messages: Iterable[Any]) -> LawOf:
        return told_shares(MaskedParams.of(params), messages)

    def zero_chance(self, params: Params, label: Label) -> Floats:
        """Bound it by √k / 2 units over b, for a share of k: b √(2H/k) N has no higher density, as E H^(−1/2) = √π."""
        own = MaskedParams.of(params)
        shares = np.ones(len(label.items)) if label.shares is None else label.shares.astype(np.float64)
        return np.sqrt(shares) * 2.0 ** -(1 + own.fraction_bits) / own.noise_scale if own.noise_scale else shares**0

    def composed(self, params: Params, releases: int) -> dict[str, Any]:
        return composed(MaskedParams.of(params), releases)

    def curve(self, case: Case, summed: Mapping[str, Any], accounting: Mapping[str, Any]) -> EpsilonCurve | str:
        if "curve" in accounting:
            items = accounting["all_releases"]["even"]["items"]
            return EpsilonCurve(points_in(accounting["curve"]), IN_VIEW, items)
        if isinstance(summed.get("tight"), float):
            return expected_curve(case)
        return super().curve(case, summed, accounting)

    def accounted(self, accounting: Mapping[str, Any], members: Sequence[str]) -> EpsilonEntry:
        return sums_cell(accounting, members)

    def bound(self, accounting: Mapping[str, Any], findings: Sequence[Finding]) -> AccountedBound | None:
        even, worst = accounting["one_release"]["even"], accounting["one_release"]["any_sum"]["worst"]
        more = f" and {figure(worst)} for the worst of all sums" if worst > even["worst"] * (1 + 1e-9) else ""
        text = (
            f"To the recommender, who knows the envelopes, one release leaves ε = {figure(even['median'])} for the "
            f"median item, {figure(even['worst'])} for the worst{more}."
        )
        return AccountedBound(even["worst"], text)

    def attacks(self, scene: Scene, apart: frozenset[str]) -> Iterator[Attack]:
        yield from super().attacks(scene, apart)
        both = scene.has_recommender and scene.has_third_party
        if RECOMMENDER in apart:
            yield attack_single
        if scene.members == (RECOMMENDER,):
            yield from (attack_totals, attack_sums)
        if {RECOMMENDER, THIRD_PARTY} & apart:
            yield attack_presence
        if both or RECOMMENDER in apart or (scene.users and not scene.has_third_party):
            yield from (attack_inference, attack_average)
        if both:
            yield from (attack_together, attack_difference)
        elif THIRD_PARTY in apart:
            yield from (attack_difference, attack_alone)
        if scene.truth.is_whole and scene.users and not scene.has_third_party:
            alone = (attack_by_users, attack_counts, attack_changes)
            yield from (attack_with_recommender,) if scene.has_recommender else alone

    def uploads(self, scene: Scene) -> Iterable[tuple[int, RealUpload]]:
        """Decode the masked uploads: unmasked, if the recommender is there, and else as they are."""
        fixed = FixedPoint(scene.ring, scene.params.fraction_bits)
        for upload in unmasked(scene) if scene.has_recommender else uploads(scene):
            yield upload.user, RealUpload(upload.iteration, upload.items, fixed.decode(upload.words))

    def iteration_noise(self, params: Params, keys: list[bytes], floors: Matrix, iteration: int) -> Matrix | float:
        part: Matrix = exponential(keys, params.dim, "rho", iteration) / floors
        return part

    def learned_by_cheating(self, case: Case) -> dict[str, Any] | None:
        from sim.audit.families.masked.cheat_gains import learned  # imports the roles that cheat

        return learned(case)

    def checked_by_users(self, case: Case) -> dict[str, Any] | None:
        return check_users(case)

    def totals_seen(self, case: Case) -> Glimpse:
        return recommender_glimpse(case)

    def unblinded(self, case: Case) -> tuple[Ids, RingArray] | None:
        """Return τ^, which only α must hide."""
        if not self.commits:
            return None
        for turn in rerun(Exhibits(case, (RECOMMENDER,)), RECOMMENDER):
            role = turn.role
            if isinstance(role, DynamicRecommender) and role.iteration >= 0:
                sealed = np.flatnonzero(role.n_raters).astype(np.uint32)
                return sealed, role.commitment.noise[sealed]
        return None
