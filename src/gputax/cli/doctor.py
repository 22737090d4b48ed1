"""`gputax doctor`: diagnose this machine or cluster and suggest fixes."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from gputax.cli.options import Verb, as_json, options, own, place_options, variable_options
from gputax.doctor.machine import Finding, Status, diagnose, inspect_disk
from gputax.doctor.runtimes import runtime_facts
from gputax.doctor.software import confinement_facts, native_facts
from gputax.errors import GputaxError, PreflightError
from gputax.places import ENVIRONMENTS, Places, environment_named, refuse_unknown
from gputax.plan.driver import DriverChoice, chosen_engine
from gputax.plan.environment import K8S, EnvironmentName
from gputax.plan.options import EnvironmentOptions, declared
from gputax.text import counted, duration, percent
from gputax.worker.workloads.model_store import models_folder

if TYPE_CHECKING:
    from gputax.results.documents.comparison import Resolution

LISTEN_S = 1.0
# Half-widths that decide the budgets: a quarter of 10 %, 5 % and 1 %.
TARGETS_PERCENT = (2.5, 1.25, 0.25)
MARKS: dict[Status, str] = {"ok": "✓", "warn": "!", "fail": "✗"}
COLOURS: dict[Status, str] = {"ok": "", "warn": "yellow", "fail": "red"}


@click.command(cls=Verb)
@options(
    own("env", f"One of {', '.join(ENVIRONMENTS)}.", "bare", short=True, show_default=True, key="environment"),
    declared("out", help="Directory for results.", default="results", show_default=True),
    own("resolution", "Measure A against A: the smallest overhead this machine can resolve.", False, short=True),
    declared("workload", help="With --resolution: what runs."),
    declared("engine", help="With --resolution: what executes it. [default: onnx; micro: driver; proxy: tinygrad]"),
    own("max-time", "With --resolution: seconds.", 30.0, least=3, short=True, show_default=True),
    as_json("Write findings and facts as JSON."),
    declared("device", help="k8s: cuda requests a GPU."),
)
@place_options
@variable_options
@click.pass_context
def doctor(
    context: click.Context,
    /,
    environment: str,
    out: str,
    resolution: bool,
    as_json: bool,
    device: str,
    options: EnvironmentOptions,
    **measured: Any,
) -> None:
    """Check for anything that would distort or stop a measurement, and suggest a command that fixes it.

    Exits with 3 if anything stops a measurement.
    """
    refuse_unknown(environment)
    if resolution:
        _show_resolution(environment, as_json=as_json, **measured)
        return
    facts, findings = examined(environment, options, device)
    findings += diagnose(facts, inspect_disk(models_folder(), Path(out))) if facts.get("host") else []
    if as_json:
        document = {"environment": environment, "findings": [f.to_dict() for f in findings], "facts": facts}
        click.echo(json.dumps(document, indent=2))
    else:
        write_findings(findings, environment, sys.stdout)
    if any(finding.status == "fail" for finding in findings):
        context.exit(PreflightError.exit_code)


def examined(environment: str, options: EnvironmentOptions, device: str) -> tuple[dict[str, Any], list[Finding]]:
    """Return what a worker there tells, and what was found before it could be asked.

    Of a cluster everything is asked that decides whether a pod starts; if nothing speaks against it, one is started.
    """
    findings: list[Finding] = []
    facts: dict[str, Any] = {}
    if EnvironmentName.parse(environment).place == K8S:
        from gputax.doctor.cluster import examine_cluster

        facts["cluster"], findings = examine_cluster(environment, options, device)
        if any(finding.status == "fail" for finding in findings):
            return facts, findings
    try:
        return {**facts, **gather_facts(environment, options, device)}, findings
    except GputaxError as error:
        if environment == "bare":
            raise
        why = "No worker can be started there, so nothing can be measured."
        return facts, [*findings, Finding("fail", error.what, error.where, why, error.next_step)]


def gather_facts(environment: str, options: EnvironmentOptions | None = None, device: str = "auto") -> dict[str, Any]:
    """Ask a worker there; what it tells is what a measurement would meet."""
    from gputax.environments.connection import WorkerConnection

    def say(text: str) -> None:
        click.echo(f"gputax: {text}", err=True)

    driver = DriverChoice(device, needed=False)
    with Places(options, say) as places, WorkerConnection(environment_named(environment, driver, places)) as connection:
        described = connection.describe(with_engines=True, listen_s=LISTEN_S)
    here = {"native": native_facts(), "confinement": confinement_facts(), "runtimes": runtime_facts()}
    return {**described.to_dict(), **here}


def write_findings(findings: Iterable[Finding], environment: str, stream: TextIO, width: int | None = None) -> None:
    """Write the findings for people: one line each, and below it why it matters and what fixes it."""
    from gputax.report.exporters.console_text import Screen

    screen = Screen(stream, width)
    screen.say(f"gputax doctor: {environment}")
    counts: dict[Status, int] = {"ok": 0, "warn": 0, "fail": 0}
    for finding in findings:
        counts[finding.status] += 1
        detail = f" ({finding.detail})" if finding.detail else ""
        screen.say(f"{MARKS[finding.status]} {finding.title}{detail}", COLOURS[finding.status], hang=2)
        if finding.why:
            screen.say(f"    why: {finding.why}")
        if finding.fix_command:
            # A command is copied: it stays on one line.
            screen.line(f"    fix: {finding.fix_command}")
    totals = (f"{counts['ok']} ok", counted(counts["warn"], "warning"), counted(counts["fail"], "failure"))
    screen.say(", ".join(totals))


def _show_resolution(environment: str, workload: str, engine: str, max_time: float, *, as_json: bool) -> None:
    """Measure two equal sides and say what that means for a budget."""
    from gputax import api
    from gputax.cli.progress import Progress

    with Progress(sys.stderr, max_time) as progress:
        found = api.resolution(
            environment,
            workload=workload,
            engine=engine,
            max_time_s=max_time,
            say=progress.say,
            on_pair=progress.pair,
        )
    if as_json:
        click.echo(found.model_dump_json(indent=2))
        return
    from gputax.report.exporters.console_text import Screen

    screen = Screen(sys.stdout)
    for line in sentences(found, environment, workload, chosen_engine(workload, engine, (environment,))):
        screen.say(line)


def sentences(found: Resolution, environment: str, workload: str, engine: str) -> list[str]:
    """Return the finding for people."""
    lines = [
        f"A/A of {workload} ({engine}) in {environment}: ±{percent(found.half_width_percent)} "
        f"from {found.pairs:,} pairs in {duration(found.seconds)}"
    ]
    for target in TARGETS_PERCENT:
        minutes = minutes_for(found, target)
        lines.append(f"  ±{target:g} % (decides a budget of {4 * target:g} %) takes about {duration(60.0 * minutes)}")
    if not found.contains_zero:
        lines.append("  The interval excludes zero although both sides are equal: something disturbs this machine.")
    return lines


def minutes_for(found: Resolution, target_percent: float) -> float:
    """Return the time for a half-width: it shrinks with the square root of the time."""
    return found.seconds * (found.half_width_percent / target_percent) ** 2 / 60.0
