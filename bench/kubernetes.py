"""What a pod costs on a real cluster: overhead against bare, time to the first sample, the client's memory and calls.

Uses the cluster that runs already (`python -m e2e up`), or starts one and ends it; without root or the built Kubernetes
nothing is measured, and that is said.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from e2e.layout import PRODUCT_IMAGE
from e2e.processes import ClusterError
from gputax.results.store import read_samples

# What a pod costs is below 1 %: on a shared host it takes so long to see that.
DUET_S = 1800
FIRST_SAMPLE_RUNS = 5
# An engine without a model, so that what remains is the pod, the exec and the worker's own start.
NO_MODEL = ("--engine", "synthetic:latency_us=1000", "--scenario", "saturate", "--batch", "1", "--cpus", "1")


def kubernetes_pod() -> dict[str, Any]:
    """The figures of one pod on the node that the client runs on."""
    try:
        with _cluster() as environ, tempfile.TemporaryDirectory() as scratch:
            return {**_overhead(environ), **_first_sample(environ, Path(scratch))}
    except ClusterError as error:
        print(f"bench: no Kubernetes figures: {error}", file=sys.stderr)
        return {}


def _overhead(environ: dict[str, str]) -> dict[str, Any]:
    """ResNet-50, single-stream, in fine alternation on one machine; the pairs stay in results/."""
    words = ["duet", "bare", "k8s", "--workload", "resnet50", "--device", "cpu", "--scenario", "single-stream"]
    words += [
        "--image",
        PRODUCT_IMAGE,
        "--budget",
        "1%",
        "--width",
        "0.2%",
        "--max-time",
        str(DUET_S),
        "--no-control",
        "--json",
        "--out",
        f"results/bench-bare-k8s-{time.strftime('%Y%m%d-%H%M%S')}",
    ]
    document = json.loads(_gputax(words, environ, allowed=(0, 6, 7))[0])
    decisive = next(each for each in document["metrics"] if each["decides"] and each["budget_unit"] == "%")
    return {
        "k8s_overhead_percent": decisive["overhead_percent"],
        "k8s_overhead_percent_ci95": decisive["ci95_percent"],
        "k8s_overhead_metric": decisive["metric"],
        "k8s_overhead_verdict": decisive["verdict"],
        "k8s_overhead_pairs": decisive["pairs"],
        "k8s_overhead_seconds": document["settings"]["seconds"],
        "k8s_overhead_restarts": document["settings"]["restarts"],
    }


def _first_sample(environ: dict[str, str], scratch: Path) -> dict[str, Any]:
    """From the command to the first sample that is kept; the node's monotonic clock is this machine's."""
    waits_s, memories_mb, calls = [], [], []
    for number in range(FIRST_SAMPLE_RUNS):
        out = scratch / f"first-{number}"
        started_ns = time.perf_counter_ns()
        _, peak_mb = _gputax(
            ["run", "--env", "k8s", "--image", PRODUCT_IMAGE, *NO_MODEL, "--out", str(out)], environ, allowed=(0,)
        )
        record = json.loads((out / "benchmark_results.json").read_text())
        columns = read_samples(out / record["benchmarks"][0]["samples_file"])
        waits_s.append((int(columns["start_ns"].min()) - started_ns) / 1e9)
        memories_mb.append(peak_mb)
        events = [json.loads(line) for line in (out / "events.jsonl").read_text().splitlines()]
        calls += [each["api_calls"] for each in events if "api_calls" in each]
    return {
        "k8s_first_sample_s": statistics.median(waits_s),
        "k8s_first_sample_runs_s": waits_s,
        "k8s_client_peak_mb": max(memories_mb),
        "k8s_api_calls_per_run": max(calls),
    }


def _gputax(words: list[str], environ: dict[str, str], allowed: tuple[int, ...]) -> tuple[str, float]:
    """Run gputax to its end; return what it printed and the client's largest resident memory."""
    with tempfile.TemporaryFile("w+") as out:
        process = subprocess.Popen([sys.executable, "-m", "gputax", *words], env=environ, stdout=out)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        if process.returncode not in allowed:
            raise SystemExit(f"bench: gputax {' '.join(words)} ended with {process.returncode}")
        return out.read(), usage.ru_maxrss / 1024


@contextmanager
def _cluster() -> Iterator[dict[str, str]]:
    """Give the variables of a cluster that holds the product's image."""
    from e2e import cluster, images
    from e2e.layout import Layout, kubernetes_directory, run_directory
    from gputax.plan.options import NAMESPACE

    own = Layout(run_directory())
    started_here = not cluster.running(own)
    if started_here:
        cluster.up()
    try:
        images.import_archive(own, images.product_archive())
        cluster.kubectl(own, "create", "namespace", NAMESPACE)
        path = f"{kubernetes_directory()}{os.pathsep}{os.environ['PATH']}"
        yield {**os.environ, "KUBECONFIG": str(own.kubeconfig()), "PATH": path}
    finally:
        if started_here:
            for problem in cluster.down():
                print(f"bench: {problem}", file=sys.stderr)
