"""What `gputax share` refuses because it would have no effect, or could not have any."""

from __future__ import annotations

import dataclasses
from typing import Any
from urllib.parse import urlsplit

from gputax.errors import UsageError
from gputax.plan.options import EnvironmentOptions
from gputax.plan.techniques import SharePlan

_OPTION_NAMES = {"ready_timeout_s": "ready-timeout"}


def refuse_ignored(plan: SharePlan, options: EnvironmentOptions, chosen: dict[str, Any]) -> None:
    """Refuse options that nobody would look at, and an address where no Prometheus can be."""
    if plan.place == "bare":
        _refuse_options_of_a_cluster(options, chosen["threads"])
    if chosen["proxy_memory_mb"] and (plan.place != "bare" or "proxy" not in plan.techniques):
        raise UsageError(
            "--proxy-memory-mb is for the GPU proxy of this machine, which is not asked for",
            next_step="add --env bare --tech proxy, or drop it",
        )
    if chosen["prometheus"]:
        _refuse_address(chosen["prometheus"])


def _refuse_options_of_a_cluster(options: EnvironmentOptions, threads: int) -> None:
    default = EnvironmentOptions(cpus=threads)  # CPUs that are not named follow the threads
    for field in dataclasses.fields(options):
        if getattr(options, field.name) not in (getattr(default, field.name), field.default):
            name = _OPTION_NAMES.get(field.name, field.name.replace("_", "-"))
            raise UsageError(
                f"--{name} says something of a container or a cluster; the environment bare has neither",
                next_step="add --env k8s, or drop it",
            )


def _refuse_address(url: str) -> None:
    try:
        address = urlsplit(url)
        usable = address.scheme in ("http", "https") and bool(address.hostname) and address.port != 0
    except ValueError:  # a port that is no number, half of an IPv6 address
        usable = False
    if not usable:
        raise UsageError(
            f"--prometheus {url!r} is no http address", next_step="e.g. --prometheus http://localhost:9090"
        )
