"""Runs: the cells of a plan measured in one environment, or those of an earlier run measured again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gputax.api.variables import variables_named, variables_set
from gputax.errors import UsageError
from gputax.plan.cells import Cell, StrPath, plan_id
from gputax.plan.options import EnvironmentOptions
from gputax.plan.suites import load_plan

if TYPE_CHECKING:
    from gputax.measure.run.like import LikePlan
    from gputax.measure.view import RunView
    from gputax.results.documents.run import RunRecord


def run(
    plan: Sequence[Cell] | None = None,
    *,
    out: StrPath | None = None,
    repeats: int = 1,
    overwrite: bool = False,
    stall_timeout_s: float = 0.0,
    options: EnvironmentOptions | None = None,
    view: RunView | None = None,
    **variables: object,
) -> RunRecord:
    """Measure the cells of a plan (default: `load_plan()`) into a directory; the same call resumes an unfinished one.

    With `repeats` every cell is measured N times, each by a new worker; a complete run in `out` is extended by
    the repeats that it lacks. `variables` are options such as `soft_kernel_us=125`.
    """
    if repeats < 1:
        raise UsageError(f"{repeats} repeats measure nothing", next_step="repeats=5")
    from gputax.measure.run.execution import Run
    from gputax.measure.view import SilentView

    settings = variables_named(variables)
    cells = tuple(load_plan() if plan is None else plan)
    directory = run_directory(cells, out)
    with variables_set(settings):
        return Run(
            cells,
            directory,
            view or SilentView(),
            repeats=repeats,
            overwrite=overwrite,
            stall_timeout_s=stall_timeout_s,
            options=options,
        ).execute()


def plan_like(
    directory: StrPath,
    environment: str = "bare",
    *,
    workloads: Sequence[str] = (),
    scenarios: Sequence[str] = (),
    batches: Sequence[int] = (),
    **options: Any,
) -> LikePlan:
    """Return the cells of an earlier run for another environment, with its rates, bounds, threads and inputs.

    `run(like.cells, repeats=like.repeats)` measures what `compare` can then judge. Options such as `threads=4` win;
    what they contradict is in `contradictions`.
    """
    from gputax.measure.run.like import plan_like as planned
    from gputax.places import refuse_unknown
    from gputax.results.reading import RUN
    from gputax.results.store import read_document

    refuse_unknown(environment)
    record = read_document(RUN, Path(directory))
    return planned(
        record,
        str(directory),
        environment,
        workloads=workloads,
        scenarios=scenarios,
        batches=batches,
        options=options,
    )


def run_directory(cells: Sequence[Cell], out: StrPath | None) -> Path:
    """Return the directory of a run: `out`, else results/ENV-TIME, or the unfinished directory of the same plan."""
    from gputax.results.reading import RUN
    from gputax.results.store import default_directory

    cells = tuple(cells)
    if not cells:
        raise UsageError("the plan has no cells", next_step="gputax.load_plan()")
    return Path(out) if out else default_directory(Path("results"), RUN, plan_id(cells), cells[0].environment)
