"""The screen of `gputax demo`: one screen, 80 columns, every number with what it is of."""

from __future__ import annotations

import dataclasses
import io

from gputax.report.demo import TYPICAL, DemoResults, demo_tables, headline, machine_lines, proxy_table, sharing_table
from gputax.report.exporters.console_text import Screen
from gputax.results.documents.comparison import Resolution
from tests.builders.documents import benchmark, comparison, metric, record, series, side
from tests.builders.shared_documents import shared_row, sharing_record

RUN = record(
    *(benchmark(f"offline-{size}", batch_size=size, throughput_samples_per_sec=16.6 + size) for size in (1, 8, 32)),
    benchmark("server", scenario="server", throughput_samples_per_sec=13.5, latency_p50_ms=130.2, latency_p90_ms=320.0),
    benchmark("single", scenario="single_stream", batch_size=1, latency_p50_ms=55.0, valid=False),
)
PROXY = comparison(
    *(
        metric(
            other="bare+proxy",
            percent=percent,
            workload=f"micro:{name}",
            metric=kind,
            unit=unit,
            base_value=base,
            other_value=other,
            verdict=verdict,
            ci95_percent=bounds,
            pairs=100,
            pairs_needed=500,
            budget=5.0,
            budget_unit="%",
        )
        for name, kind, unit, base, other, percent, bounds, verdict in (
            ("operation", "latency_p99", "ms", 1.0, 2.0, 100.0, (90.0, 110.0), "fail"),
            ("operation", "latency_p50", "ms", 0.136, 0.140, 2.6, (1.4, 3.8), "pass"),
            ("launch", "latency_p50", "ms", 0.131, 0.155, 8.7, (0.4, 17.7), "inconclusive"),
            ("copy-in-100MB", "host_to_device", "GB/s", 4.4, 4.3, 2.0, (1.0, 3.0), "pass"),
        )
    ),
    sides=(side("bare"), side("bare+proxy")),
    pair_series=(series(workload="micro:launch", time_s=(0.0, 60.0)),),
)
MODEL = comparison(
    metric(
        other="bare+proxy",
        percent=0.6,
        workload="resnet50",
        metric="latency_p50",
        unit="ms",
        base_value=921.3,
        other_value=926.8,
        verdict="pass",
        ci95_percent=(-0.5, 1.7),
        budget=5.0,
        budget_unit="%",
    ),
    sides=(side("bare"), side("bare+proxy")),
)
SHARING = sharing_record("cpu-shared", rows=tuple(shared_row("cpu-shared", count) for count in (1, 3)))
NOISE = Resolution(half_width_percent=4.71, ci95_percent=(-4.0, 5.0), pairs=40, seconds=15.0, contains_zero=True)
FOUND = DemoResults(2, ("Other processes use 175 % of a core",), RUN, NOISE, PROXY, (SHARING,), MODEL)


def screen(found: DemoResults, width: int = 80) -> list[str]:
    stream = io.StringIO()
    shown = Screen(stream, width)
    shown.say(headline(found))
    for line in machine_lines(found):
        shown.say(line)
    for table in demo_tables(found):
        shown.say("")
        shown.table(table)
    return stream.getvalue().splitlines()


def test_it_is_one_screen_of_eighty_columns() -> None:
    lines = screen(FOUND)
    assert len(lines) <= 25
    assert max(map(len, lines)) <= 80


def test_it_says_that_no_gpu_was_measured_and_what_disturbed() -> None:
    text = "\n".join(screen(FOUND))
    assert "not a GPU's numbers" in text
    assert "2 cores · noise floor ±4.7 %" in text
    assert "warning: Other processes use 175 % of a core" in text
    assert "not a GPU's numbers" not in headline(
        dataclasses.replace(FOUND, run=record(device="cuda", device_label="GPU (Made-up)"))
    )


def test_batches_share_a_row_and_an_invalid_cell_says_so() -> None:
    text = "\n".join(screen(FOUND))
    assert "offline, batch 1 / 8 / 32" in text
    assert "17.6 / 24.6 / 48.6" in text
    assert "single-stream (INVALID)" in text


def test_an_operation_is_shown_by_its_median_and_a_copy_by_its_rate() -> None:
    rows = {row[0].text: [cell.text for cell in row[1:]] for row in proxy_table(PROXY).rows}
    assert rows["typical operation"] == ["136 µs", "140 µs", "+2.6 % (1.4 to 3.8)", "5 %", "FAIL (p99)"]
    assert rows["kernel launch"][-1] == "undecided"
    assert rows["copy 100 MB in"][:2] == ["4.4 GB/s", "4.3 GB/s"]


def test_sharing_shows_one_tenant_against_the_most() -> None:
    (row,) = sharing_table((SHARING,)).rows
    assert row[0].text == "cpu-shared (simulation)"
    assert "x" in row[3].text


def test_an_interval_that_says_nothing_stays_short() -> None:
    row = shared_row("cpu-shared", 3)
    wide = row.model_copy(
        update={"slowdown": row.slowdown.model_copy(update={"value": 0.5, "ci95": (0.0000022, 110950.0)})}
    )
    record = SHARING.model_copy(update={"rows": (SHARING.rows[0], wide)})
    assert sharing_table((record,)).rows[0][3].text == "0.5x (<0.01 to >100)"


def test_a_part_that_was_skipped_has_no_table() -> None:
    without = dataclasses.replace(FOUND, proxy=None)
    assert [table.name for table in demo_tables(without)] == ["demo_run", "demo_sharing"]


def test_the_first_number_is_a_models_behind_the_proxy() -> None:
    first = demo_tables(FOUND)[0].rows[0]
    assert [cell.text for cell in first] == [
        "ResNet-50", "921.3 ms", "926.8 ms", "+0.60 % (-0.50 to 1.70)", "5 %", "PASS",
    ]  # fmt: skip


def test_where_too_few_pairs_refuse_the_median_the_mean_is_shown_and_named() -> None:
    values = {"latency_p50": None, "latency_mean": 930.0}
    rows = [MODEL.metrics[0].model_copy(update={"metric": name, "base_value": values[name]}) for name in values]
    first = proxy_table(MODEL.model_copy(update={"metrics": rows})).rows[0]
    assert [cell.text for cell in first[:2]] == ["ResNet-50, mean", "930 ms"]


def test_without_the_model_one_line_says_why() -> None:
    note = "resnet50 skipped: without a C compiler the software device is too slow."
    without = dataclasses.replace(FOUND, model=None, model_note=note)
    lines = screen(without)
    assert note in lines
    assert "typical operation" in "\n".join(lines)


def test_a_median_that_passes_does_not_hide_another_metric_that_fails() -> None:
    rows = {row[0].text: row[-1].text for row in proxy_table(PROXY).rows}
    assert rows["typical operation"] == "FAIL (p99)"
    assert rows["copy 100 MB in"] == "PASS"


def test_what_is_open_says_below_the_table_how_much_longer_it_takes() -> None:
    assert proxy_table(PROXY).notes == ("undecided: about 4 min more would decide.",)
    decided = PROXY.model_copy(update={"metrics": [each for each in PROXY.metrics if each.verdict == "pass"]})
    assert proxy_table(decided).notes == ()


def test_a_row_is_one_line_whatever_the_verdicts_and_intervals_are() -> None:
    """On a busy machine every operation is undecided or fails by two metrics, with intervals of three digits."""
    rows = [
        metric(
            other="bare+proxy",
            percent=142.0,
            workload=workload,
            metric=kind,
            unit="ms",
            base_value=130.5,
            other_value=133.8,
            verdict=verdict,
            ci95_percent=(-111.4, 180.9),
            budget=5.0,
            budget_unit="%",
            seconds_needed=900.0,
        )
        for workload in TYPICAL
        for kind, verdict in (("latency_p50", "inconclusive"), ("latency_mean", "fail"), ("latency_p99", "fail"))
    ]
    table = proxy_table(PROXY.model_copy(update={"metrics": rows}))
    stream = io.StringIO()
    Screen(stream, 80).table(table)
    lines = stream.getvalue().splitlines()
    assert len(lines) == len(TYPICAL) + 2
    few = MODEL.metrics[0].model_copy(
        update={
            "metric": "latency_mean",
            "overhead_percent": 77.3,
            "ci95_percent": (-96.8, 9662.0),
            "verdict": "inconclusive",
        }
    )
    rows = [
        row.model_copy(update={"verdict": "fail", "overhead_percent": 12.0, "ci95_percent": (-98.2, 7001.3)})
        for row in rows
    ]
    stream = io.StringIO()
    Screen(stream, 80).table(
        proxy_table(MODEL.model_copy(update={"metrics": [few]}), PROXY.model_copy(update={"metrics": rows}))
    )
    assert "+77 % (-97 to >1,000)" in stream.getvalue()
    assert len(stream.getvalue().splitlines()) == len(TYPICAL) + 3
    assert all("FAIL (mean)" in line and "+142 % (-111 to 181)" in line for line in lines[2:])
