"""Facts of the host, from fake trees and from this machine."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from gputax import __version__
from gputax.worker.probes.host import host_facts, own_pid_namespace, package_versions

Plant = Callable[[dict[str, str]], Path]
FULL = {
    "proc/cpuinfo": "processor\t: 0\nmodel name\t: AMD EPYC 7763\nflags\t\t: fpu hypervisor avx2\n\n"
    "processor\t: 1\nmodel name\t: other\n",
    "proc/meminfo": "MemTotal:       16777216 kB\nMemFree: 1 kB\nMemAvailable:    8388608 kB\n",
    "proc/loadavg": "0.50 0.40 0.30 1/90 7469\n",
    "proc/self/cgroup": "4:memory:/kubepods/pod1\n1:cpu:/\n",
    "proc/self/mountinfo": "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
    "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n",
    "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
    "sys/fs/cgroup/memory/kubepods/pod1/memory.limit_in_bytes": "4294967296\n",
    "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "150000\n",
    "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
    "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "powersave\n",
    "sys/devices/system/cpu/cpu1/cpufreq/scaling_governor": "powersave\n",
    "sys/devices/system/cpu/intel_pstate/no_turbo": "1\n",
    "sys/devices/system/cpu/smt/active": "1\n",
    "sys/devices/system/clocksource/clocksource0/current_clocksource": "xen\n",
    "sys/hypervisor/type": "xen\n",
    "sys/class/dmi/id/sys_vendor": "Xen\n",
    "sys/class/dmi/id/product_name": "HVM domU\n",
    "etc/os-release": 'NAME="Debian"\nPRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\n',
    ".dockerenv": "",
}


def test_every_fact_is_read(plant: Plant) -> None:
    facts = host_facts(plant(FULL), environ={"KUBERNETES_SERVICE_HOST": "10.0.0.1"})
    expected = {
        "cpu_model": "AMD EPYC 7763",
        "quota_cpus": 1.5,
        "memory_total_mb": 16384,
        "memory_available_mb": 8192,
        "memory_limit_mb": 4096,
        "governors": ["powersave"],
        "turbo": False,
        "smt": True,
        "clocksource": "xen",
        "distribution": "Debian GNU/Linux 12 (bookworm)",
        "hypervisor": True,
        "hypervisor_type": "xen",
        "machine": "Xen HVM domU",
        "load_1min": 0.5,
        "load_15min": 0.3,
        "cgroup": "/kubepods/pod1",
    }
    assert {key: facts[key] for key in expected} == expected
    hints = facts["container_hints"]
    assert (hints["docker"], hints["podman"], hints["kubernetes"]) == (True, False, True)


def test_intel_tells_turbo_by_its_absence(plant: Plant) -> None:
    assert host_facts(plant({"sys/devices/system/cpu/intel_pstate/no_turbo": "0\n"}))["turbo"] is True


@pytest.mark.parametrize(("flags", "guest"), [("fpu hypervisor avx", True), ("fpu avx", False)])
def test_a_guest_is_known_by_the_flag_of_its_processor(plant: Plant, flags: str, guest: bool) -> None:
    facts = host_facts(plant({"proc/cpuinfo": f"flags : {flags}\n"}))
    assert (facts["hypervisor"], facts["hypervisor_type"]) == (guest, None)


@pytest.mark.parametrize(
    ("model", "kind", "emulated"),
    [
        ("QEMU Virtual CPU version 2.5+", "xen", True),
        ("QEMU TCG CPU version 2.5+", "xen", True),
        ("AMD EPYC 7763", "xen", None),
        ("QEMU Virtual CPU version 2.5+", "", None),  # a machine of KVM may have this name, and is not judged by it
    ],
)
def test_xen_on_an_invented_processor_is_emulated(plant: Plant, model: str, kind: str, emulated: bool | None) -> None:
    files = {"proc/cpuinfo": f"model name : {model}\n", "sys/hypervisor/guest_type": "PV\n"}
    facts = host_facts(plant(files | ({"sys/hypervisor/type": kind} if kind else {})))
    assert facts.get("emulated") is emulated
    assert facts.get("xen_guest_type") == ("PV" if kind else None)


def test_the_memory_limit_of_v2_is_read_too(plant: Plant) -> None:
    files = {
        "proc/self/cgroup": "0::/a\n",
        "proc/self/mountinfo": "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 none rw\n",
        "sys/fs/cgroup/memory.max": "max\n",
        "sys/fs/cgroup/a/memory.max": "1073741824\n",
    }
    assert host_facts(plant(files))["memory_limit_mb"] == 1024


def test_musl_is_known_by_its_loader_where_glibc_is_not(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    root = plant({"lib/ld-musl-x86_64.so.1": ""})
    assert str(host_facts(root)["libc"]).startswith("glibc") == ("CS_GNU_LIBC_VERSION" in os.confstr_names)

    def unknown(name: str) -> str:
        raise ValueError(name)

    monkeypatch.setattr(os, "confstr", unknown)
    assert host_facts(root)["libc"] == "musl"


def test_amd_tells_turbo_in_another_file(plant: Plant) -> None:
    assert host_facts(plant({"sys/devices/system/cpu/cpufreq/boost": "1\n"}))["turbo"] is True


def test_what_cannot_be_read_is_none(tmp_path: Path) -> None:
    facts = host_facts(tmp_path, environ={})
    unknown = [
        *(
            "cpu_model",
            "quota_cpus",
            "memory_total_mb",
            "memory_available_mb",
            "memory_limit_mb",
            "governors",
        ),
        *("turbo", "smt", "clocksource", "numa_nodes", "distribution", "hypervisor", "hypervisor_type"),
        *("machine", "load_1min", "cgroup"),
    ]
    assert {key: facts[key] for key in unknown} == dict.fromkeys(unknown)
    assert facts["container_hints"]["own_pid_namespace"] is None


def test_nonsense_is_unknown_too(plant: Plant) -> None:
    root = plant({"proc/meminfo": "MemTotal: lots\n", "proc/loadavg": "high\n", "proc/cpuinfo": "\x00\xff:"})
    facts = host_facts(root, environ={})
    assert (facts["memory_total_mb"], facts["load_1min"], facts["cpu_model"]) == (None, None, None)


def test_this_machine_is_described_as_json() -> None:
    facts = json.loads(json.dumps(host_facts()))
    assert facts["memory_total_mb"] > facts["memory_available_mb"] > 0
    assert facts["affinity"] == sorted(os.sched_getaffinity(0))
    assert facts["load_1min"] >= 0


def test_the_initial_pid_namespace_is_known_by_its_inode(plant: Plant) -> None:
    root = plant({"proc/self/ns/x": ""})
    link = root / "proc/self/ns/pid"
    link.symlink_to("pid:[4026531836]")
    assert own_pid_namespace(root) is False
    link.unlink()
    link.symlink_to("pid:[4026532201]")
    assert own_pid_namespace(root) is True


def test_versions_are_read_without_importing() -> None:
    versions = package_versions()
    assert versions["gputax"] == __version__
    assert versions["mlcommons-loadgen"]
    assert "torch" in versions
