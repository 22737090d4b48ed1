"""What every shared place must do: switch, give tenants that measure together, prove it, and leave nothing behind."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from gputax.measure.share.group import TenantGroup
from gputax.measure.view import SilentView
from gputax.places import shared_place
from gputax.plan.cells import Load, Setup
from gputax.plan.options import EnvironmentOptions
from gputax.plan.techniques import TECHNIQUES
from gputax.sharing.bare import BareShared
from gputax.sharing.cpu_quota import PREFIX
from gputax.sharing.place import SharedPlace
from gputax.stats.shared import TenantRuns, common_window
from tests.standins import control_groups

SYNTHETIC = Setup("resnet50", engine="synthetic:latency_us=2000", sample_count=1, max_batch=1)
DRIVER = Setup("micro:operation", engine="driver", device="software", sample_count=1, max_batch=1)
SETUPS = {"cpu-shared": SYNTHETIC, "cpu-quota": SYNTHETIC, "proxy": DRIVER}


def children() -> set[int]:
    listing = subprocess.run(["ps", "-o", "pid=,comm=", "--ppid", str(os.getpid())], capture_output=True, text=True)
    return {int(line.split()[0]) for line in listing.stdout.splitlines() if line.split()[1] != "ps"}


@pytest.fixture(params=list(SETUPS))
def technique(request: pytest.FixtureRequest) -> str:
    if request.param == "cpu-quota" and not control_groups.may_be_made():
        pytest.skip("no control group may be made here")
    return str(request.param)


@pytest.fixture
def place() -> Iterator[SharedPlace]:
    place = shared_place("bare", EnvironmentOptions(), lambda text: None)
    yield place
    place.close()


def test_bears_its_name(place: SharedPlace) -> None:
    assert place.name == "bare"


def test_tenants_start_together_measure_together_and_prove_it(place: SharedPlace, technique: str) -> None:
    known = TECHNIQUES[technique]
    place.switch(known, 3, lambda text: None)
    tenants = place.tenants(known, 3, 3, SETUPS[technique])
    assert {tenant.environment.name for tenant in tenants} == {f"bare+{technique}"}
    assert all(tenant.entitlement.text for tenant in tenants)
    group = TenantGroup(tenants, SilentView())
    try:
        released = group.release(Load("saturate", min_duration_s=0.6))
        proof = group.proof()
        evidence = place.evidence(known, proof.evidences, proof.described)
        group.close()
    finally:
        group.end()
    runs = [
        TenantRuns(each.columns["start_ns"], each.columns["end_ns"], each.columns["samples"])
        for each in released.observations
    ]
    assert all(int(one.start_ns[0]) >= released.release_ns for one in runs), "nobody begins before the release"
    assert common_window(runs, released.release_ns, 0.1).overlap_share > 0.5
    assert evidence.active, evidence.reasons
    assert [each.active for each in proof.evidences] == [True] * 3
    assert len({each.pid for each in proof.described}) == 3


def test_leaves_no_process_no_file_and_no_group(
    technique: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = children()
    place = BareShared()
    known = TECHNIQUES[technique]
    place.switch(known, 2, lambda text: None)
    group = TenantGroup(place.tenants(known, 2, 2, SETUPS[technique]), SilentView())
    group.end()
    place.close()
    place.close()
    assert children() == before
    assert list(tmp_path.iterdir()) == []
    assert control_groups.named(f"{PREFIX}{os.getpid()}-") == []


def test_switching_back_and_forth_needs_no_closing(place: SharedPlace) -> None:
    for technique in ("proxy", "cpu-shared", "proxy"):
        known = TECHNIQUES[technique]
        place.switch(known, 1, lambda text: None)
        (tenant,) = place.tenants(known, 1, 1, SETUPS[technique])
        process = tenant.environment.start()
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout, process.stderr):
            assert pipe is not None
            pipe.close()
