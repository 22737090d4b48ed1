"""Places: each has sockets of its own, sees nothing of the others and cannot keep them out."""

from __future__ import annotations

import dataclasses
import json
import socket
import stat
import subprocess
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from tests.native.proxies import Proxy

TENANT = "import gpu; gpu.begin(); print('on', flush=True); input()"
CONNECTIONS_MOST = 256


def at(proxy: Proxy, place: int) -> Proxy:
    """The proxy as a container sees it that has this place's folder."""
    return dataclasses.replace(proxy, socket=proxy.socket.parent / f"places/{place}" / proxy.socket.name)


def started(nursery: Any, proxy: Proxy) -> subprocess.Popen[str]:
    process: subprocess.Popen[str] = nursery.start(TENANT, proxy.environment())
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line == "on\n", process.communicate()[1]
    return process


def ended(process: subprocess.Popen[str]) -> None:
    process.communicate("\n", timeout=20)
    assert process.returncode == 0


def check(nursery: Any, path: Path) -> subprocess.CompletedProcess[str]:
    command = [str(nursery.build / "gputax-proxy"), "--check", f"{path}.status"]
    return subprocess.run(command, capture_output=True, text=True, timeout=20)


def test_a_place_shows_its_own_living_tenants_and_the_operators_socket_shows_all(nursery: Any) -> None:
    proxy = nursery.proxy("--places", "2")
    first, second = started(nursery, at(proxy, 1)), started(nursery, at(proxy, 2))
    everything = proxy.status()
    assert everything["places"] == 2
    assert sorted(each["place"] for each in everything["tenants"]) == [1, 2]
    mine = at(proxy, 1).status()
    (tenant,) = mine["tenants"]
    assert tenant["place"] == 1
    assert tenant["pid"] == first.pid
    assert mine["totals"]["tenants"] == 1
    assert mine["totals"]["calls"] == tenant["calls"]
    assert not {"active_tenants", "cores_free", "places"} & mine.keys()
    assert mine["device"] == everything["device"]
    ended(second)
    proxy.wait_for(lambda document: len(document["ended_tenants"]) == 1)
    theirs = at(proxy, 2).status()  # as the next container there would read it
    assert theirs["tenants"] == theirs["ended_tenants"] == []
    assert theirs["totals"]["ended"] == 0
    assert theirs["totals"]["calls"] == {}
    ended(first)


def test_a_place_speaks_no_http_so_its_metrics_are_its_own_document_too(nursery: Any) -> None:
    proxy = nursery.proxy("--places", "2")
    other = started(nursery, at(proxy, 2))
    assert json.loads(at(proxy, 1).ask_status(b"GET /metrics HTTP/1.0\r\n\r\n"))["tenants"] == []
    assert b"gputax_proxy_tenant_calls_total" in proxy.ask_status(b"GET /metrics HTTP/1.0\r\n\r\n")
    ended(other)


def test_a_place_that_takes_all_the_connections_it_can_get_leaves_room_for_the_others(nursery: Any) -> None:
    proxy = nursery.proxy("--places", "3")
    share = CONNECTIONS_MOST // 4
    with ExitStack() as held:
        tenants = [held.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(200)]
        for each in tenants:
            each.connect(str(at(proxy, 1).socket))  # it waits for the proxy, which always accepts
        refused = 0
        for each in tenants:
            each.setblocking(False)
        victim = started(nursery, at(proxy, 2))
        for each in tenants:
            with suppress(BlockingIOError):  # it is waited for, as a tenant that has not said hello yet
                refused += b"too many connections of this place" in each.recv(4096)
        assert refused >= 200 - share
        ended(victim)
        own = started(nursery, proxy)  # the proxy's own socket has its share as well
        ended(own)


def test_silent_readers_of_a_place_do_not_delay_the_operators_status(nursery: Any) -> None:
    proxy = nursery.proxy("--places", "1")
    with ExitStack() as held:
        for _ in range(64):
            reader = held.enter_context(socket.socket(socket.AF_UNIX))
            reader.settimeout(10)
            reader.connect(f"{at(proxy, 1).socket}.status")
        assert proxy.status()["tenants"] == []
        assert check(nursery, proxy.socket).returncode == 0


def test_the_folders_outlive_the_proxy_because_containers_have_them_mounted(nursery: Any, tmp_path: Path) -> None:
    proxy = nursery.proxy("--places", "2")
    folder = tmp_path / "places/1"
    before = folder.stat()
    assert stat.S_IMODE((tmp_path / "places").stat().st_mode) == 0o700, "users of the node stay outside"
    assert stat.S_IMODE(before.st_mode) == 0o755, "a tenant of any user id enters"
    assert stat.S_IMODE((folder / "proxy.sock").stat().st_mode) == 0o666
    assert stat.S_IMODE(proxy.socket.stat().st_mode) == 0o600, "the operator's"
    assert proxy.stop() == 0
    assert list(folder.iterdir()) == []
    again = nursery.proxy("--places", "2")
    assert folder.stat().st_ino == before.st_ino
    ended(started(nursery, at(again, 1)))


def test_a_folder_that_is_a_link_is_refused(nursery: Any, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    (tmp_path / "places").mkdir()
    (tmp_path / "places/1").symlink_to(elsewhere)
    backend = nursery.build / "software" / "libcuda.so.1"
    words = ["--socket", str(tmp_path / "proxy.sock"), "--backend", str(backend), "--places", "1"]
    done = subprocess.run([nursery.build / "gputax-proxy", *words], capture_output=True, text=True, timeout=20)
    assert done.returncode == 1
    assert "places/1 is not a folder of our user" in done.stderr
    assert list(elsewhere.iterdir()) == []
    assert stat.S_IMODE(elsewhere.stat().st_mode) == 0o700


def test_the_check_for_probes_tells_whether_a_proxy_answers(nursery: Any, tmp_path: Path) -> None:
    proxy = nursery.proxy()
    assert check(nursery, proxy.socket).returncode == 0
    proxy.stop()
    gone = check(nursery, proxy.socket)
    assert gone.returncode == 1
    assert "no proxy answers at" in gone.stderr
    assert check(nursery, Path("/" + "x" * 200)).returncode == 1


def test_nobody_evicts_from_a_place_not_even_root(nursery: Any) -> None:
    """Root of a container is root for the kernel; only the proxy's own socket is the operator's."""
    proxy = nursery.proxy("--places", "2")
    tenant = started(nursery, at(proxy, 1))
    (number,) = (each["id"] for each in proxy.status()["tenants"])
    for place in (1, 2):
        assert "error" in json.loads(at(proxy, place).ask_status(f"evict {number}\n".encode()))
    assert len(proxy.status()["tenants"]) == 1
    ended(tenant)
