"""Write the report as one page that needs nothing else: no network, no other file, and no script to be read."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import replace
from html import escape
from importlib.resources import files

from gputax import __version__
from gputax.report.charts.theme import PALETTE
from gputax.report.model import Cell, Chart, Column, Fact, Report, Section, Table
from gputax.report.svg import ChartsUnavailable, inline_svg
from gputax.report.wording import MARKS, counted

VOID = frozenset({"meta", "link", "br", "hr"})


class Markup(str):
    """A piece of HTML that was built here."""

    __slots__ = ()


def element(name: str, /, *children: str | Markup, **attributes: str | bool) -> Markup:
    """Return an element; `class_` is written as class, `aria_label` as aria-label, False leaves an attribute out."""
    written = "".join(
        f" {key.rstrip('_').replace('_', '-')}" + ("" if value is True else f'="{escape(value, quote=True)}"')
        for key, value in attributes.items()
        if value is not False
    )
    if name in VOID:
        return Markup(f"<{name}{written}>")
    return Markup(f"<{name}{written}>{joined(*children)}</{name}>")


def joined(*children: str | Markup) -> Markup:
    """Return the children one after another, texts escaped."""
    return Markup("".join(child if isinstance(child, Markup) else escape(child, quote=False) for child in children))


GENERATOR = f"gputax {__version__}"
# Beyond this many, the mild warnings wait behind a click; those that concern validity never do.
WARNINGS_AT_ONCE = 6
# A longer chart would push the tables out of sight.
ROWS_AT_ONCE = 10


def html_page(report: Report) -> str:
    """Return the whole page."""
    script = _resource("page.js")
    body = joined(
        element("a", "Skip to the answer", class_="skip", href="#answer"),
        _header(report),
        element(
            "main",
            _overview(report),
            _contents(report),
            _details(report),
            _warnings(report),
            *(_section(section) for section in report.sections),
            _reproduce(report),
        ),
        element("footer", f"Written by {GENERATOR} from {', '.join(report.sources) or 'a comparison in memory'}."),
        element("script", Markup(script)),
    )
    return f"<!doctype html>\n{element('html', _head(report, script), element('body', body), lang='en')}\n"


def _head(report: Report, script: str) -> Markup:
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    # Even if some text were to escape its escaping, no script but ours would run and nothing would be fetched.
    policy = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; "
    policy += f"script-src 'sha256-{digest}'"
    return element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="generator", content=GENERATOR),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", f"{report.title} – gputax"),
        element("style", Markup(_colours() + _resource("page.css"))),
    )


def _colours() -> str:
    """Return the palette as variables, and the rules that colour the charts by them."""
    names = {role: f"--{role.replace(' ', '-')}" for role in PALETTE}
    light = ";".join(f"{names[role]}:{pair[0]}" for role, pair in PALETTE.items())
    dark = ";".join(f"{names[role]}:{pair[1]}" for role, pair in PALETTE.items())
    charts = "".join(
        f'svg [fill="{pair[0]}"]{{fill:var({names[role]})}}svg [stroke="{pair[0]}"]{{stroke:var({names[role]})}}'
        for role, pair in PALETTE.items()
    )
    # Paper is light: dark colours are for screens only.
    return f":root{{{light}}}\n@media screen and (prefers-color-scheme:dark){{:root{{{dark}}}}}\n{charts}\n"


def _header(report: Report) -> Markup:
    devices = [element("span", device, class_="device") for device in report.devices]
    return element(
        "header",
        element("span", "gputax", class_="brand"),
        element("span", *devices, class_="devices"),
        element("span", report.measured, class_="when"),
    )


def _overview(report: Report) -> Markup:
    """Return the first screen: the title, one chart, three numbers."""
    overview = report.overview
    numbers = [
        element("div", element("dt", number.label), element("dd", _glued(number.text))) for number in overview.numbers
    ]
    return element(
        "section",
        element("h1", _glued(overview.title.text), class_=_tone(overview.title.tone) or False),
        element(
            "div",
            Markup() if overview.chart is None else _charts((_without_title(overview.chart),), small=False),
            element("dl", *numbers, class_="numbers") if numbers else Markup(),
            class_="glance",
        ),
        id="answer",
        class_="answer",
    )


def _without_title(chart: Chart) -> Chart:
    """Return the first chart as the page shows it: title, device and date are already above it."""
    return replace(chart, spec={key: value for key, value in chart.spec.items() if key != "title"})


def _details(report: Report) -> Markup:
    """Return the answer in full: its sentences, its table and the charts that go with it."""
    return element(
        "section",
        element("h2", report.question),
        *(
            element("p", _glued(fact.text), class_=f"more {_tone(fact.tone)}".strip())
            for fact in (report.answer, *report.more_answers)
        ),
        element("ul", *(_fact(fact) for fact in report.facts), class_="facts") if report.facts else Markup(),
        _answer_charts(report),
        Markup() if report.answer_table is None else _table(report.answer_table, "cards"),
        id="details",
    )


def _answer_charts(report: Report) -> Markup:
    """Return the charts of the answer; behind a click where they have one row for each of very many metrics."""
    charts = _charts(report.answer_charts, small=False)
    metrics = [chart for chart in report.answer_charts if chart.name.startswith("overhead")]
    if all(len(chart.spec["data"]["values"]) <= ROWS_AT_ONCE for chart in metrics):
        return charts
    return element("details", element("summary", "Show every metric as a chart"), charts)


def _contents(report: Report) -> Markup:
    links = [("details", "The answer in full")]
    links += [("warnings", f"Warnings ({len(report.warnings)})")] if report.warnings else []
    links += [(section.name, section.title) for section in report.sections]
    links.append(("reproduce", "How to reproduce"))
    return element(
        "nav",
        element("ul", *(element("li", element("a", title, href=f"#{name}")) for name, title in links)),
        aria_label="Contents",
    )


def _warnings(report: Report) -> Markup:
    if not report.warnings:
        return Markup()
    grave = [warning for warning in report.warnings if warning.tone == "fail"]
    mild = [warning for warning in report.warnings if warning.tone != "fail"]
    at_once, rest = (mild, []) if len(mild) <= WARNINGS_AT_ONCE else ([], mild)
    folded = Markup()
    if rest:
        summary = element("summary", f"{counted(len(rest), 'warning')} about the conditions")
        folded = element("details", summary, element("ul", *(_fact(fact) for fact in rest)))
    listed = element("ul", *(_fact(fact) for fact in (*grave, *at_once))) if grave or at_once else Markup()
    return element("section", element("h2", "Warnings"), listed, folded, id="warnings", class_="warnings")


def _section(section: Section) -> Markup:
    body = joined(
        *(element("p", caption, class_="intro") for caption in _captions(section)),
        _charts(section.charts, small=section.small),
        *(_table(table) for table in section.tables),
        _notes(section.notes),
    )
    if section.folded:
        body = element("details", element("summary", _contents_of(section)), body)
    return element("section", element("h2", section.title), body, id=section.name)


def _captions(section: Section) -> list[str]:
    """Return what explains the charts of a section, each thing once."""
    return list(dict.fromkeys([*section.intro.splitlines(), *(chart.caption for chart in section.charts)]))


def _contents_of(section: Section) -> str:
    parts = [(len(section.charts), "chart"), (len(section.tables), "table")]
    return "Show " + " and ".join(counted(count, noun) for count, noun in parts if count)


def _charts(charts: tuple[Chart, ...], *, small: bool) -> Markup:
    if not charts:
        return Markup()
    try:
        return element("div", *(_figure(chart) for chart in charts), class_="charts small" if small else "charts")
    except ChartsUnavailable as error:
        return element("p", f"{error.what}; {error.next_step}.", class_="note")


def _figure(chart: Chart) -> Markup:
    below = Markup()
    if chart.table is not None:
        below = element("details", element("summary", "The numbers"), _table(chart.table))
    elif chart.headline:
        below = element("figcaption", chart.caption)
    return element("figure", Markup(inline_svg(chart)), below, id=chart.name)


def _table(table: Table, look: str = "") -> Markup:
    columns = table.shown_columns
    head = element("tr", *(_heading(column) for column in columns))
    rows = [
        element("tr", *(_cell(cell, columns[i], first=i == 0) for i, cell in enumerate(row)))
        for row in table.shown_rows
    ]
    grid = element("table", element("thead", head), element("tbody", *rows), class_=look or False)
    return element(
        "div",
        element("h3", table.title),
        # Scrolled by the arrow keys too: a wide table is a stop of the Tab key.
        element("div", grid, class_="scroll", tabindex="0", role="region", aria_label=table.title),
        _notes(table.notes),
        class_=f"table {look}".strip(),
    )


def _notes(notes: tuple[str, ...]) -> Markup:
    return element("ul", *(element("li", note) for note in notes), class_="notes") if notes else Markup()


def _heading(column: Column) -> Markup:
    unit = joined(" ", element("span", column.unit, class_="unit")) if column.unit else Markup()
    return element("th", column.title, unit, scope="col", class_="number" if column.align == "right" else False)


def _cell(cell: Cell, column: Column, *, first: bool) -> Markup:
    classes = " ".join(part for part in ("number" if column.align == "right" else "", _tone(cell.tone)) if part)
    detail = element("small", _glued(cell.detail)) if cell.detail else Markup()
    content = element("span", cell.text, class_="pill") if cell.tone in MARKS and column.key == "verdict" else cell.text
    attributes = {"class_": f"{column.key} {classes}".strip(), "data_title": column.heading}
    return element("th" if first else "td", content, detail, scope="row" if first else False, **attributes)


def _fact(fact: Fact) -> Markup:
    return element("li", _spans(_glued(fact.text)), class_=_tone(fact.tone) or False)


def _reproduce(report: Report) -> Markup:
    commands = element("pre", element("code", "\n".join(report.commands)), tabindex="0", aria_label="Commands")
    note = _spans("How long each load was is in the run record, under `load`.")
    return element(
        "section", element("h2", "How to reproduce"), commands, element("p", note, class_="note"), id="reproduce"
    )


def _spans(text: str) -> Markup:
    """Return the text with everything between backticks as code."""
    parts = text.split("`")
    if len(parts) % 2 == 0:
        return joined(text)
    return joined(*(element("code", part) if i % 2 else part for i, part in enumerate(parts)))


def _glued(text: str) -> str:
    """Return the text with its units held to their numbers: no line begins with a percent sign."""
    return text.replace(" %", "\N{NO-BREAK SPACE}%").replace(" ms", "\N{NO-BREAK SPACE}ms")


def _tone(tone: str) -> str:
    return f"tone-{tone.replace(' ', '-')}" if tone else ""


def _resource(name: str) -> str:
    return files("gputax.report.exporters").joinpath(name).read_text(encoding="utf-8")
