"""A real browser for the tests of the page: Chromium, driven by playwright, and checks that it makes of a page.

Every check is JavaScript that returns a list of complaints, so that a failing test says what is wrong and where.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--disable-gpu", "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--no-first-run", "--disable-quic",
)  # fmt: skip


def chromium() -> str | None:
    return next((path for name in NAMES if (path := shutil.which(name))), None)


def missing() -> str:
    """Say why there is no browser here; empty if there is one."""
    if importlib.util.find_spec("playwright") is None:
        return "No playwright: pip install playwright"
    return "" if chromium() else "No chromium: apt-get install chromium"


needs_browser = pytest.mark.skipif(bool(missing()), reason=missing() or "there is one")


@contextmanager
def browser() -> Iterator[Any]:
    """Start a browser for the block; no other test may begin within it, because its event loop runs."""
    from playwright.sync_api import sync_playwright

    as_root = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium(), args=[*FLAGS, *as_root])
        yield started
        started.close()


@dataclass(frozen=True)
class Opened:
    """A page in its own window, with its console output, errors and requests since it was opened."""

    page: Any
    said: list[str] = field(default_factory=list)  # console output and uncaught errors
    asked: list[str] = field(default_factory=list)  # requests

    def complaints(self, check: str) -> list[str]:
        found = self.page.evaluate(CHECKS[check])
        assert isinstance(found, list)
        return found


@contextmanager
def opened(started: Any, path: Path, *, width: int = 1440, scheme: str = "light", **options: Any) -> Iterator[Opened]:
    """Open a page; `options` are those of a playwright context: offline, java_script_enabled, …"""
    window = {"viewport": {"width": width, "height": 900}, "color_scheme": scheme, **options}
    context = started.new_context(**window)
    try:
        one = Opened(context.new_page())
        one.page.on("console", lambda message: one.said.append(f"{message.type}: {message.text}"))
        one.page.on("pageerror", lambda error: one.said.append(f"error: {error}"))
        one.page.on("request", lambda request: one.asked.append(request.url))
        one.page.goto(path.as_uri())
        yield one
    finally:
        context.close()


def pages_of(pdf: bytes) -> int:
    return len(re.findall(rb"/Type\s*/Page\b", pdf))


CHECKS = {
    "charts": """() => [...document.querySelectorAll('svg.chart')].flatMap(svg => {
        const key = svg.getAttribute('aria-labelledby') || '(no name)', box = svg.getBoundingClientRect(), wrong = [];
        const spoken = key.split(' ').map(id => (document.getElementById(id)?.textContent || '').trim());
        const drawn = [...svg.querySelectorAll('path, rect, polygon, use, image')].filter(e => {
            const b = e.getBoundingClientRect(); return b.width + b.height > 0; });
        const axes = [...svg.querySelectorAll('g[id*="matplotlib.axis_"]')];
        if (svg.checkVisibility() && !(box.width > 50 && box.height > 50)) wrong.push('has no size');
        if (svg.checkVisibility() && !drawn.length) wrong.push('has nothing drawn in it');
        if (svg.getAttribute('role') !== 'img') wrong.push('is no image to a screen reader');
        if (spoken.length < 2 || spoken.some(text => !text)) wrong.push('has no title and description');
        if (!axes.length) wrong.push('has no axes');
        if (axes.some(a => ![...a.querySelectorAll(':scope > g[id*="text_"] text')].some(t => t.textContent.trim())))
            wrong.push('has an axis without a label');
        return wrong.map(words => `${key}: ${words}`);
    })""",
    "sections": """() => [...document.querySelectorAll('nav a')].flatMap(link => {
        const heading = document.getElementById(link.hash.slice(1)), section = heading?.closest('section');
        if (!section) return [`${link.hash}: no such section`];
        const rest = section.textContent.length - heading.textContent.length;
        return rest > 40 && section.checkVisibility() ? [] : [`${link.hash}: is empty`];
    })""",
    "ids": """() => {
        const count = {};
        for (const one of document.querySelectorAll('[id]')) count[one.id] = (count[one.id] || 0) + 1;
        return Object.keys(count).filter(id => count[id] > 1).map(id => `${id} ${count[id]} times`);
    }""",
    "links": """() => [...document.querySelectorAll('a')]
        .map(link => link.getAttribute('href') ?? link.getAttribute('xlink:href'))
        .filter(to => !to || !to.startsWith('#') || !document.getElementById(to.slice(1)))
        .map(to => `${to}: leads nowhere`)
    """,
    "references": """() => ['aria-labelledby', 'aria-describedby', 'aria-controls', 'for'].flatMap(name =>
        [...document.querySelectorAll(`[${name}]`)].flatMap(one => one.getAttribute(name).split(' '))
            .filter(id => !document.getElementById(id)).map(id => `${name} ${id}: no such element`))
    """,
    "labels": """() => [...document.querySelectorAll('input:not([type=hidden]), select, textarea, button')]
        .filter(one => !([...(one.labels || [])].some(label => label.textContent.trim()) || one.textContent.trim()
            || one.ariaLabel || one.getAttribute('aria-labelledby'))).map(one => one.outerHTML.slice(0, 90))
    """,
    "headers": """() => [...document.querySelectorAll('table')].filter(table => ![...table.querySelectorAll('th')]
        .some(cell => cell.textContent.trim())).map(table => table.textContent.trim().slice(0, 90))
    """,
    "tables out of sight": """() => [...document.querySelectorAll('table')].filter(table => {
        let folded = null;  // the outermost: whoever opens it finds the others
        for (let one = table; one; one = one.parentElement) if (one.tagName === 'DETAILS') folded = one;
        const seen = folded ? folded.querySelector('summary')?.checkVisibility() : table.checkVisibility();
        return !seen || !table.rows.length;
    }).map(table => table.textContent.trim().slice(0, 90))""",
    "tables not on paper": """() => [...document.querySelectorAll('table')].filter(table =>
        !table.checkVisibility() || !table.getBoundingClientRect().height)
        .map(table => table.textContent.trim().slice(0, 90))""",
    "sideways": """() => {
        const root = document.documentElement, over = root.scrollWidth - root.clientWidth;
        if (over <= 0) return [];
        const wide = [...document.querySelectorAll('body *')].filter(one => !one.closest('.scroll, pre, svg')
            && one.getBoundingClientRect().right > root.clientWidth + 1).slice(0, 5);
        return [`${over} px too wide`, ...wide.map(one => one.outerHTML.slice(0, 90))];
    }""",
    "contrast": """() => {
        const rgba = text => { const n = text.match(/[\\d.]+/g).map(Number); return n.length < 4 ? [...n, 1] : n; };
        const linear = v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4;
        const light = ([r, g, b]) => .2126 * linear(r / 255) + .7152 * linear(g / 255) + .0722 * linear(b / 255);
        const behind = one => { for (; one; one = one.parentElement) {
            const found = rgba(getComputedStyle(one).backgroundColor); if (found[3] === 1) return found; }
            return [255, 255, 255, 1]; };
        const worst = {};
        for (const one of document.querySelectorAll('body *')) {
            if (one.closest('svg, script, .skip') || !one.checkVisibility()) continue;
            if (![...one.childNodes].some(node => node.nodeType === 3 && node.data.trim())) continue;
            const [a, b] = [light(rgba(getComputedStyle(one).color)), light(behind(one))];
            const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
            if (ratio < 4.5) worst[`${one.tagName}.${one.className}: ${ratio.toFixed(2)}`] = 1;
        }
        return Object.keys(worst);
    }""",
}  # fmt: skip

# the look of an element that may get the focus, and of the elements in it: outline, shadow, stroke
LOOK = """const look = one => [one, ...one.querySelectorAll('*')].slice(0, 20).map(part => {
    const style = getComputedStyle(part);
    return [style.outlineStyle, style.outlineWidth, style.boxShadow, style.stroke, style.strokeWidth].join();
}).join('|');"""

# the elements at which Tab stops, in order; of radio buttons with the same name it stops at one
STOPS = f"""() => {{
    {LOOK}
    const radios = new Set(), stops = [];
    for (const one of document.querySelectorAll('a, button, input, select, summary, [tabindex="0"]')) {{
        const radio = one.type === 'radio' ? `radio ${{one.name}}` : '';
        if (one.disabled || one.tabIndex < 0 || !one.checkVisibility({{visibilityProperty: true}})) continue;
        one.dataset.stop = radio || String(stops.length);
        one.dataset.look = look(one);
        if (!radios.has(radio)) stops.push(one.dataset.stop);
        if (radio) radios.add(radio);
    }}
    return stops;
}}"""

# the element that has the focus, and whether that can be seen
FOCUS = f"""() => {{
    {LOOK}
    const one = document.activeElement;
    return {{stop: one.dataset.stop ?? null, seen: look(one) !== one.dataset.look, html: one.outerHTML.slice(0, 90)}};
}}"""
