"""A stand-in for the kubelet's device manager: it registers plugins over real gRPC on Unix sockets and follows them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc

from gputax.kubernetes.device_plugin import DEVICE_PLUGIN, MESSAGE, REGISTRATION, caller, handlers

PATIENCE_S = 10.0


class Kubelet:
    """Does what a kubelet does in this directory: wipes it at its start, takes registrations, lists, allocates."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.registered: list[tuple[str, str, str]] = []
        """Version, endpoint and resource name of each registration."""
        self.refuses = False
        self.devices: dict[str, str] = {}
        """Health by id, as the plugin said last."""
        self._news = threading.Condition()
        self._channels: list[Any] = []
        for left in directory.iterdir():
            left.unlink()
        self._server = grpc.server(ThreadPoolExecutor(4))
        self._server.add_generic_rpc_handlers((handlers("Registration", REGISTRATION, self),))
        self._server.add_insecure_port(f"unix://{directory}/kubelet.sock")
        self._server.start()

    def Register(self, request: Any, context: Any) -> Any:
        """Take a registration, and follow the plugin's devices from then on."""
        if self.refuses:
            context.abort(grpc.StatusCode.UNAVAILABLE, "not yet")
        with self._news:
            self.registered.append((request.version, request.endpoint, request.resource_name))
            self._news.notify_all()
        threading.Thread(target=self._follow, args=(request.endpoint,), daemon=True).start()
        return MESSAGE["Empty"]()

    def allocate(self, *identities: str) -> Any:
        """Ask for a container's devices, and return its part of the answer."""
        request = MESSAGE["AllocateRequest"](
            container_requests=[MESSAGE["ContainerAllocateRequest"](ids=list(identities))]
        )
        (answer,) = self.call("Allocate", request).container_responses
        return answer

    def call(self, method: str, request: Any) -> Any:
        """Call a method of the plugin that registered last."""
        return caller(self._channel(self.registered[-1][1]), "DevicePlugin", DEVICE_PLUGIN, method)(
            request, timeout=PATIENCE_S
        )

    def wait(self, what: str, holds: Callable[[], bool]) -> None:
        """Wait until something holds."""
        with self._news:
            assert self._news.wait_for(holds, PATIENCE_S), f"{what}: {self.registered}, {self.devices}"

    def close(self) -> None:
        """End as a kubelet ends: its socket is gone, the plugins' stay."""
        for channel in self._channels:
            channel.close()
        self._server.stop(grace=None).wait()

    def _channel(self, endpoint: str) -> Any:
        channel = grpc.insecure_channel(f"unix://{self.directory / endpoint}")
        self._channels.append(channel)
        return channel

    def _follow(self, endpoint: str) -> None:
        stream = caller(self._channel(endpoint), "DevicePlugin", DEVICE_PLUGIN, "ListAndWatch")
        try:
            for answer in stream(MESSAGE["Empty"]()):
                with self._news:
                    self.devices = {each.id: each.health for each in answer.devices}
                    self._news.notify_all()
        except (grpc.RpcError, ValueError):  # the plugin ended, or we closed the channel
            pass
