"""The workloads: real architectures as ONNX graphs with seeded weights, and their files."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from gputax.errors import unknown_name
from gputax.plan.language_models import LANGUAGE_MODEL, is_language_model

if TYPE_CHECKING:
    from gputax.worker.workloads.workload import Workload

# Each module is imported when its workload is used, and defines it as WORKLOAD.
_MODULES: dict[str, str] = {
    "resnet50": "gputax.worker.workloads.resnet50",
    "bert-large": "gputax.worker.workloads.bert_large",
    "yolos-small": "gputax.worker.workloads.yolos_small",
}
# Its size is in its name, so that it is made when it is used.
_LANGUAGE_MODELS = "gputax.worker.workloads.llama"


def load_workload(name: str) -> Workload:
    """Return the workload of that name, or raise with the valid names."""
    if is_language_model(name):
        sized: Workload = importlib.import_module(_LANGUAGE_MODELS).workload(name)
        return sized
    if name not in _MODULES:
        raise unknown_name("workload", name, (*_MODULES, LANGUAGE_MODEL))
    workload: Workload = importlib.import_module(_MODULES[name]).WORKLOAD
    return workload
