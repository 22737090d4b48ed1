"""Collect a Job's results: the record from the result block at the end of its log, and the log itself."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from gputax.deploy.access import Tools
from gputax.deploy.job_watch import pods_of
from gputax.deploy.plan import CollectResults, Command
from gputax.deploy.state import Deployment, now_text
from gputax.errors import GputaxError, ResultsError
from gputax.results.files import write_text

LOG_NAME = "pod.log"


@dataclass(frozen=True)
class Collected:
    """The collected files."""

    record: Path
    log: Path
    source: str
    cells: int


def is_collected(deployment: Deployment, run_id: str) -> bool:
    """Whether the complete record of this run is in the result directory."""
    try:
        marker = json.loads((deployment.path / "collected.json").read_text())
        return marker["run_id"] == run_id and not marker.get("job_failed") and _record_path(deployment).exists()
    except (OSError, ValueError, KeyError):
        return False


def foreign_results(deployment: Deployment) -> bool:
    """Whether the result directory contains results that are not from a deployment."""
    return _record_path(deployment).exists() and not (deployment.path / "collected.json").exists()


def collect(
    tools: Tools,
    deployment: Deployment,
    action: CollectResults,
    run_id: str,
    lost_log: tuple[Command, ...],
    job_failed: bool = False,
) -> Collected:
    """Read the log, check its result block, and write both; idempotent."""
    text, source = _log_text(tools, action, run_id, lost_log)
    log = deployment.results / LOG_NAME
    write_text(log, text)
    # Imported here: the record's schema needs pydantic, which `gputax status` does not.
    from gputax.results.importers.pod_log import read_block

    try:
        record, _ = read_block(text, str(log))
    except ResultsError as error:
        raise ResultsError(
            error.what, where=str(log), next_step=f"{error.next_step or 'read the log'}; the log was saved"
        ) from error
    write_text(_record_path(deployment), record.model_dump_json(indent=2) + "\n")
    marker = {"run_id": run_id, "collected_at": now_text(), "from": source, "job_failed": job_failed}
    write_text(deployment.path / "collected.json", json.dumps(marker, indent=2) + "\n")
    return Collected(_record_path(deployment), log, source, len(record.benchmarks))


def _log_text(tools: Tools, action: CollectResults, run_id: str, lost_log: tuple[Command, ...]) -> tuple[str, str]:
    pods = pods_of(tools.cluster(), action.namespace, run_id)
    if pods:
        name = str(pods[-1]["metadata"]["name"])
        return tools.cluster().log(name, namespace=action.namespace), f"pod {name}"
    for command in lost_log:
        found = tools.ask(command)
        if found.exit_code == 0 and found.output:
            return found.output + "\n", "the cloud's own log"
    raise GputaxError(
        "the Job's pod no longer exists, so its log is lost",
        where=f"Job {action.job}, namespace {action.namespace}",
        next_step="run it again with gputax deploy --rerun",
    )


def _record_path(deployment: Deployment) -> Path:
    return deployment.results / "benchmark_results.json"
