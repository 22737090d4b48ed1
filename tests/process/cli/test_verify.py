"""`gputax verify` on this machine: as it is, with the software device, behind a proxy and in a container."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Gputax = Callable[..., subprocess.CompletedProcess[str]]
SECONDS = 60


def answer(done: subprocess.CompletedProcess[str]) -> dict[str, object]:
    found: dict[str, object] = json.loads(done.stdout)
    assert float(str(found["seconds"])) < SECONDS
    return found


@pytest.mark.skipif(Path("/dev/nvidia0").exists(), reason="there is a GPU here")
def test_a_machine_without_a_gpu_says_so_and_fails(gputax: Gputax) -> None:
    done = gputax("verify", "--json")
    assert done.returncode == 3, done.stderr
    found = answer(done)
    assert found["mode"] == "none"
    assert "no GPU here" in str(found["text"])
    assert gputax("verify", "--expect", "none").returncode == 0


def test_the_software_device_is_named_so(gputax: Gputax) -> None:
    done = gputax("verify", "--device", "software", "--json")
    assert done.returncode == 0, done.stderr
    assert answer(done)["mode"] == "software"


def test_behind_a_proxy_the_tenants_are_counted(gputax: Gputax, tmp_path: Path) -> None:
    done = gputax("verify", "--env", "bare+proxy", "--device", "software", "--json")
    assert done.returncode == 0, done.stderr
    found = answer(done)
    assert (found["mode"], found["others"]) == ("proxy", "nobody: the only tenant")
    assert found["problems"] == []


def test_a_program_behind_a_proxy_finds_out_and_sees_its_quota(gputax: Gputax) -> None:
    command = str(Path(sys.executable).with_name("gputax"))
    words = ("verify", "--json", "--expect", "proxy")
    done = gputax("exec", "--env", "bare+proxy", "--device", "software", "--", command, *words)
    assert done.returncode == 0, done.stderr
    assert answer(done)["limits"]["proxy's quota"] == "1024 MiB"  # type: ignore[index]


def test_an_expectation_that_is_not_met_fails_with_what_it_is(gputax: Gputax) -> None:
    done = gputax("verify", "--device", "software", "--expect", "exclusive")
    assert done.returncode == 3
    assert "exclusive was expected, this is software" in done.stdout


def test_an_unknown_expectation_is_refused_at_once(gputax: Gputax) -> None:
    done = gputax("verify", "--expect", "exklusive")
    assert done.returncode == 2
    assert "did you mean 'exclusive'" in done.stderr
