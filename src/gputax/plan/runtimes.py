"""OCI runtimes by family: whose kernel a program runs on under each, and how much one may cost."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

Kernel = Literal["host", "gvisor", "guest"]
"""Whose kernel answers a program's calls: the machine's, gVisor's own in user space, or that of a virtual machine."""


@dataclass(frozen=True)
class RuntimeFamily:
    """Runtimes of one make, whatever name an engine or a RuntimeClass gives them."""

    name: str
    title: str
    kernel: Kernel
    budget_percent: float
    names: re.Pattern[str]
    """Names under which it is configured, and the first word of its `--version`."""


# A runtime of the first kind sets up namespaces, starts the program and is gone: what is left is a container, and may
# cost what a container may cost. The others put a kernel of their own between the program and the machine: the budget
# is that of a full hypervisor.
_PROCESS_PERCENT, _KERNEL_PERCENT = 1.0, 10.0
FAMILIES: tuple[RuntimeFamily, ...] = (
    RuntimeFamily("runc", "runc", "host", _PROCESS_PERCENT, re.compile(r"runc|nvidia(-container-runtime)?")),
    RuntimeFamily("crun", "crun", "host", _PROCESS_PERCENT, re.compile(r"crun")),
    RuntimeFamily("youki", "youki", "host", _PROCESS_PERCENT, re.compile(r"youki")),
    RuntimeFamily("gvisor", "gVisor", "gvisor", _KERNEL_PERCENT, re.compile(r"(runsc|gvisor)([-_].+)?")),
    RuntimeFamily("kata", "Kata", "guest", _KERNEL_PERCENT, re.compile(r"(io\.containerd\.)?kata([-_.].+)?")),
)
# What Kubernetes takes as the name of a RuntimeClass; docker and podman take no less.
NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")


def runtime_family(name: str) -> RuntimeFamily | None:
    """Return the family of a runtime, a handler or a RuntimeClass by its name; None for a name of somebody's own."""
    last = name.rpartition("/")[2]
    return next((family for family in FAMILIES if family.names.fullmatch(last)), None)
