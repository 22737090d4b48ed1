"""The bench of the client measures what it says: an overhead that is put in comes out."""

from __future__ import annotations

import time

import pytest

from bench.client import client_figures
from gputax.worker.tenant.tally import Tally

ENGINE = "synthetic:latency_us=2000"


def test_every_second_of_the_client_holds_one_real_scrape() -> None:
    figures = client_figures(3.0, "resnet50", ENGINE)
    assert 1 <= figures["scrape_count"] <= 2
    assert figures["scrape_ms"] > 0
    assert 0.3 < figures["client_overhead"] < 3


def test_a_cost_that_is_put_in_comes_out(monkeypatch: pytest.MonkeyPatch) -> None:
    done = Tally.done

    def slower(tally: Tally, latency_ns: int, samples: int = 1) -> None:
        done(tally, latency_ns, samples)
        time.sleep(0.004)

    monkeypatch.setattr(Tally, "done", slower)
    assert client_figures(1.5, "resnet50", ENGINE)["client_overhead"] > 1.6
