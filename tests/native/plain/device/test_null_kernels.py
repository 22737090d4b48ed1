"""Null kernels: binary images are read, launches take the time that was stated, and nothing is computed."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.native.conftest import run_program

CUBINS = Path(__file__).parents[2] / "cubins"
IMAGE, OLDER = CUBINS / "null_sm90.cubin", CUBINS / "null_sm80.cubin"
NAMES = ("scale", "mixed", "long_parameter", "nothing")
NAME_OF_DEVICE = """
from cuda.bindings import driver as cu
print(cu.cuInit(0)[0].name)
print(cu.cuDeviceGetName(256, 0)[1].split(b"\\0")[0].decode())
"""


def seen(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def check(found: dict[str, Any]) -> None:
    kernels = found["kernels"]
    assert kernels["scale"]["parameters"] == [[0, 8], [8, 4]]
    assert kernels["mixed"]["parameters"] == [[0, 1], [8, 8], [16, 16], [32, 8], [40, 2]]
    assert kernels["mixed"]["threads"] == 128
    assert kernels["mixed"]["shared"] == 1024
    assert kernels["long_parameter"]["parameters"] == [[0, 5000], [5000, 8]], "more than 4 KiB has a record of its own"
    assert kernels["nothing"] == kernels["nothing"] | {"parameters": [], "threads": 1024, "shared": 0}
    assert all(each["registers"] > 0 for each in kernels.values())
    assert found["table"] == [1, 2, 3, 5]
    assert found["unchanged"], "a null kernel must not compute"
    assert found["missing"] == "CUDA_ERROR_NOT_FOUND"
    assert found["variable_freed"] == "CUDA_ERROR_INVALID_VALUE"


def test_a_cubin_is_read_and_its_kernels_do_nothing(on_software: Any) -> None:
    found = seen(on_software("null_kernels.py", str(IMAGE), *NAMES, GPUTAX_SOFT_KERNELS="null"))
    check(found)
    assert found["device"] == "gputax software device, null kernels of 0 ns"


def test_the_same_behind_the_proxy(nursery: Any) -> None:
    proxy = nursery.proxy(device={"GPUTAX_SOFT_KERNELS": "null", "GPUTAX_SOFT_KERNEL_NS": "1000"})
    assert "null kernels of 1000 ns" in proxy.status()["device"]
    program = Path(__file__).parents[2] / "programs" / "null_kernels.py"
    check(json.loads(nursery.run(program, proxy.environment(), str(IMAGE), *NAMES)))
    status = proxy.wait_for(lambda document: not document["tenants"])
    assert status["totals"]["memory_bytes"] == 0
    assert status["software"]["launches_null"] == 11
    assert status["software"]["launches_interpreted"] == status["software"]["launches_compiled"] == 0


@pytest.mark.parametrize(
    ("ns", "least_s", "words"),
    [
        ("20000000", 0.2, "null kernels of 20000000 ns"),
        ("# recorded\n3 other\n20000000 scale\n0 *\n", 0.2, "null kernels timed by times.txt"),
        ("20000000 *\n1 other\n", 0.2, "null kernels timed by times.txt"),
        # Ten launches of one block of 256 threads: the shape counts before the name, the name before a pattern.
        ("1 scale\n20000000 scale 1 256\n1 scale 2 256\n1 s*\n1 *\n", 0.2, "null kernels timed by times.txt"),
        ("20000000 scale\n1 scale 7 256\n1 scale 1 255\n1 s*\n1 *\n", 0.2, "null kernels timed by times.txt"),
        ("1 s*e 2 256\n20000000 s*l* 1 256\n1 s*\n1 *\n", 0.2, "null kernels timed by times.txt"),
        ("1 x*\n20000000 *c*\n1 *\n", 0.2, "null kernels timed by times.txt"),
    ],
)
def test_a_launch_takes_the_stated_time(on_software: Any, tmp_path: Path, ns: str, least_s: float, words: str) -> None:
    if not ns.isdigit():
        (tmp_path / "times.txt").write_text(ns, encoding="utf-8")
        ns = str(tmp_path / "times.txt")
    settings = {"GPUTAX_SOFT_KERNELS": "null", "GPUTAX_SOFT_KERNEL_NS": ns}
    found = seen(on_software("null_kernels.py", str(IMAGE), "scale", **settings))
    assert found["device"] == f"gputax software device, {words}"
    assert least_s <= found["ten_launches_s"] < least_s + 5


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"GPUTAX_SOFT_KERNELS": "none"}, "neither computed nor null"),
        ({"GPUTAX_SOFT_KERNEL_NS": "5"}, "set GPUTAX_SOFT_KERNELS=null too"),
        ({"GPUTAX_SOFT_KERNELS": "null", "GPUTAX_SOFT_KERNEL_NS": "-5"}, "neither a number nor a file"),
        ({"GPUTAX_SOFT_KERNELS": "null", "GPUTAX_SOFT_KERNEL_NS": "/nowhere"}, "neither a number nor a file"),
        ({"GPUTAX_SOFT_KERNELS": "null", "GPUTAX_SOFT_KERNEL_NS": "5", "GPUTAX_SOFT_KERNEL_US": "5"}, "contradicts"),
    ],
)
def test_a_setting_that_makes_no_sense_is_refused(native_build: Path, settings: dict[str, str], words: str) -> None:
    done = run_program(native_build / "software", NAME_OF_DEVICE, **settings)
    assert done.stdout.splitlines()[0] == "CUDA_ERROR_INVALID_VALUE"
    assert words in done.stderr


@pytest.mark.parametrize(
    "text",
    [
        "5 scale\n",
        "scale 5\n0 *\n",
        "5scale\n0 *\n",
        "nan scale\n0 *\n",
        "5 scale 1\n0 *\n",
        "5 scale 1 0\n0 *\n",
        "5 scale 1 32 1\n0 *\n",
        "5 scale -1 32\n0 *\n",
        "5 * 1 32\n",
    ],
)
def test_a_table_that_says_too_little_is_refused(native_build: Path, tmp_path: Path, text: str) -> None:
    (tmp_path / "times.txt").write_text(text, encoding="utf-8")
    settings = {"GPUTAX_SOFT_KERNELS": "null", "GPUTAX_SOFT_KERNEL_NS": str(tmp_path / "times.txt")}
    done = run_program(native_build / "software", NAME_OF_DEVICE, **settings)
    assert done.stdout.splitlines()[0] == "CUDA_ERROR_INVALID_VALUE"


LOAD = """
import sys
from pathlib import Path
import gpu
from cuda.bindings import driver as cu
gpu.begin()
print(gpu.error(cu.cuModuleLoadData(Path(sys.argv[1]).read_bytes())))
"""


def test_without_null_kernels_a_binary_image_is_refused_as_ever(on_software: Any) -> None:
    done = on_software(LOAD, str(IMAGE))
    assert done.stdout == "CUDA_ERROR_NO_BINARY_FOR_GPU\n"
    assert "runs PTX text only" in done.stderr


def test_an_image_of_another_architecture_is_refused(on_software: Any) -> None:
    done = on_software(LOAD, str(OLDER), GPUTAX_SOFT_KERNELS="null")
    assert done.stdout == "CUDA_ERROR_NO_BINARY_FOR_GPU\n"
    assert "another architecture" in done.stderr


@pytest.mark.parametrize("kept", [60, 64, 1000])
def test_a_cut_image_is_refused(on_software: Any, tmp_path: Path, kept: int) -> None:
    """Zeros behind it: the table of sections is read there, and says nothing."""
    cut = tmp_path / "cut.cubin"
    cut.write_bytes(IMAGE.read_bytes()[:kept] + bytes(1 << 16))
    done = on_software(LOAD, str(cut), GPUTAX_SOFT_KERNELS="null")
    assert done.stdout == "CUDA_ERROR_INVALID_IMAGE\n"


SHAPE = """
import gpu
from cuda.bindings import driver as cu
gpu.begin()
numbers = (13, 16, 38, 120)  # clock, multiprocessors, L2, clusters
print([gpu.ok(cu.cuDeviceGetAttribute(cu.CUdevice_attribute(number), 0)) for number in numbers])
"""


def test_only_with_null_kernels_the_device_has_the_shape_of_a_large_gpu(on_software: Any) -> None:
    assert on_software(SHAPE, GPUTAX_SOFT_KERNELS="null").stdout == f"[1980000, 132, {50 << 20}, 1]\n"
    assert on_software(SHAPE).stdout == "[0, 1, 0, 0]\n"
