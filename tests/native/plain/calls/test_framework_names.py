"""Names that frameworks look up or link: both libraries export each of them, and what is not implemented says so."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest

NOT_SUPPORTED, INVALID_VALUE = 801, 1
# PyTorch's table of driver calls: with one of them missing CUDA is not used ("named symbol not found").
TORCH = [
    "cuMemAddressReserve",
    "cuMemAddressFree",
    "cuMemCreate",
    "cuMemRelease",
    "cuMemMap",
    "cuMemUnmap",
    "cuMemSetAccess",
    "cuMemGetAllocationGranularity",
    "cuMemExportToShareableHandle",
    "cuMemImportFromShareableHandle",
    "cuMemRetainAllocationHandle",
    "cuMemGetAllocationPropertiesFromHandle",
    "cuStreamWriteValue32",
    "cuMulticastCreate",
    "cuMulticastAddDevice",
    "cuMulticastBindMem",
    "cuMulticastUnbind",
    "cuCtxFromGreenCtx",
    "cuGreenCtxCreate",
    "cuGreenCtxDestroy",
    "cuGreenCtxStreamCreate",
    "cuDeviceGetDevResource",
    "cuDevSmResourceSplitByCount",
    "cuDevResourceGenerateDesc",
    "cuLogsRegisterCallback",
    "cuLogsUnregisterCallback",
]
# cuBLASLt looks these up with dlsym, by the bare name, and gives an internal error if one is missing.
CUBLASLT = [
    "cuCtxPushCurrent",
    "cuCtxPopCurrent",
    "cuDevicePrimaryCtxRelease",
    "cuDevicePrimaryCtxReset",
    "cuLinkCreate_v2",
    "cuLinkAddData_v2",
    "cuLinkAddFile_v2",
    "cuLinkComplete",
    "cuLinkDestroy",
    "cuModuleLoadFatBinary",
    "cuStreamWaitValue32",
    "cuStreamBatchMemOp",
    "cuGraphLaunch",
    "cuGraphInstantiate",
    "cuGraphDestroy",
    "cuGraphExecDestroy",
    "cuGraphGetNodes",
    "cuGraphNodeGetType",
    "cuGraphKernelNodeGetParams",
    "cuGraphExecKernelNodeSetParams",
    "cuCtxEnablePeerAccess",
    "cuCtxDisablePeerAccess",
    "cuDeviceCanAccessPeer",
    "cuStreamGetCtx",
    "cuMemcpy2DAsync_v2",
    "cuOccupancyMaxActiveClusters",
]
# What torch's libcaffe2_nvrtc.so and ONNX Runtime's CUDA provider link: the loader refuses them without one of these.
LINKED = [
    "cuLinkCreate_v2",
    "cuLinkAddData_v2",
    "cuLinkComplete",
    "cuModuleLoad",
    "cuModuleLoadDataEx",
    "cuModuleUnload",
    "cuFuncGetAttribute",
    "cuFuncSetAttribute",
    "cuFuncSetCacheConfig",
    "cuLaunchKernel",
    "cuGetErrorString",
    "cuTensorMapEncodeTiled",
    "cuOccupancyMaxActiveBlocksPerMultiprocessor",
]
IMPLEMENTED = {
    "cuCtxPushCurrent", "cuCtxPopCurrent", "cuDevicePrimaryCtxRelease", "cuDevicePrimaryCtxReset",
    "cuModuleLoadFatBinary",
    "cuGraphLaunch", "cuGraphInstantiate", "cuGraphDestroy", "cuGraphExecDestroy", "cuGraphGetNodes",
    "cuGraphNodeGetType", "cuGraphExecKernelNodeSetParams", "cuDeviceCanAccessPeer", "cuOccupancyMaxActiveClusters",
}  # fmt: skip


@pytest.fixture(scope="module", params=["vgpu", "software"])
def library(request: pytest.FixtureRequest, native_build: Path) -> ctypes.CDLL:
    return ctypes.CDLL(str(native_build / request.param / "libcuda.so.1"), mode=ctypes.RTLD_LOCAL)


def test_there_are_as_many_as_pytorch_asks_for() -> None:
    assert len(set(TORCH)) == 26


@pytest.mark.parametrize("name", sorted({*TORCH, *CUBLASLT, *LINKED}))
def test_a_name_that_a_framework_needs_is_exported(library: ctypes.CDLL, name: str) -> None:
    assert getattr(library, name)


@pytest.mark.parametrize("name", TORCH)
def test_pytorch_finds_each_by_its_look_up_too(library: ctypes.CDLL, name: str) -> None:
    found = ctypes.c_void_p()
    code = library.cuGetProcAddress_v2(name.encode(), ctypes.byref(found), 13000, ctypes.c_uint64(0), None)
    assert (code, bool(found.value)) == (0, True)


@pytest.mark.parametrize("name", sorted({*TORCH, *CUBLASLT} - IMPLEMENTED))
def test_what_is_not_implemented_says_so(library: ctypes.CDLL, name: str) -> None:
    assert getattr(library, name)() == NOT_SUPPORTED


def test_older_names_are_the_newer_functions(library: ctypes.CDLL) -> None:
    assert library.cuCtxPopCurrent(None) == library.cuCtxPopCurrent_v2(None)
    assert library.cuModuleLoad(None, b"x") == INVALID_VALUE
    module = ctypes.c_void_p()
    assert library.cuModuleLoad(ctypes.byref(module), b"/nowhere/at/all") == 301
    mode = ctypes.c_int()
    assert library.cuModuleGetLoadingMode(ctypes.byref(mode)) == 0
    assert mode.value == 2
    assert library.cuFuncSetCacheConfig(None, 9) == INVALID_VALUE
