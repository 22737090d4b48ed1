"""libvgpu in a Xen guest, the ring on granted pages, the GPU proxy in dom0: one boot in an emulator for all tests."""

from __future__ import annotations

import json
from typing import Any

import pytest

from e2e.xen import scenarios
from e2e.xen.machine import Transcript
from tests.xen.boots import booted

pytestmark = pytest.mark.xen

TIMEOUT_S = 3600  # two minutes on idle cores; it runs at the lowest priority


@pytest.fixture(scope="module")
def transcript(tmp_path_factory: pytest.TempPathFactory) -> Transcript:
    return booted(tmp_path_factory.mktemp("xen"), scenarios.RING, scenarios.ring_files, TIMEOUT_S)


def status(transcript: Transcript, name: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(" ".join(transcript.section(f"status-{name}")))
    return document


def of_pod(tenants: list[dict[str, Any]], pod: str) -> list[dict[str, Any]]:
    return [tenant for tenant in tenants if tenant.get("pod") == pod]


def test_xen_boots_with_dom0_and_its_store(transcript: Transcript) -> None:
    assert any(line.startswith("xen_version") for line in transcript.section("info"))
    assert [line for line in transcript.marked() if line.startswith("failed")] == []


@pytest.mark.parametrize("guest", ["one", "three"])
def test_the_bytes_in_a_guest_are_those_of_the_device_in_dom0(transcript: Transcript, guest: str) -> None:
    direct = transcript.section("direct")
    assert len(direct) == 9
    assert not any("DIFFERENT" in line for line in direct)
    inside = [line for line in transcript.section(f"guest-{guest}") if line.startswith(("copy", "vector_add"))]
    assert inside == direct


def test_operations_in_a_guest_are_right_and_end_well(transcript: Transcript) -> None:
    lines = transcript.section("guest-one")
    assert [line for line in lines if line.startswith("order")] == ["order 1: exit 0", "order 2: exit 0"]
    [measured] = [json.loads(line) for line in lines if line.startswith("{")]
    assert measured["op"]["count"] > 0


def test_the_proxy_names_transport_domain_and_pod(transcript: Transcript) -> None:
    [domain] = [line.split()[1] for line in transcript.section("domain") if line.startswith("one ")]
    ended = of_pod(status(transcript, "one")["ended_tenants"], scenarios.PODS[0])
    assert len(ended) == 2
    for tenant in ended:
        assert (tenant["transport"], tenant["domain"], tenant["ended"]) == ("xen", int(domain), "left")
        assert tenant["memory_bytes"] == 0
        assert "seccomp" in tenant["confinement"]


def test_a_destroyed_guest_leaves_nothing_and_the_other_goes_on(transcript: Transcript) -> None:
    both = status(transcript, "both")["tenants"]
    assert {tenant["pod"] for tenant in both} == set(scenarios.PODS[1:])
    end = status(transcript, "end")
    assert end["tenants"] == []
    assert end["totals"]["memory_bytes"] == 0
    assert len(of_pod(end["ended_tenants"], scenarios.PODS[1])) == 1
    lines = transcript.section("guest-three")
    assert [line for line in lines if line.startswith("order")] == ["order 1: exit 0", "order 2: exit 0"]
    assert [line.split()[0] for line in transcript.section("list")] == ["Name", "Domain-0"]
