"""What gVisor costs on this machine: a container under runsc against one under runc, in podman, in fine alternation.

Needs root, podman and Go (the first time); without them nothing is measured, and that is said. The pairs stay in
results/, so that `gputax report` can show them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from e2e import images
from e2e.gvisor_runtime import runsc
from e2e.layout import PRODUCT_IMAGE
from e2e.packages import missing_packages, program
from e2e.podman import environment
from e2e.processes import ClusterError

BASE, OTHER = "container", "container:runsc"
# A thousand reads of one byte of a file: nothing but system calls, as loaders and log writers make them.
SYSTEM_CALLS = (
    "import os, time\n"
    "file = os.open('/etc/passwd', os.O_RDONLY)\n"
    "while True:\n"
    "    begun = time.perf_counter()\n"
    "    for _ in range(1000): os.pread(file, 1, 0)\n"
    "    print(f'{(time.perf_counter() - begun) * 1e3:.6f} ms')\n"
)


@dataclass(frozen=True)
class Part:
    """One duet: its name, its options, and the program behind `--` if it has one."""

    name: str
    options: tuple[str, ...]
    program: tuple[str, ...] = ()
    seconds: int = 240

    def words(self, out: str) -> list[str]:
        """Return the command that measures it."""
        shared = ["--image", PRODUCT_IMAGE, "--max-time", str(self.seconds), "--json", "--out", out]
        return ["duet", BASE, OTHER, *self.options, *shared, *(("--", *self.program) if self.program else ())]


PARTS = (
    Part("resnet50", ("--workload", "resnet50", "--device", "cpu", "--scenario", "single-stream", "--batch", "1")),
    Part(
        "micro",
        (
            "--workload", "micro:operation,micro:launch,micro:allocate,micro:copy-in-100MB,micro:copy-out-100MB",
            "--device", "software", "--soft-kernel-us", "125", "--soft-copy-gbps", "4.5",
        ),
    ),
    Part("system-calls", (), ("python", "-u", "-c", SYSTEM_CALLS), seconds=60),
)  # fmt: skip


def gvisor_cost(parts: Sequence[Part] = PARTS) -> dict[str, Any]:
    """Return the overhead of runsc over runc for each part, with its interval; every number is of a CPU."""
    if os.geteuid() != 0 or "podman" in missing_packages():
        print("bench: no figures of gVisor: they need root and podman", file=sys.stderr)
        return {}
    try:
        with _podman() as environ:
            return {key: value for part in parts for key, value in _measured(part, environ).items()}
    except ClusterError as error:
        print(f"bench: no figures of gVisor: {error}", file=sys.stderr)
        return {}


def _measured(part: Part, environ: dict[str, str]) -> dict[str, Any]:
    out = f"results/bench-runsc-{part.name}-{time.strftime('%Y%m%d-%H%M%S')}"
    words = [sys.executable, "-m", "gputax", *part.words(out)]
    done = subprocess.run(words, env=environ, stdout=subprocess.PIPE, text=True)
    if done.returncode not in (0, 6, 7):
        raise ClusterError(f"gputax {' '.join(part.words(out))} ended with {done.returncode}")
    return figures(part.name, json.loads(done.stdout))


def figures(name: str, document: dict[str, Any]) -> dict[str, Any]:
    """Return the metrics that decide, with interval and verdict, by a key of their own."""
    found = {}
    for each in document["metrics"]:
        if not each["decides"]:
            continue
        key = f"gvisor_{name}_{each['workload'].partition(':')[2] or each['metric']}_{each['metric']}"
        found[key.replace("-", "_")] = {
            "overhead_percent": each["overhead_percent"],
            "ci95_percent": each["ci95_percent"],
            "base": each["base_value"],
            "other": each["other_value"],
            "unit": each["unit"],
            "verdict": each["verdict"],
            "pairs": each["pairs"],
        }
    return found


@contextmanager
def _podman() -> Iterator[dict[str, str]]:
    with tempfile.TemporaryDirectory(prefix="gputax-podman-") as scratch:
        environ = environment(Path(scratch), {"runsc": runsc()})
        subprocess.run([program("podman"), "load", "-q", "-i", images.product_archive()], env=environ, check=True)
        try:
            yield environ
        finally:
            reset = [program("podman"), "system", "reset", "--force"]
            subprocess.run(reset, env=environ, check=True, capture_output=True)
