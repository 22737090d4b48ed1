"""What answers of LoadGen's accuracy log are worth."""

from __future__ import annotations

import json
from typing import Any, ClassVar, cast

import numpy as np
import pytest

from gputax.errors import CellError, PreflightError, UsageError
from gputax.measure.accuracy import measure_accuracy, read_log, refuse_without_accuracy, top1
from gputax.plan.cells import Setup
from gputax.worker.loads.accuracy_sut import classes, spans


def entry(index: int, answer: int) -> dict[str, object]:
    return {"seq_id": index, "qsl_idx": index, "data": np.int64(answer).tobytes().hex().upper()}


def test_top1_by_hand() -> None:
    # LoadGen logs in the order of completion, not of the dataset.
    assert top1([entry(2, 7), entry(0, 5), entry(1, 5), entry(3, 1)], [5, 6, 7, 1]) == 75.0


def test_every_sample_has_one_answer() -> None:
    whole = [entry(index, 0) for index in range(3)]
    assert read_log(json.dumps(whole), 3) == whole
    for data in (whole[:2], [*whole, whole[0]], [whole[0], whole[0], whole[1]]):
        with pytest.raises(CellError, match="one for each of 3"):
            read_log(json.dumps(data), 3)
    with pytest.raises(CellError, match="cannot be read"):
        read_log("", 3)


def test_mlperfs_resnet_has_one_class_more() -> None:
    plain, official = np.zeros((2, 1000)), np.zeros((2, 1001))
    plain[0, 3] = plain[1, 999] = official[0, 3] = official[1, 1000] = 1.0
    assert classes({"logits": plain}).tolist() == [[3], [999]]
    assert classes({"ArgMax:0": np.zeros(2), "softmax_tensor:0": official}).tolist() == [[2], [999]]
    with pytest.raises(PreflightError, match="1000 or 1001"):
        classes({"logits": np.zeros((2, 10))})


def test_spans_are_pairs_of_logits() -> None:
    found = spans({"output_start_logits": np.array([[1.0, 2.0]]), "output_end_logits": np.array([[3.0, 4.0]])})
    assert found.tolist() == [[[1.0, 3.0], [2.0, 4.0]]]
    assert found.dtype == np.float32
    with pytest.raises(PreflightError, match="start and end"):
        spans({"logits": np.zeros((1, 2))})


def test_what_has_no_accuracy_mode_is_refused() -> None:
    with pytest.raises(UsageError, match="no accuracy mode"):
        refuse_without_accuracy("yolos-small", "somewhere")
    with pytest.raises(UsageError, match="needs a dataset"):
        refuse_without_accuracy("bert-large", "")


def test_null_kernels_are_refused_before_loadgen_starts() -> None:
    class Session:
        facts: ClassVar = {"device_name": "gputax software device [null kernels, 10 us]"}

        def apply(self, load: object) -> None:
            raise AssertionError("LoadGen must not start")

    with pytest.raises(UsageError, match="never answers"):
        measure_accuracy(cast(Any, Session()), Setup("resnet50"), 10)
