"""`gputax accuracy`: the share of a dataset that a model answers right, by LoadGen's accuracy mode."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from gputax import __version__
from gputax.cli.options import Verb, as_json, options, own, variable_options
from gputax.plan.cells import Setup, absolute, device_named, precision_named
from gputax.plan.engines import DEFAULT_ENGINE, parse_engine, refuse_unused_weights
from gputax.plan.options import SETUP, declared

# LoadGen's logs are laid out as its checker wants them in a submission: accuracy/ beside performance/.
LOGS = "accuracy"


@click.command(cls=Verb)
@options(
    declared("workload", help="resnet50 (top-1) or bert-large (F1)."),
    own("dataset", "resnet50: folder with val_map.txt; bert-large: folder with dev-v1.1.json, vocab.txt.", group=SETUP),
    declared("weights"),
    declared("engine", help=f"{DEFAULT_ENGINE}, with :KEY=VALUE,…", default=DEFAULT_ENGINE),
    declared("device"),
    declared("precision"),
    declared("threads"),
    declared("batch"),
    declared("out"),
    as_json("Write the record to stdout."),
)
@variable_options
def accuracy(workload: str, dataset: str, weights: str, batch: int, out: str, as_json: bool, **chosen: Any) -> int:
    """Measure the accuracy of a model on a dataset with LoadGen's accuracy mode; every sample once.

    With seeded weights only the pipeline is checked, and the output says so.
    """
    from gputax.measure.accuracy import measure_accuracy, refuse_without_accuracy

    refuse_without_accuracy(workload, dataset)
    parse_engine(chosen["engine"])
    refuse_unused_weights(weights, chosen["engine"])
    from gputax.cli.progress import Progress
    from gputax.measure.session import WorkerSession
    from gputax.places import environment_named
    from gputax.plan.driver import driver_choice
    from gputax.results.documents.accuracy import ACCURACY_NAME
    from gputax.results.files import write_text
    from gputax.results.store import now_text
    from gputax.worker.workloads.dataset import dataset_size

    folder = absolute(dataset)
    samples = dataset_size(workload, folder)
    setup = Setup(
        workload, engine=chosen["engine"], device=device_named(chosen["device"]),
        precision=precision_named(chosen["precision"]), threads=chosen["threads"], weights=absolute(weights),
        dataset=folder, sample_count=samples, max_batch=batch,
    )  # fmt: skip
    with Progress(sys.stderr) as view:
        session = WorkerSession(environment_named("bare", driver_choice(setup)), setup, view)
        try:
            record, observation = measure_accuracy(session, setup, samples)
        finally:
            session.end()
    record = record.model_copy(update={"gputax_version": __version__, "timestamp": now_text()})
    if out:
        for name, text in observation.logs.items():
            write_text(Path(out) / LOGS / name, text)
        write_text(Path(out) / ACCURACY_NAME, record.model_dump_json(indent=2) + "\n")
    click.echo(record.model_dump_json(indent=2) if as_json else accuracy_text(record))
    return 0


def accuracy_text(record: Any) -> str:
    """Return the result in a few lines; a figure that means nothing is never shown without that."""
    name = {"top1": "top-1", "f1": "F1"}[record.metric]
    lines = [
        f"{record.workload}: {name} {record.value_percent:.3f} % of {record.samples} samples, "
        f"{record.weights} weights, {record.engine} on {record.device}"
    ]
    if not record.meaningful:
        lines = [f"PIPELINE CHECK ONLY · {lines[0]}"]
    lines += [
        f"{'meets' if met else 'BELOW'} {text} ({record.reference_percent:g} %)" for text, met in record.meets.items()
    ]
    lines += [f"Warning: {warning.text}" for warning in record.warnings]
    if record.meets:
        lines.append("MLPerf's thresholds are for its whole dataset: on a part of it they say little.")
    return "\n".join(lines)
