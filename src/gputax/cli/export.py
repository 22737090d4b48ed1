"""`--export KIND=FILE` of the verbs that compare: reports beside the result, for CI systems and other readers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gputax.cli.report import FORMATS
from gputax.errors import UsageError, unknown_name
from gputax.plan.options import OUTPUT, Option

if TYPE_CHECKING:
    from gputax.report.output import Format
    from gputax.results.documents.comparison import Comparison

EXPORT = Option(
    "export", "Also write a report, e.g. junit=results.xml or summary=FILE, which is appended; may be repeated.", None,
    OUTPUT, multiple=True, metavar="KIND=FILE", key="exports",
)  # fmt: skip
# A step of a workflow has one such file, which several commands write.
APPENDED = ("summary",)


@dataclass(frozen=True)
class Export:
    """One file to write."""

    kind: Format
    path: Path


def wanted_exports(texts: Sequence[str]) -> tuple[Export, ...]:
    """Parse the option; a wrong kind, or a file that is not a report of ours, is refused before a measurement."""
    found = []
    for text in texts:
        name, equals, file = text.partition("=")
        kind = next((known for known in FORMATS if known == name), None)
        if kind is None or not equals or not file:
            if equals and not file:
                raise UsageError(f"--export {text} names no file", next_step=f"--export {name}=FILE")
            raise unknown_name("kind of export", name, FORMATS)
        found.append(Export(kind, Path(file)))
    if found:
        from gputax.report.output import refuse_foreign

        refuse_foreign([each.path for each in found if each.kind not in APPENDED], overwrite=False)
    return tuple(found)


def write_exports(exports: Sequence[Export], comparison: Comparison, where: str = "") -> None:
    """Write each of them and say so on stderr."""
    if not exports:
        return
    from gputax.report.output import report_text, save_report
    from gputax.report.story import report_on
    from gputax.results.files import write_text

    report = report_on(comparison, where)
    for each in exports:
        if each.kind in APPENDED:
            before = each.path.read_text() if each.path.is_file() else ""
            space = "\n\n" if before.strip() else ""
            write_text(each.path, before.rstrip("\n") + space + report_text(report, each.kind))
        else:
            save_report(report, each.kind, each.path)
        click.echo(f"written: {each.path}", err=True)
