"""Images without a registry: built here by buildah, cached as archives, imported into containerd."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from e2e.host import unmount_below
from e2e.layout import PAUSE_IMAGE, PRODUCT_IMAGE, REPOSITORY, Layout, cache_directory, kubernetes_directory
from e2e.packages import program
from e2e.processes import ClusterError

SOURCES = REPOSITORY / "e2e/images"
BASE_IMAGE = "gputax.local/base:e2e"
PRODUCT_SOURCES = (
    "docker",
    ".dockerignore",
    "native",
    "src",
    "suites",
    "pyproject.toml",
    "requirements/cpu.txt",
    "release/sbom.py",
    "README.md",
    "LICENSE",
    "e2e/images/base.sh",
)
"""What docker/Dockerfile copies for its target cpu, and what makes its base."""


@dataclass(frozen=True)
class Product:
    """One image of docker/Dockerfile: its name, how it is built, and what of the repository goes into it."""

    key: str
    """Of its archive in the cache."""
    image: str
    options: tuple[str, ...]
    pins: tuple[str, ...]
    sources: tuple[str, ...]


CPU = Product(
    "product", PRODUCT_IMAGE, ("--target=cpu", f"--build-arg=CPU_BASE={BASE_IMAGE}"), ("requirements/cpu.txt",),
    PRODUCT_SOURCES,
)  # fmt: skip
# Of the 5 GB that PyTorch installs these are for what the lane does not do: compiling, and writing kernels.
UNUSED_PACKAGES = ("triton", "nvidia-cuda-cccl")
FRAMEWORKS = Product(
    "frameworks",
    f"{PRODUCT_IMAGE}-frameworks",
    (
        "--target=cuda",
        f"--build-arg=CPU_BASE={BASE_IMAGE}",  # of the stage with the compiler
        f"--build-arg=CUDA_BASE={BASE_IMAGE}",
        "--build-arg=CUDA_SET=cuda-torch",
        f"--build-arg=CUDA_WITHOUT={' '.join(UNUSED_PACKAGES)}",
        "--build-arg=WORKLOADS=resnet50",
    ),
    ("requirements/cuda-torch.txt",),
    (*PRODUCT_SOURCES, "requirements/cuda-torch.txt"),
)


def ctr(layout: Layout, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run containerd's own client in the kubelet's namespace."""
    command = [
        kubernetes_directory() / "ctr",
        f"--address={layout.containerd_socket}",
        "--namespace=k8s.io",
        *arguments,
    ]
    return subprocess.run(command, capture_output=True, text=True)


def import_archive(layout: Layout, archive: Path) -> None:
    """Make an archive's image known to the kubelet."""
    done = ctr(layout, "images", "import", archive)
    if done.returncode != 0:
        raise ClusterError(f"containerd does not take {archive}: {done.stderr.strip()}")


def pause_archive() -> Path:
    """Return the pause image as an archive; a second to make, kept by its source's digest."""
    source = SOURCES / "pause.c"
    archive = cache_directory() / f"pause-{_digest([source])}.tar"
    if archive.exists():
        return archive
    with _one_at_a_time():
        with tempfile.TemporaryDirectory() as scratch:
            binary = Path(scratch) / "pause"
            _run([program("gcc"), "-static", "-Os", "-s", "-o", binary, source])
            (Path(scratch) / "Dockerfile").write_text('FROM scratch\nCOPY pause /pause\nENTRYPOINT ["/pause"]\n')
            _build(Path(scratch), Path(scratch) / "Dockerfile", PAUSE_IMAGE, [])
        _save(PAUSE_IMAGE, archive)
    return archive


def product_archive(product: Product = CPU) -> Path:
    """Return an image of the product as an archive, rebuilt if what goes into it has changed."""
    archive = cache_directory() / f"{product.key}-{product_digest(product)}.tar"
    if archive.exists():
        return archive
    with _one_at_a_time():
        return _product_archive(product)


def _product_archive(product: Product) -> Path:
    archive = cache_directory() / f"{product.key}-{product_digest(product)}.tar"
    if not archive.exists():
        _make_base()
        wheels = _wheels(product.pins)
        with tempfile.TemporaryDirectory() as scratch:
            # pip in a build step finds the pinned wheels here and asks no index; the Dockerfile need not know.
            pip = Path(scratch) / "pip.conf"
            pip.write_text("[global]\nno-index = true\nfind-links = /wheels\ndisable-pip-version-check = true\n")
            options = [*product.options, f"--volume={wheels}:/wheels:ro", f"--volume={pip}:/etc/pip.conf:ro"]
            output = _build(REPOSITORY, REPOSITORY / "docker/Dockerfile", product.image, options)
        for old in cache_directory().glob(f"{product.key}-*.tar"):
            old.unlink()
        _save(product.image, archive)
        _prune(output)
    return archive


def product_digest(product: Product = CPU) -> str:
    """Return a digest of everything that goes into an image of the product."""
    return _digest([path for root in product.sources for path in _files(REPOSITORY / root)])


@contextlib.contextmanager
def _one_at_a_time() -> Iterator[None]:
    """Let one process at a time build: the others then find the archive."""
    cache_directory().mkdir(parents=True, exist_ok=True)
    with (cache_directory() / ".images.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            yield
        finally:
            # A build that failed or was interrupted leaves its working containers mounted.
            subprocess.run([*_buildah(), "rm", "--all"], capture_output=True)
            unmount_below(cache_directory() / "buildah")


def _files(root: Path) -> list[Path]:
    if root.is_file():
        return [root]
    found = (path for path in root.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    # What native/ was built into here depends on it and is built again in the image.
    return sorted(path for path in found if not path.is_relative_to(REPOSITORY / "native/build"))


def _make_base() -> None:
    if subprocess.run([*_buildah(), "inspect", "--type=image", BASE_IMAGE], capture_output=True).returncode == 0:
        return
    archive = Path(_run([SOURCES / "base.sh"]).strip())
    with tempfile.TemporaryDirectory(dir=cache_directory()) as scratch:
        os.link(archive, Path(scratch) / "root.tar")
        (Path(scratch) / "Dockerfile").write_text('FROM scratch\nADD root.tar /\nCMD ["python3"]\n')
        _build(Path(scratch), Path(scratch) / "Dockerfile", BASE_IMAGE, [])


def _wheels(sets: Sequence[str]) -> Path:
    """Fetch the pinned wheels once; a wheel that is there already is not fetched again."""
    directory = cache_directory() / "wheels"
    directory.mkdir(parents=True, exist_ok=True)
    for pins in (REPOSITORY / name for name in sets):
        marker = directory / f".complete-for-{pins.stem}"
        if not marker.exists() or marker.read_text() != _digest([pins]):
            _run([sys.executable, "-m", "pip", "download", "-q", "--require-hashes", "--only-binary=:all:",
                  "--dest", directory, "-r", pins])  # fmt: skip
            marker.write_text(_digest([pins]))
    return directory


def _build(context: Path, dockerfile: Path, name: str, options: Sequence[str]) -> str:
    # Isolation by chroot: crun, the default, refuses a host with both cgroup versions.
    return _run([*_buildah(), "build", "--isolation=chroot", "--pull-never", "--layers", "--format=oci",
                 f"--file={dockerfile}", f"--tag={name}", *options, context])  # fmt: skip


def _prune(output: str) -> None:
    """Remove what earlier builds left in our store. A layer that cannot go, because another stands on it, stays."""
    listed = json.loads(_run([*_buildah(), "images", "--all", "--no-trunc", "--json"]))
    for image in obsolete(listed, output):
        subprocess.run([*_buildah(), "rmi", image], capture_output=True)


def obsolete(images: Sequence[Mapping[str, Any]], output: str) -> list[str]:
    """Return the ids of images without a name that the last build, by its own words, neither made nor took."""
    used = tuple(re.findall(r"^--> (?:Using cache )?([0-9a-f]{10,64})$", output, flags=re.M))
    newest_first = sorted(images, key=lambda image: -int(image["created"]))
    ids = [str(image["id"]).removeprefix("sha256:") for image in newest_first if not image["names"]]
    return [each for each in ids if not each.startswith(used)] if used else []


def _save(name: str, archive: Path) -> None:
    part = archive.with_suffix(".part")
    part.unlink(missing_ok=True)
    # docker-archive and not oci-archive: its layers are plain tar. gzip of 1 GB took two minutes here, and
    # --disable-compression does nothing in buildah 1.28.
    _run([*_buildah(), "push", "--quiet", name, f"docker-archive:{part}:{name}"])
    part.rename(archive)


def _buildah() -> list[str]:
    # A store of our own: the user's images and containers stay as they are.
    store = cache_directory() / "buildah"
    return ["nice", "-n", "19", program("buildah"), f"--root={store}/root", f"--runroot={store}/run"]


def _run(command: Sequence[str | Path]) -> str:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        words = " ".join(str(word) for word in command)
        raise ClusterError(f"{words}\n{(done.stdout + done.stderr)[-3000:]}")
    return done.stdout


def _digest(files: Sequence[Path]) -> str:
    digest = hashlib.sha256()
    for path in files:
        digest.update(str(path.relative_to(REPOSITORY)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]
