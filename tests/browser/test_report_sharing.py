"""The report of sharing in a real browser, headless: drawn, whole, readable in both schemes and on paper, and safe."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from gputax.report.output import save_report
from gputax.report.sources import read_sources
from gputax.report.story import build_report
from gputax.results.documents.comparison import COMPARISON_NAME
from gputax.results.documents.sharing import SHARING_NAME
from gputax.results.files import write_text
from tests.browser.test_report import HOSTILE, complaints, luminance, requested
from tests.builders.documents import comparison
from tests.builders.shared_documents import (
    gpu_record,
    isolation,
    neighbour,
    neighbours,
    neighbours_record,
    sharing_record,
)
from tests.standins.browser import CHROMIUM, Browser

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium here: apt-get install chromium")
OPEN_ALL = "document.querySelectorAll('details').forEach(each => { each.open = true })"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A duet, tenants on two devices, neighbours, and an experiment whose names are an attack: all made up."""
    root = tmp_path_factory.mktemp("results")
    attack = sharing_record(
        (HOSTILE, "cpu-quota"), (1, 3), workload=HOSTILE, place=HOSTILE, claim=HOSTILE,
        neighbours=(neighbour(HOSTILE, victim=HOSTILE),), isolation=isolation(HOSTILE),
    )  # fmt: skip
    records = {
        "cpu": sharing_record(neighbours=neighbours("cpu-shared", "cpu-quota")),
        "gpu": gpu_record(),
        "near": neighbours_record(),
        "hostile": attack,
    }
    for name, record in records.items():
        write_text(root / name / SHARING_NAME, record.model_dump_json())
    write_text(root / "duet" / COMPARISON_NAME, comparison().model_dump_json())
    save_report(build_report(read_sources([root])), "html", root / "report.html")
    return root / "report.html"


@pytest.mark.parametrize(("width", "dark"), [(1200, False), (390, True)])
def test_the_page_is_quiet_small_and_asks_nothing_of_the_network(
    browser: Browser, page: Path, width: int, dark: bool
) -> None:
    browser.open(page, width=width, dark=dark)
    assert complaints(browser) == []
    assert requested(browser) == {page.resolve().as_uri()}
    assert page.stat().st_size < 2 * 1024 * 1024


def test_every_chart_is_drawn_and_no_text_of_it_is_cut_off(browser: Browser, page: Path) -> None:
    browser.open(page)
    browser.run(OPEN_ALL)
    kinds = browser.run("[...document.querySelectorAll('figure')].map(each => each.id.replace(/-\\d+$/, ''))")
    assert {name: kinds.count(name) for name in set(kinds)} == {
        "overview": 1, "pairs": 1, "sharing-latency": 3, "sharing-p99": 3, "sharing-throughput": 3,
        "sharing-fairness": 3, "neighbours": 3,
    }  # fmt: skip
    cut = browser.run(
        "[...document.querySelectorAll('figure svg')].flatMap(svg => { const box = svg.getBoundingClientRect();"
        " return [...svg.querySelectorAll('text')].filter(text => { const own = text.getBoundingClientRect();"
        "  return own.left < box.left - 2 || own.right > box.right + 2 || own.bottom > box.bottom + 2 })"
        " .map(text => text.textContent) })"
    )
    assert cut == []


def test_no_two_texts_of_a_chart_lie_over_each_other(browser: Browser, page: Path) -> None:
    browser.open(page)
    browser.run(OPEN_ALL)
    over = browser.run(
        '[...document.querySelectorAll(\'figure[id^="sharing"] svg, figure[id^="neighbours"] svg\')].flatMap(svg => {'
        " const boxes = [...svg.querySelectorAll('text')].map(text => [text, text.getBoundingClientRect()]);"
        " return boxes.flatMap(([a, x], i) => boxes.slice(i + 1).filter(([b, y]) =>"
        "  Math.min(x.right, y.right) - Math.max(x.left, y.left) > 2 &&"
        "  Math.min(x.bottom, y.bottom) - Math.max(x.top, y.top) > 4)"
        "  .map(([b, y]) => a.textContent + ' / ' + b.textContent)) })"
    )
    assert over == []


@pytest.mark.parametrize("width", [320, 768, 1200])
def test_the_page_never_scrolls_sideways(browser: Browser, page: Path, width: int) -> None:
    browser.open(page, width=width)
    browser.run(OPEN_ALL)
    assert browser.run("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("dark", [False, True])
def test_the_number_in_a_cell_of_the_heat_map_is_readable_on_its_colour(
    browser: Browser, page: Path, dark: bool
) -> None:
    browser.open(page, dark=dark)
    paper = luminance(browser.run("getComputedStyle(document.body).backgroundColor"))
    found = browser.run(
        "[...document.querySelectorAll('figure[id^=\"neighbours\"] svg')].flatMap(svg => {"
        " const cells = [...svg.querySelectorAll('[role=\"graphics-symbol\"]')];"
        " return cells.map(cell => { const box = cell.getBoundingClientRect();"
        "  const inside = [...svg.querySelectorAll('text')].find(text => { const own = text.getBoundingClientRect();"
        "   const x = (own.left + own.right) / 2, y = (own.top + own.bottom) / 2;"
        "   return x > box.left && x < box.right && y > box.top && y < box.bottom });"
        "  return [cell.getAttribute('aria-label'), getComputedStyle(cell).fill,"
        "   inside ? getComputedStyle(inside).fill : '', inside ? inside.textContent : ''] }) })"
    )
    assert len(found) == 2 * 5 + 5 + 1, "each cell speaks"
    for label, fill, ink, text in found:
        assert text, f"{label} has no text"
        lighter, darker = sorted((luminance(fill), luminance(ink)), reverse=True)
        assert (lighter + 0.05) / (darker + 0.05) >= 4.5, f"{text}: {ink} on {fill}"
    by_text = {text: luminance(fill) for _, fill, _, text in found}
    steps = [abs(by_text[text] - paper) for text in ("(+1.2 %)", "+38.0 %", "+160 %", "+720 %")]
    assert steps == sorted(steps), "the more, the further from the paper"
    assert by_text["(+1.2 %)"] == paper, "what may be chance is as pale as the page, in both schemes"
    assert by_text["invalid"] != by_text["(+1.2 %)"], "what does not count has no colour of the scale"


def test_the_legend_shows_each_technique_as_it_is_drawn(browser: Browser, page: Path) -> None:
    browser.open(page)
    texts = browser.run(
        "[...document.querySelector('#sharing-latency-1').querySelectorAll('svg text')].map(each => each.textContent)"
    )
    assert {"cpu-shared (stand-in)", "cpu-quota (stand-in)"} <= set(texts)
    pale = browser.run(
        "[...document.querySelectorAll('#sharing-latency-1 svg path')].filter(each =>"
        " each.getAttribute('opacity') === '0.35' && each.getAttribute('role') !== 'graphics-symbol').length"
    )
    assert pale == 0, "the legend does not take after the pale bars"


def test_arrow_keys_tell_each_point_with_interval_and_entitlement(browser: Browser, page: Path) -> None:
    browser.open(page)
    browser.run("document.querySelector('#sharing-latency-1 svg').focus()")
    browser.press("ArrowRight")
    tip = browser.run("document.querySelector('.tip').textContent")
    assert "95 % CI" in tip
    assert "each may use" in tip


def test_isolation_is_told_in_words_and_not_by_colour_alone(browser: Browser, page: Path) -> None:
    browser.open(page)
    words = browser.run("[...document.querySelectorAll('#neighbours td.verdict')].map(each => each.innerText.trim())")
    assert set(words) == {"✓ pass", "✗ fail", "– not tried"}


def test_hostile_names_stay_text(browser: Browser, page: Path) -> None:
    browser.open(page)
    browser.run(OPEN_ALL)
    assert "owned" not in browser.run("document.title").replace("document.title='owned'", "")
    assert browser.run("document.querySelectorAll('img, iframe, object, embed, link, form').length") == 0
    assert browser.run("document.querySelectorAll('script').length") == 1
    assert browser.run("document.querySelectorAll('svg script, svg image, svg a, svg foreignObject').length") == 0
    assert "<script>document.title=" in browser.run("document.body.innerText"), "the name is shown as it is"


def test_paper_is_light_and_whole(browser: Browser, page: Path) -> None:
    browser.open(page, dark=True)
    dark = [{"name": "prefers-color-scheme", "value": "dark"}]
    browser.call("Emulation.setEmulatedMedia", media="print", features=dark)
    assert luminance(browser.run("getComputedStyle(document.body).backgroundColor")) > 0.9
    printed = browser.call("Page.printToPDF", wait_s=120, printBackground=True)
    assert base64.b64decode(printed["data"]).startswith(b"%PDF")
