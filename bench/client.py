"""What the tenant's metrics cost it, and what a scrape takes: `client_overhead` and `scrape_ms`.

Both loops run the same engine on the same thread in turn, about 50 ms at a time, so that both meet the same weather;
two slots make a pair. Once in each second of the client's time another process scrapes it. Pairs with a scrape have a
median of their own, which counts by their share: in a median over all pairs one scrape in twenty would be lost, and a
mean follows every burst of another process. A run counts from its start to the start of the next, so that what the
client writes down between two runs is in it.
"""

from __future__ import annotations

import gc
import http.client
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from bench.intervals import RESAMPLES, median_interval
from gputax.plan.cells import Setup
from gputax.worker.loads import closed_loop
from gputax.worker.loads.recording import quiet_interpreter
from gputax.worker.preparation import Prepared, prepare
from gputax.worker.tenant.info import tenant_labels
from gputax.worker.tenant.metrics import MetricsServer, TenantMetrics
from gputax.worker.tenant.tally import Tally

SECONDS = 50.0
SCRAPE_EVERY_S = 1.0
SLOT_S = 0.05
WARM_UP_RUNS = 10


@dataclass(frozen=True)
class Pair:
    """One slot of each side: seconds of the same number of runs."""

    bare_s: float
    client_s: float
    scraped: bool

    @property
    def ratio(self) -> float:
        """How much longer the client took."""
        return self.client_s / self.bare_s


class Scraper:
    """Another process that scrapes on request, as Prometheus would, and reports what each took."""

    def __init__(self, port: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.client", "scrape", str(port)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._process.stdin
        assert self._process.stdout
        self._stdin, self._stdout = self._process.stdin, self._process.stdout
        self._stdout.readline()  # it is ready

    def scrape(self) -> None:
        """Tell it to scrape now, and do not wait."""
        self._stdin.write(b"\n")
        self._stdin.flush()

    def finish(self) -> list[float]:
        """End it and return the milliseconds of each scrape."""
        out, _ = self._process.communicate(timeout=60)
        return [float(json.loads(line)["ms"]) for line in out.splitlines()]


def client_figures(
    seconds: float = SECONDS, workload: str = "resnet50", engine: str = "onnx:spin=false"
) -> dict[str, Any]:
    """Return the mean inference time with metrics on over the bare loop's, and the median time of a scrape."""
    setup = Setup(workload, engine=engine, device="cpu", threads=1, max_batch=1, sample_count=4)
    prepared = prepare(setup, lambda _: None)
    metrics = TenantMetrics(Tally(target_ns=100_000_000))
    metrics.introduce(tenant_labels(setup, prepared.facts))
    server = MetricsServer(metrics, "127.0.0.1", 0)
    scraper = Scraper(server.port)
    try:
        with quiet_interpreter():
            gc.enable()  # as the client does
            pairs = _pairs(prepared, metrics.tally, scraper, seconds)
    finally:
        scrapes_ms = scraper.finish()
        server.close()
        prepared.engine.close()
    return figures_of(pairs, scrapes_ms)


def figures_of(pairs: list[Pair], scrapes_ms: list[float]) -> dict[str, Any]:
    """Return the figures with their intervals."""
    plain = np.array([pair.ratio for pair in pairs if not pair.scraped])
    scraped = np.array([pair.ratio for pair in pairs if pair.scraped])
    share = scraped.size / len(pairs)
    chance = np.random.default_rng(7)
    drawn = [np.median(chance.choice(each, (RESAMPLES, each.size)), axis=1) for each in (plain, scraped)]
    low, high = np.quantile((1 - share) * drawn[0] + share * drawn[1], (0.025, 0.975))
    return {
        "client_overhead": float((1 - share) * np.median(plain) + share * np.median(scraped)),
        "client_overhead_ci95": [float(low), float(high)],
        "client_overhead_pairs": len(pairs),
        "scrape_ms": statistics.median(scrapes_ms),
        "scrape_ms_ci95": median_interval(scrapes_ms),
        "scrape_count": len(scrapes_ms),
    }


def _pairs(prepared: Prepared, tally: Tally, scraper: Scraper, seconds: float) -> list[Pair]:
    run_s = bare_slot(prepared, WARM_UP_RUNS) / WARM_UP_RUNS
    runs = max(1, round(SLOT_S / run_s))
    end_s = time.perf_counter() + seconds
    pairs: list[Pair] = []
    since_scrape_s = 0.0
    while time.perf_counter() < end_s or not any(pair.scraped for pair in pairs):
        scraped = since_scrape_s >= SCRAPE_EVERY_S
        pairs.append(_pair(prepared, tally, runs, len(pairs), scraper.scrape if scraped else None))
        since_scrape_s = 0.0 if scraped else since_scrape_s + pairs[-1].client_s
    return pairs


def _pair(prepared: Prepared, tally: Tally, runs: int, number: int, scrape: Callable[[], None] | None) -> Pair:
    """Take both slots; who begins changes from pair to pair."""

    def client_s() -> float:
        if scrape is not None:
            scrape()
        return client_slot(prepared, tally, runs)

    if number % 2:
        first = client_s()
        return Pair(bare_slot(prepared, runs), first, scrape is not None)
    return Pair(bare_slot(prepared, runs), client_s(), scrape is not None)


def bare_slot(prepared: Prepared, runs: int) -> float:
    """Return the seconds of so many runs in the loop that people write by hand."""
    run, places = prepared.engine.run, prepared.area.count
    times_ns = []
    started_s = time.perf_counter()
    for number in range(runs):
        start_ns = time.perf_counter_ns()
        run(number % places, 1)
        times_ns.append(time.perf_counter_ns() - start_ns)
    return time.perf_counter() - started_s


def client_slot(prepared: Prepared, tally: Tally, runs: int) -> float:
    """Return the seconds of as many runs in the client's own loop, counted as it counts."""
    left = runs

    def going() -> bool:
        return left > 0

    def observe(latency_ns: int) -> None:
        nonlocal left
        tally.done(latency_ns, 1)
        left -= 1

    def failed(error: Exception) -> None:
        raise error

    started_s = time.perf_counter()
    closed_loop.endless(prepared.engine, prepared.area, 1, going, observe, failed)
    return time.perf_counter() - started_s


def scrape_on_request(port: int) -> None:
    """Serve the scraper's side: a line in is a scrape, a line out is what it took."""
    print("{}", flush=True)
    for _ in sys.stdin:
        started_s = time.perf_counter()
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        connection.request("GET", "/metrics", headers={"Accept-Encoding": "gzip"})
        answer = connection.getresponse()
        answer.read()
        connection.close()
        assert answer.status == 200
        print(json.dumps({"ms": (time.perf_counter() - started_s) * 1e3}), flush=True)


def main(words: list[str]) -> None:
    """Print the figures, or be the scraper of another process."""
    if words[:1] == ["scrape"]:
        scrape_on_request(int(words[1]))
        return
    print(json.dumps(client_figures(float(words[0]) if words else SECONDS), indent=2))


if __name__ == "__main__":
    main(sys.argv[1:])
