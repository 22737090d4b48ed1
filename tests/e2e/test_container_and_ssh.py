"""`container` and `ssh:HOST` for real: the product's image under podman, and a worker behind a real sshd."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e import images
from e2e.layout import PRODUCT_IMAGE
from e2e.packages import program
from e2e.podman import environment as podman_environment
from tests.e2e.real_cluster import eventually

pytestmark = [pytest.mark.e2e, pytest.mark.skipif(os.geteuid() != 0, reason="sshd and podman as root")]

SUITE = """
scenarios = ["single-stream"]
sample_count = 16
[single-stream]
pilot_s = 0.2
min_samples = 70
"""


def gputax(*words: str, environ: dict[str, str], cwd: Path) -> subprocess.CompletedProcess[str]:
    (cwd / "short.toml").write_text(SUITE)
    command = [sys.executable, "-m", "gputax", "run", *words, "--suite", "short.toml", "--out", "results"]
    return subprocess.run(command, env=environ, cwd=cwd, capture_output=True, text=True, timeout=300)


@pytest.fixture
def podman(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Give a podman with a store of its own, that raises no limit and asks no systemd, with the image in it."""
    environ = podman_environment(tmp_path)
    subprocess.run([program("podman"), "load", "-q", "-i", images.product_archive()], env=environ, check=True)
    yield environ
    subprocess.run([program("podman"), "system", "reset", "--force"], env=environ, check=True, capture_output=True)


def test_resnet50_runs_in_a_container_that_is_gone_afterwards(podman: dict[str, str], tmp_path: Path) -> None:
    done = gputax("--env", "container", "--image", PRODUCT_IMAGE, "--device", "cpu", environ=podman, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (measured,) = json.loads((tmp_path / "results/benchmark_results.json").read_text())["benchmarks"]
    evidence = measured["evidence"]
    assert evidence["active"] is True, evidence
    assert (evidence["engine"], evidence["limits"]["cpu"]) == ("podman", len(os.sched_getaffinity(0)))
    assert evidence["image_id"]
    listing = subprocess.run([program("podman"), "ps", "--all", "--quiet"], env=podman, capture_output=True, text=True)
    assert listing.stdout.strip() == ""


@pytest.fixture
def host(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Run an sshd on loopback with keys of its own; `ssh` in PATH is the real one with our configuration."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    for key in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / key)], check=True)
    (tmp_path / "sshd_config").write_text(
        f"ListenAddress 127.0.0.1:{port}\nHostKey {tmp_path}/host\nAuthorizedKeysFile {tmp_path}/user.pub\n"
        f"PidFile {tmp_path}/pid\nStrictModes no\nPermitRootLogin yes\nUsePAM no\n"
    )
    (tmp_path / "config").write_text(
        f"Host gpu-box\n HostName 127.0.0.1\n Port {port}\n User root\n IdentityFile {tmp_path}/user\n"
        f" UserKnownHostsFile {tmp_path}/known\n StrictHostKeyChecking accept-new\n"
    )
    (tmp_path / "bin").mkdir()
    wrapper = tmp_path / "bin/ssh"
    wrapper.write_text(f'#!/bin/sh\nexec {program("ssh")} -F {tmp_path}/config "$@"\n')
    wrapper.chmod(0o755)
    Path("/run/sshd").mkdir(exist_ok=True)
    server = subprocess.Popen([program("sshd"), "-D", "-r", "-f", str(tmp_path / "sshd_config")])
    environ = {**os.environ, "PATH": f"{tmp_path}/bin{os.pathsep}{os.environ['PATH']}"}
    answers = [str(wrapper), "gpu-box", "true"]
    eventually("sshd answers", lambda: subprocess.run(answers, capture_output=True).returncode == 0, 30)
    yield environ
    server.terminate()
    server.wait(10)


SYNTHETIC = ("--engine", "synthetic:latency_us=2000")


def test_a_worker_behind_ssh_measures_what_it_was_told(host: dict[str, str], tmp_path: Path) -> None:
    remote = f"{sys.executable} -m gputax.worker"
    done = gputax("--env", "ssh:gpu-box", "--remote-command", remote, *SYNTHETIC, environ=host, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (measured,) = json.loads((tmp_path / "results/benchmark_results.json").read_text())["benchmarks"]
    assert measured["evidence"]["active"] is True
    assert measured["evidence"]["hostname"] == socket.gethostname()
    assert measured["latency_p50_ms"] >= 2.0


def test_a_host_without_gputax_is_told_before_anything_is_measured(host: dict[str, str], tmp_path: Path) -> None:
    remote = "/usr/bin/python3 -S -m gputax.worker"
    done = gputax("--env", "ssh:gpu-box", "--remote-command", remote, *SYNTHETIC, environ=host, cwd=tmp_path)
    assert done.returncode == 3
    assert "gputax is not installed on gpu-box" in done.stderr
    assert "--remote-command" in done.stderr
