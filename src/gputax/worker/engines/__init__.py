"""The engines that execute a workload; each is imported only when used."""

from __future__ import annotations

import importlib
from collections.abc import Callable

from gputax.errors import unknown_name
from gputax.plan.engines import ENGINES, no_decoder
from gputax.plan.language_models import is_language_model
from gputax.worker.engines.engine import Engine, EngineRequest


def load_engine(name: str, request: EngineRequest) -> Engine:
    """Load the engine of that name; heavy imports happen only here."""
    if name not in ENGINES:
        raise unknown_name("engine", name, ENGINES)
    loads = ENGINES[name].loads
    if is_language_model(request.workload):
        loads = ENGINES[name].generates
        if not loads:
            raise no_decoder(name)
    module, _, kind = loads.partition(":")
    make: Callable[[EngineRequest], Engine] = getattr(importlib.import_module(module), kind)
    return make(request)
