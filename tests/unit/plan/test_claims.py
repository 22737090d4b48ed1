from __future__ import annotations

import pytest

from gputax.plan.claims import claim, computes_nothing, device_label


def test_a_cpu_number_is_never_taken_for_a_gpus() -> None:
    assert device_label("cpu", "AMD EPYC") == "CPU (AMD EPYC), not a GPU"
    assert device_label("cuda", "Tesla T4") == "GPU (Tesla T4)"
    assert "CPU number, not a GPU's" in claim("offline", "onnx", "cpu", "seeded", official=True, is_mlperf_model=True)


def test_a_short_loadgen_run_is_no_mlperf_result() -> None:
    text = claim("server", "onnx", "cuda", "official", official=False, is_mlperf_model=True)
    assert text == "LoadGen scenario below MLPerf's minimums, not an MLPerf result"


def test_even_official_settings_are_not_a_reviewed_result() -> None:
    text = claim("server", "onnx", "cuda", "official", official=True, is_mlperf_model=True)
    assert text == "LoadGen scenario at MLPerf's settings, not a reviewed MLPerf result"


def test_yolos_is_never_called_an_mlperf_model() -> None:
    text = claim("offline", "onnx", "cuda", "file", official=True, is_mlperf_model=False)
    assert "not an MLPerf model" in text
    assert "not an MLPerf result" in text


def test_seeded_weights_claim_no_accuracy() -> None:
    assert "no accuracy" in claim("offline", "onnx", "cuda", "seeded", official=False, is_mlperf_model=True)


def test_synthetic_numbers_say_nothing_of_a_device() -> None:
    assert "says nothing of any device" in claim(
        "offline", "synthetic", "cpu", "none", official=True, is_mlperf_model=True
    )


def test_null_kernels_are_the_control_path_and_never_inference() -> None:
    name = "gputax software device, null kernels of 5000 ns"
    assert computes_nothing(name)
    assert not computes_nothing("gputax software device [kernel 5 us]")
    assert "null kernels" in device_label("software", name)
    text = claim("offline", "torch", "software", "seeded", official=False, is_mlperf_model=True, device_name=name)
    assert "null kernels" in text
    assert "not inference" in text


@pytest.mark.parametrize("emulated", [False, True])
def test_an_emulated_hypervisor_claims_no_time(emulated: bool) -> None:
    text = claim("offline", "onnx", "cpu", "seeded", official=False, is_mlperf_model=True, emulated=emulated)
    assert ("emulated hypervisor: the run proves function" in text) is emulated
