"""What a session adds to the facts that its worker loaded."""

from __future__ import annotations

from typing import Any

import pytest

from gputax.environments.environment import Described
from gputax.measure import session
from gputax.measure.session import WorkerSession
from gputax.plan.cells import Setup


class Connection:
    """A connection to a worker on this host."""

    host: dict[str, Any]

    def __init__(self, environment: object) -> None:
        pass

    def describe(self) -> Described:
        return Described({"host": self.host})

    def call(self, op: str, **parameters: Any) -> dict[str, Any]:
        return {"device": "cpu", "op": op}


@pytest.mark.parametrize(("host", "emulated"), [({"emulated": True}, True), ({}, None)])
def test_facts_say_that_the_hypervisor_is_emulated(
    monkeypatch: pytest.MonkeyPatch, host: dict[str, Any], emulated: bool | None
) -> None:
    monkeypatch.setattr(session, "WorkerConnection", type("Here", (Connection,), {"host": host}))
    environment: Any = object()
    view: Any = object()
    made = WorkerSession(environment, Setup(workload="resnet50"), view)
    assert made.facts["op"] == "prepare"
    assert made.facts.get("emulated") is emulated
