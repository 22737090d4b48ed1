"""`python -m bench.attackers KIND SOCKET LIBRARY`: one hostile tenant; it says when it is at work, and never ends."""

from __future__ import annotations

import ctypes
import os
import random
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from bench.tenants import Tenant, fork_tenant, open_driver
from gputax.environments.proxy import ProxyAddress

HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"
EMPTY = f"{HEAD}.visible .entry k() {{ ret; }}".encode()
ENDLESS = f"{HEAD}.visible .entry k() {{ again: bra again; }}".encode()
HUGE_FUNCTIONS = 20_000
HUGE_BYTES = 128 << 20
STORM = 32
SILENT = 100
GARBAGE_BYTES = 4096


@dataclass(frozen=True)
class Target:
    """What is attacked."""

    address: ProxyAddress
    driver: ctypes.CDLL

    def connect(self) -> socket.socket:
        """Return a connection that has not said anything."""
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(str(self.address.socket))
        return connection


def at_work() -> None:
    """Tell whoever waits that the attack goes on from here."""
    print("on", flush=True)


def launches(target: Target) -> None:
    """Post launches and never wait for one."""
    tenant = Tenant(target.driver)
    kernel = tenant.kernel(EMPTY, "k")
    at_work()
    while True:
        tenant.launch(kernel)


def endless(target: Target) -> None:
    """Run kernels without an end: when the tenant is ended for it, the next one comes."""

    def spin() -> None:
        tenant = Tenant(target.driver)
        tenant.launch(tenant.kernel(ENDLESS, "k"))
        tenant.synchronise()

    at_work()
    while True:
        os.waitpid(fork_tenant(spin), 0)


def modules(target: Target) -> None:
    """Load and unload a module of megabytes."""
    functions = "".join(f".func f{number}() {{ ret; }}\n" for number in range(HUGE_FUNCTIONS))
    image = f"{HEAD}{functions}.visible .entry k() {{ ret; }}".encode()
    tenant = Tenant(target.driver)
    at_work()
    while True:
        tenant.call("cuModuleUnload", tenant.load(image))


def memory(target: Target) -> None:
    """Allocate, fill and free as much as it may, so that it must be cleared."""
    tenant = Tenant(target.driver)
    at_work()
    while True:
        pointer = tenant.allocate(HUGE_BYTES)
        tenant.call("cuMemsetD8_v2", pointer, ctypes.c_ubyte(1), ctypes.c_size_t(HUGE_BYTES))
        tenant.free(pointer)


def connections(target: Target) -> None:
    """Connect and hang up, many at a time."""
    at_work()
    while True:
        with suppress(OSError):
            for each in [target.connect() for _ in range(STORM)]:
                each.close()


def garbage(target: Target) -> None:
    """Send random bytes where a greeting is expected."""
    dice = random.Random(1)
    at_work()
    while True:
        with suppress(OSError), target.connect() as connection:
            connection.sendall(dice.randbytes(GARBAGE_BYTES))
            connection.recv(GARBAGE_BYTES)


def silent(target: Target) -> None:
    """Hold many connections and say nothing."""
    held = [target.connect() for _ in range(SILENT)]
    at_work()
    while held:
        time.sleep(1)


def killed(target: Target) -> None:
    """Have one's worker killed as if it had crashed, and come again."""

    def stay() -> None:
        tenant = Tenant(target.driver)
        while True:
            tenant.synchronise()
            time.sleep(0.001)

    at_work()
    while True:
        child = fork_tenant(stay)
        worker = None
        while worker is None:
            worker = next((each["worker"] for each in target.address.status()["tenants"] if each["pid"] == child), None)
        with suppress(ProcessLookupError):
            os.kill(worker, 11)
        os.waitpid(child, 0)


ATTACKERS: dict[str, Callable[[Target], None]] = {
    "launches": launches,
    "endless": endless,
    "modules": modules,
    "memory": memory,
    "connections": connections,
    "garbage": garbage,
    "silent": silent,
    "killed": killed,
}


def main(words: list[str]) -> None:
    """Attack until somebody ends this process."""
    kind, path, library = words
    ATTACKERS[kind](Target(ProxyAddress(Path(path)), open_driver(Path(library))))


if __name__ == "__main__":
    main(sys.argv[1:])
