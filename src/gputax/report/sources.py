"""Read the sources of a report: run directories, comparisons and sharing experiments, from disk alone."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from gputax.compare.document import compare_sources
from gputax.compare.matching import is_foreign, read_given, serving_format
from gputax.errors import GputaxError, ResultsError
from gputax.plan.budgets import Budgets
from gputax.plan.environment import BARE
from gputax.report.distributions import CellShape, Curve, cell_shape, duet_curve, pooled_curve
from gputax.report.wording import plain
from gputax.results.documents import base
from gputax.results.documents.comparison import COMPARISON_NAME, RESOLUTION_NAME, Comparison, Resolution
from gputax.results.documents.run import RECORD_NAME, Benchmark, RepeatedBenchmark, RunRecord
from gputax.results.documents.sharing import SHARING_NAME, SharingRecord
from gputax.results.importers.source import UNKNOWN
from gputax.results.reading import COMPARISON, RESOLUTION, RUN, SHARING, checked, read_json
from gputax.results.store import file_inside, read_document, read_samples

MAGIC = b"PAR1"
# The magic number at both ends and the footer's length: every Parquet file is longer.
SHORTEST_BYTES = 12


@dataclass(frozen=True)
class Unreadable:
    """Samples that nobody can look at again."""

    missing: tuple[str, ...] = ()
    damaged: tuple[str, ...] = ()


ALL_READABLE = Unreadable()


def unreadable(directory: Path, names: Iterable[str]) -> Unreadable:
    """Return which of the named files of a directory are missing or cannot be Parquet."""
    missing, damaged = [], []
    for name in dict.fromkeys(names):
        try:
            if not (directory / name).is_file():
                missing.append(name)
            elif not _whole(directory / name):
                damaged.append(name)
        except OSError:
            damaged.append(name)
    return Unreadable(tuple(missing), tuple(damaged))


def _whole(path: Path) -> bool:
    """Whether both ends are Parquet's; a writer that is killed, or a copy that is cut, leaves no end."""
    size = path.stat().st_size
    if size < SHORTEST_BYTES:
        return False
    with path.open("rb") as file:
        begin = file.read(len(MAGIC))
        file.seek(size - len(MAGIC))
        return begin == MAGIC and file.read() == MAGIC


# What a duet leaves beside its document: every latency of its first and of its second side.
DUET_SAMPLES = ("samples-a.parquet", "samples-b.parquet")
DOCUMENTS = (RECORD_NAME, COMPARISON_NAME, SHARING_NAME)
Telemetry = dict[str, list[float | None]]
Document = TypeVar("Document", bound=base.Document)


@dataclass(frozen=True)
class RunSource:
    """One run directory, its samples reduced to what charts draw."""

    directory: str
    record: RunRecord
    shapes: dict[str, CellShape]
    """By cell; a cell without a samples file is missing here."""
    telemetry: dict[str, Telemetry]
    missing: tuple[str, ...] = ()
    """Files that the record names and the directory does not have."""


@dataclass(frozen=True)
class ComparisonSource:
    """One comparison document and where it lies."""

    path: str
    comparison: Comparison
    curves: tuple[Curve | None, ...] = ()
    """Of a duet: the latencies of each side over all pairs."""
    side_stamps: tuple[str, ...] = ()
    """When its sides were measured, as the files that were compared say; empty where none of them does."""

    @property
    def measured(self) -> tuple[str, ...]:
        """When it was measured: a duet measures when it compares, and files were measured before."""
        return (self.comparison.timestamp,) if self.comparison.kind == "duet" else self.side_stamps


@dataclass(frozen=True)
class SharingSource:
    """One sharing document and where it lies."""

    path: str
    record: SharingRecord
    samples: Unreadable = ALL_READABLE
    """Its samples that cannot be looked at again; the figures are the document's own."""


@dataclass(frozen=True)
class Sources:
    """All that one report shows."""

    runs: tuple[RunSource, ...] = ()
    comparisons: tuple[ComparisonSource, ...] = ()
    sharing: tuple[SharingSource, ...] = ()
    resolutions: tuple[Resolution, ...] = ()
    """The machine against itself, as `gputax demo` stores it beside its parts."""


def read_sources(paths: Sequence[Path]) -> Sources:
    """Read every place: a result directory, a directory of them, or one of their documents.

    Two or more texts, logs or results of other tools are compared with each other.
    """
    foreign = [path for path in paths if is_foreign(path)]
    if len(foreign) == 1 and serving_format(foreign[0]):
        raise ResultsError(
            f"one result of another tool ({serving_format(foreign[0])}): there is nothing to compare it with",
            where=str(foreign[0]),
            next_step="name two of them; `gputax compare BASE OTHER` shows every metric",
        )
    foreign = foreign if len(foreign) > 1 else []
    own = [path for path in paths if path not in foreign]
    documents = list(dict.fromkeys(document for path in own for document in documents_of(path)))
    shared = [path for path in documents if _is_sharing(path)]
    return Sources(
        tuple(read_run(path.parent) for path in documents if path.name == RECORD_NAME),
        (
            *([_compared(foreign)] if foreign else []),
            *(read_compared(path) for path in documents if path.name != RECORD_NAME and path not in shared),
        ),
        tuple(read_sharing(path) for path in shared),
        tuple(
            checked(RESOLUTION, read_json(file), str(file))
            for file in (path / RESOLUTION_NAME for path in paths)
            if file.is_file()
        ),
    )


def _compared(words: Sequence[Path]) -> ComparisonSource:
    """Compare files as `gputax compare` does; the base is the bare machine, else the first."""
    sources, misfits = read_given(words)
    if len(sources) < 2:
        raise misfits[0].error
    bare = [source for source in sources if source.environment == BARE]
    base = bare[0] if len(bare) == 1 else sources[0]
    others = [source for source in sources if source is not base]
    known = ("" if each.environment == UNKNOWN else f"{each.environment}=" for each in (base, *others))
    named = [f"{name}{each.path}" for name, each in zip(known, (base, *others), strict=True)]
    command = shlex.join(["gputax", "compare", *named])
    return comparison_source("", compare_sources(base, others, Budgets(), command=command, misfits=misfits))


def documents_of(path: Path) -> list[Path]:
    """Return the documents that a path of the command line means."""
    if path.is_file():
        _refuse_other_files(path)
        return [path]
    here = [path / name for name in DOCUMENTS if (path / name).is_file()]
    found = here or sorted(each for name in DOCUMENTS for each in path.glob(f"*/{name}") if each.is_file())
    if not found:
        what = "no results here" if path.is_dir() else "no such directory"
        raise ResultsError(
            what,
            where=str(path),
            next_step=f"name a directory that holds {' or '.join(DOCUMENTS)}; `gputax run` makes one",
        )
    return found


def read_run(directory: Path) -> RunSource:
    """Read a run directory; a file that is missing is noted, a file that is broken is an error."""
    record = read_document(RUN, directory)
    shapes, telemetry, missing = {}, {}, []
    for benchmark in record.benchmarks:
        samples = file_inside(directory, benchmark.samples_file)
        if samples.is_file():
            shapes[benchmark.name] = _read_shape(samples, benchmark)
        else:
            missing.append(benchmark.samples_file)
        series = file_inside(directory, benchmark.telemetry_file)
        if series.is_file():
            telemetry[benchmark.name] = _read_telemetry(series)
        else:
            missing.append(benchmark.telemetry_file)
    for cell in record.cells:
        if isinstance(cell, RepeatedBenchmark) and cell.cell in shapes:
            curve = _curve_over_repeats(directory, [each for each in record.benchmarks if each.cell == cell.cell])
            shapes[cell.cell] = CellShape(curve, _rate_over_repeats(cell))
    return RunSource(str(directory), record, shapes, telemetry, tuple(missing))


def _curve_over_repeats(directory: Path, repeats: Sequence[Benchmark]) -> Curve | None:
    """Return the curve of all repeats together, as far as their samples are still there."""
    files = (file_inside(directory, each.samples_file) for each in repeats)
    return pooled_curve(repeats[0].scenario, (read_samples(file) for file in files if file.is_file()))


def _rate_over_repeats(cell: RepeatedBenchmark) -> tuple[float, float] | None:
    half, rate = cell.throughput_half_width_percent, cell.throughput_samples_per_sec
    return None if half is None else (rate * (1.0 - half / 100.0), rate * (1.0 + half / 100.0))


def read_compared(path: Path) -> ComparisonSource:
    """Read a comparison document and the samples that a duet left beside it."""
    source = comparison_source(str(path), read_comparison(path))
    files = [path.parent / name for name in DUET_SAMPLES]
    if source.comparison.kind != "duet" or not all(file.is_file() for file in files):
        return source
    return replace(source, curves=tuple(_read_curve(file) for file in files))


def comparison_source(path: str, comparison: Comparison) -> ComparisonSource:
    """Return the comparison with the times that the files it compared name, as far as they are still there."""
    if comparison.kind == "duet":
        return ComparisonSource(path, comparison)
    # Documents of earlier versions do not have the time of their sides.
    stamps = [side.measured or _stamp_of(Path(side.source)) for side in comparison.sides if side.source]
    return ComparisonSource(path, comparison, side_stamps=tuple(stamp for stamp in stamps if stamp))


def _stamp_of(path: Path) -> str:
    """Return the time that a run record names; nothing for a file that is gone, or that names none."""
    try:
        data = read_json(path / RECORD_NAME if path.is_dir() else path)
    except GputaxError:
        return ""
    stamp = data.get("timestamp") if isinstance(data, dict) else None
    return plain(stamp) if isinstance(stamp, str) else ""


def read_comparison(path: Path) -> Comparison:
    """Read a comparison document, or say why it cannot be one of ours."""
    data = read_json(path)
    if isinstance(data, dict) and "benchmarks" in data:
        raise ResultsError(
            "this is a run record, and its samples are stored with it under its original name",
            where=str(path),
            next_step=f"name the directory that holds it as {RECORD_NAME}",
        )
    return checked(COMPARISON, data, str(path))


def read_sharing(path: Path) -> SharingSource:
    """Read a sharing document, or say why it cannot be one of ours."""
    record = read_document(SHARING, path)
    named = [tenant.samples_file for cell in record.cells for tenant in cell.results]
    for name in named:
        file_inside(path.parent, name)
    # Pairs with neighbours are named nowhere.
    beside = [str(file.relative_to(path.parent)) for file in sorted(path.parent.glob("samples/*.parquet"))]
    return SharingSource(str(path), record, unreadable(path.parent, [*named, *beside]))


def _is_sharing(path: Path) -> bool:
    """Whether the document is a sharing experiment: by its name, and under a name of the user's by what it says."""
    if path.name in DOCUMENTS:
        return path.name == SHARING_NAME
    data = read_json(path)
    return isinstance(data, dict) and data.get("kind") == "sharing"


def cleaned(sources: Sources) -> Sources:
    """Return the sources with every text on one line and printable, whatever was in the files."""
    return Sources(
        tuple(
            RunSource(
                plain(run.directory),
                _clean_document(run.record),
                {plain(cell): shape for cell, shape in run.shapes.items()},
                {plain(cell): series for cell, series in run.telemetry.items()},
                tuple(plain(name) for name in run.missing),
            )
            for run in sources.runs
        ),
        tuple(
            replace(each, path=plain(each.path), comparison=_clean_document(each.comparison))
            for each in sources.comparisons
        ),
        tuple(
            SharingSource(
                plain(each.path),
                _clean_document(each.record),
                Unreadable(
                    tuple(plain(name) for name in each.samples.missing),
                    tuple(plain(name) for name in each.samples.damaged),
                ),
            )
            for each in sources.sharing
        ),
        sources.resolutions,
    )


def _clean_document(document: Document) -> Document:
    return type(document).model_validate(_clean(document.model_dump()))


def _clean(data: Any) -> Any:
    if isinstance(data, str):
        return plain(data)
    if isinstance(data, dict):
        return {plain(str(key)): _clean(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [_clean(value) for value in data]
    return data


def _refuse_other_files(path: Path) -> None:
    """Refuse logs and texts by name: as JSON they would only seem to be cut short."""
    with path.open("rb") as file:
        begin = file.read(64).lstrip()
    if begin and path.suffix != ".json" and not begin.startswith(b"{"):
        raise ResultsError(
            "neither a run record nor a comparison nor a sharing experiment",
            where=str(path),
            next_step=f"name a directory that holds {' or '.join(DOCUMENTS)}; `gputax compare` reads texts "
            "and logs, and writes a comparison with --out DIR",
        )


def _read_shape(path: Path, benchmark: Benchmark) -> CellShape:
    with _placed(path):
        return cell_shape(benchmark.scenario, read_samples(path))


def _read_curve(path: Path) -> Curve | None:
    with _placed(path):
        return duet_curve(read_samples(path))


@contextmanager
def _placed(path: Path) -> Iterator[None]:
    """Say which file an error is about."""
    try:
        yield
    except ResultsError as error:
        error.where = error.where or str(path)
        raise


def _read_telemetry(path: Path) -> Telemetry:
    data = read_json(path)
    if not isinstance(data, dict) or not all(isinstance(column, list) for column in data.values()):
        raise ResultsError("not telemetry: columns of numbers are expected", where=str(path))
    for name, column in data.items():
        for value in column:
            if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
                raise ResultsError(f"not telemetry: {plain(name)} holds {plain(repr(value))}", where=str(path))
    if len({len(column) for column in data.values()}) > 1:
        raise ResultsError("not telemetry: columns of unequal length", where=str(path))
    return data
