"""A small client of the Kubernetes API: plain data in and out, every failure an error with a next step."""

from __future__ import annotations

import contextlib
import os
import shlex
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gputax.errors import GputaxError, PreflightError, UsageError
from gputax.kubernetes.objects import Manifest

if TYPE_CHECKING:
    import httpx2
    from lightkube.config.kubeconfig import KubeConfig, SingleConfig

TIMEOUT_S = 15.0
IN_CLUSTER = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")


def load_config(context: str = "") -> SingleConfig:
    """Read $KUBECONFIG (a list of files) or ~/.kube/config as kubectl does, or use the pod's service account."""
    from lightkube.config.kubeconfig import KubeConfig
    from lightkube.core.exceptions import ConfigError
    from yaml import YAMLError

    given = [Path(name).expanduser() for name in os.environ.get("KUBECONFIG", "").split(os.pathsep) if name]
    paths = given or [Path("~/.kube/config").expanduser()]
    found = [path for path in paths if path.is_file()]
    try:
        if not found and IN_CLUSTER.is_file():
            configs = [KubeConfig.from_service_account()]
        else:
            configs = [KubeConfig.from_file(path) for path in found]
        return _chosen(configs, context, [str(path) for path in paths])
    except (ConfigError, YAMLError, AttributeError, KeyError, TypeError, ValueError, OSError) as error:
        raise PreflightError(
            f"the kubeconfig cannot be read: {error}",
            where=", ".join(map(str, paths)),
            next_step="kubectl config view",
        ) from error


def _chosen(configs: list[KubeConfig], context: str, paths: list[str]) -> SingleConfig:
    if not configs:
        raise PreflightError(
            "no kubeconfig found", where=", ".join(paths), next_step="export KUBECONFIG=/path/to/kubeconfig"
        )
    wanted = context or next((each.current_context for each in configs if each.current_context), None)
    names = sorted({name for each in configs for name in each.contexts})
    if wanted is None:
        raise UsageError("the kubeconfig has no current context", next_step=f"use --context, one of {', '.join(names)}")
    for each in configs:
        if wanted in each.contexts:
            config = each.get(wanted)
            assert config is not None
            return config
    raise UsageError(f"the kubeconfig has no context {wanted!r}", next_step=f"known: {', '.join(names)}")


def http_client(config: SingleConfig) -> httpx2.Client:
    """Return a plain HTTP client with the kubeconfig's address and credentials."""
    from httpx2 import Timeout
    from lightkube.config.client_adapter import Client as adapter
    from lightkube.config.client_adapter import ConnectionParams

    return adapter(config, ConnectionParams(timeout=Timeout(TIMEOUT_S)))


class NotFoundError(PreflightError):
    """The object does not exist."""


class ForbiddenError(PreflightError):
    """The user does not have the permission."""


class ConflictError(PreflightError):
    """An object with that name already exists."""


class UnreachableError(PreflightError):
    """The API server does not answer."""


@contextlib.contextmanager
def converted_errors(doing: str, server: str, kubectl: Any) -> Iterator[None]:
    """Convert the client's exceptions to our errors."""
    import httpx2
    from lightkube.core.exceptions import ApiError, ConfigError

    try:
        yield
    except ApiError as error:
        raise api_error(doing, server, error, kubectl) from error
    except ConfigError as error:
        raise PreflightError(
            f"the kubeconfig's credentials do not work: {error}", where=server, next_step="kubectl auth whoami"
        ) from error
    except (httpx2.HTTPError, OSError) as error:
        raise UnreachableError(
            f"the cluster cannot be reached: {_words(error)}",
            where=server,
            next_step=kubectl("cluster-info", namespaced=False),
        ) from error


def api_error(doing: str, server: str, error: Any, kubectl: Any) -> GputaxError:
    """Return our error for an API error, with the server's message."""
    code, message = getattr(error.status, "code", None), str(getattr(error.status, "message", "") or error)
    if code == 403 and "exceeded quota" in message:
        return PreflightError(
            f"cannot {doing}: {message}", where=server, next_step=kubectl("describe", "resourcequota")
        )
    if code == 403 and "violates PodSecurity" in message:
        return PreflightError(
            f"cannot {doing}: {message}",
            where=server,
            next_step="kubectl label namespace NAME pod-security.kubernetes.io/enforce=privileged --overwrite",
        )
    if code == 403 and "is being terminated" in message:
        step = "wait until it is gone: " + kubectl("wait", "--for=delete", "namespace", "NAME", namespaced=False)
        return PreflightError(f"cannot {doing}: {message}", where=server, next_step=step)
    if code == 403 and "RuntimeClass" in message:
        return PreflightError(f"cannot {doing}: {message}", where=server, next_step="kubectl get runtimeclass")
    if code == 403:
        return ForbiddenError(
            f"not permitted: {message}",
            where=server,
            next_step="kubectl apply -k kubernetes/access grants it; gputax doctor --env k8s lists what is missing",
        )
    if code == 401:
        return PreflightError(f"not logged in: {message}", where=server, next_step="kubectl auth whoami")
    if code == 404 and message.startswith("namespaces") and not doing.startswith("get"):
        return PreflightError(
            f"cannot {doing}: {message}",
            where=server,
            next_step="kubectl create namespace NAME (in a checkout, together with the role: "
            "kubectl apply -k kubernetes/access), or select another with --namespace",
        )
    kinds: dict[int | None, type[PreflightError]] = {404: NotFoundError, 409: ConflictError}
    return kinds.get(code, PreflightError)(
        f"cannot {doing}: {message}", where=server, next_step="gputax doctor --env k8s"
    )


def _words(error: Exception) -> str:
    text = str(error) or type(error).__name__
    return "no answer in time" if "timed out" in text.lower() else text


FIELD_MANAGER = "gputax"
WATCH_TRIES = 5
# The API version of each kind; no other kinds are read or written.
KINDS: dict[str, str] = {
    "Pod": "v1",
    "Event": "v1",
    "Namespace": "v1",
    "Node": "v1",
    "ServiceAccount": "v1",
    "ResourceQuota": "v1",
    "ConfigMap": "v1",
    "Job": "batch/v1",
    "DaemonSet": "apps/v1",
    "Deployment": "apps/v1",
    "StatefulSet": "apps/v1",
    "Service": "v1",
    "PersistentVolumeClaim": "v1",
    "Role": "rbac.authorization.k8s.io/v1",
    "RoleBinding": "rbac.authorization.k8s.io/v1",
    "RuntimeClass": "node.k8s.io/v1",
    "SelfSubjectAccessReview": "authorization.k8s.io/v1",
    "ResourceClaim": "resource.k8s.io/v1",
    "ResourceSlice": "resource.k8s.io/v1",
    "DeviceClass": "resource.k8s.io/v1",
}


class Cluster:
    """One namespace of one cluster, accessed with the user's kubeconfig."""

    def __init__(self, context: str = "", namespace: str = "default") -> None:
        self._config = load_config(context)
        self.namespace = namespace
        self.calls = 0
        """The number of requests sent; a watch counts as one."""
        self._closed = False
        self._opening = threading.Lock()
        self._client: Any = None
        # Untyped: lightkube distinguishes kinds by overloads, but here the kind is data.

    @property
    def server(self) -> str:
        """The API server's address."""
        return str(self._config.cluster.server)

    @property
    def context(self) -> str:
        """The name of the context."""
        return str(self._config.context_name)

    def create(self, manifest: Manifest, *, dry_run: bool = False) -> Manifest:
        """Create one object and return it as stored by the API server."""
        from lightkube import codecs

        where = _name(manifest)
        resource(manifest["kind"])  # makes the class safe for several threads
        with self._doing(f"create {where}"):
            made = self._lightkube().create(codecs.from_dict(manifest), dry_run=dry_run)
        return dict(made.to_dict())

    def apply(self, manifest: Manifest, *, force: bool = True) -> Manifest:
        """Create or update one object by server-side apply."""
        from lightkube import codecs

        resource(manifest["kind"])  # makes the class safe for several threads
        with self._doing(f"apply {_name(manifest)}"):
            made = self._lightkube().apply(codecs.from_dict(manifest), force=force)
        return dict(made.to_dict())

    def get(self, kind: str, name: str, *, namespace: str = "") -> Manifest | None:
        """Return one object, or None if it does not exist."""
        try:
            with self._doing(f"get {kind} {name}"):
                found = self._lightkube().get(resource(kind), name, **self._place(kind, namespace))
        except NotFoundError:
            return None
        return dict(found.to_dict())

    def list(
        self,
        kind: str,
        *,
        labels: Mapping[str, str] | None = None,
        fields: Mapping[str, str] | None = None,
        namespace: str = "",
    ) -> list[Manifest]:
        """Return the objects of a kind; `*` is every namespace."""
        with self._doing(f"list {_several(kind)}"):
            found = self._lightkube().list(
                resource(kind), labels=dict(labels or {}), fields=dict(fields or {}), **self._place(kind, namespace)
            )
            return [dict(each.to_dict()) for each in found]

    def patch(self, kind: str, name: str, change: Manifest, *, namespace: str = "") -> Manifest:
        """Apply a merge patch to one object: None removes a field; a resourceVersion rejects a concurrent change."""
        from lightkube.types import PatchType

        with self._doing(f"change {kind} {name}"):
            changed = self._lightkube().patch(
                resource(kind), name, change, patch_type=PatchType.MERGE, **self._place(kind, namespace)
            )
        return dict(changed.to_dict())

    def watch(
        self, kind: str, *, labels: Mapping[str, str], fields: Mapping[str, str] | None = None
    ) -> Iterator[tuple[str, Manifest]]:
        """Yield (event, object) without end; existing objects come first, as ADDED."""
        from httpx2 import TransportError
        from lightkube.types import OnErrorAction, OnErrorResult

        def on_error(error: Any, count: int) -> Any:
            # A restart of the API server, or a proxy that cuts long requests, must not end a run.
            status = getattr(getattr(error, "response", None), "status_code", None)
            lost = count > WATCH_TRIES or status in (401, 403)
            return OnErrorResult(OnErrorAction.RAISE if lost else OnErrorAction.RETRY, sleep=float(count))

        asked: dict[str, Any] = {"labels": dict(labels), "fields": dict(fields or {})}
        known: dict[str, Manifest] = {}
        while True:
            with self._doing(f"watch {_several(kind)}"), contextlib.suppress(TransportError):
                for event, found in self._lightkube().watch(
                    resource(kind), on_error=on_error, **asked, **self._place(kind, "")
                ):
                    live = dict(found.to_dict())
                    known[live["metadata"]["uid"]] = live
                    if event == "DELETED":
                        del known[live["metadata"]["uid"]]
                    yield str(event), live
            if self._closed:
                return
            # lightkube retries a broken connection but not a refused one, which happens when the API server restarts.
            # A new watch starts with the existing objects and does not report those deleted in the meantime.
            there = {each["metadata"]["uid"] for each in self._listed_again(kind, asked)}
            for uid in known.keys() - there:
                yield "DELETED", known.pop(uid)

    def _listed_again(self, kind: str, asked: dict[str, Any]) -> Sequence[Manifest]:
        """List the objects once the API server answers again; the last attempt raises."""
        for wait_s in range(1, WATCH_TRIES):
            time.sleep(wait_s)
            with contextlib.suppress(UnreachableError):
                return self.list(kind, **asked)
        return self.list(kind, **asked)

    def delete(self, kind: str, name: str, *, grace_s: int | None = None, namespace: str = "") -> bool:
        """Delete one object and its dependents; return False if it did not exist."""
        from lightkube.types import CascadeType

        try:
            with self._doing(f"delete {kind} {name}"):
                self._lightkube().delete(
                    resource(kind),
                    name,
                    grace_period=grace_s,
                    cascade=CascadeType.BACKGROUND,
                    **self._place(kind, namespace),
                )
        except NotFoundError:
            return False
        return True

    def log(self, pod: str, *, tail_lines: int | None = None, namespace: str = "") -> str:
        """Return the log of a pod with one container."""
        with self._doing(f"read the log of pod {pod}"):
            lines = self._lightkube().log(pod, namespace=namespace or self.namespace, tail_lines=tail_lines)
            return "".join(lines)

    def run_in_pod(self, pod: str, command: Sequence[str], *, timeout_s: float = 60.0) -> str:
        """Run a program in a pod and return its stdout; a non-zero exit code raises with its stderr."""
        with self._doing(f"run a program in pod {pod}"):
            done = self._lightkube().exec(
                pod, namespace=self.namespace, command=list(command), stdout=True, stderr=True, timeout=timeout_s
            )
        if done.exit_code:
            raise PreflightError(
                f"{command[0]} ended with exit code {done.exit_code}: {str(done.stderr).strip()}", where=f"pod {pod}"
            )
        return str(done.stdout)

    def allowed(self, verb: str, what: str, *, group: str = "", namespaced: bool = True) -> tuple[bool, str]:
        """Return whether the user may do this, and the reason; `what` is a resource such as `pods` or `pods/exec`."""
        name, _, part = what.partition("/")
        attributes = {"verb": verb, "resource": name, "group": group}
        if part:
            attributes["subresource"] = part
        if namespaced:
            attributes["namespace"] = self.namespace
        answer = self.create(
            {
                "apiVersion": KINDS["SelfSubjectAccessReview"],
                "kind": "SelfSubjectAccessReview",
                "metadata": {},
                "spec": {"resourceAttributes": attributes},
            }
        )
        status = answer.get("status") or {}
        return bool(status.get("allowed")), str(status.get("reason") or "")

    def version(self) -> str:
        """Return the API server's version, such as v1.34.2."""
        with self._doing("ask for the version"), http_client(self._config) as client:
            response = client.get("version")
            response.raise_for_status()
            return str(response.json().get("gitVersion"))

    def kubectl(self, *words: str, namespaced: bool = True) -> str:
        """Return a kubectl command for this context and namespace."""
        where = ["--context", self.context] if self.context not in ("", "default") else []
        space = ["-n", self.namespace] if namespaced else []
        return shlex.join(["kubectl", *where, *space, *words])

    def close(self) -> None:
        """Close the connections; a watch in another thread ends with them."""
        self._closed = True
        if self._client is not None:
            self._client.close()
            self._client = None

    def _lightkube(self) -> Any:
        self.calls += 1
        with self._opening:
            if self._client is None:
                from httpx2 import Timeout
                from lightkube import Client

                self._client = Client(
                    config=self._config,
                    namespace=self.namespace,
                    field_manager=FIELD_MANAGER,
                    timeout=Timeout(TIMEOUT_S),
                )
            return self._client

    def _place(self, kind: str, namespace: str) -> dict[str, str]:
        from lightkube.core.resource import NamespacedResource

        return {"namespace": namespace or self.namespace} if issubclass(resource(kind), NamespacedResource) else {}

    @contextlib.contextmanager
    def _doing(self, doing: str) -> Iterator[None]:
        with converted_errors(doing, self.server, self.kubectl):
            yield


_prepared: dict[str, Any] = {}
_preparing = threading.Lock()


def resource(kind: str) -> Any:
    """Return lightkube's class for a kind, ready to be decoded by several threads.

    msgspec 0.22 describes a class when it decodes the first object of it, and crashes the process if two threads do so
    at once.
    """
    if kind not in _prepared:
        from lightkube.codecs import resource_registry
        from lightkube.core import decoders

        with _preparing:
            found = resource_registry.load(KINDS[kind], kind)
            decoders.decode_list(b'{"items": []}', found)
            decoders.decode_watch_event(b'{"type": "ADDED", "object": {}}')
            decoders.decode_status(b"{}")
            _prepared[kind] = found
    return _prepared[kind]


def _name(manifest: Manifest) -> str:
    name = (manifest.get("metadata") or {}).get("name", "")
    return f"{manifest['kind']} {name}".strip()


def _several(kind: str) -> str:
    return f"{kind}es" if kind.endswith("s") else f"{kind}s"
