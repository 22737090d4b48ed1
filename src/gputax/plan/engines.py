"""Parse and print engine specifications such as `onnx` or `synthetic:latency_us=1000,seed=7`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from gputax.errors import UsageError, unknown_name

# Each engine's options with their defaults; the type of the default is the type of the option.
ENGINE_OPTIONS: dict[str, dict[str, int | float | str | bool]] = {
    "onnx": {"provider": "auto", "copies": "included", "spin": True, "inter_op": 1},
    "torch": {"compile": False, "cuda_graphs": False, "copies": "included"},
    "driver": {},
    "neighbour": {"kind": "compute", "crash_after_ms": 0},
    "synthetic": {
        "latency_us": 1000.0,
        "per_sample_us": 0.0,
        "jitter_us": 0.0,
        "seed": 7,
        "fail_after": 0,
        "hang_after": 0,
    },
}
CHOICES: dict[tuple[str, str], tuple[str, ...]] = {
    ("onnx", "provider"): ("auto", "cpu", "cuda", "tensorrt"),
    ("onnx", "copies"): ("included", "excluded"),
    ("torch", "copies"): ("included", "excluded"),
    ("neighbour", "kind"): ("compute", "memory", "copies", "launches", "crash"),
}


@dataclass(frozen=True)
class EngineSpec:
    """An engine's name and the options that were given, all typed and with defaults filled in."""

    name: str
    options: Mapping[str, int | float | str | bool]


def parse_engine(text: str) -> EngineSpec:
    """Parse `NAME[:KEY=VALUE,...]`; every unknown name or bad value is a usage error that says what exists."""
    name, _, rest = text.partition(":")
    if name not in ENGINE_OPTIONS:
        raise unknown_name("engine", name, [each for each in ENGINE_OPTIONS if each != "neighbour"])
    options = dict(ENGINE_OPTIONS[name])
    for pair in filter(None, rest.split(",")):
        key, equals, value = pair.partition("=")
        if key not in options:
            raise unknown_name(f"option of engine {name}", key, options)
        if not equals:
            raise UsageError(f"engine option {key!r} has no value", next_step=f"write {name}:{key}=VALUE")
        options[key] = _typed(name, key, value, options[key])
    return EngineSpec(name, options)


def waiting_passively(engine: str) -> str:
    """Return the engine with threads that sleep while they wait, unless its options say otherwise.

    Two tenants whose pools spin got 0.38 to 0.66 of one tenant's throughput together, about 1.0 with passive waiting;
    in a duet a request took 43 ms beside the other's spinning pool and 28 ms without it (measured).
    """
    if parse_engine(engine).name != "onnx" or "spin=" in engine:
        return engine
    return f"{engine}{',' if ':' in engine else ':'}spin=false"


def _typed(engine: str, key: str, value: str, default: int | float | str | bool) -> int | float | str | bool:
    choices = CHOICES.get((engine, key))
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
