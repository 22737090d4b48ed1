"""Accuracy from the command line: real LoadGen, models and datasets so small that the figure is known by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from PIL import Image

from gputax.worker.workloads import load_workload
from gputax.worker.workloads.model_store import Manifest, PinnedFile, file_sha256, manifest_path, write_manifest
from tests.conftest import Gputax


def stored(folder: Path, workload: str, graph: onnx.GraphProto) -> None:
    """Put a small network in the place of the seeded one."""
    path = folder / workload / "fp32-seed7.onnx"
    path.parent.mkdir(parents=True)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    pinned = PinnedFile(path.name, path.stat().st_size, file_sha256(path))
    write_manifest(
        manifest_path(path), Manifest(workload, "fp32", "seeded", (pinned,), 7, load_workload(workload).graph_version)
    )


def tensor(name: str, kind: int, *shape: int) -> Any:
    return helper.make_tensor_value_info(name, kind, ["batch", *shape])


def test_top1_of_four_colours(gputax: Gputax, tmp_path: Path) -> None:
    """The network says 0 for red, 1 for green, 2 for blue; one of four labels is wrong."""
    product = np.zeros((3, 1000), np.float32)
    product[0, 0] = product[1, 1] = product[2, 2] = 1.0
    stored(tmp_path / "models", "resnet50", helper.make_graph(
        [helper.make_node("GlobalAveragePool", ["pixel_values"], ["p"]), helper.make_node("Flatten", ["p"], ["f"]),
         helper.make_node("MatMul", ["f", "product"], ["logits"])],
        "colours", [tensor("pixel_values", TensorProto.FLOAT, 3, 224, 224)],
        [tensor("logits", TensorProto.FLOAT, 1000)], [numpy_helper.from_array(product, "product")],
    ))  # fmt: skip
    data = tmp_path / "images"
    data.mkdir()
    colours = {"red": (250, 0, 0), "green": (0, 250, 0), "blue": (0, 0, 250), "crimson": (220, 20, 60)}
    for name, colour in colours.items():
        Image.new("RGB", (300, 260), colour).save(data / f"{name}.png")
    (data / "val_map.txt").write_text("red.png 0\ngreen.png 1\nblue.png 2\ncrimson.png 5\n")
    done = gputax(
        "accuracy", "--workload", "resnet50", "--dataset", str(data), "--device", "cpu", "--batch", "3", "--out", "o",
        "--json", GPUTAX_MODELS=str(tmp_path / "models"), cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    assert (record["metric"], record["value_percent"], record["samples"]) == ("top1", 75.0, 4)
    assert (record["meaningful"], record["meets"]) == (False, {})
    assert record == json.loads((tmp_path / "o/accuracy.json").read_text())
    assert len(json.loads((tmp_path / "o/accuracy/mlperf_log_accuracy.json").read_text())) == 4


def test_f1_of_two_questions(gputax: Gputax, tmp_path: Path) -> None:
    """The network answers from token 7 to token 8: right for one question, two words of three for the other."""
    ids = (
        helper.make_node("Equal", ["input_ids", "seven"], ["s"]),
        helper.make_node("Equal", ["input_ids", "eight"], ["e"]),
    )
    stored(tmp_path / "models", "bert-large", helper.make_graph(
        [*ids, helper.make_node("Cast", ["s"], ["output_start_logits"], to=TensorProto.FLOAT),
         helper.make_node("Cast", ["e"], ["output_end_logits"], to=TensorProto.FLOAT)],
        "spans", [tensor(name, TensorProto.INT64, 384) for name in ("input_ids", "input_mask", "segment_ids")],
        [tensor(name, TensorProto.FLOAT, 384) for name in ("output_start_logits", "output_end_logits")],
        [numpy_helper.from_array(np.array(7), "seven"), numpy_helper.from_array(np.array(8), "eight")],
    ))  # fmt: skip
    data = tmp_path / "squad"
    data.mkdir()
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "where", "?", "lies", "new", "york", "city"]
    (data / "vocab.txt").write_text("\n".join(words) + "\n")
    asked = [
        {"id": str(number), "question": "Where?", "answers": [{"text": text, "answer_start": 0}]}
        for number, text in enumerate(("New York", "New York City"))
    ]
    paragraph = {"context": "Lies New York city", "qas": asked}
    (data / "dev-v1.1.json").write_text(json.dumps({"data": [{"title": "t", "paragraphs": [paragraph]}]}))
    done = gputax(
        "accuracy", "--workload", "bert-large", "--dataset", str(data), "--device", "cpu",
        GPUTAX_MODELS=str(tmp_path / "models"), cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    # 1 and 2 * (1 * 2/3) / (1 + 2/3) = 0.8.
    assert "PIPELINE CHECK ONLY · bert-large: F1 90.000 % of 2 samples" in done.stdout
    assert "accuracy needs real weights" in done.stdout
