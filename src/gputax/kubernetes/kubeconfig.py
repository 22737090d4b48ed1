"""The cluster's address and the user's credentials, from the kubeconfig."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from gputax.errors import PreflightError, UsageError

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
