"""The files and commands of the end-to-end cluster stay inside its run directory and speak its own addresses."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

from e2e import configuration
from e2e.control_plane import daemons
from e2e.layout import (
    FALSE_SANDBOX_RUNTIME,
    NODE_ADDRESS,
    PAUSE_IMAGE,
    SANDBOX_RUNTIME,
    STAND_IN_RUNTIMES,
    Layout,
)

LAYOUT = Layout(Path("/run-directory"))
RUNSC = Path("/cache/runsc")


def test_containerd_keeps_its_state_in_the_run_directory_and_knows_every_stand_in_runtime() -> None:
    parsed = tomllib.loads(configuration.containerd(LAYOUT, Path("/binaries"), "/usr/sbin/runc", RUNSC))
    for place in (parsed["root"], parsed["state"], parsed["grpc"]["address"]):
        assert place.startswith("/run-directory/")
    assert parsed["plugins"]["io.containerd.cri.v1.images"]["pinned_images"] == {"sandbox": PAUSE_IMAGE}
    plugin = parsed["plugins"]["io.containerd.cri.v1.runtime"]
    assert plugin["enable_cdi"] is True
    assert plugin["cdi_spec_dirs"] == [str(LAYOUT.cdi)]
    runtimes = plugin["containerd"]["runtimes"]
    sandbox = runtimes.pop(SANDBOX_RUNTIME)
    assert sandbox["runtime_path"] == "/cache/containerd-shim-runsc-v1"
    assert sandbox["options"]["ConfigPath"] == "/run-directory/configuration/runsc.toml"
    assert set(runtimes) == {"runc", FALSE_SANDBOX_RUNTIME, *STAND_IN_RUNTIMES}
    assert runtimes[FALSE_SANDBOX_RUNTIME]["options"] == runtimes["runc"]["options"]
    assert {each["runtime_path"] for each in runtimes.values()} == {"/binaries/containerd-shim-runc-v2"}
    for name in STAND_IN_RUNTIMES:
        assert runtimes[name]["options"]["BinaryName"] == f"/run-directory/configuration/{name}"


def test_gvisors_shim_starts_the_runsc_of_the_lane_with_its_state_in_the_run_directory() -> None:
    options = tomllib.loads(configuration.runsc_options(LAYOUT, RUNSC))
    assert options == {"binary_name": "/cache/runsc", "root": "/run-directory/runsc"}


def test_a_stand_in_runtime_records_its_call_and_is_runc() -> None:
    script = configuration.stand_in_runtime(LAYOUT, "xen-cri", "/usr/sbin/runc")
    assert str(LAYOUT.runtime_calls) in script
    assert script.endswith('exec /usr/sbin/runc "$@"\n')


def test_the_kubelet_and_the_api_listen_on_the_bridge_alone() -> None:
    kubelet = json.loads(configuration.kubelet(LAYOUT))
    assert kubelet["address"] == NODE_ADDRESS
    assert kubelet["healthzPort"] == 0
    assert kubelet["authentication"]["anonymous"] == {"enabled": False}
    commands = daemons(LAYOUT, Path("/binaries"), "etcd")
    assert f"--bind-address={NODE_ADDRESS}" in commands["kube-apiserver"]
    assert all("--secure-port=0" in commands[name] for name in ("kube-controller-manager", "kube-scheduler"))
    assert all("127.0.0.1" in word for word in commands["etcd"] if word.startswith("--listen"))
