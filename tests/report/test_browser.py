"""The page in a real browser: silent, without a network, accessible, and readable on a telephone and on paper."""

from __future__ import annotations

from itertools import pairwise

import pytest
from support.browser import CHECKS, FOCUS, STOPS, browser, needs_browser, opened, pages_of

from sim.api import run
from sim.audit.audit import Audit
from sim.report.page import report_page, write_page
from sim.report.reported_run import ask_for_page

pytestmark = needs_browser

SIZES = [(390, "light"), (1440, "light"), (390, "dark"), (1440, "dark")]


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    folder = tmp_path_factory.mktemp("page") / "run"
    run(out=folder, data="demo-small", seed=1, transport="inprocess")
    path = folder / "report.html"
    write_page(path, report_page(ask_for_page(Audit(folder), repetitions=1000)))
    return path


@pytest.fixture(scope="module")
def chrome():
    with browser() as started:
        yield started


@pytest.fixture(scope="module", params=SIZES, ids=lambda size: f"{size[0]}-{size[1]}")
def shown(request, chrome, report):
    width, scheme = request.param
    with opened(chrome, report, width=width, scheme=scheme) as one:
        yield one


@pytest.fixture
def fresh(chrome, report):
    with opened(chrome, report) as one:
        yield one


# --- at every width, light and dark ---------------------------------------------------------------------------------


@pytest.mark.parametrize("check", ["sideways", "charts", "contrast"])
def test_nothing_is_wrong_at_any_width_by_day_and_by_night(shown, check):
    assert shown.complaints(check) == []


def test_it_says_nothing_on_the_console_and_asks_for_nothing_but_itself(shown, report):
    assert shown.said == []
    assert [url for url in shown.asked if not url.startswith("data:")] == [report.as_uri()]


def test_the_colours_differ_by_day_and_by_night(chrome, report):
    found = []
    for scheme in ("light", "dark"):
        with opened(chrome, report, scheme=scheme) as one:
            found.append(one.page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert len(set(found)) == 2


def test_it_is_the_same_without_a_network(chrome, report, fresh):
    with opened(chrome, report, offline=True) as one:
        assert one.said == [] and one.asked == fresh.asked
        assert one.page.content() == fresh.page.content()


# --- with a screen reader, without a mouse, and without scripts ----------------------------------------------------


@pytest.mark.parametrize("check", ["sections", "ids", "links", "references", "labels", "headers"])
def test_every_part_has_its_name_and_its_place(fresh, check):
    assert fresh.complaints(check) == []


def test_there_is_something_to_check(fresh):
    for selector, least in (("nav a", 1), ("section h2", 1), ("summary", 1)):
        assert fresh.page.locator(selector).count() >= least, selector
    assert fresh.page.locator("nav a").count() == fresh.page.locator("main > section").count()


def test_without_scripts_every_table_is_there(chrome, report, fresh):
    with opened(chrome, report, java_script_enabled=False) as one:
        assert one.complaints("tables out of sight") == [] and one.complaints("sections") == []
        assert one.page.locator("table").count() >= fresh.page.locator("table").count()
        assert one.said == []


def test_the_tab_key_reaches_everything_and_shows_where_it_is(fresh):
    stops = fresh.page.evaluate(STOPS)
    reached, unseen = set(), []
    for _ in range(len(stops) + 5):
        fresh.page.keyboard.press("Tab")
        found = fresh.page.evaluate(FOCUS)
        reached.add(found["stop"])
        if found["stop"] is not None and not found["seen"]:
            unseen.append(found["html"])
    assert stops and set(stops) <= reached
    assert unseen == []


def test_on_paper_every_table_is_unfolded_and_there_is_more_than_one_sheet(fresh):
    fresh.page.emulate_media(media="print")
    assert fresh.complaints("tables not on paper") == []
    assert pages_of(fresh.page.pdf(format="A4")) > 1
    assert fresh.said == []


# --- parts that react ------------------------------------------------------------------------------------------------


def test_the_explorer_answers_when_a_party_is_ticked(fresh):
    section = fresh.page.locator("section[aria-labelledby=explorer]")
    answer, boxes = section.locator("[aria-live]").first, section.get_by_role("checkbox")
    answers = [answer.inner_text()]
    for box in boxes.all():
        box.click()
        answers.append(answer.inner_text())
    assert len(answers) >= 3 and all(before != after for before, after in pairwise(answers))
    boxes.first.focus()
    fresh.page.keyboard.press("Space")
    assert answer.inner_text() != answers[-1]
    assert fresh.said == []


def test_an_arrow_of_the_diagram_opens_what_its_receiver_saw(fresh):
    arrows = fresh.page.locator("svg a[href^='#seq-']")
    targets = [arrow.get_attribute("href") for arrow in arrows.all()]
    assert len(targets) > 10
    for arrow, target in zip(arrows.all(), targets, strict=True):
        arrow.click()
        assert fresh.page.locator(target).is_visible(), target
        assert [other for other in set(targets) - {target} if fresh.page.locator(other).is_visible()] == []
    arrows.first.focus()
    fresh.page.keyboard.press("Enter")
    assert fresh.page.locator(targets[0]).is_visible() and fresh.said == []


def test_a_user_is_chosen_and_what_is_known_of_it_is_told(fresh):
    chooser, table = fresh.page.get_by_label("Whom?"), fresh.page.locator("#about-table")
    users = chooser.locator("option").all()
    told = set()
    for user in users:
        name = user.get_attribute("value")
        chooser.select_option(name)
        assert fresh.page.locator("#about-command").inner_text().endswith(f"--about {name}")
        assert name in table.locator("caption").inner_text()
        told.add(table.locator("tbody").inner_text())
    assert len(users) > 5 and len(told) > 1 and fresh.said == []


def test_every_command_has_a_button_that_copies_it(chrome, report):
    with opened(chrome, report, permissions=["clipboard-read", "clipboard-write"]) as one:
        buttons = one.page.get_by_role("button", name="Copy", exact=True)
        visible = [button for button in buttons.all() if button.is_visible()]
        assert len(visible) >= 5
        shown = visible[-1].locator("xpath=..").locator("code")
        visible[-1].click()
        one.page.get_by_role("button", name="Copied").wait_for()
        assert one.page.evaluate("navigator.clipboard.readText()") == shown.text_content()
        assert one.said == []


def test_the_contents_stay_in_sight(shown):
    assert shown.page.locator("#words").count() == 1
    shown.page.locator("#accounting").scroll_into_view_if_needed()
    shown.page.evaluate("window.scrollTo(0, document.body.scrollHeight / 2)")
    shown.page.wait_for_function("window.scrollY > 1000")
    box = shown.page.locator("nav").bounding_box()
    shown.page.evaluate("window.scrollTo({top: 0, behavior: 'instant'})")
    assert box["y"] == 0 and box["height"] < 60


def test_a_term_is_explained_where_it_stands_also_without_a_mouse(fresh):
    term = fresh.page.locator("a.term").first
    tip = term.get_attribute("title")
    assert tip == term.get_attribute("data-tip") and ": " in tip
    fresh.page.locator("nav a").last.focus()
    for _ in range(30):
        fresh.page.keyboard.press("Tab")
        if fresh.page.evaluate("document.activeElement.className") == "term":
            break
    style = "getComputedStyle(document.activeElement, '::after')"
    assert fresh.page.evaluate(f"{style}.content").strip('"').startswith(tip.split(":")[0])
    assert fresh.page.evaluate(f"{style}.position") == "fixed"


def test_charts_shrink_with_the_screen_and_none_scrolls(chrome, report):
    with opened(chrome, report, width=390) as one:
        too_wide = """() => [...document.querySelectorAll('svg.chart')].filter(svg => svg.checkVisibility()
            && svg.getBoundingClientRect().width > innerWidth).length"""
        assert one.page.evaluate(too_wide) == 0
        assert one.page.locator("svg.chart").count() > 5


# --- the checks find faults ------------------------------------------------------------------------------------------

WRONG = """<!doctype html><title>wrong</title><body style="background: white">
<nav><a href="#gone">Gone</a><a href="#empty">Empty</a></nav><section><h2 id="empty">Empty</h2></section>
<p id="twice" aria-describedby="nobody" style="color: #999">Pale</p><p id="twice">Twice</p>
<input type="checkbox"><table><tr><td>no header</td></tr></table>
<table hidden><tr><th>hidden</th></tr></table>
<details><summary>Folded</summary><table><tr><th>f</th></tr></table></details>
<div style="width: 3000px; height: 1px"></div>
<svg class="chart" style="width: 1px"></svg>
<svg class="chart" role="img" aria-labelledby="t d"><title id="t">T</title><desc id="d">D</desc>
<g id="matplotlib.axis_1"><g id="xtick_1"><text>5</text></g></g><rect width="60" height="60"/></svg></body>"""

FOUND = {
    "charts": 6,
    "sections": 2,
    "ids": 1,
    "links": 1,
    "references": 1,
    "labels": 1,
    "headers": 1,
    "tables out of sight": 1,
    "tables not on paper": 2,
    "sideways": 2,
    "contrast": 1,
}


def test_every_check_finds_what_is_wrong(chrome, tmp_path):
    assert set(FOUND) == set(CHECKS)
    (tmp_path / "wrong.html").write_text(WRONG)
    with opened(chrome, tmp_path / "wrong.html") as one:
        assert {check: len(one.complaints(check)) for check in CHECKS} == FOUND


def test_what_is_said_or_asked_for_is_heard(chrome, tmp_path):
    path = tmp_path / "loud.html"
    path.write_text("<script>console.warn('psst'); fetch('other.json'); none.of.this</script>")
    with opened(chrome, path) as one:
        one.page.wait_for_timeout(50)
        assert {line.split(":")[0] for line in one.said} == {"warning", "error"} and len(one.said) >= 2
        assert one.asked[0] == path.as_uri() and any(url.endswith("other.json") for url in one.asked)
