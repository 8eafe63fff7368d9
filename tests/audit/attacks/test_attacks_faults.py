"""Faults that the attacks must catch: schemes with the claims of the published ones, which they do not keep."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from protocol.party.role import Send
from protocol.schemes.factorization.masked import Masked
from protocol.schemes.factorization.masked_roles import MaskedRecommender, MaskedUser
from protocol.schemes.factorization.masked_sum import MaskDealer, mask_rows
from protocol.wire import messages
from protocol.wire.fields import RingRows
from sim.api import run
from sim.audit.attacks.attack import attack
from sim.views.evidence import open_case

SMALL = {"data": "synthetic:30x40:.4", "transport": "inprocess", "test_fraction": 0.0, "seed": 3, "dim": 4}


class _Faulty(Masked):
    user_class = MaskedUser
    recommender_class = MaskedRecommender

    def make_role(self, party, setting, tape, inputs):
        if party == "recommender":
            return self.recommender_class(setting, tape)
        if party.startswith("user:"):
            return self.user_class(setting, tape, inputs)
        return super().make_role(party, setting, tape, inputs)


# --- masks -----------------------------------------------------------------------------------------------------------


class _BareUser(MaskedUser):
    def _dealt(self, offer):
        masks, envelope = super()._dealt(offer)
        return np.zeros_like(masks), envelope


class _NoDealer(MaskDealer):
    def masks(self, user, iteration, items):
        return np.zeros_like(super().masks(user, iteration, items))


class _BareRecommender(MaskedRecommender):
    def __init__(self, setting, tape):
        super().__init__(setting, tape)
        self.dealer = _NoDealer(setting.ring, self.params.dim, setting.run_id, tape)


class Bare(_Faulty):
    """A scheme whose users leave their masks out."""

    name, user_class, recommender_class = "bare", _BareUser, _BareRecommender


class _RepeatingUser(MaskedUser):
    def _dealt(self, offer):
        masks, envelope = super()._dealt(offer)
        rows, dim = masks.shape
        return mask_rows(self.setting.ring, self.mask_key, self.setting.run_id, 0, rows, dim), envelope


class _RepeatingDealer(MaskDealer):
    def masks(self, user, iteration, items):
        return super().masks(user, 0, items)


class _RepeatingRecommender(MaskedRecommender):
    def __init__(self, setting, tape):
        super().__init__(setting, tape)
        self.dealer = _RepeatingDealer(setting.ring, self.params.dim, setting.run_id, tape)


class Repeating(_Faulty):
    """A scheme that uses the masks of iteration 0 in every iteration."""

    name, user_class, recommender_class = "repeating", _RepeatingUser, _RepeatingRecommender


@dataclass(frozen=True, slots=True, eq=False)
class MaskedGradient(messages.MaskedGradient):
    masks: RingRows


class _TellingUser(MaskedUser):
    def receive(self, sender, message):
        effects = super().receive(sender, message)
        if not isinstance(message, messages.ItemFactors):
            return effects
        told = effects[0].message
        masks = self._dealt(message)[0]
        return [Send("third_party", MaskedGradient(told.iteration, told.items, told.values, masks))]


class Telling(_Faulty):
    """A scheme whose users send their masks along."""

    name, user_class = "telling", _TellingUser
    messages = tuple(MaskedGradient if kind is messages.MaskedGradient else kind for kind in Masked.messages)


# --- noise -----------------------------------------------------------------------------------------------------------


class _SilentUser(MaskedUser):
    def _noise(self, envelope, floors, purpose, iteration):
        return np.zeros_like(super()._noise(envelope, floors, purpose, iteration))


class Silent(_Faulty):
    """A scheme whose users add no noise at all."""

    name, user_class = "silent", _SilentUser


# --- caught ----------------------------------------------------------------------------------------------------------


def found(folder, scheme, identifier, coalition, **flags):
    summary = run(out=folder, scheme=scheme, **{**SMALL, "iterations": 3, "epsilon": 1.0, **flags})
    assert summary["completed"], summary["abort"]
    findings = [each for each in attack(open_case(folder), [coalition]) if each.id == identifier]
    assert len(findings) == 1 and findings[0].coalition == coalition
    return findings[0]


@pytest.mark.parametrize(
    ("scheme", "how"),
    [
        ("Bare", "as sent"),
        ("Repeating", "less the user's previous upload"),
        ("Telling", "less a sent mask"),
    ],
)
def test_the_third_party_reads_a_mask_that_is_missing_repeated_or_sent_along(tmp_path, scheme, how):
    finding = found(tmp_path / "run", f"test_attacks_faults:{scheme}", "unmasking", ("third_party",))
    rows = finding.measured["rows"]
    read = finding.measured["rows_exact"]
    expected = rows * 2 // 3 if scheme == "Repeating" else rows  # iteration 0 has none before it
    assert finding.severity == "break" and read[how] == expected > 0
    assert all(count == 0 for name, count in read.items() if name != how) or scheme == "Bare"


def test_with_the_published_masks_the_third_party_reads_nothing(tmp_path):
    finding = found(tmp_path / "run", "masked", "unmasking", ("third_party",))
    assert finding.severity == "info" and set(finding.measured["rows_exact"].values()) == {0}


SPARSE = {"data": "synthetic:60x120:.03", "iterations": 1}  # a third of the items have one rater


def test_noise_that_is_claimed_and_left_out_is_found_by_guessing_ratings(tmp_path):
    silent = found(tmp_path / "silent", "test_attacks_faults:Silent", "rating-inference", ("recommender",), **SPARSE)
    assert silent.severity == "break" and silent.measured["accuracy"] == 1.0
    assert silent.measured["ratings"] >= 20 and silent.measured["interval"][0] > silent.measured["permitted"]
    published = found(tmp_path / "masked", "masked", "rating-inference", ("recommender",), **SPARSE)
    assert published.severity == "info" and published.measured["ratings"] == silent.measured["ratings"]
    assert published.measured["interval"][0] <= published.chance["accuracy"]


def test_a_forgotten_rho_is_found_by_the_difference_of_two_uploads(tmp_path):
    forgetful = found(tmp_path / "faulty", "support.schemes.broken:Forgetful", "difference-attack", ("recommender",))
    assert forgetful.severity == "break" and forgetful.measured["accuracy"] == 1.0
    published = found(tmp_path / "direct", "direct", "difference-attack", ("recommender",))
    assert published.severity == "info" and published.measured["interval"][0] <= published.chance["accuracy"]
