"""Cross-check with Prometheus: the users' own query over a cell's window, compared with our mean."""

from __future__ import annotations

import json
import math
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Sequence

from gputax.plan.notices import Notice
from gputax.results.documents.sharing import CrossCheck

# The query of the users' procedure; only its range is the cell's window instead of two minutes.
QUERY = "avg(sum(rate(inference_time_seconds_sum{of}[{range}])) / sum(rate(inference_time_seconds_count{of}[{range}])))"
BUSY = "count(rate(inference_time_seconds_count{of}[{range}]) > 0)"
# Labels under which a scrape configuration keeps the pod's name; the second is used if `honorLabels` is off.
POD_LABELS = ("pod", "exported_pod", "kubernetes_pod_name")
TIMEOUT_S = 10.0
CODE = "prometheus"
# More than the window would include the warm-up, and less than a few seconds has no two scrapes.
LEAST_RANGE_S = 2


class _NoAnswer(Exception):
    """Why Prometheus returned no value."""


def cross_check(
    url: str,
    window_s: float,
    technique: str,
    tenants: int,
    ours_ms: float | None,
    *,
    pods: Sequence[str] = (),
    ended_s: float | None = None,
) -> CrossCheck | Notice:
    """Ask Prometheus for the mean over the last `window_s` until `ended_s` (Unix time; default: now).

    `ours_ms` is the mean over all tenants' inferences together, as the query weighs them. With `pods`, only these
    count; without, or if Prometheus has no such label, there must be as many busy clients as tenants. A failed
    comparison is a notice: a missing Prometheus does not fail the measurement.
    """
    if ours_ms is None or ours_ms <= 0:
        return Notice(CODE, "no mean of our own to compare with Prometheus")
    at_s = time.time() if ended_s is None else ended_s
    span = f"{max(LEAST_RANGE_S, math.floor(window_s))}s"
    try:
        seen = {of: _value(url, BUSY.format(of=of, range=span), at_s) for of in _selections(pods)}
        chosen = next((of for of, count in seen.items() if count == tenants), None)
        if chosen is None:
            counts = max((count for count in seen.values() if count is not None), default=0.0)
            text = f"Prometheus saw {counts:.0f} busy clients, {technique} had {tenants} tenants: not compared"
            return Notice(CODE, text, counts)
        query = QUERY.format(of=chosen, range=span)
        mean_s = _value(url, query, at_s)
    except _NoAnswer as error:
        return Notice(CODE, f"Prometheus at {url} did not answer: {error}")
    if mean_s is None or not math.isfinite(mean_s):
        return Notice(CODE, f"Prometheus has no value for {query}")
    theirs_ms = 1e3 * mean_s
    return CrossCheck(
        query=query,
        prometheus_ms=theirs_ms,
        ours_ms=ours_ms,
        difference_percent=100.0 * (theirs_ms / ours_ms - 1.0),
    )


def silence(url: str) -> Notice | None:
    """Return why Prometheus does not answer, None if it does."""
    try:
        _value(url, "vector(1)", time.time())
    except _NoAnswer as error:
        return Notice(CODE, f"Prometheus at {url} did not answer: {error}; means are compared once it does")
    return None


def _selections(pods: Sequence[str]) -> list[str]:
    """Return the label selections to try: this run's pods first, then all clients."""
    names = "|".join(sorted(set(pods)))
    return [f'{{{label}=~"{names}"}}' for label in POD_LABELS if names] + [""]


def _value(url: str, query: str, at_s: float) -> float | None:
    """Return the one value of an instant query, None if it is empty."""
    words = urllib.parse.urlencode({"query": query, "time": f"{at_s:.3f}"})
    address = f"{url.rstrip('/')}/api/v1/query?{words}"
    if not address.startswith(("http://", "https://")):
        raise _NoAnswer("the address must start with http:// or https://")
    try:
        with urllib.request.urlopen(address, timeout=TIMEOUT_S) as response:
            answer = json.load(response)
        result = answer["data"]["result"]
        return float(result[0]["value"][1]) if result else None
    except urllib.error.HTTPError as error:
        with error:
            raise _NoAnswer(f"it returned {error.code}: {_why(error.read())}") from error
    except (OSError, urllib.error.URLError) as error:
        raise _NoAnswer(str(getattr(error, "reason", error))) from error
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise _NoAnswer(f"its reply cannot be parsed ({type(error).__name__})") from error


def _why(body: bytes) -> str:
    try:
        return str(json.loads(body).get("error"))
    except (ValueError, AttributeError):
        return body[:100].decode(errors="replace")
