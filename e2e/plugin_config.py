"""NVIDIA's configuration of its device plugin, read as the plugin reads it: what a label and a file ask for."""

from __future__ import annotations

from typing import Any

import yaml

from e2e.device_offer import EXCLUSIVE, RESOURCE, Mode, mig_slices

CONFIG_LABEL = "nvidia.com/device-plugin.config"
MIG_LABEL = "nvidia.com/mig.config"
MIG_STATE_LABEL = "nvidia.com/mig.config.state"


class ConfigError(ValueError):
    """NVIDIA's plugin would not start with this."""


def mode_of(text: str) -> Mode:
    """Return the mode that a configuration file asks for; where both are named, MPS wins as it does there."""
    config = yaml.safe_load(text) or {}
    if config.get("version") != "v1":
        raise ConfigError(f"unknown version: {config.get('version')}")
    sharing: dict[str, Any] = config.get("sharing") or {}
    plugin = (config.get("flags") or {}).get("plugin") or {}
    packed = plugin.get("sharedDevicesAllocationPolicy") == "packed"
    if sharing.get("mps"):
        return _shared("mps", sharing["mps"], packed)
    if sharing.get("timeSlicing"):
        return _shared("time-slicing", sharing["timeSlicing"], packed)
    return EXCLUSIVE


def mig_mode(label: str) -> Mode:
    """Return the mode for a value of the MIG label, such as `all-1g.10gb` or `all-disabled`."""
    profile = label.removeprefix("all-")
    if profile == "disabled":
        return EXCLUSIVE
    try:
        mig_slices(profile)
    except ValueError as error:
        raise ConfigError(f"no such MIG configuration: {label}") from error
    return Mode(profile=profile)


def _shared(strategy: Any, section: dict[str, Any], packed: bool) -> Mode:
    resources = section.get("resources") or []
    replicas = next((each.get("replicas") for each in resources if each.get("name") == RESOURCE), None)
    if replicas is None:
        return EXCLUSIVE  # only other resources are shared
    if not isinstance(replicas, int) or replicas < 2:
        raise ConfigError(f"number of replicas must be >= 2: {replicas}")
    return Mode(strategy, replicas, renamed=bool(section.get("renameByDefault")), packed=packed)
