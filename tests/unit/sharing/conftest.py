"""An environment makes pods: here they run as soon as they are made."""

from __future__ import annotations

import pytest

from tests.standins.kube_api import KubeApi


@pytest.fixture
def api(api: KubeApi) -> KubeApi:
    api.plays_pods = True
    return api
