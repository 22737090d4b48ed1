"""Check the hardware: CPUs, clocks, background load, memory, disk; GPU, driver and CUDA provider that fit together."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from gputax.doctor.finding import Disk, Finding
from gputax.worker.probes.disturbance import Limits
from gputax.worker.probes.facts import Look

# A ResNet-50 quick run stays below 1.5 GB; BERT-Large's weights are 1.3 GB and in memory twice while they load.
SMALL_RUN_MB, LARGE_RUN_MB = 1500, 4000
# Model files: ResNet-50 0.1 GB, YOLOS-small 0.1 GB, BERT-Large 1.4 GB.
SMALL_MODELS_MB, LARGE_MODELS_MB = 300, 1400
# The same limits as for the warnings after a run.
LIMITS = Limits()


def check_cpu(facts: Mapping[str, Any]) -> list[Finding]:
    """Check how many CPUs are usable, and whether a quota will affect latencies."""
    allowance = facts.get("cpu_allowance") or {}
    cpus, quota = len(allowance.get("affinity") or ()), allowance.get("quota_cpus")
    threads = allowance.get("threads")
    if not cpus:
        return []
    if quota is None or quota >= cpus:
        return [Finding("ok", f"{cpus} CPU{'s' * (cpus > 1)} usable", f"{threads} threads, no quota below that")]
    source = allowance.get("quota_source")
    detail = f"{cpus} CPUs visible, {threads} thread{'s' * (threads != 1)} used; set in {source}"
    if quota < 1:
        why = "Such a quota stops even a single thread in every period: it determines the tail latencies."
    elif quota != int(quota):
        why = f"The part above {threads} is not enough for a thread: it stays idle, or one more thread is throttled."
    else:
        why = "Libraries that count CPUs instead of reading the quota start too many threads and are throttled."
    return [Finding("warn", f"CPU quota of {quota:g} CPU{'s' * (quota != 1)}", detail, why, _quota_fix(facts, cpus))]


def check_governor(facts: Mapping[str, Any]) -> list[Finding]:
    """Check the CPU frequency governor; no finding if it cannot be read, as in most virtual machines."""
    governors = (facts.get("host") or {}).get("governors")
    if not governors:
        return []
    if set(governors) == {"performance"}:
        return [Finding("ok", "CPU governor performance")]
    why = "The clock follows the load, so sparse requests look slower than necessary and runs differ."
    fix = "sudo cpupower frequency-set --governor performance"
    return [Finding("warn", f"CPU governor {', '.join(governors)}", "", why, fix)]


def check_noise(facts: Mapping[str, Any]) -> list[Finding]:
    """Check what the worker saw while it was idle: CPU time that others used, steal, swapping."""
    if not facts.get("noise"):
        return []
    seen = Look.from_dict(facts["noise"])
    steal, others = seen.steal_percent, seen.others_percent_of_core
    observed = f"observed for {seen.seconds:g} s"
    findings = []
    if steal is not None and steal > LIMITS.steal_percent:
        why = "The hypervisor gives this CPU time to other guests; measurements wait in the meantime."
        findings.append(Finding("warn", f"{steal:.1f} % of the CPU time is stolen", observed, why, "vmstat 1 10"))
    if others is not None and others > LIMITS.others_percent_of_core:
        why = "Other processes take CPU time and cache from the measurement. Stop the busiest, or wait."
        named = [f"{each.name} (pid {each.pid}) {each.percent_of_core:.0f} %" for each in seen.busiest]
        detail = ", ".join((observed, *named))
        fix = "ps -eo pid,pcpu,comm --sort=-pcpu | head"
        findings.append(Finding("warn", f"Other processes use {others:.0f} % of a core", detail, why, fix))
    if seen.swapped_mb_per_s is not None and seen.swapped_mb_per_s > LIMITS.swapped_mb_per_s:
        why = "Memory is short: a measurement would wait for the disk."
        fix = "ps -eo pid,rss,comm --sort=-rss | head"
        findings.append(Finding("warn", f"The machine swaps {seen.swapped_mb_per_s:.0f} MB/s", observed, why, fix))
    if not findings and steal is not None and others is not None:
        findings.append(Finding("ok", "Quiet", f"steal {steal:.1f} %, other processes {others:.0f} % of a core"))
    return findings


def check_load(facts: Mapping[str, Any]) -> list[Finding]:
    """Check whether more threads are runnable than there are cores."""
    host = facts.get("host") or {}
    load, cores = host.get("load_1min"), host.get("cores_online")
    if load is None or not cores:
        return []
    if load <= cores:
        return [Finding("ok", f"Load {load:g} on {cores} cores")]
    why = "In the last minute more threads were runnable than there are cores; a run would have to wait for them."
    return [Finding("warn", f"Load {load:g} on {cores} cores", "", why, "ps -eo pid,pcpu,comm --sort=-pcpu | head")]


def check_memory(facts: Mapping[str, Any]) -> list[Finding]:
    """Check that the workloads fit into memory."""
    host = facts.get("host") or {}
    known = [host[key] for key in ("memory_available_mb", "memory_limit_mb") if host.get(key) is not None]
    if not known:
        return []
    usable_mb = min(known)
    title = f"{usable_mb / 1024:.1f} GB of memory usable"
    fix = "ps -eo pid,rss,comm --sort=-rss | head"
    if host.get("memory_limit_mb") == usable_mb:
        fix = "docker update --memory 4g --memory-swap 4g CONTAINER"
    if usable_mb < SMALL_RUN_MB:
        return [Finding("fail", title, "", "Even a ResNet-50 run needs 1.5 GB; the kernel would kill it.", fix)]
    if usable_mb < LARGE_RUN_MB:
        why = "BERT-Large needs about 4 GB while it loads; ResNet-50 and YOLOS-small fit."
        return [Finding("warn", title, "", why, fix)]
    return [Finding("ok", title)]


def check_disk(disk: Disk) -> list[Finding]:
    """Check that there is space for model files and that results can be written."""
    findings = []
    free_mb = disk.models_free_mb
    if free_mb is not None:
        title, fix = f"{free_mb / 1024:.1f} GB free for models", "export GPUTAX_MODELS=/path/with/free/space"
        if free_mb < SMALL_MODELS_MB:
            why = "ResNet-50 and YOLOS-small need 0.1 GB each, BERT-Large 1.4 GB."
            findings.append(Finding("fail", title, disk.models_dir, why, fix))
        elif free_mb < LARGE_MODELS_MB:
            why = "BERT-Large needs 1.4 GB; ResNet-50 and YOLOS-small fit."
            findings.append(Finding("warn", title, disk.models_dir, why, fix))
        else:
            findings.append(Finding("ok", title, disk.models_dir))
    if disk.results_problem:
        why = "Each cell is written when it ends; without a writable directory the run would be lost."
        place = shlex.quote(disk.results_dir)
        fix = f'sudo mkdir -p {place} && sudo chown "$USER" {place}'
        title = "The results directory is not writable"
        findings.append(Finding("fail", title, f"{disk.results_dir}: {disk.results_problem}", why, fix))
    else:
        findings.append(Finding("ok", "The results directory is writable", disk.results_dir))
    return findings


def _quota_fix(facts: Mapping[str, Any], cpus: int) -> str:
    hints = (facts.get("host") or {}).get("container_hints") or {}
    source = str((facts.get("cpu_allowance") or {}).get("quota_source") or "")
    if hints.get("kubernetes"):
        return f"kubectl set resources deployment NAME --limits=cpu={cpus} --requests=cpu={cpus}"
    if hints.get("docker"):
        return f"docker update --cpus {cpus} CONTAINER"
    return f"echo {'max' if source.endswith('cpu.max') else -1} | sudo tee {source}"


# NVIDIA's release notes: the first Linux driver of each CUDA major version.
FIRST_DRIVER = {11: 450, 12: 525, 13: 580}
CUDA_PROVIDER = "CUDAExecutionProvider"
# Suffix of NVML's error name -> what it means, and the command that fixes it on a host.
NVML_FAULTS = {
    "DriverNotLoaded": ("the kernel module is not loaded", "sudo modprobe nvidia"),
    "LibRmVersionMismatch": (
        "the driver was updated, but the old kernel module is still loaded",
        "sudo reboot",
    ),
    "NoPermission": ("this user has no permission to open /dev/nvidia*", "sudo chmod a+rw /dev/nvidia*"),
    "LibraryNotFound": ("libnvidia-ml.so.1 is missing", "sudo apt-get install -y nvidia-driver-580"),
}
IN_CONTAINER = "docker run --gpus all -e NVIDIA_DRIVER_CAPABILITIES=compute,utility IMAGE"


def check_gpu(facts: Mapping[str, Any]) -> list[Finding]:
    """Check the GPUs and whether they can be measured."""
    devices = facts.get("devices") or {}
    gpus = devices.get("gpus") or []
    signs = _signs(devices)
    if gpus:
        findings = [finding for gpu in gpus for finding in _one_gpu(gpu)]
        return [*findings, *_cuda_provider(facts, gpus)]
    if not signs:
        return [Finding("ok", "No NVIDIA GPU", "only the CPU can be measured here")]
    return [_unreachable(facts, devices, signs)]


def _one_gpu(gpu: Mapping[str, Any]) -> list[Finding]:
    name = str(gpu.get("name") or "unknown NVIDIA GPU")
    memory_mb = gpu.get("memory_total_mb")
    parts = [
        f"driver {gpu.get('driver_version')}",
        f"CUDA up to {gpu.get('cuda_driver_version')}",
        "" if memory_mb is None else f"{memory_mb / 1024:.1f} GB",
        "MIG on" if gpu.get("mig") else "",
    ]
    findings = [Finding("ok", name, ", ".join(part for part in parts if part))]
    if gpu.get("compute_mode") == "prohibited":
        why = "No process may use the GPU in this mode, so every run on it fails."
        fix = "sudo nvidia-smi --compute-mode=DEFAULT"
        findings.append(Finding("fail", f"{name}: compute mode is prohibited", "", why, fix))
    if gpu.get("persistence") is False:
        why = "The driver unloads when the GPU is idle: the first run after a pause starts later, on a colder GPU."
        findings.append(
            Finding("warn", f"{name}: persistence mode is off", "", why, "sudo nvidia-smi --persistence-mode=1")
        )
    return findings


def _cuda_provider(facts: Mapping[str, Any], gpus: list[Mapping[str, Any]]) -> list[Finding]:
    runtime = facts.get("onnxruntime") or {}
    if not runtime.get("importable"):
        return []  # reported by another check
    if CUDA_PROVIDER not in (runtime.get("providers") or ()):
        clear = "pip uninstall -y onnxruntime && " if (facts.get("packages") or {}).get("onnxruntime") else ""
        why = "There is a GPU, but ONNX Runtime was built without CUDA: only the CPU would be measured."
        title = "ONNX Runtime cannot use the GPU"
        return [Finding("fail", title, "no CUDA provider", why, f"{clear}pip install 'gputax[cuda]'")]
    built, known = _major(runtime.get("cuda_version")), _major(gpus[0].get("cuda_driver_version"))
    if built and known and built > known:
        why = (
            f"ONNX Runtime was built for CUDA {built}, but this driver supports at most CUDA"
            f" {gpus[0].get('cuda_driver_version')}: loading a workload on the GPU will fail."
        )
        fix = f"sudo apt-get install -y nvidia-driver-{FIRST_DRIVER.get(built, 580)} && sudo reboot"
        return [Finding("fail", f"The driver is too old for CUDA {built}", "", why, fix)]
    return []


def _unreachable(facts: Mapping[str, Any], devices: Mapping[str, Any], signs: str) -> Finding:
    cause, reason = str(devices.get("cause")), str(devices.get("why") or "NVML lists no GPU")
    title = "There is an NVIDIA GPU, but NVML cannot reach it"
    effect = "Without NVML a run cannot record GPU clocks, power, throttle reasons or other processes."
    if cause == "not-installed":
        return Finding("fail", title, f"{signs}; {reason}", effect, "pip install 'gputax[cuda]'")
    hints = (facts.get("host") or {}).get("container_hints") or {}
    meaning, fix = NVML_FAULTS.get(cause, (reason, "nvidia-smi"))
    # A container gets its driver libraries and device nodes from the host: this cannot be fixed inside.
    if any(hints.get(name) for name in ("docker", "podman")) and cause in ("LibraryNotFound", "NoPermission"):
        fix = IN_CONTAINER
    return Finding("fail", title, f"{signs}; {meaning}", effect, fix)


def _signs(devices: Mapping[str, Any]) -> str:
    """Return the signs of a GPU that NVML does not list."""
    signs = [
        ", ".join(devices.get("nodes") or ()),
        f"kernel module {devices['kernel_module']}" if devices.get("kernel_module") else "",
        f"{devices['pci_devices']} on the PCI bus" if devices.get("pci_devices") else "",
        str(devices.get("nvidia_smi") or ""),
    ]
    return ", ".join(sign for sign in signs if sign)


def _major(version: object) -> int:
    head = str(version or "").split(".")[0]
    return int(head) if head.isdigit() else 0
