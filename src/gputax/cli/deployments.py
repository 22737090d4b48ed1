"""Open the deployment that a verb is about, and warn of the ones that everybody forgot."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from gputax.deploy.access import RealTools
    from gputax.deploy.plan import Plan
    from gputax.deploy.state import Deployment


def opened(out: str) -> tuple[Deployment, Plan, RealTools]:
    """Return the deployment, its plan as recorded, and the tools that reach it."""
    from gputax.deploy.providers.registry import plan_of, tools_for
    from gputax.deploy.state import find_deployment

    deployment = find_deployment(out)
    state = deployment.state
    plan = plan_of(state.provider, state.choices, state.run_id, deployment.results)
    return deployment, plan, tools_for(plan, state)


def warn_of_forgotten(root: Path = Path("results")) -> None:
    """Tell, after any verb, of deployments that are idle for longer than their limit; costs one glob where none is."""
    if not any(root.glob("*/deployment/state.json")):
        return
    from gputax.deploy.state import forgotten, now
    from gputax.text import duration

    for deployment, idle_s in forgotten(root, now()):
        click.echo(
            f"Warning: the deployment {deployment.results} has been idle for {duration(idle_s)} "
            f"and may cost money: gputax status --out {deployment.results}, gputax destroy --out {deployment.results}",
            file=sys.stderr,
        )
