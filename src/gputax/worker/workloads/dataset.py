"""Read an ImageNet-style folder with MLPerf's preprocessing for ResNet-50, before anything is timed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gputax.errors import PreflightError, UsageError
from gputax.plan.workloads import workload_facts
from gputax.worker.workloads.resnet50 import CHANNEL_MEANS
from gputax.worker.workloads.squad import inputs_of, read_features

_MAP = "val_map.txt"
_CROP = 224
# 224 / 0.875: the crop keeps the middle 87.5 % of the short side.
_SHORT_SIDE = 256


@dataclass(frozen=True)
class LabelledImage:
    """One line of the folder's map."""

    path: Path
    label: int


def load_dataset(workload: str, folder: str | Path, count: int) -> dict[str, npt.NDArray[Any]]:
    """Return `count` preprocessed samples in the order of the map, repeated if it is shorter."""
    workload_facts(workload)
    if workload == "bert-large":
        return _repeated(inputs_of(read_features(Path(folder))[1][:count]), count)
    if workload != "resnet50":
        raise UsageError(
            f"--dataset is for resnet50 and bert-large, not for {workload}",
            next_step="drop --dataset: samples are seeded",
        )
    images = read_map(Path(folder))[:count]
    samples = np.empty((count, 3, _CROP, _CROP), dtype=np.float32)
    for index, image in enumerate(images):
        samples[index] = preprocess(_decode(image.path))
    for index in range(len(images), count):
        samples[index] = samples[index - len(images)]
    return {"pixel_values": samples}


def _repeated(inputs: dict[str, npt.NDArray[Any]], count: int) -> dict[str, npt.NDArray[Any]]:
    return {name: values[np.arange(count) % len(values)] for name, values in inputs.items()}


def dataset_size(workload: str, folder: str | Path) -> int:
    """Return how many samples the dataset has: images, or windows of contexts."""
    return len(read_features(Path(folder))[1] if workload == "bert-large" else read_map(Path(folder)))


def read_map(folder: Path) -> tuple[LabelledImage, ...]:
    """Read `val_map.txt`: a name relative to the folder and a label per line."""
    if not folder.is_dir():
        raise PreflightError("the dataset folder does not exist", where=str(folder), next_step="check --dataset")
    path = folder / _MAP
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise PreflightError(
            f"cannot read {_MAP} ({getattr(error, 'strerror', None) or 'not a text file'})",
            where=str(path),
            next_step=f'write {_MAP} with one "name label" per line',
        ) from error
    images = tuple(_entry(path, number, line) for number, line in enumerate(lines, 1) if line.strip())
    if not images:
        raise PreflightError(f"{_MAP} has no images", where=str(path), next_step='write one "name label" per line')
    return images


def preprocess(image: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    """Turn an RGB image [height, width, 3] into a sample: resize, crop the centre, subtract the means."""
    height, width = image.shape[:2]
    if height > width:
        new_height, new_width = int(_SHORT_SIDE * height / width), _SHORT_SIDE
    else:
        new_height, new_width = _SHORT_SIDE, int(_SHORT_SIDE * width / height)
    resized = area_resize(image, new_height, new_width)
    top, left = (new_height - _CROP) // 2, (new_width - _CROP) // 2
    crop = resized[top : top + _CROP, left : left + _CROP].astype(np.float32)
    crop -= np.array(CHANNEL_MEANS, dtype=np.float32)
    return np.ascontiguousarray(crop.transpose(2, 0, 1))


def area_resize(image: npt.NDArray[np.uint8], height: int, width: int) -> npt.NDArray[np.uint8]:
    """Average the pixels under each new pixel, each by the share of it that is covered."""
    # The shares are those of OpenCV's INTER_AREA, the official choice: against OpenCV 5.0, no value of 18
    # generated images differed by more than 1 of 255. Pillow's BOX counts a pixel at the border of the area fully or
    # not at all, and differed by up to 27 on smooth images.
    down, across = _shares(image.shape[0], height), _shares(image.shape[1], width)
    channels = [down @ image[:, :, channel].astype(np.float32) @ across.T for channel in range(3)]
    return np.clip(np.rint(np.stack(channels, axis=2)), 0, 255).astype(np.uint8)


def _shares(old: int, new: int) -> npt.NDArray[np.float32]:
    """[new, old]: how much of each new pixel overlaps each old one; every row adds up to 1."""
    scale = old / new
    edges = np.arange(new + 1) * scale
    starts, ends = edges[:-1, None], edges[1:, None]
    cells = np.arange(old)
    overlap = np.minimum(ends, cells + 1) - np.maximum(starts, cells)
    shares: npt.NDArray[np.float32] = (np.clip(overlap, 0, None) / scale).astype(np.float32)
    return shares


def _entry(path: Path, number: int, line: str) -> LabelledImage:
    name, label = ("", *line.rsplit(maxsplit=1))[-2:]
    if not name.strip() or not label.isdecimal():
        raise PreflightError(
            f'line {number} of {_MAP} is not "name label": {line.strip()[:80]!r}',
            where=str(path),
            next_step="correct this line",
        )
    return LabelledImage(path.parent / name.strip(), int(label))


def _decode(path: Path) -> npt.NDArray[np.uint8]:
    image_module = _pillow()
    try:
        with image_module.open(path) as image:
            return np.asarray(image.convert("RGB"))
    except FileNotFoundError as error:
        raise PreflightError(
            f"an image in {_MAP} does not exist", where=str(path), next_step="correct the map or add it"
        ) from error
    except (OSError, SyntaxError, ValueError, image_module.DecompressionBombError) as error:
        raise PreflightError(
            f"cannot decode an image ({error})",
            where=str(path),
            next_step="replace it or remove it from the map",
        ) from error


def _pillow() -> Any:
    try:
        from PIL import Image
    except ImportError as error:
        raise PreflightError("decoding images needs Pillow", next_step="pip install 'gputax[images]'") from error
    return Image
