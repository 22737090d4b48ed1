"""What the stand-in device plugin offers and hands out."""

from __future__ import annotations

import pytest

from e2e.device_offer import (
    EXCLUSIVE,
    GPU_MEMORY_MB,
    Lies,
    Mode,
    PipeDirectories,
    changes,
    discovery_labels,
    gpu_uuid,
    grant,
    offer,
    preferred,
    switches,
)

TIME_SLICING = Mode("time-slicing", 7, renamed=True)
MPS = Mode("mps", 7, renamed=True)
MIG = Mode(profile="1g.10gb")
PIPES = PipeDirectories("/host/pipe", "/host/empty")


def test_each_gpu_is_offered_once_and_healthy() -> None:
    devices = offer(3)
    assert [device.identity for device in devices] == [gpu_uuid(0), gpu_uuid(1), gpu_uuid(2)]
    assert all(device.healthy for device in devices)


def test_an_unhealthy_gpu_takes_all_its_shares_with_it() -> None:
    devices = offer(2, Mode("time-slicing", 2), unhealthy=[gpu_uuid(1)])
    assert [(device.gpu, device.healthy) for device in devices] == [(0, True), (0, True), (1, False), (1, False)]
    assert len({device.identity for device in devices}) == 4


def test_one_unhealthy_share_leaves_the_others() -> None:
    devices = offer(1, Mode("time-slicing", 3), unhealthy=[f"{gpu_uuid(0)}::1"])
    assert [device.healthy for device in devices] == [True, False, True]


def test_two_shares_of_one_gpu_give_one_device_node() -> None:
    mode = Mode("time-slicing", 2)
    devices = offer(2, mode)
    granted = grant((device.identity for device in devices[:2]), devices, mode)
    assert granted.nodes == (("/dev/nvidia0", "/dev/null"),)
    assert granted.variables["NVIDIA_VISIBLE_DEVICES"] == gpu_uuid(0)


@pytest.mark.parametrize(
    ("mode", "resource"),
    [
        (EXCLUSIVE, "nvidia.com/gpu"),
        (Mode("time-slicing", 7), "nvidia.com/gpu"),
        (TIME_SLICING, "nvidia.com/gpu.shared"),
        (MPS, "nvidia.com/gpu.shared"),
        (MIG, "nvidia.com/mig-1g.10gb"),
    ],
)
def test_the_resource_is_named_as_nvidias_plugin_names_it(mode: Mode, resource: str) -> None:
    assert mode.resource == resource


def test_a_time_sliced_tenant_gets_the_whole_gpu_and_no_pipe() -> None:
    devices = offer(1, TIME_SLICING)
    assert len(devices) == 7
    granted = grant([devices[3].identity], devices, TIME_SLICING, PIPES)
    assert granted.variables["NVIDIA_VISIBLE_DEVICES"] == gpu_uuid(0)
    assert granted.variables["GPUTAX_SOFT_MEMORY_MB"] == str(GPU_MEMORY_MB)
    assert "CUDA_MPS_PIPE_DIRECTORY" not in granted.variables
    assert granted.mounts == ()


def test_a_tenant_of_mps_gets_the_daemons_pipe_and_its_share_of_the_memory() -> None:
    devices = offer(1, MPS)
    granted = grant([devices[3].identity], devices, MPS, PIPES)
    inside = "/mps/nvidia.com/gpu.shared/pipe"
    assert granted.variables["CUDA_MPS_PIPE_DIRECTORY"] == inside
    assert granted.mounts == ((inside, "/host/pipe"),)
    assert granted.variables["GPUTAX_SOFT_MEMORY_MB"] == str(GPU_MEMORY_MB // 7)


def test_mig_gives_each_tenant_a_slice_of_its_own_on_the_same_gpu() -> None:
    devices = offer(1, MIG)
    grants = [grant([device.identity], devices, MIG, PIPES) for device in devices]
    assert len(grants) == 7
    ids = {granted.variables["NVIDIA_VISIBLE_DEVICES"] for granted in grants}
    assert len(ids) == 7
    assert all(each.startswith("MIG-") for each in ids)
    assert {granted.nodes for granted in grants} == {(("/dev/nvidia0", "/dev/null"),)}
    assert {granted.variables["GPUTAX_SOFT_MEMORY_MB"] for granted in grants} == {"10240"}


@pytest.mark.parametrize(("profile", "slices"), [("1g.10gb", 7), ("2g.20gb", 3), ("3g.40gb", 2), ("7g.80gb", 1)])
def test_a_larger_profile_leaves_fewer_slices(profile: str, slices: int) -> None:
    assert len(offer(1, Mode(profile=profile))) == slices


def test_the_labels_are_those_of_feature_discovery() -> None:
    labels = discovery_labels(MPS, 1)
    assert labels["nvidia.com/gpu.sharing-strategy"] == "mps"
    assert labels["nvidia.com/gpu.replicas"] == "7"
    assert labels["nvidia.com/mps.capable"] == "true"
    assert discovery_labels(EXCLUSIVE, 4)["nvidia.com/gpu.sharing-strategy"] == "none"
    assert discovery_labels(Mode("time-slicing", 2), 1)["nvidia.com/gpu.product"].endswith("-SHARED")
    assert discovery_labels(MIG, 1)["nvidia.com/mig-1g.10gb.count"] == "7"


def test_labels_of_the_former_mode_are_removed() -> None:
    assert changes({"a": "1", "b": "2", "c": "3"}, {"a": "1", "b": "5", "d": "4"}) == {"c": None, "b": "5", "d": "4"}


def test_without_a_daemon_the_variable_is_set_but_nobody_listens_and_nothing_is_capped() -> None:
    devices = offer(1, MPS)
    granted = grant([devices[0].identity], devices, MPS, PIPES, Lies(no_daemon=True))
    assert granted.mounts == (("/mps/nvidia.com/gpu.shared/pipe", "/host/empty"),)
    assert granted.variables["GPUTAX_SOFT_MEMORY_MB"] == str(GPU_MEMORY_MB)


def test_mps_by_name_alone_hands_out_neither_pipe_nor_cap() -> None:
    devices = offer(1, MPS)
    granted = grant([devices[0].identity], devices, MPS, PIPES, Lies(no_pipe=True))
    assert granted.mounts == ()
    assert "CUDA_MPS_PIPE_DIRECTORY" not in granted.variables
    assert granted.variables["GPUTAX_SOFT_MEMORY_MB"] == str(GPU_MEMORY_MB)


def given_in_turn(mode: Mode, count: int, gpus: int, *, packed: bool) -> list[int]:
    """Return the GPUs of tenants that come one after the other."""
    devices = list(offer(gpus, mode))
    free, given = list(devices), []
    for _ in range(count):
        (chosen,) = preferred([each.identity for each in free], [], 1, devices, packed=packed)
        given.append(next(each.gpu for each in devices if each.identity == chosen))
        free = [each for each in free if each.identity != chosen]
    return given


def test_packed_tenants_share_one_gpu_until_it_is_full() -> None:
    assert given_in_turn(Mode("time-slicing", 3), 4, 2, packed=True) == [0, 0, 0, 1]


def test_by_default_tenants_are_spread_over_the_gpus() -> None:
    assert given_in_turn(Mode("time-slicing", 3), 4, 2, packed=False) == [0, 1, 0, 1]


def test_a_device_that_must_be_included_is() -> None:
    devices = offer(1, TIME_SLICING)
    ids = [device.identity for device in devices]
    assert preferred(ids, [ids[5]], 2, devices, packed=True) == [ids[5], ids[0]]


def test_switches_are_words_and_a_misspelt_one_is_an_error() -> None:
    turned = switches(["gpus=1", "never-ready", "spread"])
    assert (turned.gpus, turned.never_ready, turned.lies.spread, turned.lies.no_pipe) == (1, True, True, False)
    assert switches([]).gpus is None
    with pytest.raises(ValueError, match="never-redy"):
        switches(["never-redy"])
