"""What is around a process: container, pod, sandbox, hypervisor, claim; and the CPU and memory limits it sees; pure."""

from __future__ import annotations

from gputax.environments.environment import Described, Evidence
from gputax.environments.kubernetes import xen_reasons


def surroundings(described: Described, evidence: Evidence) -> tuple[str, ...]:
    """Return the layers around the process, the outermost first; `bare` if there are none."""
    hints, host = described.container_hints, described.host
    sandbox = (described.answer.get("mode") or {}).get("sandbox")
    layers = []
    if host.get("hypervisor_type") == "xen" and not xen_reasons(described):
        layers.append("xen")
    elif host.get("hypervisor"):
        layers.append("vm")
    if hints.get("kubernetes"):
        layers.append("pod")
    elif hints.get("docker") or hints.get("podman") or hints.get("own_pid_namespace"):
        layers.append("container")
    if sandbox:
        layers.append(str(sandbox))
    if evidence.fact("resource_claims"):
        layers.append("dra")
    # A virtual machine may be the whole machine that somebody rents: without a container in it, it is bare too.
    return tuple(layers) if set(layers) - {"vm"} else (*layers, "bare")


def host_limits(described: Described) -> dict[str, str]:
    """Return the CPU and memory limits in words."""
    cores, affinity = described.host.get("cores_online"), described.affinity
    quota, memory_mb = described.quota_cpus, described.host.get("memory_limit_mb")
    hidden = (described.answer.get("mode") or {}).get("sandbox") == "gvisor"
    none = "unknown: the sandbox hides control groups" if hidden else "no limit"
    limits = {"CPUs": f"{len(affinity)} of {cores}" if cores else str(len(affinity))} if affinity else {}
    limits["CPU quota"] = none if quota is None else f"{quota:g} CPUs"
    limits["memory"] = none if memory_mb is None else f"{memory_mb:.0f} MiB"
    return limits
