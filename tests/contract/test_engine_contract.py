"""What every engine must do, whatever it computes with."""

from __future__ import annotations

import ctypes
import dataclasses
import importlib.util
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gputax.api import own_model
from gputax.environments.driver import SOFTWARE_DEVICE, native_part
from gputax.errors import EngineError, GputaxError, PreflightError, UsageError
from gputax.plan.engines import ENGINES as KINDS
from gputax.plan.engines import parse_engine
from gputax.plan.workloads import OPERATIONS
from gputax.worker.engines import driver, load_engine
from gputax.worker.engines.driver import verified_device
from gputax.worker.engines.engine import Engine, EngineRequest
from gputax.worker.engines.onnx_runtime import choose_provider, verified_provider, why_not_loaded
from gputax.worker.engines.reference import IN_FULL
from gputax.worker.samples import SampleArea
from gputax.worker.workloads import user_model
from tests.builders.small_models import small_classifier

MAX_BATCH = 4
HAS_TORCH = importlib.util.find_spec("torch") is not None and importlib.util.find_spec("transformers") is not None
CPU, CUDA, TENSORRT = "CPUExecutionProvider", "CUDAExecutionProvider", "TensorrtExecutionProvider"


# Engines that do not run a model on the CPU: workload and device that stand for them here.
OTHERS = {
    "driver": ("micro:operation", "software"),
    "neighbour": ("neighbour:compute", "cpu"),
    "tinygrad": ("resnet50", "software"),
}


def request(spec: str, **changes: Any) -> EngineRequest:
    engine = parse_engine(spec)
    workload, device = OTHERS.get(engine.name, ("resnet50", "cpu"))
    values: dict[str, Any] = {
        "workload": workload,
        "options": engine.options,
        "device": device,
        "precision": "fp32",
        "threads": 1,
        "max_batch": MAX_BATCH,
    }
    return EngineRequest(**{**values, **changes})


def inputs(engine: str, count: int = 8) -> dict[str, Any]:
    if engine in ("synthetic", "driver"):
        return {"none": np.zeros((count, 1), dtype=np.int8)}
    from gputax.worker.workloads import load_workload

    return load_workload("resnet50").synthetic_inputs(count, 7)


# A program of the user's is a process, which a fast lane does not start: see tests/process/test_own_program.py.
# Engines that ask a server have a suite of their own: test_server_engines.py.
IN_THIS_PROCESS = sorted(name for name, kind in KINDS.items() if name != "program" and not kind.asks_server)
ENGINES = [pytest.param(name, marks=pytest.mark.torch) if name == "torch" else name for name in IN_THIS_PROCESS]


@pytest.fixture(scope="module", params=ENGINES)
def loaded(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, Engine, SampleArea]]:
    name = request.param
    if name == "torch" and not HAS_TORCH:
        pytest.skip("torch and transformers are not installed (make test-torch installs them)")
    changes: dict[str, Any] = {}
    if name in ("driver", "tinygrad"):
        # An environment leads the loader to it before the process starts; here the library is simply there first.
        ctypes.CDLL(str(native_part(SOFTWARE_DEVICE)), mode=ctypes.RTLD_GLOBAL)
    with pytest.MonkeyPatch.context() as patch:
        if name == "tinygrad":
            # ResNet-50 takes 16 s on the interpreter; and captures must not be kept with the user's models.
            folder = tmp_path_factory.mktemp("models")
            patch.setenv("GPUTAX_MODELS", str(folder))
            changes = {"own": own_model(small_classifier(folder / "small.onnx"))}
        engine = load_engine(name, globals()["request"](name, **changes))
        area = SampleArea(engine.adapt_inputs(inputs(name)), MAX_BATCH)
        engine.load_samples(area.arrays)
        yield name, engine, area
        engine.close()


class TestEngine:
    def test_tells_what_was_really_loaded(self, loaded: tuple[str, Engine, SampleArea]) -> None:
        name, engine, _ = loaded
        facts = engine.facts()
        assert facts["engine"] == name
        assert engine.device == OTHERS.get(name, ("", "cpu"))[1]
        assert facts["provider"]
        assert facts["precision"] in ("fp32", "none")
        assert facts["threads"] == 1

    @pytest.mark.parametrize("count", [1, 2, MAX_BATCH])
    def test_runs_any_batch_up_to_the_largest(self, loaded: tuple[str, Engine, SampleArea], count: int) -> None:
        _, engine, area = loaded
        engine.run(0, count)
        engine.run(area.count - count, count)

    def test_runs_gathered_rows(self, loaded: tuple[str, Engine, SampleArea]) -> None:
        _, engine, area = loaded
        engine.run(area.gather([5, 0, 3]), 3)

    def test_returns_only_when_the_work_is_done(self, loaded: tuple[str, Engine, SampleArea]) -> None:
        _, engine, _ = loaded
        for count in (1, MAX_BATCH):
            engine.run(0, count)

        def timed() -> float:
            started = time.perf_counter()
            engine.run(0, MAX_BATCH)
            return time.perf_counter() - started

        # Medians: one stall of the host must not decide.
        first, second = np.median([(timed(), timed()) for _ in range(5)], axis=0)
        assert second > first / 20, "the second run must not find the first still working"

    def test_names_a_place_for_responses(self, loaded: tuple[str, Engine, SampleArea]) -> None:
        _, engine, _ = loaded
        assert engine.response_address > 0
        assert engine.response_bytes > 0


@pytest.fixture(scope="module")
def onnx() -> Iterator[tuple[Any, SampleArea]]:
    engine = load_engine("onnx", request("onnx"))
    area = SampleArea(engine.adapt_inputs(inputs("onnx")), MAX_BATCH)
    engine.load_samples(area.arrays)
    yield engine, area
    engine.close()


def oracle(area: SampleArea, rows: list[int], path: str) -> np.ndarray:
    """The same rows through a plain session, as anybody would write it."""
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=[CPU])
    return np.asarray(session.run(None, {"pixel_values": area.arrays["pixel_values"][rows]})[0])


@pytest.mark.parametrize("rows", [[0], [3], [2, 3, 4], [7, 1], [4, 4, 0, 6]])
def test_onnx_gives_exactly_the_rows_that_were_asked_for(onnx: tuple[Any, SampleArea], rows: list[int]) -> None:
    engine, area = onnx
    consecutive = rows == list(range(rows[0], rows[0] + len(rows)))
    first = rows[0] if consecutive else area.gather(rows)
    engine.run(first, len(rows))
    got = engine._outputs["logits"][: len(rows)]
    assert np.allclose(got, oracle(area, rows, engine._model.path), atol=1e-5)
    assert engine.response_address == got.ctypes.data, "LoadGen is shown the real output"


def test_onnx_reads_gathered_rows_anew_each_time(onnx: tuple[Any, SampleArea]) -> None:
    engine, area = onnx
    engine.run(area.gather([1, 5]), 2)
    first = engine._outputs["logits"][:2].copy()
    engine.run(area.gather([6, 2]), 2)
    second = engine._outputs["logits"][:2]
    assert not np.allclose(first, second, atol=1e-7)
    assert np.allclose(second, oracle(area, [6, 2], engine._model.path), atol=1e-5)


def test_onnx_runs_with_the_threads_that_it_was_given() -> None:
    engine = load_engine("onnx", request("onnx", threads=2))
    assert engine.facts()["threads"] == 2
    engine.close()


def test_a_fixed_batch_axis_is_refused_with_the_way_out(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(user_model, "WEIGHTS_TOLERANCE", 1.0)  # a ResNet-50 of 3,000 weights is enough here
    import onnx as onnx_library
    from onnx import TensorProto, helper

    node = helper.make_node("ReduceMean", ["x"], ["y"], axes=[2, 3], keepdims=0)
    weight = helper.make_tensor("w", TensorProto.FLOAT, [3, 1000], np.ones(3000, dtype=np.float32).tolist())
    graph = helper.make_graph(
        [node, helper.make_node("MatMul", ["y", "w"], ["logits"])],
        "fixed",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3, 224, 224])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, [2, 1000])],
        [weight],
    )
    path = tmp_path / "fixed.onnx"
    onnx_library.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)
    engine = load_engine("onnx", request("onnx", weights=str(path)))
    area = SampleArea(engine.adapt_inputs(inputs("onnx")), MAX_BATCH)
    engine.load_samples(area.arrays)
    engine.run(0, 2)
    with pytest.raises(EngineError, match="fixed at 2, so a batch of 1 cannot run") as raised:
        engine.run(0, 1)
    assert "--batch 2" in raised.value.next_step
    assert engine.facts()["weights"] == "file"
    engine.close()


@pytest.mark.parametrize(
    ("provider", "device", "available", "expected"),
    [
        ("auto", "cpu", [CUDA, CPU], "cpu"),
        ("auto", "auto", [CUDA, CPU], "cuda"),
        ("auto", "auto", [CPU], "cpu"),
        ("auto", "cuda", [TENSORRT, CUDA, CPU], "cuda"),
        ("tensorrt", "auto", [TENSORRT, CUDA, CPU], "tensorrt"),
        ("tensorrt", "cuda", [TENSORRT, CUDA, CPU], "tensorrt"),
        ("auto", "software", [CUDA, CPU], "cuda"),
        ("cpu", "auto", [CUDA, CPU], "cpu"),
    ],
)
def test_the_provider_is_the_one_asked_for(provider: str, device: str, available: list[str], expected: str) -> None:
    assert choose_provider(provider, device, available) == expected


@pytest.mark.parametrize(
    ("provider", "device", "available", "kind"),
    [
        ("auto", "cuda", [CPU], PreflightError),
        ("cuda", "auto", [CPU], PreflightError),
        ("tensorrt", "auto", [CUDA, CPU], PreflightError),
        ("cpu", "cuda", [CUDA, CPU], UsageError),
        ("cuda", "cpu", [CUDA, CPU], UsageError),
    ],
)
def test_the_provider_is_never_replaced(
    provider: str, device: str, available: list[str], kind: type[GputaxError]
) -> None:
    with pytest.raises(kind):
        choose_provider(provider, device, available)


def test_a_provider_that_gave_way_while_loading_is_an_error() -> None:
    assert verified_provider("cuda", [CUDA, CPU]) == CUDA
    with pytest.raises(PreflightError, match=r"after loading the session runs on CPUExecutionProvider$"):
        verified_provider("cuda", [CPU])
    with pytest.raises(PreflightError, match=r"runs on CPUExecutionProvider: undefined symbol: cuX$"):
        verified_provider("cuda", [CPU], "undefined symbol: cuX")


def test_what_the_loader_says_of_a_providers_library_is_told() -> None:
    import onnxruntime

    assert "libonnxruntime_providers_nowhere.so" in why_not_loaded(onnxruntime, "nowhere")


class ComputingDevice:
    """The CPU provider in the place of a GPU: the same code checks its answers."""

    kind, has_answers = "cuda", True

    def to_dict(self) -> dict[str, str]:
        return {"device_name": "a computing device"}


@pytest.mark.parametrize("wrong", [False, True])
def test_answers_of_a_device_that_computes_are_checked_before_it_is_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, wrong: bool
) -> None:
    monkeypatch.setattr(user_model, "WEIGHTS_TOLERANCE", 1.0)
    right, other = small_classifier(tmp_path / "right.onnx"), small_classifier(tmp_path / "other.onnx", seed=9)
    engine: Any = load_engine("onnx", request("onnx", weights=str(right)))
    monkeypatch.setattr(engine, "_found", ComputingDevice())
    if wrong:
        monkeypatch.setattr(engine, "_model", dataclasses.replace(engine._model, path=str(other)))
    engine.load_samples(SampleArea(engine.adapt_inputs(inputs("onnx")), MAX_BATCH).arrays)
    assert "answers" not in engine.facts()
    if wrong:
        with pytest.raises(EngineError, match="the device computed a wrong answer"):
            engine.run(0, 2)
        return
    for count in (2, 1, 2):
        engine.run(1, count)
    checked = engine.facts()["answers"]
    assert sorted(checked) == ["1", "2"]
    assert all(each["how"] == IN_FULL and each["difference"] < 1e-5 for each in checked.values())
    engine.close()


def test_outputs_of_null_kernels_are_not_compared_and_not_shown_to_loadgen(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(user_model, "WEIGHTS_TOLERANCE", 1.0)
    engine: Any = load_engine("onnx", request("onnx", weights=str(small_classifier(tmp_path / "small.onnx"))))
    monkeypatch.setattr(engine, "_found", NullDevice())
    engine.response_address, engine.response_bytes = engine._response()
    engine.load_samples(SampleArea(engine.adapt_inputs(inputs("onnx")), MAX_BATCH).arrays)
    engine.run(0, 1)
    assert "answers" not in engine.facts()
    assert engine.response_address not in {array.ctypes.data for array in engine._outputs.values()}
    engine.close()


class NullDevice(ComputingDevice):
    kind, has_answers = "software", False


@pytest.mark.parametrize(
    ("spec", "changes", "kind"),
    [
        ("onnx", {"precision": "fp16"}, PreflightError),
        ("onnx:copies=excluded", {}, UsageError),
        ("onnx", {"device": "cuda"}, PreflightError),
        ("onnx", {"weights": "/nowhere/model.onnx"}, PreflightError),
        ("synthetic", {"device": "cuda"}, PreflightError),
        ("onnx", {"device": "software"}, PreflightError),
        ("onnx:provider=cpu", {"device": "software"}, UsageError),
        ("driver", {"workload": "resnet50"}, UsageError),
        ("tinygrad", {"device": "cpu"}, UsageError),
    ],
)
def test_what_cannot_be_had_is_refused_before_any_load(spec: str, changes: dict[str, Any], kind: type) -> None:
    with pytest.raises(kind):
        load_engine(parse_engine(spec).name, request(spec, **changes))


@pytest.mark.skipif(HAS_TORCH, reason="torch is installed here")
def test_torch_says_how_to_get_it() -> None:
    with pytest.raises(PreflightError) as raised:
        load_engine("torch", request("torch"))
    assert "gputax[torch]" in raised.value.next_step


@pytest.fixture(scope="module")
def software() -> None:
    ctypes.CDLL(str(native_part(SOFTWARE_DEVICE)), mode=ctypes.RTLD_GLOBAL)


@pytest.mark.usefixtures("software")
class TestDriver:
    @pytest.mark.parametrize("workload", sorted(OPERATIONS))
    def test_every_operation_runs_and_is_checked(self, workload: str) -> None:
        engine = load_engine("driver", request("driver", workload=workload))
        facts = engine.facts()
        assert facts["device_name"].startswith("gputax software device")
        assert facts["bytes_per_run"] == OPERATIONS[workload].bytes_per_run
        engine.run(0, 2)
        engine.close()

    def test_all_memory_is_given_back(self) -> None:
        from cuda.bindings import driver

        def free() -> int:
            driver.cuInit(0)
            _, device = driver.cuDeviceGet(0)
            _, context = driver.cuDevicePrimaryCtxRetain(device)
            driver.cuCtxSetCurrent(context)
            _, left, _ = driver.cuMemGetInfo()
            driver.cuDevicePrimaryCtxRelease(device)
            return int(left)

        before = free()
        for workload in ("micro:copy-in-100MB", "micro:operation"):
            load_engine("driver", request("driver", workload=workload)).close()
        assert free() == before

    def test_a_wrong_answer_fails_before_anything_is_measured(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(driver, "SCALE", 5.0)
        real: Any = vars(driver)["kernel_arguments"]
        monkeypatch.setattr(driver, "kernel_arguments", lambda out, a, b, scale: real(out, a, b, 4.0))
        for workload in ("micro:operation", "micro:launch"):
            with pytest.raises(EngineError, match="the device computed a wrong result"):
                load_engine("driver", request("driver", workload=workload))

    @pytest.mark.parametrize("device", ["cuda", "cpu"])
    def test_the_software_device_is_never_taken_for_another(self, device: str) -> None:
        with pytest.raises(PreflightError):
            load_engine("driver", request("driver", device=device))


def test_a_gpu_is_not_taken_for_the_software_device() -> None:
    assert verified_device("auto", "Tesla T4") == "cuda"
    assert verified_device("auto", "gputax software device [kernel 125 us]") == "software"
    with pytest.raises(PreflightError, match="software was requested, but the driver's device is 'Tesla T4'"):
        verified_device("software", "Tesla T4")
