"""`make bench`: measure every figure, hold it against its goal, write `results/bench.json`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench import (
    client,
    figures,
    frameworks,
    kubernetes,
    language_model,
    models,
    program,
    proxy,
    runtimes,
    servers,
    soft,
)
from bench.compare_million import compare_million
from bench.duet import aa_false_verdicts, duet_gain, duet_seconds
from bench.goals import GOALS, judge
from bench.report_size import report_size
from bench.share import share_figures
from bench.victims import proxy_victims
from gputax.results.files import write_text
from gputax.results.store import now_text
from gputax.worker.probes.facts import describe

FIGURES: dict[str, Callable[[], dict[str, Any]]] = {
    "help": figures.help_time,
    "offline": figures.offline_efficiency,
    "single-stream-overhead": figures.single_stream_overhead,
    "single-stream-ratio": figures.single_stream_ratio,
    "no-op": figures.no_op_rates,
    "server-peak": figures.server_peak_ratio,
    "torch": figures.vs_naive_torch,
    "quick": figures.quick_run,
    "language-model": language_model.language_model,
    "duet-gain": duet_gain,
    "duet-seconds": duet_seconds,
    "duet-a-a": aa_false_verdicts,
    "duet-command": program.command_overhead,
    "openai-overhead": servers.client_overhead,
    "openai-rate": servers.requests_per_s,
    "openai-tokens": servers.token_errors,
    "proxy-operation": proxy.proxy_operation,
    "proxy-socket": proxy.proxy_operation_by_socket,
    "proxy-bandwidth": proxy.proxy_bandwidth,
    "proxy-launch": proxy.proxy_launch,
    "proxy-tenants": proxy.proxy_tenants,
    "proxy-tenant": proxy.proxy_tenant,
    "proxy-victims": proxy_victims,
    "proxy-resnet50": models.proxy_resnet50,
    "proxy-calls": models.proxy_calls,
    "proxy-stream": frameworks.proxy_stream,
    "soft-gflops": soft.soft_gflops,
    "soft-resnet50": models.soft_resnet50,
    "soft-bert-large": models.soft_bert_large,
    "soft-compile": models.soft_compile,
    "client": client.client_figures,
    "share": share_figures,
    "kubernetes": kubernetes.kubernetes_pod,
    "runtimes": runtimes.gvisor_cost,
    "compare": compare_million,
    "report": report_size,
}
OUT = Path("results/bench.json")


def main(chosen: list[str]) -> int:
    """Measure the named figures, or all; figures not chosen keep their last value."""
    results: dict[str, Any] = json.loads(OUT.read_text()) if chosen and OUT.exists() else {}
    for name in chosen or FIGURES:
        print(f"bench: {name} …", file=sys.stderr, flush=True)
        results.update(FIGURES[name]())
    described = describe()
    results["measured_at"] = now_text()
    results["host"] = {key: described["host"].get(key) for key in ("cpu_model", "cores_online", "load_averages")}
    results["device_label"] = f"CPU ({described['host'].get('cpu_model')}), not a GPU"
    write_text(OUT, json.dumps(results, indent=2) + "\n")
    judged = [found for goal in GOALS if (found := judge(goal, results)) is not None]
    for each in judged:
        print(each.text)
    if results.get("vs_naive_torch") is not None:
        print(f"       vs_naive_torch = {results['vs_naive_torch']:.3g}")
    print(f"written: {OUT}")
    return 1 if any(each.outcome == "MISSED" for each in judged) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
