"""The device plugin against a kubelet of real gRPC on Unix sockets: registration, devices, allocation, restarts."""

from __future__ import annotations

import os
import stat
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import pytest

from gputax.errors import PreflightError
from gputax.kubernetes.device_plugin import (
    MESSAGE,
    OWN_SOCKET,
    DevicePlugin,
    RefusedError,
    grant,
    install_library,
    offer,
)
from tests.standins.kubelet import Kubelet

RESOURCE = "gputax.dev/vgpu"


@dataclass
class Node:
    """The kubelet's directory, and how the proxy answers."""

    directory: Path
    places: int | None = 3
    said: list[str] = field(default_factory=list)


@pytest.fixture
def node() -> Iterator[Node]:
    with tempfile.TemporaryDirectory() as directory:  # a socket's path has at most 107 bytes
        yield Node(Path(directory))


@pytest.fixture
def plugin(node: Node) -> Iterator[DevicePlugin]:
    """A plugin that runs in a thread, quickly."""
    made = DevicePlugin(
        lambda: node.places,
        lambda identities: grant(identities, "/var/lib/x", "/run/y"),
        directory=node.directory,
        say=node.said.append,
        period_s=0.05,
    )
    thread = threading.Thread(target=made.run)
    thread.start()
    yield made
    made.end()
    thread.join(10)
    assert not thread.is_alive()
    assert not (node.directory / OWN_SOCKET).exists()


@pytest.fixture
def kubelet(node: Node) -> Iterator[Kubelet]:
    made = Kubelet(node.directory)
    yield made
    made.close()


def healthy(kubelet: Kubelet, count: int, of: int) -> None:
    kubelet.wait(
        f"{count} of {of} are healthy",
        lambda: [len(kubelet.devices), list(kubelet.devices.values()).count("Healthy")] == [of, count],
    )


def test_it_registers_the_resource_and_offers_as_many_devices_as_the_proxy_has_places(
    kubelet: Kubelet, plugin: DevicePlugin
) -> None:
    healthy(kubelet, 3, 3)
    assert kubelet.registered == [("v1beta1", OWN_SOCKET, RESOURCE)]
    assert "/" not in OWN_SOCKET, "the endpoint is a name in the kubelet's directory"
    assert sorted(kubelet.devices) == ["place-1", "place-2", "place-3"]
    options = kubelet.call("GetDevicePluginOptions", MESSAGE["Empty"]())
    assert not options.pre_start_required
    assert not options.get_preferred_allocation_available


def test_a_container_gets_its_places_sockets_and_the_library_read_only_and_no_gpu(
    kubelet: Kubelet, plugin: DevicePlugin
) -> None:
    healthy(kubelet, 3, 3)
    given = kubelet.allocate("place-2")
    assert {each.name: each.value for each in given.variables} == {
        "LD_LIBRARY_PATH": "/opt/gputax-vgpu",
        "GPUTAX_PROXY_SOCKET": "/run/gputax-proxy/proxy.sock",
        "NVIDIA_VISIBLE_DEVICES": "void",
    }
    mounts = {each.container_path: (each.host_path, each.read_only) for each in given.mounts}
    assert mounts == {
        "/run/gputax-proxy": ("/run/y/places/2", True),
        "/opt/gputax-vgpu": ("/var/lib/x", True),
    }
    assert not given.nodes, "a tenant has no device node"


def test_a_container_that_asks_for_two_places_is_refused_with_the_reason(
    kubelet: Kubelet, plugin: DevicePlugin
) -> None:
    healthy(kubelet, 3, 3)
    with pytest.raises(grpc.RpcError) as raised:
        kubelet.allocate("place-1", "place-2")
    assert raised.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "a container can have one place, not 2" in raised.value.details()


@pytest.mark.parametrize("identities", [[], ["place-1", "place-2"], ["place-../../etc"], ["other"], ["place-"]])
def test_only_one_place_of_ours_is_granted(identities: list[str]) -> None:
    with pytest.raises(RefusedError):
        grant(identities, "/var/lib/x")


def test_a_proxy_that_is_gone_makes_its_places_unhealthy_until_it_is_back(
    kubelet: Kubelet, plugin: DevicePlugin, node: Node
) -> None:
    healthy(kubelet, 3, 3)
    node.places = None
    healthy(kubelet, 0, 3)
    node.places = 2
    healthy(kubelet, 2, 2)
    assert len(kubelet.registered) == 1
    told = [text for text in node.said if "healthy" in text]
    assert told == [f"{count} places of {RESOURCE} are healthy" for count in ("3 of 3", "0 of 3", "2 of 2")]


def test_a_kubelet_that_restarts_is_registered_with_again(kubelet: Kubelet, plugin: DevicePlugin, node: Node) -> None:
    healthy(kubelet, 3, 3)
    kubelet.close()
    again = Kubelet(node.directory)  # it removes every socket in its directory, ours too
    try:
        healthy(again, 3, 3)
        assert again.registered == [("v1beta1", OWN_SOCKET, RESOURCE)]
        assert again.allocate("place-1").mounts
    finally:
        again.close()


def test_a_kubelet_that_comes_late_or_refuses_at_first_is_registered_with_as_soon_as_it_takes_it(
    plugin: DevicePlugin, node: Node
) -> None:
    late = Kubelet(node.directory)
    late.refuses = True
    try:
        deadline = time.monotonic() + 10
        while not any("does not take the registration: UNAVAILABLE" in text for text in node.said):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        late.refuses = False
        healthy(late, 3, 3)
    finally:
        late.close()


def test_devices_are_named_by_their_place() -> None:
    assert [each.identity for each in offer(2)] == ["place-1", "place-2"]
    assert offer(0) == ()
    assert not any(each.healthy for each in offer(2, healthy=False))


def test_the_library_is_replaced_as_a_whole_and_readable_by_every_tenant(tmp_path: Path) -> None:
    source, directory = tmp_path / "libcuda.so.1", tmp_path / "lib"
    source.write_bytes(b"first")
    installed = install_library(source, directory)
    before = installed.open("rb")
    source.write_bytes(b"second")
    assert install_library(source, directory) == installed
    assert installed.read_bytes() == b"second"
    with before:
        assert before.read() == b"first", "a tenant that has the old one mapped keeps it"
    assert stat.S_IMODE(installed.stat().st_mode) == 0o555
    assert stat.S_IMODE(directory.stat().st_mode) == 0o755
    assert [each.name for each in directory.iterdir()] == ["libcuda.so.1"]


def test_the_nvml_beside_the_library_goes_with_it(tmp_path: Path) -> None:
    for name in ("libcuda.so.1", "libnvidia-ml.so.1", "notes.txt"):
        (tmp_path / name).write_text(name)
    installed = install_library(tmp_path / "libcuda.so.1", tmp_path / "lib")
    assert {each.name: each.read_text() for each in installed.parent.iterdir()} == {
        name: name for name in ("libcuda.so.1", "libnvidia-ml.so.1")
    }
    assert stat.S_IMODE((installed.parent / "libnvidia-ml.so.1").stat().st_mode) == 0o555


def test_a_directory_that_nothing_can_be_executed_from_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.statvfs(tmp_path)
    words = list(real)
    words[8] |= os.ST_NOEXEC
    monkeypatch.setattr(os, "statvfs", lambda path: os.statvfs_result(words))
    (tmp_path / "libcuda.so.1").touch()
    with pytest.raises(PreflightError, match="noexec"):
        install_library(tmp_path / "libcuda.so.1", tmp_path / "lib")


def test_the_messages_have_the_numbers_and_types_of_the_kubelets_protocol() -> None:
    """Bytes as the protocol defines them: a wrong number would be silently ignored by either side."""
    registered = MESSAGE["RegisterRequest"](version="v1beta1", endpoint="e", resource_name="r")
    assert registered.SerializeToString() == b"\x0a\x07v1beta1\x12\x01e\x1a\x01r"
    device = MESSAGE["ListAndWatchResponse"](devices=[MESSAGE["Device"](id="d", health="Healthy")])
    assert device.SerializeToString() == b"\x0a\x0c\x0a\x01d\x12\x07Healthy"
    given = MESSAGE["ContainerAllocateResponse"](
        variables=[MESSAGE["Variable"](name="n", value="v")],
        mounts=[MESSAGE["Mount"](container_path="c", host_path="h", read_only=True)],
    )
    assert given.SerializeToString() == b"\x0a\x06\x0a\x01n\x12\x01v\x12\x08\x0a\x01c\x12\x01h\x18\x01"
