"""The transport `xen` without Xen: a link with a memfd for granted pages and a socket pair for the event channel."""

from __future__ import annotations

import json
import socket
import time
from pathlib import Path
from typing import Any

import pytest

from tests.native.proxies import Nursery, Proxy

SUITE = Path(__file__).parents[2] / "programs" / "suite.py"
POD = "8c0f7d4e-1f5e-4a52-9d0f-6a6a4d2b9c11"
DESCRIBE = """
import json
from gpu import begin, describe
begin()
print(json.dumps(describe()), flush=True)
input()
"""
COPIER = """
from gpu import begin, driver, ok
import numpy
begin()
memory = ok(driver.cuMemAlloc(8 << 20))
block = numpy.zeros(8 << 20, numpy.uint8)
print("ready", flush=True)
try:
    while True:
        ok(driver.cuMemcpyHtoD(memory, block.ctypes.data, 8 << 20))
except Exception as error:
    print(error, flush=True)
"""


class Guest:
    """What stands for one guest: a link to a proxy, and the environment of its programs."""

    def __init__(self, nursery: Nursery, proxy: Proxy, domain: int = 5, pod: str = POD) -> None:
        self.socket = nursery.folder / f"guest{domain}.sock"
        program = str(nursery.build / "tests" / "local_link")
        self.link = nursery._start([program, str(self.socket), f"{proxy.socket}.xen", str(domain), pod], {})
        assert self.link.stdout is not None
        assert self.link.stdout.readline() == "ready\n"
        self.environment = proxy.environment("xen") | {"GPUTAX_PROXY_SOCKET": str(self.socket)}


def xen_proxy(nursery: Nursery, *options: str) -> Proxy:
    return nursery.proxy("--xen-socket", str(nursery.folder / "proxy.sock.xen"), *options)


def test_the_suite_is_byte_equal_through_a_link(nursery: Any) -> None:
    proxy = xen_proxy(nursery)
    guest = Guest(nursery, proxy)
    expected = nursery.run(SUITE, nursery.direct(), "5")
    assert nursery.run(SUITE, guest.environment, "5").splitlines() == expected.splitlines()
    ended = proxy.wait_for(lambda status: len(status["ended_tenants"]) == 1)["ended_tenants"][0]
    assert (ended["transport"], ended["domain"], ended["pod"], ended["ended"]) == ("xen", 5, POD, "left")
    assert ended["memory_bytes"] == 0
    assert "calls" in ended["confinement"] or proxy.ready["confinement"] == ended["confinement"]


def test_both_sides_say_xen_and_the_proxy_says_whose_guest_it_is(nursery: Any) -> None:
    proxy = xen_proxy(nursery, "--spin", "never")
    guests = [Guest(nursery, proxy, 3, "a"), Guest(nursery, proxy, 9, "b")]
    clients = [nursery.start(DESCRIBE, guest.environment) for guest in guests]
    accounts = [json.loads(client.stdout.readline()) for client in clients]
    tenants = {tenant["id"]: tenant for tenant in proxy.status()["tenants"]}
    assert [account["transport"] for account in accounts] == ["xen", "xen"]
    seen = [(tenants[account["tenant"]]["domain"], tenants[account["tenant"]]["pod"]) for account in accounts]
    assert seen == [(3, "a"), (9, "b")]
    assert len({tenant["identity"] for tenant in tenants.values()}) == 2
    for account in accounts:
        assert account["calls"] == tenants[account["tenant"]]["calls"]


def test_two_processes_of_one_guest_share_its_quota(nursery: Any) -> None:
    proxy = xen_proxy(nursery, "--connections", "1")
    guest = Guest(nursery, proxy)
    first = nursery.start(DESCRIBE, guest.environment)
    assert first.stdout.readline()
    second = nursery.start(DESCRIBE, guest.environment)
    _, errors = second.communicate(timeout=60)
    assert second.returncode != 0
    assert "all the connections that it may have" in errors


def test_an_ordinary_socket_takes_no_memory_from_its_clients(nursery: Any) -> None:
    proxy = xen_proxy(nursery)
    client = nursery.start(DESCRIBE, proxy.environment("xen"))
    _, errors = client.communicate(timeout=60)
    assert client.returncode != 0
    assert "transport 'xen' is not offered here" in errors


def test_the_socket_for_links_serves_nobody_without_a_guest(nursery: Any) -> None:
    proxy = xen_proxy(nursery)
    with socket.socket(socket.AF_UNIX) as nameless:
        nameless.settimeout(10)
        nameless.connect(f"{proxy.socket}.xen")
        answer = b"".join(iter(lambda: nameless.recv(4096), b""))
    assert b"this socket is for xen-link" in answer
    assert Path(f"{proxy.socket}.xen").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("who", ["client", "link", "proxy"])
def test_whoever_dies_the_others_notice_and_nothing_is_left(nursery: Any, who: str) -> None:
    proxy = xen_proxy(nursery)
    guest = Guest(nursery, proxy)
    client = nursery.start(COPIER, guest.environment)
    assert client.stdout.readline() == "ready\n"
    time.sleep(0.1)
    {"client": client, "link": guest.link, "proxy": proxy.process}[who].kill()
    if who != "client":
        assert "CUDA_ERROR_SYSTEM_NOT_READY" in client.communicate(timeout=60)[0]
    if who != "proxy":
        status = proxy.wait_for(lambda document: not document["tenants"], seconds=30)
        assert status["totals"]["memory_bytes"] == 0
