"""The compiler process of a worker: it alone starts the C compiler and uses the folder of compiled kernels."""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

PROGRAMS = Path(__file__).parents[2] / "programs"
HEAD = ".version 7.0\\n.target sm_70\\n.address_size 64\\n"
COUNT = HEAD + (
    ".visible .entry k(.param .u64 p) { .reg .b64 %a, %b; .reg .b32 %r; ld.param.u64 %a, [p];"
    " mov.u32 %r, %tid.x; mul.wide.u32 %b, %r, 4; add.s64 %a, %a, %b; st.global.u32 [%a], %r; }"
)
COUNTING = f"""
import sys
import numpy as np
import gpu
from gpu import *
from cuda.bindings import driver as cu
gpu.begin()
out = to_device(np.zeros(64, np.uint32))
kernel = function(ok(cu.cuModuleLoadData(b"{COUNT}\\0")), "k")
print(describe()["tenant"], flush=True)
threads = 64
while True:
    launch(kernel, (1,), (threads,), (out,))
    print((from_device(out, np.zeros(64, np.uint32)) == np.arange(64)).all(), flush=True)
    threads = int(sys.stdin.readline())  # another size is another text
"""


@pytest.fixture
def code(tmp_path: Path) -> Path:
    folder = tmp_path / "code"
    folder.mkdir(mode=0o700)
    return folder


def compiling(nursery: Any, code: Path, *options: str, **device: str) -> Any:
    return nursery.proxy(*options, device={"GPUTAX_SOFT_COMPILE": "always", "GPUTAX_SOFT_CODE": str(code), **device})


def compilers_of(proxy: Any) -> list[int]:
    """The compiler processes of a broker that live."""
    children = Path(f"/proc/{proxy.process.pid}/task/{proxy.process.pid}/children").read_text().split()
    return [int(pid) for pid in children if Path(f"/proc/{pid}/comm").read_text() == "gputax-compiler\n"]


def wait_until(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.02)


def counting(nursery: Any, proxy: Any) -> tuple[Any, int]:
    """A tenant that has run its kernel once and got the right answer."""
    process = nursery.start(COUNTING, proxy.environment())
    tenant = int(process.stdout.readline())
    assert process.stdout.readline() == "True\n"
    return process, tenant


def again(process: Any, threads: int) -> bool:
    """Run the kernel with blocks of another size; whether the answer was right."""
    process.stdin.write(f"{threads}\n")
    process.stdin.flush()
    return bool(process.stdout.readline() == "True\n")


def test_every_kernel_of_the_project_is_compiled_for_a_confined_worker(nursery: Any, code: Path) -> None:
    proxy = compiling(nursery, code)
    lines = nursery.run(PROGRAMS / "kernels.py", proxy.environment()).splitlines()
    assert (
        lines == nursery.run(PROGRAMS / "kernels.py", nursery.direct() | {"GPUTAX_SOFT_COMPILE": "never"}).splitlines()
    )
    report = proxy.status()["software"]
    assert report["kernels_compiled"] >= 17, report
    assert (report["compiler_failed"], report["warning"]) == (0, "")
    assert len(list(code.glob("*.so"))) >= 17
    assert "seccomp" in proxy.status()["confinement"]


def test_it_is_started_with_the_first_text_and_the_next_tenant_takes_the_code_from_the_cache(
    nursery: Any, code: Path
) -> None:
    proxy = compiling(nursery, code)
    idle = nursery.start("import gpu, sys; gpu.begin(); print(flush=True); sys.stdin.readline()", proxy.environment())
    idle.stdout.readline()
    assert compilers_of(proxy) == []
    counting(nursery, proxy)
    assert len(compilers_of(proxy)) == 1
    counting(nursery, proxy)
    report = proxy.status()["software"]
    assert (report["kernels_compiled"], report["kernels_from_cache"]) == (1, 1)


def test_it_ends_with_its_worker(nursery: Any, code: Path) -> None:
    proxy = compiling(nursery, code)
    process, _ = counting(nursery, proxy)
    assert len(compilers_of(proxy)) == 1
    process.kill()
    wait_until(lambda: compilers_of(proxy) == [])


# A C compiler that does not end, and whose own child would not either.
ENDLESS = """#!/bin/sh
sleep 300 &
echo $! > pid.new
mv pid.new pid
wait
"""


@pytest.mark.parametrize("ends", ["tenant", "broker"])
def test_a_compilation_ends_with_its_tenant_or_broker(nursery: Any, code: Path, tmp_path: Path, ends: str) -> None:
    compiler = tmp_path / "bin/cc"
    compiler.parent.mkdir()
    compiler.write_text(ENDLESS)
    compiler.chmod(0o755)
    proxy = compiling(nursery, code, PATH=f"{compiler.parent}:{os.environ['PATH']}")
    tenant = nursery.start(COUNTING, proxy.environment())
    wait_until(lambda: bool(list(code.glob("work.*/pid"))))
    (noted,) = code.glob("work.*/pid")
    pid = int(noted.read_text())
    assert Path(f"/proc/{pid}").exists()
    (tenant if ends == "tenant" else proxy.process).kill()
    wait_until(lambda: not Path(f"/proc/{pid}").exists())


def test_a_tenant_whose_compiler_process_is_killed_is_interpreted(nursery: Any, code: Path) -> None:
    proxy = compiling(nursery, code)
    process, tenant = counting(nursery, proxy)
    (compiler,) = compilers_of(proxy)
    os.kill(compiler, signal.SIGKILL)
    assert again(process, 32)
    report = proxy.status()["software"]
    assert (report["launches_compiled"], report["launches_interpreted"]) == (1, 1)
    assert [each["id"] for each in proxy.status()["tenants"]] == [tenant]


def test_what_the_worker_has_of_the_folder_and_the_compiler(nursery: Any, code: Path) -> None:
    proxy = compiling(nursery, code)
    counting(nursery, proxy)
    worker = proxy.status()["tenants"][0]["worker"]
    variables = Path(f"/proc/{worker}/environ").read_bytes()
    assert b"PATH=" not in variables.replace(b"LD_LIBRARY_PATH=", b"")
    assert b"HOME=" not in variables
    (compiler,) = compilers_of(proxy)
    status = Path(f"/proc/{compiler}/status").read_text()
    assert "NoNewPrivs:\t1\n" in status
    assert "CapPrm:\t0000000000000000\n" in status


def test_without_a_compiler_the_kernels_are_interpreted_with_a_warning(nursery: Any, code: Path) -> None:
    proxy = nursery.proxy(device={"GPUTAX_SOFT_COMPILE": "always", "GPUTAX_SOFT_CODE": str(code), "PATH": str(code)})
    process, _ = counting(nursery, proxy)
    assert again(process, 32)
    report = proxy.status()["software"]
    assert (report["launches_compiled"], report["launches_interpreted"]) == (0, 2)
    assert "no C compiler" in report["warning"], json.dumps(report)


NATIVE = Path(__file__).parents[4] / "native"
PRELUDE = "".join(
    (NATIVE / name).read_text() for name in ("device/ptx/scalar.h", "device/compile/abi.h", "device/compile/prelude.h")
)
BLOCK = "\nint gputax_block(struct compiled_call *c)\n{\nreturn 0;\n}\n"
MISSED, KEPT, BUILT, FAILED = range(4)
SERVES = "import ctypes, sys; sys.exit(ctypes.CDLL(sys.argv[1]).gputaxServeCompiler(int(sys.argv[2])))"
MAGIC = 0x6B637067


class Office:
    """A compiler process, and the worker's end of its socket."""

    def __init__(self, library: Path, code: Path, **variables: str) -> None:
        self.end, other = socket.socketpair()
        self.end.settimeout(120)
        words = [sys.executable, "-c", SERVES, str(library), str(other.fileno())]
        environment = {"PATH": os.environ["PATH"], "GPUTAX_SOFT_CODE": str(code), **variables}
        self.process = subprocess.Popen(words, env=environment, pass_fds=[other.fileno()])
        other.close()

    def order(self, text: str, *, may_build: bool = True, magic: int = MAGIC) -> tuple[int, bytes]:
        """The outcome for a text, and the object."""
        encoded = text.encode()
        self.end.sendall(struct.pack("<IIQ", magic, may_build, len(encoded)) + encoded)
        outcome, _, length = struct.unpack_from("<IIQ", self._receive(16 + 512))
        return outcome, self._receive(length)

    def _receive(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            part = self.end.recv(count - len(data))
            assert part, "it hung up"
            data += part
        return data

    def close(self) -> int:
        self.end.close()
        return self.process.wait(20)


@pytest.fixture
def library(native_build: Path) -> Path:
    return native_build / "software/libcuda.so.1"


def test_a_text_is_built_once_and_then_kept(library: Path, code: Path) -> None:
    office = Office(library, code)
    assert office.order(PRELUDE + BLOCK, may_build=False) == (MISSED, b"")
    outcome, built = office.order(PRELUDE + BLOCK)
    assert (outcome, built[:4]) == (BUILT, b"\x7fELF")
    assert office.order(PRELUDE + BLOCK, may_build=False) == (KEPT, built)
    assert office.close() == 0


@pytest.mark.parametrize(
    "hostile",
    [
        '#include "/etc/passwd"\n',
        "#include </etc/passwd>\n",
        "%:include </etc/passwd>\n",
        "#define f(x) #x\n",
        '__asm__(".incbin \\"/etc/passwd\\"");\n',
        '_Pragma("GCC optimize (0)")\n',
        "int a = 'a';\n",
        "#define fa \\\n#include </etc/passwd>\n",
    ],
)
def test_a_text_that_could_name_a_file_or_an_option_is_refused(library: Path, code: Path, hostile: str) -> None:
    office = Office(library, code)
    assert office.order(PRELUDE + "\n" + hostile + BLOCK) == (FAILED, b"")
    assert office.order(hostile + PRELUDE + BLOCK) == (FAILED, b""), "nor does it begin with another prelude"
    assert list(code.iterdir()) == []
    assert office.close() == 0


def test_an_order_that_is_none_ends_it(library: Path, code: Path) -> None:
    office = Office(library, code)
    with pytest.raises((AssertionError, ConnectionResetError)):
        office.order(PRELUDE + BLOCK, magic=1)
    assert office.process.wait(20) == 1
    office.end.close()


# A stand-in for the C compiler: it does what $1 says, and compiles only if that has the expected result.
STAND_IN = """#!/bin/sh
{attempt} && exit 1
exec {compiler} "$@"
"""


@pytest.mark.parametrize(
    ("attempt", "refused"),
    [
        ("cat {secret} >/dev/null 2>&1", True),  # a file of the user's
        ("ls {code} >/dev/null 2>&1", True),  # other tenants' kernels
        ("(echo > {code}/other.so) 2>/dev/null", True),  # and instead of them
        ("kill -0 {pid} 2>/dev/null", True),
        ("(echo > $PWD/mine) 2>/dev/null", False),  # what it must be able to do
        ("cat /usr/include/stdint.h >/dev/null 2>&1", False),
    ],
)
def test_the_c_compiler_reaches_the_toolchain_and_its_own_folder_only(
    library: Path, code: Path, tmp_path: Path, attempt: str, refused: bool
) -> None:
    (tmp_path / "secret").write_text("x")
    places = {"secret": tmp_path / "secret", "code": code, "pid": os.getpid()}
    compiler = tmp_path / "bin/cc"
    compiler.parent.mkdir()
    compiler.write_text(STAND_IN.format(attempt=attempt.format(**places), compiler="/usr/bin/cc"))
    compiler.chmod(0o755)
    office = Office(library, code, PATH=f"{compiler.parent}:{os.environ['PATH']}", HOME=str(tmp_path))
    assert office.order(PRELUDE + BLOCK)[0] == (BUILT if refused else FAILED)
    office.close()
