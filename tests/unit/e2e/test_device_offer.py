"""What the stand-in device plugin offers and hands out."""

from __future__ import annotations

from e2e.device_offer import gpu_uuid, grant, offer


def test_each_gpu_is_offered_once_and_healthy() -> None:
    devices = offer(3)
    assert [device.identity for device in devices] == [gpu_uuid(0), gpu_uuid(1), gpu_uuid(2)]
    assert all(device.healthy for device in devices)


def test_an_unhealthy_gpu_takes_all_its_shares_with_it() -> None:
    devices = offer(2, unhealthy=[gpu_uuid(1)], replicas=2)
    assert [(device.gpu, device.healthy) for device in devices] == [(0, True), (0, True), (1, False), (1, False)]
    assert len({device.identity for device in devices}) == 4


def test_one_unhealthy_share_leaves_the_others() -> None:
    devices = offer(1, unhealthy=[f"{gpu_uuid(0)}::1"], replicas=3)
    assert [device.healthy for device in devices] == [True, False, True]


def test_two_shares_of_one_gpu_give_one_device_node() -> None:
    devices = offer(2, replicas=2)
    granted = grant((device.identity for device in devices[:2]), devices)
    assert granted.nodes == (("/dev/nvidia0", "/dev/null"),)
    assert granted.variables["NVIDIA_VISIBLE_DEVICES"] == gpu_uuid(0)
