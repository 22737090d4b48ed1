"""Programs that dom0 starts in a running guest through the guest's agent: one boot in an emulator for all tests."""

from __future__ import annotations

import pytest

from e2e.xen import scenarios
from e2e.xen.machine import Transcript
from tests.xen.boots import booted

pytestmark = pytest.mark.xen

TIMEOUT_S = 3600  # minutes on idle cores; it runs at the lowest priority


@pytest.fixture(scope="module")
def transcript(tmp_path_factory: pytest.TempPathFactory) -> Transcript:
    return booted(tmp_path_factory.mktemp("xen"), scenarios.SESSIONS, scenarios.SERVED.files, TIMEOUT_S)


def test_a_program_in_the_guest_has_its_own_output_and_exit_code(transcript: Transcript) -> None:
    assert [line for line in transcript.marked() if line.startswith("failed")] == []
    assert transcript.section("words-out") == []
    assert transcript.section("words-err")[0].startswith("usage: xen-session")
    assert transcript.section("words-code") == ["2"]


def test_a_program_that_is_not_there_is_127(transcript: Transcript) -> None:
    assert transcript.section("missing-code") == ["127"]
    assert "No such file" in transcript.section("missing-err")[0]


def test_a_started_program_reaches_the_proxy_and_gets_equal_bytes(transcript: Transcript) -> None:
    direct = transcript.section("direct")
    assert len(direct) == 9
    assert transcript.section("digest-out") == direct
    assert transcript.section("digest-code") == ["0"]


def test_a_signal_ends_the_program_in_the_guest(transcript: Transcript) -> None:
    assert transcript.section("term-code") == ["143"]


def test_two_sessions_run_at_once(transcript: Transcript) -> None:
    assert transcript.section("beside-code") == ["127"]


def test_a_destroyed_guest_ends_its_sessions(transcript: Transcript) -> None:
    assert transcript.section("destroyed-code") == ["255"]
    assert [line.split()[0] for line in transcript.section("list")] == ["Name", "Domain-0"]
