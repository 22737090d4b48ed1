"""`micro` through the whole tool on the software device: directly, and behind the GPU proxy, with its evidence."""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gputax.environments.driver import native_directory
from gputax.plan.workloads import OPERATIONS
from gputax.results.documents.comparison import Comparison
from gputax.results.reading import RUN
from gputax.results.store import read_document, read_samples
from tests.standins.started import workers_of

Gputax = Callable[..., subprocess.CompletedProcess[str]]
SMALL = "[micro]\nduration_s = 0.05\nmin_samples = 100\nmax_duration_s = 0.2\npilot_s = 0.05\n"
SOFTWARE = ("--device", "software")

# A proxy that serves as it should, but tells of one call less than it has done.
LIAR = """#!{python}
import json, os, signal, socket, subprocess, sys
words = sys.argv[1:]
path = words[words.index("--socket") + 1]
real = path + ".true"
process = subprocess.Popen([{proxy!r}, *words, "--status-socket", real], stdout=subprocess.PIPE)
server = socket.socket(socket.AF_UNIX)
line = process.stdout.readline()
server.bind(path + ".status")
server.listen()
def end(*_):
    process.terminate(); process.wait()
    for name in (path + ".status", real):
        if os.path.exists(name): os.unlink(name)
    os._exit(0)
signal.signal(signal.SIGTERM, end)
sys.stdout.buffer.write(line); sys.stdout.flush()
while True:
    client, _ = server.accept()
    with client, socket.socket(socket.AF_UNIX) as asked:
        client.recv(100)
        asked.connect(real); asked.sendall(b"\\n")
        document = json.loads(b"".join(iter(lambda: asked.recv(65536), b"")))
        for tenant in document["tenants"]:
            tenant["calls"]["cuMemcpyHtoD_v2"] = tenant["calls"].get("cuMemcpyHtoD_v2", 0) - 1
        client.sendall(json.dumps(document).encode())
"""


@pytest.fixture
def small(tmp_path: Path) -> str:
    path = tmp_path / "small.toml"
    path.write_text(SMALL)
    return str(path)


@pytest.fixture
def lying(tmp_path: Path) -> dict[str, str]:
    """A build directory whose proxy lies."""
    directory = tmp_path / "lying"
    directory.mkdir()
    for name in ("software", "vgpu"):
        (directory / name).symlink_to(native_directory() / name)
    script = directory / "gputax-proxy"
    script.write_text(LIAR.format(python=sys.executable, proxy=str(native_directory() / "gputax-proxy")))
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return {"GPUTAX_NATIVE": str(directory)}


@pytest.fixture
def nothing_left(tmp_path: Path) -> dict[str, str]:
    """A directory for temporary files that must be empty at the end."""
    directory = tmp_path / "temporary"
    directory.mkdir()
    return {"TMPDIR": str(directory)}


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Every operation once, with the quick suite: the directory, and what was printed."""
    directory = tmp_path_factory.mktemp("everything")
    words = [sys.executable, "-m", "gputax", "run", "--workload", "micro", *SOFTWARE, "--out", "m"]
    started = time.monotonic()
    done = subprocess.run(words, cwd=directory, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert time.monotonic() - started < 60, "15 s when nothing else runs"
    return directory / "m", done.stdout


def test_every_operation_has_its_place_in_record_table_and_text(everything: tuple[Path, str]) -> None:
    directory, shown = everything
    record = read_document(RUN, directory)
    assert [benchmark.workload for benchmark in record.benchmarks] == list(OPERATIONS)
    assert record.device == "software"
    assert record.device_label == "software device (gputax software device), not a GPU"
    assert record.gpu_info.name == "no GPU used: gputax software device"
    by_name = {benchmark.workload: benchmark for benchmark in record.benchmarks}
    allocate = by_name["micro:allocate"]
    assert allocate.queries >= 1000
    assert allocate.latency_p99_ms is not None
    copy = by_name["micro:copy-in-100MB"]
    assert copy.bandwidth_gb_per_s == pytest.approx(100e6 / (copy.latency_mean_ms * 1e6))
    columns = read_samples(directory / allocate.samples_file)
    assert len(columns["end_ns"]) == allocate.queries
    assert record.evidence["library"] == str((native_directory() / "software/libcuda.so.1").resolve())
    assert "software device (gputax software device), not a GPU" in shown
    assert "µs" in shown
    text = (directory / "micro_results.txt").read_text()
    assert "ops/sec" in text
    assert "(H2D)" in text


def test_the_text_can_be_compared_again(gputax: Gputax, tmp_path: Path, everything: tuple[Path, str]) -> None:
    shutil.copy(everything[0] / "micro_results.txt", tmp_path / "candidate.txt")
    shutil.copy(everything[0] / "micro_results.txt", tmp_path / "mine.txt")
    done = gputax("compare", "mine.txt", "candidate.txt", "--json")
    comparison = Comparison.model_validate_json(done.stdout)
    assert {"throughput", "latency_mean", "host_to_device", "device_to_host"} <= {
        row.metric for row in comparison.metrics
    }
    assert all(row.overhead_percent == 0.0 for row in comparison.metrics)
    (tmp_path / "baseline_results.txt").write_text(
        "- Throughput: 6,977 ops/sec\n- Average Latency: 0.14 ms (140 microseconds)\n"
        "- Memory Bandwidth: 4.31 GB/s (H2D), 4.53 GB/s (D2H)\n"
    )
    done = gputax("compare", "baseline_results.txt", "mine.txt", "--json")
    comparison = Comparison.model_validate_json(done.stdout)
    assert {row.metric for row in comparison.metrics} >= {"throughput", "latency_mean", "host_to_device"}
    assert "software device" in comparison.sides[1].device_label


@pytest.mark.parametrize("transport", ["shm", "unix-socket"])
def test_behind_the_proxy_every_cell_carries_its_proof(
    gputax: Gputax, tmp_path: Path, small: str, nothing_left: dict[str, str], transport: str
) -> None:
    done = gputax("run", "--env", "bare+proxy", "--workload", "micro:operation,micro:allocate", *SOFTWARE,
                  "--suite", small, "--out", "m", GPUTAX_PROXY_TRANSPORT=transport, GPUTAX_SOFT_KERNEL_US="50",
                  **nothing_left)  # fmt: skip
    assert done.returncode == 0, done.stderr + done.stdout
    record = read_document(RUN, tmp_path / "m")
    assert record.device_label == "software device (gputax software device [kernel 50 us]), not a GPU"
    for benchmark in record.benchmarks:
        evidence = benchmark.evidence
        assert evidence["active"] is True
        assert evidence["layer"] == "proxy"
        assert evidence["transport"] == transport
        assert evidence["backend"] == str((native_directory() / "software/libcuda.so.1").resolve())
        assert evidence["library"] == str((native_directory() / "vgpu/libcuda.so.1").resolve())
        assert evidence["calls_by_worker"] == evidence["calls_by_proxy"] > 100
        assert evidence["device_nodes"] == []
        assert evidence["wait_policy"] in ("spin", "adaptive", "sleep")
    assert list(Path(nothing_left["TMPDIR"]).iterdir()) == []


def test_counters_that_do_not_agree_are_invalid_and_no_number(
    gputax: Gputax, tmp_path: Path, small: str, lying: dict[str, str]
) -> None:
    words = ("--workload", "micro:operation", *SOFTWARE)
    done = gputax("run", "--env", "bare+proxy", *words, "--suite", small, "--out", "m", **lying)
    assert done.returncode == 5, done.stderr
    (benchmark,) = read_document(RUN, tmp_path / "m").benchmarks
    assert not benchmark.valid
    assert benchmark.evidence["active"] is False
    assert "cuMemcpyHtoD_v2" in benchmark.evidence["reasons"][0]
    assert "INVALID" in done.stdout
    assert "differ from the worker's calls" in " ".join(done.stdout.split())
    text = (tmp_path / "m/micro_results.txt").read_text()
    assert "Throughput" not in text
    assert "INVALID" in text
    done = gputax("compare", "m", "m", "--json")
    assert all(row["verdict"] != "pass" for row in json.loads(done.stdout)["metrics"])
    done = gputax("duet", "bare", "bare+proxy", *words, "--max-time", "6", "--no-control", "--out", "d", **lying)
    assert done.returncode == 5, done.stdout
    assert "bare+proxy was not active" in done.stderr
    assert not (tmp_path / "d").exists()


@pytest.mark.parametrize("environment", ["bare", "bare+proxy"])
def test_a_worker_that_loaded_another_library_is_invalid(
    gputax: Gputax, tmp_path: Path, small: str, environment: str
) -> None:
    other = tmp_path / "other/libcuda.so.1"
    other.parent.mkdir()
    shutil.copy(native_directory() / "software/libcuda.so.1", other)
    done = gputax("run", "--env", environment, "--workload", "micro:launch", *SOFTWARE, "--suite", small, "--out", "m",
                  LD_PRELOAD=str(other))  # fmt: skip
    assert done.returncode == 5, done.stderr
    (benchmark,) = read_document(RUN, tmp_path / "m").benchmarks
    assert not benchmark.valid
    assert f"the worker loaded {other}" in benchmark.evidence["reasons"][0]


def test_a_bare_worker_behind_somebody_elses_proxy_is_invalid(gputax: Gputax, tmp_path: Path, small: str) -> None:
    done = gputax("exec", "--env", "bare+proxy", *SOFTWARE, "--", sys.executable, "-m", "gputax", "run", "--workload",
                  "micro:launch", "--suite", small, "--out", "m")  # fmt: skip
    assert done.returncode == 5, done.stderr
    assert "went through a GPU proxy" in " ".join(done.stdout.split())


def test_another_library_is_measured_under_its_own_name(gputax: Gputax, tmp_path: Path, small: str) -> None:
    mine = tmp_path / "libmine.so"
    shutil.copy(native_directory() / "software/libcuda.so.1", mine)
    for environment in ("bare", "bare+proxy"):
        done = gputax("run", "--env", environment, "--workload", "micro:launch", "--libcuda", "libmine.so", "--suite",
                      small, "--out", environment)  # fmt: skip
        assert done.returncode == 0, done.stderr + done.stdout
        record = read_document(RUN, tmp_path / environment)
        assert f"as {mine} names it" in record.device_label
        path = record.evidence["library" if environment == "bare" else "backend"]
        assert path == str(mine)


def test_without_native_parts_it_says_how_to_build_them(gputax: Gputax, tmp_path: Path) -> None:
    for words in (("--env", "bare+proxy"), ()):
        done = gputax("run", "--workload", "micro", *SOFTWARE, *words, "--out", "m", GPUTAX_NATIVE=str(tmp_path))
        assert done.returncode == 3
        assert "make native" in done.stderr
        assert not (tmp_path / "m").exists()


def test_auto_says_aloud_that_it_took_the_software_device(gputax: Gputax, tmp_path: Path, small: str) -> None:
    done = gputax("run", "--workload", "micro:launch", "--suite", small, "--out", "m")
    assert done.returncode == 0, done.stderr
    assert "device auto chose software" in done.stderr + done.stdout
    done = gputax("run", "--workload", "micro:launch", "--device", "cuda", "--out", "n")
    assert done.returncode == 3
    assert "--device cuda, but" in done.stderr


def test_the_duet_judges_every_operation(gputax: Gputax, tmp_path: Path) -> None:
    done = gputax("duet", "bare", "bare+proxy", "--workload", "micro:operation,micro:allocate,micro:copy-in-1MiB",
                  *SOFTWARE, "--max-time", "14", "--out", "d", "--json", GPUTAX_SOFT_KERNEL_US="125")  # fmt: skip
    assert done.returncode in (0, 6, 7), done.stderr
    comparison = Comparison.model_validate_json(done.stdout)
    assert list(dict.fromkeys(row.workload for row in comparison.metrics)) == [
        "micro:operation", "micro:allocate", "micro:copy-in-1MiB",
    ]  # fmt: skip
    rows = {(row.workload, row.metric): row for row in comparison.metrics}
    assert rows["micro:operation", "latency_p50"].budget == 5.0
    assert rows["micro:operation", "latency_p50"].budget_source == "budget of the layer proxy"
    bandwidth = rows["micro:copy-in-1MiB", "host_to_device"]
    assert bandwidth.unit == "GB/s"
    assert bandwidth.base_value is not None
    assert bandwidth.base_value > 0.1
    assert ("micro:copy-in-1MiB", "latency_mean") not in rows, "the same time twice"
    base, other = comparison.sides
    assert other.evidence["active"] is True
    assert other.evidence["calls_by_proxy"] > 100
    assert base.device == other.device == "software"
    assert len(comparison.pair_series) == 3
    assert comparison.resolution is not None
    assert set(comparison.settings["workloads"]) == {row.workload for row in comparison.metrics}
    pairs = read_samples(tmp_path / "d/micro_allocate/pairs.parquet")
    assert len(pairs["a_mean_ns"]) == rows["micro:allocate", "latency_mean"].pairs
    done = gputax("report", "d", "--format", "table")
    assert done.returncode == 0, done.stderr
    assert "micro:copy-in-1MiB" in done.stdout


def test_an_interrupt_leaves_no_proxy_behind(tmp_path: Path, nothing_left: dict[str, str]) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "gputax", "duet", "bare", "bare+proxy", "--workload", "micro:operation", *SOFTWARE,
         "--no-control", "--out", "d"],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **nothing_left},
    )  # fmt: skip
    assert process.stderr
    while "measuring" not in process.stderr.readline():
        assert process.poll() is None
    listing = subprocess.run(["ps", "-o", "comm=", "--ppid", str(process.pid)], capture_output=True, text=True).stdout
    assert "gputax-proxy" in listing
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert process.returncode == 130
    assert list(Path(nothing_left["TMPDIR"]).iterdir()) == []


def test_a_coordinator_that_is_killed_takes_its_proxy_along(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "gputax", "run", "--env", "bare+proxy", "--workload", "micro", *SOFTWARE, "--suite",
         "standard", "--out", "m"],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stderr
    while "warm-up" not in process.stderr.readline():
        assert process.poll() is None
    children = workers_of(process.pid)
    assert len(children) == 2
    process.kill()
    process.communicate()
    deadline = time.monotonic() + 10
    while any(Path(f"/proc/{pid}").exists() for pid in children) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(_alive(pid) for pid in children)


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split(")")[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_null_kernels_are_named_everywhere_and_their_outputs_not_compared(
    gputax: Gputax, tmp_path: Path, small: str
) -> None:
    words = ("--workload", "micro:operation", *SOFTWARE, "--suite", small)
    null = ("--soft-kernels", "null", "--soft-kernel-ns", "20000")
    name = "gputax software device, null kernels of 20000 ns"
    for environment, out in (("bare", "direct"), ("bare+proxy", "proxied")):
        done = gputax("run", "--env", environment, *words, *null, "--out", out)
        assert done.returncode == 0, done.stderr + done.stdout
        assert "null kernels" in done.stdout
        record = read_document(RUN, tmp_path / out)
        assert record.device_label == f"software device ({name}), not a GPU"
        (benchmark,) = record.benchmarks
        assert "null kernels" in benchmark.claim
        assert "not inference" in benchmark.claim
        assert benchmark.latency_mean_ms >= 0.02
    compared = gputax("compare", "direct", "proxied")
    assert "null kernels" in compared.stdout
    refused = gputax("run", "--workload", "resnet50", "--engine", "tinygrad", *SOFTWARE, *null, "--out", "m")
    assert refused.returncode != 0
    assert "null kernels has none" in " ".join((refused.stderr + refused.stdout).split())
