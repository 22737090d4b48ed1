"""The order of a self-test, and what it leaves out, with sides that are made up."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from gputax.api.selftest import HEADLINE_DUETS, RUNTIME_DUETS, _duet, headline_duets, selftest
from gputax.errors import Interrupted, PreflightError, UsageError
from gputax.plan.driver import DriverChoice
from gputax.selftest import execution
from gputax.selftest.checks import BARE, Reply
from gputax.selftest.execution import Selftest
from gputax.selftest.plan import WITHOUT_ANSWERS, Request
from gputax.selftest.sides import Side

PROVEN = {"active": True}
OUTPUTS = {"digests": ["aa", "bb"], "computed": True}


@pytest.fixture
def sides(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What both sides answer to anything; a function of the environment may be put in its place."""
    told: dict[str, Any] = {"outputs": lambda side: OUTPUTS, "runtime": lambda side: Reply(evidence=PROVEN)}

    def asked(self: Side, group: str, images: object, **more: Any) -> Reply:
        if group == "runtime":
            return told["runtime"](self.environment)  # type: ignore[no-any-return]
        answer = {"answer": "x", "time": {"kernel": "k", "blocks": 1, "threads": 2, "us": 3.0}}
        return Reply(({"name": "q", "answer": answer},), f"device of {self.environment}", evidence=PROVEN)

    def outputs(self: Side, setup: object, name: str) -> Reply:
        answer = told["outputs"](self.environment)
        return answer if isinstance(answer, Reply) else Reply(({"name": name, "answer": answer},), evidence=PROVEN)

    monkeypatch.setattr(Side, "asked", asked)
    monkeypatch.setattr(Side, "outputs", outputs)
    monkeypatch.setattr(execution, "images", dict)
    return told


def found(request: Request) -> tuple[execution.Findings, list[str]]:
    steps: list[str] = []
    return Selftest(request, lambda text: None).ask(steps.append), steps


def by_name(findings: execution.Findings, group: str) -> dict[str, tuple[str, str]]:
    return {check.name: (check.status, check.reason) for check in findings.checks if check.group == group}


def test_times_and_the_name_are_those_of_the_bare_side(sides: dict[str, Any]) -> None:
    findings, steps = found(Request(DriverChoice("software"), quick=True, only=("kernels",)))
    assert findings.device_name == "device of bare"
    assert findings.kernel_times == [{"kernel": "k", "blocks": 1, "threads": 2, "us": 3.0}]
    assert steps == ["kernels with known answers"]
    assert set(findings.evidence) == {"kernels"}


def test_a_model_whose_bytes_differ_is_found(sides: dict[str, Any]) -> None:
    sides["outputs"] = lambda side: {**OUTPUTS, "digests": ["aa", "bb" if side == BARE else "cc"]}
    findings, steps = found(Request(DriverChoice("software"), only=("models",)))
    status, reason = by_name(findings, "models")["resnet50 with tinygrad"]
    assert (status, reason) == ("different", "at digests[1]: bare 'bb', bare+proxy 'cc'")
    assert steps == ["resnet50 with tinygrad, byte by byte"]


def test_an_engine_that_is_not_installed_is_skipped_and_one_that_fails_behind_the_proxy_is_not(
    sides: dict[str, Any],
) -> None:
    request = Request(DriverChoice("cuda"), cuda_runtime=True, only=("models",), models=("resnet50",))
    sides["outputs"] = lambda side: Reply(failure="torch is not installed", is_missing=True)
    assert set(by_name(found(request)[0], "models").values()) >= {("skipped", "torch is not installed")}
    sides["outputs"] = lambda side: OUTPUTS if side == BARE else Reply(failure="no provider", is_missing=True)
    failed = by_name(found(request)[0], "models")["(bare+proxy)"]
    assert failed == ("fail", "bare+proxy ended: no provider")


def test_outputs_of_null_kernels_are_never_compared(sides: dict[str, Any]) -> None:
    sides["outputs"] = lambda side: {**OUTPUTS, "digests": [side], "computed": False}
    findings, _ = found(Request(DriverChoice("software"), only=("models",)))
    assert by_name(findings, "models")["resnet50 with tinygrad"][0] == "skipped"


NULL = Request(DriverChoice("software"), cuda_runtime=True, null_kernels=True, only=("models",))


def test_with_null_kernels_the_launches_of_frameworks_are_compared(sides: dict[str, Any]) -> None:
    sides["outputs"] = lambda side: {"launches": [220, 220], "computed": False}
    findings, steps = found(NULL)
    statuses = {name: status for name, (status, _) in by_name(findings, "models").items()}
    assert statuses["resnet50 with onnx"] == statuses["resnet50 with torch"] == "pass"
    assert statuses["resnet50 with tinygrad"] == "skipped"
    assert steps == [f"resnet50 with {engine}, launches of null kernels" for engine in ("onnx", "torch")]
    sides["outputs"] = lambda side: {"launches": [220, 220 if side == BARE else 219], "computed": False}
    assert by_name(found(NULL)[0], "models")["resnet50 with torch"] == (
        "different", "at launches[1]: bare 220, bare+proxy 219",
    )  # fmt: skip


def test_groups_that_kernels_answer_are_skipped_with_null_kernels_and_the_others_asked(sides: dict[str, Any]) -> None:
    only = ("copies", "kernels", "runtime")
    findings, steps = found(dataclasses.replace(NULL, only=only))
    assert steps == ["copies, all sizes and alignments"]
    found_here = {check.group: (check.status, check.reason) for check in findings.checks}
    assert found_here["copies"] == ("pass", "")
    assert found_here["kernels"] == found_here["runtime"] == ("skipped", WITHOUT_ANSWERS)


def test_quick_leaves_models_out_and_the_runtime_needs_the_operators_word(sides: dict[str, Any]) -> None:
    findings, _ = found(Request(DriverChoice("software"), quick=True, only=("models", "runtime")))
    assert by_name(findings, "models") == {}
    assert by_name(findings, "runtime")["the program"][0] == "skipped"
    sides["runtime"] = lambda side: Reply(failure="no libcudart.so was found", is_missing=True)
    findings, _ = found(Request(DriverChoice("software"), cuda_runtime=True, only=("runtime",)))
    assert by_name(findings, "runtime")["the program"] == ("skipped", "no libcudart.so was found")


def test_a_duet_that_cannot_be_measured_says_why_and_an_interrupt_goes_on(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, Any] = {}

    def duet(*words: str, **more: Any) -> None:
        asked.update(more)
        raise PreflightError("tinygrad is not installed")

    monkeypatch.setattr("gputax.api.duets.duet", duet)
    found = _duet("resnet50", "", Request(DriverChoice("cuda")), tmp_path, 9.0, lambda text: None)
    assert (found.failure, found.directory, asked["device"]) == ("tinygrad is not installed", "duet-resnet50", "cuda")
    assert "soft_kernel_us" not in asked
    found = _duet("resnet50", "torch", NULL, tmp_path, 9.0, lambda text: None)
    assert (found.workload, found.directory, asked["engine"]) == ("resnet50 with torch", "duet-resnet50-torch", "torch")
    assert asked["command"].endswith("--device software --engine torch --cuda-runtime --soft-kernels null")
    monkeypatch.setattr("gputax.api.duets.duet", lambda *words, **more: (_ for _ in ()).throw(Interrupted("stopped")))
    with pytest.raises(Interrupted):
        _duet("micro:operation", "", Request(DriverChoice("software")), tmp_path, 9.0, lambda text: None)


def test_null_kernels_in_front_of_a_gpu_are_refused_before_anything_starts(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUTAX_SOFT_KERNELS", "null")
    with pytest.raises(UsageError, match="null kernels compute nothing"):
        selftest("cuda", out=tmp_path)


def test_duets_of_frameworks_need_the_operators_word_and_a_device_that_takes_their_kernels() -> None:
    software, gpu = DriverChoice("software"), DriverChoice("cuda")
    assert headline_duets(Request(software, cuda_runtime=True)) == HEADLINE_DUETS
    assert headline_duets(Request(gpu)) == HEADLINE_DUETS
    assert headline_duets(Request(gpu, cuda_runtime=True)) == (*HEADLINE_DUETS, *RUNTIME_DUETS)
    assert headline_duets(NULL) == RUNTIME_DUETS
    assert headline_duets(dataclasses.replace(NULL, cuda_runtime=False)) == ()
