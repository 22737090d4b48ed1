"""The engines, one row each, and specifications such as `onnx` or `synthetic:latency_us=1000,seed=7`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from gputax.errors import UsageError, unknown_name

Option = int | float | str | bool


@dataclass(frozen=True)
class EngineKind:
    """One engine: its module, its options, and the claim of its numbers."""

    name: str
    loads: str
    """MODULE:CLASS of the engine, imported only in the worker, and only when used."""
    options: Mapping[str, Option] = field(default_factory=dict)
    """The options with their defaults; the type of the default is the type of the option."""
    choices: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The allowed values of options that are restricted."""
    runs_models: bool = True
    """Whether it takes a workload's graph and inputs; the others have their own work."""
    runs_operations: bool = False
    """Whether it can stand in for an operation of `micro`."""
    uses_driver: bool = False
    """Whether it calls the CUDA driver API itself, so that the driver can be chosen and a proxy can carry it."""
    uses_runtime: bool = False
    """Whether it runs on the CUDA runtime where its device is not the CPU: then the driver can be chosen too."""
    takes_weights: bool = False
    """Whether `--weights` may name a file for it."""
    spins: bool = False
    """Whether its threads spin while they wait, unless an option disables it."""
    overlaps: bool = False
    """Whether it can start a run before the last one is done."""
    internal: bool = False
    """Started by gputax itself and never by a user."""
    claim: str = ""
    """The claim of its numbers, if it needs one."""
    says_nothing_of_devices: bool = False
    """Its numbers are programmed: `claim` is the whole claim."""
    asks_server: bool = False
    """Whether its work is done by a server: the word after the colon is an address, and its option is `url`."""
    generates: str = ""
    """MODULE:CLASS for language models; empty: it cannot run them."""


_COPIES = ("included", "excluded")
ENGINES: dict[str, EngineKind] = {
    kind.name: kind
    for kind in (
        EngineKind(
            "onnx", "gputax.worker.engines.onnx:OnnxEngine",
            {"provider": "auto", "copies": "included", "spin": True, "inter_op": 1},
            {"provider": ("auto", "cpu", "cuda", "tensorrt"), "copies": _COPIES},
            takes_weights=True, spins=True, uses_runtime=True, overlaps=True,
            generates="gputax.worker.engines.onnx_decoder:OnnxDecoder",
        ),
        EngineKind(
            "torch", "gputax.worker.engines.torch:TorchEngine",
            {"compile": False, "cuda_graphs": False, "copies": "included"}, {"copies": _COPIES},
            uses_runtime=True,
        ),
        EngineKind(
            "tinygrad", "gputax.worker.engines.tinygrad:TinygradEngine", {"copies": "included"}, {"copies": _COPIES},
            uses_driver=True, takes_weights=True,
        ),
        EngineKind(
            "driver", "gputax.worker.engines.driver:DriverEngine",
            runs_models=False, runs_operations=True, uses_driver=True, overlaps=True,
            claim="operations of the CUDA driver, no model",
        ),
        EngineKind(
            "neighbour", "gputax.worker.engines.neighbour:NeighbourEngine",
            {"kind": "compute", "crash_after_ms": 0},
            {"kind": ("compute", "memory", "copies", "launches", "crash")}, runs_models=False, internal=True,
        ),
        EngineKind(
            "program", "gputax.worker.engines.program:ProgramEngine",
            runs_models=False, internal=True, claim="a program of yours: its own latencies, or its processes' time",
        ),
        EngineKind(
            "openai", "gputax.worker.engines.openai:OpenAiEngine",
            {
                "url": "", "model": "", "endpoint": "chat", "stream": True, "prompt_tokens": 128, "output_tokens": 64,
                "prompts": "", "key_variable": "OPENAI_API_KEY", "timeout_s": 60.0, "ignore_eos": False,
                "insecure": False, "slo_ttft_ms": 0.0, "slo_tpot_ms": 0.0,
            },
            {"endpoint": ("chat", "completions")}, runs_models=False, asks_server=True,
            claim="requests to a server that is asked from outside: the client's clock, and whatever device it uses",
        ),
        EngineKind(
            "kserve", "gputax.worker.engines.kserve:KserveEngine",
            {
                "url": "", "model": "", "shape": "", "key_variable": "KSERVE_API_KEY", "timeout_s": 60.0,
                "insecure": False,
            },
            runs_models=False, asks_server=True,
            claim="requests to a server that is asked from outside: the client's clock, and whatever device it uses",
        ),
        EngineKind(
            "synthetic", "gputax.worker.engines.synthetic:SyntheticEngine",
            {"latency_us": 1000.0, "per_sample_us": 0.0, "jitter_us": 0.0, "seed": 7, "fail_after": 0, "hang_after": 0,
             "token_us": 100.0},
            runs_models=False, runs_operations=True, says_nothing_of_devices=True, overlaps=True,
            generates="gputax.worker.engines.synthetic:SyntheticDecoder",
            claim="programmed delays of the synthetic engine: tests the tool, says nothing of any device",
        ),
    )
}  # fmt: skip
DEFAULT_ENGINE = "onnx"
# What runs a torch module of the user's.
MODULE_ENGINE = "torch"
DRIVER_MODEL_ENGINE = "tinygrad"
"""The engine that runs models through the driver API, and therefore behind the GPU proxy."""
TINYGRAD_VERSION = "0.14.0"
"""The one that it is written for: it uses parts that other versions may name differently."""
USER_ENGINES: tuple[str, ...] = tuple(name for name, kind in ENGINES.items() if not kind.internal)

SYNONYMS = {
    "tensorrt": "onnx:provider=tensorrt",
    "trt": "onnx:provider=tensorrt",
    "onnxruntime": "onnx",
    "ort": "onnx",
    "pytorch": "torch",
    "cuda": "onnx:provider=cuda",
    "libcuda": "driver",
    "vllm": "openai:http://127.0.0.1:8000",
    "triton": "kserve:http://127.0.0.1:8000",
    "ovms": "kserve:http://127.0.0.1:8000",
    "fake": "synthetic",
    "mock": "synthetic",
}


@dataclass(frozen=True)
class EngineSpec:
    """An engine's name and its options, typed and with defaults filled in."""

    name: str
    options: Mapping[str, Option]


def parse_engine(text: str) -> EngineSpec:
    """Parse `NAME[:KEY=VALUE,...]` or `NAME:URL[,KEY=VALUE,...]`.

    An unknown name or bad value is a usage error that lists the valid ones.
    """
    name, _, rest = text.partition(":")
    if name not in ENGINES:
        raise unknown_name("engine", name, USER_ENGINES, SYNONYMS)
    options = dict(ENGINES[name].options)
    if ENGINES[name].asks_server:
        url, _, rest = rest.partition(",")
        if "://" not in url:
            raise UsageError(
                f"the engine {name} needs the address of a server", next_step=f"e.g. {name}:http://127.0.0.1:8000"
            )
        options["url"] = url
    for pair in filter(None, rest.split(",")):
        key, equals, value = pair.partition("=")
        if key not in options:
            raise unknown_name(f"option of engine {name}", key, options)
        if not equals:
            raise UsageError(f"engine option {key!r} has no value", next_step=f"write {name}:{key}=VALUE")
        options[key] = _typed(name, key, value, options[key])
    return EngineSpec(name, options)


def refuse_unused_weights(weights: str, engine: str) -> None:
    """Reject a file of weights for an engine that takes none."""
    kind = ENGINES[parse_engine(engine).name]
    if weights and not kind.takes_weights:
        raise UsageError("--weights takes an ONNX file, which only --engine onnx and tinygrad can run")


def no_decoder(engine: str) -> UsageError:
    """Return the error for a language model and an engine that cannot run one."""
    able = " or ".join(name for name, kind in ENGINES.items() if kind.generates and not kind.says_nothing_of_devices)
    return UsageError(f"the engine {engine} cannot run a language model", next_step=f"use --engine {able}")


def waiting_passively(engine: str) -> str:
    """Return the engine with threads that sleep while they wait, unless its options say otherwise.

    Two tenants whose pools spin got 0.38 to 0.66 of one tenant's throughput together, about 1.0 with passive waiting;
    in a duet a request took 43 ms next to the other's spinning pool and 28 ms without it (measured).
    """
    if not ENGINES[parse_engine(engine).name].spins or "spin=" in engine:
        return engine
    return f"{engine}{',' if ':' in engine else ':'}spin=false"


def _typed(engine: str, key: str, value: str, default: Option) -> Option:
    choices = ENGINES[engine].choices.get(key)
    if choices and value not in choices:
        raise unknown_name(f"value of {engine} option {key}", value, choices)
    if isinstance(default, bool):
        if value.lower() not in ("true", "false", "1", "0", "on", "off"):
            raise UsageError(f"{engine} option {key}={value!r} is neither true nor false")
        return value.lower() in ("true", "1", "on")
    if isinstance(default, str):
        return value
    try:
        number = type(default)(value)
    except ValueError as error:
        raise UsageError(f"{engine} option {key}={value!r} is not a number") from error
    if number < 0:
        raise UsageError(f"{engine} option {key}={value} is negative")
    if not math.isfinite(number):
        raise UsageError(f"{engine} option {key}={value!r} is not a number")
    return number
