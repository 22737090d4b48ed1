"""Small ONNX files for tests: one with the inputs and outputs of ResNet-50, one of token ids, and any other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from gputax.worker.workloads import load_workload
from gputax.worker.workloads.model_store import Manifest, PinnedFile, file_sha256, manifest_path, write_manifest


def small_classifier(path: Path, hidden: int = 8, seed: int = 1, batch: int | str = "batch") -> Path:
    """Write a convolution, a pooling and a product: right answers in milliseconds where ResNet-50 takes 16 s."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    draw = np.random.default_rng(seed)
    kernel = draw.standard_normal((hidden, 3, 3, 3)).astype(np.float32)
    product = draw.standard_normal((hidden, 1000)).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["pixel_values", "kernel"], ["c"], strides=[16, 16], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("GlobalAveragePool", ["r"], ["p"]),
        helper.make_node("Flatten", ["p"], ["f"]),
        # A row taken by a scalar index, as in YOLOS-small: tinygrad reads such a number while it builds its graph.
        helper.make_node("Unsqueeze", ["f", "axes"], ["u"]),
        helper.make_node("Gather", ["u", "index"], ["g"], axis=1),
        helper.make_node("MatMul", ["g", "product"], ["logits"]),
    ]
    weights = [
        helper.make_tensor(name, TensorProto.FLOAT, values.shape, values.tobytes(), raw=True)
        for name, values in (("kernel", kernel), ("product", product))
    ]
    numbers = [numpy_helper.from_array(np.array(0), "index"), numpy_helper.from_array(np.array([1]), "axes")]
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("pixel_values", TensorProto.FLOAT, [batch, 3, 224, 224])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, [batch, 1000])],
        [*weights, *numbers],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def small_store(folder: Path, hidden: int = 8) -> Path:
    """Make a store of models whose ResNet-50 is the small classifier: for commands that take no file."""
    path = folder / "resnet50" / "fp32-seed7.onnx"
    path.parent.mkdir(parents=True)
    small_classifier(path, hidden)
    pinned = PinnedFile(path.name, path.stat().st_size, file_sha256(path))
    version = load_workload("resnet50").graph_version
    write_manifest(manifest_path(path), Manifest("resnet50", "fp32", "seeded", (pinned,), 7, version))
    return folder


Tensor = tuple[str, int, list[str | int | None] | None]


def small_text_model(path: Path, rows: int = 1000, seed: int = 1) -> Path:
    """Write a network of token ids: a table of `rows` rows, a product and a mean; batch and length are free axes."""
    from onnx import TensorProto, helper, numpy_helper

    draw = np.random.default_rng(seed)
    table = numpy_helper.from_array(draw.standard_normal((rows, 16)).astype(np.float32), "table")
    product = numpy_helper.from_array(draw.standard_normal((16, 8)).astype(np.float32), "product")
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["looked_up"]),
        helper.make_node("MatMul", ["looked_up", "product"], ["scores"]),
        helper.make_node("ReduceMean", ["scores"], ["answer"], axes=[1], keepdims=0),
    ]
    return write_network(
        path,
        nodes,
        [("ids", TensorProto.INT64, ["batch", "tokens"])],
        [("answer", TensorProto.FLOAT, ["batch", 8])],
        [table, product],
    )


def write_network(
    path: Path, nodes: list[Any], inputs: list[Tensor], outputs: list[Tensor], weights: list[Any] | None = None
) -> Path:
    """Write any network."""
    import onnx
    from onnx import helper

    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info(*each) for each in inputs],
        [helper.make_tensor_value_info(*each) for each in outputs],
        weights or [],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path
