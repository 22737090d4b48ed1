"""The cluster's API for the lane's own parts: a few requests over the standard library, no client to wait for."""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from e2e.layout import API_PORT, NODE_ADDRESS


class ApiError(OSError):
    """The API server said no."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"{status}: {text[:300]}")
        self.status = status


class Api:
    """One user of the API, known by the certificate of its name."""

    def __init__(self, certificates: Path, identity: str = "admin", timeout_s: float = 5) -> None:
        self._context = ssl.create_default_context(cafile=str(certificates / "ca.crt"))
        self._context.load_cert_chain(certificates / f"{identity}.crt", certificates / f"{identity}.key")
        self._timeout_s = timeout_s

    def get(self, path: str) -> dict[str, Any]:
        """Return an object."""
        return self._call("GET", path)

    def patch(self, path: str, change: dict[str, Any]) -> dict[str, Any]:
        """Merge a change into an object."""
        return self._call("PATCH", path, change)

    def apply(self, path: str, manifest: dict[str, Any]) -> dict[str, Any]:
        """Create an object or make it as the manifest says."""
        query = "?fieldManager=gputax-e2e&force=true"
        return self._call("PATCH", path + query, manifest, "application/apply-patch+yaml")

    def delete(self, path: str) -> None:
        """Delete an object, if it is there."""
        try:
            self._call("DELETE", path)
        except ApiError as error:
            if error.status != 404:
                raise

    def watch(self, path: str, seconds: int = 300) -> Iterator[dict[str, Any]]:
        """Give each event of a watch (`path` ends with its query) until the server ends it after so long."""
        connection = self._connection(seconds + 5)
        try:
            connection.request("GET", f"{path}&watch=true&timeoutSeconds={seconds}")
            answer = connection.getresponse()
            if answer.status != 200:
                raise ApiError(answer.status, answer.read().decode(errors="replace"))
            for line in answer:
                yield json.loads(line)
        except http.client.HTTPException as error:
            raise ApiError(0, f"{type(error).__name__}: {error}") from error
        finally:
            connection.close()

    def _call(
        self, method: str, path: str, body: dict[str, Any] | None = None, kind: str = "application/merge-patch+json"
    ) -> dict[str, Any]:
        connection = self._connection(self._timeout_s)
        try:
            headers = {"Content-Type": kind}
            connection.request(method, path, body=None if body is None else json.dumps(body), headers=headers)
            answer = connection.getresponse()
            text = answer.read().decode(errors="replace")
        except http.client.HTTPException as error:
            raise ApiError(0, f"{type(error).__name__}: {error}") from error
        finally:
            connection.close()
        if answer.status >= 300:
            raise ApiError(answer.status, text)
        return dict(json.loads(text))

    def _connection(self, timeout_s: float) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection(NODE_ADDRESS, API_PORT, timeout=timeout_s, context=self._context)
