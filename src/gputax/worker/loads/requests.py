"""Requests to a server: at scheduled times whatever the answers do, or a fixed number of them in flight."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol, runtime_checkable

import numpy as np

from gputax.errors import EngineError
from gputax.plan.cells import SCHEDULE_SEED, Load
from gputax.plan.notices import Notice
from gputax.plan.servers import FAILURE_LOG
from gputax.plan.tokens import FIRST_TOKEN, LAST_TOKEN, TOKEN_QUERY, TOKEN_TIME, TOKENS
from gputax.worker.loads.arrivals import poisson_offsets_ns
from gputax.worker.loads.closed_loop import Observe, wait_for_release
from gputax.worker.loads.recording import Int64Array, quiet_interpreter, set_timer_slack
from gputax.worker.servers.exchange import Answer, Exchange
from gputax.worker.servers.failures import words_for

LEAD_NS = 2_000_000
"""The first arrival is this far in the future: preparing the loop is not the server's latency."""
LAST_ANSWERS_NS = 10**18
# A server that refuses everything answers faster than one that works: no load may spin on failures.
MOST_FAILURES_IN_A_ROW = 200


@runtime_checkable
class AsksAServer(Protocol):
    """An engine whose requests are answered by a server: many may be in flight, and each may fail."""

    samples: int
    """How many different requests there are."""
    streams: bool
    """Whether an answer comes as tokens with times."""
    output_tokens: int
    """How many tokens each answer was asked for; 0 if that has no meaning."""

    @property
    def exchange(self) -> Exchange:
        """The connections to its server."""
        ...

    def redact(self, text: str) -> str:
        """Return a text of the server without the user's key."""
        ...


class RequestRecording:
    """The answers of one load, in the order in which they ended."""

    def __init__(self, total: int = 0) -> None:
        self.answers: list[Answer] = []
        self.samples_total = total
        self.schedule: Int64Array | None = None

    @property
    def count(self) -> int:
        """The requests that have ended."""
        return len(self.answers)

    @property
    def samples_done(self) -> int:
        """The same, for the progress."""
        return len(self.answers)

    def to_columns(self, *, streams: bool) -> dict[str, Int64Array]:
        """Return a row per request, in the order of arrival, and the times of all tokens."""
        answers = sorted(self.answers, key=lambda answer: answer.row)
        count = len(answers)
        columns = {
            "end_ns": _column([answer.end_ns for answer in answers]),
            "status": _column([answer.status for answer in answers]),
        }
        sent = _column([answer.sent_ns for answer in answers])
        if self.schedule is not None:
            rows = _column([answer.row for answer in answers])
            columns |= {"scheduled_ns": self.schedule[rows], "issued_ns": sent, "batch": np.ones(count, dtype=np.int64)}
        else:
            columns |= {"start_ns": sent, "samples": np.ones(count, dtype=np.int64)}
        if not streams:
            return columns
        times = [answer.times_ns for answer in answers]
        lengths = _column([len(each) for each in times])
        return columns | {
            FIRST_TOKEN: _column([each[0] if each else 0 for each in times]),
            LAST_TOKEN: _column([each[-1] if each else 0 for each in times]),
            TOKENS: _column([answer.tokens for answer in answers]),
            TOKEN_QUERY: np.repeat(np.arange(count, dtype=np.int64), lengths),
            TOKEN_TIME: _column([moment for each in times for moment in each]),
        }


def _column(values: Sequence[int]) -> Int64Array:
    return np.array(values, dtype=np.int64)


def recording_for(load: Load) -> RequestRecording:
    """Return an empty recording for this load."""
    if load.scenario == "server":
        return RequestRecording(planned_requests(load))
    return RequestRecording()


def planned_requests(load: Load) -> int:
    """Return how many requests an open loop sends."""
    return max(load.min_queries, int(load.min_duration_s * load.target_qps), 1)


def apply(engine: AsksAServer, load: Load, recording: RequestRecording, observe: Observe | None = None) -> None:
    """Apply one load; a request that fails is a row, and the load goes on."""
    with quiet_interpreter():
        set_timer_slack(1)
        wait_for_release(load.start_at_ns)
        if load.scenario == "server":
            open_loop(engine, load, recording)
        else:
            stop_ns = time.perf_counter_ns() + int(load.min_duration_s * 1e9)
            in_flight = load.batch_size if load.scenario == "saturate" else 1
            closed_loop(engine, recording, in_flight, load.min_queries, stop_ns, observe)


def open_loop(engine: AsksAServer, load: Load, recording: RequestRecording) -> None:
    """Send every request at its scheduled time, however many are still in flight, and wait for all answers."""
    exchange, samples, clock = engine.exchange, engine.samples, time.perf_counter_ns
    count = planned_requests(load)
    offsets = poisson_offsets_ns((SCHEDULE_SEED + load.seed_offset) % 2**64, load.target_qps, count)
    schedule = offsets + (clock() + LEAD_NS)
    recording.schedule = schedule
    arrivals: list[int] = schedule.tolist()
    start, wait, ended = exchange.start, exchange.wait, recording.answers
    issued = 0
    while len(ended) < count:
        now_ns = clock()
        while issued < count and arrivals[issued] <= now_ns:
            start(issued, (issued + load.seed_offset) % samples)
            issued += 1
        ended.extend(wait(arrivals[issued] if issued < count else LAST_ANSWERS_NS))
        if len(ended) % MOST_FAILURES_IN_A_ROW == 0:
            _refuse_endless_failures(engine, ended)


def closed_loop(
    engine: AsksAServer,
    recording: RequestRecording,
    in_flight: int,
    fewest: int,
    stop_ns: int,
    observe: Observe | None = None,
    first: int = 0,
) -> None:
    """Keep this many requests in flight until both the number and the time are reached; wait for the last answers."""
    exchange, samples, clock = engine.exchange, engine.samples, time.perf_counter_ns
    start, wait, ended = exchange.start, exchange.wait, recording.answers
    issued = 0
    while True:
        going = issued < fewest or clock() < stop_ns
        while going and issued - len(ended) < in_flight:
            start(issued, (first + issued) % samples)
            issued += 1
            going = issued < fewest or clock() < stop_ns
        if len(ended) >= issued:
            return
        for answer in wait(LAST_ANSWERS_NS):
            ended.append(answer)
            if observe is not None and not answer.status:
                observe(answer.end_ns - answer.sent_ns)
        _refuse_endless_failures(engine, ended)


def slot(
    engine: AsksAServer, batch: int, runs: range, dropped: int, counted: AbstractContextManager[None]
) -> RequestRecording:
    """Send a fixed number of requests, half of a pair; those after the first `dropped` run inside `counted`."""
    recording = RequestRecording(len(runs))
    warm = RequestRecording(dropped)
    with quiet_interpreter(collect=False):
        set_timer_slack(1)
        closed_loop(engine, warm, batch, dropped * batch, 0, first=runs.start * batch)
        with counted:
            closed_loop(
                engine, recording, batch, (len(runs) - dropped) * batch, 0, first=(runs.start + dropped) * batch
            )
    return recording


def _refuse_endless_failures(engine: AsksAServer, ended: Sequence[Answer]) -> None:
    last = ended[-MOST_FAILURES_IN_A_ROW:]
    if len(last) == MOST_FAILURES_IN_A_ROW and all(answer.status for answer in last):
        worst = last[-1]
        raise EngineError(
            f"the last {MOST_FAILURES_IN_A_ROW} requests all failed: {words_for(worst.status)}",
            where="server",
            next_step=engine.redact(worst.detail) or "look at the server's own log",
        )


def answer_notices(engine: AsksAServer, answers: Sequence[Answer]) -> list[Notice]:
    """Return what the answers themselves show: lengths other than asked for. Failures are counted by the reader."""
    notices = []
    if engine.output_tokens:
        counts = np.array([answer.tokens for answer in answers if not answer.status])
        longer, shorter = int((counts > engine.output_tokens).sum()), int((counts < engine.output_tokens).sum())
        if longer:
            text = f"{longer} of {counts.size} answers are longer than the {engine.output_tokens} tokens asked for"
            notices.append(
                Notice("output-length", f"{text} (up to {int(counts.max())}): the server ignores max_tokens", longer)
            )
        elif shorter:
            text = f"{shorter} of {counts.size} answers have fewer than the {engine.output_tokens} tokens asked for"
            notices.append(Notice("output-length", f"{text}: the model stopped by itself; ignore_eos=true", shorter))
    return notices


def failure_log(engine: AsksAServer, answers: Sequence[Answer]) -> dict[str, str]:
    """Return the failures by kind as a log file, with the last words of the server; empty if there were none."""
    kinds = Counter(answer.status for answer in answers if answer.status)
    said = {answer.status: answer.detail for answer in answers if answer.status}
    lines = [
        f"{status}\t{count}\t{words_for(status)}\t{engine.redact(_line(said[status]))}"
        for status, count in kinds.most_common()
    ]
    return {FAILURE_LOG: "\n".join(lines) + "\n"} if lines else {}


def _line(text: str) -> str:
    return " ".join(text.split())
