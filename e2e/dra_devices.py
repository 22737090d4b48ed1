"""What the stand-in DRA driver publishes and prepares, as pure functions: no kubelet, no gRPC, no API."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from e2e.device_offer import GPU_MEMORY_MB, MIG_SLICES, PipeDirectories, gpu_uuid, mig_uuid, profile_memory_mb

DRIVER = "gpu.nvidia.com"
API = "resource.k8s.io/v1"
CDI_VERSION = "0.6.0"
CDI_KIND = f"k8s.{DRIVER}/claim"
PROFILES = {"1g.10gb": 1, "3g.40gb": 3}
"""The MIG profiles of a stand-in GPU, each with the compute slices that it takes."""
PIPE = "/tmp/nvidia-mps"
"""Where NVIDIA's driver mounts the control daemon's directory in a container."""
KNOWN = ("other-gpu", "no-daemon", "prepare-fails")


class PrepareError(Exception):
    """A claim that the driver does not prepare; the kubelet tells the pod."""


@dataclass(frozen=True)
class DraSwitches:
    """What a test may turn while the driver runs: words in a file."""

    gpus: int | None = None
    other_gpu: bool = False
    """A lie: the container gets another GPU than the one that was allocated."""
    no_daemon: bool = False
    """A lie: MPS by name alone."""
    prepare_fails: bool = False


def dra_switches(words: Iterable[str]) -> DraSwitches:
    """Read the words `gpus=N`, `other-gpu`, `no-daemon`, `prepare-fails`."""
    said = list(words)
    if unknown := [word for word in said if word not in KNOWN and not word.startswith("gpus=")]:
        raise ValueError(f"unknown switches: {', '.join(unknown)}")
    count = next((int(word.removeprefix("gpus=")) for word in said if word.startswith("gpus=")), None)
    return DraSwitches(count, *(name in said for name in KNOWN))


def device_classes() -> list[dict[str, Any]]:
    """Return NVIDIA's classes of devices."""
    return [
        {
            "apiVersion": API,
            "kind": "DeviceClass",
            "metadata": {"name": f"{kind}.nvidia.com"},
            "spec": {
                "selectors": [
                    {
                        "cel": {
                            "expression": f"device.driver == '{DRIVER}' "
                            f"&& device.attributes['{DRIVER}'].type == '{kind}'"
                        }
                    }
                ]
            },
        }
        for kind in ("gpu", "mig")
    ]


def slices(gpus: int, node: str, generation: int) -> list[dict[str, Any]]:
    """Return the pool of a node: its GPUs, and the MIG slices that each can be divided into instead."""
    counters = [{"name": f"gpu-{gpu}", "counters": {"slices": {"value": str(MIG_SLICES)}}} for gpu in range(gpus)]
    devices = [device for gpu in range(gpus) for device in (_gpu(gpu), *_slices_of(gpu))]
    parts: list[dict[str, Any]] = [{"sharedCounters": counters}, {"devices": devices}]
    return [
        {
            "apiVersion": API,
            "kind": "ResourceSlice",
            "metadata": {"name": f"{node}-{DRIVER}-{number}"},
            "spec": {
                "driver": DRIVER,
                "nodeName": node,
                "pool": {"name": node, "generation": generation, "resourceSliceCount": len(parts)},
                **part,
            },
        }
        for number, part in enumerate(parts)
    ]


def cdi_spec(
    claim: Mapping[str, Any], pipes: PipeDirectories, switches: DraSwitches, gpus: int
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the description of a claim's devices for the container runtime, and what the kubelet is told of each."""
    if switches.prepare_fails:
        raise PrepareError("the stand-in driver was told to fail")
    allocation = claim["status"]["allocation"]["devices"]
    described, told = [], []
    for result in allocation["results"]:
        if result["driver"] != DRIVER:
            continue
        name = f"{claim['metadata']['uid']}-{result['device']}"
        edits = _edits(result["device"], parameters_of(allocation, result["request"]), pipes, switches, gpus)
        described.append({"name": name, "containerEdits": edits})
        told.append(
            {
                "request_names": [result["request"]],
                "pool_name": result["pool"],
                "device_name": result["device"],
                "cdi_device_ids": [f"{CDI_KIND}={name}"],
            }
        )
    return {"cdiVersion": CDI_VERSION, "kind": CDI_KIND, "devices": described}, told


def parameters_of(allocation: Mapping[str, Any], request: str) -> Mapping[str, Any]:
    """Return the driver's parameters for a request, refusing what it does not know."""
    for each in allocation.get("config") or ():
        opaque = each.get("opaque") or {}
        if opaque.get("driver") == DRIVER and (not each.get("requests") or request in each["requests"]):
            parameters: Mapping[str, Any] = opaque["parameters"]
            if (parameters.get("apiVersion"), parameters.get("kind")) != ("resource.nvidia.com/v1beta1", "GpuConfig"):
                raise PrepareError(f"unknown parameters {parameters.get('apiVersion')} {parameters.get('kind')}")
            if parameters.get("sharing", {}).get("strategy") not in ("TimeSlicing", "MPS"):
                raise PrepareError(f"unknown strategy in {parameters}")
            return parameters
    return {}


def _edits(
    device: str, parameters: Mapping[str, Any], pipes: PipeDirectories, switches: DraSwitches, gpus: int
) -> dict[str, Any]:
    gpu = int(device.split("-")[1])
    if switches.other_gpu:
        gpu = (gpu + 1) % max(2, gpus)
    profile = next((name for name in PROFILES if f"-mig-{name.replace('.', '')}-" in device), "")
    memory_mb = profile_memory_mb(profile) if profile else GPU_MEMORY_MB
    variables = {"NVIDIA_VISIBLE_DEVICES": "void"}
    mounts = []
    sharing = parameters.get("sharing") or {}
    if sharing.get("strategy") == "MPS":
        directory = pipes.empty if switches.no_daemon else pipes.served
        mounts = [{"hostPath": directory, "containerPath": PIPE, "options": ["rw", "nosuid", "nodev", "bind"]}]
        variables["CUDA_MPS_PIPE_DIRECTORY"] = PIPE
        limit = str((sharing.get("mpsConfig") or {}).get("defaultPinnedDeviceMemoryLimit") or "")
        if limit and not switches.no_daemon:
            memory_mb = int(limit.removesuffix("Mi"))
    variables["GPUTAX_SOFT_MEMORY_MB"] = str(memory_mb)
    edits: dict[str, Any] = {
        "deviceNodes": [{"path": f"/dev/nvidia{gpu}", "hostPath": "/dev/null"}],
        "env": [f"{name}={value}" for name, value in variables.items()],
    }
    return {**edits, "mounts": mounts} if mounts else edits


def _gpu(gpu: int) -> dict[str, Any]:
    return _device(gpu, f"gpu-{gpu}", "gpu", {"uuid": gpu_uuid(gpu)}, GPU_MEMORY_MB, MIG_SLICES)


def _slices_of(gpu: int) -> list[dict[str, Any]]:
    found = []
    for profile, taken in PROFILES.items():
        for part in range(MIG_SLICES // taken):
            name = f"gpu-{gpu}-mig-{profile.replace('.', '')}-{taken}-{part}"
            attributes = {"profile": profile, "parentUUID": gpu_uuid(gpu), "uuid": mig_uuid(gpu, 100 * taken + part)}
            found.append(_device(gpu, name, "mig", attributes, profile_memory_mb(profile), taken))
    return found


def _device(
    gpu: int, name: str, kind: str, attributes: Mapping[str, str], memory_mb: int, taken: int
) -> dict[str, Any]:
    said = {"type": kind, "productName": "Stand-in GPU", **attributes}
    return {
        "name": name,
        "attributes": {each: {"string": value} for each, value in said.items()},
        "capacity": {"memory": {"value": f"{memory_mb}Mi"}},
        "consumesCounters": [{"counterSet": f"gpu-{gpu}", "counters": {"slices": {"value": str(taken)}}}],
    }
