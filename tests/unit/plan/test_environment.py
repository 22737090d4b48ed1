"""Names of environments: a place and its layers, read once and written back as the same text."""

from __future__ import annotations

import pytest

from gputax.places import ENVIRONMENTS
from gputax.plan.environment import LAYERS, EnvironmentName, environment_in, is_environment

parse = EnvironmentName.parse


@pytest.mark.parametrize("text", [*ENVIRONMENTS, "ssh:me@gpu-1", "ssh:me+tag@gpu-1", "k8s+proxy+xen", "by hand", ""])
def test_a_name_is_written_back_as_it_was_read(text: str) -> None:
    assert str(parse(text)) == text


@pytest.mark.parametrize(
    ("text", "place", "layers", "host"),
    [
        ("bare", "bare", (), ""),
        ("bare+proxy", "bare", ("proxy",), ""),
        ("container", "container", ("container",), ""),
        ("ssh:me@gpu-1", "ssh", (), "me@gpu-1"),
        ("ssh:me+tag@gpu-1", "ssh", (), "me+tag@gpu-1"),
        ("ssh:host+proxy", "ssh", ("proxy",), "host"),
        ("container:runsc", "container", ("container", "runsc"), ""),
        ("k8s:gvisor+proxy", "k8s", ("k8s", "gvisor", "proxy"), ""),
        ("k8s+time-slicing", "k8s", ("k8s", "time-slicing"), ""),
    ],
)
def test_layers_leave_out_the_machine_below(text: str, place: str, layers: tuple[str, ...], host: str) -> None:
    name = parse(text)
    assert (name.place, name.layers, name.host) == (place, layers, host)


@pytest.mark.parametrize(
    ("text", "parent"),
    [("bare", None), ("ssh:host", None), ("container", "bare"), ("k8s", "bare"), ("k8s+proxy", "k8s"),
     ("bare+proxy", "bare"), ("ssh:host+proxy", "ssh:host"), ("container:runsc", "container"), ("k8s:kata", "k8s"),
     ("k8s:gvisor+proxy", "k8s:gvisor")],
)  # fmt: skip
def test_a_layer_is_compared_with_what_lies_below_it(text: str, parent: str | None) -> None:
    found = parse(text).parent
    assert (None if found is None else str(found)) == parent


def test_only_techniques_share_a_device() -> None:
    assert [parse(name).sharing_layer for name in ("bare", "k8s", "k8s+proxy", "k8s+mps")] == ["", "", "", "mps"]


def test_every_layer_of_every_environment_is_known() -> None:
    written = [name for name in ENVIRONMENTS if not parse(name).runtime]
    assert {layer for name in written for layer in parse(name).layers} <= set(LAYERS)


@pytest.mark.parametrize(
    ("text", "known"),
    [("container:runsc", True), ("k8s:kata-qemu", True), ("k8s:my.class", True), ("container:", True),
     ("bare:runsc", False), ("container:a b", False), ("container:../runc", False), ("k8s:-x", False)],
)  # fmt: skip
def test_a_runtime_is_part_of_the_name_of_a_container_or_pod(text: str, known: bool) -> None:
    assert is_environment(text) is known


@pytest.mark.parametrize(
    ("text", "environment"),
    [
        ("baseline_results", "bare"),
        ("baseline", "bare"),
        ("k8s-baseline-results", "k8s"),
        ("with-gpu-proxy-results", "bare+proxy"),
        ("k8s-with-proxy-results", "k8s+proxy"),
        ("k8s-with-hypervisor-results", "k8s+xen"),
        ("xen-results", "k8s+xen"),
        ("Direct GPU access, no virtualization", "bare"),
        ("Kubernetes Pod (Bare Metal)", "k8s"),
        ("K8s pod (no isolation)", "k8s"),
        ("With GPU Proxy (No Hypervisor)", "bare+proxy"),
        ("Bare metal + GPU proxy", "bare+proxy"),
        ("K8s pod → GPU proxy daemonset → GPU", "k8s+proxy"),
        ("K8s pod → Xen hypervisor → GPU", "k8s+xen"),
        ("ssh:me@gpu-1, on Tesla T4", "ssh:me@gpu-1"),
        ("k8s+time-slicing, on Tesla T4", "k8s+time-slicing"),
        ("docker", "container"),
        ("container:runsc, on Xeon", "container:runsc"),
        ("run-7", ""),
        ("database", ""),
        ("proxyless", ""),
        ("", ""),
    ],
)
def test_an_environment_in_peoples_words(text: str, environment: str) -> None:
    assert environment_in(text) == environment


@pytest.mark.parametrize("name", [name for name in ENVIRONMENTS if ":" not in name])
def test_every_environment_is_read_as_itself(name: str) -> None:
    assert is_environment(name)
    assert environment_in(name) == name
