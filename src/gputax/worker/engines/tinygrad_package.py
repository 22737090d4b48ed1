"""tinygrad, imported without the user's settings for it, and bound to the `libcuda.so.1` that was chosen for us."""

from __future__ import annotations

import ctypes
import importlib.metadata
import itertools
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gputax.errors import PreflightError
from gputax.plan.engines import TINYGRAD_VERSION
from gputax.worker.engines.driver_context import NO_LIBRARY
from gputax.worker.probes.driver_library import SONAME, device_facts, library_of

INSTALL = "pip install 'gputax[tinygrad]'"
RENDERER = "CUDA:PTX"
"""Its own PTX renderer: no NVRTC, no nvcc and no other library beside the driver."""
GRAPH_CALL = "cuGraphInstantiate_v2"
COPIED_BYTES = 1 << 20
# tinygrad takes its settings from about a hundred variables with short names (DEBUG, JIT, DEV, BEAM, CPU, TC): those
# of the user are of another program. What the system, the driver, gputax and the native parts read stays.
KEPT = ("HOME", "LANG", "LD_LIBRARY_PATH", "PATH", "TMPDIR", "TZ", "CUDA_DEVICE_ORDER", "CUDA_VISIBLE_DEVICES")
KEPT_PREFIXES = ("CUDA_CACHE_", "CUDA_MPS_", "GPUTAX_", "KUBERNETES_", "LC_", "NVIDIA_", "PYTHON", "XDG_")


@dataclass(frozen=True)
class Package:
    """What the engine uses of tinygrad, and the driver that it calls."""

    version: str
    tensor: Any
    jit: Any
    runner: Any
    device: Any
    library: str
    """The file of the driver, from this process's mappings."""
    graphs: bool
    """Whether the driver has CUDA graphs, so that a run is one launch of a graph."""
    device_name: str
    device_memory_mb: float
    driver_version: str


class ModelFile:
    """A model's file as tinygrad can open it: for writing too, although it only reads.

    A file that this user may not write, such as one of an image, is copied to a temporary one.
    """

    def __init__(self, path: str) -> None:
        self.path, self._copy = path, ""
        if os.access(path, os.W_OK):
            return
        descriptor, self._copy = tempfile.mkstemp(prefix="model-", suffix=".onnx")
        self.path = self._copy
        with Path(path).open("rb") as file, os.fdopen(descriptor, "wb") as copy:
            shutil.copyfileobj(file, copy, COPIED_BYTES)

    def close(self) -> None:
        """Delete the copy, if there is one."""
        if self._copy:
            Path(self._copy).unlink(missing_ok=True)


def settings(environ: Mapping[str, str], library: str, *, graphs: bool) -> dict[str, str]:
    """Return the variables under which tinygrad may be imported and used."""
    kept = {name: value for name, value in environ.items() if name in KEPT or name.startswith(KEPT_PREFIXES)}
    return {
        **kept,
        "DEV": RENDERER,
        "CUDA_PATH": library,  # a file: exactly this one is loaded, before any search
        "JIT": "1" if graphs else "2",
        "JIT_BATCH_SIZE": "0",  # one graph per run, not one for each 32, 64, 128 ... kernels
        "CACHELEVEL": "0",  # nothing in ~/.cache/tinygrad: our captures are kept with the models
        "DISABLE_HTTP_CACHE": "1",
        "PARALLEL": "0",  # no pool of compiling processes, which would stay beside the measurement
    }


@contextmanager
def only_these(variables: Mapping[str, str]) -> Iterator[None]:
    """Replace the environment of this process for a while; tinygrad keeps each setting as it first read it."""
    before = dict(os.environ)
    os.environ.clear()
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def open_package() -> tuple[Package, dict[str, str]]:
    """Import tinygrad on the driver that the loader finds; return it and the variables it must be used with."""
    try:
        driver = ctypes.CDLL(SONAME)
    except OSError as error:
        raise PreflightError(f"no {SONAME} can be used here: {error}", next_step=NO_LIBRARY) from error
    library = library_of(driver)
    if library is None:
        raise PreflightError(f"{SONAME} is mapped from no file", next_step=NO_LIBRARY)
    graphs = hasattr(driver, GRAPH_CALL)
    variables = settings(os.environ, library, graphs=graphs)
    with only_these(variables):
        return _opened(driver, library, graphs), variables


def _opened(driver: ctypes.CDLL, library: str, graphs: bool) -> Package:
    version = _required_version()
    try:
        import tinygrad
        from tinygrad.nn.onnx import OnnxRunner
        from tinygrad.runtime.autogen import cuda
        from tinygrad.uop.ops import UOp
    except ImportError as error:
        raise PreflightError(f"tinygrad cannot be imported: {error}", next_step=INSTALL) from error
    # It numbers buffers from 0 in each process and takes equal numbers for one buffer: a capture that another process
    # made would silently read ours.
    UOp.unique_num = itertools.count(int.from_bytes(os.urandom(5), "little") << 20)
    loaded = library_of(cuda.dll)
    if loaded != library:
        raise PreflightError(
            f"tinygrad loaded {loaded}, not the chosen driver {library}",
            where="engine tinygrad",
            next_step="this version of tinygrad searches for the driver in another way: install the pinned one",
        )
    try:
        device = tinygrad.Device["CUDA"]
    except Exception as error:
        raise PreflightError(f"the driver has no device: {error}", where=library, next_step=NO_LIBRARY) from error
    if type(device.renderer).__name__ != "PTXRenderer":
        raise PreflightError(
            f"tinygrad chose {type(device.renderer).__name__}, not its PTX renderer", where="engine tinygrad",
            next_step=INSTALL,
        )  # fmt: skip
    facts = device_facts(driver)  # tinygrad does not ask
    return Package(
        version, tinygrad.Tensor, tinygrad.TinyJit, OnnxRunner, device, library, graphs, facts.name, facts.memory_mb,
        facts.driver_version,
    )  # fmt: skip


def _required_version() -> str:
    try:
        version = importlib.metadata.version("tinygrad")
    except importlib.metadata.PackageNotFoundError as error:
        raise PreflightError("tinygrad is not installed", where="engine tinygrad", next_step=INSTALL) from error
    if version != TINYGRAD_VERSION:
        raise PreflightError(
            f"tinygrad {version} is installed, but the engine is written for {TINYGRAD_VERSION}",
            where="engine tinygrad",
            next_step=INSTALL,
        )
    return version
