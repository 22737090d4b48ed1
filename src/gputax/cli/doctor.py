"""`gputax doctor`: what is wrong here, and the command that mends it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TextIO

import click

from gputax.environments import environment_named
from gputax.environments.doctor import Finding, Status, diagnose, inspect_disk
from gputax.errors import PreflightError
from gputax.worker.workloads.model_folder import models_folder

LISTEN_S = 1.0
MARKS: dict[Status, str] = {"ok": "✓", "warn": "!", "fail": "✗"}
PLAIN_MARKS: dict[Status, str] = {"ok": "ok", "warn": "!", "fail": "x"}
COLOURS: dict[Status, str] = {"ok": "green", "warn": "yellow", "fail": "red"}


@click.command()
@click.option("--env", "environment", default="bare", show_default=True, help="Where a worker would run.")
@click.option("--out", default="results", show_default=True, help="Where results would go.")
@click.option("--resolution", is_flag=True, help="Run a short A/A: the smallest overhead this machine can resolve.")
@click.option("--workload", default="resnet50", show_default=True, help="With --resolution: what runs.")
@click.option("--engine", default="onnx", show_default=True, help="With --resolution: what executes it.")
@click.option(
    "--max-time", default=30.0, show_default=True, type=click.FloatRange(3), help="With --resolution: seconds."
)
@click.option("--json", "as_json", is_flag=True, help="Write findings and facts as JSON.")
@click.pass_context
def doctor(
    context: click.Context, /, environment: str, out: str, resolution: bool, as_json: bool, **measured: Any
) -> None:
    """Look for what would spoil or stop a measurement here, with the command that mends it.

    Exits with 3 if anything stops a measurement.
    """
    if resolution:
        from gputax.cli.resolution import show_resolution

        show_resolution(environment, as_json=as_json, **measured)
        return
    facts = gather_facts(environment)
    findings = diagnose(facts, inspect_disk(models_folder(), Path(out)))
    if as_json:
        document = {"environment": environment, "findings": [f.to_dict() for f in findings], "facts": facts}
        click.echo(json.dumps(document, indent=2))
    else:
        colour = wants_colour(sys.stdout, os.environ)
        click.echo(render(findings, environment, marks_for(sys.stdout), colour), color=colour)
    if any(finding.status == "fail" for finding in findings):
        context.exit(PreflightError.exit_code)


def gather_facts(environment: str) -> dict[str, Any]:
    """Ask a worker there; what it tells is what a measurement would meet."""
    from gputax.environments.connection import WorkerConnection

    with WorkerConnection(environment_named(environment)) as connection:
        return connection.describe(with_engines=True, listen_s=LISTEN_S)


def render(
    findings: Iterable[Finding], environment: str, marks: Mapping[Status, str] = MARKS, colour: bool = False
) -> str:
    """Return the findings for people: one line each, and below it why it matters and what mends it."""
    lines = [f"gputax doctor: {environment}"]
    counts: dict[Status, int] = {"ok": 0, "warn": 0, "fail": 0}
    for finding in findings:
        counts[finding.status] += 1
        mark = marks[finding.status]
        shown = click.style(mark, fg=COLOURS[finding.status], bold=True) if colour else mark
        lines.append(f"{shown} {finding.title}" + (f" ({finding.detail})" if finding.detail else ""))
        if finding.why:
            lines.append(f"    why  {finding.why}")
        if finding.fix_command:
            lines.append(f"    fix  {finding.fix_command}")
    lines.append(f"{counts['ok']} well, {counts['warn']} to know, {counts['fail']} to mend")
    return "\n".join(lines)


def wants_colour(stream: TextIO, environ: Mapping[str, str]) -> bool:
    """Whether the stream is a terminal whose user did not say no."""
    return stream.isatty() and not environ.get("NO_COLOR")


def marks_for(stream: TextIO) -> dict[Status, str]:
    """Return marks that the stream's encoding can show."""
    try:
        "".join(MARKS.values()).encode(stream.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return PLAIN_MARKS
    return MARKS
