"""The cost of a deployment: prices from a dated table, hours from the deployment's event log."""

from __future__ import annotations

import datetime
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gputax.deploy.plan import Plan, Rate
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


METHOD = (
    "list price x hours. A resource counts from the start of the step that creates it until it is removed; "
    "a GPU node until the autoscaler removes it. Without tax, traffic, image storage, free tier and discounts."
)

Event = Mapping[str, Any]


@dataclass(frozen=True)
class CostLine:
    """One price and the hours it applied."""

    rate: Rate
    hours: float
    running: bool

    @property
    def usd(self) -> float:
        """Dollars for these hours."""
        return self.rate.usd_per_hour * self.hours


@dataclass(frozen=True)
class Cost:
    """The cost so far, and the resources that still cost money."""

    lines: tuple[CostLine, ...]

    @property
    def usd(self) -> float:
        """Dollars so far."""
        return sum(line.usd for line in self.lines)

    @property
    def usd_per_hour_now(self) -> float:
        """Dollars per hour from now on."""
        return sum(line.rate.usd_per_hour for line in self.lines if line.running)

    def to_dict(self) -> dict[str, Any]:
        """Return the figures for `--json`."""
        return {
            "usd": round(self.usd, 4),
            "usd_per_hour_now": round(self.usd_per_hour_now, 4),
            "lines": [
                {
                    "what": line.rate.title,
                    "usd_per_hour": round(line.rate.usd_per_hour, 5),
                    "hours": round(line.hours, 4),
                    "usd": round(line.usd, 4),
                    "running": line.running,
                    "method": line.rate.method,
                }
                for line in self.lines
            ],
        }


@dataclass
class _Meter:
    """Accumulates the time of one price while the events are read."""

    counted_s: float = 0.0
    begun: datetime.datetime | None = None
    ends: datetime.datetime | None = None

    def start(self, at: datetime.datetime) -> None:
        self._settle(at)
        if self.begun is None:
            self.begun = at
        self.ends = None

    def stop(self, at: datetime.datetime) -> None:
        self._settle(at)
        if self.begun is not None:
            self.counted_s += (at - self.begun).total_seconds()
        self.begun = self.ends = None

    def _settle(self, at: datetime.datetime) -> None:
        """Stop counting a lingering node at the time it was removed, if that is before `at`."""
        if self.begun is not None and self.ends is not None and self.ends <= at:
            self.counted_s += (self.ends - self.begun).total_seconds()
            self.begun = self.ends = None

    def line(self, rate: Rate, now: datetime.datetime) -> CostLine:
        self._settle(now)
        running = self.begun is not None
        open_s = (now - self.begun).total_seconds() if self.begun is not None else 0.0
        return CostLine(rate, (self.counted_s + open_s) / 3600, running)


def spent(plan: Plan, events: Iterable[Event], now: datetime.datetime) -> Cost:
    """Add up the cost from the event log; resources that existed before the deployment are not counted."""
    meters = {rate.key: _Meter() for rate in plan.rates}
    busy = {rate.key for rate in plan.rates if rate.while_busy}
    for event in events:
        at = moment(str(event["at"]))
        kind = event["event"]
        if kind == "step-begun":
            for key in _keys(plan, str(event["step"]), nested=False):
                meters[key].start(at)
        elif kind == "job-ended":
            for key in busy:
                if meters[key].begun is not None:
                    meters[key].ends = at + datetime.timedelta(seconds=plan.linger_s)
        elif kind == "undone" or (kind == "step-failed" and event.get("left_behind") is False):
            for key in _keys(plan, str(event["step"]), nested=True):
                meters[key].stop(at)
        elif kind == "scaled-to-zero":
            for key in busy:
                meters[key].stop(at)
        elif kind == "destroyed":
            for meter in meters.values():
                meter.stop(at)
    return Cost(tuple(meters[rate.key].line(rate, now) for rate in plan.rates))


def _keys(plan: Plan, name: str, nested: bool) -> list[str]:
    return [key for step in plan.steps if step.name == name or (nested and step.within == name) for key in step.rates]


def expected(plan: Plan) -> Cost:
    """Estimate the cost of a plan: every step takes its expected time, and all is destroyed after the last one."""
    total_s = plan.expected_s()
    begins: dict[str, float] = {}
    clock_s = 0.0
    for step in plan.steps:
        for key in step.rates:
            begins.setdefault(key, clock_s)
        clock_s += step.expected_s
    return Cost(
        tuple(
            CostLine(rate, (total_s - begins[rate.key]) / 3600, running=not rate.while_busy)
            for rate in plan.rates
            if rate.key in begins
        )
    )


@dataclass(frozen=True)
class Bill:
    """What a deployment has cost so far, with the plan that it was for and the price table that was used."""

    plan: Plan
    cost: Cost
    prices: Mapping[str, Any]
    """The table's date, sources and note; empty for the user's own cluster."""

    def to_dict(self) -> dict[str, Any]:
        """Return the figures for `--json`."""
        return {**self.cost.to_dict(), "method": METHOD, **self.prices}


def moment(text: str) -> datetime.datetime:
    """Parse a time of the event log."""
    return datetime.datetime.fromisoformat(text)


def price_facts(provider: str, choices: Mapping[str, Any]) -> dict[str, Any]:
    """Return the price table's date and sources; empty for the user's own cluster."""
    if provider != "gke":
        return {}
    prices = load_prices(Path(choices["prices"]) if choices.get("prices") else None)
    return {"prices_as_of": prices.as_of, "sources": list(prices.sources), "note": prices.note}
