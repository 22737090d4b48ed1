"""A device plugin for the kubelet: it offers the places behind a node's GPU proxy, and gives a pod socket and library.

The kubelet's protocol (deviceplugin/v1beta1) is gRPC over Unix sockets. Its messages are described here in Python, so
that no compiler of .proto files is needed; names of fields are ours, their numbers and types are the protocol's.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from gputax.errors import PreflightError
from gputax.kubernetes.objects import (
    KUBELET_PLUGINS,
    PROXY_DIRECTORY,
    PROXY_PLACES,
    TENANT_LIBRARY_DIRECTORY,
    VGPU_RESOURCE,
    proxy_variables,
)
from gputax.worker.probes.driver_library import NVML_SONAME, SONAME

VERSION = "v1beta1"
KUBELET_SOCKET = "kubelet.sock"
OWN_SOCKET = f"{VGPU_RESOURCE.replace('/', '-')}.sock"
PERIOD_S = 1.0
REGISTER_TIMEOUT_S = 5.0
PLACE_PREFIX = "place-"
# Streams that the kubelet keeps open occupy a thread each; a restarted kubelet may leave one behind for a moment.
THREADS = 8

# Each message: its fields in the order of their numbers, from 1 on, as TYPE NAME; TYPE[] is repeated.
MESSAGES: dict[str, tuple[str, ...]] = {
    "Empty": (),
    "DevicePluginOptions": ("bool pre_start_required", "bool get_preferred_allocation_available"),
    "RegisterRequest": ("string version", "string endpoint", "string resource_name", "DevicePluginOptions options"),
    "Device": ("string id", "string health"),
    "ListAndWatchResponse": ("Device[] devices",),
    "ContainerPreferredAllocationRequest": (
        "string[] available_ids", "string[] must_include_ids", "int32 allocation_size",
    ),
    "PreferredAllocationRequest": ("ContainerPreferredAllocationRequest[] container_requests",),
    "ContainerPreferredAllocationResponse": ("string[] ids",),
    "PreferredAllocationResponse": ("ContainerPreferredAllocationResponse[] container_responses",),
    "ContainerAllocateRequest": ("string[] ids",),
    "AllocateRequest": ("ContainerAllocateRequest[] container_requests",),
    # A map is a repeated message of a key and a value; encoded, there is no difference.
    "Variable": ("string name", "string value"),
    "Mount": ("string container_path", "string host_path", "bool read_only"),
    "DeviceNode": ("string container_path", "string host_path", "string permissions"),
    "ContainerAllocateResponse": ("Variable[] variables", "Mount[] mounts", "DeviceNode[] nodes"),
    "AllocateResponse": ("ContainerAllocateResponse[] container_responses",),
}  # fmt: skip
# Each method of a service: what it takes and returns; a * before the answer is a stream of them.
REGISTRATION = {"Register": ("RegisterRequest", "Empty")}
DEVICE_PLUGIN = {
    "GetDevicePluginOptions": ("Empty", "DevicePluginOptions"),
    "ListAndWatch": ("Empty", "*ListAndWatchResponse"),
    "GetPreferredAllocation": ("PreferredAllocationRequest", "PreferredAllocationResponse"),
    "Allocate": ("AllocateRequest", "AllocateResponse"),
}


def message_classes(package: str, messages: Mapping[str, tuple[str, ...]]) -> dict[str, Any]:
    """Return a class for each message, from a pool of our own: other packages may know the protocol too."""
    types = descriptor_pb2.FieldDescriptorProto
    scalars = {"string": types.TYPE_STRING, "bool": types.TYPE_BOOL, "int32": types.TYPE_INT32}
    file = descriptor_pb2.FileDescriptorProto(name=package, package=package, syntax="proto3")
    for name, fields in messages.items():
        message = file.message_type.add(name=name)
        for number, words in enumerate(fields, start=1):
            kind, field_name = words.split()
            field = message.field.add(name=field_name, number=number)
            field.label = types.LABEL_REPEATED if kind.endswith("[]") else types.LABEL_OPTIONAL
            kind = kind.removesuffix("[]")
            if kind in scalars:
                field.type = scalars[kind]
            else:
                field.type, field.type_name = types.TYPE_MESSAGE, f".{package}.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}")) for name in messages}


MESSAGE: dict[str, Any] = message_classes(VERSION, MESSAGES)


def handlers(service: str, methods: dict[str, tuple[str, str]], servicer: Any) -> Any:
    """Return the gRPC handlers of a service whose methods are those of `servicer`."""
    found = {}
    for name, (taken, given) in methods.items():
        kind = grpc.unary_stream_rpc_method_handler if given[0] == "*" else grpc.unary_unary_rpc_method_handler
        found[name] = kind(
            getattr(servicer, name),
            request_deserializer=MESSAGE[taken].FromString,
            response_serializer=MESSAGE[given.lstrip("*")].SerializeToString,
        )
    return grpc.method_handlers_generic_handler(f"{VERSION}.{service}", found)


def caller(channel: Any, service: str, methods: dict[str, tuple[str, str]], name: str) -> Any:
    """Return a function that calls a method of a service."""
    taken, given = methods[name]
    kind = channel.unary_stream if given[0] == "*" else channel.unary_unary
    return kind(
        f"/{VERSION}.{service}/{name}",
        request_serializer=MESSAGE[taken].SerializeToString,
        response_deserializer=MESSAGE[given.lstrip("*")].FromString,
    )


@dataclass(frozen=True)
class Device:
    """One unit of a resource, as the kubelet counts it."""

    identity: str
    healthy: bool = True


@dataclass(frozen=True)
class Grant:
    """What a container gets for its device: variables, and directories of the node, mounted read-only."""

    variables: dict[str, str]
    mounts: tuple[tuple[str, str], ...]
    """Pairs of the path in the container and the path on the node."""


class RefusedError(ValueError):
    """A request that the plugin does not grant; the pod is rejected with these words."""


def offer(places: int, *, healthy: bool = True) -> tuple[Device, ...]:
    """Return the devices of a proxy with so many places."""
    return tuple(Device(f"{PLACE_PREFIX}{number}", healthy) for number in range(1, places + 1))


def grant(identities: Iterable[str], library: str, sockets: str = PROXY_DIRECTORY) -> Grant:
    """Return what a container gets for its place; one place is one tenant, so more than one is refused."""
    asked = sorted(identities)
    number = asked[0].removeprefix(PLACE_PREFIX) if asked else ""
    if len(asked) != 1 or not number.isdigit():
        raise RefusedError(f"{VGPU_RESOURCE}: a container can have one place, not {len(asked)} ({', '.join(asked)})")
    return Grant(
        # NVIDIA's runtime gives every GPU of the node to a container whose image says `all`, as CUDA images do.
        {**proxy_variables(), "NVIDIA_VISIBLE_DEVICES": "void"},
        ((PROXY_DIRECTORY, f"{sockets}/{PROXY_PLACES}/{number}"), (TENANT_LIBRARY_DIRECTORY, library)),
    )


def install_library(source: Path, directory: Path) -> Path:
    """Copy libvgpu, and the NVML beside it, to a directory of the node, each whole or not at all; return libvgpu."""
    directory.mkdir(parents=True, exist_ok=True)
    if os.statvfs(directory).f_flag & os.ST_NOEXEC:
        raise PreflightError(
            "the node mounts this directory noexec: no tenant could load the library from it",
            where=str(directory),
            next_step="choose another directory of the node with --library-directory, in the volume too",
        )
    nvml = source.with_name(NVML_SONAME)
    if nvml.is_file():  # first: who finds the driver finds its NVML too
        _put(nvml, directory / NVML_SONAME)
    target = directory / SONAME
    _put(source, target)
    directory.chmod(0o755)
    return target


def _put(source: Path, target: Path) -> None:
    descriptor, part = tempfile.mkstemp(dir=target.parent, prefix=".library-")
    try:
        with os.fdopen(descriptor, "wb") as stream, source.open("rb") as original:
            shutil.copyfileobj(original, stream)
            os.fchmod(stream.fileno(), 0o555)
        Path(part).replace(target)  # a tenant that has the old one mapped keeps it
    except BaseException:
        Path(part).unlink(missing_ok=True)
        raise


class DevicePlugin:
    """Serves one resource to the kubelet and stays registered, also across restarts of kubelet and proxy."""

    def __init__(
        self,
        places: Callable[[], int | None],
        granted: Callable[[Iterable[str]], Grant],
        *,
        directory: Path = Path(KUBELET_PLUGINS),
        say: Callable[[str], None] = lambda text: None,
        period_s: float = PERIOD_S,
    ) -> None:
        """Take `places`, which returns how many the proxy has now, or None if it does not answer."""
        self._places, self._granted = places, granted
        self._directory, self._say, self._period_s = directory, say, period_s
        self._changed = threading.Condition()
        self._devices: tuple[Device, ...] = ()
        self._ended = threading.Event()

    def run(self) -> None:
        """Serve until `end`; a kubelet that starts removes all sockets of plugins, so each time begin again."""
        socket = self._directory / OWN_SOCKET
        while not self._ended.is_set():
            with self._listening(socket):
                self._stay_registered(socket)
        socket.unlink(missing_ok=True)

    def end(self) -> None:
        """Make `run` return; the kubelet then counts the devices as unhealthy."""
        self._ended.set()
        with self._changed:
            self._changed.notify_all()

    def GetDevicePluginOptions(self, request: Any, context: Any) -> Any:
        """Answer the kubelet: nothing to do before a start, no preference among places."""
        return MESSAGE["DevicePluginOptions"]()

    def GetPreferredAllocation(self, request: Any, context: Any) -> Any:
        """Answer the kubelet, which does not ask: all places are alike."""
        return MESSAGE["PreferredAllocationResponse"]()

    def ListAndWatch(self, request: Any, context: Any) -> Iterator[Any]:
        """Send the devices, and all of them again when one changes."""
        sent: tuple[Device, ...] | None = None
        while context.is_active() and not self._ended.is_set():
            with self._changed:
                if self._devices == sent:
                    self._changed.wait(self._period_s)
                devices = self._devices
            if devices != sent:
                sent = devices
                yield MESSAGE["ListAndWatchResponse"](
                    devices=[
                        MESSAGE["Device"](id=each.identity, health="Healthy" if each.healthy else "Unhealthy")
                        for each in devices
                    ]
                )

    def Allocate(self, request: Any, context: Any) -> Any:
        """Return what each container gets for its devices."""
        try:
            granted = [self._granted(list(each.ids)) for each in request.container_requests]
        except RefusedError as error:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        return MESSAGE["AllocateResponse"](container_responses=[_allocated(each) for each in granted])

    def look(self) -> None:
        """Ask the proxy how many places it has; what it does not answer for is unhealthy."""
        places = self._places()
        with self._changed:
            known = self._devices
            self._devices = offer(places) if places is not None else offer(len(known), healthy=False)
            if self._devices != known:
                self._changed.notify_all()
                healthy = sum(each.healthy for each in self._devices)
                self._say(f"{healthy} of {len(self._devices)} places of {VGPU_RESOURCE} are healthy")

    @contextlib.contextmanager
    def _listening(self, socket: Path) -> Iterator[None]:
        socket.unlink(missing_ok=True)
        server = grpc.server(ThreadPoolExecutor(THREADS))
        server.add_generic_rpc_handlers((handlers("DevicePlugin", DEVICE_PLUGIN, self),))
        server.add_insecure_port(f"unix://{socket}")
        server.start()
        try:
            yield
        finally:
            server.stop(grace=None).wait()

    def _stay_registered(self, socket: Path) -> None:
        """Register with each kubelet that comes, until our socket is removed."""
        registered: tuple[int, ...] | None = None
        while socket.exists() and not self._ended.is_set():
            self.look()
            kubelet = _identity(self._directory / KUBELET_SOCKET)
            if kubelet != registered:
                registered = kubelet if kubelet is not None and self._register() else None
            self._ended.wait(self._period_s)

    def _register(self) -> bool:
        request = MESSAGE["RegisterRequest"](version=VERSION, endpoint=OWN_SOCKET, resource_name=VGPU_RESOURCE)
        with grpc.insecure_channel(f"unix://{self._directory / KUBELET_SOCKET}") as channel:
            try:
                caller(channel, "Registration", REGISTRATION, "Register")(request, timeout=REGISTER_TIMEOUT_S)
            except grpc.RpcError as error:
                self._say(f"the kubelet does not take the registration: {error.code().name}: {error.details()}")
                return False
        self._say(f"registered {VGPU_RESOURCE} with {len(self._devices)} places")
        return True


def _allocated(granted: Grant) -> Any:
    return MESSAGE["ContainerAllocateResponse"](
        variables=[MESSAGE["Variable"](name=name, value=value) for name, value in granted.variables.items()],
        mounts=[
            MESSAGE["Mount"](container_path=inside, host_path=outside, read_only=True)
            for inside, outside in granted.mounts
        ],
    )


def _identity(path: Path) -> tuple[int, ...] | None:
    """Return what tells one socket from a later one of the same name; None if there is none."""
    try:
        facts = path.stat()
    except OSError:
        return None
    return facts.st_dev, facts.st_ino, facts.st_ctime_ns
