"""The API server's refusals, from a small server that gives its real answers; life itself is in tests/e2e."""

from __future__ import annotations

import http.server
import json
import queue
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from gputax.errors import GputaxError, PreflightError, UsageError
from gputax.kubernetes.client import Cluster, ForbiddenError, load_config
from gputax.kubernetes.objects import Manifest, PodPlan, pod
from tests.standins.kube_api import KubeApi

POD = pod(PodPlan("p", "r", "gputax:1"))
WHO = 'User "dev" cannot create resource "pods" in API group "" in the namespace "gputax"'


class Server:
    """Answers every request with one status."""

    def __init__(self) -> None:
        self.code, self.message = 200, ""
        server = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def answer(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                server.requests.append((self.command, self.path, self.rfile.read(length)))
                status = {"kind": "Status", "status": "Failure", "message": server.message, "code": server.code}
                body = json.dumps(status if server.code >= 400 else server.document).encode()
                self.send_response(server.code)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_POST = do_DELETE = do_PATCH = answer

            def log_message(self, *_: Any) -> None:
                pass

        self.document: dict[str, Any] = {}
        self.requests: list[tuple[str, str, bytes]] = []
        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.http.serve_forever, daemon=True).start()


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    made = Server()
    write_config(tmp_path / "config", f"http://127.0.0.1:{made.http.server_port}")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    yield made
    made.http.shutdown()
    made.http.server_close()


def write_config(path: Path, server: str, context: str = "here") -> None:
    document = {
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "contexts": [{"name": context, "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": {"token": "secret-token"}}],
        "current-context": context,
    }
    path.write_text(json.dumps(document))


def refusal(server: Server, code: int, message: str) -> GputaxError:
    server.code, server.message = code, message
    cluster = Cluster(namespace="gputax")
    with pytest.raises(GputaxError) as raised:
        cluster.create(POD)
    cluster.close()
    return raised.value


@pytest.mark.parametrize(
    ("code", "message", "step"),
    [
        (403, f"pods is forbidden: {WHO}", "kubectl apply -k kubernetes/access"),
        (403, 'pods "p" is forbidden: exceeded quota: q, requested: cpu=2', "describe resourcequota"),
        (403, 'pods "p" is forbidden: violates PodSecurity "restricted:latest"', "kubectl label namespace"),
        (403, 'pods "p" is forbidden: pod rejected: RuntimeClass "x" not found', "kubectl get runtimeclass"),
        (404, 'namespaces "gputax" not found', "--namespace"),
        (401, "Unauthorized", "kubectl auth whoami"),
        (422, 'Pod "p" is invalid: spec.x', "gputax doctor --env k8s"),
    ],
)
def test_a_refusal_keeps_the_server_s_words_and_names_a_step(
    server: Server, code: int, message: str, step: str
) -> None:
    error = refusal(server, code, message)
    assert message in error.what
    assert step in error.next_step
    assert error.exit_code == 3
    assert "secret-token" not in str(error.to_dict())


def test_what_is_forbidden_can_be_told_apart(server: Server) -> None:
    assert isinstance(refusal(server, 403, f"pods is forbidden: {WHO}"), ForbiddenError)


def test_an_object_that_is_not_there_is_none_and_its_deletion_no_error(server: Server) -> None:
    server.code, server.message = 404, 'pods "p" not found'
    cluster = Cluster(namespace="gputax")
    assert cluster.get("Pod", "p") is None
    assert cluster.delete("Pod", "p") is False
    assert cluster.calls == 2
    cluster.close()


def test_permissions_are_asked_one_by_one(server: Server) -> None:
    server.document = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {},
        "status": {"allowed": False, "reason": "no RBAC rule"},
    }
    cluster = Cluster(namespace="gputax")
    assert cluster.allowed("create", "pods/exec") == (False, "no RBAC rule")
    cluster.close()
    _, path, body = server.requests[-1]
    assert path.startswith("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews")
    asked = json.loads(body)["spec"]["resourceAttributes"]
    assert asked["subresource"] == "exec"
    assert asked["namespace"] == "gputax"


def test_a_server_that_does_not_answer_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_config(tmp_path / "config", "http://127.0.0.1:9")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    with pytest.raises(PreflightError, match="cannot be reached") as raised:
        Cluster().version()
    assert "kubectl" in raised.value.next_step


def test_several_kubeconfig_files_are_read_as_kubectl_reads_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_config(tmp_path / "one", "http://one", "first")
    write_config(tmp_path / "two", "http://two", "second")
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path}/missing:{tmp_path}/one:{tmp_path}/two")
    assert load_config().cluster.server == "http://one"
    assert load_config("second").cluster.server == "http://two"
    with pytest.raises(UsageError, match="no context 'third'") as raised:
        load_config("third")
    assert "first, second" in raised.value.next_step


@pytest.mark.parametrize("text", ["", "nonsense", "{", "[]"])
def test_a_kubeconfig_that_is_none_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    (tmp_path / "config").write_text(text)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    with pytest.raises(PreflightError, match="kubeconfig"):
        load_config()


def test_the_command_for_people_names_the_same_place(server: Server) -> None:
    assert Cluster(namespace="gputax").kubectl("get", "pods") == "kubectl --context here -n gputax get pods"


class NoticingCluster(Cluster):
    """Says when it has noticed that nobody answers."""

    def __init__(self) -> None:
        super().__init__(namespace="gputax")
        self.noticed = threading.Event()

    def _listed_again(self, kind: str, asked: dict[str, Any]) -> Sequence[Manifest]:
        self.noticed.set()
        return super()._listed_again(kind, asked)


def test_a_watch_outlives_an_api_server_that_restarts_and_tells_what_went_meanwhile(api: KubeApi) -> None:
    cluster, events = NoticingCluster(), queue.Queue[tuple[str, str]]()
    one, two = (f"/api/v1/namespaces/gputax/pods/{name}" for name in ("one", "two"))
    for path in (one, two):
        api.put(path, pod(PodPlan(path.rsplit("/", 1)[-1], "r", "gputax:1")))

    def follow() -> None:
        for event, found in cluster.watch("Pod", labels={"gputax.dev/run": "r"}):
            events.put((event, found["metadata"]["name"]))
            if (event, found["metadata"]["name"]) == ("DELETED", "one"):
                return

    def meanwhile() -> None:
        api.drop(two)
        assert cluster.noticed.wait(10)

    follower = threading.Thread(target=follow)
    follower.start()
    assert {events.get(timeout=10), events.get(timeout=10)} == {("ADDED", "one"), ("ADDED", "two")}
    api.restart(meanwhile)
    assert events.get(timeout=20) == ("DELETED", "two")
    assert events.get(timeout=20) == ("ADDED", "one"), "a new watch begins with what there is"
    api.drop(one)
    assert events.get(timeout=20) == ("DELETED", "one")
    follower.join(10)
    cluster.close()
