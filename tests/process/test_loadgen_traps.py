"""Each known trap of LoadGen, shown to be there and shown to be avoided. Raw LoadGen runs in processes of its own."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import mlperf_loadgen
import numpy as np
import pytest

from gputax.plan.cells import QSL_SEED, SCHEDULE_SEED, Load
from gputax.results.importers.loadgen import parse_detail
from gputax.worker.engines.engine import EngineRequest
from gputax.worker.engines.synthetic import SyntheticEngine
from gputax.worker.loads.loadgen import loadgen_settings, recording_for, run_loadgen
from gputax.worker.samples import SampleArea

RAW = """
import json, os, sys, time
import mlperf_loadgen as lg
def issue(ids, indices): lg.QuerySamplesComplete([lg.QuerySampleResponse(i, 0, 0) for i in ids])
def raw_run(settings, outdir=".", audit="", issue=issue):
    sut = lg.ConstructFastSUT(issue, lambda: None)
    qsl = lg.ConstructQSL(64, 64, lambda samples: None, lambda samples: None)
    log = lg.LogSettings(); log.enable_trace = False; log.log_output.outdir = outdir
    lg.StartTestWithLogSettings(sut, qsl, settings, log, audit)
"""


def raw(code: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run LoadGen bare, without any of our code."""
    return subprocess.run(
        [sys.executable, "-c", RAW + textwrap.dedent(code)],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=60,
    )


def synthetic(latency_us: float = 100.0) -> SyntheticEngine:
    from gputax.plan.engines import parse_engine

    spec = parse_engine(f"synthetic:latency_us={latency_us}")
    return SyntheticEngine(EngineRequest("resnet50", spec.options, "cpu", "fp32", 1, 8))


def area() -> SampleArea:
    return SampleArea({"none": np.zeros((64, 1), dtype=np.int8)}, 8)


def never(error: BaseException) -> None:
    raise AssertionError("the engine failed") from error


def ours(load: Load, latency_us: float = 100.0) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    outcome = run_loadgen(synthetic(latency_us), area(), load, recording_for(load), never)  # type: ignore[arg-type]
    return outcome.columns, outcome.logs


def test_trap_1_a_second_from_config_loses_the_defaults_so_ours_never_calls_it(tmp_path: Path) -> None:
    done = raw(
        """
        open("user.conf", "w").write("*.Server.target_qps = 5\\n")
        bounds = []
        for _ in range(2):
            settings = lg.TestSettings()
            settings.FromConfig("user.conf", "resnet50", "Server")
            bounds.append(settings.server_target_latency_ns)
        print(json.dumps(bounds))
        """,
        tmp_path,
    )
    assert json.loads(done.stdout.splitlines()[-1]) == [15_000_000, 100_000_000], done.stderr
    for _ in range(2):
        settings = loadgen_settings(mlperf_loadgen, Load("server", bound_ns=15_000_000))
        assert settings.server_target_latency_ns == 15_000_000
        assert settings.qsl_rng_seed == QSL_SEED


def test_trap_2_seeds_are_fields_of_ours_and_arrive_in_the_log() -> None:
    _, logs = ours(Load("server", min_queries=20, target_qps=2000, seed_offset=3))
    assert parse_detail(logs["mlperf_log_detail.txt"]).values["effective_schedule_rng_seed"] == SCHEDULE_SEED + 3


def test_trap_3_an_audit_file_in_the_working_directory_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "audit.config").write_text("*.*.min_query_count = 3\n*.*.performance_issue_same = 1\n")
    monkeypatch.chdir(tmp_path)
    columns, logs = ours(Load("single-stream", min_queries=80))
    assert len(columns["end_ns"]) == 80
    assert not parse_detail(logs["mlperf_log_detail.txt"]).values.get("effective_performance_issue_same")


def test_trap_4_a_missing_log_directory_aborts_the_process_so_ours_always_exists(tmp_path: Path) -> None:
    done = raw("raw_run(lg.TestSettings(), outdir='not/there')", tmp_path)
    # Threads that still run while it aborts make it a SIGSEGV now and then.
    assert done.returncode in (-signal.SIGABRT, -signal.SIGSEGV)
    _, logs = ours(Load("single-stream", min_queries=64))
    assert logs["mlperf_log_summary.txt"]


def test_trap_5_an_exception_in_a_callback_ends_raw_loadgen_with_an_abort(tmp_path: Path) -> None:
    # That ours answers with the cause and exit code 0 is in the worker's contract.
    code = """
        def broken(ids, indices): raise ValueError("boom")
        settings = lg.TestSettings(); settings.min_duration_ms = 10
        raw_run(settings, issue=broken)
        """
    assert raw(code, tmp_path).returncode < 0, "a signal: SIGABRT or SIGSEGV"


def test_traps_6_and_7_no_trace_is_written() -> None:
    _, logs = ours(Load("single-stream", min_queries=64))
    assert set(logs) == {"mlperf_log_summary.txt", "mlperf_log_detail.txt"}


def test_trap_8_our_figures_have_every_digit() -> None:
    # One stall of the host between the two clocks is more than 5 % of 10 ms: the best of three counts.
    apart = []
    for _ in range(3):
        columns, logs = ours(Load("offline", batch_size=8, min_queries=4000, expected_qps=1.0), latency_us=20)
        rate = 4000 / ((columns["end_ns"].max() - columns["start_ns"].min()) / 1e9)
        theirs = parse_detail(logs["mlperf_log_detail.txt"]).metrics["result_samples_per_second"]
        assert theirs == float(f"{theirs:.6g}"), "LoadGen logs six digits"
        apart.append(abs(rate / theirs - 1))
    assert min(apart) < 0.05


def test_trap_9_the_timer_slack_is_one_nanosecond_while_load_is_applied() -> None:
    from gputax.worker.loads.recording import quiet_interpreter

    slack = Path("/proc/self/timerslack_ns")
    before = slack.read_text()
    with quiet_interpreter():
        assert slack.read_text().strip() == "1"
    assert slack.read_text() == before


def test_trap_10_threads_switch_quickly_and_nothing_is_collected_while_load_is_applied() -> None:
    import gc

    from gputax.worker.loads.recording import SWITCH_INTERVAL_S, quiet_interpreter

    before = sys.getswitchinterval()
    with quiet_interpreter():
        assert sys.getswitchinterval() == pytest.approx(SWITCH_INTERVAL_S)
        assert not gc.isenabled()
    assert sys.getswitchinterval() == pytest.approx(before)
    assert gc.isenabled()


def test_trap_11_a_run_that_is_too_fast_for_its_hint_is_invalid_so_the_hint_has_a_reserve() -> None:
    _, logs = ours(Load("single-stream", min_duration_s=0.5, min_queries=64, expected_latency_ns=10_000_000), 100)
    assert not parse_detail(logs["mlperf_log_detail.txt"]).valid
    _, logs = ours(Load("single-stream", min_duration_s=0.5, min_queries=64, expected_latency_ns=50_000), 100)
    assert parse_detail(logs["mlperf_log_detail.txt"]).valid


def test_trap_12_swallowed_exceptions_still_give_valid_in_raw_loadgen(tmp_path: Path) -> None:
    # That ours fails such a cell is in the worker's contract and in test_faults.
    code = """
        def swallowing(ids, indices):
            try: raise RuntimeError("inference broke")
            except RuntimeError: issue(ids, indices)
        settings = lg.TestSettings(); settings.min_duration_ms = 10; settings.single_stream_expected_latency_ns = 100
        raw_run(settings, issue=swallowing)
        print(open("mlperf_log_summary.txt").read())
        """
    assert "Result is : VALID" in raw(code, tmp_path).stdout


def test_a_second_run_in_one_process_is_as_good_as_the_first() -> None:
    for _ in range(2):
        columns, logs = ours(Load("single-stream", min_queries=64))
        assert len(columns["end_ns"]) == 64
        assert parse_detail(logs["mlperf_log_detail.txt"]).valid
