"""The time of a first audit, of a second one and of the page."""

from __future__ import annotations

from sim.data.ratings import cache_folder
from sim.experiments.bench.audit_bench import COMMANDS, audit_times


def test_every_command_is_measured_in_an_account_of_its_own():
    before = sorted(cache_folder().rglob("*")) if cache_folder().exists() else []
    times = audit_times("synthetic:12x8:.6", iterations=2)
    assert list(times) == list(COMMANDS) and all(seconds > 0 for seconds in times.values())
    assert times["second audit"] < times["first audit"]  # processor time, and a canary is played only once
    assert (sorted(cache_folder().rglob("*")) if cache_folder().exists() else []) == before
