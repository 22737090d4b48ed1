"""A device plugin that advertises `nvidia.com/gpu` on a machine without one: python -m e2e.device_plugin.

The GPUs are stand-ins: /dev/nvidiaN in the pod is /dev/null. Kubernetes' side of it is real: registration, allocatable,
scheduling, allocation, health. With access to the API it follows the node's labels as NVIDIA's plugin, feature
discovery and MIG manager do together.
"""

from __future__ import annotations

import argparse
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc

from e2e.api import Api
from e2e.device_offer import Device, Mode, PipeDirectories, Switches, grant, offer, preferred, switches
from e2e.mps_stand_in import served_pipes
from e2e.node_follower import NodeFollower
from e2e.node_modes import NodeModes
from gputax.kubernetes.device_plugin import DEVICE_PLUGIN, MESSAGE, REGISTRATION, caller, handlers

# The kubelet's own place; it is built in and does not follow --root-dir.
DIRECTORY = Path("/var/lib/kubelet/device-plugins")
POLL_S = 0.5


class Plugin:
    """Answers the kubelet for one resource name, for as long as the node is in one mode."""

    def __init__(self, settings: Settings, mode: Mode, ended: threading.Event) -> None:
        self._settings, self.mode, self._ended = settings, mode, ended

    def devices(self) -> tuple[Device, ...]:
        """Return the devices as they are now."""
        settings = self._settings
        return offer(settings.gpus(), self.mode, _words(settings.unhealthy_file))

    def GetDevicePluginOptions(self, request: Any, context: Any) -> Any:
        """No step before a container starts; of shares, some are better than others."""
        return options(self.mode)

    def ListAndWatch(self, request: Any, context: Any) -> Iterator[Any]:
        """Tell the devices, and again when one changes."""
        sent: tuple[Device, ...] | None = None
        while context.is_active() and not self._ended.is_set():
            devices = self.devices()
            if devices != sent:
                sent = devices
                yield MESSAGE["ListAndWatchResponse"](
                    devices=[
                        MESSAGE["Device"](id=device.identity, health="Healthy" if device.healthy else "Unhealthy")
                        for device in devices
                    ]
                )
            self._ended.wait(POLL_S)

    def GetPreferredAllocation(self, request: Any, context: Any) -> Any:
        """Say which devices to hand out."""
        packed = self.mode.packed and not self._settings.switches().lies.spread
        answers = [
            MESSAGE["ContainerPreferredAllocationResponse"](
                ids=preferred(
                    each.available_ids,
                    each.must_include_ids,
                    each.allocation_size,
                    self.devices(),
                    packed=packed,
                )
            )
            for each in request.container_requests
        ]
        return MESSAGE["PreferredAllocationResponse"](container_responses=answers)

    def Allocate(self, request: Any, context: Any) -> Any:
        """Hand out variables, device nodes and directories for each container."""
        lies, pipes = self._settings.switches().lies, self._settings.pipes
        answers = []
        for container in request.container_requests:
            granted = grant(container.ids, self.devices(), self.mode, pipes, lies)
            nodes = [
                MESSAGE["DeviceNode"](container_path=inside, host_path=outside, permissions="rw")
                for inside, outside in granted.nodes
            ]
            mounts = [
                MESSAGE["Mount"](container_path=inside, host_path=outside, read_only=False)
                for inside, outside in granted.mounts
            ]
            given = [MESSAGE["Variable"](name=name, value=value) for name, value in granted.variables.items()]
            answers.append(MESSAGE["ContainerAllocateResponse"](variables=given, mounts=mounts, nodes=nodes))
        return MESSAGE["AllocateResponse"](container_responses=answers)


class Settings:
    """What the plugin was started with, and what its files say now."""

    def __init__(
        self, gpus: int, unhealthy_file: Path | None, switch_file: Path | None, pipes: PipeDirectories | None
    ) -> None:
        self._gpus, self._switch_file = gpus, switch_file
        self.unhealthy_file, self.pipes = unhealthy_file, pipes

    def switches(self) -> Switches:
        """Return what a test has turned."""
        return switches(_words(self._switch_file))

    def gpus(self) -> int:
        """Return how many GPUs the node has now."""
        turned = self.switches().gpus
        return self._gpus if turned is None else turned


class Service:
    """One registered resource: it stays registered until it is withdrawn."""

    def __init__(self, settings: Settings, mode: Mode) -> None:
        self.mode = mode
        self._ended = threading.Event()
        plugin = Plugin(settings, mode, self._ended)
        self._thread = threading.Thread(target=serve, args=(plugin, self._ended), name=mode.resource)
        self._thread.start()

    def withdraw(self) -> None:
        """End it; the kubelet then counts its devices as unhealthy."""
        self._ended.set()
        self._thread.join()


def serve(plugin: Plugin, ended: threading.Event) -> None:
    """Serve and stay registered: a kubelet that restarts wipes the directory, so a vanished socket means again."""
    socket = DIRECTORY / f"gputax-{plugin.mode.resource.replace('/', '-')}.sock"
    while not ended.is_set():
        socket.unlink(missing_ok=True)
        server = grpc.server(ThreadPoolExecutor(8))
        server.add_generic_rpc_handlers((handlers("DevicePlugin", DEVICE_PLUGIN, plugin),))
        server.add_insecure_port(f"unix://{socket}")
        server.start()
        try:
            _register(socket.name, plugin.mode)
            print(f"registered {plugin.mode.resource} with {len(plugin.devices())} devices", flush=True)
            while socket.exists() and not ended.wait(POLL_S):
                pass
        except grpc.RpcError as error:
            print(f"no kubelet yet: {error.code().name}", flush=True)
            ended.wait(POLL_S)
        server.stop(grace=None).wait()
    socket.unlink(missing_ok=True)


def options(mode: Mode) -> Any:
    """Return what the kubelet may ask of the plugin."""
    return MESSAGE["DevicePluginOptions"](get_preferred_allocation_available=mode.strategy != "none")


def _register(endpoint: str, mode: Mode) -> None:
    with grpc.insecure_channel(f"unix://{DIRECTORY}/kubelet.sock") as channel:
        request = MESSAGE["RegisterRequest"](
            version="v1beta1", endpoint=endpoint, resource_name=mode.resource, options=options(mode)
        )
        caller(channel, "Registration", REGISTRATION, "Register")(request, timeout=5)


def _words(path: Path | None) -> list[str]:
    return path.read_text().split() if path is not None and path.exists() else []


def main() -> None:
    """Parse, serve until SIGTERM."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--devices", type=int, default=4, help="stand-in GPUs")
    parser.add_argument("--unhealthy-file", type=Path, help="ids of unhealthy devices, one per line; read all the time")
    parser.add_argument("--switch-file", type=Path, help="faults and sizes that a test turns; read all the time")
    parser.add_argument("--certificates", type=Path, help="with them the plugin follows the node's labels")
    parser.add_argument("--config-map", default="gpu-operator/gputax-sharing", help="NAMESPACE/NAME")
    parser.add_argument("--mps-root", type=Path, help="where the stand-in of the MPS control daemon listens")
    words = parser.parse_args()
    ended, changed = threading.Event(), threading.Event()

    def end(*_: object) -> None:
        ended.set()
        changed.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    with served_pipes(words.mps_root) as pipes:
        settings = Settings(words.devices, words.unhealthy_file, words.switch_file, pipes)
        if words.certificates is None:
            service = Service(settings, Mode())
            ended.wait()
            service.withdraw()
            return
        api = Api(words.certificates, "device-plugin")
        node = NodeFollower(api, words.config_map, ended, changed)
        modes = NodeModes(node, settings.switches, settings.gpus, lambda mode: Service(settings, mode))
        while not ended.is_set():
            modes.follow()
            changed.wait(POLL_S)
            changed.clear()
        modes.close()


if __name__ == "__main__":
    main()
