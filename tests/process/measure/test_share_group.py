"""Workers as one group: a tenant that cannot start, dies, or lives on another clock."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from gputax.environments.bare import Bare
from gputax.environments.connection import WorkerConnection
from gputax.errors import PreflightError, WorkerError
from gputax.measure.share.group import TenantGroup
from gputax.measure.view import SilentView
from gputax.plan.cells import Load, Setup
from gputax.plan.techniques import Entitlement
from gputax.sharing.place import Tenant


def tenant(engine: str = "synthetic:latency_us=1000", **setup: Any) -> Tenant:
    return Tenant(
        Bare(), Setup("resnet50", engine=engine, sample_count=1, max_batch=1, **setup), Entitlement("all", 1.0)
    )


def alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def test_a_tenant_that_dies_ends_the_others_and_is_named() -> None:
    group = TenantGroup([tenant(), tenant()], SilentView())
    pids = [session.connection.pid for session in group.sessions]
    try:
        killer = threading.Timer(0.8, os.kill, (pids[1], signal.SIGKILL))
        killer.start()
        with pytest.raises(WorkerError, match="killed by signal 9") as raised:
            group.release(Load("saturate", min_duration_s=60.0))
        killer.join()
    finally:
        group.end()
    assert raised.value.where.startswith("tenant 2 of 2, ")
    assert not any(alive(pid) for pid in pids)


def test_a_tenant_that_cannot_prepare_ends_those_that_are_ready() -> None:
    started: list[int] = []

    class Counting(Bare):
        def start(self) -> Any:
            process = super().start()
            started.append(process.pid)
            return process

    good, bad = tenant(), tenant(device="cuda")
    tenants = [Tenant(Counting(), each.setup, each.entitlement) for each in (good, bad)]
    with pytest.raises(PreflightError, match="no device cuda"):
        TenantGroup(tenants, SilentView())
    assert len(started) == 2
    assert not any(alive(pid) for pid in started)


@pytest.mark.parametrize("lie", ["boot", "clock"])
def test_tenants_with_different_clocks_are_refused(lie: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real, seen = WorkerConnection.call, []

    def lying(self: WorkerConnection, op: str, **words: Any) -> dict[str, Any]:
        answer = real(self, op, **words)
        seen.append(self)
        if lie == "boot" and "host" in answer:
            answer["host"]["boot_id"] = str(id(self))
        if lie == "clock" and words.get("about") == "clock" and self is not seen[0]:
            answer["monotonic_ns"] += 3_600_000_000_000
        return answer

    monkeypatch.setattr(WorkerConnection, "call", lying)
    with pytest.raises(PreflightError, match="different clocks"):
        TenantGroup([tenant(), tenant()], SilentView())
