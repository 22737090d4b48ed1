from __future__ import annotations

import pytest

from gputax.errors import UsageError
from gputax.plan.cells import Setup
from gputax.plan.claims import claim, device_label
from gputax.plan.driver import chosen_engine, driver_choice, engine_note, refuse_driver_contradictions, share_a_worker
from gputax.plan.suites import Choices, load_suite, parse_suite, plan_cells
from gputax.plan.workloads import OPERATIONS, engine_for, expanded, is_micro, known_names


def test_micro_stands_for_every_operation_and_a_group_for_its_own() -> None:
    assert expanded(("micro",)) == tuple(OPERATIONS)
    assert expanded(("micro:copy-in",)) == tuple(name for name in OPERATIONS if name.startswith("micro:copy-in-"))
    assert expanded(("resnet50", "micro:launch", "micro:launch")) == ("resnet50", "micro:launch")
    assert expanded(("micro:launch", "micro"))[0] == "micro:launch"
    assert len(expanded(("micro:launch", "micro"))) == len(OPERATIONS)


def test_names_that_may_be_asked_for() -> None:
    known = known_names(("resnet50",))
    assert {"resnet50", "micro", "micro:copy-in", "micro:copy-in-100MB", "micro:operation"} <= set(known)
    assert not is_micro("micro")
    assert is_micro("micro:allocate")


def test_the_users_own_sizes_are_among_the_copies() -> None:
    assert OPERATIONS["micro:copy-in-100MB"].bytes_per_run == 100_000_000
    assert OPERATIONS["micro:copy-in-100MB"].bandwidth_metric == "host_to_device"
    assert OPERATIONS["micro:copy-out-4KiB"].bandwidth_metric == "device_to_host"
    assert OPERATIONS["micro:launch"].bandwidth_metric is None


def test_the_engine_follows_the_workload() -> None:
    assert engine_for("micro:launch", "") == "driver"
    assert engine_for("resnet50", "") == "onnx"
    assert engine_for("micro:launch", "synthetic") == "synthetic"


def test_each_operation_is_a_cell_of_a_closed_loop_with_a_thousand_runs() -> None:
    cells = plan_cells(load_suite("quick"), Choices(workloads=("micro",), setup={"device": "software"}))
    assert [cell.setup.workload for cell in cells] == list(OPERATIONS)
    assert {cell.scenario for cell in cells} == {"saturate"}
    assert {cell.setup.engine for cell in cells} == {"driver"}
    assert {cell.load.min_samples for cell in cells} == {1000}
    assert sum(cell.load.max_duration_s + cell.load.pilot_s for cell in cells) < 15
    assert len({cell.id for cell in cells}) == len(cells)


def test_models_and_operations_may_be_asked_for_together() -> None:
    cells = plan_cells(load_suite("quick"), Choices(workloads=("resnet50", "micro:launch")))
    assert {(cell.setup.workload, cell.setup.engine) for cell in cells} == {
        ("resnet50", "onnx"),
        ("micro:launch", "driver"),
    }


@pytest.mark.parametrize(
    ("choices", "complaint"),
    [
        (Choices(workloads=("micro:launch",), scenarios=("server",)), "no scenario server"),
        (Choices(workloads=("micro:launch",), batches=(8,)), "no batches"),
        (Choices(workloads=("micro:launch",), setup={"engine": "onnx"}), "cannot run micro:launch"),
        (Choices(workloads=("micro:launch",), setup={"device": "cpu"}), "no CPU device"),
        (Choices(environment="bare+proxy", setup={"engine": "synthetic"}), "the engine synthetic does not use"),
        (
            Choices(environment="bare+proxy", setup={"engine": "onnx"}),
            "with --device auto the engine onnx may run on the CPU",
        ),
        (Choices(environment="k8s+proxy", setup={"engine": "torch", "device": "cpu"}), "may run on the CPU"),
        (
            Choices(setup={"engine": "synthetic", "device": "software"}),
            "--device software is for the engines that call",
        ),
        (Choices(setup={"engine": "synthetic", "libcuda": "/x"}), "--libcuda is for the engines that call the driver"),
        (Choices(setup={"engine": "onnx", "device": "cpu", "libcuda": "/x"}), "contradict each other"),
    ],
)
def test_what_can_never_be_measured_is_refused(choices: Choices, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        plan_cells(load_suite("quick"), choices)


@pytest.mark.parametrize(
    ("workload", "given", "environments", "device", "expected"),
    [
        ("resnet50", "", ("bare", "k8s"), "auto", "onnx"),
        ("resnet50", "", ("bare", "bare+proxy"), "auto", "tinygrad"),
        ("bert-large", "", ("k8s+proxy",), "cuda", "tinygrad"),
        ("resnet50", "", ("bare",), "software", "tinygrad"),
        ("resnet50", "onnx", ("bare+proxy",), "auto", "onnx"),
        ("micro:launch", "", ("bare+proxy",), "software", "driver"),
    ],
)
def test_a_model_that_must_go_through_the_driver_gets_the_engine_that_does(
    workload: str, given: str, environments: tuple[str, ...], device: str, expected: str
) -> None:
    chosen = chosen_engine(workload, given, environments, device)
    assert chosen == expected
    assert bool(engine_note(chosen, given)) == (expected == "tinygrad")


def test_a_model_behind_the_proxy_is_planned_with_tinygrad_and_refused_for_others_with_its_name() -> None:
    cells = plan_cells(load_suite("quick"), Choices(environment="bare+proxy"))
    assert {cell.setup.engine for cell in cells} == {"tinygrad"}
    with pytest.raises(UsageError) as raised:
        plan_cells(load_suite("quick"), Choices(environment="bare+proxy", setup={"engine": "torch"}))
    assert "--engine tinygrad" in raised.value.next_step


def test_a_suite_sizes_micro_and_a_misspelt_key_is_an_error() -> None:
    suite = parse_suite("mine", "[micro]\nmin_samples = 50\n", "mine.toml")
    assert suite.loads["micro"].min_samples == 50
    assert suite.loads["micro"].max_duration_s == 0.8, "what it leaves out is the default"
    with pytest.raises(UsageError, match=r"unknown key of \[micro\] 'samples'"):
        parse_suite("mine", "[micro]\nsamples = 50\n", "mine.toml")


def test_operations_of_one_driver_share_a_worker_and_models_do_not() -> None:
    launch = Setup("micro:launch", engine="driver", device="software")
    assert share_a_worker(launch, Setup("micro:allocate", engine="driver", device="software"))
    assert not share_a_worker(launch, Setup("micro:allocate", engine="driver", device="cuda"))
    assert not share_a_worker(Setup("resnet50"), Setup("bert-large"))


@pytest.mark.parametrize("engine", ["onnx", "torch"])
@pytest.mark.parametrize(
    ("device", "libcuda", "needed"),
    [("cuda", "", True), ("software", "", True), ("auto", "/x", True), ("auto", "", False), ("cpu", "", False)],
)
def test_an_engine_on_the_cuda_runtime_needs_a_driver_where_its_device_is_named(
    engine: str, device: str, libcuda: str, needed: bool
) -> None:
    setup = Setup("resnet50", engine=engine, device=device, libcuda=libcuda)
    choice = driver_choice(setup)
    assert (choice.needed, choice.runtime) == (needed, needed)
    if needed:
        for environment in ("bare", "bare+proxy", "k8s+proxy"):
            refuse_driver_contradictions(environment, setup)


def test_only_the_engine_driver_needs_a_driver() -> None:
    assert driver_choice(Setup("micro:launch", engine="driver", device="software", libcuda="/x")).needed
    assert not driver_choice(Setup("resnet50")).needed
    refuse_driver_contradictions("bare+proxy", Setup("micro:launch", engine="driver"))


def test_a_software_devices_number_is_never_taken_for_a_gpus() -> None:
    label = device_label("software", "gputax software device [kernel 125 us]")
    assert label == "software device (gputax software device [kernel 125 us]), not a GPU"
    text = claim("saturate", "driver", "software", "none", official=True, is_mlperf_model=False)
    assert "software device's number" in text
    assert "operations of the CUDA driver, no model" in text
    assert "MLPerf model" not in text
