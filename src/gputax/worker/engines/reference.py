"""The reference answers of a model: ONNX Runtime on the CPU, compared before anything is measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gputax.errors import EngineError
from gputax.worker.engines.onnx_runtime import PROVIDERS, import_onnxruntime

# Largest difference, in parts of the largest expected value. Measured in fp32 with tinygrad 0.14.0 on the software
# device against ONNX Runtime 1.31.1, batch 1, seeded weights: ResNet-50 4.4e-7, BERT-Large 3.9e-6, YOLOS-small
# 1.5e-6. fp32's tolerance is 25 times the largest of them: a device may add in another order. fp16's is
# 20 steps of the type; no model was measured in it, because the software device refuses it. A GPU's libraries may round
# the factors of fp32 products to tf32, which has the same ten bits as fp16.
TOLERANCE = {"fp32": 1e-4, "tf32": 2e-2, "fp16": 2e-2}
IN_FULL = "compared with ONNX Runtime in this process"


@dataclass(frozen=True)
class Checked:
    """How the answers of one batch size were checked before anything was measured."""

    how: str
    """What they were compared with; the device computed its answer in this process in any case."""
    reference: str
    difference: float
    """In parts of the largest expected value."""


def reference_name() -> str:
    """Return the reference and its version, as results name it."""
    return f"ONNX Runtime {import_onnxruntime().__version__}, CPU"


def reference_answers(path: str, inputs: Mapping[str, npt.NDArray[Any]], threads: int) -> dict[str, npt.NDArray[Any]]:
    """Run the file once with ONNX Runtime's CPU provider."""
    ort = import_onnxruntime()
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    session = ort.InferenceSession(path, options, providers=[PROVIDERS["cpu"]])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, dict(inputs)), strict=True))


def tf32_of(precision: str) -> str:
    """Return the precision that a GPU's libraries may use for this one unless they are told otherwise."""
    return "tf32" if precision == "fp32" else precision


def checked_rows(
    engine: str,
    path: str,
    got: Mapping[str, npt.NDArray[Any]],
    feeds: Mapping[str, npt.NDArray[Any]],
    precision: str,
    threads: int,
    *,
    whole: bool = False,
    outputs: Sequence[str] = (),
) -> Checked:
    """Compare the first row of a batch that the device computed, or all of them; a wrong one is an error.

    `outputs` are those to compare; empty: all of them.

    One row, because a batch of 32 that a GPU computes in milliseconds may take the CPU a minute.
    """
    rows = len(next(iter(feeds.values()))) if whole else 1
    answers = reference_answers(path, {name: values[:rows] for name, values in feeds.items()}, threads)
    expected = {name: answers[name] for name in outputs or answers}
    difference = largest_difference({name: got[name][:rows] for name in expected}, expected, precision, engine)
    return Checked(IN_FULL, reference_name(), difference)


def as_dicts(checked: Mapping[int, Checked]) -> dict[str, dict[str, Any]]:
    """Return how each batch size was checked, as it is stored."""
    return {str(batch): asdict(each) for batch, each in checked.items()}


def largest_difference(
    got: Mapping[str, npt.NDArray[Any]], expected: Mapping[str, npt.NDArray[Any]], precision: str, engine: str
) -> float:
    """Return the largest difference in parts of the largest expected value; one above the tolerance is an error."""
    largest = 0.0
    for name, wanted in expected.items():
        values = got[name]
        if values.shape != wanted.shape:
            raise _wrong(engine, f"{name} has the shape {values.shape} instead of {wanted.shape}")
        scale = float(np.max(np.abs(wanted), initial=0.0)) or 1.0
        difference = float(np.max(np.abs(values.astype(np.float64) - wanted), initial=0.0)) / scale
        if not difference <= TOLERANCE[precision]:
            raise _wrong(
                engine,
                f"{name} differs from ONNX Runtime's by {difference:.2g} of its largest value; "
                f"{TOLERANCE[precision]:g} is allowed in {precision}",
            )
        largest = max(largest, difference)
    return largest


def _wrong(engine: str, what: str) -> EngineError:
    return EngineError(
        f"the device computed a wrong answer: {what}",
        where=f"engine {engine}",
        next_step="this device cannot be measured until it computes correctly",
    )
