"""How to do it again: the commands of a report, and which of them are the words of a file; pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterable

from gputax.report.sources import RunSource, Sources
from gputax.text import printable

LONGEST_COMMAND = 4096
# The verbs that write a document with their command. Not `exec`, for example, which runs any program.
VERBS = ("run", "duet", "compare", "share", "demo")


def commands_of(read: Sources, sources: Sources) -> tuple[str, ...]:
    """Return how to measure it again, and how to write this report.

    `sources` are those that were `read`, with their texts made printable; only the original of a command shows whether
    it is one that may be pasted.
    """
    commands = [_run_command(run) for run in sources.runs if run.record.benchmarks]
    for comparison in read.comparisons:
        commands += _named_in(comparison.path, comparison.comparison.command)
    for shared in read.sharing:
        commands += _named_in(shared.path, shared.record.command)
    places = [*(run.directory for run in sources.runs), *(source.path for source in sources.comparisons if source.path)]
    places += [source.path for source in sources.sharing if source.path]
    commands += [shlex.join(["gputax", "report", *places])] if places else []
    return tuple(dict.fromkeys(commands))


def _named_in(path: str, command: str) -> list[str]:
    """Return a document's command below a comment that says whose words it is; somebody else may have written it."""
    if not command:
        return []
    words = _own_words(command)
    place = printable(path, LONGEST_COMMAND)
    if words is None:
        return [f"# {place or 'A comparison'} names a command that is not shown: it is not a measurement with gputax"]
    # Quoted again, so that a shell takes every word as a word.
    return [*([f"# As {place} says:"] if place else []), shlex.join(words)]


def _own_words(command: str) -> list[str] | None:
    """Return the words of a command of ours; None for another one, and for one with control characters."""
    if len(command) > LONGEST_COMMAND or not command.isprintable():
        return None
    try:
        words = shlex.split(command)
    except ValueError:
        return None
    return words if words[:1] == ["gputax"] and words[1:2] and words[1] in VERBS else None


def _run_command(run: RunSource) -> str:
    """Return a command for the same cells; how long each load was is in the record, under `load`."""
    benchmarks = run.record.benchmarks
    first = benchmarks[0]

    def several(values: Iterable[object]) -> str:
        return ",".join(dict.fromkeys(str(value) for value in values))

    batched = [each.batch_size for each in benchmarks if each.scenario not in ("single_stream", "multi_stream")]
    words = ["gputax", "run", "--env", run.record.environment]
    words += ["--workload", several(each.workload for each in benchmarks)]
    words += ["--scenario", several(each.scenario.replace("_", "-") for each in benchmarks)]
    words += ["--batch", several(batched)] if batched else []
    words += ["--engine", first.engine, "--device", first.device]
    words += ["--precision", first.precision] if first.precision in ("fp32", "fp16") else []
    words += ["--threads", str(first.threads)]
    repeats = max(each.repeat for each in benchmarks)
    words += ["--repeats", str(repeats)] if repeats > 1 else []
    return shlex.join(words)
