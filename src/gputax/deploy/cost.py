"""The cost of a deployment: list price times hours, with the hours from the deployment's event log."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gputax.deploy.plan import Plan, Rate
from gputax.deploy.prices import load_prices

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


def moment(text: str) -> datetime.datetime:
    """Parse a time of the event log."""
    return datetime.datetime.fromisoformat(text)


def price_facts(provider: str, choices: Mapping[str, Any]) -> dict[str, Any]:
    """Return the price table's date and sources; empty for the user's own cluster."""
    if provider != "gke":
        return {}
    prices = load_prices(Path(choices["prices"]) if choices.get("prices") else None)
    return {"prices_as_of": prices.as_of, "sources": list(prices.sources), "note": prices.note}
