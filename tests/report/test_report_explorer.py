"""The coalition explorer: its answers are the audit's own, more parties never know less, and the page shows them."""

from __future__ import annotations

import copy
import dataclasses
import json
import re

import pytest
from support.audit import audited, made

from protocol.schemes import SCHEMES
from protocol.schemes.base import LEVELS
from sim.api import audit
from sim.audit.audit import Audit
from sim.audit.victims import about_user
from sim.folder.folder import read_summary
from sim.folder.naming import Names, read_names
from sim.foreign.plain_text import jsonable
from sim.report.explorer import about_user as explorer_about
from sim.report.explorer import explorer_section, party_sets
from sim.report.explorer.about_user import known_of_each
from sim.report.explorer.party_sets import explore
from sim.report.explorer.set_attacks import LATE, add_attacks
from sim.report.reported_run import ReportedRun

ASKED = ("inventory", "algebra", "attacks")


def reported(folder, scheme, **flags):
    live = Audit(made(folder, scheme, **flags).folder)
    return ReportedRun(read_summary(folder), live, jsonable(live.ask(only=ASKED)))


@pytest.fixture(scope="module")
def dynamic(tmp_path_factory):
    return reported(tmp_path_factory.mktemp("explored") / "dynamic", "dynamic", iterations=4)


@pytest.fixture(scope="module")
def explored(dynamic):
    """Explore all sets, and attack the audit's own sets and those of one or two parties."""
    found = explore(dynamic.live, dynamic.audit, seconds=600.0)
    own = {tuple(row["members"]) for row in dynamic.audit["coalitions"]}
    some = {members: one for members, one in found.sets.items() if members in own or len(members) < 3}
    add_attacks(dynamic.live, dynamic.audit, some, seconds=600.0)
    return found


@pytest.fixture(scope="module")
def html(dynamic, explored):
    return str(explorer_section._shown(dynamic, explorer_section._words(dynamic, explored)).html)


def level(row):
    return LEVELS.index(row["determines"])


def cells(html, members):
    """Return the text of the table row of `members`, without tags."""
    (row,) = re.findall(rf'<tr data-set="{re.escape(members)}".*?</tr>', html, re.S)
    return " ".join(re.sub(r"<[^>]*>", " ", row).split())


def test_all_sets_of_the_servers_and_four_users_are_answered(explored):
    assert [choice.party for choice in explored.choices][:2] == ["recommender", "third_party"]
    assert len(explored.choices) == 6
    assert len(explored.sets) == 2**6 - 1


def test_a_computed_answer_is_what_the_audit_says_when_it_is_asked(dynamic, explored):
    own = {tuple(row["members"]) for row in dynamic.audit["coalitions"]}
    computed = next(members for members in explored.sets if len(members) == 4 and members not in own)
    document = jsonable(audit(dynamic.folder, coalitions=["+".join(computed)], only=("algebra",)))
    (row,) = [row for row in document["coalitions"] if tuple(row["members"]) == computed]
    (party,) = [row for row in document["parties"] if tuple(row["members"]) == computed]
    found = explored.sets[computed].row
    assert {key: found[key] for key in row} == row
    assert {key: found[key] for key in ("works_out", "permitted", "claimed", "declared", "of")} == {
        key: party[key] for key in ("works_out", "permitted", "claimed", "declared", "of")
    }


def test_the_audits_own_coalitions_get_its_answers_also_when_they_are_solved_again(dynamic, explored):
    """The document's answers are used as they are; with an empty document, the algebra gives the same answers."""
    forgetful = copy.deepcopy(dynamic.audit) | {"coalitions": [], "parties": []}
    again = explore(dynamic.live, forgetful, seconds=600.0)
    common = [row for row in dynamic.audit["coalitions"] if set(row["members"]) & set(again_users(again))]
    common = [row for row in common if tuple(row["members"]) in again.sets and len(row["members"]) > 1]
    assert len(common) >= 3  # each server with the users, the users
    for row in common:
        members = tuple(row["members"])
        assert {key: again.sets[members].row[key] for key in row} == row
        assert {key: explored.sets[members].row[key] for key in row} == row


def again_users(explored):
    return [choice.party for choice in explored.choices if choice.party.startswith("user:")]


def test_attacks_by_the_audits_coalitions_are_among_its_findings_word_for_word(dynamic, explored):
    found = dynamic.audit["findings"]
    compared = 0
    for row in dynamic.audit["coalitions"]:
        one = explored.sets.get(tuple(row["members"]))
        for finding in (one.attacks or []) if one else []:
            told = jsonable({**dataclasses.asdict(finding), "coalition": list(finding.coalition)})
            assert any({name: row[name] for name in told} == told for row in found)
            compared += 1
    assert compared >= 10


def test_a_superset_never_determines_less(explored):
    levels = {members: level(one.row) for members, one in explored.sets.items()}
    pairs = [(a, b) for a in levels for b in levels if set(a) < set(b)]
    assert len(pairs) == 3**6 - 2 * 2**6 + 1  # each party in both sets, the larger or neither; less empty or equal sets
    assert all(levels[part] <= levels[whole] for part, whole in pairs)
    assert len(set(levels.values())) > 1


def test_who_joins_is_read_no_more_and_that_is_said(tmp_path):
    """Each of two users isolates the other; together they have no other user to read."""
    case = audited(tmp_path, [{0: 4.0, 1: 3.0}, {0: 2.0, 1: 5.0}])
    live = Audit(case.folder)
    found = explore(live, jsonable(live.ask(only=("algebra",))))
    one, both = found.sets["user:0",], found.sets["user:0", "user:1"]
    assert (one.row["determines"], both.row["determines"]) == ("noisy-individual", "nothing")
    assert explorer_section.together(both.members, found.sets).endswith("but whom it reads is a member here.")


def test_the_servers_together_learn_more_than_each_and_it_is_said(explored, html):
    both = ("recommender", "third_party")
    assert level(explored.sets[both].row) > max(level(explored.sets[(name,)].row) for name in both)
    assert explorer_section.together(both, explored.sets).startswith("Yes, a higher level: recommender alone works out")
    assert "that these do not collude" in cells(html, "recommender+third_party")


def test_a_row_has_the_level_the_claim_and_each_attack_beside_chance(explored, html):
    one = explored.sets[("recommender", "third_party")]
    text = cells(html, "recommender+third_party")
    assert "noisy-individual: noisy gradients of" in text
    assert len(one.attacks) >= 3
    for finding in one.attacks:
        title = finding.title.replace("'", "&#39;").replace(">", "&gt;")
        assert title in text
        assert finding.confidence in text
    assert "chance: accuracy 0." in text
    assert "nothing at most, ε = 8 per release no more than that" in cells(html, "third_party")


def test_the_recommender_is_ticked_first_and_there_is_a_box_for_every_party(explored, html):
    boxes = re.findall(r'<input type="checkbox" value="([^"]*)"( checked)?>', html)
    assert boxes == [(choice.party, " checked" if choice.party == "recommender" else "") for choice in explored.choices]
    assert 'aria-live="polite"' in html
    assert f"{explored.choices[2].hint}" in html
    assert re.fullmatch(r"rated \d+ items, contributed in \d of 4 iterations", explored.choices[2].hint)


def test_sets_that_were_not_attacked_say_so(dynamic, explored):
    sets = {members: party_sets.Answered(one.row) for members, one in explored.sets.items()}
    add_attacks(dynamic.live, dynamic.audit, sets, seconds=-1.0)
    user = again_users(explored)[0]
    assert sets["recommender", user].attacks is None and sets["recommender", user].unattacked == LATE
    assert sets["recommender",].attacks  # the audit's own
    assert "use no user's view" in sets["recommender", "third_party", again_users(explored)[0]].unattacked


def test_a_large_run_has_the_audits_own_sets_and_every_other_knows_at_least_what_its_parts_know(dynamic, monkeypatch):
    monkeypatch.setattr(party_sets, "MOST_TURNS", 0)
    found = explore(dynamic.live, dynamic.audit)
    asked = {tuple(row["members"]) for row in dynamic.audit["coalitions"]}
    assert len(found.sets) == 2 ** len(found.choices) - 1  # every set that can be ticked
    computed = {members for members, one in found.sets.items() if not one.least}
    assert {("recommender",), ("third_party",), ("recommender", "third_party")} < computed <= asked
    user = again_users(found)[0]
    (part,) = found.sets[user,].least
    alone = [row for row in dynamic.audit["coalitions"] if len(row["members"]) == 1]
    alone = [row for row in alone if row["members"][0].startswith("user:")]
    assert part in {f"a user such as {row['members'][0]}" for row in alone}
    assert level(found.sets[user,].row) == min(map(level, alone))  # every user knows at least this
    one = found.sets["recommender", "third_party", user]
    assert one.least == ("recommender", "third_party") and one.members == ("recommender", "third_party", user)
    assert one.row["determines"] == found.sets["recommender", "third_party"].row["determines"]
    assert explorer_section.together(one.members, found.sets).endswith("at least what recommender + third_party knows.")
    for part, whole in ((a, b) for a in computed for b in found.sets if set(a) <= set(b) and found.sets[b].least):
        assert level(found.sets[part].row) <= level(found.sets[whole].row)
    add_attacks(dynamic.live, dynamic.audit, found.sets)
    html = str(explorer_section._shown(dynamic, explorer_section._words(dynamic, found)).html)
    assert "At least what recommender + third_party knows: noisy-individual" in cells(html, "+".join(one.members))
    assert "stands what the most knowing part of it knows" in found.notes[0]


def test_attacks_that_the_audit_made_are_not_made_again(dynamic, monkeypatch):
    monkeypatch.setattr(party_sets, "MOST_TURNS", 0)
    found = explore(dynamic.live, dynamic.audit)

    def refuse(*given):
        raise AssertionError("it was attacked again")

    monkeypatch.setattr("sim.audit.attacks.attack.attack_by", refuse)
    add_attacks(dynamic.live, dynamic.audit, found.sets)
    made_ = [row for row in dynamic.audit["findings"] if row["question"] == "attacks"]
    mine = [finding.title for one in found.sets.values() for finding in one.attacks or ()]
    assert mine and set(mine) <= {row["title"] for row in made_}


# --- what is known of one user ---------------------------------------------------------------------------------------


def test_what_is_known_of_each_user_is_what_the_audit_answers(dynamic):
    found = known_of_each(dynamic.folder, dynamic.audit, dynamic.params.n_users)
    data = json.loads(str(found.data))
    assert [user[0] for user in data["users"]] == [f"user:{n}" for n in range(dynamic.params.n_users)]
    for party, _, places in data["users"]:
        rows = about_user(dynamic.audit, party, read_names(dynamic.folder))["rows"]
        assert [data["told"][place][1] for place in places] == [row["words"] for row in rows]
        if party == found.first:
            assert [told[1] for _, told in found.rows] == [row["words"] for row in rows]
    assert found.command.endswith("--about ") and found.left_out == 0
    assert any(told[0] == "weak" for _, told in found.rows)  # the rows are about the user about whom most is known


def test_names_of_users_cannot_end_the_element_that_holds_them(dynamic, tmp_path, monkeypatch):
    hostile = Names([f"</script><b>{n}" for n in range(dynamic.params.n_users)])
    monkeypatch.setattr(explorer_about, "read_names", lambda folder: hostile)
    data = str(known_of_each(dynamic.folder, dynamic.audit, dynamic.params.n_users).data)
    assert "<" not in data and json.loads(data)["users"][3][1] == "</script><b>3"


def test_of_many_users_the_last_cannot_be_chosen_and_that_is_said(dynamic, explored, monkeypatch):
    monkeypatch.setattr(explorer_about, "MOST_USERS", 2)
    html = str(explorer_section._shown(dynamic, explorer_section._words(dynamic, explored)).html)
    assert f"The last {dynamic.params.n_users - 2} users cannot be chosen here" in html


def test_a_short_time_means_fewer_users_and_says_so(dynamic):
    found = explore(dynamic.live, dynamic.audit, seconds=0.0)
    assert len(again_users(found)) == 1
    assert len(found.sets) == 2**3 - 1
    assert any("another user would double them" in note for note in found.notes)


def test_where_the_algebra_was_not_answered_the_reason_stands_instead(dynamic):
    document = copy.deepcopy(dynamic.audit) | {
        "coalitions": None,
        "parties": [],
        "unanswered": {"algebra": "A reason."},
    }
    html = explorer_section.section(dataclasses.replace(dynamic, audit=document)).html
    assert "A reason." in html and "<input" not in html
    html = explorer_section.section(dataclasses.replace(dynamic, audit=document | {"unanswered": {}})).html
    assert "--views full" in html and "<input" not in html


@pytest.mark.parametrize("views", ["servers", "none"])
def test_a_run_without_the_users_views_has_a_sentence(tmp_path, views):
    live = Audit(made(tmp_path / "run", "masked", iterations=2, views=views).folder)
    document = {"coalitions": None, "parties": [], "unanswered": {}, "nothing_to_ask": {}, "questions": {}}
    found = explorer_section.section(ReportedRun(read_summary(tmp_path / "run"), live, document))
    assert "it needs the view of every party, --views full" in found.html


@pytest.mark.parametrize("scheme", sorted(set(SCHEMES) - {"dynamic", "covariance-masked"}))
def test_every_scheme_can_be_explored(tmp_path, monkeypatch, scheme):
    monkeypatch.setattr(party_sets, "MOST_USERS", 1)
    flags = {"iterations": 2} if SCHEMES[scheme].factorizes else {}
    live = Audit(made(tmp_path / "run", scheme, **flags).folder)
    document = jsonable(live.ask(only=("inventory", "algebra")))
    run = ReportedRun(read_summary(tmp_path / "run"), live, document)
    html = str(explorer_section.section(run).html)
    (row,) = [row for row in document["coalitions"] if row["members"] == ["recommender"]]
    assert row["detail"].replace("'", "&#39;") in cells(html, "recommender")
    assert "The audit was not asked for attacks." in cells(html, "recommender")
