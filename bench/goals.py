"""The goals of `make bench`, judged as the product judges: by the whole interval where there is one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Outcome = Literal["ok", "MISSED", "unsure"]


@dataclass(frozen=True)
class Goal:
    """What one figure must reach."""

    key: str
    comparison: Literal["<=", ">="]
    value: float

    def met_by(self, figure: float) -> bool:
        """Whether this value would do."""
        return figure <= self.value if self.comparison == "<=" else figure >= self.value


@dataclass(frozen=True)
class Judged:
    """One goal held against the results."""

    outcome: Outcome
    text: str


GOALS: tuple[Goal, ...] = (
    Goal("offline_efficiency", ">=", 0.97),
    Goal("llm_tiny_tokens_ratio", ">=", 0.97),
    Goal("single_stream_overhead_us", "<=", 15),
    Goal("single_stream_ratio", "<=", 1.01),
    Goal("noop_single_stream_qps", ">=", 100_000),
    Goal("noop_server_valid", ">=", 1),
    Goal("server_peak_ratio", ">=", 3),
    Goal("openai_client_overhead_us", "<=", 100),
    Goal("openai_requests_per_s", ">=", 2000),
    Goal("openai_ttft_error", "<=", 0.01),
    Goal("openai_tpot_error", "<=", 0.01),
    Goal("help_ms", "<=", 80),
    Goal("quick_peak_mb", "<=", 1500),
    Goal("quick_s", "<=", 90),
    Goal("duet_gain", ">=", 6),
    Goal("duet_seconds_5_percent", "<=", 60),
    Goal("duet_seconds_1_percent", "<=", 900),
    Goal("aa_false_verdicts", "<=", 2),
    Goal("proxy_op_p50_overhead", "<=", 0.05),
    Goal("proxy_call_us", "<=", 1),
    Goal("proxy_bandwidth_ratio", ">=", 0.97),
    Goal("proxy_bandwidth_ratio_unthrottled", ">=", 0.80),
    Goal("proxy_tenants_ratio", ">=", 0.9),
    Goal("proxy_tenant_memory_mb", "<=", 8),
    Goal("proxy_op_mean_overhead", "<=", 0.05),
    Goal("proxy_launch_us", "<=", 1),
    Goal("proxy_resnet50_overhead", "<=", 0.01),
    Goal("proxy_stream_us_per_inference_onnx", "<=", 500),
    Goal("proxy_stream_us_per_inference_torch", "<=", 500),
    Goal("proxy_stream_answered_calls", "<=", 5),
    Goal("proxy_torch_start_ratio", "<=", 1.3),
    Goal("soft_gflops", ">=", 10),
    Goal("soft_resnet50_cpu_s", "<=", 0.9),
    Goal("soft_bert_large_cpu_s", "<=", 18),
    Goal("soft_compile_cold_s", "<=", 15),
    Goal("soft_compile_cached_s", "<=", 1),
    Goal("client_overhead", "<=", 1.01),
    Goal("share_overlap", ">=", 0.9),
    Goal("share_lost_samples", "<=", 0),
    Goal("k8s_overhead_percent", "<=", 1),
    Goal("k8s_first_sample_s", "<=", 15),
    Goal("compare_million_s", "<=", 10),
    Goal("report_kb", "<=", 2048),
)


def judge(goal: Goal, results: Mapping[str, Any]) -> Judged | None:
    """Return the verdict on one goal, None where its figure was not measured.

    `ok` only if the whole interval meets the goal and `MISSED` only if all of it misses; a figure without an interval
    is judged by its value.
    """
    if results.get(goal.key) is None:
        return None
    value = float(results[goal.key])
    interval = results.get(f"{goal.key}_ci95")
    met = {goal.met_by(float(bound)) for bound in (interval or (value,))}
    outcome: Outcome = "unsure" if len(met) == 2 else "ok" if met == {True} else "MISSED"
    shown = "" if not interval else f" (95 % interval {interval[0]:.4g} to {interval[1]:.4g})"
    return Judged(outcome, f"{outcome:<6} {goal.key} = {value:.4g}{shown}, goal {goal.comparison} {goal.value:g}")
