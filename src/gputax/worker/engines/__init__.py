"""The engines that execute a workload; each is imported only when used."""

from __future__ import annotations

import importlib
from collections.abc import Callable

from gputax.errors import unknown_name
from gputax.plan.engines import ENGINES
from gputax.worker.engines.engine import Engine, EngineRequest


def load_engine(name: str, request: EngineRequest) -> Engine:
    """Load the engine of that name; heavy imports happen only here."""
    if name not in ENGINES:
        raise unknown_name("engine", name, ENGINES)
    module, _, kind = ENGINES[name].loads.partition(":")
    make: Callable[[EngineRequest], Engine] = getattr(importlib.import_module(module), kind)
    return make(request)
