"""Convert errors of the Kubernetes API and its client to ours, with the original message and a next step."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from gputax.errors import GputaxError, PreflightError


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
