"""report.html in a real browser, headless: drawn, readable, reachable by keyboard, and nothing asked of the network.

Chromium is driven over its own pipe (`--remote-debugging-pipe`): JSON ended by a null byte, no further package.
"""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from bench.report_size import write_results
from gputax.report.output import save_report
from gputax.report.sources import read_comparison, read_sources
from gputax.report.story import build_report
from gputax.results.documents.comparison import COMPARISON_NAME
from gputax.results.files import write_text
from tests.standins.browser import CHROMIUM, Browser

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium here: apt-get install chromium")

HOSTILE = """<script>document.title='owned'</script><img src=x onerror="document.title='owned'">"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of 20 cells, with one duet more whose names are an attack."""
    root = tmp_path_factory.mktemp("results")
    directories = write_results(root)
    duet = read_comparison(root / "duet-container" / COMPARISON_NAME)
    other = duet.sides[1].model_copy(update={"label": HOSTILE, "device_label": f"CPU ({HOSTILE}), not a GPU"})
    hostile = duet.model_copy(
        update={
            "question": HOSTILE,
            "sides": (duet.sides[0], other),
            "metrics": tuple(
                metric.model_copy(update={"workload": HOSTILE, "other": HOSTILE}) for metric in duet.metrics[:3]
            ),
            "pair_series": tuple(series.model_copy(update={"workload": HOSTILE}) for series in duet.pair_series[:1]),
        }
    )
    write_text(root / "hostile" / COMPARISON_NAME, hostile.model_dump_json())
    report = build_report(read_sources([*directories, root / "hostile"]))
    save_report(report, "html", root / "report.html")
    return root / "report.html"


def complaints(browser: Browser) -> list[dict[str, Any]]:
    browser.run("1")  # what the page logged arrives before this answer
    return [
        event
        for event in browser.events
        if event["method"] in ("Runtime.exceptionThrown", "Log.entryAdded")
        or (event["method"] == "Runtime.consoleAPICalled" and event["params"]["type"] in ("error", "warning", "assert"))
    ]


def requested(browser: Browser) -> set[str]:
    """The addresses that the page asked for."""
    return {
        event["params"]["request"]["url"] for event in browser.events if event["method"] == "Network.requestWillBeSent"
    }


@pytest.mark.parametrize(("width", "dark"), [(1200, False), (1200, True), (390, False)])
def test_the_page_is_quiet_and_asks_nothing_of_the_network(
    browser: Browser, page: Path, width: int, dark: bool
) -> None:
    browser.open(page, width=width, dark=dark)
    assert complaints(browser) == []
    assert requested(browser) == {page.resolve().as_uri()}


def test_every_chart_is_drawn(browser: Browser, page: Path) -> None:
    browser.open(page)
    browser.run("document.querySelectorAll('details').forEach(each => { each.open = true })")
    boxes = browser.run(
        "[...document.querySelectorAll('figure svg')].map(svg => {"
        " const box = svg.getBoundingClientRect();"
        " const marks = [...svg.querySelectorAll('path, circle, line')].filter(mark => {"
        "  const own = mark.getBoundingClientRect(); return own.width > 0 || own.height > 0 });"
        " return [box.width, box.height, marks.length, svg.querySelectorAll('text').length] })"
    )
    assert len(boxes) >= 49
    for width, height, marks, texts in boxes:
        assert width > 200
        assert height > 100
        assert marks >= 5
        assert texts >= 4


def test_no_text_of_a_chart_is_cut_off(browser: Browser, page: Path) -> None:
    browser.open(page)
    browser.run("document.querySelectorAll('details').forEach(each => { each.open = true })")
    cut = browser.run(
        "[...document.querySelectorAll('figure svg')].flatMap(svg => { const box = svg.getBoundingClientRect();"
        " return [...svg.querySelectorAll('text')].filter(text => { const own = text.getBoundingClientRect();"
        "  return own.left < box.left - 2 || own.right > box.right + 2 || own.bottom > box.bottom + 2 })"
        " .map(text => text.textContent) })"
    )
    assert cut == []


@pytest.mark.parametrize("width", [320, 390, 768, 1200])
def test_the_page_never_scrolls_sideways(browser: Browser, page: Path, width: int) -> None:
    browser.open(page, width=width)
    browser.run("document.querySelectorAll('details').forEach(each => { each.open = true })")
    assert browser.run("document.documentElement.scrollWidth") <= width
    assert browser.run("document.body.scrollWidth") <= width


def test_on_a_phone_the_answer_is_read_without_scrolling_sideways(browser: Browser, page: Path) -> None:
    browser.open(page, width=390)
    over = browser.run(
        "[...document.querySelectorAll('h1, .numbers dd, .cards td, .cards tbody th')].filter(cell => {"
        " const box = cell.getBoundingClientRect();"
        " return box.right > innerWidth + 1 || box.left < 0 || box.width < 20 })"
        ".map(cell => cell.textContent)"
    )
    assert over == []
    assert browser.run("getComputedStyle(document.querySelector('.cards td'), '::before').content") != "none"
    assert browser.run("parseFloat(getComputedStyle(document.querySelector('.cards td')).fontSize)") >= 12


def test_numbers_stay_on_one_line_on_a_desk(browser: Browser, page: Path) -> None:
    browser.open(page)
    broken = browser.run(
        "[...document.querySelectorAll('#metrics td.overhead')].filter(cell => { const text = document.createRange();"
        " text.selectNode(cell.firstChild); return text.getClientRects().length != 1 }).length"
    )
    assert broken == 0


def luminance(colour: str) -> float:
    red, green, blue = (int(part) / 255 for part in colour[colour.index("(") + 1 : -1].split(",")[:3])
    linear = [value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in (red, green, blue)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("dark", [False, True])
def test_texts_and_charts_have_contrast_in_both_schemes(browser: Browser, page: Path, dark: bool) -> None:
    browser.open(page, dark=dark)
    paper = luminance(browser.run("getComputedStyle(document.body).backgroundColor"))
    assert (paper < 0.1) == dark
    inks = browser.run(
        "[...document.querySelectorAll('h1, td, li, figcaption, .pill, thead th, a')]"
        ".map(each => getComputedStyle(each).color)"
        ".concat([...document.querySelectorAll('figure svg text')].map(each => getComputedStyle(each).fill))"
    )
    for ink in set(inks):
        lighter, darker = sorted((luminance(ink), paper), reverse=True)
        assert (lighter + 0.05) / (darker + 0.05) >= 4.5, f"{ink} on {'dark' if dark else 'light'} paper"


def test_paper_is_light_even_where_the_screen_is_dark(browser: Browser, page: Path) -> None:
    browser.open(page, dark=True)
    browser.call(
        "Emulation.setEmulatedMedia", media="print", features=[{"name": "prefers-color-scheme", "value": "dark"}]
    )
    assert luminance(browser.run("getComputedStyle(document.body).backgroundColor")) > 0.9
    printed = browser.call("Page.printToPDF", wait_s=120, printBackground=True)
    assert base64.b64decode(printed["data"]).startswith(b"%PDF")


def test_the_keyboard_reaches_links_tables_charts_and_details(browser: Browser, page: Path) -> None:
    browser.open(page)
    seen = []
    for _ in range(40):
        browser.press("Tab")
        seen.append(browser.run("document.activeElement.tagName + '.' + document.activeElement.classList[0]"))
    assert seen[0] == "A.skip", "the first stop skips to the answer"
    assert {"DIV.scroll", "svg.undefined", "A.undefined", "SUMMARY.undefined"} <= set(seen)
    assert browser.run("getComputedStyle(document.activeElement).outlineStyle") != "none", "the focus is seen"
    # Chromium makes what scrolls a stop by itself; other browsers need to be told.
    assert browser.run("document.querySelectorAll('.scroll:not([tabindex=\"0\"])').length") == 0


def test_enter_opens_details(browser: Browser, page: Path) -> None:
    browser.open(page)
    browser.run("document.querySelector('#telemetry summary').focus()")
    browser.press("Enter")
    assert browser.run("document.querySelector('#telemetry details').open") is True


def test_arrow_keys_walk_the_marks_of_a_chart_and_escape_leaves(browser: Browser, page: Path) -> None:
    browser.open(page)
    browser.run("document.querySelector('#answer figure svg').focus()")
    tips = []
    for _ in range(2):
        browser.press("ArrowDown")
        tips.append(browser.run("document.querySelector('.tip').textContent"))
    assert tips[0] != tips[1]
    assert "95 % CI" in tips[0]
    inside = browser.run(
        "(() => { const box = document.querySelector('.tip').getBoundingClientRect();"
        " return box.left >= 0 && box.right <= innerWidth && box.width > 50 })()"
    )
    assert inside
    browser.press("Escape")
    assert browser.run("document.querySelector('.tip').hidden") is True


def test_hostile_names_stay_text(browser: Browser, page: Path) -> None:
    browser.open(page)
    assert "owned" not in browser.run("document.title").replace("document.title='owned'", "")
    assert browser.run("document.querySelectorAll('img, iframe, object, embed, link, form').length") == 0
    assert browser.run("document.querySelectorAll('script').length") == 1
    assert browser.run("document.querySelectorAll('svg script, svg image, svg a, svg foreignObject').length") == 0
    shown = browser.run("document.body.innerText")
    assert "<script>document.title=" in shown, "the name is shown as it is"


def test_the_page_is_whole_without_scripts(browser: Browser, page: Path) -> None:
    browser.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        browser.open(page)
        assert browser.run("document.querySelectorAll('figure svg').length") >= 49
        assert browser.run("document.querySelector('.tip')") is None
    finally:
        browser.call("Emulation.setScriptExecutionDisabled", value=False)
