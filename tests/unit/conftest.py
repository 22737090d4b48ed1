"""An API server in memory that KUBECONFIG names; pods run in it as soon as they are made."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.standins.kube_api import KubeApi


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[KubeApi]:
    server = KubeApi()
    server.plays_pods = True
    (tmp_path / "config").write_text(server.kubeconfig())
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    yield server
    server.close()
