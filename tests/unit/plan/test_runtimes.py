"""OCI runtimes are known by any name that people give them, and each has a budget with a reason."""

from __future__ import annotations

import pytest

from gputax.plan.budgets import Budgets, parse_budgets
from gputax.plan.runtimes import runtime_family


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("runc", "runc"), ("/usr/sbin/runc", "runc"), ("nvidia", "runc"), ("nvidia-container-runtime", "runc"),
        ("crun", "crun"), ("youki", "youki"), ("runsc", "gvisor"), ("gvisor", "gvisor"), ("runsc-kvm", "gvisor"),
        ("kata", "kata"), ("kata-qemu", "kata"), ("kata-runtime", "kata"), ("io.containerd.kata.v2", "kata"),
        ("fast", None), ("", None), ("xen-cri", None), ("katana", None),
    ],
)  # fmt: skip
def test_a_family_is_known_by_its_names(name: str, family: str | None) -> None:
    found = runtime_family(name)
    assert (found.name if found else None) == family


@pytest.mark.parametrize(
    ("base", "other", "percent"),
    [
        ("container", "container:runsc", 10.0),
        ("container", "container:crun", 1.0),
        ("bare", "container:runsc", 10.0),
        ("bare", "container:crun", 1.0),
        ("k8s", "k8s:kata-qemu", 10.0),
        ("k8s:runc", "k8s:gvisor", 10.0),
        ("k8s", "k8s:fast", 5.0),
    ],
)
def test_a_runtime_has_the_budget_of_its_kind(base: str, other: str, percent: float) -> None:
    assert Budgets().for_metric(base, other, "latency_mean").value == percent


@pytest.mark.parametrize("text", ["runsc=3%", "container:runsc=3%"])
def test_its_budget_can_be_given(text: str) -> None:
    assert parse_budgets([text]).for_metric("container", "container:runsc", "latency_mean").value == 3.0


def test_a_metric_of_one_runtime_has_its_own() -> None:
    budgets = parse_budgets(["container:runsc:p99=1ms"])
    assert budgets.for_metric("container", "container:runsc", "latency_p99").value == 1.0
    assert budgets.for_metric("container", "container:crun", "latency_p99").value == 2.0
