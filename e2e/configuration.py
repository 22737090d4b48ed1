"""The daemons' configuration files as pure functions: each returns the text of one file."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

from e2e.layout import (
    API_URL,
    FALSE_SANDBOX_RUNTIME,
    LANE_PARTS,
    NODE_ADDRESS,
    PAUSE_IMAGE,
    POD_BRIDGE,
    POD_SUBNET,
    RUNSC_SHIM,
    SANDBOX_RUNTIME,
    STAND_IN_RUNTIMES,
    Layout,
)


def kubeconfig(certificates: Path, identity: str) -> str:
    """Return a kubeconfig with everything inside, so that it can be copied."""

    def data(name: str) -> str:
        return base64.b64encode((certificates / name).read_bytes()).decode()

    user = {"client-certificate-data": data(f"{identity}.crt"), "client-key-data": data(f"{identity}.key")}
    return kubeconfig_of_user(certificates, identity, user)


def kubeconfig_of_user(certificates: Path, name: str, user: dict[str, str]) -> str:
    """Return a kubeconfig for a user with these credentials, for example a service account's token."""
    authority = base64.b64encode((certificates / "ca.crt").read_bytes()).decode()
    return _json(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "e2e", "cluster": {"server": API_URL, "certificate-authority-data": authority}}],
            "users": [{"name": name, "user": user}],
            "contexts": [{"name": "gputax-e2e", "context": {"cluster": "e2e", "user": name}}],
            "current-context": "gputax-e2e",
        }
    )


def kubelet(layout: Layout) -> str:
    """Return the kubelet's configuration."""
    certificates = layout.certificates
    return _json(
        {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": NODE_ADDRESS,
            "healthzPort": 0,
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True},
                "x509": {"clientCAFile": str(certificates / "ca.crt")},
            },
            "authorization": {"mode": "Webhook"},
            "tlsCertFile": str(certificates / "kubelet.crt"),
            "tlsPrivateKeyFile": str(certificates / "kubelet.key"),
            "containerRuntimeEndpoint": f"unix://{layout.containerd_socket}",
            "podLogsDir": str(layout.root / "pod-logs"),
            "resolvConf": str(layout.configuration / "resolv.conf"),
            "cgroupDriver": "cgroupfs",
            "failCgroupV1": False,
            "failSwapOn": False,
            "oomScoreAdj": 0,
            "makeIPTablesUtilChains": False,
            # Quick news: a GPU that became unhealthy and a kubelet that stopped show within seconds.
            "nodeStatusUpdateFrequency": "1s",
            "nodeStatusReportFrequency": "5s",
            "nodeLeaseDurationSeconds": 8,
            # No registry could bring an image back that a full disk made the kubelet delete.
            "imageGCHighThresholdPercent": 100,
            "imageGCLowThresholdPercent": 99,
            "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        }
    )


def containerd(layout: Layout, binaries: Path, runc: str, runsc: Path) -> str:
    """Return containerd's configuration: its own root, state, socket and CDI files, and every runtime handler."""
    plugin = '[plugins."io.containerd.cri.v1.runtime"'
    handlers = {"runc": runc, FALSE_SANDBOX_RUNTIME: runc}
    handlers |= {name: str(layout.configuration / name) for name in STAND_IN_RUNTIMES}
    # The shim by its path: containerd looks on PATH first, and Debian's own there is of another version.
    runtimes = "".join(
        f"""
{plugin}.containerd.runtimes.{name}]
runtime_type = "io.containerd.runc.v2"
runtime_path = "{binaries}/containerd-shim-runc-v2"
{plugin}.containerd.runtimes.{name}.options]
BinaryName = "{binary}"
Root = "{layout.root}/runc"
SystemdCgroup = false
"""
        for name, binary in handlers.items()
    )
    # runc's shim starts a pod's sandbox with runsc, but no container in it.
    runtimes += f"""
{plugin}.containerd.runtimes.{SANDBOX_RUNTIME}]
runtime_type = "io.containerd.runsc.v1"
runtime_path = "{runsc.with_name(RUNSC_SHIM)}"
{plugin}.containerd.runtimes.{SANDBOX_RUNTIME}.options]
TypeUrl = "io.containerd.runsc.v1.options"
ConfigPath = "{layout.configuration}/runsc.toml"
"""
    # restrict_oom_score_adj: without CAP_SYS_RESOURCE every pod would fail with "can't get final child's PID".
    return f"""version = 3
root = "{layout.root}/containerd"
state = "{layout.root}/containerd-state"
[grpc]
address = "{layout.containerd_socket}"
[plugins."io.containerd.internal.v1.opt"]
path = "{layout.root}/containerd-opt"
[plugins."io.containerd.nri.v1.nri"]
disable = true
[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = "{PAUSE_IMAGE}"
{plugin}]
restrict_oom_score_adj = true
netns_mounts_under_state_dir = true
enable_cdi = true
cdi_spec_dirs = ["{layout.cdi}"]
{plugin}.cni]
bin_dirs = ["/usr/lib/cni"]
conf_dir = "{layout.configuration}/cni"
{plugin}.containerd]
default_runtime_name = "runc"
{runtimes}"""


def runsc_options(layout: Layout, runsc: Path) -> str:
    """Return the options of gVisor's shim: which runsc it starts, and where that keeps its state."""
    return f'binary_name = "{runsc}"\nroot = "{layout.root}/runsc"\n'


def pod_network(layout: Layout) -> str:
    """Return the CNI list: one bridge. No masquerade and no host ports, so no rule is added to the host's firewall."""
    bridge = {
        "type": "bridge",
        "bridge": POD_BRIDGE,
        "isGateway": True,
        "isDefaultGateway": True,
        "ipMasq": False,
        "hairpinMode": True,
        "ipam": {
            "type": "host-local",
            "dataDir": str(layout.root / "pod-addresses"),
            "ranges": [[{"subnet": POD_SUBNET}]],
        },
    }
    return _json({"cniVersion": "0.4.0", "name": "gputax-e2e", "plugins": [bridge]})


def stand_in_runtime(layout: Layout, name: str, runc: str) -> str:
    """Return a runtime handler that records how it was called and then is runc."""
    return f"""#!/bin/sh
echo "{name} $*" >>{layout.runtime_calls}
exec {runc} "$@"
"""


def audit_policy() -> str:
    """Return what the API server records: who called what, for everyone but the cluster's and the lane's own parts."""
    own = {"level": "None", "userGroups": ["system:nodes", "system:serviceaccounts:kube-system"]}
    control_plane = {
        "level": "None",
        "users": ["system:apiserver", "system:kube-controller-manager", "system:kube-scheduler"],
    }
    lane = {"level": "None", "users": [f"gputax-e2e-{part}" for part in LANE_PARTS]}
    return _json(
        {
            "apiVersion": "audit.k8s.io/v1",
            "kind": "Policy",
            "omitStages": ["RequestReceived"],
            "rules": [own, control_plane, lane, {"level": "Metadata"}],
        }
    )


def _json(data: dict[str, Any]) -> str:
    return json.dumps(data, indent=1) + "\n"
