"""A model through the whole tool on the software device: behind the GPU proxy, with its evidence and its faults."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gputax.environments.driver import SOFTWARE_DEVICE, native_directory, native_part
from gputax.environments.proxy import ProxyOptions, own_proxy
from gputax.results.documents.comparison import Comparison
from gputax.results.documents.run import RunRecord
from gputax.results.reading import RUN, SHARING
from gputax.results.store import read_document
from gputax.worker.engines import reference, tinygrad
from gputax.worker.workloads.model_store import file_sha256
from tests.builders.small_models import small_classifier, small_store
from tests.standins.command import TINY_SUITE
from tests.standins.started import end_all, start, wait_for, workers_of

Gputax = Callable[..., subprocess.CompletedProcess[str]]
MODEL = ("--workload", "resnet50", "--device", "software")
QUICK = ("--scenario", "single-stream", "--suite", "tiny.toml")


@pytest.fixture(autouse=True)
def _store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store whose ResNet-50 is small: the real one takes 11 s an inference on the interpreter."""
    monkeypatch.setenv("GPUTAX_MODELS", str(small_store(tmp_path / "models")))
    monkeypatch.setenv("GPUTAX_ACCEPT_DISTURBED", "1")
    (tmp_path / "tiny.toml").write_text(TINY_SUITE)


def record_of(directory: Path) -> RunRecord:
    return read_document(RUN, directory)


@pytest.mark.parametrize("transport", ["shm", "unix-socket"])
def test_a_model_behind_the_proxy_carries_its_proof(gputax: Gputax, tmp_path: Path, transport: str) -> None:
    done = gputax("run", "--env", "bare+proxy", *MODEL, *QUICK, "--out", "m", GPUTAX_PROXY_TRANSPORT=transport)
    assert done.returncode == 0, done.stderr + done.stdout
    assert "engine tinygrad chosen" in done.stderr
    record = record_of(tmp_path / "m")
    assert record.device_label == "software device (gputax software device), not a GPU"
    (benchmark,) = record.benchmarks
    assert benchmark.valid
    evidence = benchmark.evidence
    assert evidence["active"] is True
    assert evidence["layer"] == "proxy"
    assert evidence["transport"] == transport
    assert evidence["library"] == str((native_directory() / "vgpu/libcuda.so.1").resolve())
    assert evidence["backend"] == str((native_directory() / "software/libcuda.so.1").resolve())
    assert evidence["device_nodes"] == []
    assert evidence["calls_by_worker"] == evidence["calls_by_proxy"]
    launches = sum(evidence["calls"].get(name, 0) for name in ("cuLaunchKernel", "cuGraphLaunch"))
    assert launches >= benchmark.queries, "each query really went to the device"


def test_every_scenario_of_loadgen_runs_a_model_on_the_software_device(gputax: Gputax, tmp_path: Path) -> None:
    scenarios = "offline,server,single-stream,multi-stream,saturate"
    done = gputax("run", *MODEL, "--engine", "tinygrad", "--scenario", scenarios, "--suite", "tiny.toml", "--out", "m")
    assert done.returncode in (0, 5), done.stderr + done.stdout
    assert "engine tinygrad chosen" not in done.stderr, "it was asked for"
    record = record_of(tmp_path / "m")
    assert not record.failures
    assert {each.scenario.replace("_", "-") for each in record.benchmarks} == set(scenarios.split(","))
    assert {each.engine for each in record.benchmarks} == {"tinygrad"}


def test_the_duet_of_a_model_is_an_ordinary_command(gputax: Gputax, tmp_path: Path) -> None:
    own = small_classifier(tmp_path / "own.onnx", seed=3)
    done = gputax("duet", "bare", "bare+proxy", "--model", str(own), "--max-time", "10",
                  "--no-control", "--out", "d", "--json")  # fmt: skip
    assert done.returncode in (0, 6, 7), done.stderr
    assert "engine tinygrad chosen" in done.stderr
    comparison = Comparison.model_validate_json(done.stdout)
    base, other = comparison.sides
    assert base.device == other.device == "software"
    assert base.fingerprint["weights"] == other.fingerprint["weights"] == "own"
    assert base.fingerprint["weights_sha256"] == file_sha256(own)
    assert {row.workload for row in comparison.metrics} == {f"own.onnx@{file_sha256(own)[:12]}"}
    assert {each["how"] for side in (base, other) for each in side.evidence["answers_checked"].values()} <= {
        reference.IN_FULL,
        tinygrad.KEPT,
    }
    assert other.evidence["active"] is True
    assert other.evidence["calls_by_proxy"] == other.evidence["calls_by_worker"] > 10
    assert any(row.metric == "latency_mean" and row.overhead_percent is not None for row in comparison.metrics)


def test_tenants_of_one_proxy_share_it_with_a_model_each(gputax: Gputax, tmp_path: Path) -> None:
    done = gputax(
        "share", "--tech", "proxy", *MODEL, "--tenants", "1,2", "--repeats", "1", "--window", "1s", "--out", "s"
    )
    assert done.returncode == 0, done.stderr + done.stdout
    assert "engine tinygrad chosen" in done.stderr
    record = read_document(SHARING, tmp_path / "s")
    assert [cell.tenants for cell in record.cells] == [1, 2]
    assert all(cell.valid for cell in record.cells)
    assert "takes no time itself" not in done.stdout, "a model computes on it"


def test_a_model_that_does_not_fit_the_quota_is_out_of_memory_with_the_tensors_name(
    gputax: Gputax, tmp_path: Path
) -> None:
    models = small_store(tmp_path / "large", hidden=512)
    with own_proxy(ProxyOptions(native_part(SOFTWARE_DEVICE), memory_mb=1), os.environ) as address:
        done = gputax("run", "--env", "bare+proxy", *MODEL, *QUICK, "--out", "m", GPUTAX_MODELS=str(models),
                      GPUTAX_PROXY_SOCKET=str(address.socket))  # fmt: skip
    assert done.returncode == 4, done.stderr + done.stdout
    (failure,) = record_of(tmp_path / "m").failures
    assert "CUDA out of memory: the tensor product (2.0 MB) does not fit" in failure.what
    assert "--memory-mb" in failure.next


def test_a_proxy_killed_in_the_middle_of_an_inference_fails_its_cell_and_the_next_one_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUTAX_SOFT_KERNEL_US", "20000")
    words = ("--env", "bare+proxy", *MODEL, "--suite", "tiny.toml", "--scenario", "single-stream,saturate")
    try:
        process = start(tmp_path, "run", *words, "--out", "m")
        wait_for(process, "measuring")
        time.sleep(0.5)
        (proxy,) = (pid for pid in workers_of(process.pid) if Path(f"/proc/{pid}/comm").read_text() == "gputax-proxy\n")
        os.kill(proxy, signal.SIGKILL)
        assert process.wait(100) == 4, process.stderr and process.stderr.read()
    finally:
        end_all()
    record = record_of(tmp_path / "m")
    (failure,) = record.failures
    assert "CUDA Error" in failure.what
    assert "proxy" in failure.next
    (benchmark,) = record.benchmarks
    assert benchmark.scenario == "saturate"
    assert benchmark.valid


def test_a_damaged_capture_is_a_warning_and_the_run_is_valid(gputax: Gputax, tmp_path: Path) -> None:
    first = gputax("run", *MODEL, *QUICK, "--out", "m")
    assert first.returncode == 0, first.stderr
    (capture,) = (tmp_path / "models/captures").glob("*.capture")
    capture.write_bytes(capture.read_bytes()[:-1])
    again = gputax("run", *MODEL, *QUICK, "--out", "n")
    assert again.returncode == 0, again.stderr
    (warning,) = (each for each in record_of(tmp_path / "n").warnings if each.code == "capture")
    assert str(capture) in warning.text
    assert "damaged" in warning.text


def test_without_tinygrad_it_says_how_to_install_it(gputax: Gputax, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import importlib.metadata as metadata\nreal = metadata.version\n"
        "def version(name):\n"
        "    if name == 'tinygrad': raise metadata.PackageNotFoundError(name)\n"
        "    return real(name)\n"
        "metadata.version = version\n"
    )
    path = os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH"))))
    done = gputax("run", "--env", "bare+proxy", *MODEL, *QUICK, "--out", "m", PYTHONPATH=path)
    assert done.returncode == 3, done.stderr
    assert "tinygrad is not installed" in done.stderr
    assert "pip install 'gputax[tinygrad]'" in done.stderr
    shown = gputax("doctor", "--json", PYTHONPATH=path).stdout
    assert any(each["title"] == "tinygrad is not installed" for each in json.loads(shown)["findings"])


def test_the_users_settings_for_tinygrad_reach_neither_it_nor_the_users_cache(gputax: Gputax, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    done = gputax("run", *MODEL, *QUICK, "--out", "m", DEBUG="7", DEV="CPU", JIT="0", CUDA_PATH="/usr/local/cuda",
                  XDG_CACHE_HOME=str(cache), HOME=str(tmp_path / "nobody"))  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "buffer: allocate" not in done.stderr, "DEBUG=7 would print every allocation"
    assert not (cache / "tinygrad").exists()
    assert not (tmp_path / "nobody/.cache/tinygrad").exists()


def test_a_tenant_says_which_engine_it_chose_for_the_software_device(gputax: Gputax) -> None:
    done = gputax("client", *MODEL, "--duration", "1s", "--warmup", "0", "--port", "0", "--address", "127.0.0.1")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("engine tinygrad chosen") == 1, "once, although the command starts itself again"
