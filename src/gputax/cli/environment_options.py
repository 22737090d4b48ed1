"""The options that describe a place, the same for every verb that starts a worker."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import wraps
from typing import Any

import click

from gputax.plan.options import PULL_POLICIES, SHARING_FLAVOURS, EnvironmentOptions

DEFAULT = EnvironmentOptions()
_OPTIONS: tuple[Any, ...] = (
    click.option("--inside", is_flag=True, help="k8s: this process is in the pod already, as a Job is; make none."),
    click.option("--image", default=DEFAULT.image, show_default=True, help="container, k8s: the image of gputax."),
    click.option(
        "--pull-policy", default=DEFAULT.pull_policy, type=click.Choice(PULL_POLICIES), help="k8s: when to pull."
    ),
    click.option("--pull-secret", default="", help="k8s: name of the secret to pull the image with."),
    click.option("--namespace", default=DEFAULT.namespace, show_default=True, help="k8s: where the pods are made."),
    click.option("--context", "context_", default="", help="k8s: the kubeconfig's context. [default: current]"),
    click.option("--node", default="", help="k8s: the node by name. [default: the scheduler chooses]"),
    click.option("--runtime-class", default="", help="k8s: RuntimeClass of the pod. [default: the cluster's]"),
    click.option(
        "--cpus", default=0, type=click.IntRange(0, 1024), help="container, k8s: whole CPUs. [default: a bare worker's]"
    ),
    click.option("--memory", default=DEFAULT.memory, show_default=True, help="container, k8s: memory."),
    click.option(
        "--gpus", default=-1, type=click.IntRange(-1, 64), help="container, k8s: GPUs. [default: 1 for --device cuda]"
    ),
    click.option(
        "--remote-command", default="", help="ssh: what starts the worker. [default: python3 -m gputax.worker]"
    ),
    click.option(
        "--ready-timeout",
        default=DEFAULT.ready_timeout_s,
        show_default=True,
        type=click.IntRange(1),
        help="k8s: seconds.",
    ),
    click.option(
        "--sharing-flavour",
        default=DEFAULT.sharing_flavour,
        show_default=True,
        type=click.Choice(SHARING_FLAVOURS),
        help="k8s: who divides a GPU among tenants.",
    ),
    click.option(
        "--plugin-config", default="", help="k8s: NAMESPACE/NAME of the device plugin's ConfigMap. [default: found]"
    ),
    click.option("--mig-profile", default="", help="k8s: a tenant's MIG profile, e.g. 1g.10gb. [default: by tenants]"),
)
_RENAMED = {"context_": "context", "ready_timeout": "ready_timeout_s"}


def environment_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options to a verb, which gets them as one `options`; CPUs not named are the threads, if those are."""

    @wraps(command)
    def wrapped(*words: Any, **chosen: Any) -> Any:
        names = {field.name for field in dataclasses.fields(EnvironmentOptions)}
        given = {_RENAMED.get(key, key): value for key, value in chosen.items()}
        options = EnvironmentOptions(**{key: value for key, value in given.items() if key in names})
        if not options.cpus and chosen.get("threads"):
            options = dataclasses.replace(options, cpus=chosen["threads"])
        rest = {key: value for key, value in chosen.items() if _RENAMED.get(key, key) not in names}
        return command(*words, options=options, **rest)

    for option in reversed(_OPTIONS):
        wrapped = option(wrapped)
    return wrapped
