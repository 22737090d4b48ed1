"""Check that GPU, driver, NVML and ONNX Runtime's CUDA provider are compatible."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gputax.doctor.finding import Finding

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
