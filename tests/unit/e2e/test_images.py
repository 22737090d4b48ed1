"""What the product's image is keyed by, and which images of earlier builds may go."""

from __future__ import annotations

from pathlib import Path

import pytest

from e2e import images
from e2e.layout import REPOSITORY

TOLD = """[1/4] STEP 1/3: FROM gputax.local/base:e2e AS native
--> Using cache aaaaaaaaaaaa1111
[2/4] STEP 2/3: COPY src src
--> bbbbbbbbbbb
[2/4] COMMIT gputax.local/gputax:e2e
--> cccccccccccc
"""


def image(identity: str, created: int, *names: str) -> dict[str, object]:
    return {"id": f"sha256:{identity}", "created": created, "names": list(names) or None}


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in images.FRAMEWORKS.sources:
        path = tmp_path / name
        if "." in path.name or path.name == "LICENSE":
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(name)
        else:
            path.mkdir(parents=True)
            (path / "file").write_text(name)
    monkeypatch.setattr(images, "REPOSITORY", tmp_path)
    return tmp_path


@pytest.mark.parametrize("changed", ["src/file", "native/file", "requirements/cpu.txt", "e2e/images/base.sh"])
def test_a_changed_source_makes_another_image(repository: Path, changed: str) -> None:
    before = images.product_digest()
    (repository / changed).write_text("changed")
    assert images.product_digest() != before


@pytest.mark.parametrize("other", ["native/build/proxy.o", "src/__pycache__/x.pyc", "kubernetes/base/job.yaml"])
def test_what_does_not_go_into_the_image_does_not_count(repository: Path, other: str) -> None:
    before = images.product_digest()
    (repository / other).parent.mkdir(parents=True)
    (repository / other).write_text("new")
    assert images.product_digest() == before


def test_the_sources_are_all_that_the_dockerfile_copies() -> None:
    lines = (REPOSITORY / "docker/Dockerfile").read_text().splitlines()
    copied = {word for line in lines if line.startswith("COPY") and "--from" not in line for word in line.split()[1:-1]}
    assert copied - {"requirements/${CUDA_SET}.txt"} <= set(images.CPU.sources)
    chosen = {option.rpartition("=")[2] for option in images.FRAMEWORKS.options if "CUDA_SET" in option}
    assert {f"requirements/{name}.txt" for name in chosen} | copied <= {
        *images.FRAMEWORKS.sources, "requirements/${CUDA_SET}.txt",
    }  # fmt: skip


def test_the_pins_of_frameworks_make_another_image_of_that_lane_alone(repository: Path) -> None:
    before = images.product_digest(images.CPU), images.product_digest(images.FRAMEWORKS)
    (repository / "requirements/cuda-torch.txt").write_text("changed")
    assert images.product_digest(images.CPU) == before[0]
    assert images.product_digest(images.FRAMEWORKS) != before[1]


@pytest.mark.parametrize("product", [images.CPU, images.FRAMEWORKS], ids=lambda each: each.key)
def test_every_pinned_set_of_an_image_is_there_and_counts(product: images.Product) -> None:
    assert product.pins
    for name in product.pins:
        assert (REPOSITORY / name).is_file()
        assert name in product.sources


def test_the_pins_of_the_lane_of_frameworks_hold_those_of_its_image() -> None:
    """Both are resolved from one another's names: what `make test-frameworks` runs is what the image holds."""
    inside, lane = (
        set((REPOSITORY / f"requirements/{name}.txt").read_text().splitlines()) for name in ("cuda-torch", "frameworks")
    )
    assert inside <= lane


def test_layers_that_the_last_build_neither_made_nor_used_go_the_newest_first() -> None:
    listed = [
        image("aaaaaaaaaaaa111122223333", 1),
        image("bbbbbbbbbbbb111122223333", 9),
        image("dddddddddddd111122223333", 2),
        image("eeeeeeeeeeee111122223333", 3),
        image("ffffffffffff111122223333", 4, "gputax.local/base:e2e"),
    ]
    assert images.obsolete(listed, TOLD) == ["eeeeeeeeeeee111122223333", "dddddddddddd111122223333"]


def test_a_build_that_told_nothing_makes_nothing_obsolete() -> None:
    assert images.obsolete([image("dddddddddddd111122223333", 2)], "") == []
