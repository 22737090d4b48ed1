"""Write verdicts as JUnit XML: one test case per metric, as CI systems show test results."""

from __future__ import annotations

from xml.etree import ElementTree

from gputax import __version__
from gputax.report.exporters.judged_rows import JudgedRow, judged_rows
from gputax.report.model import Report

SIGN = '<testsuites name="gputax'


def junit_text(report: Report) -> str:
    """Return the document: a suite per pair of sides; whatever decides and does not pass is a failure or an error."""
    rows = judged_rows(report)
    root = ElementTree.Element("testsuites", name=f"gputax {__version__}")
    totals = dict.fromkeys(("tests", "failures", "errors", "skipped"), 0)
    for sides in dict.fromkeys(row.sides for row in rows):
        suite = _suite(report, sides, [row for row in rows if row.sides == sides])
        root.append(suite)
        for name in totals:
            totals[name] += int(suite.get(name, "0"))
    for name, count in totals.items():
        root.set(name, str(count))
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _suite(report: Report, sides: str, rows: list[JudgedRow]) -> ElementTree.Element:
    cases = [_case(row) for row in rows]
    suite = ElementTree.Element("testsuite", name=sides, tests=str(len(cases)))
    for attribute, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(attribute, str(sum(case.find(tag) is not None for case in cases)))
    properties = ElementTree.SubElement(suite, "properties")
    known = {"device": "; ".join(dict.fromkeys(row.word("device") for row in rows)), "measured": report.measured}
    known |= {f"fact.{number}": fact.text for number, fact in enumerate(report.facts, start=1)}
    known |= {f"warning.{number}": each.text for number, each in enumerate(report.warnings, start=1)}
    known |= {f"command.{number}": command for number, command in enumerate(report.commands, start=1)}
    for name, value in known.items():
        ElementTree.SubElement(properties, "property", name=name, value=value)
    suite.extend(cases)
    return suite


def _case(row: JudgedRow) -> ElementTree.Element:
    case = ElementTree.Element("testcase", classname=row.sides, name=row.name)
    verdict, reason = row.word("verdict"), row.word("reason")
    if verdict == "fail":
        ElementTree.SubElement(case, "failure", type="over budget", message=reason)
    elif verdict == "not comparable":
        ElementTree.SubElement(case, "error", type="not comparable", message=reason)
    elif verdict != "pass" and row.decides:
        # Undecided is not a pass, and a skipped case would look like one.
        ElementTree.SubElement(case, "error", type="undecided", message=reason)
    elif verdict != "pass":
        ElementTree.SubElement(case, "skipped", message=reason)
    values = f"{row.text('base_value')} to {row.text('other_value')}"
    text = f"{values}, overhead {row.text('overhead')}, budget {row.text('budget')}, on {row.word('device')}"
    ElementTree.SubElement(case, "system-out").text = text
    return case
