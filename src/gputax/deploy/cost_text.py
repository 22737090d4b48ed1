"""The cost as text, with the date and the source of every price."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gputax.deploy.cost import METHOD, Cost
from gputax.deploy.plan import Plan
from gputax.deploy.prices import load_prices


def price_facts(provider: str, choices: Mapping[str, Any]) -> dict[str, Any]:
    """Return the table's date and sources; a cluster of the user's has none."""
    if provider != "gke":
        return {}
    prices = load_prices(Path(choices["prices"]) if choices.get("prices") else None)
    return {"prices_as_of": prices.as_of, "sources": list(prices.sources), "note": prices.note}


def cost_text(plan: Plan, cost: Cost, facts: Mapping[str, Any]) -> str:
    """Return the table: what, price per hour, hours, dollars."""
    lines = [plan.title]
    if not plan.rates:
        return f"{plan.title}\nno price is known: {plan.price_note}\n"
    lines.append(f"{'':<48} {'$/hour':>8} {'hours':>8} {'$':>8}")
    for line in cost.lines:
        runs = "  runs" if line.running else ""
        rate = line.rate
        lines.append(f"{rate.title:<48} {rate.usd_per_hour:8.4f} {line.hours:8.3f} {line.usd:8.4f}{runs}")
    lines.append(f"{'so far':<48} {cost.usd_per_hour_now:8.4f} {'':>8} {cost.usd:8.4f}")
    lines += textwrap.wrap(f"Method: {METHOD}", 120)
    if facts:
        lines.append(f"Prices: {plan.price_note}; {facts['note']}")
        lines += [f"  {source}" for source in facts["sources"]]
    return "\n".join(lines) + "\n"
