"""Start a deployment or resume an existing one; two deployments cannot share a directory."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gputax.deploy.collection import foreign_results, is_collected
from gputax.deploy.state import Deployment, State, StepRecord, now_text
from gputax.errors import UsageError

# Steps of one run of the benchmark; all earlier steps set up the cluster.
RUN_STEPS = ("job", "run", "collect")


def begin_state(
    provider: str, choices: Mapping[str, Any], deployment: Deployment, idle_limit_s: float, rerun: bool
) -> State:
    """Return the state to continue with; it is written only after the user confirms."""
    out = deployment.results
    if not deployment.exists():
        if foreign_results(deployment):
            raise UsageError(
                "the directory already contains other results",
                where=str(out),
                next_step=f"choose another --out, not {out}",
            )
        return _take(deployment, State(provider, new_run_id(), now_text(), choices, idle_limit_s))
    state = deployment.state
    collected = is_collected(deployment, state.run_id)
    if collected and not rerun and not _place_differs(state, provider, choices):
        return state
    if state.destroyed_at:
        if collected and not rerun:
            raise UsageError(
                "the directory contains results of an earlier deployment",
                where=str(out),
                next_step="use another --out, or --rerun to replace them",
            )
        fresh_state = State(provider, new_run_id(), now_text(), choices, idle_limit_s, earlier_runs=_runs(state))
        return _take(deployment, fresh_state)
    if _place_differs(state, provider, choices):
        raise UsageError(
            f"the directory contains another deployment ({_differences(state, provider, choices)})",
            where=str(out),
            next_step=f"use another --out, or run gputax destroy --out {out} first",
        )
    if rerun or state.choices["benchmark"] != choices["benchmark"]:
        # A different benchmark or --rerun: a new run on the same cluster.
        kept = {name: record for name, record in state.steps.items() if name not in RUN_STEPS}
        job = state.record("job")
        fresh = {"job": StepRecord(ours=True)} if job.ours else {}
        again = replace(state, run_id=new_run_id(), earlier_runs=_runs(state), steps={**kept, **fresh})
        return _take(deployment, replace(again, choices=choices, idle_limit_s=idle_limit_s))
    return state


def _runs(state: State) -> tuple[str, ...]:
    return (*state.earlier_runs, state.run_id)


def _take(deployment: Deployment, state: State) -> State:
    deployment.hold(state)
    return state


def _place_differs(state: State, provider: str, choices: Mapping[str, Any]) -> bool:
    return state.provider != provider or any(
        state.choices.get(key) != choices.get(key) for key in (provider, "build") if key in choices
    )


def _differences(state: State, provider: str, choices: Mapping[str, Any]) -> str:
    if state.provider != provider:
        return f"provider {state.provider}, not {provider}"
    old, new = state.choices.get(provider) or {}, choices.get(provider) or {}
    changed = [f"{key} {old.get(key)!r}, not {value!r}" for key, value in new.items() if old.get(key) != value]
    return ", ".join(changed) or ("with an image built here" if state.choices.get("build") else "with a finished image")


def new_run_id() -> str:
    """Return a short id that is valid as a label."""
    return secrets.token_hex(4)
