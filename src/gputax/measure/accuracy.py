"""The accuracy of a model on a dataset: LoadGen's accuracy mode, and what its answers are worth."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from gputax.errors import CellError, UsageError
from gputax.measure.session import Observation, WorkerSession
from gputax.plan.cells import Load, Setup
from gputax.plan.claims import computes_nothing
from gputax.plan.notices import Notice
from gputax.results.documents.accuracy import AccuracyRecord
from gputax.results.documents.base import WarningRecord
from gputax.worker.loads.loadgen import ACCURACY_LOG
from gputax.worker.workloads.dataset import read_map
from gputax.worker.workloads.squad import answers_of, mean_f1, read_features, responses

# What MLPerf's reference models reach (fp32), and the shares of it that a submission must reach.
TARGETS: dict[str, tuple[Literal["top1", "f1"], float, tuple[float, ...]]] = {
    "resnet50": ("top1", 76.46, (0.99,)),
    "bert-large": ("f1", 90.874, (0.99, 0.999)),
}
SEEDED = "accuracy needs real weights: with seeded ones this checks the pipeline, and the figure means nothing"


def top1(data: Sequence[Mapping[str, Any]], labels: Sequence[int]) -> float:
    """Return how many of the answers of LoadGen's accuracy log are the label, in percent."""
    right = sum(
        int(np.frombuffer(bytes.fromhex(entry["data"]), np.int64)[0]) == labels[int(entry["qsl_idx"])] for entry in data
    )
    return 100.0 * right / len(labels)


def measure_accuracy(session: WorkerSession, setup: Setup, samples: int) -> tuple[AccuracyRecord, Observation]:
    """Run the whole dataset through the prepared worker, once, and judge its answers."""
    refuse_null_kernels(str(session.facts.get("device_name") or ""))
    load = Load("offline", batch_size=setup.max_batch, min_queries=1, accuracy_samples=samples)
    observation = session.apply(load)
    data = read_log(observation.logs.get(ACCURACY_LOG, ""), samples)
    metric, reference, shares = TARGETS[setup.workload]
    value = accuracy_of(setup.workload, Path(setup.dataset), data)
    facts = session.facts
    seeded = facts.get("weights") == "seeded"
    notices = [Notice("seeded-accuracy", SEEDED)] if seeded else []
    return AccuracyRecord(
        workload=setup.workload,
        dataset=setup.dataset,
        samples=samples,
        samples_sha256=facts.get("samples_sha256"),
        metric=metric,
        value_percent=value,
        reference_percent=reference,
        meaningful=not seeded,
        meets={f"{100 * share:g} % of the reference": value >= share * reference for share in shares}
        if not seeded
        else {},
        engine=str(facts.get("engine")),
        provider=str(facts.get("provider")),
        device=str(facts.get("device")),
        precision=str(facts.get("precision")),
        weights=str(facts.get("weights")),
        weights_sha256=facts.get("weights_sha256"),
        warnings=tuple(map(WarningRecord.of, notices)),
    ), observation


def read_log(text: str, samples: int) -> list[dict[str, Any]]:
    """Read LoadGen's accuracy log; an answer that lacks or comes twice is an error."""
    try:
        data: list[dict[str, Any]] = json.loads(text)
        seen = sorted(int(entry["qsl_idx"]) for entry in data)
    except (ValueError, KeyError, TypeError) as error:
        raise CellError(f"LoadGen's accuracy log cannot be read: {error!r}", where=ACCURACY_LOG) from error
    if seen != list(range(samples)):
        raise CellError(
            f"LoadGen's accuracy log has {len(seen)} answers instead of one for each of {samples}", where=ACCURACY_LOG
        )
    return data


def accuracy_of(workload: str, folder: Path, data: Sequence[Mapping[str, Any]]) -> float:
    """Return the metric of the workload, in percent."""
    if workload == "resnet50":
        return top1(data, [image.label for image in read_map(folder)])
    questions, features = read_features(folder)
    return mean_f1(answers_of(questions, features, responses(data)), questions)


def refuse_null_kernels(device_name: str) -> None:
    """Reject a device whose outputs are not answers, before LoadGen asks it for any."""
    if computes_nothing(device_name):
        raise UsageError(
            "null kernels compute nothing: their outputs are never answers",
            where=device_name,
            next_step="measure accuracy on a device that computes, e.g. --device cpu",
        )


def refuse_without_accuracy(workload: str, dataset: str) -> None:
    """Reject what has no accuracy mode."""
    if workload not in TARGETS:
        raise UsageError(f"there is no accuracy mode for {workload}", next_step=f"use {' or '.join(TARGETS)}")
    if not dataset:
        raise UsageError("accuracy needs a dataset", next_step="add --dataset DIR (docs/accuracy.md)")
