"""Providers: where a deployment can run. Each creates a plan, again the same one from recorded choices."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gputax.deploy.cost import load_prices
from gputax.deploy.plan import BenchmarkChoices, Plan
from gputax.deploy.providers.current import CurrentChoices, current_plan
from gputax.deploy.providers.gke import GkeChoices, gke_plan
from gputax.deploy.state import Deployment, State, find_deployment
from gputax.deploy.tools import RealTools
from gputax.errors import unknown_name

PROVIDERS: dict[str, str] = {
    "current": "the cluster of your kubeconfig",
    "gke": "a new cluster with a GPU node pool on Google Kubernetes Engine",
}


def plan_of(provider: str, choices: Mapping[str, Any], run_id: str, results: Path) -> Plan:
    """Build the plan from the choices; the same choices give the same plan."""
    benchmark = BenchmarkChoices(**choices["benchmark"])
    if provider == "current":
        return current_plan(CurrentChoices(**choices["current"]), benchmark, run_id, str(results))
    if provider == "gke":
        prices = load_prices(Path(choices["prices"]) if choices.get("prices") else None)
        build = bool(choices.get("build", True))
        return gke_plan(GkeChoices(**choices["gke"]), benchmark, run_id, str(results), prices, build=build)
    raise unknown_name("provider", provider, PROVIDERS)


def open_deployment(out: str) -> tuple[Deployment, Plan, RealTools]:
    """Return the deployment (the only one under results/ if `out` is empty), its plan as recorded, and its tools."""
    deployment = find_deployment(out)
    state = deployment.state
    plan = plan_of(state.provider, state.choices, state.run_id, deployment.results)
    return deployment, plan, tools_for(plan, state)


def tools_for(plan: Plan, state: State) -> RealTools:
    """Return tools that are connected to this deployment's cluster only."""
    place = state.choices.get("current") or {}
    namespace = str(state.choices["benchmark"]["namespace"])
    return RealTools(plan.kubeconfig, str(place.get("context", "")), namespace, str(place.get("server", "")))
