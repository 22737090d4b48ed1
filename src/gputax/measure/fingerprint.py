"""A worker's report on its host, device and engine, as stored in every record; pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gputax.environments.environment import Described
from gputax.plan.claims import claim
from gputax.plan.engines import parse_engine
from gputax.plan.notices import Notice
from gputax.plan.workloads import workload_facts

HOST_FACTS = ("cpu_model", "cores_online", "kernel", "hypervisor", "governors", "distribution")
# Facts that change from one start of the same worker to the next.
PASSING_FACTS = ("answers", "kept_captures", "notices", "prepare_s")


def host_of(described: Described) -> dict[str, Any]:
    """Return the facts of the host that stay the same as long as the machine is the same."""
    return {name: described.host.get(name) for name in HOST_FACTS}


def engine_of(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts of the loaded engine that stay the same from one start to the next."""
    return {name: value for name, value in facts.items() if name not in PASSING_FACTS}


def notices_of(facts: Mapping[str, Any]) -> list[Notice]:
    """Return the worker's notices from preparing the engine."""
    return [Notice.from_dict(each) for each in facts.get("notices", [])]


def device_name_of(described: Described, facts: Mapping[str, Any]) -> str:
    """Return the name of the device that the engine used."""
    if facts.get("device_name"):
        return str(facts["device_name"])
    if facts["device"] == "cuda":
        return str((described.gpus or [{}])[0].get("name") or "unknown NVIDIA device")
    return str(described.host.get("cpu_model") or "unknown CPU")


def claim_of(workload: str, scenario: str, engine: str, facts: Mapping[str, Any], *, official: bool = False) -> str:
    """Return the claim that a number of this workload allows."""
    return claim(
        scenario,
        parse_engine(engine).name,
        str(facts["device"]),
        str(facts.get("weights", "none")),
        official=official,
        is_mlperf_model=workload_facts(workload).is_mlperf_model,
        device_name=str(facts.get("device_name") or ""),
        emulated=facts.get("emulated") is True,
    )
