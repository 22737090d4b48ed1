"""ResNet-50 v1.5: 224x224, 1000 classes, the stride in each stage's first 3x3 convolution."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import numpy as np

from gputax.worker.workloads.graph import GraphWriter
from gputax.worker.workloads.workload import Array, TensorSpec, Workload, pixels

# Means that the official preprocessing subtracts from R, G and B; nothing is scaled, so inputs span about ±150.
CHANNEL_MEANS = (123.68, 116.78, 103.94)
_EPSILON = 1e-5
# The synthetic pixels have a standard deviation of 74; the seeded stem scales it to about 1.
_STEM_GAIN = 1 / 74
# A residual branch that adds its full variance 16 times over would leave logits in the hundreds.
_BRANCH_GAIN = 0.25


@dataclass(frozen=True)
class ResNetSize:
    """The sizes that make it 50 layers deep; tests make it small."""

    depths: tuple[int, ...] = (3, 4, 6, 3)
    widths: tuple[int, ...] = (256, 512, 1024, 2048)
    stem: int = 64
    classes: int = 1000
    image: int = 224


def resnet(name: str, size: ResNetSize) -> Workload:
    """Describe a bottleneck ResNet, under the names of transformers' ResNetForImageClassification."""
    graph = GraphWriter()
    stem = "resnet.embedder.embedder"
    x = _convolution(graph, "pixel_values", stem, 3, size.stem, kernel=7, stride=2, gain=_STEM_GAIN)
    x = graph.node("Relu", x, at=stem)
    x = graph.node("MaxPool", x, at=stem, kernel_shape=(3, 3), strides=(2, 2), pads=(1, 1, 1, 1))
    channels = size.stem
    for stage, (depth, width) in enumerate(zip(size.depths, size.widths, strict=True)):
        for index in range(depth):
            stride = 2 if index == 0 and stage > 0 else 1
            x = _bottleneck(graph, x, f"resnet.encoder.stages.{stage}.layers.{index}", channels, width, stride)
            channels = width
    pooled = graph.node("Flatten", graph.node("GlobalAveragePool", x, at="resnet.pooler"), at="resnet.pooler")
    weight = graph.parameter("classifier.1.weight", (size.classes, channels), std=1 / math.sqrt(channels))
    bias = graph.parameter("classifier.1.bias", (size.classes,), std=0.02)
    graph.node("Gemm", pooled, weight, bias, at="classifier", output="logits", transB=1)
    return Workload(
        name,
        inputs=(TensorSpec("pixel_values", (3, size.image, size.image)),),
        outputs=(TensorSpec("logits", (size.classes,), aliases=("softmax_tensor",)),),
        graph=graph.graph(),
        draw_inputs=partial(_draw_inputs, size),
    )


def _convolution(
    graph: GraphWriter,
    x: str,
    name: str,
    channels_in: int,
    channels_out: int,
    *,
    kernel: int = 1,
    stride: int = 1,
    gain: float = 1.0,
    norm_gain: float = 1.0,
) -> str:
    shape = (channels_out, channels_in, kernel, kernel)
    # Half of a ReLU's output is zero, hence the 2 (He et al. 2015).
    std = gain * math.sqrt(2 / (channels_in * kernel * kernel))
    weight = graph.parameter(f"{name}.convolution.weight", shape, std=std)
    x = graph.node(
        "Conv",
        x,
        weight,
        at=name,
        kernel_shape=(kernel, kernel),
        strides=(stride, stride),
        pads=(kernel // 2,) * 4,
    )
    norm, width = f"{name}.normalization", (channels_out,)
    statistics = (
        graph.parameter(f"{norm}.weight", width, mean=norm_gain, std=0.05 * norm_gain),
        graph.parameter(f"{norm}.bias", width, std=0.05),
        graph.parameter(f"{norm}.running_mean", width, std=0.05, is_buffer=True),
        graph.parameter(f"{norm}.running_var", width, mean=1.0, std=0.05, is_buffer=True),
    )
    return graph.node("BatchNormalization", x, *statistics, at=norm, epsilon=_EPSILON)


def _bottleneck(graph: GraphWriter, x: str, name: str, channels_in: int, channels_out: int, stride: int) -> str:
    narrow = channels_out // 4
    shortcut = x
    if channels_in != channels_out or stride != 1:
        # No ReLU follows a shortcut, so half the variance keeps its scale.
        shortcut = _convolution(
            graph, x, f"{name}.shortcut", channels_in, channels_out, stride=stride, gain=math.sqrt(0.5)
        )
    branch = _convolution(graph, x, f"{name}.layer.0", channels_in, narrow)
    branch = graph.node("Relu", branch, at=f"{name}.layer.0")
    branch = _convolution(graph, branch, f"{name}.layer.1", narrow, narrow, kernel=3, stride=stride)
    branch = graph.node("Relu", branch, at=f"{name}.layer.1")
    branch = _convolution(graph, branch, f"{name}.layer.2", narrow, channels_out, norm_gain=_BRANCH_GAIN)
    return graph.node("Relu", graph.node("Add", branch, shortcut, at=name), at=name)


def _draw_inputs(size: ResNetSize, count: int, seed: int) -> dict[str, Array]:
    """Seeded images, preprocessed like the official ones."""
    images = pixels(seed, count, size.image, size.image)
    images -= np.array(CHANNEL_MEANS, dtype=np.float32)[:, None, None]
    return {"pixel_values": images}


WORKLOAD = resnet("resnet50", ResNetSize())
