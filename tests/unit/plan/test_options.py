from __future__ import annotations

import pytest

from gputax.errors import UsageError
from gputax.plan.options import EnvironmentOptions


def test_one_side_of_a_duet_may_differ() -> None:
    options = EnvironmentOptions(image="a", cpus=2)
    changed = options.changed(["image=b", "ready-timeout-s=9"])
    assert (changed.image, changed.cpus, changed.ready_timeout_s) == ("b", 2, 9)
    assert options.image == "a"


@pytest.mark.parametrize("word", ["imagee=b", "image", "cpus=two", "inside=1"])
def test_what_cannot_be_right_is_refused(word: str) -> None:
    with pytest.raises(UsageError):
        EnvironmentOptions().changed([word])


def test_a_gpu_is_asked_for_where_the_device_is_one() -> None:
    assert EnvironmentOptions().gpu_count("cuda") == 1
    assert EnvironmentOptions().gpu_count("cpu") == 0
    assert EnvironmentOptions(gpus=0).gpu_count("cuda") == 0
