"""A model on the device of this process: digests of its outputs, or where nothing is computed its launches."""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Callable
from typing import Any

from gputax.plan.cells import Setup
from gputax.plan.claims import computes_nothing
from gputax.worker.engines.engine import Engine
from gputax.worker.preparation import prepare
from gputax.worker.probes.driver_library import launch_count


def outputs(setup: Setup, say: Callable[[str], None]) -> dict[str, Any]:
    """Run every prepared sample, one by one, and return a digest of each first output; of null kernels, launches."""
    prepared = prepare(setup, say)
    engine, facts = prepared.engine, prepared.facts
    computed = not computes_nothing(str(facts.get("device_name") or ""))
    try:
        if not computed:
            say("first run, in which libraries choose their kernels")
            engine.run(0, 1)
        found: list[str | int] = []
        for sample in range(prepared.area.count):
            say(f"sample {sample + 1} of {prepared.area.count}")
            found.append(_digest(engine, sample) if computed else _launches(engine, sample))
        return {
            **({"digests": found, "bytes": engine.response_bytes} if computed else {"launches": found}),
            "device": engine.device,
            "device_name": facts.get("device_name"),
            "provider": facts.get("provider"),
            "engine_version": facts.get("engine_version"),
            "computed": computed,
        }
    finally:
        engine.close()


def _digest(engine: Engine, sample: int) -> str:
    engine.run(sample, 1)
    row = ctypes.string_at(engine.response_address, engine.response_bytes)
    return hashlib.sha256(row).hexdigest()[:16]


def _launches(engine: Engine, sample: int) -> int:
    before = launch_count()
    engine.run(sample, 1)
    return launch_count() - before
