"""Bring the cluster up, take it down, and say how it is."""

from __future__ import annotations

import contextlib
import os
import shutil
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from e2e import certificates, configuration, host, images
from e2e.api import Api
from e2e.control_plane import daemons
from e2e.device_offer import RESOURCE
from e2e.gvisor_runtime import runsc_place
from e2e.layout import API_URL, LANE_PARTS, NODE_NAME, STAND_IN_RUNTIMES, Layout, kubernetes_directory, run_directory
from e2e.packages import install_command, missing_packages, program
from e2e.processes import ClusterError, command_of, end, pid_of, start, stop, wait_until
from e2e.timings import Timings

# The API server before etcd: with etcd gone it hangs in its shutdown and keeps its port for many seconds.
START_ORDER = ("etcd", "containerd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet")
STOP_FIRST = ("prometheus", "device-plugin", "dra-driver", "kubelet")
STOP_LAST = ("kube-scheduler", "kube-controller-manager", "kube-apiserver", "etcd")


def running(layout: Layout) -> list[str]:
    """Return the names of the daemons that run now."""
    return [name for name in (*START_ORDER, *LANE_PARTS) if pid_of(layout, name) is not None]


def up(gpus: int = 4) -> tuple[Layout, Timings]:
    """Start everything and return when the node is Ready and its GPUs are there."""
    layout = Layout(run_directory())
    _check_host(layout)
    binaries = kubernetes_directory()
    timings = Timings()
    for directory in (layout.root, layout.configuration / "cni", layout.cdi, layout.logs, layout.processes):
        directory.mkdir(parents=True, exist_ok=True)
    host.remember(layout)
    try:
        with timings.part("certificates"):
            host.make_node_bridge()
            certificates.make_certificates(layout.certificates)
            _write_configuration(layout, binaries)
        commands = daemons(layout, binaries, program("etcd"))
        with timings.part("apiserver"):
            for name in ("etcd", "containerd", "kube-apiserver"):
                start(layout, name, commands[name])
            wait_until("the API is ready", lambda: _api_is_ready(layout), layout, "kube-apiserver")
            for name in ("kube-controller-manager", "kube-scheduler"):
                start(layout, name, commands[name])
        with timings.part("pause image"):
            wait_until("containerd listens", layout.containerd_socket.exists, layout, "containerd")
            images.import_archive(layout, images.pause_archive())
        with timings.part("node"):
            start(layout, "kubelet", commands["kubelet"])
            wait_until("the node is Ready", lambda: node_is_ready(layout), layout, "kubelet")
        with timings.part("GPUs"):
            start(layout, "device-plugin", _device_plugin(layout, gpus))
            start(layout, "dra-driver", _dra_driver(layout, gpus))
            wait_until(f"{gpus} GPUs", lambda: allocatable_gpus(layout) == gpus, layout, "device-plugin")
    except BaseException:
        kept = Path(f"{layout.root}.failed-logs")
        shutil.rmtree(kept, ignore_errors=True)
        shutil.copytree(layout.logs, kept, dirs_exist_ok=True)
        print(f"the daemons' logs are kept in {kept}", file=sys.stderr)
        down()
        raise
    return layout, timings


def down() -> list[str]:
    """End everything by pid and put the host back; return what could not be put back."""
    layout = Layout(run_directory())
    if not layout.root.exists():
        return []
    for name in STOP_FIRST:
        stop(layout, name)
    _end_containers(layout)
    stop(layout, "containerd")
    for name in STOP_LAST:
        stop(layout, name)
    problems = [f"{name} still runs" for name in running(layout)]
    problems += host.put_back(layout)
    if not problems:
        shutil.rmtree(layout.root)
    return problems


def stop_daemon(layout: Layout, name: str) -> None:
    """Stop one daemon, as a fault would."""
    stop(layout, name)


def start_daemon(layout: Layout, name: str) -> None:
    """Start one daemon again as it was."""
    if pid_of(layout, name) is None:
        start(layout, name, command_of(layout, name))


def kubectl(layout: Layout, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run kubectl as the cluster's administrator."""
    command = [str(kubernetes_directory() / "kubectl"), f"--kubeconfig={layout.kubeconfig()}", *arguments]
    return subprocess.run(command, capture_output=True, text=True)


def node(layout: Layout) -> dict[str, Any]:
    """Return the node as the API server knows it; empty before it has registered. Cheaper than a kubectl per look."""
    try:
        return Api(layout.certificates).get(f"/api/v1/nodes/{NODE_NAME}")
    except OSError:
        return {}


def allocatable_gpus(layout: Layout) -> int:
    """Return how many GPUs the node offers right now."""
    return int(node(layout).get("status", {}).get("allocatable", {}).get(RESOURCE, 0))


def node_is_ready(layout: Layout) -> bool:
    """Whether the kubelet reports well and pods may come: the taint of a new node is gone too."""
    found = node(layout)
    conditions = found.get("status", {}).get("conditions", [])
    ready = any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
    return ready and not found["spec"].get("taints")


def _check_host(layout: Layout) -> None:
    if names := running(layout):
        raise ClusterError(f"a cluster already runs in {layout.root}: {', '.join(names)}. Next: python -m e2e down")
    if os.geteuid() != 0:
        raise ClusterError("a kubelet needs root. Next: sudo, or KUBECONFIG=... for a cluster of yours")
    if packages := missing_packages():
        raise ClusterError(f"missing: {', '.join(packages)}. Next: {install_command(packages)}")
    if not (kubernetes_directory() / "kubectl").exists():
        raise ClusterError("Kubernetes is not built yet. Next: python -m e2e prepare")
    if layout.root.exists():
        down()
    if found := host.leftovers():
        raise ClusterError(f"another kubelet or the rest of one is on this host: {', '.join(found)}")


def _write_configuration(layout: Layout, binaries: Path) -> None:
    directory, runc, runsc = layout.configuration, program("runc"), runsc_place()
    for identity in ("admin", "kubelet", "controller-manager", "scheduler"):
        path = layout.kubeconfig(identity)
        path.touch(mode=0o600)
        path.write_text(configuration.kubeconfig(layout.certificates, identity))
    (directory / "kubelet.json").write_text(configuration.kubelet(layout))
    (directory / "containerd.toml").write_text(configuration.containerd(layout, binaries, runc, runsc))
    (directory / "runsc.toml").write_text(configuration.runsc_options(layout, runsc))
    (directory / "audit.json").write_text(configuration.audit_policy())
    (directory / "cni/10-gputax.conflist").write_text(configuration.pod_network(layout))
    (directory / "resolv.conf").write_text("nameserver 127.0.0.1\n")
    layout.unhealthy_devices.touch()
    layout.plugin_switches.touch()
    layout.dra_switches.touch()
    layout.runtime_calls.touch()
    for name in STAND_IN_RUNTIMES:
        (directory / name).write_text(configuration.stand_in_runtime(layout, name, runc))
        (directory / name).chmod(0o755)


def _device_plugin(layout: Layout, gpus: int) -> list[str | Path]:
    module = [sys.executable, "-m", "e2e.device_plugin"]
    files: list[str | Path] = ["--unhealthy-file", layout.unhealthy_devices, "--switch-file", layout.plugin_switches]
    follow: list[str | Path] = ["--certificates", layout.certificates, "--mps-root", layout.mps]
    return [*module, "--devices", str(gpus), *files, *follow]


def _dra_driver(layout: Layout, gpus: int) -> list[str | Path]:
    places: list[str | Path] = [
        "--registry",
        layout.plugin_registry,
        "--cdi",
        layout.cdi,
        "--mps-root",
        layout.mps / "dra",
    ]
    files: list[str | Path] = ["--switch-file", layout.dra_switches, "--certificates", layout.certificates]
    return [sys.executable, "-m", "e2e.dra_driver", "--devices", str(gpus), *places, *files]


def _api_is_ready(layout: Layout) -> bool:
    context = ssl.create_default_context(cafile=str(layout.certificates / "ca.crt"))
    try:
        with urllib.request.urlopen(f"{API_URL}/readyz", context=context, timeout=1) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def _end_containers(layout: Layout) -> None:
    """Kill every container through containerd, then the shims that stayed."""
    if pid_of(layout, "containerd") is not None:
        listing = images.ctr(layout, "tasks", "list", "--quiet")
        for task in listing.stdout.split():
            images.ctr(layout, "tasks", "delete", "--force", task)
    for pid in _shims(layout):
        end(pid, patience_s=2)


def _shims(layout: Layout) -> list[int]:
    marker = str(layout.containerd_socket).encode()
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = path.read_bytes().split(b"\0")
            if b"containerd-shim" in words[0] and marker in words:
                found.append(int(path.parent.name))
    return found
