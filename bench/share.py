"""Do seven tenants on two cores really run together, and does every sample of theirs reach the disk?

The machine's two first cores, seven tenants of ResNet-50 with one thread each, both stand-ins for sharing. The overlap
is the worst of all cells: the part of a cell's time, from the release to the last tenant's end, in which all ran.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gputax.environments.connection import WorkerConnection
from gputax.measure.share.execution import ShareRequest, measure_sharing
from gputax.measure.view import SilentView
from gputax.plan.cells import Setup
from gputax.plan.techniques import SharePlan
from gputax.results.store import read_samples
from gputax.sharing.bare import BareShared

TENANTS = 7
CORES = 2
REPEATS = 3
WINDOW_S = 8.0


def share_figures() -> dict[str, Any]:
    """Return the worst overlap of all cells, and how many samples were reported by workers and not found on disk."""
    setup = Setup("resnet50", threads=1, sample_count=1, max_batch=1)
    plan = SharePlan("bare", ("cpu-shared", "cpu-quota"), (TENANTS,), setup, repeats=REPEATS, window_s=WINDOW_S)
    with tempfile.TemporaryDirectory() as directory, _cores(CORES), _listening() as reported:
        out = Path(directory) / "share"
        record = measure_sharing(ShareRequest(plan, out, optional=True), BareShared(), SilentView())
        if record.failures:
            raise RuntimeError(f"cells failed: {[failure.what for failure in record.failures]}")
        stored = sum(len(read_samples(out / cell.results[0].samples_file)["tenant"]) for cell in record.cells)
    overlaps = [cell.overlap_share for cell in record.cells]
    return {
        "share_overlap": min(overlaps),
        "share_overlap_median": statistics.median(overlaps),
        "share_overlap_cells": overlaps,
        "share_tenants": TENANTS,
        "share_samples": sum(reported),
        "share_lost_samples": sum(reported) - stored,
        "share_jain": {cell.cell: cell.jain for cell in record.cells},
        "share_valid_cells": sum(cell.valid for cell in record.cells),
    }


@contextmanager
def _cores(count: int) -> Iterator[None]:
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, set(sorted(before)[:count]))
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextmanager
def _listening() -> Iterator[list[int]]:
    """Write down how many rows each worker says that it recorded; the first run of all is dropped by design."""
    reported: list[int] = []
    real = WorkerConnection.call

    def call(self: WorkerConnection, op: str, **words: Any) -> dict[str, Any]:
        answer = real(self, op, **words)
        if op == "measure" and words["load"]["min_duration_s"] > 0:
            reported.append(int(answer["rows"]))
        return answer

    WorkerConnection.call = call  # type: ignore[method-assign]
    try:
        yield reported
    finally:
        WorkerConnection.call = real  # type: ignore[method-assign]


if __name__ == "__main__":
    json.dump(share_figures(), sys.stdout, indent=2)
    print()
