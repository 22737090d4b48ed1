"""`gputax models`: list, build and fetch the files that workloads run from."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import click

from gputax.cli.options import Verb, as_json, options, own
from gputax.plan.cells import PRECISIONS
from gputax.plan.options import OUTPUT, declared
from gputax.text import byte_size

if TYPE_CHECKING:
    from gputax.worker.workloads.model_store import ModelFile

# Elsewhere than on a terminal: one line per fifth, so that a log stays short.
_PLAIN_STEPS = 5


@click.group()
def models() -> None:
    """List, build and fetch model files."""


@models.command("list", cls=Verb)
@options(own("verify", "Verify the sha256 of each file.", False, group=OUTPUT), as_json("Print JSON."))
def list_command(verify: bool, as_json: bool) -> None:
    """Show what is in the model store, and what could be."""
    from gputax.worker.workloads.model_list import list_models

    listed = list_models(verify=verify)
    if as_json:
        click.echo(json.dumps([model.to_dict() for model in listed], indent=2))
        return
    from gputax.report.exporters.console_text import write_table
    from gputax.report.machine_tables import models_table

    write_table(models_table(listed), sys.stdout)


@models.command(cls=Verb)
@click.argument("workloads", nargs=-1, required=True)
@options(
    declared("precision", help="Precision of the weights.", choices=PRECISIONS),
    declared("seed", help="Seed of the weights."),
    own("force", "Write the files again even if they are valid.", False, group=OUTPUT),
    as_json("Print JSON."),
)
def build(workloads: tuple[str, ...], precision: str, seed: int, force: bool, as_json: bool) -> None:
    """Write seeded weights for WORKLOADS; no download."""
    from gputax.worker.workloads import load_workload
    from gputax.worker.workloads import weights as store

    make = store.build if force else store.ensure
    described = [load_workload(name) for name in workloads]
    built = [
        make(workload, precision, seed, _Progress(f"building {workload.name} {precision}")) for workload in described
    ]
    _show(built, as_json)


@models.command(cls=Verb)
@click.argument("workloads", nargs=-1, required=True)
@options(as_json("Print JSON."))
def fetch(workloads: tuple[str, ...], as_json: bool) -> None:
    """Get the official MLPerf files of WORKLOADS and check them."""
    from gputax.worker.workloads import fetch as official

    _show([official.fetch(name, _Progress(f"fetching {name}")) for name in workloads], as_json)


def _show(files: list[ModelFile], as_json: bool) -> None:
    for file in files:
        for note in file.notes:
            click.echo(note, err=True)
    if as_json:
        click.echo(json.dumps([file.to_dict() for file in files], indent=2))
        return
    for file in files:
        click.echo(f"{file.path}  {byte_size(file.bytes)}  {file.source}  sha256 {file.sha256}")


class _Progress:
    """Bytes done on stderr: one line that is rewritten on a terminal, a few plain lines elsewhere."""

    def __init__(self, label: str) -> None:
        self._label = label
        self._live = sys.stderr.isatty()
        self._shown = -1

    def __call__(self, done: int, total: int) -> None:
        steps = 100 if self._live else _PLAIN_STEPS
        step = done * steps // total if total else done // 50_000_000
        if step == self._shown:
            return
        self._shown = step
        of_total = f" of {byte_size(total)} ({done * 100 // total} %)" if total else ""
        line = f"{self._label}: {byte_size(done)}{of_total}"
        click.echo(f"\r{line}" if self._live else line, nl=not self._live or done == total, err=True)
