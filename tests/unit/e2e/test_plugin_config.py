"""NVIDIA's plugin configuration as the stand-in reads it."""

from __future__ import annotations

import json

import pytest

from e2e.device_offer import EXCLUSIVE, Mode
from e2e.plugin_config import ConfigError, mig_mode, mode_of


def configured(**sharing: object) -> str:
    return json.dumps({"version": "v1", "sharing": sharing})


def section(replicas: object = 7, **further: object) -> dict[str, object]:
    return {"resources": [{"name": "nvidia.com/gpu", "replicas": replicas}], **further}


def test_time_slicing_and_mps_have_the_same_shape() -> None:
    assert mode_of(configured(timeSlicing=section())) == Mode("time-slicing", 7)
    assert mode_of(configured(mps=section(3, renameByDefault=True))) == Mode("mps", 3, renamed=True)


def test_the_policy_says_whether_tenants_are_packed() -> None:
    flags = {"plugin": {"sharedDevicesAllocationPolicy": "packed"}}
    text = json.dumps({"version": "v1", "flags": flags, "sharing": {"mps": section()}})
    assert mode_of(text) == Mode("mps", 7, packed=True)


def test_where_both_are_named_mps_wins() -> None:
    assert mode_of(configured(timeSlicing=section(2), mps=section(4))).strategy == "mps"


def test_without_sharing_each_gpu_is_exclusive() -> None:
    assert mode_of('{"version": "v1"}') == EXCLUSIVE
    assert (
        mode_of(configured(timeSlicing={"resources": [{"name": "nvidia.com/mig-1g.5gb", "replicas": 2}]})) == EXCLUSIVE
    )


def test_one_replica_is_refused_as_nvidias_plugin_refuses_it() -> None:
    with pytest.raises(ConfigError, match=">= 2"):
        mode_of(configured(timeSlicing=section(1)))


def test_a_file_of_another_version_is_refused() -> None:
    with pytest.raises(ConfigError, match="version"):
        mode_of("sharing: {}")


def test_the_mig_label_names_a_profile_for_all_gpus() -> None:
    assert mig_mode("all-1g.10gb") == Mode(profile="1g.10gb")
    assert mig_mode("all-disabled") == EXCLUSIVE
    with pytest.raises(ConfigError, match="all-balancd"):
        mig_mode("all-balancd")
