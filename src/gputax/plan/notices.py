"""Warnings are data stored with the number they are about; every kind of warning is one row of the catalogue."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, get_args

Area = Literal["machine", "measurement", "duet", "comparison", "sharing", "advice", "input"]


@dataclass(frozen=True)
class Kind:
    """One kind of warning: its title for a short line, what it means and what to do about it."""

    code: str
    area: Area
    title: str
    meaning: str
    action: str
    unit: str = ""
    """The unit of a notice's value; empty if the value is not shown with the title."""


CATALOGUE: dict[str, Kind] = {
    kind.code: kind
    for kind in (
        # The machine was disturbed, or is not set up for measuring.
        Kind(
            "cpu-steal", "machine", "CPU steal",
            "The hypervisor gave this virtual machine's CPU time to others: latencies contain waiting that no layer "
            "under test caused. Above 5 % the cell is disturbed, above 20 % a duet.",
            "Measure on a dedicated host, or at a quieter time (--wait-quiet).", "%",
        ),
        Kind(
            "busy-neighbours", "machine", "other processes on our CPUs",
            "Processes that do not belong to the measurement used the CPUs of the worker. Above 25 % of a core and 5 % "
            "of the CPUs the cell is disturbed; a duet above 50 % of a core and 60 % of the CPUs.",
            "Stop them, wait (--wait-quiet), or give the worker CPUs of its own. The value is in percent of one core.",
            "% of a core",
        ),
        Kind(
            "cpu-throttled", "machine", "CPU quota throttling",
            "The control group's CPU quota stopped the worker: the tail latencies are those of the quota. Above 5 % of "
            "the time the cell is disturbed, above 20 % a duet.",
            "Use at most as many --threads as the quota has CPUs, or raise the quota.", "ms",
        ),
        Kind(
            "cpu-governor", "machine", "CPU frequency governor",
            "The governor is not `performance`: the clock follows the load, so sparse requests look slower.",
            "cpupower frequency-set -g performance",
        ),
        Kind(
            "affinity-changed", "machine", "CPU affinity changed",
            "The set of CPUs that the worker may use changed during the measurement: the cell is disturbed.",
            "Do not change cpusets while a measurement runs; measure again.", "CPUs",
        ),
        Kind(
            "requests-failed", "measurement", "requests to a server failed",
            "Some requests to the server failed; they are in no latency and in no throughput, but in the error rate.",
            "See cells/NAME/failed_requests.tsv and the server's log; ask slower with --qps.", "%",
        ),
        Kind(
            "too-many-failed", "measurement", "too many requests failed",
            "More than 1 % of the requests to the server failed: the cell is invalid, because the requests that are "
            "left are not the load that was asked for.",
            "See cells/NAME/failed_requests.tsv and the server's log; ask slower with --qps.", "%",
        ),
        Kind(
            "output-length", "measurement", "answers of another length",
            "A server's answers are longer or shorter than --output-tokens: totals over answers of different lengths "
            "are not comparable; TTFT and TPOT are per token and still are.",
            "Longer: the server ignores max_tokens. Shorter: add ,ignore_eos=true to the engine if it knows that.",
            "answers",
        ),
        Kind(
            "clock-jump", "machine", "wall clock jumped",
            "LoadGen takes its latencies from the wall clock; gputax's own timestamps are monotonic.",
            "Keep time synchronisation from stepping the clock while a measurement runs.", "ms",
        ),
        Kind(
            "gpu-throttled", "machine", "GPU clocks throttled",
            "The GPU lowered its clocks (heat, power) for a reason outside the layer under test. Above 10 % of "
            "the samples the cell is disturbed, above 50 % a duet.",
            "Improve cooling, or fix the clocks with nvidia-smi -lgc; measure again.", "% of samples",
        ),
        Kind(
            "gpu-clock-drop", "machine", "GPU clock fell",
            "Early and late samples were taken at different clocks. Above 10 % a cell is disturbed, above 20 % a duet.",
            "Warm the GPU up, or fix its clocks with nvidia-smi -lgc.", "%",
        ),
        Kind(
            "gpu-shared", "machine", "other processes on the GPU",
            "Other processes had the GPU open: their work is part of what was measured.",
            "Stop them (nvidia-smi lists them) and measure again.", "processes",
        ),
        Kind(
            "no-gpu-telemetry", "machine", "GPU not monitored",
            "NVML was not available, so clocks and foreign processes were not watched.",
            "pip install nvidia-ml-py, and give the container the `utility` driver capability.",
        ),
        # How one cell was measured.
        Kind(
            "device-auto", "measurement", "device chosen automatically",
            "`--device auto` chose this device.",
            "Name the device: --device cpu or --device cuda.",
        ),
        Kind(
            "weights", "measurement", "model file",
            "Something about the model file that changes what the number means.",
            "Read the text; `gputax models list` shows the files.",
        ),
        Kind(
            "capture", "measurement", "captured run",
            "A captured run that was kept with the models was damaged, unreadable or could have been written by "
            "others; it was not used, and the model was captured again. The measurement is not affected.",
            "Nothing, if it happens once; otherwise check the disk and the owner of the directory `captures`.",
        ),
        Kind(
            "soft-compile", "measurement", "compiler of the software device",
            "The software device compiles kernels with the machine's C compiler and keeps the code. Without one it "
            "interprets them, some ten times slower; a damaged file is compiled again. The answers are the same.",
            "Install a C compiler (cc, gcc or clang); of a damaged file: nothing, if it happens once.",
        ),
        Kind(
            "dataset", "measurement", "inputs from a data set",
            "The inputs are images of a folder, repeated or cut to the number of samples.",
            "Nothing to do; the folder is part of the result's conditions.", "images",
        ),
        Kind(
            "seeded-accuracy", "measurement", "accuracy of seeded weights",
            "Seeded weights answer at random: the figure shows that dataset, model and LoadGen work together, and "
            "nothing of the model.",
            "Use real weights: --weights official after `gputax models fetch resnet50`, or --weights FILE.",
        ),
        Kind(
            "too-few-samples", "measurement", "too few samples for a percentile",
            "A percentile needs a minimum number of samples (p90 64, p95 130, p99 662); below it none is given.",
            "Measure longer, e.g. --suite standard.", "samples",
        ),
        Kind(
            "longer-than-asked", "measurement", "took longer than asked",
            "The device is too slow for the required queries in the suite's time.",
            "Nothing to do; plan for the longer time.", "s",
        ),
        Kind(
            "clocks-disagree", "measurement", "LoadGen and gputax disagree",
            "LoadGen's latencies and our own timestamps of the same queries differ by more than rounding.",
            "Look for a wall clock that jumped; the monotonic figures are the ones in the table.",
        ),
        Kind(
            "loadgen-invalid", "measurement", "LoadGen: INVALID",
            "LoadGen marked its own run INVALID, for the given reason.",
            "Measure longer or at a lower --qps; the cell does not count.",
        ),
        Kind(
            "loadgen-errors", "measurement", "LoadGen errors",
            "LoadGen logged errors during the run.",
            "Read mlperf_log_detail.txt of the cell.", "errors",
        ),
        Kind(
            "schedule-unknown", "measurement", "arrival schedule unknown",
            "The scheduled arrivals could not be read from LoadGen's log: latencies count from the issue of a query.",
            "Report the LoadGen version; queueing before the issue is not in these latencies.",
        ),
        Kind(
            "rate-stepped-down", "measurement", "server rate lowered",
            "The first rate was too fast for the latency bound; every attempt is in the record.",
            "Pin the rate with --qps to compare two runs.", "attempts",
        ),
        Kind(
            "no-evidence", "measurement", "layer not proven active",
            "The layer was not proven active during the measurement: the cell is INVALID.",
            "Run gputax doctor with the same --env; the text names the missing evidence.",
        ),
        Kind(
            "technique", "measurement", "sharing technique",
            "The layer was active, with a limitation.",
            "Read the text.",
        ),
        # Pairs.
        Kind(
            "pairs", "duet", "statistics of the pairs",
            "A check of the interval found a disagreement, a drift or outliers.",
            "Measure longer: --max-time.",
        ),
        Kind(
            "control-failed", "duet", "A/A control found a difference",
            "A compared with itself shows a difference: the machine is not quiet enough for this verdict.",
            "Quieten the machine and measure again.",
        ),
        Kind(
            "few-requests", "duet", "few requests carry the mean",
            "The typical request costs less than the mean says: a few slow requests make the difference.",
            "Look for stalls: another tenant, a garbage collector, the host.",
        ),
        Kind(
            "restarts-differ", "duet", "processes differ",
            "New processes of the same program run at different speeds; the interval covers that.",
            "Nothing, or measure longer for more restarts: --max-time.", "%",
        ),
        Kind(
            "lost-pairs", "duet", "pairs dropped",
            "A worker failed during a pair.",
            "Look at the error that is quoted; a few lost pairs do not change a verdict.", "pairs",
        ),
        Kind(
            "interrupted", "duet", "interrupted",
            "The measurement was stopped early: the interval is as wide as it was then.",
            "Run the same command again.",
        ),
        Kind(
            "not-measured", "duet", "not measured",
            "The duet was interrupted before these operations were measured.",
            "Run the same command again, with more --max-time.",
        ),
        # Results on disk.
        Kind(
            "unpaired", "comparison", "unpaired comparison",
            "The two sides were measured at different times; this is weaker than a duet.",
            "gputax duet A B",
        ),
        Kind(
            "differs", "comparison", "conditions differ",
            "The two sides differ in something that does not forbid the comparison.",
            "Read the list; make it equal if it could matter.",
        ),
        Kind(
            "unchecked", "comparison", "conditions unknown",
            "Only one side states these conditions, so whether they are equal could not be checked.",
            "Measure both sides with this version of gputax.",
        ),
        Kind(
            "no-partner", "comparison", "no counterpart",
            "A cell exists on one side only and was not compared.",
            "Measure the same cells on both sides.",
        ),
        Kind(
            "not-judged", "comparison", "metric not judged",
            "The metric could not be compared, for the given reason.",
            "Read the reason; often more samples are needed.",
        ),
        Kind(
            "statistics", "comparison", "statistics of the comparison",
            "A check of the interval's method found a problem.",
            "Measure longer, or use gputax duet.",
        ),
        Kind(
            "invalid", "comparison", "INVALID cell",
            "One of the compared cells is marked INVALID in its own record.",
            "Measure that cell again.",
        ),
        Kind(
            "skipped-file", "comparison", "file skipped",
            "A file could not be read as a result, or has nothing in common with the base; the others were compared.",
            "Read the reason; leave the file out, or measure it again.",
        ),
        Kind(
            "environment-unclear", "comparison", "environment of a file unclear",
            "The file's `Environment:` line and its name say different things.",
            "Say it on the command line: k8s=FILE.",
        ),
        Kind(
            "disturbed", "comparison", "DISTURBED cell",
            "The machine was not quiet while one of these cells was measured: no verdict, and no certain advice.",
            "Measure that cell again with --wait-quiet, or add --accept-disturbed to let the verdict stand.",
        ),
        Kind(
            "unused-budget", "comparison", "budget not used",
            "A budget on the command line names a metric or an environment that is not judged here.",
            "Check its spelling; the warning names it.",
        ),
        # Tenants.
        Kind(
            "technique-left-out", "sharing", "technique skipped",
            "The technique is not possible here, for the given reason.",
            "Follow the next step in the text.",
        ),
        Kind(
            "uneven-tenants", "sharing", "tenants served unevenly",
            "Tenants with the same load got different rates: a mean over all tenants hides the slowest.",
            "Look at the worst tenant's column.",
        ),
        Kind(
            "little-overlap", "sharing", "tenants overlapped little",
            "Only the time in which all tenants ran together counts; here that was a small part.",
            "Use a longer --window.",
        ),
        Kind(
            "window-stretched", "sharing", "window lengthened",
            "The window was too short for this device and was extended.",
            "Nothing to do, or ask for a longer --window.", "s",
        ),
        Kind(
            "cores-not-shared", "sharing", "cores not shared",
            "There are enough cores for all tenants: they share caches and memory, not cores.",
            "Use more --tenants or --threads.", "spare cores",
        ),
        Kind(
            "foreign-load", "sharing", "other processes beside the tenants",
            "Processes that are not tenants used the tenants' cores.",
            "Stop them and measure again.", "% of a core",
        ),
        Kind(
            "slot-stretched", "sharing", "slot lengthened",
            "The slots were too short for this victim and were extended.",
            "Nothing to do.", "s",
        ),
        Kind(
            "prometheus", "sharing", "Prometheus cross-check",
            "Our mean could not be compared with that of Prometheus.",
            "Check the URL and that the tenants are scraped.",
        ),
        # Models fitted to sharing results.
        Kind(
            "cells-not-used", "advice", "cells not used",
            "Cells that are invalid or incomplete are not part of the model.",
            "Measure them again with gputax share.", "cells",
        ),
        Kind(
            "unfinished", "advice", "unfinished results",
            "The results are not complete; the finished cells were used.",
            "Run the same command again: it resumes.",
        ),
        Kind(
            "unknown-technique", "advice", "unknown technique",
            "The file names techniques that this version does not know.",
            "Update gputax.",
        ),
        Kind(
            "changing-cap", "advice", "changing cap",
            "The cap differed between tenants or cells: the model mixes cap and contention.",
            "Measure with one cap.",
        ),
        Kind(
            "form-not-checked", "advice", "model not checked",
            "There are as many parameters as points: no point is left to check the model's form.",
            "Measure one more number of tenants.",
        ),
        Kind(
            "lack-of-fit", "advice", "model does not fit",
            "Residuals are larger than the spread of the repeats.",
            "Trust measured numbers of tenants more than computed ones.", "%",
        ),
        Kind(
            "no-spread", "advice", "no repeats",
            "Without repeats the interval comes from the residuals, or there is none.",
            "gputax share --repeats 3",
        ),
        Kind(
            "better-form", "advice", "another model fits better",
            "A rival form predicts the measured points better.",
            "Treat extrapolation with care.", "%",
        ),
        Kind(
            "ratio-once", "advice", "measured once",
            "The ratio of a percentile to the mean was measured once: no spread, no interval.",
            "gputax share --repeats 3",
        ),
        Kind(
            "ratio-partly", "advice", "ratio partly known",
            "The percentile exists only for some numbers of tenants.",
            "Measure longer windows.",
        ),
        Kind(
            "ratio-trend", "advice", "ratio changes with tenants",
            "The ratio of the percentile to the mean is not constant.",
            "Trust measured numbers of tenants more than computed ones.",
        ),
        Kind(
            "worst-tenant-guessed", "advice", "worst tenant estimated",
            "The worst tenant was not measured at this number of tenants.",
            "Measure that number of tenants.",
        ),
        # Files of others, and of older versions.
        Kind(
            "left-out", "input", "value skipped",
            "A value in the file is not usable and was skipped.",
            "Read the reason and correct the file.",
        ),
        Kind(
            "failed-cell", "input", "failed cell",
            "A cell of that run failed; the others were read.",
            "Measure it again.",
        ),
        Kind(
            "many-blocks", "input", "several results in one log",
            "The log contains more than one result block; the last one was read.",
            "Cut the log to read another one.", "blocks",
        ),
        Kind(
            "text-file", "input", "text file",
            "A text file has no samples and no fingerprint: fewer checks are possible.",
            "Compare result directories where you have them.",
        ),
        Kind(
            "older-file", "input", "older file",
            "An older JSON file has no samples and no fingerprint: fewer checks are possible.",
            "Measure again with this version for intervals.",
        ),
        Kind(
            "other-tool", "input", "measured with another tool",
            "A load generator for servers wrote the file: its requests give intervals, but nothing proves what it "
            "measured, and its client is part of every time.",
            "Compare results of one tool, or measure both sides with gputax.",
        ),
        Kind(
            "definitions", "input", "names mean other times",
            "The tool's name for a time differs from ours: values are compared by what they count, not by their name.",
            "Nothing to do; docs/formats.md lists what each tool means by TTFT, TPOT and ITL.",
        ),
        Kind(
            "failed-requests", "input", "requests failed",
            "Some requests brought no answer. They are in no figure, so a server that drops slow requests looks fast.",
            "Read the errors in the tool's file before comparing.",
        ),
        Kind(
            "sampled-requests", "input", "only some requests are in the file",
            "The tool kept a sample of its requests: figures and intervals are of that sample.",
            "Measure again and keep every request.", "requests",
        ),
    )
}  # fmt: skip


@dataclass(frozen=True)
class Notice:
    """One warning about a number; the text is complete by itself."""

    code: str
    text: str
    value: float | None = None
    """The measured size, in the unit named in the text; None if there is none."""

    def to_dict(self) -> dict[str, Any]:
        """Return the notice as stored in files and sent over the worker's pipe."""
        return dataclasses.asdict(self)

    @staticmethod
    def from_dict(data: dict[str, Any]) -> Notice:
        """Rebuild a notice; keys that a newer version may have added are ignored."""
        value = data.get("value")
        return Notice(str(data["code"]), str(data["text"]), None if value is None else float(value))


@dataclass(frozen=True)
class Remark:
    """All notices of one kind: the worst of them, and where they occurred."""

    worst: Notice
    worst_place: str
    count: int
    """How many notices of this kind there are."""
    places: tuple[str, ...]

    @property
    def title(self) -> str:
        """The kind's title with its worst value: one short line."""
        kind = CATALOGUE.get(self.worst.code)
        if kind is None:
            return self.worst.text
        size = self.worst.value
        shown = f": up to {abs(size):,.3g} {kind.unit}" if kind.unit and size is not None else ""
        return f"{kind.title[0].upper()}{kind.title[1:]}{shown}"


def remarks(placed: Iterable[tuple[str, Notice]]) -> tuple[Remark, ...]:
    """Return one remark per kind of notice, in the order in which the kinds first appear."""
    by_code: dict[str, list[tuple[str, Notice]]] = {}
    for place, notice in placed:
        by_code.setdefault(notice.code, []).append((place, notice))
    found = []
    for each in by_code.values():
        place, worst = max(each, key=lambda pair: abs(pair[1].value or 0.0))
        found.append(Remark(worst, place, len(each), tuple(dict.fromkeys(place for place, _ in each))))
    return tuple(found)


def page() -> str:
    """Return docs/warnings.md: every kind of warning, grouped by what it is about."""
    lines = [
        "# Warnings",
        "",
        "A warning is stored with the number it is about: `code`, `text` and the measured `value`, if there is one.",
        "The console shows one line per kind with its worst value; the report and `--json` have all of them.",
        "",
        "This page is generated from `src/gputax/plan/notices.py` by `make generated`.",
    ]
    for area in get_args(Area):
        lines += ["", f"## {area.capitalize()}", "", "| code | meaning | what to do |", "|---|---|---|"]
        lines += [
            f"| `{kind.code}` | {kind.title}. {kind.meaning} | {kind.action} |"
            for kind in CATALOGUE.values()
            if kind.area == area
        ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(page())
