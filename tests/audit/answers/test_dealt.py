"""The accounting goes by the envelopes that were dealt, not by those that the recommender's tape would deal."""

from __future__ import annotations

import pytest
from support.audit import audited

from sim.audit.audit import audit

RATINGS = [{item: float(1 + (user + item) % 5) for item in range(6)} for user in range(5)]


def test_half_the_envelopes_are_accounted_and_found(tmp_path):
    found = []
    for scheme in ("masked", "support.schemes.quiet:DealsHalfTheEnvelopes"):
        (tmp_path / scheme[:6]).mkdir()
        case = audited(tmp_path / scheme[:6], RATINGS, scheme, epsilon=1.0, wire="paper", iterations=20)
        found.append(audit(case.folder, only=["accounting"]))
    honest, broken = found
    assert honest["verdict"] == "within-claims" and broken["verdict"] == "beyond-claims"
    (finding,) = [row for row in broken["findings"] if row["id"] == "missing-noise" and row["severity"] == "break"]
    assert finding["question"] == "accounting" and finding["measured"] == pytest.approx(0.5, abs=0.1)
    worst = [document["one_release"]["even"]["worst"] for document in (one["accounting"] for one in found)]
    assert worst[1] > 1.3 * worst[0]  # μ grows by √2
