"""Planted faults of metadata, noise and masks, and the question that names each; and none in honest schemes."""

from __future__ import annotations

import pytest
from support.audit import audited

from sim.audit.audit import audit
from sim.audit.pairs.pairs import ask_pairs

RATINGS = [{0: 5, 1: 3, 2: 1, 3: 2}, {0: 4, 1: 2, 4: 5}, {0: 2, 1: 5, 4: 2}, {0: 2, 2: 4, 3: 4}, {0: 1, 2: 5, 4: 3}]
HERE = "support.schemes"
FOUND = {
    "shape": [
        "broken:SaysMore",
        "quiet:RefusedIfLiked",
        *(f"telltale:In{what}" for what in ("Length", "Items", "Number", "Iteration", "Digest", "NumbersOfADigest")),
        *(f"telltale:In{what}" for what in ("Counts", "HowMany", "Order", "Receiver", "Refusals")),
    ],
    "interference": [
        f"telltale:{name}" for name in ("SignsOfSums", "LengthOfSums", "BitsOfMaskedValues", "MaskInANumber")
    ],
    "own-randomness": [
        *(f"unmasked:{name}" for name in ("Bare", "Shared", "BareDynamic")),
        "noise_faults:Reusing",
        *(f"telltale:{name}" for name in ("PublicSeed", "SeedOfKeys", "SameForItems", "SameForCoordinates")),
        *(f"telltale:{name}" for name in ("Repeated", "Antithetic", "EveryOther")),
        *(f"telltale:Missing{what}" for what in ("ForAUser", "ForAnItem", "Once")),
        "noise_faults:Quiet",
        *(f"uneven_noise:{name}" for name in ("TwoAgo", "OneForBoth", "ShortSeed", "FewKeys")),
    ],
    "missing-noise": [
        *("telltale:InANumber", "telltale:CallsItNoise"),
        *(f"uneven_noise:{name}" for name in ("HalfForAUser", "HalfForAnItem", "HalfOnce", "DirectHalfOnce")),
        *(f"uneven_noise:{name}" for name in ("CutOff", "Coarse")),
    ],
    "sensitivity": ["telltale:TripleGradients"],
}


@pytest.mark.parametrize("scheme", [f"{id_} {name}" for id_, names in FOUND.items() for name in names])
def test_the_question_of_pairs_names_the_fault(tmp_path, scheme):
    id_, name = scheme.split()
    case = audited(tmp_path, RATINGS, f"{HERE}.{name}", epsilon=1.0, iterations=8)
    found = {one.id for one in ask_pairs(case, 6)[1] if one.severity == "break"}
    assert id_ in found


def test_a_recommender_that_tells_users_their_trained_factors_leaks_at_any_epsilon(tmp_path):
    case = audited(tmp_path, RATINGS, f"{HERE}.broken:TellsProfiles", epsilon=0.01)
    document = audit(case.folder, only=["pairs"])
    (found,) = [one for one in document["findings"] if one["id"] == "missing-noise"]
    assert found["severity"] == "break" and "WithProfile.user_factors of 4 of 4 other users" in found["title"]


def test_a_scheme_that_fails_in_a_small_run_is_still_asked_the_rest(tmp_path):
    case = audited(tmp_path, RATINGS, f"{HERE}.uneven_noise:ManyAlone", epsilon=1.0, iterations=3)
    document, findings = ask_pairs(case, 3)
    seeds = document["tapes"]["seeds"]
    assert seeds["unplayed"] == "the smallest run of the scheme ended with ValueError: two users are too few"
    assert seeds["streams"] > 0 and not [one for one in findings if one.severity == "break"]
