"""What the doctor finds in facts made by hand."""

from __future__ import annotations

import copy
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from gputax.doctor.machine import Disk, Finding, diagnose, inspect_disk
from gputax.doctor.software import check_confinement

GOOD_DISK = Disk("/home/user/.cache/gputax", 20480.0, "results")
GOOD: dict[str, Any] = {
    "host": {
        "system": "Linux",
        "architecture": "x86_64",
        "libc": "glibc 2.36",
        "python": "3.12.4",
        "python_implementation": "CPython",
        "free_threaded": False,
        "governors": ["performance"],
        "cores_online": 8,
        "load_1min": 0.5,
        "memory_available_mb": 16384.0,
        "memory_limit_mb": None,
        "container_hints": {"docker": False, "podman": False, "kubernetes": False},
    },
    "devices": {
        "nvml": "absent",
        "cause": "not-installed",
        "why": "x",
        "gpus": [],
        "nodes": [],
        "pci_devices": 0,
    },
    "cpu_allowance": {"affinity": list(range(8)), "quota_cpus": None, "quota_source": "", "threads": 8},
    "packages": {"mlcommons-loadgen": "6.0.17", "onnxruntime": "1.31.1", "onnxruntime-gpu": None, "tinygrad": "0.14.0"},
    "loadgen": {"importable": True, "why": None},
    "onnxruntime": {
        "importable": True,
        "providers": ["AzureExecutionProvider", "CPUExecutionProvider"],
        "cuda_version": None,
    },
    "noise": {"seconds": 1.0, "steal_percent": 0.0, "others_percent_of_core": 2.0},
}
A100 = {
    "name": "NVIDIA A100-SXM4-40GB",
    "driver_version": "550.54.15",
    "cuda_driver_version": "12.4",
    "memory_total_mb": 40960.0,
    "persistence": True,
    "compute_mode": "default",
    "mig": False,
}
GPU = {
    "devices": {"nvml": "ok", "gpus": [A100], "nodes": ["/dev/nvidia0"]},
    "packages": {"onnxruntime": None, "onnxruntime-gpu": "1.23.0"},
    "onnxruntime": {
        "providers": ["TensorrtExecutionProvider", "CUDAExecutionProvider", "CPUExecutionProvider"],
        "cuda_version": "12.8",
    },
}
NO_LOADGEN = {"loadgen": {"importable": False, "why": "ModuleNotFoundError: No module named 'mlperf_loadgen'"}}
BUILD = "pip install --no-binary mlcommons-loadgen mlcommons-loadgen"
APT_BUILD = f"sudo apt-get install -y g++ python3-dev && {BUILD}"
APK_BUILD = f"apk add g++ musl-dev python3-dev && {BUILD}"
REINSTALL = "pip install --force-reinstall mlcommons-loadgen"
TOP_CPU, TOP_MEMORY = "ps -eo pid,pcpu,comm --sort=-pcpu | head", "ps -eo pid,rss,comm --sort=-rss | head"
OTHER_PYTHON = "python3.12 -m venv .venv && .venv/bin/pip install 'gputax[cpu]'"
CGROUP = "/sys/fs/cgroup/cpu.max"


def changed(*changes: dict[str, Any]) -> dict[str, Any]:
    facts = copy.deepcopy(GOOD)
    for change in changes:
        for part, values in change.items():
            facts[part].update(values)
    return facts


def troubles(facts: dict[str, Any], disk: Disk = GOOD_DISK) -> list[Finding]:
    return [finding for finding in diagnose(facts, disk) if finding.status != "ok"]


def quota(cpus: float, source: str = CGROUP, **hints: bool) -> dict[str, Any]:
    return {
        "cpu_allowance": {"quota_cpus": cpus, "quota_source": source, "threads": max(1, int(cpus))},
        "host": {"container_hints": hints},
    }


def absent(cause: str, docker: bool = False) -> dict[str, Any]:
    devices = {
        "cause": cause,
        "why": "NVML's own text",
        "nodes": ["/dev/nvidia0"],
        "nvidia_smi": "/usr/bin/nvidia-smi",
    }
    return {"devices": devices, "host": {"container_hints": {"docker": docker}}}


# (what is changed, status, words that title, detail or why must have, command that must be given)
CASES: list[tuple[tuple[dict[str, Any], ...], str, tuple[str, ...], str]] = [
    # Python and the LoadGen wheel
    (({"host": {"python": "3.10.12"}},), "fail", ("Python 3.10.12", "3.11 to 3.13"), OTHER_PYTHON),
    (({"host": {"python": "3.14.0"}},), "fail", ("Python 3.14.0", "newer than 3.13"), OTHER_PYTHON),
    (({"host": {"free_threaded": True}},), "fail", ("free-threaded",), OTHER_PYTHON),
    (({"host": {"python_implementation": "PyPy"}},), "fail", ("PyPy",), OTHER_PYTHON),
    ((NO_LOADGEN,), "fail", ("cannot be imported", "No module named"), REINSTALL),
    ((NO_LOADGEN, {"host": {"architecture": "aarch64"}}), "fail",
     ("no wheel for this machine", "x86_64 only", "Linux aarch64."), APT_BUILD),
    ((NO_LOADGEN, {"host": {"architecture": "aarch64", "libc": "musl"}}), "fail",
     ("no wheel for this machine", "aarch64 with musl"), APK_BUILD),
    ((NO_LOADGEN, {"host": {"libc": "glibc 2.17"}}), "fail",
     ("no wheel for this machine", "glibc 2.27 or newer", "glibc 2.17"),
     APT_BUILD),
    ((NO_LOADGEN, {"host": {"libc": "musl"}}), "fail", ("cannot be imported",),
     REINSTALL),
    # ONNX Runtime
    (({"onnxruntime": {"importable": False, "why": "ImportError: libgomp"}},), "fail",
     ("ONNX Runtime cannot be imported", "libgomp"), "pip install 'gputax[cpu]'"),
    (({"packages": {"onnxruntime-gpu": "1.31.0"}},), "fail", ("both installed", "1.31.1 and 1.31.0"),
     "pip uninstall -y onnxruntime onnxruntime-gpu && pip install 'gputax[cuda]'"),
    # tinygrad
    (({"packages": {"tinygrad": None}},), "warn", ("tinygrad is not installed", "behind the GPU proxy need it"),
     "pip install 'gputax[tinygrad]'"),
    (({"packages": {"tinygrad": "0.13.0"}},), "warn", ("0.13.0 is another version", "written for 0.14.0"),
     "pip install 'gputax[tinygrad]'"),
    # GPU
    ((GPU, {"onnxruntime": {"providers": ["CPUExecutionProvider"]}}), "fail",
     ("cannot use the GPU", "built without CUDA"), "pip install 'gputax[cuda]'"),
    ((GPU, {"onnxruntime": {"providers": ["CPUExecutionProvider"]},
            "packages": {"onnxruntime": "1.31.1", "onnxruntime-gpu": None}}), "fail",
     ("cannot use the GPU",), "pip uninstall -y onnxruntime && pip install 'gputax[cuda]'"),
    ((GPU, {"onnxruntime": {"cuda_version": "13.0"}}), "fail",
     ("too old for CUDA 13", "supports at most CUDA 12.4"),
     "sudo apt-get install -y nvidia-driver-580 && sudo reboot"),
    ((GPU, {"devices": {"gpus": [{**A100, "cuda_driver_version": "11.8"}]}}), "fail", ("too old for CUDA 12",),
     "sudo apt-get install -y nvidia-driver-525 && sudo reboot"),
    ((GPU, {"devices": {"gpus": [{**A100, "compute_mode": "prohibited"}]}}), "fail", ("prohibited",),
     "sudo nvidia-smi --compute-mode=DEFAULT"),
    ((GPU, {"devices": {"gpus": [{**A100, "persistence": False}]}}), "warn", ("persistence mode is off",),
     "sudo nvidia-smi --persistence-mode=1"),
    ((absent("not-installed"),), "fail", ("NVML cannot reach it", "/dev/nvidia0"),
     "pip install 'gputax[cuda]'"),
    ((absent("DriverNotLoaded"),), "fail", ("kernel module is not loaded",), "sudo modprobe nvidia"),
    ((absent("LibRmVersionMismatch"),), "fail", ("driver was updated",), "sudo reboot"),
    ((absent("LibraryNotFound"),), "fail", ("libnvidia-ml.so.1",),
     "sudo apt-get install -y nvidia-driver-580"),
    ((absent("LibraryNotFound", docker=True),), "fail", ("libnvidia-ml.so.1",),
     "docker run --gpus all -e NVIDIA_DRIVER_CAPABILITIES=compute,utility IMAGE"),
    ((absent("Unknown"),), "fail", ("NVML's own text",), "nvidia-smi"),
    (({"devices": {"nvml": "ok", "cause": None, "why": None, "pci_devices": 1}},), "fail",
     ("1 on the PCI bus", "NVML lists no GPU"), "nvidia-smi"),
    # CPU
    ((quota(0.5),), "warn", ("quota of 0.5 CPUs", "1 thread used", "even a single thread"),
     f"echo max | sudo tee {CGROUP}"),
    ((quota(1),), "warn", ("quota of 1 CPU ", "instead of reading"), f"echo max | sudo tee {CGROUP}"),
    ((quota(2.5, docker=True),), "warn", ("quota of 2.5 CPUs", "2 threads used", "above 2"),
     "docker update --cpus 8 CONTAINER"),
    ((quota(4, kubernetes=True),), "warn", ("quota of 4 CPUs", "instead of reading the quota"),
     "kubectl set resources deployment NAME --limits=cpu=8 --requests=cpu=8"),
    ((quota(2, "/sys/fs/cgroup/cpu/cpu.cfs_quota_us"),), "warn", ("quota of 2 CPUs",),
     "echo -1 | sudo tee /sys/fs/cgroup/cpu/cpu.cfs_quota_us"),
    (({"host": {"governors": ["powersave", "schedutil"]}},), "warn", ("powersave, schedutil",),
     "sudo cpupower frequency-set --governor performance"),
    # noise, load, memory
    (({"noise": {"steal_percent": 1.24}},), "warn", ("1.2 % of the CPU time is stolen", "for 1 s"), "vmstat 1 10"),
    (({"noise": {"others_percent_of_core": 10.8}},), "warn", ("11 % of a core",),
     TOP_CPU),
    (({"host": {"load_1min": 9.5}},), "warn", ("Load 9.5 on 8 cores",), TOP_CPU),
    (({"host": {"memory_available_mb": 1024.0}},), "fail", ("1.0 GB", "ResNet-50"), TOP_MEMORY),
    (({"host": {"memory_limit_mb": 2048.0}},), "warn", ("2.0 GB", "BERT-Large"),
     "docker update --memory 4g --memory-swap 4g CONTAINER"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "status", "words", "fix"), CASES)
def test_each_trouble_is_found_alone_and_has_its_command(
    changes: tuple[dict[str, Any], ...], status: str, words: tuple[str, ...], fix: str
) -> None:
    (finding,) = troubles(changed(*changes))
    assert finding.status == status
    text = f"{finding.title} {finding.detail} {finding.why}"
    for word in words:
        assert word in text
    assert finding.why
    assert finding.fix_command == fix


@pytest.mark.parametrize(
    "changes",
    [
        (),
        (GPU,),
        (GPU, {"onnxruntime": {"cuda_version": None}}),
        (quota(8),),
        ({"host": {"python": "3.11.0", "libc": "glibc 2.27"}}, {"loadgen": {"importable": True}}),
        ({"host": {"python": "3.13.9"}},),
        ({"host": {"governors": None, "load_1min": 8.0}},),
        ({"host": {"architecture": "aarch64"}},),  # LoadGen was built from source: it can be imported
        ({"noise": {"steal_percent": 1.0, "others_percent_of_core": 10.0}},),
    ],
)
def test_a_sound_machine_has_no_troubles(changes: tuple[dict[str, Any], ...]) -> None:
    assert troubles(changed(*changes)) == []


def test_a_sound_machine_is_told_what_was_looked_at() -> None:
    assert [(finding.title, finding.detail) for finding in diagnose(GOOD, GOOD_DISK)] == [
        ("Python 3.12.4", "glibc 2.36"),
        ("MLPerf LoadGen 6.0.17", ""),
        ("ONNX Runtime 1.31.1", "providers: CPU"),
        ("tinygrad 0.14.0", ""),
        ("No NVIDIA GPU", "only the CPU can be measured here"),
        ("8 CPUs usable", "8 threads, no quota below that"),
        ("CPU governor performance", ""),
        ("Quiet", "steal 0.0 %, other processes 2 % of a core"),
        ("Load 0.5 on 8 cores", ""),
        ("16.0 GB of memory usable", ""),
        ("20.0 GB free for models", "/home/user/.cache/gputax"),
        ("The results directory is writable", "results"),
    ]


def test_a_gpu_is_told_with_driver_and_memory() -> None:
    shown = [(finding.title, finding.detail) for finding in diagnose(changed(GPU), GOOD_DISK)]
    assert ("NVIDIA A100-SXM4-40GB", "driver 550.54.15, CUDA up to 12.4, 40.0 GB") in shown
    assert ("ONNX Runtime 1.23.0", "providers: TensorRT, CUDA, CPU") in shown
    sliced = changed(GPU, {"devices": {"gpus": [{**A100, "mig": True, "memory_total_mb": None}]}})
    assert "driver 550.54.15, CUDA up to 12.4, MIG on" in [f.detail for f in diagnose(sliced, GOOD_DISK)]


@pytest.mark.parametrize(
    ("host", "fits"),
    [
        ({"libc": "glibc 2.26"}, False),
        ({"libc": "glibc 2.27"}, True),
        ({"libc": "musl"}, True),
        ({"python": "3.13.9"}, True),
        ({"system": "Darwin", "architecture": "x86_64", "libc": None}, False),
        ({"system": "Darwin", "architecture": "arm64", "libc": None}, True),
    ],
)
def test_a_wheel_that_fits_need_only_be_installed(host: dict[str, Any], fits: bool) -> None:
    (finding,) = troubles(changed(NO_LOADGEN, {"host": host}))
    assert (finding.fix_command == REINSTALL) is fits


@pytest.mark.parametrize(
    ("memory_mb", "status"), [(1499.0, "fail"), (1500.0, "warn"), (3999.0, "warn"), (4000.0, None)]
)
def test_memory_is_judged_by_the_workloads(memory_mb: float, status: str | None) -> None:
    findings = troubles(changed({"host": {"memory_available_mb": memory_mb}}))
    assert [finding.status for finding in findings] == ([status] if status else [])


def test_a_new_python_fails_for_itself_and_for_loadgen() -> None:
    findings = troubles(changed(NO_LOADGEN, {"host": {"python": "3.14.0"}}))
    assert [finding.fix_command for finding in findings] == [OTHER_PYTHON, OTHER_PYTHON]
    assert findings[1].detail == "Its wheels end with Python 3.13; this is Python 3.14.0."


@pytest.mark.parametrize(
    ("free_mb", "status"), [(299.0, "fail"), (300.0, "warn"), (1399.0, "warn"), (1400.0, None), (None, None)]
)
def test_models_need_room(free_mb: float | None, status: str | None) -> None:
    findings = troubles(GOOD, Disk("/cache", free_mb, "results"))
    assert [finding.status for finding in findings] == ([status] if status else [])
    assert all("BERT-Large" in finding.why for finding in findings)
    assert all(finding.fix_command == "export GPUTAX_MODELS=/path/with/free/space" for finding in findings)


def test_results_that_cannot_be_written_fail_with_a_command_that_a_shell_understands() -> None:
    (finding,) = troubles(GOOD, Disk("/cache", 20480.0, "/mnt/my results", "Read-only file system"))
    assert finding.detail == "/mnt/my results: Read-only file system"
    assert finding.fix_command == "sudo mkdir -p '/mnt/my results' && sudo chown \"$USER\" '/mnt/my results'"


def test_facts_of_another_version_never_break_the_doctor() -> None:
    findings = diagnose({}, GOOD_DISK)
    assert {finding.title for finding in findings if finding.status == "fail"} >= {"Python unknown"}
    diagnose({"host": None, "devices": None, "noise": {}, "cpu_allowance": {"affinity": []}}, GOOD_DISK)


def test_the_disk_is_inspected_without_leaving_anything(tmp_path: Path) -> None:
    disk = inspect_disk(tmp_path / "cache" / "models", tmp_path / "deep" / "results")
    assert disk.models_free_mb == pytest.approx(shutil.disk_usage(tmp_path).free / 2**20, rel=0.2)
    assert disk.results_problem == ""
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_cannot_be_written_is_seen(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert inspect_disk(tmp_path, tmp_path / "file").results_problem == "Not a directory"
    place = Path("/proc/self") if os.geteuid() == 0 else Path("/")
    assert inspect_disk(tmp_path, place).results_problem


def test_the_confinement_of_proxy_workers_is_told_and_a_missing_wall_is_a_warning() -> None:
    assert check_confinement({}) == check_confinement({"confinement": None}) == []
    (finding,) = check_confinement({"confinement": ["no_new_privs", "landlock_files", "seccomp"]})
    assert (finding.status, finding.detail) == ("ok", "no_new_privs, landlock_files, seccomp")
    (finding,) = check_confinement({"confinement": ["no_new_privs", "seccomp"]})
    assert finding.status == "warn"
    assert finding.title == "confinement of GPU proxy workers: no landlock_files"
    assert finding.fix_command
