"""The software device's reader of fat binaries: every way of packing, and damaged ones."""

from __future__ import annotations

import pytest

from tests.native.plain.runtime.test_cudart import FATBIN
from tests.native.proxies import PROGRAMS, Nursery


@pytest.mark.parametrize("behind", ["device", "proxy"])
def test_every_form_is_read_and_damage_is_survived(nursery: Nursery, behind: str) -> None:
    environment = nursery.direct() if behind == "device" else nursery.proxy().environment()
    assert nursery.run(PROGRAMS / "fatbins.py", environment, str(FATBIN), "300") == "done\n"


def test_a_tenants_wrapper_is_not_followed_by_the_proxy(nursery: Nursery) -> None:
    """It holds an address, which would be the proxy's; libvgpu itself sends the fat binary behind it."""
    program = """
import ctypes, sys
driver = ctypes.CDLL("libcuda.so.1")
image = open(sys.argv[1], "rb").read()
data = ctypes.create_string_buffer(image, len(image))
class Wrapper(ctypes.Structure):
    _fields_ = [("magic", ctypes.c_uint), ("version", ctypes.c_int), ("data", ctypes.c_void_p), ("no", ctypes.c_void_p)]
wrapper, module, context = Wrapper(0x466243B1, 1, ctypes.addressof(data), None), ctypes.c_void_p(), ctypes.c_void_p()
assert driver.cuInit(0) == 0
assert driver.cuCtxCreate_v2(ctypes.byref(context), 0, 0) == 0
assert driver.cuModuleLoadData(ctypes.byref(module), ctypes.byref(wrapper)) == 0
assert driver.cuModuleLoadFatBinary(ctypes.byref(module), data) == 0
inner = Wrapper(0x466243B1, 1, ctypes.addressof(wrapper), None)
assert driver.cuModuleLoadData(ctypes.byref(module), ctypes.byref(inner)) != 0
"""
    nursery.run(program, nursery.direct(), str(FATBIN))
    nursery.run(program, nursery.proxy().environment(), str(FATBIN))


def test_a_library_whose_image_the_program_keeps_travels_when_it_is_used(nursery: Nursery) -> None:
    program = """
import ctypes, json, sys
driver = ctypes.CDLL("libcuda.so.1")
def loads():
    text = ctypes.create_string_buffer(65536)
    assert driver.gputax_vgpu_describe(text, ctypes.c_size_t(65536)) > 0
    return json.loads(text.value)["calls"].get("cuModuleLoadData", 0)
image = open(sys.argv[1], "rb").read()
data, context = ctypes.create_string_buffer(image, len(image)), ctypes.c_void_p()
assert driver.cuInit(0) == 0
assert driver.cuCtxCreate_v2(ctypes.byref(context), 0, 0) == 0
for preserved, before in ((1, 0), (0, 1)):
    library, kernel, option, start = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_int(1), loads()
    words = (ctypes.byref(library), data, None, None, 0, ctypes.byref(option), None, preserved)
    assert driver.cuLibraryLoadData(*words) == 0
    assert loads() - start == before
    for name, code in ((b"weigh", 0), (b"weigh", 0), (b"none", 500)):
        assert driver.cuLibraryGetKernel(ctypes.byref(kernel), library, name) == code
    assert loads() - start == 1
    assert driver.cuLibraryUnload(library) == 0
"""
    nursery.run(program, nursery.proxy().environment(), str(FATBIN))


UNLOADED_ELSEWHERE = """
import ctypes, sys
from pathlib import Path
import gpu
from cuda.bindings import driver as cu
first = gpu.begin()
free = gpu.ok(cu.cuMemGetInfo())[0]
image = Path(sys.argv[1]).read_bytes()
library = gpu.ok(cu.cuLibraryLoadData(image, [], [], 0, [], [], 0))
gpu.ok(cu.cuLibraryGetGlobal(library, b"table"))
loaded = gpu.ok(cu.cuMemGetInfo())[0]
second = gpu.ok(cu.cuCtxCreate(None, 0, 0))
gpu.ok(cu.cuLibraryGetGlobal(library, b"table"))
gpu.ok(cu.cuLibraryUnload(library))
assert int(gpu.ok(cu.cuCtxGetCurrent())) == int(second)
gpu.ok(cu.cuCtxDestroy(second))
gpu.ok(cu.cuCtxSetCurrent(first))
print(loaded < free, gpu.ok(cu.cuMemGetInfo())[0] == free)
"""


@pytest.mark.parametrize("behind", ["device", "proxy"])
def test_a_library_is_unloaded_from_every_context(nursery: Nursery, behind: str) -> None:
    environment = nursery.direct() if behind == "device" else nursery.proxy("--memory-mb", "64").environment()
    assert nursery.run(UNLOADED_ELSEWHERE, environment, str(FATBIN)) == "True True\n"
