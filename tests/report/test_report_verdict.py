"""The page's verdict, findings and configuration say what the audit, the summary and run.toml say, and no more."""

from __future__ import annotations

import dataclasses
import json
import math
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from markupsafe import escape
from typer.testing import CliRunner

from protocol.party.role import user_index
from protocol.schemes import SCHEMES, find_scheme
from sim.api import run
from sim.audit import truth
from sim.audit.accounting.epsilon_cells import EpsilonEntry
from sim.audit.audit import Audit
from sim.cli.flags import takes_configuration
from sim.console.console import size
from sim.data.ratings import load
from sim.folder.folder import read_summary
from sim.foreign.plain_text import jsonable
from sim.plan.config import RunConfig, flags_of, read_config, resolve
from sim.report.findings import findings_section
from sim.report.findings.evidence_tables import behind
from sim.report.findings.evidence_values import text, value_html
from sim.report.parties import parties_section
from sim.report.repeat import repeat_section
from sim.report.reported_run import ReportedRun, ask_for_page
from sim.report.verdict import figure_groups, verdict_section
from sim.report.verdict.three_epsilons import accounted, claimed, measured
from sim.tables import run_figures
from sim.tables.party_rows import in_short, name_of

DATA = "synthetic:12x10:.5"
QUICK = ("inventory", "algebra", "accounting")


def reported(folder: Path, only: tuple[str, ...] = QUICK) -> ReportedRun:
    summary = read_summary(folder)
    assert summary is not None
    live = Audit(folder)
    return ReportedRun(summary, live, jsonable(live.ask(only=only)))


def made(folder: Path, scheme: str, **flags: Any) -> Path:
    steps = {"iterations": 3, "dim": 2} if find_scheme(scheme).factorizes else {}
    run(out=folder, scheme=scheme, **{"data": DATA, "seed": 1, "transport": "inprocess", **steps, **flags})
    return folder


@pytest.fixture(scope="module")
def masked(tmp_path_factory: pytest.TempPathFactory) -> ReportedRun:
    return reported(made(tmp_path_factory.mktemp("masked") / "run", "masked"))


@pytest.fixture(scope="module")
def collected(tmp_path_factory: pytest.TempPathFactory) -> ReportedRun:
    """Make a run of the scheme whose canary is quick, and ask every question of the audit about it."""
    folder = made(tmp_path_factory.mktemp("collected") / "run", "laplace-ratings")
    return ask_for_page(Audit(folder), repetitions=400)


def top(run: ReportedRun) -> str:
    """Render the sections on what each party learns, and on how the run went."""
    return "".join(str(part.section(run).html) for part in (verdict_section, parties_section, figure_groups))


def shown(html: str) -> str:
    """Return the text of `html`: without tags, on one line."""
    return " ".join(re.sub(r"<[^>]*>", " ", html).split())


def words(given: str) -> str:
    return " ".join(str(escape(given)).split())


# --- the verdict -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", list(SCHEMES))
def test_every_party_of_the_audit_is_in_the_table_with_its_words(tmp_path, scheme):
    run = reported(made(tmp_path / "run", scheme))
    html = top(run)
    body = html[html.index("<tbody>") :]
    rows = [shown(row) for row in re.findall(r"<tr>.*?</tr>", body[: body.index("</table>")], re.S)]
    parties_section = run.audit["parties"]
    assert len(parties_section) >= 3 and len(rows) in (len(parties_section), len(parties_section) + 1)
    for row, party in zip(rows, parties_section, strict=False):
        assert row.startswith(words(name_of(party)))
        assert words(in_short(party)) in row
        if len(party["members"]) == 1:
            assert all(words(seen) in row for seen in party["saw"])
        else:
            assert "if they collude" in row and "assumes no collusion" in row
    if len(rows) > len(parties_section):
        assert rows[-1].startswith("a reader of the releases alone")
    everything = f"As declared. {scheme} leaked nothing beyond what it declares"
    some = f"Not shown. Not everything was shown: nothing beyond what {scheme} declares was found"
    assert (some if run.audit["not_shown"] else everything) in shown(html)
    exposed = SCHEMES[scheme].permits["recommender"] == "exact-individual"
    assert bool(re.search("which lets the recommender .*see exact numbers of single users", shown(html))) == exposed
    refuted = run.audit["published_claim"]["status"] == "refuted"
    told = verdict_section.sentence(run)
    assert told.style == ("weak" if exposed or refuted or told.declared or run.audit["not_shown"] else "good")
    assert verdict_section.published(run).style == ("weak" if refuted else "")
    assert words(SCHEMES[scheme].claims) in shown(html)


def test_a_run_beyond_its_claims_says_so_in_the_first_words(tmp_path):
    run = reported(made(tmp_path / "run", "direct", no_rho=True))
    assert run.audit["verdict"] == "beyond-claims"
    html = top(run)
    assert 'class="answer bad">Beyond what it declares' in html and "As declared" not in html
    assert '<strong class="bad">Beyond.</strong> direct leaked beyond what it declares.' in html
    assert "Found beyond it: difference-attack" in shown(html)
    assert words(run.audit["findings"][0]["title"]) in shown(html)
    assert "beyond its claim; claimed: noisy-individual at most" in shown(html)


def test_declared_weaknesses_are_named_and_lead_to_their_findings(masked):
    weak = {finding["id"] for finding in masked.audit["findings"] if finding["severity"] == "weak"}
    told = verdict_section.sentence(masked)
    assert weak and set(told.declared) == weak and told.beyond == []
    top, below = str(verdict_section.section(masked).html), str(findings_section.section(masked).html)
    for name in weak:
        assert f'href="#finding-{name}"' in top and f'id="finding-{name}"' in below


def test_an_aborted_run_says_so_and_is_not_called_good(tmp_path):
    made(tmp_path / "run", "masked", iterations=20, options={"learning_rate": 1e6})
    run = reported(tmp_path / "run")
    assert not run.summary["completed"]
    html = top(run)
    assert "until it was aborted" in shown(html) and words(run.summary["abort"]["sentence"]) in shown(html)
    assert verdict_section.sentence(run).style == "weak"
    assert "not measured" in shown(html) and "there is no result to measure" in shown(html)
    assert "keyhole resume" in str(repeat_section.section(run).html)
    assert "none: the run has no result" in str(repeat_section.section(run).html)


def test_without_views_there_is_no_verdict_and_every_gap_is_said_in_words(tmp_path):
    run = ask_for_page(Audit(made(tmp_path / "run", "masked", views="none")), repetitions=400)
    html = shown(top(run))
    assert run.audit["verdict"] is None and "Not asked. There is no verdict." in html
    assert "No verdict" in html and "Who can work out what was not asked." in html
    assert "has no view of recommender (14 are missing)" in html and "run with --views full" in html
    assert "not known: no view was kept" in html and "not asked" in html
    assert "nothing could be asked" in shown(str(findings_section.section(run).html))
    assert "keyhole audit" not in str(repeat_section.section(run).html)


@pytest.mark.parametrize("views", ["servers", "sample:3"])
def test_with_some_views_the_other_questions_are_asked(tmp_path, views):
    run = ask_for_page(Audit(made(tmp_path / "run", "laplace-ratings", views=views)), repetitions=400)
    told = verdict_section.sentence(run)
    assert told.headline.endswith("by the questions that could be asked") and told.style == "weak"
    assert any(note.startswith("Not answered: algebra, attacks, pairs, statistics.") for note in told.notes)
    rows = {row.who: row for row in parties_section.table_rows(run)}
    recommender = rows["recommender"]
    assert recommender.works_out == "not asked" and recommender.saw != "not known: no view was kept"
    assert recommender.measured.figure.startswith("≥ ") and recommender.accounted.figure == "8 per entry"


# --- the three ε -----------------------------------------------------------------------------------------------------


def test_accounted_figures_are_those_of_the_audit(masked):
    accounting, case = masked.audit["accounting"], masked.case
    row = accounting["all_releases"]["even"]
    cell = accounted(masked.audit, case, ["recommender"])
    assert cell.figure == f"{row['median']:.3g} median item, {row['worst']:.3g} worst"
    assert accounted(masked.audit, case, ()).figure == f"{accounting['composed']['tight']:.3g}"
    assert accounted(masked.audit, case, ["third_party"]) == EpsilonEntry(why="no release reaches it")
    both = accounted(masked.audit, case, ["recommender", "third_party"])
    assert both == EpsilonEntry(f"≥ {cell.figure}", "of the recommender alone")  # together they know no less
    three = accounted(masked.audit, case, ["recommender", "user:0", "user:1", "user:2"])
    assert f"{accounting['colluders']['3']['all_releases']['worst']:.3g}" in three.figure
    assert claimed(case, ["recommender"]).figure == "ε\u00a0=\u00a08"
    assert claimed(case, ["recommender", "third_party"]).why == "assumes no collusion"


def test_the_canary_that_exceeds_most_is_shown_with_its_own_epsilon():
    def row(coalition, bound, claim, epsilon):
        given = {"coalition": coalition, "lower_bound": bound, "claimed": claim, "epsilon": epsilon}
        return {**given, "lower_bound_mu": None, "exceeds": claim is not None and bound > claim}

    rows = [row(["recommender"], 5.0, 8.0, 8.0), row(["recommender"], 2.5, 1.0, 1.0), row(["user"], 0.5, 1.0, 1.0)]
    finding = {"id": "missing-noise", "coalition": ["recommender"], "measured": 2.5, "beyond": True}
    document = {"empirical": {"rows": rows, "delta": 1e-5}, "findings": [finding]}
    beyond = measured(document, ["recommender"], "aggregate")
    assert beyond == EpsilonEntry("≥ 2.50", "canary at ε\u00a0=\u00a01: above the claim", "bad")
    finding["beyond"] = False
    assert measured(document, ["recommender"], "aggregate").style == "weak"
    assert measured(document, ["user:3"], "aggregate") == EpsilonEntry("≥ 0.50", "canary at ε\u00a0=\u00a01", "")
    assert measured(document, ["user:3"], "nothing").figure == "–"  # a canary's user took part
    assert measured({"empirical": None}, ["user:3"], None).why == "not asked"


def test_a_measured_bound_of_a_real_canary_is_in_the_table(collected):
    rows = [row for row in collected.audit["empirical"]["rows"] if row["coalition"] == ["recommender"]]
    cell = measured(collected.audit, ["recommender"], "noisy-individual")
    assert cell.figure in {f"≥ {row['lower_bound']:.2f}" for row in rows}
    html = shown(top(collected))
    assert cell.figure in html and "99.5 % confidence" in html
    assert f"{collected.audit['empirical']['repetitions_in_all']:,} repetitions" in html


def test_no_noise_is_no_claim(tmp_path):
    run = reported(made(tmp_path / "run", "masked", epsilon=math.inf))
    rows = {row.who: row for row in parties_section.table_rows(run)}
    assert rows["recommender"].claimed == EpsilonEntry(why="no noise was asked for: ε = ∞")
    assert rows["recommender"].accounted == EpsilonEntry(why="nothing is claimed")
    told = verdict_section.sentence(run)
    assert told.style != "good" and "ε = ∞ bounds nothing" in told.headline


# --- accuracy, bytes, the run ----------------------------------------------------------------------------------------


def test_the_floors_are_those_of_the_run_s_own_split(masked):
    ratings = load(DATA)
    own = {user_index(name): brought for name, brought in truth.all_ratings(masked.case).items()}
    errors: dict[str, list[float]] = {"user-mean": [], "constant": []}
    for user, item, value in zip(ratings.users, ratings.items, ratings.values, strict=True):
        if item not in own[user].items:  # held out: in the data, and not in the user's view
            errors["user-mean"].append(value - float(np.mean(own[user].ratings)))
            errors["constant"].append(value - 3.5)
    found = {floor["name"]: floor["test_rmse"] for floor in masked.summary["accuracy"]["on_device"]}
    assert len(errors["constant"]) == masked.summary["ratings"]["test"] > 0
    for name, missed in errors.items():
        assert found[name] == pytest.approx(math.sqrt(np.mean(np.square(missed))))
    card = run_figures.accuracy(masked.summary, masked.case.card)
    mine, floor = masked.summary["accuracy"]["test_rmse"], found["user-mean"]
    better = f"better by {floor - mine:.3f}" if mine < floor else f"worse by {mine - floor:.3f}"
    assert ["The user's own mean *", f"{floor:.3f}", better] in card.rows


def test_which_floors_a_run_beats_is_said():
    below = [{"title": "one", "test_rmse": 0.5}, {"title": "two", "test_rmse": 1.5}]
    assert run_figures._beaten("x", 1.0, below) == "x beats “two”, and does not beat “one”."
    assert run_figures._beaten("x", 0.4, below).startswith("x beats every")
    assert run_figures._beaten("x", 1.5, below).startswith("x beats none")


def test_bytes_are_the_summary_s_and_the_paper_s_are_at_its_own_size(masked):
    own, paper = figure_groups.traffic(masked)
    edges = masked.summary["bytes"]["per_iteration"]
    assert [row[0] for row in own.rows[: len(edges)]] == [edge.replace("->", " → ") for edge in edges]
    user = masked.summary["bytes"]["per_user_iteration"]
    assert own.rows[len(edges) :] == [
        [f"one user, {way}", f"{size(user[f'{way}_mean'])} (max {size(user[f'{way}_max'])})"] for way in ("down", "up")
    ]
    assert user["down_mean"] != user["up_mean"]
    assert "12 users, 10 items, dim 2" in own.caption
    assert paper is not None and "1,000 users, 10,000 items" in paper.caption
    assert [row[1] for row in paper.rows] == ["≤ 12.00 kB", "≤ 5.00 kB", "≤ 3.00 MB"]


# --- findings --------------------------------------------------------------------------------------------------------


def test_every_finding_is_there_with_its_evidence(collected):
    html = shown(str(findings_section.section(collected).html))
    assert len(collected.audit["findings"]) >= 3
    for finding in collected.audit["findings"]:
        for part in ("title", "confidence", "evidence"):
            assert words(finding[part]) in html
    assert "{" not in html  # no raw JSON


def test_a_finding_has_the_colour_of_its_weight():
    finding = {"id": "a", "title": "", "coalition": [], "confidence": "", "evidence": ""}
    finding |= dict.fromkeys(("claimed", "measured", "chance"))
    weights = [("break", True), ("weak", True), ("weak", False), ("info", False)]
    told = [findings_section.shown(finding | {"severity": severity, "beyond": over}) for severity, over in weights]
    assert [(one.word, one.style) for one in told] == [
        ("break", "bad"), ("weak", "bad"), ("declared", "weak"), ("info", "good"),
    ]  # fmt: skip


def test_the_gravest_of_an_id_is_open_and_harmless_checks_are_folded(masked):
    html = str(findings_section.section(masked).html)
    groups = findings_section.groups(
        [
            one
            for finding in masked.audit["findings"]
            if (one := findings_section.shown(finding)).word != "info"
        ]
    )
    assert html.count("<details open>") == len(groups) > 2
    assert html.count('<span class="weak">declared</span>') >= len(groups)
    harmless = sum(finding["severity"] == "info" for finding in masked.audit["findings"])
    assert harmless and f"{harmless} check" in html


def test_values_are_read_not_decoded():
    nested = {"sums": 1088, "even": {"median": 16.867, "p99": 171.2}, "random": {"median": "inf", "p99": None}}
    html = shown(str(value_html(nested)))
    assert html == "sums 1,088 median 99 % even 16.87 171.2 random ∞ –"
    assert text([0.25, 0.75]) == "0.25 to 0.75" and text(["a", "b"]) == "a, b" and text(True) == "yes"
    assert shown(str(value_html(None))) == "none stated"
    assert str(value_html("<b>")) == "&lt;b&gt;" and "<b>" not in str(value_html({"<b>": "<b>"}))


def test_the_worst_pair_of_each_coalition_stands_beside_what_is_accounted(masked):
    pairs = jsonable(masked.live.ask(only=("pairs",))["pairs"])
    empty = dict.fromkeys(("empirical", "accounting", "statistics", "inventory"))
    (part,) = behind({**empty, "pairs": pairs})
    html = shown(str(part.html))
    assert len(pairs["epsilon"]) >= 3
    for row in pairs["epsilon"]:
        change = f"user:{row['user']} says {row['other']:g} of item {row['item']} instead of {row['rating']:g}"
        known, accounted = (text(row.get(name)) for name in ("epsilon_given_constant_noise", "accounted"))
        assert f"{' + '.join(row['coalition'])} {change} 1e-05 {text(row['epsilon'])} {known} {accounted}" in html
    assert pairs["epsilon"][0]["accounted"] > 0
    assert not behind({**empty, "pairs": None}) and not behind({**empty, "pairs": {**pairs, "epsilon": []}})


def test_statistics_name_their_number_and_their_smallest_p():
    def field(p, corrected):
        names = {"party": "third_party", "kind": "MaskedGradient", "field": "values", "messages": 3}
        return {**names, "values": 90, "smallest_p": p, "smallest_p_corrected": corrected, "rejected": []}

    uniformity = {"level": 0.001, "correction": "Holm", "tests": 541, "notes": []}
    uniformity["fields"] = [field(0.01, 0.4), field(None, None)]
    compared = {"level": 0.001, "comparisons": [], "notes": []}
    empty = dict.fromkeys(("empirical", "accounting", "inventory"))
    (part,) = behind({**empty, "statistics": {"uniformity": uniformity, "ideal_against_real": compared}})
    assert "541 tests" in part.words[0] and "smallest corrected p is 0.4" in part.words[0]
    assert "too few values" in str(part.html)


# --- run it again ----------------------------------------------------------------------------------------------------


def parsed(flags: str) -> RunConfig:
    """Read `flags` as the command line does."""
    kept: list[RunConfig] = []
    app = typer.Typer()

    def note(config: RunConfig) -> None:
        kept.append(config)

    app.command()(takes_configuration(note))
    done = CliRunner().invoke(app, shlex.split(flags))
    assert done.exit_code == 0, done.output
    return kept[0]


@pytest.mark.parametrize(
    "given",
    [
        {"scheme": "masked", "options": {"clip": 4.0, "dropout_allowance": 0.25}, "ring_bits": 40, "wire": "paper"},
        {"scheme": "direct", "no_rho": True, "epsilon": 0.1, "users": 7, "rating_range": (0.5, 5.0)},
        {"scheme": "dynamic", "data": "a b'c.csv", "join": 0.3, "online": 9, "views": "sample:2", "deadline": 1.5},
        {"scheme": "masked", "epsilon": math.inf, "test_fraction": 0.0, "faults": "3:.1", "transport": "ipc"},
        {"scheme": "covariance", "trust": "masked"},
    ],
)
def test_the_flags_give_the_same_configuration(given):
    config, _, _ = resolve(RunConfig(seed=5, **given))
    again_, _, _ = resolve(parsed(flags_of(dataclasses.replace(config, users_per_process=1))))
    assert again_ == config


def test_both_commands_run_the_same_run_again(masked, tmp_path):
    by_file, by_flags = (command for _, command in repeat_section.commands(masked)[:2])
    toml = shlex.split(by_file)[3]
    first = run(out=tmp_path / "a", **dataclasses.asdict(read_config(Path(toml))))
    flags = by_flags.removeprefix("keyhole run ").partition(" --out")[0]
    second = run(out=tmp_path / "b", **dataclasses.asdict(parsed(flags)))
    for summary in (first, second):
        assert summary["item_factors_sha256"] == masked.summary["item_factors_sha256"]
        assert summary["anchor"] == masked.summary["anchor"]


def test_the_configuration_has_every_option_and_digest(masked):
    html = shown(str(repeat_section.section(masked).html))
    for field in dataclasses.fields(RunConfig):
        assert field.name == "options" or f"--{field.name.replace('_', '-')}" in html
    summary = masked.summary
    for value in (summary["item_factors_sha256"], summary["anchor"], masked.case.card.run_id.hex()):
        assert value in html
    assert f"--ring-bits left open {masked.params.ring_bits}" in html
    assert "--join left open masked does not take it" in html
    assert "what only the auditor may see" in html and "keyhole verify" in html
    assert "gives the same item factors on the same platform" in html


# --- strangers' names ------------------------------------------------------------------------------------------------


def test_names_that_look_like_html_stay_names(tmp_path):
    data = tmp_path / "<script>alert(1)<" / "script>.csv"  # the path holds a whole element
    data.parent.mkdir()
    data.write_text("user,item,rating\n" + "".join(f"u{n % 6},i{n // 6},{1 + n % 5}\n" for n in range(30)))
    run = reported(made(tmp_path / "<img src=x>", "direct", data=str(data)))
    hostile = json.loads(json.dumps(run.audit))
    hostile["findings"][0] |= {"title": "<script>alert(2)</script>", "evidence": "<i>", "measured": {"<u>": ["<s>"]}}
    hostile["unanswered"] = {"algebra": "<script>alert(3)</script>"}
    run = dataclasses.replace(run, audit=hostile)
    data.unlink()
    for section in (verdict_section.section, parties_section.section, findings_section.section, repeat_section.section):
        html = str(section(run).html)
        assert not re.search(r"<(script|img|i|u|s)\b", html)
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in str(repeat_section.section(run).html)
    assert "&lt;script&gt;alert(3)" in str(verdict_section.section(run).html)
