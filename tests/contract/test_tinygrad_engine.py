"""The engine tinygrad on the software device: right answers, its own settings, captures that are kept and checked."""

from __future__ import annotations

import ctypes
import dataclasses
import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest

from gputax.api import own_model
from gputax.environments.driver import SOFTWARE_DEVICE, native_part
from gputax.errors import EngineError, PreflightError
from gputax.plan.engines import parse_engine
from gputax.worker.engines import load_engine, reference, tinygrad, tinygrad_package
from gputax.worker.engines.engine import EngineRequest
from gputax.worker.engines.tinygrad_captures import FORMAT, Proof
from gputax.worker.engines.tinygrad_package import Package
from gputax.worker.samples import SampleArea
from gputax.worker.workloads import load_workload
from tests.builders.small_models import small_classifier, write_network

MAX_BATCH = 2
Opened = tuple[Any, SampleArea]
Open = Callable[..., Opened]


@pytest.fixture
def opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Open:
    """Load the small model on the software device; captures are kept in a folder of the test's own."""
    ctypes.CDLL(str(native_part(SOFTWARE_DEVICE)), mode=ctypes.RTLD_GLOBAL)
    monkeypatch.setenv("GPUTAX_MODELS", str(tmp_path))
    path = small_classifier(tmp_path / "small.onnx")

    def start(spec: str = "tinygrad", seed: int = 7, **changes: Any) -> Opened:
        values: dict[str, Any] = {"own": own_model(path), "max_batch": MAX_BATCH, "precision": "fp32"}
        engine: Any = load_engine(
            "tinygrad",
            EngineRequest("resnet50", parse_engine(spec).options, "software", threads=1, **{**values, **changes}),
        )
        area = SampleArea(engine.adapt_inputs(load_workload("resnet50").synthetic_inputs(8, seed)), MAX_BATCH)
        engine.load_samples(area.arrays)
        return engine, area

    return start


def answers(engine: Any, rows: int) -> np.ndarray:
    """What LoadGen is shown: read from the address that the engine names."""
    floats = (ctypes.c_float * (rows * 1000)).from_address(engine.response_address)
    return np.array(floats).reshape(rows, 1000)


def expected(area: SampleArea, rows: list[int], folder: Path) -> np.ndarray:
    feeds = {"pixel_values": area.arrays["pixel_values"][rows]}
    return np.asarray(reference.reference_answers(str(folder / "small.onnx"), feeds, 1)["logits"])


@pytest.mark.parametrize("rows", [[0], [3], [4, 5], [7, 1]])
def test_gives_the_answers_of_exactly_the_rows_that_were_asked_for(
    opened: Open, tmp_path: Path, rows: list[int]
) -> None:
    engine, area = opened()
    consecutive = rows == list(range(rows[0], rows[0] + len(rows)))
    engine.run(rows[0] if consecutive else area.gather(rows), len(rows))
    assert np.allclose(answers(engine, len(rows)), expected(area, rows, tmp_path), rtol=1e-4, atol=1e-4)
    assert engine.response_bytes == 4000
    engine.close()


def test_with_copies_excluded_the_outputs_stay_on_the_device_and_are_right(opened: Open, tmp_path: Path) -> None:
    engine, area = opened("tinygrad:copies=excluded")
    for rows in ([2, 3], [6, 7]):
        engine.run(rows[0], 2)
        engine.run(rows[0], 2)
        on_device = engine._captured[2].outputs["logits"].numpy()
        assert np.allclose(on_device, expected(area, rows, tmp_path), rtol=1e-4, atol=1e-4)
    engine.run(area.gather([5, 0]), 2)
    engine.run(area.gather([1, 4]), 2)
    on_device = engine._captured[2].outputs["logits"].numpy()
    assert np.allclose(on_device, expected(area, [1, 4], tmp_path), rtol=1e-4, atol=1e-4), "gathered rows are read anew"
    engine.close()


def test_says_what_ran_and_through_which_driver(opened: Open) -> None:
    before = mapped_nvrtc()  # another test of this process may have loaded it
    engine, _ = opened()
    facts = engine.facts()
    assert facts["renderer"].startswith("CUDA:PTX, sm_")
    assert facts["library"] == str(native_part(SOFTWARE_DEVICE).resolve())
    assert facts["device_name"].startswith("gputax software device")
    assert facts["captures"]["2"]["kernels"] >= 2
    assert 0 <= facts["captures"]["2"]["difference_to_onnxruntime"] < 1e-5
    assert facts["weights"] == "own"
    engine.close()
    assert mapped_nvrtc() == before, "its own renderer needs no NVRTC"


def test_a_file_that_this_user_may_not_write_is_read_from_a_copy(
    opened: Open, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write everything
    engine, area = opened()
    copy = Path(engine._file.path)
    assert copy != tmp_path / "small.onnx"
    assert copy.read_bytes() == (tmp_path / "small.onnx").read_bytes()
    engine.run(0, 2)
    assert np.allclose(answers(engine, 2), expected(area, [0, 1], tmp_path), rtol=1e-4, atol=1e-4)
    engine.close()
    assert not copy.exists()


def mapped_nvrtc() -> list[str]:
    """Return the files of NVRTC that this process has mapped."""
    with Path("/proc/self/maps").open() as maps:
        return sorted({line.split()[-1] for line in maps if "nvrtc" in line})


def test_a_second_start_takes_the_kept_capture_and_gives_the_same_bits(opened: Open) -> None:
    first, _ = opened()
    first.run(2, 2)
    bits = answers(first, 2)
    assert first.facts()["kept_captures"] == []
    first.close()
    second, _ = opened()
    second.run(2, 2)
    assert second.facts()["kept_captures"] == [2]
    assert np.array_equal(answers(second, 2), bits)
    second.close()


def test_another_model_of_the_same_shape_is_not_given_the_kept_capture(opened: Open, tmp_path: Path) -> None:
    first, _ = opened()
    first.close()
    other = small_classifier(tmp_path / "other.onnx", seed=2)
    second, _ = opened(own=own_model(other))
    assert second.facts()["kept_captures"] == []
    second.close()


def only_kept(folder: Path, kind: str = "capture") -> Path:
    (path,) = (folder / "captures").glob(f"*.{kind}")
    return path


def test_a_damaged_capture_is_noticed_named_and_built_again(opened: Open, tmp_path: Path) -> None:
    opened()[0].close()
    path = only_kept(tmp_path)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    engine, _ = opened()
    (notice,) = engine.facts()["notices"]
    assert notice["code"] == "capture"
    assert str(path) in notice["text"]
    assert "damaged" in notice["text"]
    assert engine.facts()["kept_captures"] == []
    engine.close()
    again, _ = opened()
    assert again.facts()["notices"] == []
    assert again.facts()["kept_captures"] == [2]
    again.close()


def test_a_capture_that_others_could_have_written_is_never_loaded(opened: Open, tmp_path: Path) -> None:
    opened()[0].close()
    only_kept(tmp_path).chmod(0o666)
    engine, _ = opened()
    (notice,) = engine.facts()["notices"]
    assert "may be written by others" in notice["text"]
    engine.close()


def test_captures_are_kept_in_a_directory_for_us_alone(opened: Open, tmp_path: Path) -> None:
    opened()[0].close()
    assert (tmp_path / "captures").stat().st_mode & 0o777 == 0o700
    assert only_kept(tmp_path).stat().st_mode & 0o777 == 0o600


def test_a_wrong_answer_fails_before_anything_is_measured(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    real = reference.reference_answers

    def other(*arguments: Any) -> dict[str, Any]:
        return {name: values * 1.001 for name, values in real(*arguments).items()}

    monkeypatch.setattr(tinygrad, "reference_answers", other)
    with pytest.raises(
        EngineError, match=r"logits differs from ONNX Runtime's by 0\.001 of its largest value; 0\.0001"
    ):
        opened()


def test_the_users_settings_for_tinygrad_do_not_reach_it(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("DEBUG", "7"), ("DEV", "CPU"), ("CUDA_PATH", "/usr/local/cuda"), ("NOOPT", "1"), ("JIT", "0")):
        monkeypatch.setenv(name, value)
    engine, _ = opened()
    engine.run(0, 1)
    assert engine.facts()["renderer"].startswith("CUDA:PTX")
    assert os.environ["DEV"] == "CPU", "the user's variables are untouched afterwards"
    engine.close()


def test_the_software_device_is_never_taken_for_a_gpu(opened: Open) -> None:
    with pytest.raises(PreflightError, match="cuda was requested, but the driver's device is 'gputax software device"):
        load_engine("tinygrad", EngineRequest("resnet50", {"copies": "included"}, "cuda", "fp32", 1, 1))


def test_fp16_is_refused_on_the_software_device(opened: Open) -> None:
    with pytest.raises(PreflightError, match="no fp16 arithmetic"):
        opened(precision="fp16")


def checks(engine: Any) -> dict[str, str]:
    return {batch: each["how"] for batch, each in engine.facts()["answers"].items()}


def test_a_second_start_compares_with_the_kept_answers_and_says_so(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _ = opened()
    assert checks(first) == {"2": reference.IN_FULL}
    found = first.facts()["captures"]["2"]["difference_to_onnxruntime"]
    first.close()

    def unexpected(*arguments: Any) -> NoReturn:
        raise AssertionError("ONNX Runtime ran again")

    monkeypatch.setattr(tinygrad, "reference_answers", unexpected)
    second, _ = opened()
    (checked,) = second.facts()["answers"].values()
    assert checked["how"] == tinygrad.KEPT
    assert checked["reference"].startswith("ONNX Runtime ")
    assert checked["difference"] == found < 1e-5
    second.close()


def test_a_wrong_answer_fails_against_the_kept_ones_too(opened: Open, tmp_path: Path) -> None:
    opened()[0].close()
    path = only_kept(tmp_path, "proof")
    proof = Proof.of(path.read_bytes().partition(b"\n")[2])
    assert proof is not None
    other = dataclasses.replace(proof, expected={name: 1.001 * each for name, each in proof.expected.items()})
    path.write_bytes(sealed(other.payload()))
    with pytest.raises(EngineError, match=r"logits differs from ONNX Runtime's by 0\.001"):
        opened()


@pytest.mark.parametrize("change", ["driver", "setting", "device", "samples", "capture"])
def test_answers_are_compared_in_full_again_when_anything_they_depend_on_has_changed(
    opened: Open, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, change: str
) -> None:
    opened()[0].close()
    if change == "driver":
        monkeypatch.setattr(tinygrad, "file_sha256", lambda path: "another driver")
    elif change == "setting":
        monkeypatch.setenv("GPUTAX_SOFT_COMPILE", "never")
    elif change == "device":
        monkeypatch.setattr(
            tinygrad, "open_package", lambda: renamed(tinygrad_package.open_package(), "gputax software device [other]")
        )
    elif change == "capture":
        only_kept(tmp_path).unlink()
    engine, _ = opened(seed=8 if change == "samples" else 7)
    assert checks(engine) == {"2": reference.IN_FULL}
    engine.close()


def renamed(opened: tuple[Package, dict[str, str]], name: str) -> tuple[Package, dict[str, str]]:
    package, variables = opened
    return dataclasses.replace(package, device_name=name), variables


def test_a_damaged_proof_is_named_and_the_answers_are_compared_in_full(opened: Open, tmp_path: Path) -> None:
    opened()[0].close()
    path = only_kept(tmp_path, "proof")
    path.write_bytes(path.read_bytes()[:-1])
    engine, _ = opened()
    assert checks(engine) == {"2": reference.IN_FULL}
    (notice,) = engine.facts()["notices"]
    assert str(path) in notice["text"]
    assert "compared in full again" in notice["text"]
    engine.close()
    again, _ = opened()
    assert (checks(again), again.facts()["notices"]) == ({"2": tinygrad.KEPT}, [])
    again.close()


@pytest.mark.parametrize("payload", [b"", b"not an archive", Proof({}, "nothing").payload()])
def test_bytes_that_hold_no_answers_prove_nothing(opened: Open, tmp_path: Path, payload: bytes) -> None:
    opened()[0].close()
    only_kept(tmp_path, "proof").write_bytes(sealed(payload))
    engine, _ = opened()
    assert checks(engine) == {"2": reference.IN_FULL}
    engine.close()


def sealed(payload: bytes) -> bytes:
    """A kept file with the right checksum."""
    return f"{FORMAT} {hashlib.sha256(payload).hexdigest()}\n".encode() + payload


def test_a_wrong_answer_leaves_neither_capture_nor_proof(
    opened: Open, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tinygrad, "reference_answers", lambda *_: {"logits": np.zeros((2, 1000), np.float32)})
    with pytest.raises(EngineError, match="a wrong answer"):
        opened()
    assert list((tmp_path / "captures").iterdir()) == []


def test_a_users_model_without_a_batch_axis_is_refused_with_the_way_out(opened: Open, tmp_path: Path) -> None:
    from onnx import TensorProto, helper

    node = helper.make_node("Add", ["x", "x"], ["y"])
    shape: list[str | int | None] = [4, 3]
    path = write_network(
        tmp_path / "m.onnx", [node], [("x", TensorProto.FLOAT, shape)], [("y", TensorProto.FLOAT, shape)]
    )
    with pytest.raises(PreflightError, match="runs models with a batch axis") as raised:
        opened(own=own_model(path))
    assert "--engine onnx" in raised.value.next_step


def test_an_operation_that_tinygrad_does_not_know_is_named(opened: Open, tmp_path: Path) -> None:
    from onnx import TensorProto, helper

    shape: list[str | int | None] = ["batch", 3, 224, 224]
    path = write_network(
        tmp_path / "m.onnx",
        [helper.make_node("Det", ["pixel_values"], ["y"])],
        [("pixel_values", TensorProto.FLOAT, shape)],
        [("y", TensorProto.FLOAT, ["batch", 3])],
    )
    with pytest.raises(EngineError, match="Det"):
        opened(own=own_model(path))
