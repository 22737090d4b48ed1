"""The system under test in LoadGen's accuracy mode: every sample once, and its answer as MLPerf's scripts expect it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from gputax.errors import PreflightError, UsageError
from gputax.worker.engines.engine import GivesAnswers
from gputax.worker.loads.sut import Callbacks, System, no_threads

Arrays: TypeAlias = Mapping[str, npt.NDArray[Any]]
# MLPerf's ResNet-50 has a class for "background" before the thousand.
WITH_BACKGROUND = 1001


def classes(outputs: Arrays) -> npt.NDArray[Any]:
    """Return the likeliest class of each sample, as `accuracy-imagenet.py --dtype int64` reads it."""
    for values in outputs.values():
        if values.ndim == 2 and values.shape[1] in (WITH_BACKGROUND - 1, WITH_BACKGROUND):
            found: npt.NDArray[np.int64] = values.argmax(axis=1).astype(np.int64)
            return (found - int(values.shape[1] == WITH_BACKGROUND)).reshape(-1, 1)
    raise PreflightError("the model has no output of 1000 or 1001 classes", where="accuracy of resnet50")


def spans(outputs: Arrays) -> npt.NDArray[Any]:
    """Return start and end logits of each token, [token, 2] in float32, as `accuracy-squad.py` reads them."""
    starts = next((values for name, values in outputs.items() if "start" in name), None)
    ends = next((values for name, values in outputs.items() if "end" in name), None)
    if starts is None or ends is None:
        raise PreflightError("the model has no start and end logits", where="accuracy of bert-large")
    return np.stack([starts, ends], axis=-1).astype(np.float32)


RESPONSES: dict[str, Callable[[Arrays], npt.NDArray[Any]]] = {"resnet50": classes, "bert-large": spans}


def accuracy_callbacks(system: System, workload: str) -> Callbacks:
    """Return the callbacks that answer every sample with what the workload's accuracy is computed from."""
    if workload not in RESPONSES:
        raise UsageError(f"there is no accuracy mode for {workload}", next_step=f"use {' or '.join(RESPONSES)}")
    if not isinstance(system.engine, GivesAnswers):
        raise UsageError("this engine does not give its answers", next_step="use --engine onnx for accuracy")
    run, answers = system.calls[1], system.engine.answers
    response_of, loadgen, recording = RESPONSES[workload], system.loadgen, system.recording
    size = system.load.batch_size

    def issue(ids: list[int], indices: list[int]) -> None:
        positions = system.library.position_of[indices]
        try:
            for low in range(0, len(ids), size):
                chunk = ids[low : low + size]
                start_ns = time.perf_counter_ns()
                run(system.area.gather(positions[low : low + size]), len(chunk))
                data = np.ascontiguousarray(response_of(answers(len(chunk))))
                each = data[0].nbytes
                loadgen.QuerySamplesComplete(
                    [
                        loadgen.QuerySampleResponse(one, data.ctypes.data + number * each, each)
                        for number, one in enumerate(chunk)
                    ]
                )
                recording.add_run(start_ns, time.perf_counter_ns(), len(chunk))
        except BaseException as error:
            system.on_failure(error)

    return Callbacks(issue, no_threads)
