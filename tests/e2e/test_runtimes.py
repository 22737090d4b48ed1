"""gVisor for real: a worker under runsc in podman, its evidence from both sides, and the image's bill of materials."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e import images
from e2e.gvisor_runtime import runsc
from e2e.layout import PRODUCT_IMAGE
from e2e.packages import program
from e2e.podman import environment as podman_environment

pytestmark = [pytest.mark.e2e, pytest.mark.skipif(os.geteuid() != 0, reason="podman as root")]


@pytest.fixture(scope="module")
def podman(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Give a podman with its own store and the image, that finds runsc and two programs that only claim to be it."""
    directory = tmp_path_factory.mktemp("podman")
    liar, unlimited = directory / "runsc-liar", directory / "runsc-unlimited"
    liar.symlink_to(program("runc"))
    unlimited.write_text(f'#!/bin/sh\nexec {runsc()} --ignore-cgroups "$@"\n')
    unlimited.chmod(0o755)
    environ = podman_environment(directory, {"runsc": runsc(), liar.name: liar, unlimited.name: unlimited})
    subprocess.run([program("podman"), "load", "-q", "-i", images.product_archive()], env=environ, check=True)
    yield environ
    subprocess.run([program("podman"), "system", "reset", "--force"], env=environ, check=True, capture_output=True)


def gputax(*words: str, environ: dict[str, str], cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gputax", *words, "--image", PRODUCT_IMAGE]
    return subprocess.run(command, env=environ, cwd=cwd, capture_output=True, text=True, timeout=420)


def sides(directory: Path) -> list[dict[str, Any]]:
    comparison = json.loads((directory / "comparison.json").read_text())
    return list(comparison["sides"])


def test_resnet50_is_measured_under_gvisor(podman: dict[str, str], tmp_path: Path) -> None:
    words = ["duet", "container", "container:runsc", "--device", "cpu", "--cpus", "1", "--max-time", "10"]
    done = gputax(*words, "--accept-disturbed", "--out", "r", environ=podman, cwd=tmp_path)
    assert done.returncode in (0, 6, 7), done.stderr
    plain, sandboxed = (side["evidence"] for side in sides(tmp_path / "r"))
    assert (plain["active"], sandboxed["active"]) == (True, True), (plain, sandboxed)
    assert (plain["sandbox"], sandboxed["sandbox"]) == (None, "gvisor")
    assert plain["kernel"] == os.uname().release
    assert sandboxed["host_kernel"] == os.uname().release != sandboxed["kernel"]
    assert sandboxed["runtime_version"].startswith("runsc version")
    # Whether the sandbox shows the quota inside depends on the host's control groups; the number of threads does not.
    assert sandboxed["cpu_allowance"]["told_cpus"] == 1.0
    assert (sandboxed["cpu_allowance"]["threads"], sandboxed["limit_from_outside_cpus"]) == (1, 1.0)
    listing = subprocess.run([program("podman"), "ps", "--all", "--quiet"], env=podman, capture_output=True, text=True)
    assert listing.stdout.strip() == ""


def test_the_software_device_works_under_gvisor(podman: dict[str, str], tmp_path: Path) -> None:
    words = ["duet", "container", "container:runsc", "--device", "software", "--workload", "micro:launch"]
    done = gputax(*words, "--max-time", "5", "--accept-disturbed", "--out", "r", environ=podman, cwd=tmp_path)
    assert done.returncode in (0, 6, 7), done.stderr
    assert [side["evidence"]["sandbox"] for side in sides(tmp_path / "r")] == [None, "gvisor"]


def test_a_runtime_that_is_another_one_is_refused(podman: dict[str, str], tmp_path: Path) -> None:
    done = gputax("run", "--env", "container:runsc-liar", "--device", "cpu", environ=podman, cwd=tmp_path)
    assert done.returncode == 3
    assert "runsc-liar is runc, not gVisor" in done.stderr


def test_a_limit_that_is_only_shown_and_not_enforced_is_found_out(podman: dict[str, str], tmp_path: Path) -> None:
    words = ["run", "--env", "container:runsc-unlimited", "--device", "cpu", "--cpus", "1", "--scenario", "saturate"]
    words += ["--batch", "1", "--engine", "synthetic:latency_us=500", "--accept-disturbed", "--out", "r"]
    done = gputax(*words, environ=podman, cwd=tmp_path)
    assert done.returncode == 5, done.stderr
    (measured,) = json.loads((tmp_path / "r/benchmark_results.json").read_text())["benchmarks"]
    assert measured["evidence"]["sandbox"] == "gvisor"
    assert "from outside no CPU limit of the sandbox is seen, instead of 1" in measured["evidence"]["reasons"]


def test_a_runtime_that_is_not_there_is_refused(podman: dict[str, str], tmp_path: Path) -> None:
    done = gputax("run", "--env", "container:kata", "--device", "cpu", environ=podman, cwd=tmp_path)
    assert done.returncode == 3
    assert "podman has no runtime 'kata'" in done.stderr


def test_the_image_carries_its_bill_of_materials(podman: dict[str, str]) -> None:
    words = [program("podman"), "run", "--rm", "--network", "none", PRODUCT_IMAGE, "cat", "/opt/gputax/sbom.cdx.json"]
    printed = subprocess.run(words, env=podman, check=True, capture_output=True, text=True, timeout=120).stdout
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(printed) is None
    kinds = [each["purl"].split("/")[0] for each in json.loads(printed)["components"]]
    assert kinds.count("pkg:deb") > 50
    assert kinds.count("pkg:pypi") > 20
