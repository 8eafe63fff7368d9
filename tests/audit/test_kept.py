"""Kept answers: used again only by the account that made them, for the same files and the same code."""

from __future__ import annotations

import json
import os
import shutil
import stat
from pathlib import Path

import pytest
from support.audit import audited

from actors.source_root import ROOT
from protocol.party.view import Broken
from sim.audit import kept_answers
from sim.audit import questions as asking
from sim.audit.algebra import solve as algebra
from sim.audit.audit import audit
from sim.audit.canary import canary_cache, empirical
from sim.audit.canary.own_run import OWN
from sim.data.ratings import cache_folder
from sim.folder import sealed
from sim.foreign.plain_text import jsonable
from sim.views.evidence import open_case

RATINGS = [{0: 5.0, 1: 3.0, 2: 1.0}, {0: 2.0, 1: 4.0}, {0: 1.0, 2: 5.0}, {1: 2.0, 2: 4.0}]
QUICK = ("inventory", "algebra", "accounting")


@pytest.fixture(autouse=True)
def own_account(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return audited(tmp_path_factory.mktemp("kept"), RATINGS, epsilon=1.0).folder


@pytest.fixture
def run(made, tmp_path):
    shutil.copytree(made, tmp_path / "run", ignore=shutil.ignore_patterns("audit.json"))
    return tmp_path / "run"


def questions(monkeypatch):
    """Record the questions that are really asked from now on."""
    asked = []

    def noting(question, ask):
        def outer(docket):
            asked.append(question)
            return ask(docket)

        return outer

    for question, ask in list(asking.ASK.items()):
        monkeypatch.setitem(asking.ASK, question, noting(question, ask))
    return asked


def plain(document):
    return {name: value for name, value in jsonable(document).items() if name != "reused"}


def test_a_second_audit_asks_nothing_and_answers_the_same(run, monkeypatch):
    first = audit(run, only=QUICK)
    asked = questions(monkeypatch)
    second = audit(run, only=QUICK)
    assert asked == [] and second["reused"] == list(QUICK) and first["reused"] == []
    assert plain(second) == plain(first)


def test_the_file_is_the_document_and_its_owner_s_alone(run):
    document = audit(run, only=QUICK)
    assert stat.S_IMODE((run / "audit.json").stat().st_mode) == 0o600
    held = json.loads((run / "audit.json").read_text())
    assert {name: held[name] for name in ("verdict", "findings", "coalitions", "published_claim")} == {
        name: jsonable(document)[name] for name in ("verdict", "findings", "coalitions", "published_claim")
    }
    assert {"code", "files", "colluders", "repetitions"} <= set(held["kept"]["key"])


def test_only_new_askingare_asked_and_what_was_asked_stays(run, monkeypatch):
    audit(run, only=["inventory", "algebra"])
    asked = questions(monkeypatch)
    document = audit(run, only=["accounting"])
    assert asked == ["accounting"] and set(document["questions"]) == {"accounting"}
    audit(run, only=QUICK)
    assert asked == ["accounting"]


def test_only_new_coalitions_are_worked_out(run, monkeypatch):
    first = audit(run, only=["algebra", "attacks"])
    solved, real = [], algebra.solve_one

    def noting(case, library, members, **more):
        solved.append(members)
        return real(case, library, members, **more)

    monkeypatch.setattr(algebra, "solve_one", noting)
    asked = questions(monkeypatch)
    more = audit(run, ["recommender+user:0"], only=["algebra", "attacks"])
    assert asked == ["algebra", "attacks"] and solved == [("recommender", "user:0")]
    members = [row["members"] for row in more["coalitions"]]
    assert ["recommender", "user:0"] in members
    assert [row for row in more["coalitions"] if row["members"] != ["recommender", "user:0"]] == first["coalitions"]
    again = audit(run, only=["algebra", "attacks"])
    assert plain(again)["coalitions"] == plain(first)["coalitions"]
    assert plain(again)["findings"] == plain(first)["findings"]
    audit(run, ["recommender+user:0"], only=["algebra"])
    assert len(asked) == 2


def test_a_default_coalition_that_is_also_asked_for_is_not_asked_twice(run, monkeypatch):
    first = audit(run, ["recommender+third_party"], only=["algebra"])
    asked = questions(monkeypatch)
    assert plain(audit(run, only=["algebra"])) == plain(first)
    audit(run, ["recommender+third_party"], only=["algebra"])
    assert asked == []


def test_what_was_added_is_what_a_whole_audit_would_have_found(run, tmp_path):
    audit(run, only=["attacks"])
    audit(run, only=["algebra"])
    pieces = audit(run, only=["algebra", "attacks"])
    whole = audit(run, only=["algebra", "attacks"], fresh=True)
    for name in ("findings", "coalitions", "parties", "verdict"):
        assert jsonable(pieces)[name] == jsonable(whole)[name]


def test_fresh_asks_everything_again(run, monkeypatch):
    audit(run, only=QUICK)
    asked = questions(monkeypatch)
    audit(run, only=QUICK, fresh=True)
    assert asked == list(QUICK)


def test_other_settings_are_another_audit(run, monkeypatch):
    audit(run, only=["algebra"])
    asked = questions(monkeypatch)
    audit(run, only=["algebra"], colluders=1)
    assert asked == ["algebra"]


def test_a_forged_answer_is_not_believed(run):
    audit(run, only=["accounting"])
    held = json.loads((run / "audit.json").read_text())
    true = held["published_claim"]["status"]
    held["accounting"]["one_release"]["even"]["worst"] = 0.5
    (run / "audit.json").write_text(json.dumps(held))
    assert kept_answers.kept_document(run) is None
    assert audit(run, only=["accounting"])["published_claim"]["status"] == true == "refuted"


def test_another_account_s_answer_is_not_believed(run, tmp_path, monkeypatch):
    audit(run, only=["accounting"])
    assert kept_answers.kept_document(run) is not None
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "other"))
    assert kept_answers.kept_document(run) is None
    asked = questions(monkeypatch)
    audit(run, only=["accounting"])
    assert asked == ["accounting"]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"code": 3}', '{"code": "é"}', "[" * 100_000, '{"code": "\\ud800"}'])
def test_a_damaged_file_is_as_good_as_none(run, text):
    (run / "audit.json").write_text(text)
    assert audit(run, only=["inventory"])["reused"] == []


def test_a_link_out_of_the_folder_is_not_followed(run, tmp_path):
    audit(run, only=["inventory"])
    (run / "audit.json").rename(tmp_path / "elsewhere.json")
    (run / "audit.json").symlink_to(tmp_path / "elsewhere.json")
    assert kept_answers.kept_document(run) is None


def test_a_view_whose_name_is_no_text_changes_the_key(run):
    """A folder from elsewhere may hold any name; the audit says what is wrong with it, and does not fail here."""
    before = kept_answers.key_of(open_case(run), 3, 100, 12, 0)
    (run / "views" / os.fsdecode(b"user-\xff.view")).write_bytes(b"")
    assert kept_answers.key_of(open_case(run), 3, 100, 12, 0)["files"] != before["files"]


def test_a_changed_view_is_read_again_wherever_it_was_changed(run):
    audit(run, only=["inventory", "algebra"])
    view = next((run / "views").rglob("recommender.view"))
    data = bytearray(view.read_bytes())
    data[len(data) // 2] ^= 1
    view.write_bytes(data)
    with pytest.raises(Broken):
        audit(run, only=["inventory", "algebra"])


def test_other_code_asks_again(run, monkeypatch):
    audit(run, only=["inventory"])
    monkeypatch.setattr(sealed, "code_version", lambda: "another")
    assert kept_answers.kept_document(run) is None
    assert audit(run, only=["inventory"])["reused"] == []


@pytest.mark.parametrize("changed", ["protocol/party/role.py", "actors/journal.py", "sim/audit/audit.py"])
def test_the_version_of_the_code_follows_every_package(tmp_path, monkeypatch, changed):
    ignore = shutil.ignore_patterns("__pycache__")
    for package in ("protocol", "actors", "sim"):
        shutil.copytree(Path(ROOT) / package, tmp_path / package, ignore=ignore)
    monkeypatch.setattr(sealed, "ROOT", str(tmp_path))
    before = sealed.code_version.__wrapped__()
    assert before == sealed.code_version.__wrapped__()
    with open(tmp_path / changed, "a") as file:
        file.write("# a change\n")
    assert sealed.code_version.__wrapped__() != before


def test_the_kept_document_is_the_one_that_was_printed(run):
    document = audit(run, only=QUICK)
    held = kept_answers.kept_document(run)
    assert plain(held) == {name: value for name, value in plain(document).items() if name != "part"}


def test_a_folder_that_cannot_be_written_is_audited_all_the_same(run, monkeypatch):
    def refuse(*given):
        raise PermissionError(13, "no")

    monkeypatch.setattr(sealed, "replace_private", refuse)
    assert audit(run, only=["inventory"])["verdict"] == "within-claims"
    assert not (run / "audit.json").exists()


def test_a_key_that_others_can_read_is_no_secret(run):
    audit(run, only=["inventory"])
    (cache_folder() / sealed.KEY).chmod(0o644)
    assert kept_answers.kept_document(run) is None


# --- the canary ------------------------------------------------------------------------------------------------------


def canary(run, monkeypatch, **settings):
    """Ask for the canary: (the number of times that it was played, the answer)."""
    played, real = [], empirical.measure
    monkeypatch.setattr(empirical, "measure", lambda *given, **more: played.append(1) or real(*given, **more))
    document = audit(run, only=["empirical"], repetitions=1000, **settings)["empirical"]
    monkeypatch.setattr(empirical, "measure", real)
    return len(played), document


def test_the_canary_of_another_run_of_the_same_scheme_is_played_once(run, tmp_path, monkeypatch):
    played, first = canary(run, monkeypatch)
    (tmp_path / "other").mkdir()
    other = audited(tmp_path / "other", RATINGS[:3], epsilon=1.0, seed=2).folder
    again, second = canary(other, monkeypatch)
    assert (played, again) == (1, 0) and (first["cached"], second["cached"]) == (False, True)
    assert second["cache"] == first["cache"] and second["cache"].startswith(str(cache_folder()))
    small, same = ([row for row in each["rows"] if row["arm"] != OWN] for each in (first, second))
    assert jsonable(small) == jsonable(same) and len(small) == len(first["rows"]) - 2 > 0


@pytest.mark.parametrize(
    ("scheme", "flags"), [("masked", {"epsilon": 2.0}), ("direct", {"epsilon": 1.0}), ("masked", {"wire": "paper"})]
)
def test_another_scheme_or_epsilon_or_option_has_its_own(run, tmp_path, scheme, flags):
    (tmp_path / "other").mkdir()
    other = audited(tmp_path / "other", RATINGS, scheme, **{"epsilon": 1.0, **flags})
    assert canary_cache.key_of(other, 1000) != canary_cache.key_of(open_case(run), 1000)


def test_more_repetitions_are_another_canary(run):
    assert canary_cache.key_of(open_case(run), 1000) != canary_cache.key_of(open_case(run), 2000)


def test_a_scheme_of_ones_own_is_never_cached(tmp_path):
    case = audited(tmp_path, RATINGS, "support.schemes.broken:SendsItsMask")
    assert canary_cache.key_of(case, 1000) is None


def test_a_corrupted_cache_is_ignored_and_fresh_plays_again(run, monkeypatch):
    canary(run, monkeypatch)
    (file,) = (cache_folder() / "canary").iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    file.write_text(file.read_text().replace("lower_bound", "lower_bounds"))
    (run / "audit.json").unlink()
    assert canary(run, monkeypatch)[0] == 1
    assert canary(run, monkeypatch, fresh=True)[0] == 1
    (run / "audit.json").unlink()
    assert canary(run, monkeypatch)[0] == 0
