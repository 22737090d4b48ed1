"""What the cluster changes on the host: written down before, put back after."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import time
from pathlib import Path

from e2e.layout import NODE_ADDRESS, NODE_BRIDGE, NODE_PREFIX, POD_BRIDGE, Layout

SYSCTLS = (  # the kubelet sets the first six, the bridge plugin the last
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
    "net/ipv4/ip_forward",
)
# Paths that kubelet, containerd and CNI have built in. Removed afterwards only if they were not there before.
FOREIGN_PATHS = (
    "/var/lib/kubelet",
    "/var/log/containers",
    "/var/lib/cni",
    "/run/containerd",
    "/opt/cni",
    "/etc/cni",
    "/run/cni",
    "/run/gputax-proxy",
    "/var/lib/gputax-proxy",
)
CGROUP = "kubepods"


def remember(layout: Layout) -> None:
    """Write down the host's state."""
    before = {
        "sysctls": {name: _sysctl(name).read_text().strip() for name in SYSCTLS if _sysctl(name).exists()},
        "absent": [path for path in FOREIGN_PATHS if not Path(path).exists()],
    }
    layout.host_before.write_text(json.dumps(before, indent=1))


def make_node_bridge() -> None:
    """Make the bridge that carries the node's address."""
    _ip("link", "add", NODE_BRIDGE, "type", "bridge")
    _ip("addr", "add", f"{NODE_ADDRESS}/{NODE_PREFIX}", "dev", NODE_BRIDGE)
    _ip("link", "set", NODE_BRIDGE, "up")


def leftovers() -> list[str]:
    """Return what a cluster of ours, or another kubelet, has on this host right now."""
    bridges = [name for name in (NODE_BRIDGE, POD_BRIDGE) if Path("/sys/class/net", name).exists()]
    return bridges + [str(path) for path in _cgroups()]


def put_back(layout: Layout) -> list[str]:
    """Undo every change; return what could not be undone."""
    problems: list[str] = []
    unmount_below(layout.root)
    for bridge in (POD_BRIDGE, NODE_BRIDGE):
        if Path("/sys/class/net", bridge).exists():
            _ip("link", "del", bridge)
    for group in _cgroups():
        problems += _remove_cgroup(group)
    try:
        before = json.loads(layout.host_before.read_text())
    except FileNotFoundError:
        return problems
    for name, value in before["sysctls"].items():
        if _sysctl(name).read_text().strip() != value:
            _sysctl(name).write_text(value)
    for path in before["absent"]:
        subprocess.run(["rm", "-rf", "--one-file-system", path], check=False)
    return problems


def _sysctl(name: str) -> Path:
    return Path("/proc/sys") / name


def _cgroups() -> list[Path]:
    roots = [Path("/sys/fs/cgroup"), *(each for each in Path("/sys/fs/cgroup").iterdir() if each.is_dir())]
    return [root / CGROUP for root in dict.fromkeys(each.resolve() for each in roots) if (root / CGROUP).is_dir()]


def _remove_cgroup(group: Path) -> list[str]:
    deadline = time.monotonic() + 5  # a killed container's group stays busy for some milliseconds
    while True:
        for directory, _, _ in os.walk(group, topdown=False):
            with contextlib.suppress(OSError):
                os.rmdir(directory)  # noqa: PTH106  a cgroup's files cannot be removed, only the directory
        if not group.exists():
            return []
        if time.monotonic() > deadline:
            return [f"cgroup {group} is still in use"]
        time.sleep(0.05)


def unmount_below(root: Path) -> None:
    """Unmount all that is mounted below a directory, the innermost first."""
    mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    below = [point for point in mounts if point.startswith(f"{root}/")]
    for point in sorted(below, key=len, reverse=True):
        subprocess.run(["umount", "-l", point.replace("\\040", " ")], check=False)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True)
