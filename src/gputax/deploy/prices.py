"""The dated price table: known machines, accelerators and zones, and their prices per hour."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gputax.deploy.plan import Rate
from gputax.errors import UsageError, unknown_name

TABLE = Path(__file__).with_name("prices.toml")


@dataclass(frozen=True)
class Machine:
    """A machine type; the price includes its built-in accelerator, if any."""

    vcpus: int
    memory_gb: float
    usd_per_hour: float
    accelerator: str = ""
    accelerators: int = 0


@dataclass(frozen=True)
class Accelerator:
    """A GPU type, its price in addition to the machine, and the name of its regional quota."""

    title: str
    usd_per_hour: float
    quota: str


@dataclass(frozen=True)
class Prices:
    """One dated table."""

    as_of: str
    sources: tuple[str, ...]
    note: str
    spot_share: float
    cluster_usd_per_hour: float
    disk_usd_per_gb_month: float
    hours_per_month: float
    price_region: str
    same_price_regions: tuple[str, ...]
    machines: Mapping[str, Machine]
    accelerators: Mapping[str, Accelerator]
    zones: Mapping[str, tuple[str, ...]]

    def region_note(self, region: str) -> str:
        """Return a note if the price of another region is used for an unknown one."""
        if region in self.same_price_regions:
            return ""
        return (
            f"no prices for {region} in the table: those of {self.price_region} are used and may differ by 10 to 30 %"
        )

    def cluster(self) -> Rate:
        """Return the fee of the control plane."""
        return Rate(
            "control-plane", "GKE control plane", self.cluster_usd_per_hour, "fee per cluster; the free tier covers one"
        )

    def node(self, key: str, name: str, disk_gb: int) -> Rate:
        """Return the price of a plain machine with its boot disk."""
        machine = self.machines[name]
        return Rate(
            key, f"{name}, {disk_gb} GB disk", machine.usd_per_hour + self._disk(disk_gb), "list price, on demand"
        )

    def gpu_node(self, key: str, machine_name: str, accelerator: str, count: int, disk_gb: int, spot: bool) -> Rate:
        """Return the price of a GPU node: machine, accelerators, boot disk; a disk has no Spot price."""
        machine = self.machines[machine_name]
        gpu = self.accelerators[accelerator]
        extra = 0.0 if machine.accelerator else gpu.usd_per_hour * count
        share = self.spot_share if spot else 1.0
        total = (machine.usd_per_hour + extra) * share + self._disk(disk_gb)
        gpus = gpu.title if count == 1 else f"{count} x {gpu.title}"
        method = f"at most {share:.0%} of the list price (Spot)" if spot else "list price, on demand"
        title = f"{machine_name} with {gpus}, {disk_gb} GB disk{', Spot' if spot else ''}"
        return Rate(key, title, total, method, while_busy=True)

    def _disk(self, size_gb: int) -> float:
        return size_gb * self.disk_usd_per_gb_month / self.hours_per_month


def load_prices(path: Path | None = None) -> Prices:
    """Read the built-in table or the user's."""
    file = path or TABLE
    try:
        data = tomllib.loads(file.read_text())
        return _prices(data)
    except OSError as error:
        raise UsageError(f"cannot read the price table: {error.strerror}", where=str(file)) from error
    except (tomllib.TOMLDecodeError, KeyError, TypeError, ValueError) as error:
        what = f"{error.args[0]} is missing" if isinstance(error, KeyError) else str(error)
        raise UsageError(
            f"malformed price table: {what}", where=str(file), next_step=f"compare it with {TABLE}"
        ) from error


def _prices(data: Mapping[str, Any]) -> Prices:
    return Prices(
        as_of=str(data["as_of"]),
        sources=tuple(data["sources"]),
        note=str(data.get("note", "")),
        spot_share=float(data["spot_share"]),
        cluster_usd_per_hour=float(data["cluster_usd_per_hour"]),
        disk_usd_per_gb_month=float(data["disk_usd_per_gb_month"]),
        hours_per_month=float(data["hours_per_month"]),
        price_region=str(data["price_region"]),
        same_price_regions=tuple(data["same_price_regions"]),
        machines={name: Machine(**facts) for name, facts in data["machines"].items()},
        accelerators={name: Accelerator(**facts) for name, facts in data["accelerators"].items()},
        zones={name: tuple(offered) for name, offered in data["zones"].items()},
    )


def full_accelerator(prices: Prices, name: str) -> str:
    """Return Google's name of an accelerator; `T4` is short for `nvidia-tesla-t4`."""
    short = {each.title.split()[0].lower(): full for full, each in prices.accelerators.items()}
    return short.get(name.lower(), name)


def default_machine(prices: Prices, accelerator: str) -> str:
    """Return the smallest machine for an accelerator; some are only available with their own machine type."""
    own = [name for name, each in prices.machines.items() if each.accelerator == accelerator]
    return own[0] if own else "n1-standard-4"


def check_place(prices: Prices, zone: str, machine: str, accelerator: str, count: int) -> None:
    """Raise if the zone does not offer the machine or accelerator, and suggest the nearest alternative."""
    if zone not in prices.zones:
        raise unknown_name("zone", zone, prices.zones)
    if machine not in prices.machines:
        raise unknown_name("machine type", machine, prices.machines)
    if accelerator not in prices.accelerators:
        raise unknown_name("accelerator", accelerator, prices.accelerators)
    if accelerator not in prices.zones[zone]:
        others = [name for name, offered in prices.zones.items() if accelerator in offered]
        raise UsageError(
            f"{zone} does not offer {accelerator}",
            next_step=f"--zone {_nearest_zone(zone, others)}; known: {', '.join(others)}",
        )
    fixed = prices.machines[machine].accelerator
    if fixed and fixed != accelerator:
        raise UsageError(
            f"{machine} comes with {fixed}, not with {accelerator}",
            next_step=f"--accelerator {fixed}, or --machine n1-standard-4",
        )
    if fixed and count != prices.machines[machine].accelerators:
        raise UsageError(f"{machine} has {prices.machines[machine].accelerators} GPU, not {count}")
    if not fixed and not machine.startswith("n1-"):
        raise UsageError(f"GPUs cannot be added to {machine}", next_step="--machine n1-standard-4")
    if not fixed and prices.accelerators[accelerator].usd_per_hour == 0.0:
        raise UsageError(
            f"{accelerator} cannot be added to {machine}", next_step=f"--machine {default_machine(prices, accelerator)}"
        )


def _nearest_zone(zone: str, others: list[str]) -> str:
    region = zone.rsplit("-", 1)[0]
    return next((other for other in others if other.startswith(region)), others[0])
