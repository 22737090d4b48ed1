"""The graphs are well formed, have the real sizes, take any batch and tell samples and tokens apart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from gputax.errors import UsageError
from gputax.worker.workloads import load_workload
from gputax.worker.workloads.model_store import ModelFile
from gputax.worker.workloads.onnx_file import onnx_model
from gputax.worker.workloads.weights import ensure
from gputax.worker.workloads.workload import Workload

SMALL = ("small_resnet", "small_bert", "small_yolos")


def run(model: Path, inputs: dict[str, Any]) -> dict[str, Any]:
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, inputs), strict=True))


@pytest.mark.parametrize(
    ("name", "parameters", "tensors"),
    # What transformers' modules have; tests/accuracy compares with the library itself.
    [("resnet50", 25_557_032, 267), ("bert-large", 334_094_338, 391), ("yolos-small", 30_684_768, 212)],
)
def test_parameter_counts_are_the_real_ones(name: str, parameters: int, tensors: int) -> None:
    workload = load_workload(name)
    assert workload.parameter_count == parameters
    assert len(workload.parameters) == tensors


def test_running_statistics_are_no_parameters() -> None:
    buffers = [parameter for parameter in load_workload("resnet50").parameters if parameter.is_buffer]
    assert len(buffers) == 2 * 53
    assert all(".running_" in parameter.name for parameter in buffers)


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("name", ["resnet50", "bert-large", "yolos-small"])
def test_full_size_graph_has_the_declared_shapes(name: str, precision: str) -> None:
    workload = load_workload(name)
    model = onnx_model(workload, precision, "weights", "0" * 64)
    declared = {output.name: output.SerializeToString() for output in model.graph.output}
    for output in model.graph.output:
        output.type.tensor_type.ClearField("shape")
    inferred = onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True)
    for output in inferred.graph.output:
        wanted = onnx.ValueInfoProto.FromString(declared[output.name])
        found = [dim.dim_value for dim in output.type.tensor_type.shape.dim]
        assert found == [dim.dim_value for dim in wanted.type.tensor_type.shape.dim]
        assert (found[0], wanted.type.tensor_type.shape.dim[0].dim_param) == (0, "batch")
        assert output.type.tensor_type.elem_type == wanted.type.tensor_type.elem_type


def test_resnet50_strides_in_the_3x3_convolution() -> None:
    strided = [
        node.output.removesuffix("/Conv")
        for node in load_workload("resnet50").graph.nodes
        if node.op == "Conv" and dict(node.attributes)["strides"] == (2, 2)
    ]
    stages = [f"resnet.encoder.stages.{stage}.layers.0" for stage in (1, 2, 3)]
    assert sorted(strided) == sorted(
        ["resnet.embedder.embedder"]
        + [f"{stage}.layer.1" for stage in stages]
        + [f"{stage}.shortcut" for stage in stages]
    )


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("fixture", SMALL)
def test_checker_accepts_the_file(fixture: str, precision: str, models: Path, request: pytest.FixtureRequest) -> None:
    model = ensure(request.getfixturevalue(fixture), precision)
    onnx.checker.check_model(str(model.path), full_check=True)


@pytest.mark.parametrize("fixture", SMALL)
def test_a_sample_gives_the_same_in_any_batch(fixture: str, models: Path, request: pytest.FixtureRequest) -> None:
    workload: Workload = request.getfixturevalue(fixture)
    model, inputs = ensure(workload).path, workload.synthetic_inputs(3, seed=5)
    together = run(model, inputs)
    assert list(together) == [output.name for output in workload.outputs]
    alone = run(model, {name: values[1:2] for name, values in inputs.items()})
    for output in workload.outputs:
        values = together[output.name]
        assert values.shape == (3, *output.shape)
        assert np.isfinite(values).all()
        np.testing.assert_allclose(alone[output.name][0], values[1], atol=1e-5)
        assert np.abs(values[0] - values[1]).max() > 1e-3, "samples are not told apart"
        assert values.std() > 0.05


@pytest.mark.parametrize("fixture", SMALL)
def test_fp16_is_the_same_graph(fixture: str, models: Path, request: pytest.FixtureRequest) -> None:
    workload: Workload = request.getfixturevalue(fixture)
    full = run(ensure(workload).path, workload.synthetic_inputs(2, seed=5))
    half_inputs = workload.synthetic_inputs(2, seed=5, precision="fp16")
    assert {str(values.dtype) for values in half_inputs.values()} in ({"float16"}, {"int64"})
    half = run(ensure(workload, "fp16").path, half_inputs)
    for output in workload.outputs:
        assert half[output.name].dtype == np.float16
        np.testing.assert_allclose(half[output.name], full[output.name], atol=0.05)


def test_bert_ignores_padding(small_bert: Workload, models: Path) -> None:
    inputs = small_bert.synthetic_inputs(4, seed=5)
    used = inputs["input_mask"] == 1
    assert used.any(axis=1).all()
    assert not used.all()
    model = ensure(small_bert).path
    first = run(model, inputs)
    second = run(model, {**inputs, "input_ids": np.where(used, inputs["input_ids"], 7)})
    for output in small_bert.outputs:
        np.testing.assert_allclose(first[output.name][used], second[output.name][used], atol=1e-6)
        assert np.abs(first[output.name] - second[output.name])[~used].max() > 1e-2


def test_resnet50_runs_at_full_size(resnet50_model: ModelFile) -> None:
    workload = load_workload("resnet50")
    inputs = workload.synthetic_inputs(3, seed=5)
    together = run(resnet50_model.path, inputs)["logits"]
    alone = run(resnet50_model.path, {"pixel_values": inputs["pixel_values"][2:]})["logits"]
    assert together.shape == (3, 1000)
    assert np.isfinite(together).all()
    assert 0.5 < together.std() < 3
    np.testing.assert_allclose(alone[0], together[2], atol=1e-4)


def test_unknown_workload_says_what_exists() -> None:
    with pytest.raises(UsageError) as caught:
        load_workload("resnet")
    assert "resnet50" in caught.value.next_step
