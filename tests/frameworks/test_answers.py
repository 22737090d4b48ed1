"""The check of torch's answers, played on the CPU: the same code compares a GPU's with ONNX Runtime's."""

from __future__ import annotations

from typing import Any

import pytest

from gputax.errors import EngineError
from gputax.plan.engines import parse_engine
from gputax.worker.engines import load_engine
from gputax.worker.engines.engine import EngineRequest
from gputax.worker.samples import SampleArea
from gputax.worker.workloads import load_workload

pytestmark = pytest.mark.filterwarnings("ignore")  # torch and transformers warn of their own deprecations


@pytest.fixture
def engine() -> Any:
    request = EngineRequest("resnet50", parse_engine("torch").options, "cpu", "fp32", threads=2, max_batch=2)
    made: Any = load_engine("torch", request)
    made.load_samples(SampleArea(load_workload("resnet50").synthetic_inputs(4, 7), 2).arrays)
    made._checks = True
    return made


def test_right_answers_are_compared_once_for_each_batch_size(engine: Any) -> None:
    for count in (2, 1, 2):
        engine.run(1, count)
    answers = engine.facts()["answers"]
    assert sorted(answers) == ["1", "2"]
    assert all(0 < each["difference"] < 1e-4 for each in answers.values())


def test_one_wrong_weight_is_found_before_anything_is_measured(engine: Any) -> None:
    with engine._torch.no_grad():
        next(engine._module.parameters())[0] += 1.0
    with pytest.raises(EngineError, match="the device computed a wrong answer"):
        engine.run(0, 1)
