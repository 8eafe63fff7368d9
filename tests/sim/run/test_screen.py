"""The first screen: its answers follow from the figures, and it fits on 24 lines of 80 columns."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest

from sim.cli.audit_command import ask_briefly
from sim.console import console
from sim.folder.folder import read_run
from sim.plan.config import RunConfig
from sim.run.run import run
from sim.tables import first_screen

SETTINGS = {"data": "synthetic:30x20:.5", "dim": 3, "iterations": 5, "seed": 2, "transport": "inprocess"}


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    summary = run(RunConfig(scheme="masked", **SETTINGS), out=tmp_path_factory.mktemp("screen") / "run")
    return summary, read_run(Path(summary["run"]))[1].scheme, *ask_briefly(summary)


def shown(capsys, monkeypatch, summary, scheme, audited, counted) -> list[str]:
    monkeypatch.setattr(console.out, "width", 80)
    first_screen.show_screen(summary, scheme, audited, counted)
    return capsys.readouterr().out.splitlines()


def text_of(lines: list[str]) -> str:
    return " ".join(" ".join(lines).split())


def test_it_fits_on_24_lines_of_80_columns(capsys, monkeypatch, done):
    summary, *others = done
    lines = shown(capsys, monkeypatch, summary | {"run": "runs/first", "notes": []}, *others)
    assert len(lines) <= 24 and max(map(len, lines)) <= 80


def test_yes_and_no_follow_from_the_best_guess_on_the_device(capsys, monkeypatch, done):
    summary, *others = done
    best = min(floor["test_rmse"] for floor in summary["accuracy"]["on_device"])
    for rmse, answer in ((best - 0.01, "Yes"), (best, "No"), (best + 0.5, "No")):
        changed = copy.deepcopy(summary)
        changed["accuracy"]["test_rmse"] = rmse
        text = text_of(shown(capsys, monkeypatch, changed, *others))
        assert f"Does it recommend? {answer}: test RMSE {rmse:.3f}" in text and f"{best:.3f}" in text


def test_what_was_not_measured_is_said(capsys, monkeypatch, done):
    summary, scheme, _, counted = done
    changed = copy.deepcopy(summary)
    changed["accuracy"]["test_rmse"], changed["ratings"]["test"] = None, 0
    text = text_of(shown(capsys, monkeypatch, changed, scheme, "Not audited: no views.", counted))
    assert "Not measured: no rating was held out." in text and "Not audited: no views." in text


def test_bytes_that_differ_are_not_called_equal(capsys, monkeypatch, done):
    summary, scheme, audited, counted = done
    assert "Formula = count, to the byte" in text_of(shown(capsys, monkeypatch, summary, scheme, audited, counted))
    text = text_of(shown(capsys, monkeypatch, summary, scheme, audited, counted | {"match": False}))
    assert "Formula and count differ" in text and "to the byte" not in text


def test_the_one_who_knows_most_stands_for_its_kind(capsys, monkeypatch, done):
    summary, scheme, audited, counted = done
    assert isinstance(audited, dict)
    text = text_of(shown(capsys, monkeypatch, summary, scheme, audited, counted))
    assert "both servers: every user's noisy gradients" in text
    assert "third party: who rated what, and no number of anyone" in text
    assert "of ratings are guessed, blindly" in text


def test_what_goes_beyond_is_said(capsys, monkeypatch, done):
    summary, scheme, audited, counted = done
    within = text_of(shown(capsys, monkeypatch, summary, scheme, audited | {"not_shown": []}, counted))
    one = [{"question": "algebra", "reason": "…", "coalition": None}]
    doubtful = text_of(shown(capsys, monkeypatch, summary, scheme, audited | {"not_shown": one}, counted))
    assert "No undeclared leak found; 1 thing not shown." in doubtful
    beyond = text_of(shown(capsys, monkeypatch, summary, scheme, audited | {"verdict": "beyond-claims"}, counted))
    assert "leaked nothing beyond what masked declares" in within and "leaked beyond what masked declares" in beyond
