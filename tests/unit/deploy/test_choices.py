"""What may be asked of a deployment, from Python and from the command line alike."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

import gputax
from gputax.cli.deploy import deploy as command
from gputax.cli.options import seconds
from gputax.deploy.choices import DeployRequest, deploy_request
from gputax.deploy.plan import LabelNodes
from gputax.errors import UsageError

# What the command line does with the plan is not asked of the plan.
OF_THE_COMMAND = {"provider", "out", "idle_limit", "dry_run", "rerun", "yes", "help_all"}


def test_the_command_line_offers_every_field_with_its_default() -> None:
    offered = {parameter.name: parameter.default for parameter in command.params}
    offered = {str(name).rstrip("_"): value for name, value in offered.items() if name not in OF_THE_COMMAND}
    offered["deadline_s"] = seconds(str(offered.pop("deadline")), "--deadline")
    asked = {field.name: field.default for field in fields(DeployRequest) if field.name != "provider"}
    assert {name: value or "" for name, value in offered.items()} == {
        name: value or "" for name, value in asked.items()
    }


@pytest.mark.parametrize(
    ("provider", "option", "what"),
    [
        ("gce", {}, "unknown provider 'gce'"),
        ("current", {"zone": "us-central1-a"}, "--zone is for the provider gke"),
        ("gke", {"device_plugin": False}, "--device-plugin is for the provider current"),
        ("current", {"sweet": "quick"}, "unknown option 'sweet'"),
        ("gke", {"with_xen": True}, "--with-xen is for the provider current"),
        ("current", {"xen_nodes": "a"}, "--xen-nodes is for --with-xen"),
    ],
)
def test_what_a_provider_does_not_have_is_refused(provider: str, option: dict[str, object], what: str) -> None:
    with pytest.raises(UsageError, match=what):
        deploy_request(provider, **option)


@pytest.mark.parametrize(
    ("option", "what"),
    [
        ({"suite": "mine.toml"}, "unknown suite"),
        ({"workload": "resnet50,resnet51"}, "unknown workload 'resnet51'"),
        ({"device": "tpu"}, "unknown device 'tpu'"),
    ],
)
def test_a_name_that_is_not_known_is_refused_before_a_cluster_is_asked(option: dict[str, Any], what: str) -> None:
    with pytest.raises(UsageError, match=what):
        gputax.deploy_plan("current", **option)


def test_a_plan_has_its_steps_and_prices() -> None:
    own = gputax.deploy_plan("current", device="cpu", suite="quick")
    assert [step.name for step in own.steps] == ["namespace", "job", "run", "collect"]
    assert own.rates == ()
    cloud = gputax.deploy_plan("gke", project="my-project-1", accelerator="L4", spot=True)
    assert "my-project-1" in cloud.title
    assert any("g2-standard-4" in rate.title and "Spot" in rate.title for rate in cloud.rates)


def test_guests_get_the_same_benchmark_without_the_gpu_that_dom0_keeps() -> None:
    plan = gputax.deploy_plan("current", with_xen=True, xen_nodes="a, b", in_guests=True)
    assert [step.name for step in plan.steps] == ["xen-nodes", "runtime-class", "namespace", "job", "run", "collect"]
    assert plan.steps[0].action == LabelNodes(("a", "b"), "xen-enabled")
