"""cuGetProcAddress as NVIDIA documents it, answered alike by libvgpu and by the software device."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest

NO_ERROR, INVALID_VALUE, NOT_FOUND, NOT_SUPPORTED = 0, 1, 500, 801
FOUND, NO_SYMBOL, NO_VERSION = 0, 1, 2
NEWEST = 13000
LEGACY_STREAM, PER_THREAD = 1, 2


@pytest.fixture(scope="module", params=["vgpu", "software"])
def library(request: pytest.FixtureRequest, native_build: Path) -> ctypes.CDLL:
    return ctypes.CDLL(str(native_build / request.param / "libcuda.so.1"), mode=ctypes.RTLD_LOCAL)


def look_up(library: ctypes.CDLL, name: str, version: int, flags: int = 0) -> tuple[int, bool, int]:
    """Ask the form of CUDA 12: its code, whether there is an address, and its status."""
    function, status = ctypes.c_void_p(1), ctypes.c_int(-1)
    words = (name.encode(), ctypes.byref(function), version, ctypes.c_uint64(flags))
    code = library.cuGetProcAddress_v2(*words, ctypes.byref(status))
    bare = ctypes.c_void_p(1)
    assert library.cuGetProcAddress_v2(words[0], ctypes.byref(bare), *words[2:], None) == code, "status is optional"
    assert bare.value == function.value
    return code, bool(function.value), status.value


def look_up_as_in_cuda_11(library: ctypes.CDLL, name: str, version: int, flags: int = 0) -> tuple[int, bool]:
    function = ctypes.c_void_p(1)
    code = library.cuGetProcAddress(name.encode(), ctypes.byref(function), version, ctypes.c_uint64(flags))
    return code, bool(function.value)


@pytest.mark.parametrize(
    ("name", "version", "flags", "status"),
    [
        ("cuMemAlloc", NEWEST, 0, FOUND),
        ("cuMemAlloc", NEWEST, LEGACY_STREAM, FOUND),
        ("cuMemAlloc", NEWEST, PER_THREAD, FOUND),  # it has no per-thread form: the legacy one is the answer
        ("cuMemAlloc", 3019, 0, NO_VERSION),
        ("cuMemAlloc", 0, 0, NO_VERSION),
        ("cuMemAlloc", -1, 0, NO_VERSION),
        ("cuLaunchKernel", NEWEST, LEGACY_STREAM, FOUND),
        ("cuLaunchKernel", NEWEST, PER_THREAD, FOUND),
        ("cuLaunchKernel", 1000, PER_THREAD, NO_VERSION),
        ("cuMemAlloc_v2", NEWEST, 0, NO_SYMBOL),
        ("cuGraphCreate", NEWEST, 0, FOUND),
        ("cuGraphCreate", 9000, 0, NO_VERSION),
        ("cuGraphAddDependencies", NEWEST, 0, NO_VERSION),  # CUDA 13 has a form with other arguments
        ("cuStreamBeginCapture", NEWEST, 0, FOUND),
        ("cuStreamBeginCaptureToGraph", NEWEST, 0, NO_SYMBOL),
        ("cuTexObjectCreate", NEWEST, 0, NO_SYMBOL),
        ("cuLaunchKernelEx", 11000, 0, NO_VERSION),
        ("cumemalloc", NEWEST, 0, NO_SYMBOL),
        ("", NEWEST, 0, NO_SYMBOL),
        ("x" * 10_000, NEWEST, 0, NO_SYMBOL),
    ],
)
def test_what_is_missing_is_a_success_without_an_address(
    library: ctypes.CDLL, name: str, version: int, flags: int, status: int
) -> None:
    found = status == FOUND
    assert look_up(library, name, version, flags) == (NO_ERROR, found, status)
    assert look_up_as_in_cuda_11(library, name, version, flags) == (NO_ERROR if found else NOT_FOUND, found)


@pytest.mark.parametrize("flags", [LEGACY_STREAM | PER_THREAD, 4, 9, 2**63])
def test_flags_that_no_version_has_are_refused(library: ctypes.CDLL, flags: int) -> None:
    assert look_up(library, "cuInit", NEWEST, flags)[0] == INVALID_VALUE
    assert look_up_as_in_cuda_11(library, "cuInit", NEWEST, flags)[0] == INVALID_VALUE


def test_null_pointers_are_refused(library: ctypes.CDLL) -> None:
    function = ctypes.c_void_p()
    for ask in (library.cuGetProcAddress, library.cuGetProcAddress_v2):
        assert ask(None, ctypes.byref(function), NEWEST, ctypes.c_uint64(0), None) == INVALID_VALUE
        assert ask(b"cuInit", None, NEWEST, ctypes.c_uint64(0), None) == INVALID_VALUE


@pytest.mark.parametrize("name", ["00" * 16, "6bd5fb6c5bf4e74a8987d93912fd9df9", "d4082055bde6704b8d34ba123c66e1f2"])
def test_hidden_tables_are_not_found_unless_asked_for(
    library: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    table, uuid = ctypes.c_void_p(1), bytes.fromhex(name)
    monkeypatch.delenv("GPUTAX_CUDA_RUNTIME", raising=False)
    assert library.cuGetExportTable(ctypes.byref(table), uuid) == NOT_FOUND
    assert table.value is None
    monkeypatch.setenv("GPUTAX_CUDA_RUNTIME", "1")
    known = not name.startswith("00")
    assert library.cuGetExportTable(ctypes.byref(table), uuid) == (NO_ERROR if known else NOT_SUPPORTED)
    assert bool(table.value) is known
    assert library.cuGetExportTable(None, uuid) == INVALID_VALUE
    assert library.cuGetExportTable(ctypes.byref(table), None) == INVALID_VALUE


def test_a_version_beyond_the_drivers_is_refused(native_build: Path) -> None:
    """Of the software device, whose version is known; libvgpu learns that of the proxy's driver when it connects."""
    library = ctypes.CDLL(str(native_build / "software" / "libcuda.so.1"), mode=ctypes.RTLD_LOCAL)
    version = ctypes.c_int()
    assert library.cuDriverGetVersion(ctypes.byref(version)) == NO_ERROR
    assert look_up(library, "cuInit", version.value)[0] == NO_ERROR
    code, found, _ = look_up(library, "cuInit", version.value + 1)
    assert (code, found) == (INVALID_VALUE, False)
