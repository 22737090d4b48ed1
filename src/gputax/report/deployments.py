"""A deployment's plan and cost: for people, as a shell script with the same commands, and as manifest files."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from gputax.deploy.cost import METHOD, Bill, Cost, expected
from gputax.deploy.plan import (
    LABELLED,
    ApplyObjects,
    AwaitGpus,
    AwaitJob,
    CollectResults,
    LabelNodes,
    Plan,
    RunCommands,
    Step,
)
from gputax.report.exporters.console_text import Screen
from gputax.report.model import Cell, Column, Table, text_cell
from gputax.results.files import write_text
from gputax.text import duration, printable

PRICE_COLUMNS = (
    Column("what", "what"),
    Column("price", "$ per hour", align="right"),
    Column("method", "how it is priced", spare=1),
)
COST_COLUMNS = (
    Column("what", "what"),
    Column("price", "$/hour", align="right"),
    Column("hours", "hours", align="right"),
    Column("cost", "$", align="right"),
    Column("runs", ""),
)


def step_lines(plan: Plan, folder: Path) -> Iterator[str]:
    """Yield every step with its expected time, followed by its commands."""
    yield f"Plan: {plan.title}"
    yield ""
    for number, step in enumerate(plan.steps, 1):
        yield f"{number:2}. {step.title}  (about {duration(step.expected_s)})"
        yield from (f"      {command}" for command in shell_commands(plan, step, folder))


def expectation(plan: Plan) -> str:
    """Return the expected time and cost."""
    if not plan.rates:
        return f"Price: {plan.price_note}\nExpected: {duration(plan.expected_s())}"
    estimate = expected(plan)
    left = f"; if kept, it costs ${estimate.usd_per_hour_now:.2f} per hour once the GPU node is removed"
    text = f"Expected: {duration(plan.expected_s())}, ${estimate.usd:.2f} if destroyed afterwards"
    return text + (left if estimate.usd_per_hour_now else "")


def shell_commands(plan: Plan, step: Step, folder: Path) -> Iterator[str]:
    """Yield the shell commands of a step; kubectl commands replace our API calls."""
    prefix, kubectl = _kubectl(plan)
    action = step.action
    if isinstance(action, RunCommands):
        for command in action.commands:
            yield (prefix if command.kubeconfig else "") + command.text()
    elif isinstance(action, ApplyObjects):
        apply = prefix + shlex.join((*kubectl, "apply", "-f", str(folder / "manifests" / action.file)))
        spaces = [each["metadata"]["name"] for each in action.objects if each["kind"] == "Namespace"]
        # An existing namespace keeps its pod security level.
        yield " || ".join([*(prefix + shlex.join((*kubectl, "get", "namespace", name)) for name in spaces), apply])
    elif isinstance(action, AwaitGpus):
        names = r"custom-columns=NAME:.metadata.name,GPU:.status.allocatable.nvidia\.com/gpu"
        yield prefix + shlex.join((*kubectl, "get", "nodes", "-o", names))
        if action.install:
            apply = shlex.join((*kubectl, "apply", "-f", str(folder / "manifests" / action.plugin.file)))
            yield f"{prefix}{apply}  # only where a GPU node shows <none>"
    elif isinstance(action, LabelNodes):
        for name in action.nodes:
            yield prefix + shlex.join((*kubectl, "label", "node", name, f"{action.label}={LABELLED}"))
        if not action.nodes:
            yield prefix + shlex.join((*kubectl, "get", "nodes", "-l", f"{action.label}={LABELLED}"))
    elif isinstance(action, AwaitJob):
        words = (*kubectl, "-n", action.namespace, "wait", "--for=condition=complete", f"job/{action.job}")
        yield prefix + shlex.join((*words, f"--timeout={action.limit_s:.0f}s"))
    elif isinstance(action, CollectResults):
        log = shlex.join((*kubectl, "-n", action.namespace, "logs", f"job/{action.job}"))
        yield f"{prefix}{log} > {shlex.quote(str(folder.parent / 'pod.log'))}"


def script_text(plan: Plan, folder: Path) -> str:
    """Return all commands as a script that a user may run instead of `gputax deploy`."""
    lines = [
        "#!/usr/bin/env bash",
        _comment(plan.title),
        "# The commands of the plan, in order. `gputax deploy` also checks each step, resumes, and counts the cost.",
        "set -euo pipefail",
    ]
    for step in plan.steps:
        lines += ["", _comment(step.title)]
        for command in shell_commands(plan, step, folder):
            # A script cannot check the condition of an optional command, so it is a comment.
            lines.append(_comment(command) if isinstance(step.action, AwaitGpus) and "  # only" in command else command)
    undo = [command.text() for step in reversed(plan.steps) for command in step.undo if not step.within]
    lines += ["", "# To remove it all:", *(_comment(command) for command in undo or _kubectl_undo(plan))]
    return "\n".join(lines) + "\n"


def _comment(text: str) -> str:
    """Return one comment line: behind a line break in a name, the rest of it would be a command."""
    return f"# {printable(text, max(1, len(text)))}"


def _kubectl(plan: Plan) -> tuple[str, tuple[str, ...]]:
    """Return the prefix of kubectl commands, and kubectl with its context."""
    prefix = f"KUBECONFIG={shlex.quote(plan.kubeconfig)} " if plan.kubeconfig else ""
    return prefix, ("kubectl", *(("--context", plan.context) if plan.context else ()))


def _kubectl_undo(plan: Plan) -> list[str]:
    _, kubectl = _kubectl(plan)
    jobs = [step.action for step in plan.steps if isinstance(step.action, AwaitJob)]
    return [
        line
        for job in jobs
        for line in (
            shlex.join((*kubectl, "-n", job.namespace, "delete", f"job/{job.job}")),
            shlex.join((*kubectl, "delete", "namespace", job.namespace)) + "  # if it was created only for this",
        )
    ]


def write_plan(plan: Plan, folder: Path) -> list[Path]:
    """Write every manifest and the script, and remove manifests of an earlier plan."""
    import yaml

    written = []
    for step in plan.steps:
        action = step.action.plugin if isinstance(step.action, AwaitGpus) else step.action
        if isinstance(action, ApplyObjects):
            path = folder / "manifests" / action.file
            write_text(path, yaml.safe_dump_all(action.objects, sort_keys=False))
            written.append(path)
    for old in set((folder / "manifests").glob("*.yaml")) - set(written):
        old.unlink()  # of an earlier plan: the directory contains only what is applied
    script = folder / "commands.sh"
    write_text(script, script_text(plan, folder))
    script.chmod(0o755)
    return [*written, script]


def write_deployment_plan(plan: Plan, folder: Path, stream: TextIO, width: int | None = None) -> None:
    """Write every step with its commands, then the price per hour and what is expected in total."""
    screen = Screen(stream, width)
    for line in step_lines(plan, folder):
        screen.line(line)
    screen.say("")
    table = price_table(plan)
    if table is not None:
        screen.table(table)
    for line in expectation(plan).splitlines():
        screen.say(line)
    for note in plan.notes:
        screen.say(f"Note: {note}")


def write_cost(bill: Bill, stream: TextIO, width: int | None = None) -> None:
    """Write what a deployment has cost, by which method and at which prices."""
    plan, facts = bill.plan, bill.prices
    screen = Screen(stream, width)
    if not plan.rates:
        screen.say(plan.title)
        screen.say(f"no price is known: {plan.price_note}")
        return
    screen.table(cost_table(plan, bill.cost))
    screen.say(f"Method: {METHOD}")
    if facts:
        screen.say(f"Prices: {plan.price_note}; {facts['note']}")
        for source in facts["sources"]:
            screen.line(f"  {source}")


def price_table(plan: Plan) -> Table | None:
    """Return what a deployment costs per hour; None where no price is known."""
    if not plan.rates:
        return None
    rows = [
        (
            text_cell(rate.title),
            Cell(f"{rate.usd_per_hour:.4f}", rate.usd_per_hour),
            text_cell(rate.method + (" while the Job needs it" if rate.while_busy else "")),
        )
        for rate in plan.rates
    ]
    total = sum(rate.usd_per_hour for rate in plan.rates)
    rows.append((text_cell("all together"), Cell(f"{total:.4f}", total), text_cell("")))
    title = f"Price per hour ({plan.price_note}, before tax and free tier)"
    return Table("prices", title, PRICE_COLUMNS, tuple(rows))


def cost_table(plan: Plan, cost: Cost) -> Table:
    """Return what a deployment has cost: price per hour, hours, dollars."""
    rows = [
        (
            text_cell(line.rate.title),
            Cell(f"{line.rate.usd_per_hour:.4f}"),
            Cell(f"{line.hours:.3f}"),
            Cell(f"{line.usd:.4f}"),
            text_cell("runs" if line.running else ""),
        )
        for line in cost.lines
    ]
    rows.append(
        (text_cell("so far"), Cell(f"{cost.usd_per_hour_now:.4f}"), Cell(""), Cell(f"{cost.usd:.4f}"), text_cell(""))
    )
    return Table("cost", plan.title, COST_COLUMNS, tuple(rows))
