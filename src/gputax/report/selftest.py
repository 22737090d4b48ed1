"""The screen and the page of a self-test: groups with their counts, then every check that is not equal; pure."""

from __future__ import annotations

from collections.abc import Sequence

from gputax.report.exporters.markdown_text import escaped, table_text
from gputax.report.model import Column, Table, Tone, text_cell
from gputax.results.documents.selftest import CheckRecord, KernelTime, SelftestRecord
from gputax.selftest.plan import title_of

TITLES = {"pass": "equal", "different": "different", "fail": "failed", "documented": "documented", "skipped": "skipped"}
MOST_ON_SCREEN = 8
NOT_A_GPU = "These are not a GPU's answers or numbers."
NOTHING_COMPUTED = "Null kernels compute nothing: launches were counted, and no outputs compared."


def headline(record: SelftestRecord) -> str:
    """Return the answer in one line."""
    found = record.counts
    answer = "libvgpu and the proxy answer like the driver" if record.equal else "libvgpu and the proxy differ"
    answer = answer if record.complete else f"INTERRUPTED, so far {answer}"
    parts = [f"{found[status]} {title}" for status, title in TITLES.items() if found[status]]
    return f"{answer}: {', '.join(parts)}"


def device_line(record: SelftestRecord) -> str:
    """Return whose answers these are."""
    said = ["" if record.is_gpu else NOT_A_GPU, NOTHING_COMPUTED if record.null_kernels else ""]
    return " ".join([f"{record.device_name or 'unknown device'}.", *filter(None, said)])


def groups_table(record: SelftestRecord) -> Table:
    """Return a row for each group: how many of its checks have each status."""
    columns = (
        Column("group", "group"),
        *(Column(status, title, align="right") for status, title in TITLES.items()),
    )
    rows = []
    for group in dict.fromkeys(check.group for check in record.checks):
        found: list[str] = [check.status for check in record.checks if check.group == group]
        cells = [text_cell(title_of(group, null_kernels=record.null_kernels))]
        for status in TITLES:
            count = found.count(status)
            cells.append(text_cell(str(count) if count else "", tone=_tone(status) if count else ""))
        rows.append(tuple(cells))
    return Table("groups", "", columns, tuple(rows))


def _tone(status: str) -> Tone:
    return "fail" if status in ("fail", "different") else "pass" if status == "pass" else "muted"


def notable(checks: Sequence[CheckRecord]) -> list[CheckRecord]:
    """Return the checks that a reader should see: failures, then differences."""
    return [check for status in ("fail", "different") for check in checks if check.status == status]


def check_line(check: CheckRecord) -> str:
    """Return one check with its reason."""
    return f"{check.status}: {check.group}: {check.name}: {check.reason}"


def duet_lines(record: SelftestRecord) -> list[str]:
    """Return the duets with their verdicts."""
    return [
        f"duet {each.workload}: {each.failure or f'{each.overhead}: {each.verdict}'} ({each.directory})"
        for each in record.duets
    ]


def screen_lines(record: SelftestRecord, directory: str) -> list[str]:
    """Return what stands below the table on the screen."""
    worst = notable(record.checks)
    lines = [check_line(check) for check in worst[:MOST_ON_SCREEN]]
    if len(worst) > MOST_ON_SCREEN:
        lines.append(f"and {len(worst) - MOST_ON_SCREEN} more in report.md")
    saved = f"Saved: {directory}.{' Send us the whole directory.' if record.is_gpu else ''}"
    return [*lines, *duet_lines(record), saved]


def page(record: SelftestRecord) -> str:
    """Return report.md."""
    parts = [
        "# gputax self-test",
        f"**{escaped(headline(record))}.**",
        f"{escaped(device_line(record))} gputax {record.gputax_version}, {record.timestamp}.",
        table_text(groups_table(record)).partition("\n\n")[2],
    ]
    for status, title in (("fail", "Failed"), ("different", "Different"), ("documented", "Different as documented")):
        parts += _listed(title, [check for check in record.checks if check.status == status])
    parts += _listed("Skipped", [check for check in record.checks if check.status == "skipped"])
    if record.duets:
        parts += ["## Duets", "\n".join(f"- {escaped(line)}" for line in duet_lines(record))]
    parts += ["## How to repeat it", f"```sh\n{record.command}\n```"]
    return "\n\n".join(parts) + "\n"


def _listed(title: str, checks: Sequence[CheckRecord]) -> list[str]:
    lines = [f"- {escaped(f'{check.group}: {check.name}')}: {escaped(check.reason)}" for check in checks]
    return [f"## {title}", "\n".join(lines)] if lines else []


def times_table(times: Sequence[KernelTime], device_name: str) -> str:
    """Return the kernels' times as the software device reads them for null kernels."""
    lines = [
        f"# ns per launch, by events, on {device_name}: NS KERNEL BLOCKS THREADS",
        *(f"{each.us * 1e3:.0f} {each.kernel} {each.blocks} {each.threads}" for each in times),
        "# Kernels that are not named take no time; change this line.",
        "0 *",
    ]
    return "\n".join(lines) + "\n"
