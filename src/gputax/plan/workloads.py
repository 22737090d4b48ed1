"""Facts of each workload that are known without loading it: names, sizes, latency bounds, the operations of `micro`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gputax.errors import unknown_name
from gputax.plan.engines import DEFAULT_ENGINE, MODULE_ENGINE
from gputax.plan.language_models import LANGUAGE_MODEL, decoder_size, is_language_model, language_model_name
from gputax.plan.own_model import is_module, is_own


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
    tpot_bound_ms: float = 0.0
    """A language model's bound of the time per further token; its `server_bound_ms` is that of the first token."""


def _language_model(name: str) -> WorkloadFacts:
    """Return the facts of a language model; the bounds are those of MLPerf's smallest, Llama 3.1 8B interactive."""
    size = decoder_size(name)
    title = f"Llama-like decoder, {size.layers} layers of {size.hidden}, {size.prompt} tokens in, {size.output} out"
    return WorkloadFacts(
        language_model_name(name), title, 500.0, "MLPerf's Llama 3.1 8B interactive", 64, 24576, False, size.gflop, 30.0
    )


# Bounds and sample counts are those of LoadGen's built-in configuration (6.0.17). YOLOS-small is not in MLPerf:
# 100 ms is ours, the bound MLPerf gives to its detector of similar size (RetinaNet).
WORKLOADS: dict[str, WorkloadFacts] = {
    "resnet50": WorkloadFacts("resnet50", "ResNet-50 v1.5, 224x224", 15.0, "MLPerf", 1024, 24576, True, 8.2),
    "bert-large": WorkloadFacts(
        "bert-large", "BERT-Large QA, sequence 384", 130.0, "MLPerf", 10833, 10833, True, 246.0
    ),
    "yolos-small": WorkloadFacts("yolos-small", "YOLOS-small, 512x864", 100.0, "ours", 64, 24576, False, 140),
    LANGUAGE_MODEL: _language_model(LANGUAGE_MODEL),
}

SYNONYMS = {
    "resnet": "resnet50",
    "resnet-50": "resnet50",
    "bert": "bert-large",
    "yolos": "yolos-small",
    "yolo": "yolos-small",
    "llm": LANGUAGE_MODEL,
    "llama": LANGUAGE_MODEL,
    "launch": "micro:launch",
    "operation": "micro:operation",
}


def workload_facts(name: str) -> WorkloadFacts:
    """Return the facts of the workload, or raise with the valid names."""
    if is_own(name):
        return WorkloadFacts(name, name, 0.0, "none", 64, 24576, False)
    if is_language_model(name):
        return _language_model(name)
    if name in OPERATIONS:
        return WorkloadFacts(name, OPERATIONS[name].title, 0.0, "none", 1, 1, False)
    if name not in WORKLOADS:
        raise unknown_name("workload", name, known_names(tuple(WORKLOADS)), SYNONYMS)
    return WORKLOADS[name]


MICRO = "micro"
ENGINE = "driver"
Kind = Literal["operation", "launch", "synchronise", "allocate", "copy-in", "copy-out"]
KIB, MIB = 1024, 1024 * 1024
ALLOCATION_BYTES = MIB
SMALL_COPY_BYTES = 4 * KIB
# Users have measured 100 MB by hand; the other sizes separate the cost per call from the bandwidth.
COPY_SIZES: dict[str, int] = {
    "4KiB": 4 * KIB,
    "64KiB": 64 * KIB,
    "1MiB": MIB,
    "16MiB": 16 * MIB,
    "100MB": 100_000_000,
}
MICRO_SCENARIOS = ("saturate", "single-stream")


@dataclass(frozen=True)
class MicroOperation:
    """One operation; one run of the engine does it once."""

    name: str
    kind: Kind
    title: str
    bytes_per_run: int = 0
    """The bytes for the bandwidth; 0 if there is none."""

    @property
    def bandwidth_metric(self) -> str | None:
        """The name of its bandwidth metric in plan.metrics."""
        return {"copy-in": "host_to_device", "copy-out": "device_to_host"}.get(self.kind)


def _copies(kind: Kind, words: str) -> list[MicroOperation]:
    return [MicroOperation(f"{MICRO}:{kind}-{size}", kind, f"{size} {words}", n) for size, n in COPY_SIZES.items()]


OPERATIONS: dict[str, MicroOperation] = {
    operation.name: operation
    for operation in (
        MicroOperation(f"{MICRO}:operation", "operation", "two 4 KiB copies in, launch, synchronise, 4 KiB copy back"),
        MicroOperation(f"{MICRO}:launch", "launch", "launch of 32 threads, and synchronise"),
        MicroOperation(f"{MICRO}:synchronise", "synchronise", "synchronise with nothing to wait for"),
        MicroOperation(f"{MICRO}:allocate", "allocate", "1 MiB allocated and freed"),
        *_copies("copy-in", "from host to device"),
        *_copies("copy-out", "from device to host"),
    )
}


def engine_for(workload: str, given: str) -> str:
    """Return the given engine, else the workload's default."""
    default = MODULE_ENGINE if is_module(workload) else DEFAULT_ENGINE
    return given or (ENGINE if workload in OPERATIONS else default)


def is_micro(workload: str) -> bool:
    """Whether the name is one of `micro`'s operations."""
    return workload in OPERATIONS


def expanded(workloads: tuple[str, ...]) -> tuple[str, ...]:
    """Return the workloads with `micro` and groups such as `micro:copy-in` expanded, each once and by its one name."""
    found: list[str] = []
    for given in workloads:
        name = language_model_name(given) if is_language_model(given) else given
        group = [each for each in OPERATIONS if name == MICRO or OPERATIONS[each].kind == name.partition(":")[2]]
        found += group if name.split(":")[0] == MICRO and name not in OPERATIONS and group else [name]
    return tuple(dict.fromkeys(found))


def known_names(workloads: tuple[str, ...]) -> tuple[str, ...]:
    """Return every valid name: the models, `micro`, its groups and its operations."""
    groups = (f"{MICRO}:{operation.kind}" for operation in OPERATIONS.values())
    return tuple(dict.fromkeys((*workloads, MICRO, *groups, *OPERATIONS)))
