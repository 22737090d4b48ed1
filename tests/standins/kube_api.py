"""A stand-in for a cluster's API server: keeps objects by path, and plays the Job's pod as the test wants it."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from unittest.mock import patch
from urllib.parse import parse_qs, urlsplit

from gputax.environments import kubernetes
from gputax.environments.environment import Environment

KINDS = {
    "pods": "Pod",
    "nodes": "Node",
    "jobs": "Job",
    "namespaces": "Namespace",
    "daemonsets": "DaemonSet",
    "events": "Event",
    "configmaps": "ConfigMap",
    "deployments": "Deployment",
    "statefulsets": "StatefulSet",
    "services": "Service",
    "persistentvolumeclaims": "PersistentVolumeClaim",
    "resourceclaims": "ResourceClaim",
    "resourceslices": "ResourceSlice",
    "deviceclasses": "DeviceClass",
    "resourcequotas": "ResourceQuota",
    "runtimeclasses": "RuntimeClass",
}
NO_SUCH_RESOURCE = {
    "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404, "reason": "NotFound",
    "message": "the server could not find the requested resource",
}  # fmt: skip
WAITING = {"waiting": {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "nowhere/none:1"'}}
UNSCHEDULABLE = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "0/1 nodes are available: 1 Insufficient nvidia.com/gpu.",
}


class KubeApi:
    """The server; `behaviour` says what a Job's pod does: complete, active, fail, invalid, image, pending."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.requests: list[str] = []
        self.behaviour = "complete"
        self.log = ""
        self.forbidden: set[str] = set()
        self.unserved: set[str] = set()
        """API groups that this server does not have."""
        self.version = "v1.34.0"
        self.serves: Sequence[str] = ()
        """Versions of API groups (`v1`, `apps/v1`); others are not found. Empty: whatever is asked for."""
        self.refuses: Callable[[dict[str, Any]], str] = lambda manifest: ""
        """Returns why an object that is written is a bad request; empty if it is not."""
        self.namespace_goes_after_s = 0.0
        self.plays_pods = False
        """Pods that are created become ready on the node that they name."""
        self.on_change: Callable[[str, dict[str, Any]], None] = lambda path, live: None
        """Called after every write: a test plays the controllers here."""
        self.events: list[tuple[str, str, dict[str, Any]]] = []
        self._news = threading.Condition()
        self._version = 0
        self._serve(0)

    def _serve(self, port: int) -> None:
        self._closed = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", port), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def kubeconfig(self) -> str:
        return json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "standin",
                "clusters": [{"name": "standin", "cluster": {"server": self.url}}],
                "users": [{"name": "standin", "user": {}}],
                "contexts": [{"name": "standin", "context": {"cluster": "standin", "user": "standin"}}],
            }
        )

    def add_node(self, name: str, gpus: int, labels: dict[str, str] | None = None) -> None:
        allocatable = {"cpu": "4", **({"nvidia.com/gpu": str(gpus)} if gpus else {})}
        self.objects[f"/api/v1/nodes/{name}"] = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "uid": f"uid-{name}", "labels": labels or {}},
            "status": {"allocatable": allocatable, "capacity": allocatable},
        }

    def named(self, kind: str) -> list[str]:
        return [each["metadata"]["name"] for each in list(self.objects.values()) if each["kind"] == kind]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        self._closed.set()  # last: who is told that a watch ends shall find nobody to ask
        with self._news:
            self._news.notify_all()

    def restart(self, meanwhile: Callable[[], None]) -> None:
        """Go away as an API server does that is replaced, and come back at the same address."""
        port = int(self._server.server_address[1])
        self.close()
        meanwhile()
        self._serve(port)

    def put(self, path: str, manifest: dict[str, Any]) -> dict[str, Any]:
        new = path not in self.objects
        manifest["metadata"].setdefault("uid", f"uid-{len(self.requests)}")
        manifest["metadata"].setdefault("creationTimestamp", datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"))
        before = self.objects.get(path, {})
        if manifest["kind"] == "ConfigMap":  # by server-side apply the keys of others stay
            manifest["data"] = {**before.get("data", {}), **manifest.get("data", {})}
        self.objects[path] = {**before, **manifest}
        if new and manifest["kind"] == "Pod" and self.plays_pods:
            play_pod(self.objects[path])
        self.tell("ADDED" if new else "MODIFIED", path)
        if new and manifest["kind"] == "Job":
            self._play(self.objects[path])
        if new and manifest["kind"] == "DaemonSet":
            for name in self.named("Node"):
                self.objects[f"/api/v1/nodes/{name}"]["status"]["allocatable"]["nvidia.com/gpu"] = "1"
        return self.objects[path]

    def merge(self, path: str, change: dict[str, Any]) -> dict[str, Any]:
        """Apply a merge patch: None removes."""
        merged(self.objects[path], change)
        self.tell("MODIFIED", path)
        return self.objects[path]

    def tell(self, event: str, path: str, gone: dict[str, Any] | None = None) -> None:
        """Send an event to all watches, and let the test's controllers see it."""
        live = gone or self.objects[path]
        with self._news:
            self._version += 1
            live["metadata"]["resourceVersion"] = str(self._version)
            self.events.append((event, path, json.loads(json.dumps(live))))
            self._news.notify_all()
        if gone is None:
            self.on_change(path, live)

    def watched(self, path: str, labels: str, fields: str) -> Iterator[dict[str, Any]]:
        """Give what there is as ADDED, and then every event, until the server ends."""
        name = dict(part.split("=", 1) for part in fields.split(",") if "=" in part).get("metadata.name")
        with self._news:
            position = len(self.events)
            first = [each for each in self.listed(path, labels) if name in (None, each["metadata"]["name"])]
        yield from ({"type": "ADDED", "object": each} for each in first)
        closed = self._closed
        while not closed.is_set():
            with self._news:
                if position == len(self.events):
                    self._news.wait(0.2)
                fresh, position = self.events[position:], len(self.events)
            for event, at, live in fresh:
                named = name in (None, live["metadata"]["name"])
                if named and at.startswith(f"{path}/") and selected(live, labels):
                    yield {"type": event, "object": live}

    def _play(self, job: dict[str, Any]) -> None:
        namespace, name = job["metadata"]["namespace"], job["metadata"]["name"]
        container = {"name": "gputax", "image": "i", "imageID": "", "ready": False, "restartCount": 0}
        status: dict[str, Any] = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        if self.behaviour == "complete":
            status = {"phase": "Succeeded"}
            job["status"] = {
                "completionTime": "2026-01-01T00:00:00Z",
                "conditions": [{"type": "Complete", "status": "True"}],
            }
        elif self.behaviour in ("fail", "invalid"):
            ended = {"terminated": {"exitCode": 3 if self.behaviour == "fail" else 5, "reason": "Error"}}
            status = {"phase": "Failed", "containerStatuses": [{**container, "state": ended}]}
            job["status"] = {
                "conditions": [
                    {"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded", "message": "it failed"}
                ]
            }
        elif self.behaviour == "image":
            status = {"phase": "Pending", "containerStatuses": [{**container, "state": WAITING}]}
        elif self.behaviour == "pending":
            status = {"phase": "Pending", "conditions": [UNSCHEDULABLE]}
        labels = job["spec"]["template"]["metadata"]["labels"]
        self.objects[f"/api/v1/namespaces/{namespace}/pods/{name}-x1"] = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"{name}-x1", "namespace": namespace, "labels": labels},
            "spec": {"nodeName": "node-1", "containers": job["spec"]["template"]["spec"]["containers"]},
            "status": status,
        }

    def delete(self, path: str) -> None:
        if self.objects[path]["kind"] == "Namespace" and self.namespace_goes_after_s:
            threading.Timer(self.namespace_goes_after_s, self.drop, (path,)).start()
        else:
            self.drop(path)

    def drop(self, path: str) -> None:
        gone = self.objects.pop(path)
        self.tell("DELETED", path, gone)
        if gone["kind"] == "Job":
            prefix = f"/api/v1/namespaces/{gone['metadata']['namespace']}/pods/{gone['metadata']['name']}"
            for key in [key for key in list(self.objects) if key.startswith(prefix)]:
                del self.objects[key]
        if gone["kind"] == "Namespace":
            for key in [key for key in list(self.objects) if f"/namespaces/{gone['metadata']['name']}/" in key]:
                del self.objects[key]

    def listed(self, path: str, selector: str) -> list[dict[str, Any]]:
        plural = path.rsplit("/", 1)[-1]
        namespace = re.search(r"/namespaces/([^/]+)/", path)
        return [
            each
            for key, each in list(self.objects.items())  # other requests change it meanwhile
            if each["kind"] == KINDS[plural]
            and (namespace is None or f"/namespaces/{namespace[1]}/" in key)
            and selected(each, selector)
        ]

    def _handler(api: KubeApi) -> type[BaseHTTPRequestHandler]:
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: object) -> None:
                pass

            def answer(self, data: Any, code: int = 200) -> None:
                body = data.encode() if isinstance(data, str) else json.dumps(data).encode()
                self.send_response(code)
                self.send_header("Content-Type", "text/plain" if isinstance(data, str) else "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def refuse(self, code: int, reason: str) -> None:
                message = f"{self.path.split('?')[0]}: {reason}"
                self.answer(
                    {
                        "kind": "Status",
                        "apiVersion": "v1",
                        "status": "Failure",
                        "code": code,
                        "reason": reason,
                        "message": message,
                    },
                    code,
                )

            def merge(self, path: str, change: dict[str, Any]) -> None:
                if path not in api.objects:
                    return self.refuse(404, "NotFound")
                version = (change.get("metadata") or {}).pop("resourceVersion", None)
                if version not in (None, api.objects[path]["metadata"].get("resourceVersion")):
                    return self.refuse(409, "Conflict")
                return self.answer(api.merge(path, change))

            def watch(self, events: Iterator[dict[str, Any]]) -> None:
                self.close_connection = True
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Connection", "close")
                self.end_headers()
                try:
                    for event in events:
                        self.wfile.write(json.dumps(event).encode() + b"\n")
                        self.wfile.flush()
                except OSError:
                    pass  # the client has ended its watch

            def body(self) -> dict[str, Any]:
                return dict(json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}"))

            def serve(self) -> None:
                url = urlsplit(self.path)
                api.requests.append(f"{self.command} {url.path}")
                data = self.body()
                known = (
                    not api.serves
                    or url.path == "/version"
                    or any(url.path.startswith(f"/api{'s' if '/' in each else ''}/{each}/") for each in api.serves)
                )
                if not known or any(f"/apis/{group}/" in url.path for group in api.unserved):
                    # In the words of a real API server, which has no object to name.
                    return self.answer(NO_SUCH_RESOURCE, 404)
                if f"{self.command} {url.path.rsplit('/', 1)[-1]}" in api.forbidden or url.path in api.forbidden:
                    return self.refuse(403, "Forbidden")
                if url.path == "/version":
                    return self.answer({"gitVersion": api.version})
                if self.command in ("POST", "PATCH") and (words := api.refuses(data)):
                    return self.refuse(400, words)
                if url.path.endswith("/log"):
                    return self.answer(api.log)
                if self.command == "PATCH" and "merge-patch" in str(self.headers.get("Content-Type")):
                    return self.merge(url.path, data)
                if self.command == "PATCH":
                    return self.answer(api.put(url.path, data))
                if url.path.endswith("/selfsubjectaccessreviews"):
                    return self.answer({**data, "status": {"allowed": True}}, 201)
                if self.command == "POST":
                    return self.answer(api.put(f"{url.path}/{data['metadata']['name']}", data), 201)
                if self.command == "GET" and url.path.rsplit("/", 1)[-1] in KINDS:
                    asked = parse_qs(url.query)
                    selector = asked.get("labelSelector", [""])[0]
                    if "watch" in asked:
                        return self.watch(api.watched(url.path, selector, asked.get("fieldSelector", [""])[0]))
                    kind = KINDS[url.path.rsplit("/", 1)[-1]]
                    items = api.listed(url.path, selector)
                    return self.answer({"kind": f"{kind}List", "apiVersion": "v1", "metadata": {}, "items": items})
                if url.path not in api.objects:
                    return self.refuse(404, "NotFound")
                if self.command == "DELETE":
                    api.delete(url.path)
                    return self.answer({"kind": "Status", "apiVersion": "v1", "status": "Success"})
                return self.answer(api.objects[url.path])

            do_GET = do_POST = do_PATCH = do_DELETE = serve

        return Handler


def selected(live: dict[str, Any], selector: str) -> bool:
    """Whether an object has the labels."""
    wanted = dict(part.split("=", 1) for part in selector.split(",") if "=" in part)
    labels = live["metadata"].get("labels") or {}
    return all(labels.get(name) == value for name, value in wanted.items())


def merged(live: dict[str, Any], change: dict[str, Any]) -> None:
    """Merge a patch into an object, in place."""
    for key, value in change.items():
        if value is None:
            live.pop(key, None)
        elif isinstance(value, dict) and isinstance(live.get(key), dict):
            merged(live[key], value)
        else:
            live[key] = {} if isinstance(value, dict) else value
            if isinstance(value, dict):
                merged(live[key], value)


def play_pod(pod: dict[str, Any]) -> None:
    """Let a pod run, as the scheduler and a kubelet would."""
    required = pod["spec"].get("affinity", {}).get("nodeAffinity", {})
    terms = required.get("requiredDuringSchedulingIgnoredDuringExecution", {}).get("nodeSelectorTerms", [])
    names = [field["values"][0] for term in terms for field in term["matchFields"]]
    pod["spec"]["nodeName"] = names[0] if names else "node-1"
    pod["status"] = {
        "phase": "Running",
        "qosClass": "Guaranteed",
        "conditions": [{"type": "Ready", "status": "True"}],
        "containerStatuses": [
            {"name": "gputax", "image": "i", "imageID": "sha256:1", "ready": True, "restartCount": 0, "state": {}}
        ],
    }


def start_without_worker(environment: Environment) -> None:
    """Let an environment make its pod; nothing is started in it, for this API server has no exec."""
    with patch.object(kubernetes, "ChildProcess"):
        environment.start()
