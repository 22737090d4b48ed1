"""Every kind of neighbour exists on every kind of device, under names that the engine knows too."""

from __future__ import annotations

import pytest

from gputax.errors import UsageError
from gputax.plan.cells import Setup
from gputax.plan.engines import ENGINES, parse_engine
from gputax.plan.techniques import AGGRESSORS, KINDS, aggressor_setup, checked_kinds, checked_victim, family_of


def test_the_table_is_whole() -> None:
    assert set(AGGRESSORS) == {(kind, family) for kind in KINDS for family in ("cpu", "driver")}
    assert ENGINES["neighbour"].choices["kind"] == KINDS
    assert len({aggressor.about for aggressor in AGGRESSORS.values()}) == len(AGGRESSORS)


@pytest.mark.parametrize(("device", "family"), [("cpu", "cpu"), ("software", "driver"), ("cuda", "driver")])
def test_a_device_has_its_column(device: str, family: str) -> None:
    assert family_of(device) == family


def test_kinds_come_in_the_order_of_the_table_and_once() -> None:
    assert checked_kinds(("crash", "compute", "crash")) == ("compute", "crash")
    with pytest.raises(UsageError, match="unknown aggressor 'copy'") as raised:
        checked_kinds(("copy",))
    assert "copies" in raised.value.next_step
    with pytest.raises(UsageError, match="--aggressor is empty"):
        checked_kinds(())


def test_only_a_closed_loop_of_single_requests_can_be_the_victim() -> None:
    assert checked_victim("single-stream") == "single-stream"
    with pytest.raises(UsageError, match="'offline'"):
        checked_victim("offline")


def test_a_tenant_becomes_a_neighbour_on_the_victims_device() -> None:
    tenant = Setup("yolos-small", "onnx:spin=false", "auto", threads=1, weights="/w.onnx", max_batch=8)
    setup = aggressor_setup("crash", tenant, "cuda", threads=4, crash_after_ms=300)
    assert (setup.workload, setup.device, setup.threads, setup.weights) == ("neighbour:crash", "cuda", 4, "")
    spec = parse_engine(setup.engine)
    assert (spec.name, dict(spec.options)) == ("neighbour", {"kind": "crash", "crash_after_ms": 300})
