"""The page as a whole: its title, the terms that it explains, its order, its size."""

from __future__ import annotations

import re
import time

import pytest
from markupsafe import Markup

from sim.api import run
from sim.audit.audit import Audit, audit
from sim.console.glossary import TERMS
from sim.report.page import report_page
from sim.report.reported_run import ask_for_page
from sim.report.tooltips import explained, glossary

MOST_BYTES = 3_000_000


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Make a run of the scheme whose canary is quick; return (its folder, its page)."""
    folder = tmp_path_factory.mktemp("whole") / "<first>"
    run(out=folder, scheme="laplace-ratings", data="synthetic:12x10:.5", seed=1, transport="inprocess")
    audit(folder, ["recommender+user:3"], repetitions=400)
    return folder, report_page(ask_for_page(Audit(folder), repetitions=400))


def test_the_title_names_the_product_the_run_its_day_and_its_folder(made):
    folder, page = made
    title = re.search("<title>(.*?)</title>", page)[1]
    day = time.strftime("%Y-%m-%d", time.localtime((folder / "run.toml").stat().st_mtime))
    shown = str(folder).replace("<", "&lt;").replace(">", "&gt;")
    assert title == f"Keyhole · laplace-ratings on synthetic:12x10:.5 · {day} · {shown}"


def test_the_tiles_come_first_then_what_was_received_then_the_adversaries(made):
    places = [made[1].index(part) for part in ('class="tiles"', 'id="received"', 'class="adversaries"', "<table")]
    assert places[:3] == sorted(places[:3])
    assert len(made[1].encode()) < MOST_BYTES


def test_a_coalition_that_the_audit_was_asked_about_is_on_the_page(made):
    assert '<tr data-set="recommender+user:3"' in made[1]


def test_the_first_mention_of_a_term_in_running_text_is_explained():
    html = Markup("<h3>mask</h3><p>A mask, <code>mask</code>; <b>Masks</b> and a <a href='#x'>ring</a>, unmasked.</p>")
    done = str(explained(html))
    assert done.count('class="term"') == 1 and done.index('class="term"') > done.index("<p>")
    assert f'title="mask: {TERMS["mask"].line}"' in done and ">mask</a>, <code>" in done
    assert re.sub(r'<a class="term"[^>]*>(.*?)</a>', r"\1", done) == str(html)


def test_text_that_was_escaped_stays_so():
    html = Markup("<p>{} &lt;b&gt; view</p>").format("<script>canary</script>")
    done = str(explained(html))
    assert "<script>" not in done and done.count('class="term"') == 2


def test_every_term_has_its_place_at_the_end_of_the_page(made):
    for name in TERMS:
        assert f'<dt id="word-{name}">{name}</dt>' in glossary().html
    linked = set(re.findall('class="term" href="#word-([a-z]+)"', made[1]))
    assert linked <= set(TERMS) and {"claim", "view", "release"} <= linked
