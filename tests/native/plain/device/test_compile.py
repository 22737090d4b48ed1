"""Compiled kernels on the software device: the interpreter's bytes, and the interpreter where they cannot be."""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

REPORT = """
def report():
    text = ctypes.create_string_buffer(4096)
    ctypes.CDLL("libcuda.so.1").gputax_soft_report(text, 4096)
    return json.loads(text.value)
"""
BEGIN = "import ctypes, json\nimport numpy as np\nfrom device import *\n" + REPORT


@pytest.fixture(scope="session")
def code(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder of compiled kernels that the tests share."""
    folder = tmp_path_factory.mktemp("code")
    folder.chmod(0o700)
    return str(folder)


def digests(on_software: Any, **settings: str) -> dict[str, str]:
    lines = map(json.loads, on_software("kernels.py", **settings).stdout.splitlines())
    return {line["kernel"]: line["digest"] for line in lines}


def test_every_kernel_of_the_project_gives_the_interpreters_bytes(on_software: Any, code: str) -> None:
    compiled = digests(on_software, GPUTAX_SOFT_COMPILE="always", GPUTAX_SOFT_CODE=code)
    assert compiled == digests(on_software, GPUTAX_SOFT_COMPILE="never")
    assert len(list(Path(code).glob("*.so"))) >= 17


def test_random_kernels_give_the_interpreters_bytes(on_software: Any, code: str) -> None:
    compiled = on_software("random_kernels.py", "30", GPUTAX_SOFT_COMPILE="always", GPUTAX_SOFT_CODE=code)
    interpreted = on_software("random_kernels.py", "30", GPUTAX_SOFT_COMPILE="never")
    assert compiled.stdout == interpreted.stdout
    assert compiled.stderr == ""


HEAD = ".version 7.0\\n.target sm_70\\n.address_size 64\\n"
ENDLESS = HEAD + ".visible .entry k() { $L: bra $L; }"
WILD = HEAD + (
    ".visible .entry k(.param .u64 p) {{ .reg .b64 %a; .reg .b32 %r; ld.param.u64 %a, [p];"
    " mov.u32 %r, 1; st.global.u32 [%a+{offset}], %r; }}"
)
COUNT = HEAD + (
    ".visible .entry k(.param .u64 p) { .reg .b64 %a, %b; .reg .b32 %r; ld.param.u64 %a, [p];"
    " mov.u32 %r, %tid.x; mul.wide.u32 %b, %r, 4; add.s64 %a, %a, %b; st.global.u32 [%a], %r; }"
)
FAULT = """
start()
out = Buffer(np.zeros(64, np.uint32))
launch(Module("{ptx}").kernel("k"), (2,), ({threads},){arguments})
found = error_of(driver.cuCtxSynchronize())
print(json.dumps([found, report()["launches_compiled"]]))
"""
COUNTED = f"""
start()
out = Buffer(np.zeros(64, np.uint32))
launch(Module("{COUNT}").kernel("k"), (1,), (64,), out)
print(json.dumps([out.read().tolist() == list(range(64)), report()]))
"""


def ran(on_software: Any, program: str, **settings: str) -> Any:
    return json.loads(on_software(BEGIN + program, **settings).stdout)


@pytest.mark.parametrize(
    ("ptx", "threads", "arguments", "error"),
    [
        (ENDLESS, 32, "", "CUDA_ERROR_LAUNCH_TIMEOUT"),
        (WILD.format(offset=1 << 40), 1, ", out", "CUDA_ERROR_ILLEGAL_ADDRESS"),
        (WILD.format(offset=256), 3, ", out", "CUDA_ERROR_ILLEGAL_ADDRESS"),
        (WILD.format(offset=2), 8, ", out", "CUDA_ERROR_MISALIGNED_ADDRESS"),
        (COUNT, 65, ", out", "CUDA_ERROR_ILLEGAL_ADDRESS"),
        (COUNT, 72, ", out", "CUDA_ERROR_ILLEGAL_ADDRESS"),
    ],
)
def test_a_fault_is_the_interpreters(
    on_software: Any, code: str, ptx: str, threads: int, arguments: str, error: str
) -> None:
    program = FAULT.format(ptx=ptx, threads=threads, arguments=arguments)
    settings = {"GPUTAX_SOFT_TIMEOUT_S": "1", "GPUTAX_SOFT_CODE": code}
    assert ran(on_software, program, GPUTAX_SOFT_COMPILE="always", **settings) == [error, 1]
    assert ran(on_software, program, GPUTAX_SOFT_COMPILE="never", **settings) == [error, 0]


def private(folder: Path) -> str:
    folder.mkdir(mode=0o700)
    return str(folder)


def test_a_second_process_takes_the_code_from_the_cache(on_software: Any, tmp_path: Path) -> None:
    settings = {"GPUTAX_SOFT_COMPILE": "always", "GPUTAX_SOFT_CODE": private(tmp_path / "code")}
    right, first = ran(on_software, COUNTED, **settings)
    assert (right, first["kernels_compiled"], first["kernels_from_cache"]) == (True, 1, 0)
    right, second = ran(on_software, COUNTED, **settings)
    assert (right, second["kernels_compiled"], second["kernels_from_cache"]) == (True, 0, 1)


@pytest.mark.parametrize("damage", ["flipped", "cut", "empty"])
def test_damaged_code_is_noticed_named_and_compiled_again(on_software: Any, tmp_path: Path, damage: str) -> None:
    settings = {"GPUTAX_SOFT_COMPILE": "always", "GPUTAX_SOFT_CODE": private(tmp_path / "code")}
    ran(on_software, COUNTED, **settings)
    (entry,) = (tmp_path / "code").glob("*.so")
    whole = entry.read_bytes()
    middle = len(whole) // 2
    flipped = whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :]
    entry.write_bytes({"flipped": flipped, "cut": whole[:middle], "empty": b""}[damage])
    right, report = ran(on_software, COUNTED, **settings)
    assert (right, report["cache_corrupted"], report["kernels_compiled"]) == (True, 1, 1)
    assert entry.name in report["warning"]
    right, report = ran(on_software, COUNTED, **settings)
    assert (right, report["cache_corrupted"], report["kernels_from_cache"]) == (True, 0, 1)


def test_without_a_compiler_the_interpreter_serves_with_one_warning(on_software: Any, tmp_path: Path) -> None:
    done = on_software(BEGIN + COUNTED * 2, GPUTAX_SOFT_COMPILE="always", PATH=str(tmp_path))
    right, report = json.loads(done.stdout.splitlines()[-1])
    assert (right, report["launches_compiled"], report["launches_interpreted"]) == (True, 0, 2)
    assert done.stderr.count("no C compiler") == 1
    assert "no C compiler" in report["warning"]


def test_a_folder_that_others_can_write_to_is_not_used(on_software: Any, tmp_path: Path) -> None:
    folder = Path(private(tmp_path / "code"))
    folder.chmod(0o777)
    right, report = ran(on_software, COUNTED, GPUTAX_SOFT_COMPILE="always", GPUTAX_SOFT_CODE=str(folder))
    assert (right, report["launches_compiled"]) == (True, 1)
    assert "0700" in report["warning"]
    assert not list(folder.iterdir())


def test_two_processes_that_compile_the_same_kernel_are_both_right(on_software: Any, tmp_path: Path) -> None:
    settings = {"GPUTAX_SOFT_COMPILE": "always", "GPUTAX_SOFT_CODE": private(tmp_path / "code")}
    with ThreadPoolExecutor(3) as pool:
        all_ran = list(pool.map(lambda _: ran(on_software, COUNTED, **settings), range(3)))
    assert all(right and report["launches_compiled"] == 1 for right, report in all_ran)
    assert [path.suffix for path in (tmp_path / "code").iterdir()] == [".so"]


def test_costly_kernels_are_compiled_and_cheap_ones_interpreted(on_software: Any, code: str) -> None:
    program = """
start()
kernel = load("matmul").kernel("matmul")
a, b, c = (Buffer(np.ones((256, 256), np.float32)) for _ in range(3))
small = report()["launches_compiled"], launch(kernel, (1, 1), (16, 16), a, b, c, 16), report()["launches_compiled"]
launch(kernel, (16, 16), (16, 16), a, b, c, 256)
print(json.dumps([small[2], report()["launches_compiled"], bool((c.read() == 256).all())]))
"""
    assert ran(on_software, program, GPUTAX_SOFT_CODE=code) == [0, 1, True]


def test_the_oldest_code_goes_when_the_cache_is_too_large(on_software: Any, tmp_path: Path) -> None:
    folder = Path(private(tmp_path / "code"))
    old = [folder / f"{number:064x}.so" for number in range(3)]
    for age, path in enumerate(old):
        path.touch()
        os.truncate(path, 100 << 20)  # without blocks on the disk
        os.utime(path, (1_000_000 - age, 1_000_000 - age))
    other = folder / "notes.so"
    other.touch()
    left = folder / "work.abcdef"
    left.mkdir()
    os.utime(left, (1_000_000, 1_000_000))
    settings = {"GPUTAX_SOFT_COMPILE": "always", "GPUTAX_SOFT_CODE": str(folder)}
    right, report = ran(on_software, COUNTED, **settings)
    assert (right, report["kernels_compiled"]) == (True, 1)
    kept = {path.name for path in folder.iterdir()}
    assert old[2].name not in kept
    assert {old[0].name, old[1].name, other.name} <= kept
    assert len(kept) == 4
    right, report = ran(on_software, COUNTED, **settings)
    assert (right, report["kernels_from_cache"]) == (True, 1)


def test_code_that_is_in_the_cache_serves_from_the_first_launch(on_software: Any, tmp_path: Path) -> None:
    """A kernel that is not worth half a second of compiling is worth a look into the cache."""
    program = """
start()
kernel = load("matmul").kernel("matmul")
a, b, c = (Buffer(np.ones((64, 64), np.float32)) for _ in range(3))
launch(kernel, (4, 4), (16, 16), a, b, c, 64)
print(json.dumps([bool((c.read() == 64).all()), report()]))
"""
    settings = {"GPUTAX_SOFT_CODE": private(tmp_path / "code")}
    right, before = ran(on_software, program, **settings)
    assert (right, before["launches_compiled"], before["kernels_compiled"]) == (True, 0, 0), "cheap: interpreted"
    right, built = ran(on_software, program, GPUTAX_SOFT_COMPILE="always", **settings)
    assert (right, built["kernels_compiled"]) == (True, 1)
    right, after = ran(on_software, program, **settings)
    assert (right, after["launches_compiled"], after["kernels_from_cache"]) == (True, 1, 1)
