"""What the GPU proxy adds to the real call streams of PyTorch and ONNX Runtime; its kernels compute nothing.

The packages are in an environment of their own (`make test-frameworks` installs it), so each figure is measured by
`bench.framework_stream` there.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from bench.intervals import grouped_median_interval, median_interval

PYTHON = Path(".venv-frameworks/bin/python")
ENGINES = ("onnx", "torch")
TIMEOUT_S = 1800


def proxy_stream() -> dict[str, Any]:
    """One steady-state inference of ResNet-50, batch 1: time over the direct path, answered calls, and the start."""
    if not PYTHON.exists():
        why = "PyTorch and ONNX Runtime for CUDA are not installed: make test-frameworks"
        print(f"bench: proxy-stream skipped: {why}", file=sys.stderr)
        return {"proxy_stream_why": why}
    measured = {engine: _measured(engine) for engine in ENGINES}
    figures: dict[str, Any] = {"proxy_stream_why": None, "proxy_stream_device": measured["onnx"]["device"]}
    for engine, seen in measured.items():
        figures |= stream_figures(engine, seen)
    figures["proxy_stream_answered_calls"] = max(seen["answered"] for seen in measured.values())
    return figures | start_figures(measured["torch"]["starts_s"])


def stream_figures(engine: str, seen: dict[str, Any]) -> dict[str, Any]:
    """Return proxied minus direct time of one inference: the median over pairs of slots, of several restarts."""
    key = f"proxy_stream_us_per_inference_{engine}"
    groups = [[pair[1] - pair[0] for pair in pairs] for pairs in seen["pairs_us"]]
    flat = [pair for pairs in seen["pairs_us"] for pair in pairs]
    return {
        key: statistics.median(value for group in groups for value in group),
        f"{key}_ci95": grouped_median_interval(groups),
        f"{key}_direct_us": statistics.median(direct for direct, _ in flat),
        f"{key}_proxied_us": statistics.median(proxied for _, proxied in flat),
        f"proxy_stream_calls_{engine}": seen["calls"],
        f"proxy_stream_answered_{engine}": seen["answered"],
        f"proxy_stream_posted_{engine}": seen["posted"],
    }


def start_figures(starts_s: list[list[float]]) -> dict[str, Any]:
    """Return how much longer PyTorch takes behind the proxy from the start of its process to its first inference."""
    ratios = [proxied / direct for direct, proxied in starts_s]
    return {
        "proxy_torch_start_ratio": statistics.median(ratios),
        "proxy_torch_start_ratio_ci95": median_interval(ratios),
        "proxy_torch_start_direct_s": statistics.median(direct for direct, _ in starts_s),
        "proxy_torch_start_proxied_s": statistics.median(proxied for _, proxied in starts_s),
    }


def _measured(engine: str) -> dict[str, Any]:
    words = [str(PYTHON), "-m", "bench.framework_stream", engine]
    done = subprocess.run(words, stdout=subprocess.PIPE, check=True, timeout=TIMEOUT_S)
    seen: dict[str, Any] = json.loads(done.stdout)
    return seen
