from __future__ import annotations

from typing import Any

from gputax.report.answers import answer_sentence, answer_table, layer_answers
from gputax.report.grouping import compared, pairs_of
from gputax.report.overview_layers import layer_rows
from gputax.report.story import build_report, report_on
from gputax.results.documents.comparison import ComparedMetric, Comparison
from tests.builders.documents import CPU, comparison, metric, p99, sources

FAIL: dict[str, Any] = {"verdict": "fail", "reason": "lower bound is above the budget"}
OPEN: dict[str, Any] = {"verdict": "inconclusive", "ci95_percent": (4.0, 6.0), "pairs_needed": 400}
DIFFERENT: dict[str, Any] = {
    "verdict": "not comparable",
    "differences": ("threads: 2 and 4", "engine: onnx and torch"),
    "reason": "differ",
}


def sentence(*metrics: ComparedMetric) -> str:
    answers = layer_answers(pairs_of(compared(sources(comparison(*metrics)).comparisons)))
    return answer_sentence(answers).text


def test_a_pass_says_cost_interval_and_budget() -> None:
    assert sentence(metric()) == (
        "k8s+proxy costs +3.2 % (95 % CI +2.6 to +3.9) over bare in throughput of resnet50 offline b8: "
        "within its budget of 5 %."
    )


def test_a_fail_says_so() -> None:
    assert sentence(metric(percent=6.0, **FAIL)).endswith(": over its budget of 5 %.")


def test_what_is_undecided_says_how_many_pairs_would_decide() -> None:
    assert sentence(metric(percent=5.0, **OPEN)).endswith(
        ": undecided against its budget of 5 %; about 400 pairs would decide, 120 are measured."
    )


def test_an_unpaired_one_is_called_weaker() -> None:
    assert "unpaired (weaker)" in sentence(metric(percent=5.0, **{**OPEN, "paired": False}))


def test_what_cannot_be_compared_says_what_differs() -> None:
    assert sentence(metric(**DIFFERENT)) == (
        "k8s+proxy cannot be compared with bare: threads: 2 and 4; engine: onnx and torch."
    )


def test_without_a_number_the_reason_is_the_answer() -> None:
    text = sentence(metric(percent=None, verdict="inconclusive", reason="the baseline is zero"))
    assert text == "Undecided what k8s+proxy costs over bare: the baseline is zero."


def test_a_refused_percentile_decides_nothing_while_others_have_numbers() -> None:
    refused: dict[str, Any] = {
        "overhead_percent": None,
        "overhead_absolute": None,
        "verdict": "inconclusive",
        "reason": "p99 needs 662",
    }
    no_p99 = p99(**refused, decides=False)
    assert sentence(metric(), no_p99).endswith("within its budget of 5 %; p99 latency could not be judged.")
    undecided = "Undecided what k8s+proxy costs over bare: p99 needs 662."
    assert sentence(no_p99) == undecided
    assert sentence(metric(), p99(**refused)).endswith(
        "within its budget of 5 %. Worst: p99 latency of resnet50 server b8, ? undecided: p99 needs 662."
    ), "a budget names it"


def test_several_layers_are_one_sentence_with_the_worst_first() -> None:
    assert sentence(
        metric(other="container", percent=0.4, budget=1.0),
        metric(other="k8s", percent=0.8, budget=1.0),
        metric(other="k8s+proxy", percent=6.0, **FAIL),
        metric(other="k8s+xen", percent=5.0, **OPEN),
        metric(other="k8s+mig", **DIFFERENT),
    ) == (
        "k8s+proxy (+6.0 %) is over its budget of 5 %; k8s+mig cannot be compared; k8s+xen (+5.0 %) is undecided; "
        "container (+0.40 %) and k8s (+0.80 %) are within their budgets."
    )


def test_one_metric_over_its_budget_fails_the_layer_whatever_the_others_say() -> None:
    (pair,) = pairs_of(
        compared(sources(comparison(metric(), p99(overhead_absolute=2.6, **FAIL), metric())).comparisons)
    )
    (answer,) = layer_answers([pair])
    assert answer.verdict == "fail"
    assert answer.decisive.metric.metric == "latency_p99"


def test_of_equal_verdicts_the_one_nearest_its_budget_decides_in_its_own_unit() -> None:
    (pair,) = pairs_of(
        compared(sources(comparison(metric(percent=3.2), p99(overhead_absolute=1.9), metric(percent=1.0))).comparisons)
    )
    assert layer_answers([pair])[0].decisive.metric.metric == "latency_p99", "1.9 of 2 ms is more than 3.2 of 5 %"


def test_a_short_comparison_shows_its_metrics_at_once_and_a_long_one_its_layers() -> None:
    short = report_on(comparison(metric(), p99()))
    assert short.answer_table is not None
    assert short.answer_table.name == "metrics"
    assert "metrics" not in [section.name for section in short.sections]
    long = report_on(comparison(*(metric(batch_size=batch) for batch in range(1, 10))))
    assert long.answer_table is not None
    assert long.answer_table.name == "answer"
    assert "metrics" in [section.name for section in long.sections]


def test_the_same_sides_on_two_devices_are_never_put_together() -> None:
    first = comparison(metric())
    gpu = tuple(each.model_copy(update={"device_label": "GPU (A100)"}) for each in first.sides)
    second = first.model_copy(update={"sides": gpu})
    pairs = pairs_of(compared(sources(first, second).comparisons))
    assert [pair.devices for pair in pairs] == [(CPU,), ("GPU (A100)",)]
    answers = layer_answers(pairs)
    assert answer_table(answers).title.endswith(f"on {CPU}; GPU (A100)")


def test_the_machines_own_resolution_stands_below_the_answer() -> None:
    facts = [fact.text for fact in report_on(comparison()).facts]
    assert facts == ["The smallest overhead that this machine can resolve is 0.31 % (A/A control: 120 pairs in 60 s)."]


def test_a_control_that_shows_a_difference_is_said_in_red() -> None:
    made = comparison()
    assert made.resolution is not None
    broken = made.resolution.model_copy(update={"contains_zero": False, "ci95_percent": (0.5, 1.5)})
    _, fact = report_on(made.model_copy(update={"resolution": broken})).facts
    assert fact.tone == "fail"
    assert "equal sides (95 % CI +0.50 to +1.50): do not trust this result" in fact.text


def test_of_several_controls_the_coarsest_counts() -> None:
    fine = comparison()
    assert fine.resolution is not None
    coarse = fine.model_copy(update={"resolution": fine.resolution.model_copy(update={"half_width_percent": 2.5})})
    (fact,) = build_report(sources(fine, coarse)).facts
    assert "can resolve is 2.5 % (worst of 2 A/A controls" in fact.text


def test_on_two_devices_every_number_of_the_answer_names_its_own() -> None:
    cpu = comparison(metric())
    gpu = cpu.model_copy(
        update={"sides": tuple(each.model_copy(update={"device_label": "GPU (A100)"}) for each in cpu.sides)}
    )
    report = build_report(sources(cpu, gpu))
    assert (
        report.answer.text
        == f"k8s+proxy on {CPU} (+3.2 %) and k8s+proxy on GPU (A100) (+3.2 %) are within their budgets."
    )
    assert report.answer_table is not None
    assert report.answer_table.shown_columns[-1].key == "device"
    assert report.overview.chart is not None
    rows = report.overview.chart.spec["data"]["values"]
    assert [row["own"] for row in rows] == [f"on {CPU}", "on GPU (A100)"]


def behind_proxy(device: str, **changes: Any) -> Comparison:
    values: dict[str, Any] = {
        "scenario": "single-stream", "batch_size": 1, "metric": "latency_p50", "unit": "ms", "base_value": 1.0,
        "other_value": 1.01,
    }  # fmt: skip
    made = comparison(metric("bare", "bare+proxy", **{**values, **changes}))
    return made.model_copy(
        update={"sides": tuple(each.model_copy(update={"device_label": device}) for each in made.sides)}
    )


def test_a_model_and_a_throttled_operation_behind_one_proxy_are_one_layer_and_the_model_represents_it() -> None:
    plain = "software device (gputax software device), not a GPU"
    throttled = "software device (gputax software device [kernel 125 us]), not a GPU"
    operation = behind_proxy(throttled, workload="micro:operation", percent=2.0)
    model = behind_proxy(plain, workload="resnet50", percent=0.4)
    report = build_report(sources(operation, model))
    (answer,) = layer_answers(pairs_of(compared(sources(operation, model).comparisons)))
    assert answer.typical.metric.workload == "resnet50"
    assert "layers" not in report.overview.title.text
    assert report.overview.title.text.startswith("GPU proxy adds 0.40 % to resnet50")
    _, rows = layer_rows([answer])
    assert [(row.value, row.own) for row in rows] == [
        (0.4, f"p50 latency of resnet50 single-stream, on {plain}"),
        (2.0, f"p50 latency of micro:operation, on {throttled}"),
    ]
    assert report.overview.numbers[0].device == plain, "a number names its own device"
