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
    for name in images.PRODUCT_SOURCES:
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
    assert copied - {"requirements/cuda.txt"} <= set(images.PRODUCT_SOURCES)


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
