"""Draw a spec as SVG, offline, and make it small and safe to put into a page.

Drawn here once instead of by Vega in the reader's browser: Vega's bundle is 898 KB of script for every report, needs
`eval`, and shows nothing in a mail preview or on paper. A chart drawn here is 5 to 25 KB.
"""

from __future__ import annotations

import importlib.util
import re
from xml.etree import ElementTree as ET

from gputax.errors import GputaxError
from gputax.report.charts.theme import FONT, PALETTE
from gputax.report.model import Chart, Spec

VEGA_LITE = "6.4"
NAMESPACE = "http://www.w3.org/2000/svg"
# All that our charts are made of. Anything else (script, image, foreignObject, a link) is not ours.
ELEMENTS = frozenset({"svg", "g", "path", "line", "text", "tspan", "rect", "circle"})
# Said once on the root, or by default.
REDUNDANT = frozenset({"class", "pointer-events", "font-family", "stroke-miterlimit", "aria-hidden", "version"})
CIRCLE = re.compile(r"M([\d.]+),0A\1,\1,0,1,1,-\1,0A\1,\1,0,1,1,\1,0")
NUMBER = re.compile(r"-?\d+\.\d+(?:e-?\d+)?")
PLACE = re.compile(r"translate\(([-\d.]+),([-\d.]+)\)")


class ChartsUnavailable(GputaxError):
    """The chart renderer is not installed; everything else of a report still works."""


def charts_available() -> bool:
    """Whether the renderer is installed, without loading its 80 MB."""
    return importlib.util.find_spec("vl_convert") is not None


def draw(spec: Spec) -> str:
    """Return the SVG as Vega draws it; nothing is fetched."""
    try:
        import vl_convert
    except ImportError as error:
        raise ChartsUnavailable(
            "charts cannot be drawn: vl-convert-python is not installed",
            next_step="pip install vl-convert-python; tables work without it",
        ) from error
    return str(vl_convert.vegalite_to_svg(spec, vl_version=VEGA_LITE, allowed_base_urls=[]))


def inline_svg(chart: Chart) -> str:
    """Return the chart for a page: focusable, labelled, coloured by the page's own rules."""
    root = _reduced(draw(chart.spec))
    root.set("role", "graphics-document document")
    root.set("aria-roledescription", "chart")
    root.set("aria-label", chart.title)
    root.set("tabindex", "0")
    return ET.tostring(root, encoding="unicode")


def standalone_svg(chart: Chart, comment: str) -> str:
    """Return the chart as a file: on paper of its own, which is dark where the reader's screen is."""
    root = _reduced(draw(chart.spec))
    width, height = float(root.get("width", "0")), float(root.get("height", "0"))
    margin = 14
    root.set("xmlns", NAMESPACE)
    root.set("viewBox", f"{-margin} {-margin} {width + 2 * margin:g} {height + 2 * margin:g}")
    root.set("width", f"{width + 2 * margin:g}")
    root.set("height", f"{height + 2 * margin:g}")
    style = ET.Element("style")
    style.text = f"@media (prefers-color-scheme: dark) {{ {dark_rules()} }}"
    title = ET.Element("title")
    title.text = chart.title
    place = {"x": str(-margin), "y": str(-margin), "width": "100%", "height": "100%"}
    root[:0] = [title, style, ET.Element("rect", {**place, "fill": PALETTE["paper"][0]})]
    return f"<!-- {comment} -->\n{ET.tostring(root, encoding='unicode')}\n"


def dark_rules() -> str:
    """Return the rules that turn each colour of a chart into its dark partner."""
    return " ".join(
        f'[fill="{light}"] {{ fill: {dark} }} [stroke="{light}"] {{ stroke: {dark} }}'
        for light, dark in PALETTE.values()
    )


def _reduced(svg: str) -> ET.Element:
    root = ET.fromstring(svg)
    _reduce(root)
    root.attrib.pop("xmlns", None)
    root.set("font-family", FONT)
    return root


def _reduce(element: ET.Element) -> None:
    """Drop what draws nothing or says what is said already: about half of the file."""
    element.tag = element.tag.removeprefix(f"{{{NAMESPACE}}}")
    if element.tag not in ELEMENTS:
        raise GputaxError(f"a chart holds the element {element.tag!r}, which is not drawn by us")
    for name, value in list(element.attrib.items()):
        if name in REDUNDANT or (name == "opacity" and value == "1"):
            del element.attrib[name]
        elif name in ("aria-label", "role", "aria-roledescription"):
            if not _speaks(element):
                del element.attrib[name]
        elif value and name in ("d", "transform", "x2", "y2", "x", "y"):
            element.set(name, NUMBER.sub(_rounded, value))
    if element.attrib.get("transform") == "translate(0,0)":
        del element.attrib["transform"]
    for child in list(element):
        _reduce(child)
    element[:] = [kept for child in element for kept in _unwrapped(child)]
    _as_circle(element)


def _speaks(element: ET.Element) -> bool:
    """Whether this is one of the marks that carry a sentence of their own."""
    return (
        element.tag in ("path", "circle")
        and element.get("role") == "graphics-symbol"
        and "aria-label" in element.attrib
    )


def _unwrapped(element: ET.Element) -> list[ET.Element]:
    """Return nothing for what draws nothing, and the children alone for a group that groups nothing."""
    if element.get("display") == "none" or element.get("d") in ("", "M0,0h0v0h0Z") or set(element.attrib) == {"d"}:
        return []
    if element.tag == "g" and not element.attrib:
        return list(element)
    return [] if element.tag == "g" and not len(element) else [element]


def _as_circle(element: ET.Element) -> None:
    """Write a dot as `<circle>`: a third of the bytes, and there are hundreds of them."""
    found = CIRCLE.fullmatch(element.get("d", "")) if element.tag == "path" else None
    place = PLACE.fullmatch(element.get("transform", "")) if found else None
    if found and place:
        element.tag = "circle"
        del element.attrib["d"], element.attrib["transform"]
        element.attrib.update(cx=place[1], cy=place[2], r=found[1])


def _rounded(number: re.Match[str]) -> str:
    return f"{round(float(number[0]), 1):g}"
