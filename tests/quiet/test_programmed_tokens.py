"""The token metrics against the truth: programmed delays of a server process must come back within one per cent."""

from __future__ import annotations

import pytest

from bench.servers import TPOT_MS, TTFT_MS, token_errors


def test_ttft_and_tpot_are_found_within_one_per_cent() -> None:
    found = token_errors()
    assert found["openai_ttft_p50_ms"] >= TTFT_MS
    assert found["openai_ttft_p50_ms"] == pytest.approx(TTFT_MS, rel=0.01)
    assert found["openai_tpot_p50_ms"] == pytest.approx(TPOT_MS, rel=0.01)
