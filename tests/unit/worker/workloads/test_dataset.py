"""An ImageNet-style folder is read with the official preprocessing, or refused by the name of what is wrong."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from gputax.errors import PreflightError, UsageError
from gputax.worker.workloads.dataset import area_resize, load_dataset, preprocess, read_map

MEANS = np.array([123.68, 116.78, 103.94], np.float32)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three plain images: red 10, 20, 30."""
    (tmp_path / "val").mkdir()
    lines = []
    for index, size in enumerate([(300, 260), (256, 400), (64, 48)], 1):
        Image.new("RGB", size, (10 * index, 100, 200)).save(tmp_path / "val" / f"{index}.png")
        lines.append(f"val/{index}.png {index * 5}")
    (tmp_path / "val_map.txt").write_text("\n".join(lines) + "\n\n")
    return tmp_path


def test_plain_images_keep_their_colour(folder: Path) -> None:
    samples = load_dataset("resnet50", folder, 3)["pixel_values"]
    assert samples.shape == (3, 3, 224, 224)
    assert samples.dtype == np.float32
    assert samples.flags.c_contiguous
    for index in range(3):
        for channel, value in enumerate((10 * (index + 1), 100, 200)):
            np.testing.assert_allclose(samples[index, channel], value - MEANS[channel], rtol=1e-6)


def test_a_short_folder_is_repeated_and_a_long_one_cut(folder: Path) -> None:
    samples = load_dataset("resnet50", str(folder), 7)["pixel_values"]
    np.testing.assert_array_equal(samples[3:6], samples[:3])
    np.testing.assert_array_equal(samples[6], samples[0])
    np.testing.assert_array_equal(load_dataset("resnet50", folder, 2)["pixel_values"], samples[:2])


def test_labels_and_names_with_spaces(folder: Path) -> None:
    (folder / "val_map.txt").write_text("val/a picture.png 999\nval/1.png\t7\n")
    entries = read_map(folder)
    assert [(entry.path, entry.label) for entry in entries] == [
        (folder / "val" / "a picture.png", 999),
        (folder / "val" / "1.png", 7),
    ]


def test_the_short_side_becomes_256_and_the_centre_is_cut() -> None:
    # Twice the size: each new pixel is the mean of a 2x2 block, and the crop starts at 16 (height), 80 (width).
    image = np.random.default_rng(3).integers(0, 256, (512, 768, 3), dtype=np.uint8)
    blocks = image.reshape(256, 2, 384, 2, 3).astype(np.float64).mean(axis=(1, 3))
    expected = np.rint(blocks)[16:240, 80:304].transpose(2, 0, 1) - MEANS[:, None, None]
    np.testing.assert_allclose(preprocess(image), expected, atol=1e-4)


@pytest.mark.parametrize(("height", "width"), [(300, 500), (500, 300), (256, 256), (90, 120), (1, 1)])
def test_any_size_and_either_orientation(height: int, width: int) -> None:
    ramp = np.linspace(0, 255, width).astype(np.uint8)
    image = np.broadcast_to(ramp[None, :, None], (height, width, 3))
    sample = preprocess(image) + MEANS[:, None, None]
    assert sample.shape == (3, 224, 224)
    np.testing.assert_array_equal(sample[:, 0], sample[:, -1])
    assert (np.diff(sample[0, 0]) >= 0).all()


def test_area_interpolation_weighs_partly_covered_pixels() -> None:
    # 3 pixels to 2: each new pixel covers one whole and half of the middle one.
    image = np.array([[[0] * 3, [90] * 3, [210] * 3]], dtype=np.uint8)
    np.testing.assert_array_equal(area_resize(image, 1, 2)[0, :, 0], [30, 170])
    np.testing.assert_array_equal(area_resize(image, 1, 3), image)
    # Enlarging: a new pixel within an old one takes its value, one across a border the mix of both.
    np.testing.assert_array_equal(area_resize(image, 1, 4)[0, :, 0], [0, 60, 130, 210])


@pytest.mark.parametrize("mode", ["L", "RGBA", "CMYK"])
def test_other_colour_modes_become_rgb(folder: Path, mode: str) -> None:
    name = "grey.tiff"
    Image.new("L", (256, 256), 77).convert("RGB").convert(mode).save(folder / name)
    (folder / "val_map.txt").write_text(f"{name} 0\n")
    sample = load_dataset("resnet50", folder, 1)["pixel_values"][0] + MEANS[:, None, None]
    np.testing.assert_allclose(sample, 77, atol=1)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "has no images"),
        ("\n  \n", "has no images"),
        ("val/1.png\n", "line 1"),
        ("val/1.png 3\nval/2.png three\n", "line 2"),
        ("val/1.png -1\n", "line 1"),
    ],
)
def test_a_bad_map(folder: Path, text: str, said: str) -> None:
    (folder / "val_map.txt").write_text(text)
    with pytest.raises(PreflightError, match=said) as caught:
        load_dataset("resnet50", folder, 1)
    assert caught.value.where == str(folder / "val_map.txt")


def test_what_is_missing_is_named(folder: Path) -> None:
    with pytest.raises(PreflightError) as caught:
        load_dataset("resnet50", folder / "nowhere", 1)
    assert caught.value.where == str(folder / "nowhere")
    (folder / "val" / "2.png").unlink()
    with pytest.raises(PreflightError, match="does not exist") as caught:
        load_dataset("resnet50", folder, 3)
    assert caught.value.where == str(folder / "val" / "2.png")
    (folder / "val_map.txt").unlink()
    with pytest.raises(PreflightError, match="No such file") as caught:
        load_dataset("resnet50", folder, 3)
    assert caught.value.where == str(folder / "val_map.txt")


@pytest.mark.parametrize("kind", ["text", "empty", "cut", "folder"])
def test_a_broken_image_is_named(folder: Path, kind: str) -> None:
    path = folder / "val" / "2.png"
    whole = path.read_bytes()
    path.unlink()
    if kind == "folder":
        path.mkdir()
    else:
        path.write_bytes({"text": b"no image", "empty": b"", "cut": whole[: len(whole) // 2]}[kind])
    with pytest.raises(PreflightError, match="cannot decode") as caught:
        load_dataset("resnet50", folder, 3)
    assert caught.value.where == str(path)


def test_a_map_that_is_no_text(folder: Path) -> None:
    (folder / "val_map.txt").write_bytes(b"\xff\xfe\x00bad")
    with pytest.raises(PreflightError, match="not a text file"):
        load_dataset("resnet50", folder, 1)


@pytest.mark.parametrize("workload", ["llm-tiny", "yolos-small"])
def test_other_workloads_have_no_dataset(folder: Path, workload: str) -> None:
    with pytest.raises(UsageError, match="--dataset is for resnet50"):
        load_dataset(workload, folder, 1)


def test_without_pillow(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(PreflightError) as caught:
        load_dataset("resnet50", folder, 1)
    assert "gputax[images]" in caught.value.next_step
