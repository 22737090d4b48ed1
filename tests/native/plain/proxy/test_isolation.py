"""What is not a tenant's own does not exist for it: pointers, handles, memory inside kernels, the socket itself."""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest

from tests.native.hostile import Hostile, read_wire_facts

OWNER = """
import sys
import gpu
from gpu import *
from cuda.bindings import driver as cu
import numpy as np
gpu.begin()
secret = np.full(1 << 16, 0x77, np.uint8)
pointer = to_device(secret)
stream, loaded = ok(cu.cuStreamCreate(0)), module("vector")
print(int(pointer), int(stream), int(loaded), int(function(loaded, "vector_add")), flush=True)
sys.stdin.readline()
assert (from_device(pointer, secret) == secret).all()
print("unharmed", flush=True)
"""
STRANGER = """
import sys
import gpu
from gpu import *
from cuda.bindings import driver as cu
import numpy as np
gpu.begin()
pointer, stream, loaded, kernel = map(int, sys.argv[1:5])
mine = np.zeros(1 << 16, np.uint8)
own = to_device(mine)
found = []
for size in (1, 4096, 1 << 16):
    found.append(error(cu.cuMemcpyDtoH(mine.ctypes.data, pointer, size)))
    found.append(error(cu.cuMemcpyHtoD(pointer, mine.ctypes.data, size)))
    found.append(error(cu.cuMemsetD8(pointer, 0, size)))
    found.append(error(cu.cuMemcpyDtoD(own, pointer, size)))
    found.append(error(cu.cuMemcpyDtoD(pointer, own, size)))
found.append(error(cu.cuMemFree(pointer)))
assert set(found) == {"CUDA_ERROR_INVALID_VALUE"}, found
assert not mine.any()
handles = [error(cu.cuStreamSynchronize(stream)), error(cu.cuStreamDestroy(stream)), error(cu.cuModuleUnload(loaded)),
           error(cu.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0)),
           error(cu.cuModuleGetFunction(loaded, b"vector_add"))]
assert set(handles) == {"CUDA_ERROR_INVALID_HANDLE"}, handles
print("refused")
"""
REACHING_KERNEL = """
import sys, ctypes
import gpu
from gpu import *
from cuda.bindings import driver as cu
import numpy as np
gpu.begin()
own = to_device(np.zeros(256, np.float32))
foreign = cu.CUdeviceptr(int(sys.argv[1]))
launch(function(module("vector"), "vector_add"), (1,), (256,), (foreign, own, own, (256, ctypes.c_int)))
print(error(cu.cuCtxSynchronize()), error(cu.cuMemAlloc(16)))
"""


def test_foreign_pointers_and_handles_are_refused_and_their_owner_is_unharmed(nursery: Any) -> None:
    proxy = nursery.proxy()
    owner = nursery.start(OWNER, proxy.environment())
    numbers = owner.stdout.readline().split()
    assert nursery.run(STRANGER, proxy.environment(), *numbers) == "refused\n"
    output = nursery.run(REACHING_KERNEL, proxy.environment(), numbers[0])
    assert output.split() == ["CUDA_ERROR_ILLEGAL_ADDRESS"] * 2  # and it stays, in that context alone
    assert owner.communicate("go\n", timeout=20)[0] == "unharmed\n"


def test_the_proxy_refuses_what_a_client_without_checks_of_its_own_sends(nursery: Any) -> None:
    """libvgpu checks pointers itself; here its tables are bypassed by copying within the message's own range rules."""
    proxy = nursery.proxy()
    program = """
import gpu
from gpu import *
from cuda.bindings import driver as cu
import numpy as np
first = gpu.begin()
pointer = to_device(np.zeros(64, np.uint8))
stream, event = ok(cu.cuStreamCreate(0)), ok(cu.cuEventCreate(0))
loaded = module("vector")
kernel = function(loaded, "vector_add")
ok(cu.cuModuleUnload(loaded))
assert error(cu.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0)) == "CUDA_ERROR_INVALID_HANDLE"
assert error(cu.cuModuleUnload(loaded)) == "CUDA_ERROR_INVALID_HANDLE"
ok(cu.cuStreamDestroy(stream))
again = [ok(cu.cuStreamCreate(0)) for _ in range(3)]
assert int(stream) not in map(int, again)  # the slot is used again, its number is not
assert error(cu.cuStreamQuery(stream)) == "CUDA_ERROR_INVALID_HANDLE"
assert error(cu.cuEventRecord(event, stream)) == "CUDA_SUCCESS"  # posted: the error comes with the next answer
assert error(cu.cuCtxSynchronize()) == "CUDA_ERROR_INVALID_HANDLE"
assert error(cu.cuCtxSynchronize()) == "CUDA_SUCCESS"  # and once
ok(cu.cuMemFree(pointer))
assert error(cu.cuMemFree(pointer)) == "CUDA_ERROR_INVALID_VALUE"
assert error(cu.cuMemsetD8(pointer, 0, 1)) == "CUDA_ERROR_INVALID_VALUE"
ok(cu.cuCtxDestroy(first))
second = gpu.begin()
assert error(cu.cuStreamQuery(again[0])) == "CUDA_ERROR_INVALID_HANDLE"
assert error(cu.cuCtxSetCurrent(first)) == "CUDA_ERROR_INVALID_CONTEXT"
"""
    nursery.run(program, proxy.environment())


@pytest.mark.skipif(os.geteuid() != 0, reason="needs another user to try as")
@pytest.mark.parametrize(("mode", "allowed"), [("0600", False), ("0666", True)])
def test_the_sockets_mode_decides_who_may_connect(nursery: Any, mode: str, allowed: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        nursery.folder = Path(folder)
        proxy = nursery.proxy("--mode", mode)
        for path in (proxy.socket, Path(f"{proxy.socket}.status")):
            assert oct(path.stat().st_mode & 0o777) == oct(int(mode, 8))
            assert connects_as_nobody(path) == allowed
        assert proxy.stop() == 0
        assert list(Path(folder).iterdir()) == []


def connects_as_nobody(path: Path) -> bool:
    child = os.fork()
    if child == 0:
        try:
            os.setgid(65534)
            os.setuid(65534)
            socket.socket(socket.AF_UNIX).connect(str(path))
            os._exit(0)
        except PermissionError:
            os._exit(1)
        finally:
            os._exit(2)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, 1)
    return code == 0


SHIM = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
/* A driver that answers for modules of any context, and copies without looking whose memory it is. */
typedef int create(void **, unsigned int, int);
typedef int use(void *);
typedef int get(unsigned long long *, size_t *, void *, const char *);
static void *contexts[8], *software;
static int count;
static void *real(const char *name)
{
    if (!software)
        software = dlopen(SOFTWARE, RTLD_NOW | RTLD_LOCAL);
    return dlsym(software, name);
}
int cuCtxCreate_v2(void **context, unsigned int flags, int device)
{
    int result = ((create *)real("cuCtxCreate_v2"))(context, flags, device);
    contexts[count++ % 8] = *context;
    return result;
}
int cuModuleGetGlobal_v2(unsigned long long *pointer, size_t *bytes, void *module, const char *name)
{
    void *before = NULL;
    int result = 1;
    ((int (*)(void **))real("cuCtxGetCurrent"))(&before);
    for (int i = 0; i < 8 && result; i++)
        if (contexts[i] && !((use *)real("cuCtxSetCurrent"))(contexts[i]))
            result = ((get *)real("cuModuleGetGlobal_v2"))(pointer, bytes, module, name);
    ((use *)real("cuCtxSetCurrent"))(before);
    return result;
}
int cuMemcpyDtoHAsync_v2(void *to, unsigned long long from, size_t bytes, void *stream)
{
    return 0;
}
"""


def test_a_variable_ends_with_the_context_of_its_module_whatever_context_asked_for_it(
    nursery: Any, tmp_path: Path
) -> None:
    """The software device refuses it all the same; on a permissive driver the freed range would be another tenant's."""
    source, shim = tmp_path / "shim.c", tmp_path / "libshim.so"
    software = nursery.build / "software" / "libcuda.so.1"
    source.write_text(SHIM)
    words = [
        "cc",
        "-shared",
        "-fPIC",
        "-Wl,--no-as-needed",
        f'-DSOFTWARE="{software}"',
        "-o",
        str(shim),
        str(source),
        str(software),
        "-ldl",
    ]
    subprocess.run([*words, f"-Wl,-rpath,{software.parent}"], check=True)
    proxy = nursery.proxy(backend=shim)
    fingerprint, calls = read_wire_facts(nursery.build)
    text = b".version 8.0\n.target sm_80\n.address_size 64\n.visible .global .align 8 .u64 cell = 7;\n\0"
    with Hostile(proxy.socket, fingerprint) as hostile:
        first = hostile.ask_word(calls["cuCtxCreate_v2"], 0)
        module = hostile.ask_word(calls["cuModuleLoadData"], first, len(text), bulk=text)
        second = hostile.ask_word(calls["cuCtxCreate_v2"], 0)
        cell = hostile.ask_word(calls["cuModuleGetGlobal_v2"], second, module, tail=b"cell\0")
        assert hostile.ask(calls["cuMemcpyDtoH_v2"], second, cell, 8)[0] == 0, "it is the tenant's own"
        assert hostile.ask(calls["cuCtxDestroy_v2"], first)[0] == 0
        assert hostile.ask(calls["cuMemcpyDtoH_v2"], second, cell, 8)[0] == 1, "and now it is nobody's"
