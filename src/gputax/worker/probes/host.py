"""Facts of the host that affect a number: processor, memory, kernel, container; unknown facts are None."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gputax.worker.probes.files import read_fields, read_int, read_text
from gputax.worker.probes.limits import cpu_allowance, hierarchies, own_cgroup_path

PACKAGES = (
    "gputax",
    "numpy",
    "onnx",
    "onnxruntime",
    "onnxruntime-gpu",
    "tinygrad",
    "torch",
    "transformers",
    "mlcommons-loadgen",
    "nvidia-ml-py",
)
MB = 1 << 20  # every `_mb` is 2^20 bytes, as in nvidia-smi and the kernel
# The banner is a constant of gVisor's source; no distribution builds a kernel with it.
GVISOR_BANNER = re.compile(r"#1 SMP Sun Jan 10 15:06:54 PST 2016")
# The guest of Kata boots into this target, which is on its kernel's command line.
KATA_TARGET = "kata-containers"
# cgroup v1 writes "no limit" as the largest page-aligned int64.
NO_LIMIT = 1 << 60


def host_facts(root: Path = Path("/"), environ: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """Return the facts of this host as JSON-able data; `root` can be faked in tests."""
    cpuinfo = read_fields(root / "proc/cpuinfo")
    allowance = cpu_allowance(root)
    return {
        "hostname": platform.node() or None,
        # Equal for all processes on one kernel since its boot: only then do monotonic clocks agree.
        "boot_id": read_text(root / "proc/sys/kernel/random/boot_id"),
        "cpu_model": cpuinfo.get("model name") or cpuinfo.get("Model"),
        "cores_online": os.cpu_count(),
        "affinity": list(allowance.affinity),
        "quota_cpus": allowance.quota_cpus,
        "quota_source": allowance.quota_source,
        **_memory(root),
        **_clocks(root),
        "numa_nodes": read_text(root / "sys/devices/system/node/online"),
        **_system(root),
        # Whose kernel answers: with it, an OCI runtime that brings its own is told from one that does not.
        "kernel_banner": read_text(root / "proc/version"),
        "sandbox": sandbox(root),
        **_hypervisor(root, cpuinfo),
        **_load(root),
        **_python(),
        "cgroup": own_cgroup_path(root),
        "container_hints": _container_hints(root, environ),
        "visible_devices": environ.get("NVIDIA_VISIBLE_DEVICES"),
    }


def package_versions() -> dict[str, str | None]:
    """Return the versions of the packages that matter, without importing them."""
    return {name: _version(name) for name in PACKAGES}


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _memory(root: Path) -> dict[str, float | None]:
    meminfo = read_fields(root / "proc/meminfo")
    return {
        "memory_total_mb": _kib_as_mb(meminfo.get("MemTotal")),
        "memory_available_mb": _kib_as_mb(meminfo.get("MemAvailable")),
        "memory_limit_mb": _memory_limit_mb(root),
    }


def _kib_as_mb(text: str | None) -> float | None:
    number = (text or "").removesuffix("kB").strip()
    return round(int(number) * 1024 / MB, 1) if number.isdigit() else None


def _memory_limit_mb(root: Path) -> float | None:
    names = {1: "memory.limit_in_bytes", 2: "memory.max"}
    limits = [
        limit
        for hierarchy in hierarchies("memory", root)
        for level in hierarchy.levels
        if (limit := read_int(level / names[hierarchy.version])) is not None and limit < NO_LIMIT
    ]
    return round(min(limits) / MB, 1) if limits else None


def cpu_governors(root: Path = Path("/")) -> list[str]:
    """Return the active frequency governors; empty if the kernel does not report them, as in most VMs."""
    files = (root / "sys/devices/system").glob("cpu/cpu[0-9]*/cpufreq/scaling_governor")
    return sorted({name for path in files if (name := read_text(path))})


def _clocks(root: Path) -> dict[str, Any]:
    system = root / "sys/devices/system"
    governors = cpu_governors(root)
    no_turbo = read_int(system / "cpu/intel_pstate/no_turbo")
    boost = read_int(system / "cpu/cpufreq/boost") if no_turbo is None else 1 - no_turbo
    smt = read_int(system / "cpu/smt/active")
    return {
        "governors": governors or None,
        "turbo": None if boost is None else boost == 1,
        "smt": None if smt is None else smt == 1,
        # A clock without vDSO support (Xen's, HPET) makes every timestamp a system call.
        "clocksource": read_text(system / "clocksource/clocksource0/current_clocksource"),
    }


def _system(root: Path) -> dict[str, str | None]:
    release = _os_release(root)
    return {
        "system": platform.system() or None,
        "kernel": platform.release() or None,
        "architecture": platform.machine() or None,
        "distribution": release.get("PRETTY_NAME") or release.get("NAME"),
        "libc": _libc(root),
    }


def _os_release(root: Path) -> dict[str, str]:
    text = read_text(root / "etc/os-release") or read_text(root / "usr/lib/os-release") or ""
    pairs = (line.partition("=") for line in text.splitlines())
    return {name: value.strip("\"'") for name, _, value in pairs}


def _libc(root: Path) -> str | None:
    try:
        glibc = os.confstr("CS_GNU_LIBC_VERSION")
    except (ValueError, OSError, AttributeError):
        glibc = None
    # A glibc system may also have musl's loader, so it is checked second.
    return glibc or ("musl" if any((root / "lib").glob("ld-musl-*")) else None)


def _hypervisor(root: Path, cpuinfo: Mapping[str, str]) -> dict[str, Any]:
    dmi = root / "sys/class/dmi/id"
    names = (read_text(dmi / "sys_vendor"), read_text(dmi / "product_name"))
    flags = cpuinfo.get("flags")  # Arm processors have no such flag: then it is unknown
    kind = read_text(root / "sys/hypervisor/type")
    return {
        "hypervisor": True if kind else None if flags is None else "hypervisor" in flags.split(),
        "hypervisor_type": kind,
        # dom0 has `control_d` here, a guest nothing; only if xenfs is mounted.
        "xen_capabilities": read_text(root / "proc/xen/capabilities"),
        "machine": " ".join(name for name in names if name) or None,
        **_xen(root, kind, cpuinfo.get("model name", "")),
    }


# The processors that QEMU invents. A hypervisor on one of them is emulated, or nested in a machine that hides its
# processor: its times say nothing in either case.
_INVENTED_CPU = re.compile(r"\bQEMU (?:Virtual|TCG) CPU\b")


def _xen(root: Path, kind: str | None, cpu_model: str) -> dict[str, Any]:
    """Return what a Xen guest says of itself; nothing elsewhere."""
    if kind != "xen":
        return {}
    facts: dict[str, Any] = {"xen_guest_type": read_text(root / "sys/hypervisor/guest_type")}
    return facts | ({"emulated": True} if _INVENTED_CPU.search(cpu_model) else {})


def _load(root: Path) -> dict[str, float | None]:
    try:
        one, five, fifteen = (float(field) for field in (read_text(root / "proc/loadavg") or "").split()[:3])
    except ValueError:
        return dict.fromkeys(("load_1min", "load_5min", "load_15min"))
    return {"load_1min": one, "load_5min": five, "load_15min": fifteen}


def _python() -> dict[str, Any]:
    return {
        "python": platform.python_version(),
        "python_implementation": platform.python_implementation(),
        "free_threaded": bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
        "executable": sys.executable or None,
    }


def _container_hints(root: Path, environ: Mapping[str, str]) -> dict[str, Any]:
    return {
        "docker": (root / ".dockerenv").exists(),
        "podman": (root / "run/.containerenv").exists(),
        "kubernetes": "KUBERNETES_SERVICE_HOST" in environ,
        "own_pid_namespace": own_pid_namespace(root),
    }


def own_pid_namespace(root: Path = Path("/")) -> bool | None:
    """Return whether our process ids differ from the host's."""
    try:
        # The kernel gives the initial PID namespace this fixed inode (PROC_PID_INIT_INO).
        return str((root / "proc/self/ns/pid").readlink()) != "pid:[4026531836]"
    except OSError:
        return None


def sandbox(root: Path = Path("/")) -> str | None:
    """Return `gvisor` or `kata` if the kernel below is that of such a runtime; others cannot be told from inside."""
    if GVISOR_BANNER.search(read_text(root / "proc/version") or ""):
        return "gvisor"
    return "kata" if KATA_TARGET in (read_text(root / "proc/cmdline") or "") else None
