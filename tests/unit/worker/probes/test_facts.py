"""What `describe` says of this machine."""

from __future__ import annotations

import json
import sys

import pytest

from gputax.worker.probes.facts import describe


def test_a_description_has_every_part_and_is_json() -> None:
    facts = json.loads(json.dumps(describe()))
    assert set(facts) == {"host", "devices", "cpu_allowance", "packages", "loadgen"}
    assert facts["loadgen"] == {"importable": True, "why": None}
    assert facts["cpu_allowance"]["threads"] >= 1
    assert facts["devices"]["nvml"] in ("ok", "absent")


def test_a_missing_loadgen_is_told_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mlperf_loadgen", None)
    loadgen = describe()["loadgen"]
    assert loadgen["importable"] is False
    assert "mlperf_loadgen" in loadgen["why"]


def test_engines_are_asked_only_on_demand(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "CPUExecutionProvider" in describe(with_engines=True)["onnxruntime"]["providers"]
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    missing = describe(with_engines=True)["onnxruntime"]
    assert (missing["importable"], missing["providers"]) == (False, [])


def test_listening_hears_steal_and_others() -> None:
    noise = describe(listen_s=0.05)["noise"]
    assert noise["seconds"] == 0.05
    assert noise["steal_percent"] >= 0
    assert noise["others_percent_of_core"] >= 0
