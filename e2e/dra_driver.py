"""A DRA driver that stands in for NVIDIA's on a machine without a GPU: python -m e2e.dra_driver.

The GPUs are stand-ins: /dev/nvidiaN in the pod is /dev/null. Kubernetes' side of it is real: registration with the
kubelet, ResourceSlices, the scheduler's allocation, NodePrepareResources, and CDI in the container runtime.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc

from e2e.api import Api
from e2e.device_offer import PipeDirectories
from e2e.dra_devices import API, DRIVER, DraSwitches, PrepareError, cdi_spec, device_classes, dra_switches, slices
from e2e.layout import NODE_NAME
from e2e.mps_stand_in import served_pipes
from gputax.kubernetes.device_plugin import message_classes

POLL_S = 0.5
GROUP = f"/apis/{API}"
# Both protocols of the kubelet: fields in the order of their numbers; a map is a repeated message of key and value.
REGISTRATION_PACKAGE, PLUGIN_PACKAGE = "pluginregistration", "k8s.io.kubelet.pkg.apis.dra.v1"
REGISTRATION_MESSAGES = {
    "InfoRequest": (),
    "PluginInfo": ("string type", "string name", "string endpoint", "string[] supported_versions"),
    "RegistrationStatus": ("bool plugin_registered", "string error"),
    "RegistrationStatusResponse": (),
}
PLUGIN_MESSAGES = {
    "Claim": ("string namespace", "string uid", "string name"),
    "Device": ("string[] request_names", "string pool_name", "string device_name", "string[] cdi_device_ids"),
    "NodePrepareResourceResponse": ("Device[] devices", "string error"),
    "Prepared": ("string key", "NodePrepareResourceResponse value"),
    "NodePrepareResourcesRequest": ("Claim[] claims",),
    "NodePrepareResourcesResponse": ("Prepared[] claims",),
    "NodeUnprepareResourceResponse": ("string error",),
    "Unprepared": ("string key", "NodeUnprepareResourceResponse value"),
    "NodeUnprepareResourcesRequest": ("Claim[] claims",),
    "NodeUnprepareResourcesResponse": ("Unprepared[] claims",),
}
REGISTRATION = message_classes(REGISTRATION_PACKAGE, REGISTRATION_MESSAGES)
PLUGIN = message_classes(PLUGIN_PACKAGE, PLUGIN_MESSAGES)


class Registration:
    """Answers the kubelet that found our socket."""

    def __init__(self, endpoint: Path) -> None:
        self._endpoint = endpoint

    def GetInfo(self, request: Any, context: Any) -> Any:
        """Say who we are and where we serve."""
        return REGISTRATION["PluginInfo"](
            type="DRAPlugin", name=DRIVER, endpoint=str(self._endpoint), supported_versions=["v1.DRAPlugin"]
        )

    def NotifyRegistrationStatus(self, request: Any, context: Any) -> Any:
        """Take note of what became of it."""
        print("registered" if request.plugin_registered else f"not registered: {request.error}", flush=True)
        return REGISTRATION["RegistrationStatusResponse"]()


class Preparation:
    """Prepares claims for the kubelet by files for the container runtime."""

    def __init__(self, api: Api, cdi: Path, pipes: PipeDirectories, settings: Settings) -> None:
        self._api, self._cdi, self._pipes, self._settings = api, cdi, pipes, settings

    def NodePrepareResources(self, request: Any, context: Any) -> Any:
        """Write each claim's CDI file and name its devices."""
        answers = [PLUGIN["Prepared"](key=claim.uid, value=self._prepare(claim)) for claim in request.claims]
        return PLUGIN["NodePrepareResourcesResponse"](claims=answers)

    def NodeUnprepareResources(self, request: Any, context: Any) -> Any:
        """Remove the files again."""
        for claim in request.claims:
            self._file(claim.uid).unlink(missing_ok=True)
            print(f"unprepared {claim.namespace}/{claim.name}", flush=True)
        done = PLUGIN["NodeUnprepareResourceResponse"]()
        answers = [PLUGIN["Unprepared"](key=claim.uid, value=done) for claim in request.claims]
        return PLUGIN["NodeUnprepareResourcesResponse"](claims=answers)

    def _prepare(self, claim: Any) -> Any:
        answer = PLUGIN["NodePrepareResourceResponse"]
        try:
            live = self._api.get(f"{GROUP}/namespaces/{claim.namespace}/resourceclaims/{claim.name}")
            if live["metadata"]["uid"] != claim.uid:
                raise PrepareError(f"{claim.name} is another claim by now")
            spec, told = cdi_spec(live, self._pipes, self._settings.switches(), self._settings.gpus())
        except (OSError, PrepareError, KeyError) as error:
            print(f"{claim.namespace}/{claim.name}: {error!r}", flush=True)
            return answer(error=str(error))
        path = self._file(claim.uid)
        part = path.with_suffix(".part")
        part.write_text(json.dumps(spec))
        part.rename(path)
        print(f"prepared {claim.namespace}/{claim.name}: {[each['device_name'] for each in told]}", flush=True)
        return answer(devices=[PLUGIN["Device"](**each) for each in told])

    def _file(self, uid: str) -> Path:
        return self._cdi / f"k8s.{DRIVER}-claim-{uid}.json"


class Settings:
    """What the driver was started with, and what its file says now."""

    def __init__(self, gpus: int, switch_file: Path) -> None:
        self._gpus, self._switch_file = gpus, switch_file

    def switches(self) -> DraSwitches:
        """Return what a test has turned."""
        return dra_switches(self._switch_file.read_text().split())

    def gpus(self) -> int:
        """Return how many GPUs the node has now."""
        turned = self.switches().gpus
        return self._gpus if turned is None else turned


class Publication:
    """The node's ResourceSlices, kept as they should be: the kubelet deletes them if it misses the driver for long."""

    def __init__(self, api: Api, node: str) -> None:
        self._api, self._node = api, node
        self._generation = 0
        self._published: int | None = None

    def follow(self, gpus: int) -> None:
        """Publish this number of GPUs, if it is not what was published last."""
        if gpus == self._published:
            return
        self._generation += 1
        if not gpus:
            self.withdraw()
        else:
            for each in slices(gpus, self._node, self._generation):
                self._api.apply(f"{GROUP}/resourceslices/{each['metadata']['name']}", each)
        self._published = gpus
        print(f"published {gpus} GPUs", flush=True)

    def withdraw(self) -> None:
        """Delete the slices."""
        for each in slices(1, self._node, 1):
            self._api.delete(f"{GROUP}/resourceslices/{each['metadata']['name']}")


def handler(package: str, service: str, methods: dict[str, tuple[str, str]], messages: Any, servicer: Any) -> Any:
    """Return the gRPC handler of a service."""
    found = {
        name: grpc.unary_unary_rpc_method_handler(
            getattr(servicer, name),
            request_deserializer=messages[taken].FromString,
            response_serializer=messages[given].SerializeToString,
        )
        for name, (taken, given) in methods.items()
    }
    return grpc.method_handlers_generic_handler(f"{package}.{service}", found)


def serve(registry: Path, preparation: Preparation, ended: threading.Event, publication: Publication,
          settings: Settings) -> None:  # fmt: skip
    """Serve both protocols on one socket in the kubelet's registry, and publish what there is."""
    registry.mkdir(parents=True, exist_ok=True)
    socket = registry / f"{DRIVER}-reg.sock"
    socket.unlink(missing_ok=True)
    server = grpc.server(ThreadPoolExecutor(8))
    server.add_generic_rpc_handlers(
        (
            handler(
                REGISTRATION_PACKAGE, "Registration",
                {"GetInfo": ("InfoRequest", "PluginInfo"),
                 "NotifyRegistrationStatus": ("RegistrationStatus", "RegistrationStatusResponse")},
                REGISTRATION, Registration(socket),
            ),
            handler(
                PLUGIN_PACKAGE, "DRAPlugin",
                {"NodePrepareResources": ("NodePrepareResourcesRequest", "NodePrepareResourcesResponse"),
                 "NodeUnprepareResources": ("NodeUnprepareResourcesRequest", "NodeUnprepareResourcesResponse")},
                PLUGIN, preparation,
            ),
        )
    )  # fmt: skip
    server.add_insecure_port(f"unix://{socket}")
    server.start()
    while not ended.is_set():
        try:
            publication.follow(settings.gpus())
        except OSError as error:
            print(f"not published: {error}", flush=True)
        ended.wait(POLL_S)
    server.stop(grace=None).wait()
    socket.unlink(missing_ok=True)


def main() -> None:
    """Parse, serve until SIGTERM."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--devices", type=int, default=4, help="stand-in GPUs")
    for name in ("registry", "cdi", "mps-root", "switch-file", "certificates"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    words = parser.parse_args()
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    os.umask(0o022)
    api = Api(words.certificates, "dra-driver")
    for each in device_classes():
        api.apply(f"{GROUP}/deviceclasses/{each['metadata']['name']}", each)
    settings = Settings(words.devices, words.switch_file)
    with served_pipes(words.mps_root) as pipes:
        assert pipes is not None
        serve(
            words.registry, Preparation(api, words.cdi, pipes, settings), ended, Publication(api, NODE_NAME), settings
        )


if __name__ == "__main__":
    main()
