"""Results on disk: read them, compare them, report them, and ask for advice."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from gputax.errors import ResultsError, UsageError
from gputax.plan.cells import StrPath

if TYPE_CHECKING:
    from gputax.advise.advice import Advice
    from gputax.report.model import Report
    from gputax.report.output import Format
    from gputax.results.documents.comparison import Comparison
    from gputax.results.documents.run import RunRecord
    from gputax.results.documents.sharing import SharingRecord

    Results: TypeAlias = RunRecord | Comparison | SharingRecord


def compare(
    base: StrPath,
    *others: StrPath,
    budgets: Sequence[str] = (),
    suite: str = "",
    force: bool = False,
    accept_disturbed: bool = False,
    spread_from: StrPath = "",
    command: str = "",
) -> Comparison:
    """Compare results on disk: our directories, LoadGen's output, older JSON, text files and pod logs.

    `k8s=FILE` says what a file is. One that cannot be compared is skipped with a warning, unless none is left.
    `spread_from` is a run with repeats on this machine; its spread serves sides that were measured once.
    """
    from gputax.plan.suites import wanted_budgets

    wanted = wanted_budgets(budgets, suite)
    from gputax.compare.document import compare_sources
    from gputax.compare.matching import named_path, read_given
    from gputax.results.importers.detect import read_source

    environment, path = named_path(base)
    first = read_source(path, environment)
    rest, misfits = read_given(others)
    return compare_sources(
        first,
        rest,
        wanted,
        force=force,
        accept_disturbed=accept_disturbed,
        command=command,
        misfits=misfits,
        history=read_source(Path(spread_from)) if spread_from else None,
    )


def report(
    *results: StrPath | Report, out: StrPath | None = None, kind: Format | Literal[""] = "", overwrite: bool = False
) -> tuple[Path, ...]:
    """Write the report of result directories; returns the files. Default: report.html in the only directory."""
    from gputax.report.model import Report
    from gputax.report.output import format_of, save_report

    directories = [each for each in results if not isinstance(each, Report)]
    built = results[0] if isinstance(results[0], Report) else build_report(*directories)
    path = Path(out) if out else report_path(directories)
    return save_report(built, kind or format_of(path), path, overwrite=overwrite)


def build_report(*directories: StrPath) -> Report:
    """Return the report of result directories as tables and charts, before it is written in a format."""
    from gputax.report.sources import read_sources
    from gputax.report.story import build_report as built

    return built(read_sources([Path(each) for each in directories]))


def report_path(directories: Sequence[StrPath]) -> Path:
    """Return the path of the page: beside the results, or in the current directory if there are several."""
    only = Path(directories[0])
    if len(directories) > 1:
        return Path("report.html")
    return only / "report.html" if only.is_dir() else only.with_name("report.html")


def read_results(path: StrPath) -> Results:
    """Read a result directory or one of its documents: a run, a comparison or a sharing experiment."""
    from gputax.report.sources import read_sources

    found = read_sources([Path(path)])
    documents: list[Results] = [each.record for each in found.runs]
    documents += [each.comparison for each in found.comparisons]
    documents += [each.record for each in found.sharing]
    if len(documents) != 1:
        raise ResultsError(
            f"found {len(documents)} results, expected one", where=str(path), next_step="name one of their directories"
        )
    return documents[0]


def advise(
    results: StrPath,
    *,
    slo: Sequence[str] = (),
    rate_per_s: float | None = None,
    price_per_hour: float | None = None,
    currency: str = "",
    up_to: int | None = None,
    fit_to: Sequence[int] = (),
) -> Advice:
    """Recommend a technique and a number of tenants that meet a target, from a sharing result or `published:NAME`."""
    from gputax.advise.targets import Question, parse_targets

    for name, value in (("--rate", rate_per_s), ("--price", price_per_hour)):
        if value == 0.0:
            raise UsageError(f"{name} must be above zero", next_step=f"drop it, or e.g. {name} 3.67")
    if currency and price_per_hour is None:
        raise UsageError("--currency without a --price", next_step="e.g. --price 3.67 --currency USD")
    if not slo and rate_per_s is None:
        raise UsageError("no target or rate is given", next_step="e.g. --slo p99=50ms, or --rate 10")
    question = Question(parse_targets(tuple(slo)), rate_per_s, price_per_hour, currency, up_to)
    # Imported here: numpy and pydantic are not needed to refuse a wrong question.
    from gputax.advise.advice import advise as advise_on
    from gputax.advise.table import read_table

    return advise_on(read_table(str(results)), question, tuple(fit_to))
