"""What executes a workload; the registry is literal and each engine is imported only when it is asked for."""

from __future__ import annotations

from gputax.errors import unknown_name
from gputax.plan.engines import ENGINE_OPTIONS
from gputax.worker.engines.engine import Engine, EngineRequest


def load_engine(name: str, request: EngineRequest) -> Engine:
    """Load the engine of that name; heavy imports happen here and not before."""
    match name:
        case "onnx":
            from gputax.worker.engines.onnx import OnnxEngine

            return OnnxEngine(request)
        case "torch":
            from gputax.worker.engines.torch import TorchEngine

            return TorchEngine(request)
        case "driver":
            from gputax.worker.engines.driver import DriverEngine

            return DriverEngine(request)
        case "neighbour":
            from gputax.worker.engines.neighbour import NeighbourEngine

            return NeighbourEngine(request)
        case "synthetic":
            from gputax.worker.engines.synthetic import SyntheticEngine

            return SyntheticEngine(request)
    raise unknown_name("engine", name, ENGINE_OPTIONS)
