"""`sim.api` in a notebook: documents that are still dictionaries, tables as DataFrames, and cards."""

from __future__ import annotations

import copy
import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from protocol.errors import BadInput
from protocol.schemes import SCHEMES
from protocol.schemes.factorization.masked import Masked
from sim import api
from sim.audit import questions as asking
from sim.audit.algebra import solve as algebra
from sim.audit.findings import QUESTIONS
from sim.foreign.plain_text import jsonable
from sim.notebook.notebook import RECORD, AuditDocument, Run
from sim.report import page

SMALL: dict[str, Any] = {"data": "synthetic:12x10:.5", "seed": 1, "transport": "inprocess"}
FACTORS = {"iterations": 3, "dim": 2}
QUICK = ("inventory", "algebra")
EVIL = "<script>alert(1)</script>"


class Runaway(Masked):
    """`masked` with a rate of 2^70: one step moves the factors beyond the range that may be sent."""

    options = {**Masked.options, "learning_rate": 2.0**70}  # noqa: RUF012

    def make_params(self, shape, **settings):
        return super().make_params(shape, **{"learning_rate": 2.0**70, **settings})


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("notebook") / "run"
    api.run(out=path, scheme="masked", **SMALL, **FACTORS)
    return path


@pytest.fixture
def run(folder) -> Run:
    return api.load(folder)


# ---- a run is its summary


def test_a_run_is_still_the_summary_that_scripts_rely_on(tmp_path):
    made = api.run(out=tmp_path / "run", scheme="masked", **SMALL, **FACTORS)
    written = json.loads((tmp_path / "run" / "summary.json").read_text("utf-8"))
    assert isinstance(made, dict) and made == written == made.summary and type(made.summary) is dict
    assert json.loads(json.dumps(made, allow_nan=False)) == written
    assert made.folder == tmp_path / "run" == Path(made["run"])
    assert copy.deepcopy(made) == made and copy.deepcopy(made).folder == made.folder
    again = api.load(str(tmp_path / "run"))
    assert again == made and again.folder == made.folder and "masked" in repr(again)
    resumed = api.resume(tmp_path / "run")  # it was complete
    assert isinstance(resumed, Run) and resumed == made and resumed.folder == made.folder


def test_the_other_files_of_the_folder(run):
    lines = [json.loads(line) for line in (run.folder / "iterations.jsonl").read_text("utf-8").splitlines()]
    table = run.iterations
    assert list(table.iteration) == [-1, 0, 1, 2] and list(table.bytes) == [line["bytes"] for line in lines]
    assert math.isnan(table.train_mae[0]) and table.train_mae[3] == lines[3]["train_mae"]
    assert np.array_equal(run.item_factors, np.load(run.folder / "model" / "item_factors.npy"))
    assert run.item_factors.shape == (10, 2)
    assert run.verify() == api.verify(run.folder) and run.verify(anchor="00" * 32)["verified"] is False
    assert run.replay(party="user:3") == api.replay(run.folder, party="user:3")


def test_bandwidth_is_the_rows_of_the_command_with_its_totals(run):
    document = api.bandwidth(run.folder)
    table = run.bandwidth()
    assert table.to_dict("records") == document["rows"]
    assert table.attrs["total"] == document["total"] and table.attrs["match"] is True
    assert table.wire_bytes.sum() == document["total"]["wire_bytes"] == run["bytes"]["total"]
    assert len(run.bandwidth("kind")) == len(api.bandwidth(run.folder, by="kind")["rows"]) < len(table)
    with pytest.raises(BadInput, match="--by"):
        run.bandwidth("colour")


# ---- views


def test_views_are_those_of_the_folder_record_by_record(run):
    assert list(run.views) == ["recommender", "third_party", *(f"user:{user}" for user in range(12))]
    for party in ("third_party", "user:11"):
        view = run.views[party]
        records = list(view)
        assert records == list(view) == list(api.view(run.folder, party)) and len(view) == len(records) > 10
        kinds = view.kinds()
        assert sum(kinds.values()) == len(records) and next(iter(kinds)) == "header"
        for kind, count in kinds.items():
            assert count == sum(record["kind"] == kind for record in records)


def test_some_records_and_all_of_their_values(run):
    view = run.views["third_party"]
    wanted = {"kind": "MaskedGradient", "iteration": 1, "sender": "user:4"}
    (brief,), (full,) = list(view.records(**wanted)), list(view.records(full=True, **wanted))
    assert brief["fields"]["values"]["first"] == np.ravel(full["fields"]["values"])[:4].tolist()
    table = view.frame(kind="MaskedGradient")
    assert list(table.columns) == list(RECORD) and set(table.kind) == {"MaskedGradient"}
    assert len(table) == view.kinds()["MaskedGradient"] and len(view.frame()) == len(view)
    assert table.fields[0] == next(view.records(kind="MaskedGradient"))["fields"]
    assert len(view.frame(kind="nothing")) == 0 and list(view.frame(kind="nothing").columns) == list(RECORD)


@pytest.mark.parametrize(("kept", "parties"), [("none", 0), ("servers", 2), ("sample:3", 5)])
def test_views_that_were_not_kept_are_not_there(tmp_path, kept, parties):
    views = api.run(out=tmp_path / "run", scheme="masked", views=kept, **SMALL, **FACTORS).views
    assert len(views) == parties and f"--views {kept}" in repr(views)
    missing = next(f"user:{user}" for user in range(12) if f"user:{user}" not in views)
    assert views.get(missing) is None
    with pytest.raises(KeyError, match=f"no view of {missing}.*--views {kept}"):
        views[missing]


# ---- the audit


def test_an_audit_is_its_document_and_two_tables(run):
    audit = run.audit(only=QUICK)
    plain = api.audit(run.folder, only=QUICK)
    assert isinstance(audit, dict) and isinstance(plain, AuditDocument) and run.audited is audit
    assert {**audit, "reused": 0} == {**plain, "reused": 0} and audit.verdict == plain["verdict"]
    assert plain["reused"] == list(QUICK)  # the questions are not asked twice
    assert audit.findings.id.tolist() == [each["id"] for each in audit["findings"]]
    assert audit.parties.members.tolist() == [each["members"] for each in audit["parties"]]
    assert audit.verdict == "within-claims" and not audit.findings.beyond.any()
    assert (audit.findings.severity == "weak").any()  # declared, every one
    assert "within-claims" in repr(audit)
    extra = run.audit(coalitions=["recommender+user:3"], only=["algebra"])
    assert ["recommender", "user:3"] in extra.parties.members.tolist()


def test_the_page_asks_only_what_the_audit_was_not_asked_before(run, tmp_path, monkeypatch):
    asked: list[str] = []
    pages: list[Any] = []

    def noting(question: str, ask: Any) -> Any:
        return lambda live: asked.append(question) or ask(live)

    def shown(found: Any) -> str:
        pages.append(found)
        return "a page"

    part = run.audit(only=QUICK, repetitions=1000)
    for question, ask in list(asking.ASK.items()):
        monkeypatch.setitem(asking.ASK, question, noting(question, ask))
    monkeypatch.setattr(page, "report_page", shown)
    assert run.report(tmp_path / "whole.html").read_text("utf-8") == "a page"
    assert asked == [question for question in QUESTIONS if question not in QUICK]
    assert pages[-1].live is run.live and pages[-1].summary == run
    assert all(finding in pages[-1].audit["findings"] for finding in jsonable(part)["findings"])
    run["seed"] = 2  # no longer the run of this folder
    assert run.report() == run.folder / "report.html" and pages[-1].summary["seed"] != 2
    api.report(run.folder, tmp_path / "other.html", repetitions=1000)
    assert len(pages) == 3 and len(asked) == len(QUESTIONS) - len(QUICK)
    with pytest.raises(BadInput, match="Cannot write"):
        run.report(tmp_path / "no" / "such" / "folder.html")


def test_the_live_audit_of_a_run_makes_its_library_once_and_anew_where_a_file_changed(run, monkeypatch):
    made: list[Any] = []
    real = algebra.library_of
    monkeypatch.setattr(algebra, "library_of", lambda *given: made.append(given) or real(*given))
    run.audit(only=["algebra"], fresh=True)
    run.audit(coalitions=["user:1+user:2"], only=["algebra"])
    assert len(made) == 1 and run.live.library is run.live.library
    before = run.live.case
    (run.folder / "run.toml").write_text((run.folder / "run.toml").read_text() + "\n")
    run.audit(only=["algebra"])
    assert len(made) == 2 and run.live.case is not before


# ---- missing things are named


def test_what_is_no_run_or_has_no_end_is_refused(tmp_path, folder):
    with pytest.raises(BadInput, match=r"has no run\.toml"):
        api.load(tmp_path)
    (tmp_path / "run.toml").write_text((folder / "run.toml").read_text("utf-8"), "utf-8")
    with pytest.raises(BadInput, match=r"has no summary.*keyhole resume"):
        api.load(tmp_path)


def test_an_aborted_run_can_be_looked_at(tmp_path):
    api.run(out=tmp_path / "run", scheme="test_notebook:Runaway", **SMALL, **FACTORS)
    run = api.load(tmp_path / "run")
    assert run["completed"] is False and "aborted" in repr(run)
    assert "DIVERGED" in run._repr_html_() and len(run.views["recommender"]) > 10
    with pytest.raises(BadInput, match="did not complete"):
        _ = run.item_factors
    with pytest.raises(BadInput, match="did not complete"):
        run.bandwidth()


def test_without_pandas_a_table_says_how_to_get_it_and_the_rest_works(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    audit = run.audit(only=QUICK)
    for table in (run.bandwidth, run.views["third_party"].frame, lambda: run.iterations, lambda: audit.findings):
        with pytest.raises(BadInput, match=r"pip install 'keyhole\[notebook\]'"):
            table()
    assert run.views["third_party"].kinds() and run._repr_html_() and audit._repr_html_()


def test_the_module_imports_nothing_that_is_slow():
    slow = "{'pandas', 'matplotlib', 'jinja2', 'dp_accounting', 'sim.audit.audit'}"
    script = f"import sys, sim.cli.app, sim.api; print(sorted({slow} & set(sys.modules)))"
    made = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert made.stdout.strip() == "[]"


# ---- cards


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_scheme_has_a_card_with_its_figures(tmp_path, scheme):
    flags = FACTORS if SCHEMES[scheme]().factorizes else {}
    run = api.run(out=tmp_path / "run", scheme=scheme, views="none", **SMALL, **flags)
    card = run._repr_html_()
    assert f"{scheme} on synthetic:12x10:.5" in card and f"{run['accuracy']['test_rmse']:.3f}" in card
    assert f"without protection {run['accuracy']['plain']['test_rmse']:.3f}" in card
    claimed, unit = run["privacy"]["claimed_epsilon"], run["privacy"]["unit"]
    assert (">none<" if claimed is None else f">{claimed:.3g} {unit}<") in card
    assert "not asked" in card and "within-claims" not in card


def test_the_card_of_a_run_says_its_verdict_when_there_is_one(run):
    run.audit(only=QUICK)
    assert "within-claims, the published claim: not tested (asked: inventory, algebra)" in run._repr_html_()
    run.audited = AuditDocument({**run.audited, "verdict": "beyond-claims", "unanswered": {"attacks": "why"}})
    assert "not tested (asked: inventory, algebra; not answered: attacks)" in run._repr_html_()


def test_the_card_of_an_audit_has_a_row_for_everyone(run):
    audit = run.audit(only=QUICK)
    card = audit._repr_html_()
    assert "masked leaked nothing beyond what it declares" in card and "The published claim: not tested." in card
    assert card.count("<tr") == 1 + len(audit["parties"])
    assert "masked leaked beyond what it declares" in AuditDocument({**audit, "verdict": "beyond-claims"})._repr_html_()
    assert "was not asked" in run.audit(only=["inventory"])._repr_html_()


def test_the_card_of_a_view_has_its_first_records_and_says_how_many_follow(run):
    card = run.views["third_party"]._repr_html_()
    more = len(run.views["third_party"]) - 8
    assert "What third_party saw" in card and card.count("<tr") == 9 and f"{more} more records" in card


def test_cards_escape_what_they_show(run):
    run.update(data=EVIL, notes=[EVIL])
    audit = AuditDocument({**run.audit(only=QUICK), "scheme": EVIL, "unanswered": {"attacks": EVIL}})
    for card in (run._repr_html_(), audit._repr_html_()):
        assert "<script" not in card and card.count("&lt;script&gt;") >= 1


def test_without_held_out_ratings_the_card_says_so(tmp_path):
    made = api.run(out=tmp_path / "run", scheme="plain", test_fraction=0.0, views="none", **SMALL, **FACTORS)
    assert "no ratings were held out" in made._repr_html_() and "–" not in made._repr_html_()


def test_without_noise_the_card_says_infinity(tmp_path):
    made = api.run(out=tmp_path / "run", scheme="direct", epsilon=math.inf, views="none", **SMALL, **FACTORS)
    assert "∞ rating value, per release" in made._repr_html_()


def test_a_comparison_is_its_document_a_table_and_a_card():
    found = api.compare(data=SMALL["data"], schemes=["plain", "direct"], **FACTORS)
    table = found.frame()
    assert table.name.tolist() == ["plain", "direct", "user-mean", "constant", "middle"]
    assert table.test_rmse[1] == found["rows"][1]["test_rmse"] and table.accounted_unit[1] == "rating value, whole run"
    card = found._repr_html_()
    assert card.count("<tr") == 6 and "not comparable" in card and "direct" in repr(found)
    assert json.loads(json.dumps(found, allow_nan=False)) == found
