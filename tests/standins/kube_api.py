"""A stand-in for a cluster's API server: keeps objects by path, and plays the Job's pod as the test wants it."""

from __future__ import annotations

import json
import re
import threading
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

KINDS = {
    "pods": "Pod",
    "nodes": "Node",
    "jobs": "Job",
    "namespaces": "Namespace",
    "daemonsets": "DaemonSet",
    "events": "Event",
}
WAITING = {"waiting": {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "nowhere/none:1"'}}
UNSCHEDULABLE = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "0/1 nodes are available: 1 Insufficient nvidia.com/gpu.",
}


class KubeApi:
    """The server; `behaviour` says what a Job's pod does: complete, active, fail, image, pending, refuse."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.requests: list[str] = []
        self.behaviour = "complete"
        self.log = ""
        self.forbidden: set[str] = set()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
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
            "metadata": {"name": name, "labels": labels or {}},
            "status": {"allocatable": allocatable, "capacity": allocatable},
        }

    def named(self, kind: str) -> list[str]:
        return [each["metadata"]["name"] for each in self.objects.values() if each["kind"] == kind]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def put(self, path: str, manifest: dict[str, Any]) -> dict[str, Any]:
        new = path not in self.objects
        manifest["metadata"].setdefault("uid", f"uid-{len(self.requests)}")
        manifest["metadata"].setdefault("creationTimestamp", datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"))
        self.objects[path] = {**self.objects.get(path, {}), **manifest}
        if new and manifest["kind"] == "Job":
            self._play(self.objects[path])
        if new and manifest["kind"] == "DaemonSet":
            for name in self.named("Node"):
                self.objects[f"/api/v1/nodes/{name}"]["status"]["allocatable"]["nvidia.com/gpu"] = "1"
        return self.objects[path]

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
        elif self.behaviour == "fail":
            ended = {"terminated": {"exitCode": 3, "reason": "Error"}}
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

    def drop(self, path: str) -> None:
        gone = self.objects.pop(path)
        if gone["kind"] == "Job":
            prefix = f"/api/v1/namespaces/{gone['metadata']['namespace']}/pods/{gone['metadata']['name']}"
            for key in [key for key in self.objects if key.startswith(prefix)]:
                del self.objects[key]
        if gone["kind"] == "Namespace":
            for key in [key for key in self.objects if f"/namespaces/{gone['metadata']['name']}/" in key]:
                del self.objects[key]

    def listed(self, path: str, selector: str) -> list[dict[str, Any]]:
        plural = path.rsplit("/", 1)[-1]
        wanted = dict(part.split("=", 1) for part in selector.split(",") if "=" in part)
        namespace = re.search(r"/namespaces/([^/]+)/", path)
        return [
            each
            for key, each in self.objects.items()
            if each["kind"] == KINDS[plural]
            and (namespace is None or f"/namespaces/{namespace[1]}/" in key)
            and all((each["metadata"].get("labels") or {}).get(name) == value for name, value in wanted.items())
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

            def body(self) -> dict[str, Any]:
                return dict(json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}"))

            def serve(self) -> None:
                url = urlsplit(self.path)
                api.requests.append(f"{self.command} {url.path}")
                data = self.body()
                if f"{self.command} {url.path.rsplit('/', 1)[-1]}" in api.forbidden or url.path in api.forbidden:
                    return self.refuse(403, "Forbidden")
                if url.path == "/version":
                    return self.answer({"gitVersion": "v1.34.0"})
                if url.path.endswith("/log"):
                    return self.answer(api.log)
                if self.command == "PATCH":
                    return self.answer(api.put(url.path, data))
                if self.command == "POST":
                    return self.answer(api.put(f"{url.path}/{data['metadata']['name']}", data), 201)
                if self.command == "GET" and url.path.rsplit("/", 1)[-1] in KINDS:
                    selector = parse_qs(url.query).get("labelSelector", [""])[0]
                    kind = KINDS[url.path.rsplit("/", 1)[-1]]
                    items = api.listed(url.path, selector)
                    return self.answer({"kind": f"{kind}List", "apiVersion": "v1", "metadata": {}, "items": items})
                if url.path not in api.objects:
                    return self.refuse(404, "NotFound")
                if self.command == "DELETE":
                    api.drop(url.path)
                    return self.answer({"kind": "Status", "apiVersion": "v1", "status": "Success"})
                return self.answer(api.objects[url.path])

            do_GET = do_POST = do_PATCH = do_DELETE = serve

        return Handler
