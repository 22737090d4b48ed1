"""A model's outputs on the device of this process, as digests that can be compared byte by byte."""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Callable
from typing import Any

from gputax.plan.cells import Setup
from gputax.plan.claims import computes_nothing
from gputax.worker.preparation import prepare


def outputs(setup: Setup, say: Callable[[str], None]) -> dict[str, Any]:
    """Run every prepared sample, one by one, and return a digest of each first output."""
    prepared = prepare(setup, say)
    engine, facts = prepared.engine, prepared.facts
    try:
        digests = []
        for sample in range(prepared.area.count):
            say(f"sample {sample + 1} of {prepared.area.count}")
            engine.run(sample, 1)
            row = ctypes.string_at(engine.response_address, engine.response_bytes)
            digests.append(hashlib.sha256(row).hexdigest()[:16])
        return {
            "digests": digests,
            "bytes": engine.response_bytes,
            "device": engine.device,
            "device_name": facts.get("device_name"),
            "provider": facts.get("provider"),
            "engine_version": facts.get("engine_version"),
            "computed": not computes_nothing(str(facts.get("device_name") or "")),
        }
    finally:
        engine.close()
