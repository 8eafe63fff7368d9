"""The top of the page: four tiles with the terminal's figures, two questions, one sentence for each adversary."""

from __future__ import annotations

import dataclasses
import json

import pytest

from sim.audit.audit import Audit
from sim.console import console
from sim.console.console import size
from sim.report.epsilon import epsilon_section
from sim.report.page import report_page
from sim.report.parties import parties_section
from sim.report.reported_run import ReportedRun, ask_for_page
from sim.report.verdict import tiles, verdict_section
from sim.tables import first_screen
from tests.report.test_report_verdict import made, reported, shown


@pytest.fixture(scope="module")
def masked(tmp_path_factory: pytest.TempPathFactory) -> ReportedRun:
    return reported(made(tmp_path_factory.mktemp("masked") / "run", "masked"))


def figures(run: ReportedRun) -> list[dict[str, str]]:
    """Return the figures of each tile by their names."""
    made = tiles.tiles(run, verdict_section.published(run), verdict_section.sentence(run))
    assert len(made) == 4
    return [{value.name: value.figure for value in tile.values} for tile in made]


def test_the_tiles_have_the_figures_of_the_summary_and_the_audit(masked):
    accuracy, cost, epsilon, learned = figures(masked)
    measured = masked.summary["accuracy"]
    assert accuracy["this run"] == f"{measured['test_rmse']:.3f}"
    assert accuracy["unprotected"] == f"{measured['plain']['test_rmse']:.3f}"
    least = min(floor["test_rmse"] for floor in measured["on_device"])
    assert accuracy["best guess on the device"] == f"{least:.3f}"
    user = masked.summary["bytes"]["per_user_iteration"]
    assert cost["down"] == size(user["down_mean"]) and cost["up"] == size(user["up_mean"])
    worst = masked.audit["accounting"]["all_releases"]["even"]["worst"]
    assert epsilon == {
        "claimed": "8",
        "whole run": console.figure(masked.summary["privacy"]["accounted"]["tight"]),
        "to the recommender": console.figure(worst),
    }
    assert learned["third party"] == "who rated what" and learned["both servers"] == "noisy numbers"


def test_the_page_and_the_terminal_have_the_same_figures(masked, capsys):
    first_screen.show_screen(masked.summary, masked.scheme, masked.audit, masked.bandwidth)
    told = " ".join(capsys.readouterr().out.split())
    accuracy, cost, epsilon, _ = figures(masked)
    for name, figure in epsilon.items():
        assert f"{name} {figure}" in told
    for figure in (*accuracy.values(), *cost.values()):
        assert figure in told


def test_a_refuted_claim_is_amber_and_the_run_may_leak_as_declared(masked):
    document = json.loads(json.dumps(masked.audit)) | {"not_shown": []}
    claim = {"claimed": 8.0, "claim": "ε = 8 per release", "shown": 9.5, "confidence": "exact", "why": "Because."}
    for status, style in (("refuted", "weak"), ("holds", "good"), ("not-tested", "")):
        document["published_claim"] = {"status": status, **claim}
        run = dataclasses.replace(masked, audit=document)
        assert verdict_section.published(run).style == style
        html = str(verdict_section.section(run).html)
        word = status.replace("-", " ").capitalize()
        assert f'<strong class="{style or "figure"}">{word} (ε = 8 per release)' in html
        assert "As declared." in html and "Shown: ε = 9.5 (exact)." in html


def test_each_adversary_has_one_sentence_and_the_table_is_folded(masked):
    found = {one.who: one for one in parties_section.adversaries(masked)}
    assert list(found)[:3] == ["The recommender", "The third party", "Both servers together"]
    assert found["The third party"].learns == "who rated what, and no number of anyone"
    assert found["The third party"].style == "weak"
    assert found["Both servers together"].verb == "learn" and found["Both servers together"].style == "weak"
    assert found["Both servers together"].standing == "The scheme assumes that they do not collude."
    html = str(parties_section.section(masked).html)
    assert html.index("<li>") < html.index("<details") < html.index("<table")


@pytest.mark.parametrize("views", ["full", "none"])
def test_a_page_without_the_ratings_says_what_is_missing(tmp_path, views):
    data = tmp_path / "ratings.csv"
    data.write_text("user,item,rating\n" + "".join(f"u{n % 6},i{n // 6},{1 + n % 5}\n" for n in range(30)))
    folder = made(tmp_path / "run", "masked", data=str(data), views=views)
    data.unlink()
    run = ask_for_page(Audit(folder), repetitions=400)
    page = report_page(run)
    assert "best guess on the device" in page and run.summary["accuracy"]["on_device"]
    gone = "the data that the run was made from is not at hand"
    assert (gone in shown(str(epsilon_section.section(run).html))) == (views == "none")
