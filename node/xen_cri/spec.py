"""From an OCI configuration to a guest and to the request of a session; no files, no processes."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xen_cri.errors import Refused

CRI = "io.kubernetes.cri."
STANDALONE, SANDBOX, CONTAINER = "standalone", "sandbox", "container"
MIB = 1 << 20
PROXY_SOCKET = "/run/gputax/proxy.sock"  # in the guest
# The agent in the guest makes these itself, or the layer in memory does as well.
MADE_IN_GUEST = frozenset({"proc", "sysfs", "devpts", "mqueue", "tmpfs", "cgroup", "cgroup2"})
BOUND_IN_GUEST = frozenset({"/dev/shm"})
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
REQUEST_BYTES = 256 * 1024


@dataclass(frozen=True)
class Settings:
    """What a node says in /etc/gputax/xen-cri.json."""

    kernel: str = "/boot/vmlinux"
    ramdisk: str = "/boot/guest.cpio"
    session: str = "xen-session"
    link: str = "xen-link"
    proxy_socket: str = "/run/gputax/proxy.xen"
    block_script: str = "/opt/gputax/block-image"
    state: str = "/run/gputax/xen-cri"
    images: str = "/var/lib/gputax/xen-images"
    type: str = "pv"
    extra: str = "console=hvc0 quiet"
    memory_mib: int = 256  # of a guest whose pod has no limit
    overhead_mib: int = 96  # kernel, agent and link, beside the pod's own memory
    vcpus: int = 1
    most_vcpus: int = 64


def kind_of(config: dict[str, Any]) -> str:
    """Return what a bundle is for: a pod's sandbox, a container of one, or both in one."""
    kind = str((config.get("annotations") or {}).get(f"{CRI}container-type", STANDALONE))
    if kind not in (STANDALONE, SANDBOX, CONTAINER):
        message = f"unknown container type {kind!r}"
        raise Refused(message)
    return kind


def sandbox_of(config: dict[str, Any]) -> str:
    """Return the id of a container's sandbox."""
    found = str((config.get("annotations") or {}).get(f"{CRI}sandbox-id", ""))
    if not NAME.fullmatch(found):
        message = "a container of a pod without the id of its sandbox"
        raise Refused(message)
    return found


def pod_of(config: dict[str, Any], name: str) -> str:
    """Return the pod's uid, by which the GPU proxy knows the tenant; without Kubernetes the container's id."""
    return str((config.get("annotations") or {}).get(f"{CRI}sandbox-uid") or name)


def check(config: dict[str, Any], name: str) -> None:
    """Refuse what a guest cannot have, before anything is made."""
    if not NAME.fullmatch(name):
        message = f"not a container id: {name!r}"
        raise Refused(message)
    for mount in config.get("mounts") or []:
        where = str(mount.get("destination", ""))
        if mount.get("type") in MADE_IN_GUEST or where in BOUND_IN_GUEST:
            continue
        message = (
            f"mount {where}: a guest sees no path of the host ({mount.get('source')}); volumes are not supported yet"
        )
        raise Refused(message)
    linux = config.get("linux") or {}
    if linux.get("devices"):
        message = f"device {linux['devices'][0].get('path')}: a guest has no device of the host"
        raise Refused(message)
    if config.get("hooks") and any((config["hooks"] or {}).values()):
        message = "hooks are not supported: a guest has no process of its container on the host"
        raise Refused(message)


def _number(value: object) -> int:
    try:
        return int(str(value))
    except ValueError as wrong:
        message = f"not a number in the limits: {value!r}"
        raise Refused(message) from wrong


def limits(config: dict[str, Any], settings: Settings) -> tuple[int, int]:
    """Return the guest's memory in MiB and its vCPUs: the pod's by its annotations, else the container's own."""
    notes = config.get("annotations") or {}
    resources = (config.get("linux") or {}).get("resources") or {}
    cpu = resources.get("cpu") or {}
    memory = _number(notes.get(f"{CRI}sandbox-memory") or (resources.get("memory") or {}).get("limit") or 0)
    quota = _number(notes.get(f"{CRI}sandbox-cpu-quota") or cpu.get("quota") or 0)
    period = _number(notes.get(f"{CRI}sandbox-cpu-period") or cpu.get("period") or 100_000)
    mib = settings.memory_mib if memory <= 0 else -(-memory // MIB) + settings.overhead_mib
    vcpus = settings.vcpus if quota <= 0 or period <= 0 else -(-quota // period)
    return mib, min(max(vcpus, 1), settings.most_vcpus)


def guest_name(namespace: str, name: str) -> str:
    """Return a name for xl that no other namespace of containerd gives."""
    return f"gputax-{name[:40]}-{hashlib.sha256(f'{namespace}/{name}'.encode()).hexdigest()[:8]}"


def disk(image: Path, device: str, settings: Settings) -> str:
    """Return xl's words for a read-only image."""
    return f"format=raw,vdev={device},access=ro,script={settings.block_script},target={image}"


def guest(config: dict[str, Any], name: str, image: Path | None, settings: Settings) -> str:
    """Return the guest's file for xl; nothing in it comes from the pod but two numbers."""
    mib, vcpus = limits(config, settings)
    disks = f"'{disk(image, 'xvda', settings)}'" if image else ""
    return (
        f'name = "{name}"\ntype = "{settings.type}"\nkernel = "{settings.kernel}"\nramdisk = "{settings.ramdisk}"\n'
        f'memory = {mib}\nvcpus = {vcpus}\nextra = "{settings.extra}"\ndisk = [{disks}]\n'
        'on_poweroff = "destroy"\non_reboot = "destroy"\non_crash = "destroy"\n'
    )


def device_name(number: int) -> str:
    """Return the name of a guest's disk: xvda, xvdb and so on."""
    if not 0 <= number < 26:
        message = "a pod has at most 26 containers"
        raise Refused(message)
    return f"xvd{chr(ord('a') + number)}"


def _packed(items: list[str]) -> bytes:
    if any("\0" in item for item in items):
        message = "a text of the configuration has a zero byte in it"
        raise Refused(message)
    request = b"".join(item.encode() + b"\0" for item in items)
    if len(request) > REQUEST_BYTES:
        message = f"arguments and environment are {len(request)} bytes, of at most {REQUEST_BYTES}"
        raise Refused(message)
    return request


def hold() -> bytes:
    """Return the request of a sandbox, which only keeps its guest."""
    return _packed(["s"])


def _process_items(process: dict[str, Any], proxy: bool) -> list[str]:
    words = [str(word) for word in process.get("args") or []]
    if not words:
        message = "the process has no arguments"
        raise Refused(message)
    user = process.get("user") or {}
    environment = [str(each) for each in process.get("env") or []]
    given = {each.partition("=")[0] for each in environment}
    if proxy:
        ours = {"GPUTAX_PROXY_SOCKET": PROXY_SOCKET, "GPUTAX_PROXY_TRANSPORT": "xen"}
        environment += [f"{key}={value}" for key, value in ours.items() if key not in given]
    return [
        *(f"a{word}" for word in words),
        *(f"e{each}" for each in environment),
        f"d{process.get('cwd') or '/'}",
        f"u{int(user.get('uid', 0))}",
        f"g{int(user.get('gid', 0))}",
        *(f"G{int(group)}" for group in user.get("additionalGids") or []),
        *(["n"] if process.get("noNewPrivileges") else []),
        *(["t"] if process.get("terminal") else []),
    ]


def container(config: dict[str, Any], name: str, device: str, proxy: bool) -> bytes:
    """Return the request of a container's first process."""
    hostname = config.get("hostname")
    return _packed(
        [
            f"c{name}",
            f"r/dev/{device}",
            *([f"h{hostname}"] if hostname else []),
            *(["o"] if (config.get("root") or {}).get("readonly") else []),
            *_process_items(config.get("process") or {}, proxy),
        ]
    )


def joined(process: dict[str, Any], name: str, proxy: bool) -> bytes:
    """Return the request of a further process in a container."""
    return _packed([f"x{name}", *_process_items(process, proxy)])
