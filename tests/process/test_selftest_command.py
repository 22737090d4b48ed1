"""`gputax selftest`: all equal behind the real libvgpu, and every kind of fault of a wrong one is found."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gputax.environments.driver import native_directory
from gputax.results.documents.selftest import SelftestRecord
from gputax.results.reading import SELFTEST
from gputax.results.store import read_document

Gputax = Callable[..., subprocess.CompletedProcess[str]]
QUICK = ("selftest", "--device", "software", "--quick")

# A libvgpu that forwards everything, but for what FAULT says.
SHIM = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#define NEXT(name) ((int (*)())dlsym(RTLD_NEXT, name))
int cuInit(unsigned flags) { return NEXT("cuInit")(flags); } /* by its place a process knows its driver */
#if FAULT == 1
int cuDeviceGetAttribute(int *value, int which, int device)
{
    int code = NEXT("cuDeviceGetAttribute")(value, which, device);
    *value += which == 1;
    return code;
}
#elif FAULT == 2
int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t bytes)
{
    int code = NEXT("cuMemcpyDtoH_v2")(to, from, bytes);
    if (bytes == 7168)
        ((uint8_t *)to)[4321] ^= 1;
    return code;
}
#elif FAULT == 3
int cuMemAlloc_v2(uint64_t *at, size_t bytes)
{
    int code = NEXT("cuMemAlloc_v2")(at, bytes);
    return code == 2 ? 3 : code; /* too much memory is called by another name */
}
#elif FAULT == 4
int cuGraphLaunch(void *graph, void *stream) { abort(); }
#endif
"""


@pytest.fixture
def wrong_libvgpu(tmp_path: Path) -> Callable[[int], Path]:
    """Make a folder of native parts whose libvgpu has a fault."""

    def make(fault: int) -> Path:
        folder, real = tmp_path / f"native-{fault}", native_directory()
        (folder / "vgpu").mkdir(parents=True)
        for part in ("software", "kernels", "gputax-proxy"):
            (folder / part).symlink_to(real / part)
        copy = folder / "right.so"
        copy.write_bytes((real / "vgpu/libcuda.so.1").read_bytes())
        # The copy calls itself libcuda.so.1 too: a stub gives the linker its path instead of its name.
        (folder / "shim.c").write_text(SHIM)
        (folder / "empty.c").write_text("")
        for words in (
            ("-shared", f"-Wl,-soname,{copy}", "-o", "stub.so", "empty.c"),
            ("-shared", "-fPIC", "-w", f"-DFAULT={fault}", "-Wl,-soname,libcuda.so.1", "-o", "vgpu/libcuda.so.1",
             "shim.c", "-Wl,--no-as-needed", "stub.so", "-ldl"),
        ):  # fmt: skip
            subprocess.run(["gcc", *words], cwd=folder, check=True)
        return folder

    return make


def record_of(tmp_path: Path) -> SelftestRecord:
    return read_document(SELFTEST, tmp_path / "out")


def test_everything_is_equal_behind_libvgpu_and_one_directory_says_so(gputax: Gputax, tmp_path: Path) -> None:
    done = gputax(*QUICK, "--cuda-runtime", "--out", "out", timeout=400)
    assert done.returncode == 0, done.stdout + done.stderr
    record = record_of(tmp_path)
    assert record.equal
    assert (record.counts["fail"], record.counts["different"]) == (0, 0)
    assert record.counts["pass"] > 580
    assert {check.group for check in record.checks if check.status == "documented"} == {"host-memory"}
    assert not record.is_gpu
    assert "not a GPU's" in done.stdout
    proxied = record.evidence["copies"]["bare+proxy"]
    assert proxied["active"] is True
    assert proxied["calls_by_worker"] > 100
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "environment.json", "kernel-times.txt", "report.md", "selftest.json",
    ]  # fmt: skip
    assert "answer like the driver" in (tmp_path / "out/report.md").read_text()


@pytest.mark.parametrize(
    ("fault", "group", "status", "name", "words"),
    [
        (1, "device", "different", "attribute 1", "at [1]: bare 1024, bare+proxy 1025"),
        (2, "copies", "fail", "7168 bytes, blocking", "bare+proxy: at 0 and 0 it differs"),
        (3, "mistakes", "different", "too many bytes allocated", "bare 2, bare+proxy 3"),
        (4, "graphs", "fail", "(bare+proxy)", "ended at 'built by hand, changed and run again'"),
    ],
)
def test_a_wrong_libvgpu_is_found(
    gputax: Gputax, tmp_path: Path, wrong_libvgpu: Callable[[int], Path],
    fault: int, group: str, status: str, name: str, words: str,
) -> None:  # fmt: skip
    native = wrong_libvgpu(fault)
    done = gputax(*QUICK, "--only", group, "--out", "out", "--native", str(native))
    assert done.returncode == 4, done.stdout + done.stderr
    record = record_of(tmp_path)
    found: dict[str, Any] = {check.name: check for check in record.checks if check.status in ("fail", "different")}
    assert found[name].status == status
    assert words in found[name].reason
    assert f"{status}: {group}: {name}" in done.stdout
    assert not record.equal


def test_the_shim_of_these_tests_is_not_itself_a_fault(gputax: Gputax, wrong_libvgpu: Callable[[int], Path]) -> None:
    done = gputax(*QUICK, "--only", "graphs", "--out", "out", "--native", str(wrong_libvgpu(0)))
    assert done.returncode == 0, done.stdout + done.stderr


def test_without_a_gpu_nothing_is_compared_and_nothing_written(gputax: Gputax, tmp_path: Path) -> None:
    done = gputax("selftest", "--quick", "--out", "out", LD_LIBRARY_PATH=str(tmp_path))
    assert done.returncode == 3
    assert "no driver with a device was found" in done.stderr
    assert not (tmp_path / "out").exists()


def test_the_record_goes_to_stdout_and_a_second_test_needs_another_directory(gputax: Gputax, tmp_path: Path) -> None:
    done = gputax(*QUICK, "--only", "mistakes", "--out", "out", "--json")
    assert done.returncode == 0, done.stderr
    assert SelftestRecord.model_validate(json.loads(done.stdout)) == record_of(tmp_path)
    again = gputax(*QUICK, "--out", "out")
    assert again.returncode == 2
    assert "holds a self-test already" in again.stderr


def test_an_interrupt_leaves_what_was_compared_and_says_that_it_is_not_all(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "gputax", *QUICK, "--only", "device,fills,copies,graphs", "--out", "out"]
    process = subprocess.Popen(words, cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stderr is not None
    for line in process.stderr:
        if "copies" in line:
            break
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130
    record = record_of(tmp_path)
    assert not record.complete
    assert {check.group for check in record.checks} == {"device"}
    assert "INTERRUPTED" in (tmp_path / "out/report.md").read_text()
