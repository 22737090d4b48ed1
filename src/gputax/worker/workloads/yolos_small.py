"""YOLOS-small: a vision transformer that detects objects with 100 detection tokens, 512x864."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import numpy as np

from gputax.worker.workloads.graph import (
    GraphWriter,
    LayerSize,
    attention_output,
    feed_forward,
    layer_norm,
    linear,
    self_attention,
)
from gputax.worker.workloads.workload import Array, TensorSpec, Workload, pixels

# The published weights' image processor scales pixels to 0..1 and normalises them with these (ImageNet's).
_CHANNEL_MEANS = (0.485, 0.456, 0.406)
_CHANNEL_STDS = (0.229, 0.224, 0.225)
_TOKEN_STD = 1.0
_POSITION_STD = 0.5
_MID_POSITION_STD = 0.2


@dataclass(frozen=True)
class YolosSize:
    """The sizes of YOLOS-small; tests make it smaller."""

    layers: int = 12
    hidden: int = 384
    heads: int = 6
    intermediate: int = 1536
    patch: int = 16
    image: tuple[int, int] = (512, 864)
    detections: int = 100
    labels: int = 91

    @property
    def tokens(self) -> int:
        """One class token, one per patch, one per detection."""
        return 1 + (self.image[0] // self.patch) * (self.image[1] // self.patch) + self.detections


def yolos(name: str, size: YolosSize) -> Workload:
    """Describe YOLOS at its native resolution, under the names of transformers' YolosForObjectDetection."""
    graph = GraphWriter()
    layer_size = LayerSize(size.hidden, size.heads, size.intermediate)
    hidden = _embeddings(graph, size)
    # At the native resolution the library's interpolation of position tables is the identity, so it is omitted.
    middle = graph.parameter(
        "vit.encoder.interpolation.mid_position_embeddings",
        (size.layers - 1, 1, size.tokens, size.hidden),
        std=_MID_POSITION_STD,
    )
    for index in range(size.layers):
        layer = f"vit.encoder.layer.{index}"
        normed = layer_norm(graph, hidden, f"{layer}.layernorm_before", size.hidden)
        attended = self_attention(graph, normed, f"{layer}.attention.attention", layer_size)
        attended = attention_output(graph, attended, layer, layer_size)
        hidden = graph.node("Add", attended, hidden, at=f"{layer}.attention")
        normed = layer_norm(graph, hidden, f"{layer}.layernorm_after", size.hidden)
        hidden = graph.node("Add", feed_forward(graph, normed, layer, layer_size), hidden, at=layer)
        if index < size.layers - 1:
            places = graph.node("Gather", middle, graph.constant(index), at=layer, axis=0)
            hidden = graph.node("Add", hidden, places, at=layer)
    hidden = layer_norm(graph, hidden, "vit.layernorm", size.hidden)
    _heads(graph, hidden, size)
    return Workload(
        name,
        inputs=(TensorSpec("pixel_values", (3, *size.image)),),
        outputs=(
            TensorSpec("logits", (size.detections, size.labels + 1)),
            TensorSpec("pred_boxes", (size.detections, 4)),
        ),
        graph=graph.graph(),
        draw_inputs=partial(_draw_inputs, size),
    )


def _embeddings(graph: GraphWriter, size: YolosSize) -> str:
    at, width = "vit.embeddings", size.hidden
    class_token = graph.parameter(f"{at}.cls_token", (1, 1, width), std=_TOKEN_STD)
    detection_tokens = graph.parameter(f"{at}.detection_tokens", (1, size.detections, width), std=_TOKEN_STD)
    positions = graph.parameter(f"{at}.position_embeddings", (1, size.tokens, width), std=_POSITION_STD)
    patch = f"{at}.patch_embeddings.projection"
    kernel = (size.patch, size.patch)
    weight = graph.parameter(f"{patch}.weight", (width, 3, *kernel), std=1 / math.sqrt(3 * size.patch * size.patch))
    bias = graph.parameter(f"{patch}.bias", (width,), std=0.02)
    patches = graph.node(
        "Conv", "pixel_values", weight, bias, at=patch, kernel_shape=kernel, strides=kernel, pads=(0, 0, 0, 0)
    )
    patches = graph.node("Reshape", patches, graph.constant((0, width, -1)), at=patch)
    patches = graph.node("Transpose", patches, at=patch, perm=(0, 2, 1))
    batch = graph.node("Shape", patches, at=at, start=0, end=1)

    def for_each_sample(token: str, count: int) -> str:
        shape = graph.node("Concat", batch, graph.constant((count, width)), at=at, axis=0)
        return graph.node("Expand", token, shape, at=at)

    tokens = graph.node(
        "Concat",
        for_each_sample(class_token, 1),
        patches,
        for_each_sample(detection_tokens, size.detections),
        at=at,
        axis=1,
    )
    return graph.node("Add", tokens, positions, at=at)


def _heads(graph: GraphWriter, hidden: str, size: YolosSize) -> None:
    detected = graph.node(
        "Slice",
        hidden,
        graph.constant((size.tokens - size.detections,)),
        graph.constant((size.tokens,)),
        graph.constant((1,)),
        at="detections",
    )

    def perceptron(name: str, width_out: int) -> str:
        x = detected
        for index in (0, 1):
            x = linear(graph, x, f"{name}.layers.{index}", size.hidden, size.hidden)
            x = graph.node("Relu", x, at=f"{name}.layers.{index}")
        return linear(graph, x, f"{name}.layers.2", size.hidden, width_out)

    labels, boxes = perceptron("class_labels_classifier", size.labels + 1), perceptron("bbox_predictor", 4)
    graph.node("Identity", labels, at="class_labels_classifier", output="logits")
    graph.node("Sigmoid", boxes, at="bbox_predictor", output="pred_boxes")


def _draw_inputs(size: YolosSize, count: int, seed: int) -> dict[str, Array]:
    """Seeded images, normalised as the published image processor does."""
    images = pixels(seed, count, *size.image)
    images *= np.float32(1 / 255)
    images -= np.array(_CHANNEL_MEANS, dtype=np.float32)[:, None, None]
    images /= np.array(_CHANNEL_STDS, dtype=np.float32)[:, None, None]
    return {"pixel_values": images}


WORKLOAD = yolos("yolos-small", YolosSize())
