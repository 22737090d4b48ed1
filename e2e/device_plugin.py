"""A device plugin that advertises `nvidia.com/gpu` on a machine without one: python -m e2e.device_plugin.

The GPUs are stand-ins: /dev/nvidiaN in the pod is /dev/null. Kubernetes' side of it is real: registration, allocatable,
scheduling, allocation, health.
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

from e2e.device_offer import RESOURCE, Device, grant, offer

# The kubelet's own place; it is built in and does not follow --root-dir.
DIRECTORY = Path("/var/lib/kubelet/device-plugins")
POLL_S = 0.5

messages, services = grpc.protos_and_services("e2e/device_plugin.proto")


class Plugin(services.DevicePluginServicer):
    """Answers the kubelet."""

    def __init__(self, gpus: int, replicas: int, unhealthy_file: Path | None, ended: threading.Event) -> None:
        self._gpus, self._replicas = gpus, replicas
        self._unhealthy_file, self._ended = unhealthy_file, ended

    def devices(self) -> tuple[Device, ...]:
        """Return the devices as they are now."""
        file = self._unhealthy_file
        unhealthy = file.read_text().split() if file is not None and file.exists() else []
        return offer(self._gpus, unhealthy, self._replicas)

    def GetDevicePluginOptions(self, request: Any, context: Any) -> Any:
        """No step before a container starts, no preference among devices."""
        return messages.DevicePluginOptions()

    def ListAndWatch(self, request: Any, context: Any) -> Iterator[Any]:
        """Tell the devices, and again when one changes."""
        told: tuple[Device, ...] | None = None
        while context.is_active() and not self._ended.is_set():
            devices = self.devices()
            if devices != told:
                told = devices
                yield messages.ListAndWatchResponse(
                    devices=[
                        messages.Device(ID=device.identity, health="Healthy" if device.healthy else "Unhealthy")
                        for device in devices
                    ]
                )
            self._ended.wait(POLL_S)

    def Allocate(self, request: Any, context: Any) -> Any:
        """Hand out variables and device nodes for each container."""
        answers = []
        for container in request.container_requests:
            granted = grant(container.devices_ids, self.devices())
            nodes = [
                messages.DeviceSpec(container_path=inside, host_path=outside, permissions="rw")
                for inside, outside in granted.nodes
            ]
            answers.append(messages.ContainerAllocateResponse(envs=granted.variables, devices=nodes))
        return messages.AllocateResponse(container_responses=answers)


def serve(plugin: Plugin, resource: str, ended: threading.Event) -> None:
    """Serve and stay registered: a kubelet that restarts wipes the directory, so a vanished socket means again."""
    socket = DIRECTORY / f"gputax-{resource.replace('/', '-')}.sock"
    while not ended.is_set():
        socket.unlink(missing_ok=True)
        server = grpc.server(ThreadPoolExecutor(8))
        services.add_DevicePluginServicer_to_server(plugin, server)
        server.add_insecure_port(f"unix://{socket}")
        server.start()
        try:
            _register(socket.name, resource)
            print(f"registered {resource} with {len(plugin.devices())} devices", flush=True)
            while socket.exists() and not ended.wait(POLL_S):
                pass
        except grpc.RpcError as error:
            print(f"no kubelet yet: {error.code().name}", flush=True)
            ended.wait(POLL_S)
        server.stop(grace=None)
    socket.unlink(missing_ok=True)


def _register(endpoint: str, resource: str) -> None:
    with grpc.insecure_channel(f"unix://{DIRECTORY}/kubelet.sock") as channel:
        request = messages.RegisterRequest(version="v1beta1", endpoint=endpoint, resource_name=resource)
        services.RegistrationStub(channel).Register(request, timeout=5)


def main() -> None:
    """Parse, serve until SIGTERM."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--devices", type=int, default=4, help="stand-in GPUs")
    parser.add_argument("--replicas", type=int, default=1, help="shares of each GPU")
    parser.add_argument("--resource", default=RESOURCE)
    parser.add_argument("--unhealthy-file", type=Path, help="ids of unhealthy devices, one per line; read all the time")
    options = parser.parse_args()
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    serve(Plugin(options.devices, options.replicas, options.unhealthy_file, ended), options.resource, ended)


if __name__ == "__main__":
    main()
