"""Containers of containerd as guests, by xen-cri in place of runc: one boot in an emulator for all tests."""

from __future__ import annotations

import json

import pytest

from e2e.xen import scenarios
from e2e.xen.machine import Transcript
from tests.xen.boots import booted

pytestmark = pytest.mark.xen

TIMEOUT_S = 5400  # minutes on idle cores; it runs at the lowest priority


@pytest.fixture(scope="module")
def transcript(tmp_path_factory: pytest.TempPathFactory) -> Transcript:
    return booted(tmp_path_factory.mktemp("xen"), scenarios.CONTAINERS, scenarios.pod_files, TIMEOUT_S, pods=True)


def guests(transcript: Transcript, section: str) -> list[str]:
    return sorted(line.split()[0] for line in transcript.section(section) if line.startswith("gputax-"))


def test_the_runtime_answers_for_runc(transcript: Transcript) -> None:
    assert [line for line in transcript.marked() if line.startswith("failed")] == []
    assert transcript.section("version-out")[0].startswith("xen-cri version")


def test_output_errors_environment_and_exit_code_are_the_containers(transcript: Transcript) -> None:
    lines = transcript.section("first-out")
    assert lines[0] == "hello"
    assert lines[-2:] == ["0", "written"]
    assert "below" in transcript.section("first-err")
    assert transcript.section("first-code") == ["7"]
    assert guests(transcript, "list-first") == []


def test_a_container_reaches_the_proxy_and_gets_equal_bytes(transcript: Transcript) -> None:
    direct = transcript.section("direct")
    assert len(direct) == 9
    assert transcript.section("digest-out") == direct
    assert transcript.section("digest-code") == ["0"]


def test_a_path_of_the_host_is_refused(transcript: Transcript) -> None:
    assert transcript.section("path-code") != ["0"]
    assert any("a guest sees no path of the host" in line for line in transcript.section("path-err"))


def test_two_containers_are_two_guests_with_one_image(transcript: Transcript) -> None:
    names = guests(transcript, "list-both")
    assert [name.split("-")[1] for name in names] == ["ends", "stays"]
    assert len(transcript.section("images")) == 1


def test_a_further_process_runs_in_the_container(transcript: Transcript) -> None:
    lines = transcript.section("exec-out")
    assert lines[0] == "inside"
    assert 2 <= int(lines[1]) <= 6, "it sees the container's processes only"
    assert transcript.section("exec-code") == ["5"]


def test_one_is_killed_and_the_other_goes_on(transcript: Transcript) -> None:
    assert transcript.section("ends-code") == ["137"]
    assert transcript.section("after-out") == ["goes on"]
    assert json.loads(transcript.section("state-out")[0])["status"] == "running"
    assert transcript.section("stays-code") == ["137"]


def test_nothing_is_left(transcript: Transcript) -> None:
    assert [line.split()[0] for line in transcript.section("list")] == ["Name", "Domain-0"]
    assert transcript.section("loops") == []
    assert transcript.section("left") == []
    assert len(transcript.section("tasks-out")) == 1, "the heading alone"
