"""Where everything of the cluster lives, and the names and addresses it uses."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent

NODE_NAME = "gputax-e2e"
# The kubelet refuses a loopback address, so the node's address is on a bridge without ports: nothing listens outside.
NODE_BRIDGE, NODE_ADDRESS, NODE_PREFIX = "gputax-node", "10.89.0.1", 24
POD_BRIDGE, POD_SUBNET = "gputax-pods", "10.244.0.0/24"
SERVICE_SUBNET, FIRST_SERVICE_ADDRESS = "10.96.0.0/24", "10.96.0.1"
ETCD_CLIENT_PORT, ETCD_PEER_PORT = 23790, 23800
API_PORT = 6443
API_URL = f"https://{NODE_ADDRESS}:{API_PORT}"

LANE_PARTS = ("device-plugin", "dra-driver", "prometheus")
"""What of the lane speaks with the API beside the cluster's own daemons."""

PAUSE_IMAGE = "gputax.local/pause:e2e"
PRODUCT_IMAGE = "gputax.local/gputax:e2e"
STAND_IN_RUNTIMES = ("xen-cri",)
"""Runtime handlers that a wrapper plays: it records its call and then is runc."""
SANDBOX_RUNTIME, FALSE_SANDBOX_RUNTIME = "runsc", "runsc-false"
"""gVisor's handler, and one that is named like it and starts runc."""
RUNSC_SHIM = "containerd-shim-runsc-v1"


def cache_directory() -> Path:
    """Return what outlives a cluster: binaries, base image, wheels, image layers."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gputax"


def run_directory() -> Path:
    """Return the one directory of the one cluster that this machine can have."""
    return Path(os.environ.get("GPUTAX_E2E_DIR", "/var/tmp/gputax-e2e"))


def kubernetes_directory() -> Path:
    """Return where the Kubernetes binaries are, or will be once built."""
    script = REPOSITORY / "e2e/kubernetes/build.sh"
    return Path(subprocess.run([script, "--where"], check=True, capture_output=True, text=True).stdout.strip())


@dataclass(frozen=True)
class Layout:
    """The run directory's inside."""

    root: Path

    @property
    def certificates(self) -> Path:
        """Return the directory of keys and certificates."""
        return self.root / "certificates"

    @property
    def configuration(self) -> Path:
        """Return the directory of the daemons' own files."""
        return self.root / "configuration"

    @property
    def logs(self) -> Path:
        """Return the directory of one log per daemon."""
        return self.root / "logs"

    @property
    def processes(self) -> Path:
        """Return the directory of one file per running daemon."""
        return self.root / "processes"

    @property
    def host_before(self) -> Path:
        """Return the file that says how the host was before."""
        return self.root / "host_before.json"

    @property
    def containerd_socket(self) -> Path:
        """Return containerd's own socket."""
        return self.root / "containerd.sock"

    @property
    def cdi(self) -> Path:
        """Return the directory of device descriptions (CDI) that containerd reads."""
        return self.root / "cdi"

    @property
    def audit_log(self) -> Path:
        """Return the API server's record of every call from outside the control plane."""
        return self.logs / "audit.jsonl"

    @property
    def runtime_calls(self) -> Path:
        """Return the file in which the stand-in runtimes record that they were called."""
        return self.logs / "stand_in_runtime_calls.txt"

    @property
    def unhealthy_devices(self) -> Path:
        """Return the file that lists the devices that the plugin must report as unhealthy, one id per line."""
        return self.configuration / "unhealthy_devices"

    @property
    def plugin_switches(self) -> Path:
        """Return the file of words that change how the device plugin behaves: `gpus=1`, `never-ready`, `spread`, ..."""
        return self.configuration / "plugin_switches"

    @property
    def dra_switches(self) -> Path:
        """Return the file of words that change how the DRA driver behaves: `gpus=1`, `other-gpu`, ..."""
        return self.configuration / "dra_switches"

    @property
    def plugin_registry(self) -> Path:
        """Return where the kubelet looks for sockets of plugins that it may call."""
        return self.root / "kubelet/plugins_registry"

    @property
    def mps(self) -> Path:
        """Return the directory of the stand-in of the MPS control daemon."""
        return self.root / "mps"

    def kubeconfig(self, user: str = "admin") -> Path:
        """Return a user's kubeconfig."""
        return self.configuration / f"{user}.kubeconfig"
