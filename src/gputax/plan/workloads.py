"""Facts of each workload that are known without loading it: names, sizes, latency bounds and their sources."""

from __future__ import annotations

from dataclasses import dataclass

from gputax.errors import unknown_name
from gputax.plan.micro import OPERATIONS, known_names


@dataclass(frozen=True)
class WorkloadFacts:
    """The facts of a workload that a plan needs; the graph itself is in the worker."""

    name: str
    title: str
    server_bound_ms: float
    bound_source: str
    official_sample_count: int
    offline_min_samples: int
    is_mlperf_model: bool
    gflop: float = 0.0
    """Work of one sample, counted from its layers (a multiply-add is two); for estimates of time only."""


# Bounds and sample counts are those of LoadGen's built-in configuration (6.0.17). YOLOS-small is not in MLPerf:
# 100 ms is ours, the bound MLPerf gives to its detector of similar size (RetinaNet).
WORKLOADS: dict[str, WorkloadFacts] = {
    "resnet50": WorkloadFacts("resnet50", "ResNet-50 v1.5, 224x224", 15.0, "MLPerf", 1024, 24576, True, 8.2),
    "bert-large": WorkloadFacts(
        "bert-large", "BERT-Large QA, sequence 384", 130.0, "MLPerf", 10833, 10833, True, 246.0
    ),
    "yolos-small": WorkloadFacts("yolos-small", "YOLOS-small, 512x864", 100.0, "ours", 64, 24576, False, 140),
}

SYNONYMS = {
    "resnet": "resnet50",
    "resnet-50": "resnet50",
    "bert": "bert-large",
    "yolos": "yolos-small",
    "yolo": "yolos-small",
    "launch": "micro:launch",
    "operation": "micro:operation",
}


def workload_facts(name: str) -> WorkloadFacts:
    """Return the facts of the workload, or raise with the valid names."""
    if name in OPERATIONS:
        return WorkloadFacts(name, OPERATIONS[name].title, 0.0, "none", 1, 1, False)
    if name not in WORKLOADS:
        raise unknown_name("workload", name, known_names(tuple(WORKLOADS)), SYNONYMS)
    return WORKLOADS[name]
