"""`gputax proxy plugin` as a command: a real proxy with places, and a kubelet of real gRPC in its own directory."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from gputax.environments.driver import LIBVGPU, native_part
from tests.conftest import Gputax
from tests.standins.kubelet import Kubelet
from tests.standins.started import start, wait_for

TENANT = """
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
assert cuda.cuInit(0) == 0
print(*(line.split()[-1] for line in open("/proc/self/maps") if "libcuda" in line and "r-xp" in line))
"""


@pytest.fixture
def node() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as directory:  # a socket's path has at most 107 bytes
        yield Path(directory)


@pytest.fixture
def kubelet(node: Path) -> Iterator[Kubelet]:
    directory = node / "device-plugins"
    directory.mkdir()
    made = Kubelet(directory)
    yield made
    made.close()


def test_the_places_of_a_proxy_are_offered_granted_and_unhealthy_when_it_is_gone(
    gputax: Gputax, kubelet: Kubelet, node: Path, tmp_path: Path
) -> None:
    socket = node / "p/proxy.sock"
    done = gputax("proxy", "start", "--socket", str(socket), "--device", "software", "--places", "2")
    assert done.returncode == 0, done.stderr
    proxy = int(done.stdout.split("kill ")[1].split()[0])
    try:
        words = ("--socket", str(socket), "--library-directory", str(tmp_path / "lib"))
        plugin = start(tmp_path, "proxy", "plugin", *words, "--kubelet-directory", str(kubelet.directory))
        kubelet.wait("two places", lambda: kubelet.devices == {"place-1": "Healthy", "place-2": "Healthy"})
        given = {each.container_path: each.host_path for each in kubelet.allocate("place-2").mounts}
        library = Path(given["/opt/gputax-vgpu"]) / "libcuda.so.1"
        assert library.read_bytes() == native_part(LIBVGPU).read_bytes()
        place = Path(given["/run/gputax-proxy"])
        assert sorted(each.name for each in place.iterdir()) == ["proxy.sock", "proxy.sock.status"]
        # What a container is given is enough for a program, with the names that the plugin sets.
        variables = {"LD_LIBRARY_PATH": str(library.parent), "GPUTAX_PROXY_SOCKET": str(place / "proxy.sock")}
        tenant = subprocess.run(
            [sys.executable, "-c", TENANT], env={**os.environ, **variables}, capture_output=True, text=True, timeout=60
        )
        assert tenant.stdout.strip() == str(library), tenant.stderr
    finally:
        os.kill(proxy, signal.SIGTERM)
    kubelet.wait("both are unhealthy", lambda: set(kubelet.devices.values()) == {"Unhealthy"})
    plugin.send_signal(signal.SIGTERM)
    assert plugin.wait(20) == 0
    assert [each.name for each in kubelet.directory.iterdir()] == ["kubelet.sock"]


def test_a_node_without_a_kubelet_is_an_error_with_a_next_step(gputax: Gputax, tmp_path: Path) -> None:
    done = gputax("proxy", "plugin", "--kubelet-directory", str(tmp_path / "none"), "--socket", str(tmp_path / "s"))
    assert done.returncode == 3
    assert "there is no kubelet on this node" in done.stderr


def test_it_waits_for_a_proxy_that_is_not_there_yet(kubelet: Kubelet, tmp_path: Path) -> None:
    words = ("--socket", str(tmp_path / "none.sock"), "--library-directory", str(tmp_path / "lib"))
    plugin = start(tmp_path, "proxy", "plugin", *words, "--kubelet-directory", str(kubelet.directory))
    wait_for(plugin, "registered gputax.dev/vgpu with 0 places")
    assert kubelet.devices == {}
    plugin.send_signal(signal.SIGTERM)
    assert plugin.wait(20) == 0
