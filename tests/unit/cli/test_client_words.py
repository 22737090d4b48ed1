"""What `gputax client` understands, refuses and says."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner

from gputax.cli import client as module
from gputax.cli.client import client, time_ns
from gputax.errors import EngineError, GputaxError, UsageError
from gputax.plan.cells import Setup
from gputax.report.tenant_summary import Summary, one_line, progress_line
from gputax.worker.tenant.client import Course, TenantPlan
from gputax.worker.tenant.tally import Tally

SECOND_NS = 10**9
LABELS = {"device": "cpu", "device_label": "CPU (A CPU), not a GPU", "technique": "cpu-shared"}


@pytest.mark.parametrize(
    ("text", "expected"), [("100ms", 100_000_000), ("0.5s", 500_000_000), ("250us", 250_000), ("1.5µs", 1500)]
)
def test_times_have_a_unit(text: str, expected: int) -> None:
    assert time_ns(text, "--goodput") == expected


@pytest.mark.parametrize("text", ["100", "", "0ms", "-1ms", "nanms", "1e3ms", "5 minutes"])
def test_what_is_no_time_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(UsageError) as refused:
        time_ns(text, "--goodput")
    assert refused.value.next_step == "e.g. --goodput 100ms"


def planned(monkeypatch: pytest.MonkeyPatch, *words: str, **environ: str) -> TenantPlan:
    """Return the plan of a command line, without running it."""
    plans: list[TenantPlan] = []

    def instead(setup: Setup) -> int:
        return 0

    made = module._plan

    def kept(chosen: Any) -> TenantPlan:
        plans.append(made(chosen))
        return plans[-1]

    monkeypatch.setattr(module, "_plan", kept)
    monkeypatch.setattr(module, "_beside_its_driver", instead)
    done = CliRunner().invoke(client, list(words), env=environ, standalone_mode=False)
    if done.exception is not None:
        raise done.exception
    return plans[0]


def test_by_default_it_is_the_users_own_tenant(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = planned(monkeypatch)
    assert (plan.setup.workload, plan.batch, plan.duration_s, plan.rate_per_s) == ("yolos-small", 1, 0.0, 0.0)
    assert plan.setup.engine == "onnx:spin=false", "threads that wait leave the CPU to the other tenants"
    assert planned(monkeypatch, "--engine", "onnx:spin=true").setup.engine == "onnx:spin=true"


def test_options_are_understood(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = planned(
        monkeypatch, "--workload", "resnet50", "--batch", "8", "--threads", "1", "--duration", "2m", "--rate", "20/s"
    )
    assert (plan.setup.max_batch, plan.setup.sample_count, plan.setup.threads) == (8, 8, 1)
    assert (plan.duration_s, plan.rate_per_s) == (120.0, 20.0)


def test_micro_has_the_drivers_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    assert planned(monkeypatch, "--workload", "micro:launch", "--device", "software").setup.engine == "driver"


def test_the_manifest_may_name_the_technique(monkeypatch: pytest.MonkeyPatch) -> None:
    assert planned(monkeypatch, GPUTAX_TECHNIQUE="mps").technique == "mps"
    assert planned(monkeypatch, "--technique", "mig", GPUTAX_TECHNIQUE="mps").technique == "mig"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--workload", "resnet51"], "unknown workload 'resnet51'"),
        (["--workload", "micro"], "one operation of micro"),
        (["--engine", "onx"], "unknown engine 'onx'"),
        (["--device", "gpu"], "unknown device 'gpu'"),
        (["--technique", "mpss"], "unknown technique 'mpss'"),
        (["--precision", "int4"], "unknown precision 'int4'"),
        (["--rate", "0"], "--rate '0' is not a rate above zero"),
        (["--rate", "fast"], "--rate 'fast' is not a rate per second: a plain number, with or without /s"),
        (["--duration", "0"], "--duration 0 leaves no time"),
        (["--duration", "soon"], "--duration 'soon' is not a time"),
        (["--goodput", "100"], "--goodput '100' is not a time above zero"),
        (
            ["--device", "software", "--engine", "synthetic"],
            "--device software is for the engines that call the driver",
        ),
        (["--device", "software", "--engine", "onnx"], "which libvgpu and the software device take only if asked to"),
        (["--workload", "micro:launch", "--device", "cpu"], "the engine driver has no CPU device"),
    ],
)
def test_a_wrong_word_is_refused_with_the_next_step(words: list[str], said: str) -> None:
    done = CliRunner().invoke(client, words, standalone_mode=False)
    assert isinstance(done.exception, GputaxError)
    assert said in done.exception.what
    assert done.exception.next_step
    assert done.exception.exit_code == 2


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1e9/s", "is not a rate per second: a plain number, with or without /s"),
        ("5/m", "is not a rate per second: a plain number, with or without /s"),
        ("1000001/s", "is more than 1000000/s"),
        ("9" * 400, "is more than 1000000/s"),
    ],
)
def test_a_rate_says_its_format_and_its_limit(text: str, said: str) -> None:
    done = CliRunner().invoke(client, ["--rate", text], standalone_mode=False)
    assert isinstance(done.exception, UsageError)
    assert said in done.exception.what
    for word in ("--rate 20/s", "--rate 0.5", "at most 1000000/s", "in a minute"):
        assert word in done.exception.next_step


@pytest.mark.parametrize(("text", "per_s"), [("20/s", 20.0), ("0.5", 0.5), ("1000000/s", 1e6)])
def test_a_rate_is_per_second_with_or_without_saying_so(
    monkeypatch: pytest.MonkeyPatch, text: str, per_s: float
) -> None:
    assert planned(monkeypatch, "--rate", text).rate_per_s == per_s


def summary(latencies_ns: list[int], *, target_ns: int = 0, error: BaseException | None = None, **more: Any) -> Summary:
    tally = Tally(target_ns)
    for latency_ns in latencies_ns:
        tally.done(latency_ns)
    unserved = more.pop("unserved", 0)
    plan = TenantPlan(Setup("yolos-small"), **more)
    course = Course(LABELS, started_ns=1, ended_ns=1 + 2 * SECOND_NS, unserved=unserved)
    return Summary.of(plan, tally, course, "http://h:1/metrics", "SIGTERM", error)


def test_the_summary_is_one_line_with_the_device_and_what_it_is() -> None:
    text = one_line(summary([10_000_000] * 99 + [30_000_000], target_ns=10_000_000))
    assert text == (
        "yolos-small on CPU (A CPU), not a GPU: 100 inferences in 2.0 s, 50/s, mean 10.2 ms, p50 10 ms, p90 10 ms, "
        "99 % within 10 ms, 0 errors"
    )


def test_a_percentile_with_too_few_runs_is_not_told() -> None:
    few, many = summary([10_000_000] * 9), summary([10_000_000] * 700)
    assert (few.p50_ms, few.p90_ms, few.p99_ms) == (None, None, None)
    assert "p50" not in one_line(few)
    assert (many.p50_ms, many.p90_ms, many.p99_ms) == (10.0, 10.0, 10.0)


def test_unserved_arrivals_are_told_aloud() -> None:
    assert "7 arrivals unserved: the device is slower than the rate" in one_line(
        summary([1_000_000], rate_per_s=50.0, unserved=7)
    )
    assert summary([1_000_000]).unserved is None


def test_nothing_counted_gives_no_figures() -> None:
    nothing = summary([])
    assert one_line(nothing) == "yolos-small on CPU (A CPU), not a GPU: no inference was counted, 0 errors"
    assert (nothing.mean_ms, nothing.inferences_per_s, nothing.max_ms) == (None, None, None)


def test_the_json_object_says_what_the_number_is_and_is_not() -> None:
    data = json.loads(summary([20_000_000] * 70, rate_per_s=5.0, error=EngineError("broken")).to_json())
    assert data["mean_ms"] == 20.0
    assert (data["ended_by"], data["error"], data["technique"]) == ("error", "broken", "cpu-shared")
    assert data["claim"].startswith("Poisson arrivals without LoadGen")
    assert "CPU number, not a GPU's" in data["claim"]


def test_progress_is_of_the_last_seconds() -> None:
    tally = Tally()
    for _ in range(4):
        tally.done(20_000_000)
    tally.failed()
    line = progress_line(tally.counts(), 2, 40_000_000, 10.0)
    assert line == "    4 inferences, 0.2 runs/s, mean 20 ms in the last 10 s, 1 errors"
    assert progress_line(tally.counts(), 0, 0, 10.0) == "    4 inferences, 1 errors"
