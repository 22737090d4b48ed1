"""A user's own ONNX file is bound to the workload, or refused with what it has and what is expected."""

from __future__ import annotations

import hashlib
import math
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from gputax.errors import PreflightError
from gputax.worker.workloads import load_workload
from gputax.worker.workloads.model_store import ModelFile
from gputax.worker.workloads.onnx_header import files_sha256, read_onnx_header
from gputax.worker.workloads.user_model import describe_user_model, refuse_foreign_network

FLOAT, HALF, INT64, INT32 = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.INT64, TensorProto.INT32
Declared = tuple[str, int, list[str | int | None] | None]
IMAGE: Declared = ("x", FLOAT, ["N", 3, 224, 224])
LOGITS: Declared = ("y", FLOAT, ["N", 1000])


def write(path: Path, inputs: list[Declared], outputs: list[Declared], weights: int = 0) -> Path:
    """Write a file that declares these tensors; whether it could run does not matter to its header."""
    declared_inputs = [helper.make_tensor_value_info(*each) for each in inputs]
    initializers = []
    if weights:
        # As IR version 3 has it: the weight is listed among the inputs too.
        declared_inputs.insert(0, helper.make_tensor_value_info("w", FLOAT, [weights]))
        initializers = [onnx.numpy_helper.from_array(np.zeros(weights, np.float32), "w")]
    graph = helper.make_graph(
        [helper.make_node("Identity", [inputs[0][0]], [outputs[0][0]])],
        "g",
        declared_inputs,
        [helper.make_tensor_value_info(*each) for each in outputs],
        initializers,
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 11)]), path)
    return path


def test_the_official_resnet50(tmp_path: Path) -> None:
    path = write(
        tmp_path / "m.onnx",
        [("input_tensor:0", FLOAT, ["unk__616", 3, 224, 224])],
        [("ArgMax:0", INT64, ["unk__617"]), ("softmax_tensor:0", FLOAT, ["unk__618", 1001])],
        weights=5,
    )
    model = describe_user_model(path, load_workload("resnet50"))
    (bound,) = model.inputs
    assert (bound.source, bound.name, bound.dtype, bound.layout) == (
        "pixel_values",
        "input_tensor:0",
        "float32",
        "NCHW",
    )
    assert [(output.source, output.name) for output in model.outputs] == [("logits", "softmax_tensor:0")]
    assert model.all_outputs == ("ArgMax:0", "softmax_tensor:0")
    assert (model.fixed_batch, model.opset, model.notes) == (None, 11, ())
    assert files_sha256(model.files) == hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize(
    ("names", "dtype"),
    [
        (("input_ids", "input_mask", "segment_ids"), INT64),
        (("input_ids", "attention_mask", "token_type_ids"), INT64),
        (("token_type_ids", "input_ids:0", "attention_mask"), INT32),
    ],
)
def test_bert_under_both_sets_of_names(tmp_path: Path, names: tuple[str, ...], dtype: int) -> None:
    inputs: list[Declared] = [(name, dtype, ["batch", 384]) for name in names]
    outputs: list[Declared] = [
        ("output_end_logits", FLOAT, ["batch", 384]),
        ("output_start_logits", FLOAT, ["batch", 384]),
    ]
    model = describe_user_model(write(tmp_path / "m.onnx", inputs, outputs), load_workload("bert-large"))
    assert [binding.source for binding in model.inputs] == ["input_ids", "input_mask", "segment_ids"]
    bound = {binding.source: binding.name.partition(":")[0] for binding in model.inputs}
    assert bound["input_ids"] == "input_ids"
    assert bound["input_mask"] in ("input_mask", "attention_mask")
    assert bound["segment_ids"] in ("segment_ids", "token_type_ids")
    assert [output.name for output in model.outputs] == ["output_start_logits", "output_end_logits"]
    assert {binding.dtype for binding in model.inputs} == {"int64" if dtype == INT64 else "int32"}


def test_outputs_with_other_names_are_bound_by_shape(tmp_path: Path) -> None:
    inputs: list[Declared] = [(name, INT64, [1, 384]) for name in ("input_ids", "input_mask", "segment_ids")]
    outputs: list[Declared] = [("pooled", FLOAT, [1, 1024]), ("s", FLOAT, [1, 384]), ("e", FLOAT, [1, 384])]
    model = describe_user_model(write(tmp_path / "m.onnx", inputs, outputs), load_workload("bert-large"))
    assert [output.name for output in model.outputs] == ["s", "e"]


def test_channels_last_and_half_precision(tmp_path: Path) -> None:
    path = write(tmp_path / "m.onnx", [("x", HALF, ["N", 224, 224, 3])], [("y", HALF, ["N", 1000])])
    (bound,) = describe_user_model(path, load_workload("resnet50")).inputs
    assert (bound.layout, bound.dtype) == ("NHWC", "float16")


def test_a_fixed_batch_is_reported(tmp_path: Path) -> None:
    path = write(tmp_path / "m.onnx", [("x", FLOAT, [4, 3, 224, 224])], [("y", FLOAT, [4, 1000])])
    assert describe_user_model(path, load_workload("resnet50")).fixed_batch == 4


@pytest.mark.parametrize("free", [None, "batch", -1, 0])
def test_every_spelling_of_a_free_batch(tmp_path: Path, free: str | int | None) -> None:
    path = write(tmp_path / "m.onnx", [("x", FLOAT, [free, 3, 224, 224])], [LOGITS])
    assert describe_user_model(path, load_workload("resnet50")).fixed_batch is None


@pytest.mark.parametrize("shape", [None, ["N", "c", "h", "w"]])
def test_axes_without_sizes_are_assumed_and_noted(tmp_path: Path, shape: list[str | int | None] | None) -> None:
    path = write(tmp_path / "m.onnx", [("x", FLOAT, shape)], [LOGITS])
    model = describe_user_model(path, load_workload("resnet50"))
    assert model.inputs[0].layout == "NCHW"
    assert model.notes == ("x does not fix its axes: NCHW is assumed",)


@pytest.mark.parametrize(
    ("inputs", "outputs"),
    [
        ([("x", FLOAT, ["N", 3, 299, 299])], [LOGITS]),
        ([("x", FLOAT, ["N", 3, 224])], [LOGITS]),
        ([("x", TensorProto.UINT8, ["N", 3, 224, 224])], [LOGITS]),
        ([("x", TensorProto.BFLOAT16, ["N", 3, 224, 224])], [LOGITS]),
        ([IMAGE], [("y", FLOAT, ["N", 21, 224, 224])]),
        ([IMAGE, ("scale", FLOAT, ["N", 1])], [LOGITS]),
    ],
    ids=["size", "rank", "integers", "bfloat16", "output", "second-input"],
)
def test_a_file_that_does_not_fit_resnet50(tmp_path: Path, inputs: list[Declared], outputs: list[Declared]) -> None:
    path = write(tmp_path / "m.onnx", inputs, outputs)
    with pytest.raises(PreflightError) as caught:
        describe_user_model(path, load_workload("resnet50"))
    assert caught.value.exit_code == 3
    assert caught.value.where == str(path)
    assert "it has inputs x " in caught.value.what
    assert "expected pixel_values float32 [batch, 3, 224, 224] and logits" in caught.value.what


@pytest.mark.parametrize("sequence", [128, 512])
def test_bert_of_another_length(tmp_path: Path, sequence: int) -> None:
    names = ("input_ids", "input_mask", "segment_ids")
    path = write(
        tmp_path / "m.onnx",
        [(name, INT64, ["N", sequence]) for name in names],
        [(name, FLOAT, ["N", sequence]) for name in ("start_logits", "end_logits")],
    )
    with pytest.raises(PreflightError, match=rf"input_ids int64 \[N, {sequence}\]"):
        describe_user_model(path, load_workload("bert-large"))


def test_an_input_that_no_one_would_fill(tmp_path: Path) -> None:
    names = ("input_ids", "input_mask", "segment_ids", "position_ids")
    path = write(
        tmp_path / "m.onnx",
        [(name, INT64, ["N", 384]) for name in names],
        [("start_logits", FLOAT, ["N", 384]), ("end_logits", FLOAT, ["N", 384])],
    )
    with pytest.raises(PreflightError, match="position_ids"):
        describe_user_model(path, load_workload("bert-large"))


def test_inputs_that_fix_different_batches(tmp_path: Path) -> None:
    names = ("input_ids", "input_mask", "segment_ids")
    path = write(
        tmp_path / "m.onnx",
        [(name, INT64, [size, 384]) for size, name in enumerate(names, 1)],
        [("start_logits", FLOAT, ["N", 384]), ("end_logits", FLOAT, ["N", 384])],
    )
    with pytest.raises(PreflightError, match="does not match"):
        describe_user_model(path, load_workload("bert-large"))


def test_a_bert_without_the_right_outputs(tmp_path: Path) -> None:
    names = ("input_ids", "input_mask", "segment_ids")
    path = write(
        tmp_path / "m.onnx",
        [(name, INT64, ["N", 384]) for name in names],
        [("last_hidden_state", FLOAT, ["N", 384, 1024])],
    )
    with pytest.raises(PreflightError, match="outputs last_hidden_state"):
        describe_user_model(path, load_workload("bert-large"))


@pytest.mark.parametrize(
    "content",
    [b"", b"hello world, this is not a model\n", b"\x89PNG\r\n\x1a\n" + bytes(64), bytes(100), b"\xff" * 50],
    ids=["empty", "text", "png", "zeros", "ones"],
)
def test_a_file_that_is_no_onnx(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(content)
    with pytest.raises(PreflightError, match="not an ONNX file"):
        describe_user_model(path, load_workload("resnet50"))


def test_a_file_cut_anywhere_is_refused(tmp_path: Path) -> None:
    whole = write(tmp_path / "m.onnx", [IMAGE], [LOGITS], weights=9).read_bytes()
    cut = tmp_path / "cut.onnx"
    for length in range(len(whole)):
        cut.write_bytes(whole[:length])
        with pytest.raises(PreflightError):
            describe_user_model(cut, load_workload("resnet50"))


def test_noise_never_escapes_as_another_error(tmp_path: Path) -> None:
    whole = bytearray(write(tmp_path / "m.onnx", [IMAGE], [LOGITS], weights=9).read_bytes())
    generator = np.random.default_rng(1)
    path = tmp_path / "noise.onnx"
    for _ in range(500):
        noisy = whole.copy()
        for place in generator.integers(0, len(whole), 4):
            noisy[place] = generator.integers(0, 256)
        path.write_bytes(noisy)
        try:
            describe_user_model(path, load_workload("resnet50"))
        except PreflightError:
            continue


@pytest.mark.parametrize("path", ["missing.onnx", "."])
def test_a_file_that_cannot_be_read(tmp_path: Path, path: str) -> None:
    with pytest.raises(PreflightError, match="cannot read the model file"):
        describe_user_model(tmp_path / path, load_workload("resnet50"))


def test_our_own_file_with_external_weights(resnet50_model: ModelFile, tmp_path: Path) -> None:
    model = describe_user_model(resnet50_model.path, load_workload("resnet50"))
    assert [file.name for file in model.files] == ["fp32-seed7.onnx", "fp32-seed7.weights"]
    assert model.inputs[0].name == "pixel_values"
    assert len(files_sha256(model.files)) == 64
    alone = tmp_path / "alone.onnx"
    alone.write_bytes(resnet50_model.path.read_bytes())
    with pytest.raises(PreflightError, match=r"refer to fp32-seed7\.weights, which does not exist"):
        describe_user_model(alone, load_workload("resnet50"))


def test_the_header_agrees_with_the_onnx_library(resnet50_model: ModelFile) -> None:
    header = read_onnx_header(resnet50_model.path)
    proto = onnx.load(resnet50_model.path, load_external_data=False)
    assert header.node_count == len(proto.graph.node)
    assert [tensor.name for tensor in header.inputs] == [each.name for each in proto.graph.input]
    assert header.opset == proto.opset_import[0].version == 17
    assert header.weight_values == sum(math.prod(each.dims) for each in proto.graph.initializer)


def test_a_foreign_network_does_not_pass_for_the_workload(resnet50_model: ModelFile, tmp_path: Path) -> None:
    workload = load_workload("resnet50")
    refuse_foreign_network(resnet50_model.path, workload)
    path = write(tmp_path / "small.onnx", [IMAGE], [LOGITS], weights=70_000)
    describe_user_model(path, workload)  # its inputs and outputs fit
    with pytest.raises(PreflightError, match="the file is not resnet50: it has 70,000 weights") as caught:
        refuse_foreign_network(path, workload)
    assert "--model small.onnx" in caught.value.next_step


@pytest.mark.parametrize("packed", [True, False])
def test_weights_in_constants_count_too(tmp_path: Path, packed: bool) -> None:
    value = onnx.numpy_helper.from_array(np.zeros((3, 5), np.float32), "v")
    constant = helper.make_node("Constant", [], ["c"], value=value)
    if packed:  # as other languages' libraries may write it
        raw = value.SerializeToString()
        assert raw.startswith(b"\x08\x03\x08\x05")
        constant.attribute[0].t.ParseFromString(b"\x0a\x02\x03\x05" + raw[4:])
    graph = helper.make_graph(
        [constant, helper.make_node("Identity", ["x"], ["y"])],
        "g",
        [helper.make_tensor_value_info(*IMAGE)],
        [helper.make_tensor_value_info(*LOGITS)],
    )
    path = tmp_path / "m.onnx"
    path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 11)]).SerializeToString())
    assert read_onnx_header(path).weight_values == 15
