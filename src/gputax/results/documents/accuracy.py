"""The accuracy document `accuracy.json`: what share of a dataset a model answered right, and with which weights."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from gputax.results.documents.base import Document, WarningRecord

ACCURACY_NAME = "accuracy.json"


class AccuracyRecord(Document):
    """One run of LoadGen's accuracy mode."""

    schema_version: Literal[1] = 1
    kind: Literal["accuracy"] = "accuracy"
    gputax_version: str = ""
    timestamp: str = ""
    workload: str
    dataset: str
    samples: int = Field(description="images, or windows of text; each was answered once")
    samples_sha256: str | None = None
    metric: Literal["top1", "f1"]
    value_percent: float
    reference_percent: float = Field(description="what MLPerf's reference model reaches on the whole official dataset")
    meaningful: bool = Field(description="false with seeded weights: then only the pipeline was checked")
    meets: dict[str, bool] = Field(default_factory=dict, description="MLPerf's thresholds; empty if not meaningful")
    engine: str
    provider: str
    device: str
    precision: str
    weights: str
    weights_sha256: str | None = None
    warnings: tuple[WarningRecord, ...] = ()
