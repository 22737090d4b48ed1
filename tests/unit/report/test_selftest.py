"""The screen and the page of a self-test."""

from __future__ import annotations

from typing import Any

from gputax.report.selftest import MOST_ON_SCREEN, device_line, groups_table, headline, page, screen_lines, times_table
from gputax.results.documents.selftest import CheckRecord, DuetSummary, KernelTime, SelftestRecord


def check(status: Any, group: str = "copies", name: str = "q") -> CheckRecord:
    return CheckRecord(group=group, name=name, status=status, reason="" if status == "pass" else "because | of it")


def record(*checks: CheckRecord, **more: Any) -> SelftestRecord:
    found: list[str] = [each.status for each in checks]
    statuses = ("fail", "different", "documented", "skipped", "pass")
    values: dict[str, Any] = {
        "gputax_version": "1", "timestamp": "now", "command": "gputax selftest", "device": "software",
        "device_name": "gputax software device", "is_gpu": False, "quick": True, "cuda_runtime": False,
        "complete": True, "equal": "fail" not in found and "different" not in found, "evidence": {}, "checks": checks,
        "counts": {status: found.count(status) for status in statuses},
    }  # fmt: skip
    return SelftestRecord(**{**values, **more})


def test_the_answer_comes_first_with_its_counts_and_says_what_is_not_a_gpu() -> None:
    equal = record(check("pass"), check("documented"), check("skipped"))
    assert headline(equal) == "libvgpu and the proxy answer like the driver: 1 equal, 1 documented, 1 skipped"
    assert device_line(equal) == "gputax software device. These are not a GPU's answers or numbers."
    assert device_line(record(device_name="NVIDIA X", is_gpu=True)) == "NVIDIA X."
    assert headline(record(check("pass"), complete=False)).startswith("INTERRUPTED, so far libvgpu")
    assert headline(record(check("different"))) == "libvgpu and the proxy differ: 1 different"


def test_groups_are_counted_in_their_order() -> None:
    table = groups_table(record(check("pass", "graphs"), check("fail", "copies"), check("pass", "graphs")))
    assert [[cell.text for cell in row] for row in table.rows] == [
        ["graphs and stream capture", "2", "", "", "", ""],
        ["copies, all sizes and alignments", "", "", "1", "", ""],
    ]


def test_the_screen_shows_the_first_failures_and_the_duets() -> None:
    duet = DuetSummary(directory="duet-a", workload="micro:operation", verdict="pass", overhead="+1.6 %")
    broken = DuetSummary(directory="duet-b", workload="resnet50", verdict="", overhead="", failure="no tinygrad")
    found = record(*[check("different", name=str(n)) for n in range(20)], check("fail"), duets=(duet, broken))
    lines = screen_lines(found, "out")
    assert lines[0] == "fail: copies: q: because | of it"
    assert lines[MOST_ON_SCREEN] == "and 13 more in report.md"
    assert lines[-3:] == [
        "duet micro:operation: +1.6 %: pass (duet-a)",
        "duet resnet50: no tinygrad (duet-b)",
        "Saved: out.",
    ]
    assert screen_lines(record(is_gpu=True), "out") == ["Saved: out. Send us the whole directory."]


def test_null_kernels_are_named_on_the_screen_and_on_the_page() -> None:
    null = record(
        check("pass", "models"), device_name="gputax software device, null kernels of 0 ns", null_kernels=True
    )
    assert "null kernels of 0 ns. These are not a GPU's" in device_line(null)
    assert "no outputs compared" in device_line(null)
    assert groups_table(null).rows[0][0].text == "models: launches of null kernels"
    assert "null kernels of 0 ns" in page(null)
    assert "no outputs compared" in page(null)


def test_the_page_lists_everything_that_is_not_equal() -> None:
    text = page(record(check("pass"), check("different", name="d"), check("documented"), check("skipped")))
    for title in ("## Different\n", "## Different as documented\n", "## Skipped\n"):
        assert title in text
    assert "- copies: d: because \\| of it" in text
    assert "## Failed" not in text
    assert text.rstrip().endswith("gputax selftest\n```")


def test_kernel_times_are_a_table_that_null_kernels_can_read() -> None:
    times = [KernelTime(kernel="scale", blocks=4, threads=128, us=2.5)]
    lines = [line for line in times_table(times, "a GPU").splitlines() if not line.startswith("#")]
    assert lines == ["2500 scale 4 128", "0 *"]
