"""Token figures are computed from the columns by the stated definitions, and failed requests are in none of them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from gputax.errors import CellError
from gputax.measure.summary import summarise
from gputax.plan.tokens import TokenDefinitions
from gputax.results.columns import sample_tables
from gputax.results.token_series import token_series

MS = 1_000_000


def columns(requests: int = 100, *, failed: int = 0) -> dict[str, npt.NDArray[np.int64]]:
    """Return requests every 100 ms, sent 2 ms late, with a first token after 50 ms and four more, 10 ms apart."""
    scheduled = np.arange(requests, dtype=np.int64) * 100 * MS
    first = scheduled + 50 * MS
    times = np.array([[each + gap * 10 * MS for gap in range(5)] for each in first], dtype=np.int64)
    status = np.zeros(requests, dtype=np.int64)
    status[:failed] = 500
    return {
        "scheduled_ns": scheduled,
        "issued_ns": scheduled + 2 * MS,
        "start_ns": scheduled + 2 * MS,
        "end_ns": times[:, -1] + 1 * MS,
        "batch": np.ones(requests, dtype=np.int64),
        "samples": np.ones(requests, dtype=np.int64),
        "status": status,
        "first_token_ns": first,
        "last_token_ns": times[:, -1],
        "tokens": np.full(requests, 5, dtype=np.int64),
        # Streams interleave: the times of all requests are not in the order of the requests.
        "token_query": np.tile(np.arange(requests), 5),
        "token_ns": times.T.ravel(),
    }


def test_ttft_counts_from_the_schedule_and_tpot_excludes_the_first_token() -> None:
    series = token_series("server", columns())
    assert np.unique(series["ttft"]).tolist() == [50 * MS]
    assert np.unique(series["tpot"]).tolist() == [10 * MS]
    assert np.unique(series["itl"]).tolist() == [10 * MS]
    assert series["itl"].size == 400


def test_in_a_closed_loop_ttft_counts_from_the_sending() -> None:
    assert np.unique(token_series("single-stream", columns())["ttft"]).tolist() == [48 * MS]


def test_figures_have_the_keys_of_the_record_and_omit_what_has_too_few_values() -> None:
    figures = summarise("server", columns())
    assert figures.tokens is not None
    record = figures.tokens.record()
    assert record["tokens"] == 500
    assert record["tokens_per_sec"] == pytest.approx(500 / figures.duration_s)
    assert (record["ttft_p50_ms"], record["ttft_p90_ms"], record["ttft_p99_ms"]) == (50.0, 50.0, None)
    assert (record["tpot_p50_ms"], record["tpot_p90_ms"], record["tpot_p99_ms"]) == (10.0, 10.0, None)
    assert (record["itl_p50_ms"], record["itl_p99_ms"]) == (10.0, None)
    assert any("ttft p99 needs 662 values" in notice.text for notice in figures.notices)


def test_failed_requests_are_in_no_latency_throughput_or_token_figure() -> None:
    figures = summarise("server", columns(failed=20))
    assert (figures.failed, figures.queries) == (20, 80)
    assert figures.tokens is not None
    assert figures.tokens.tokens == 400
    assert figures.throughput_per_s == pytest.approx(80 / figures.duration_s)


def test_if_every_request_failed_there_are_no_figures() -> None:
    with pytest.raises(CellError, match="all 100 requests failed"):
        summarise("server", columns(failed=100))


def test_responses_of_a_single_token_have_no_tpot() -> None:
    found = columns()
    found["tokens"][:] = 1
    found["last_token_ns"] = found["first_token_ns"]
    assert token_series("server", found)["tpot"].size == 0


def test_tokens_that_all_came_at_once_count_with_about_no_time() -> None:
    found = columns()
    found["last_token_ns"] = found["first_token_ns"]
    tpot = token_series("server", found)["tpot"]
    assert tpot.size == 100
    assert 0.0 < tpot.max() < 1.0


def test_a_load_without_tokens_has_none() -> None:
    plain = {name: values for name, values in columns().items() if "token" not in name}
    assert token_series("server", plain) == {}
    assert summarise("server", plain).tokens is None


def test_the_times_of_single_tokens_are_a_table_of_their_own() -> None:
    requests, tokens = sample_tables(columns())
    assert {len(values) for values in requests.values()} == {100}
    assert set(tokens) == {"token_query", "token_ns"}


def test_definitions_say_where_the_clock_starts_and_what_was_counted() -> None:
    served = TokenDefinitions("scheduled", "chunk", "usage").to_dict()
    assert served["ttft"] == "from the request's scheduled arrival to the first chunk with content"
    assert "first token is excluded" in served["tpot"]
    assert "usage.completion_tokens" in served["tokens_per_s"]
    assert served != TokenDefinitions("sent", "chunk", "usage").to_dict()
