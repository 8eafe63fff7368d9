"""The audit of `hardened` with proofs of the norm: within its claims, and a planted fault shows."""

from __future__ import annotations

import dataclasses

import pytest
from support.audit import made

from protocol.schemes.hardened.hardened import Hardened
from protocol.schemes.hardened.norm_proof.norm_roles import VALUES, NormUser, norm_mask
from protocol.schemes.hardened.share_law import draw_shares
from sim.audit.audit import audit
from sim.audit.canary.empirical import measure

QUESTIONS = ["inventory", "algebra", "attacks", "accounting", "pairs", "statistics"]
NORM = {"rounds": 2, "proof": "norm"}


def test_a_run_with_proofs_is_within_its_claims(tmp_path):
    case = made(tmp_path / "run", "hardened", options=NORM)
    document = audit(case.folder, only=QUESTIONS)
    assert document["verdict"] == "within-claims" and not document["unanswered"]
    assert {one["id"] for one in document["findings"] if one["severity"] != "info"} == {"unmasking"}
    rows = {"+".join(row["members"]): row for row in document["parties"]}
    assert rows["third_party"]["determines"] == "nothing"
    assert rows["recommender"]["determines"] == "aggregate" and rows["recommender"]["smallest_group"] == 40
    assert rows["recommender+third_party"]["determines"] == "exact-individual", "declared: unmasking"
    assert document["accounting"]["noise"]["shares"] == 40 and not document["accounting"]["noise"]["missing"]
    uniform = {(row["kind"], row["field"]) for row in document["statistics"]["uniformity"]["fields"] if row["values"]}
    sent = {("ProvenPart", name) for name in ("values", "shares", "digits")}
    assert sent | {("NormAnswer", "values"), ("NormProof", "values")} <= uniform


class BareUser(NormUser):
    """Sends vector and share without a mask."""

    def _upload(self, iteration, vector):
        send, ring = super()._upload(iteration, vector), self.setting.ring
        bare = ring.subtract(send.message.values, norm_mask(self.setting, self.mask_key, VALUES, iteration))
        return dataclasses.replace(send, message=dataclasses.replace(send.message, values=bare))


class QuietUser(NormUser):
    """Draws its share at half of the scale that the parameters state, and proves that."""

    def _share(self, iteration, length):
        return draw_shares(self.tape, self.params.scales[iteration] // 2, length, "share", iteration)


class BareNorm(Hardened):
    user = BareUser

    def make_role(self, party, setting, tape, inputs):
        return self.user(setting, tape, inputs) if inputs else super().make_role(party, setting, tape, inputs)


class QuietNorm(BareNorm):
    user = QuietUser


@pytest.mark.parametrize(("name", "finding"), [("BareNorm", "mask-uniformity"), ("QuietNorm", "missing-noise")])
def test_a_planted_fault_is_found(name, finding, tmp_path):
    case = made(tmp_path / "run", f"test_norm_audit:{name}", epsilon=1.0, options={"proof": "norm"})
    document = audit(case.folder, only=["algebra", "accounting", "statistics"])
    assert finding in {one["id"] for one in document["findings"] if one["severity"] == "break"}
    assert document["verdict"] == "beyond-claims"


def test_the_canary_plays_proofs_and_shows_no_more_than_is_claimed(tmp_path):
    params = made(tmp_path / "run", "hardened", options={"proof": "norm"}).card.params
    document, found = measure(None, Hardened(), epsilon=8.0, repetitions=3200, workers=1, params=params)
    assert not [one for one in found if one.severity != "info"] and len(document["rows"]) == 3
    bounds = {tuple(row["coalition"]): row["lower_bound_mu"] for row in document["rows"]}
    assert bounds["recommender",] < bounds["recommender", "user"], "a colluding user takes its turned share away"
