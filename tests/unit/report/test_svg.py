from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import pytest

from gputax.errors import GputaxError
from gputax.report import svg
from gputax.report.model import Chart
from gputax.report.story import report_on
from gputax.report.svg import inline_svg, standalone_svg
from tests.builders.documents import HOSTILE, comparison, metric, series, side

pytest.importorskip("vl_convert", reason="charts need vl-convert-python")


def charts() -> dict[str, Chart]:
    made = comparison(
        metric("bare", HOSTILE, workload=HOSTILE),
        sides=(side("bare", device_label=f"CPU ({HOSTILE}), not a GPU"), side(HOSTILE)),
        pair_series=(series(workload=HOSTILE),),
    )
    return {chart.name: chart for chart in report_on(made).charts}


def test_hostile_names_are_texts_of_the_drawing() -> None:
    for chart in charts().values():
        drawn = inline_svg(chart)
        assert "<script" not in drawn
        assert "&lt;script&gt;" in drawn
        tags = {element.tag for element in ET.fromstring(drawn).iter()}
        assert tags <= svg.ELEMENTS


def test_drawings_can_stand_on_one_page_for_they_have_no_ids_and_refer_to_nothing() -> None:
    for chart in charts().values():
        drawn = inline_svg(chart)
        assert not re.search(r"\s(id|href|xlink:href|on\w+|style)=|url\(", drawn)


def test_a_drawing_says_what_it_is() -> None:
    root = ET.fromstring(inline_svg(charts()["overview-1"]))
    assert root.get("role") == "graphics-document document"
    assert "not a GPU" in root.get("aria-label", "")
    assert root.get("tabindex") == "0"
    marks = [element for element in root.iter() if element.get("role") == "graphics-symbol"]
    assert len(marks) == 1
    assert "+3.2 % (95 % CI +2.6 to +3.9)" in marks[0].get("aria-label", "")


def test_dots_are_circles() -> None:
    root = ET.fromstring(inline_svg(charts()["pairs-1"]))
    assert len([element for element in root.iter("circle") if element.get("r") == "2.3"]) == 3


def test_a_file_of_its_own_has_paper_title_and_dark_colours() -> None:
    text = standalone_svg(charts()["overview-1"], "gputax report, gputax 0")
    assert text.startswith("<!-- gputax report")
    root = ET.fromstring(text)
    namespace = "{http://www.w3.org/2000/svg}"
    assert "not a GPU" in (root.findtext(f"{namespace}title") or "")
    assert "prefers-color-scheme: dark" in (root.findtext(f"{namespace}style") or "")
    assert root.find(f"{namespace}rect") is not None


def test_an_element_that_is_not_ours_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    bad = '<svg xmlns="http://www.w3.org/2000/svg"><script>1</script></svg>'
    monkeypatch.setattr(svg, "draw", lambda spec: bad)
    with pytest.raises(GputaxError, match="script"):
        inline_svg(charts()["overview-1"])


def test_drawing_fetches_nothing() -> None:
    spec = {"data": {"url": "http://127.0.0.1:9/x.csv"}, "mark": "point", "encoding": {"x": {"field": "a"}}}
    with pytest.raises(ValueError, match="External data url not allowed"):
        svg.draw(spec)
