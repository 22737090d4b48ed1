"""The formats of CI systems: read back by their own parsers, and no verdict is made kinder."""

from __future__ import annotations

import json
from xml.etree import ElementTree

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from gputax.errors import ResultsError
from gputax.report.exporters.benchmark_text import benchmark_text
from gputax.report.exporters.junit_text import junit_text
from gputax.report.exporters.openmetrics_text import openmetrics_text
from gputax.report.exporters.summary_text import summary_text
from gputax.report.model import Report
from gputax.report.output import FOR_CI, Format, is_ours, report_text, save_report
from gputax.report.story import build_report
from tests.builders.documents import CPU, HOSTILE, comparison, metric, p99, run_source, side, sources

PASSING = metric()
FAILING = p99(verdict="fail", reason="lower bound 2.2 ms is above the budget of 2 ms")
UNDECIDED = metric(metric="latency_p50", unit="ms", verdict="inconclusive", reason="the budget is between 1 and 9 %")
REFUSED = metric(
    metric="latency_p90", unit="ms", percent=None, base_value=None, other_value=None, verdict="inconclusive",
    decides=False, reason="p90 needs 64 samples, there are 9",
)  # fmt: skip
OTHER_THREADS = metric(
    other="k8s+xen", verdict="not comparable", differences=("threads: 2 and 4",), reason="threads: 2 and 4"
)


def report() -> Report:
    return build_report(sources(comparison(PASSING, FAILING, UNDECIDED, REFUSED, OTHER_THREADS)))


def cases(text: str) -> dict[str, list[str]]:
    """Return what stands in each test case beside its output, by the metric's name."""
    root = ElementTree.fromstring(text)
    return {
        str(case.get("name")): [
            f"{each.tag} {each.get('type', '')}".strip() for each in case if each.tag != "system-out"
        ]
        for case in root.iter("testcase")
    }


class TestJunit:
    def test_each_verdict_is_what_a_ci_system_makes_of_it(self) -> None:
        found = cases(junit_text(report()))
        assert found == {
            "resnet50 offline b8: throughput": ["error not comparable"],
            "resnet50 server b8: p99 latency": ["failure over budget"],
            "resnet50 offline b8: p50 latency": ["error undecided"],
            "resnet50 offline b8: p90 latency": ["skipped"],
        }
        assert cases(junit_text(build_report(sources(comparison(PASSING))))) == {"resnet50 offline b8: throughput": []}

    def test_it_has_the_shape_of_the_schema(self) -> None:
        """As Jenkins' junit-10.xsd wants it: totals that fit, properties first, a message on each refusal."""
        root = ElementTree.fromstring(junit_text(report()))
        assert root.tag == "testsuites"
        totals = dict.fromkeys(("tests", "failures", "errors", "skipped"), 0)
        for suite in root:
            assert suite.tag == "testsuite"
            assert suite.get("name")
            assert [each.tag for each in suite] == ["properties"] + ["testcase"] * (len(suite) - 1)
            found = {
                "tests": len(suite.findall("testcase")),
                "failures": len(suite.findall("testcase/failure")),
                "errors": len(suite.findall("testcase/error")),
                "skipped": len(suite.findall("testcase/skipped")),
            }
            for name, count in found.items():
                assert suite.get(name) == str(count)
                totals[name] += count
            for case in suite.iter("testcase"):
                assert case.get("classname")
                assert len([each for each in case if each.tag in ("failure", "error", "skipped")]) <= 1
                assert all(each.get("message") for each in case if each.tag != "system-out")
        assert {name: root.get(name) for name in totals} == {name: str(count) for name, count in totals.items()}
        assert totals == {"tests": 5, "failures": 1, "errors": 2, "skipped": 1}

    def test_it_names_the_device(self) -> None:
        assert all(CPU in str(each.text) for each in ElementTree.fromstring(junit_text(report())).iter("system-out"))


class TestOpenMetrics:
    def families(self, made: Report) -> dict[str, list[tuple[dict[str, str], float]]]:
        parsed = text_string_to_metric_families(openmetrics_text(made))  # type: ignore[no-untyped-call]
        return {family.name: [(each.labels, each.value) for each in family.samples] for family in parsed}

    def test_prometheus_own_parser_reads_the_numbers(self) -> None:
        found = self.families(report())
        labels, value = found["gputax_overhead_ratio"][0]
        assert value == pytest.approx(0.032)
        assert labels == {
            "workload": "resnet50", "scenario": "offline", "batch_size": "8", "metric": "throughput", "base": "bare",
            "other": "k8s+proxy", "device": CPU,
        }  # fmt: skip
        assert found["gputax_overhead_upper_ratio"][0][1] == pytest.approx(0.039)
        assert found["gputax_budget_ratio"][0][1] == pytest.approx(0.05)
        assert [value for _, value in found["gputax_budget_seconds"]] == [0.002]

    def test_each_metric_is_in_one_state(self) -> None:
        states = self.families(report())["gputax_verdict"]
        active = [labels["gputax_verdict"] for labels, value in states if value == 1]
        assert sorted(active) == ["fail", "inconclusive", "inconclusive", "not comparable", "pass"]
        assert len(states) == 4 * len(active)

    def test_hostile_names_and_repeated_comparisons_are_still_readable(self) -> None:
        name = 'a"b\\c'
        made = comparison(metric("bare", name), sides=(side("bare"), side(name)))
        found = self.families(build_report(sources(made, made)))
        assert [labels["other"] for labels, _ in found["gputax_overhead_ratio"]] == [name]


class TestBenchmark:
    def test_it_is_a_list_of_numbers_of_which_smaller_is_better(self) -> None:
        entries = json.loads(benchmark_text(report()))
        assert {type(entry["value"]) for entry in entries} == {float}
        assert all({"name", "unit", "value", "extra"} <= set(entry) for entry in entries)
        first = next(entry for entry in entries if entry["name"].endswith("offline b8: throughput"))
        assert first["value"] == 3.2
        assert first["range"] == "2.6 to 3.9"
        assert CPU in first["extra"]
        assert not any("p90" in entry["name"] for entry in entries), "refused: it has no number"


class TestSummary:
    def test_it_is_short_and_says_what_failed_first(self) -> None:
        text = summary_text(report())
        assert text.splitlines()[2].startswith("### ❌ ")
        rows = [line for line in text.splitlines() if line.startswith("| ") and "<br>" in line]
        assert len(rows) == 5
        assert sum("**fail**" in row for row in rows) == 1
        assert sum(row.endswith("| undecided |") for row in rows) == 1
        assert sum(row.endswith("| not judged |") for row in rows) == 1
        assert "<details>" in text

    def test_a_name_cannot_break_out_of_its_cell(self) -> None:
        made = comparison(metric("bare", HOSTILE, workload="a|b"), sides=(side("bare"), side(HOSTILE)))
        text = summary_text(build_report(sources(made)))
        assert "<script>" not in text
        assert "a\\|b" in text

    def test_hundreds_of_rows_are_cut_and_counted(self) -> None:
        many = [metric(workload=f"w{number}") for number in range(80)]
        assert "30 more metrics are in the report." in summary_text(build_report(sources(comparison(*many))))


@pytest.mark.parametrize("kind", FOR_CI)
def test_a_run_alone_has_no_verdict_to_export(kind: Format) -> None:
    with pytest.raises(ResultsError, match="nothing is compared here"):
        report_text(build_report(sources(runs=(run_source(),))), kind)


@pytest.mark.parametrize("kind", FOR_CI)
def test_what_we_wrote_may_be_written_again(kind: Format, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("ours") / "file"
    save_report(report(), kind, path)
    assert is_ours(path)
    save_report(report(), kind, path)
