"""The soak's own judgement: what counts as a leak, and whose end is a loss."""

from __future__ import annotations

import signal

import pytest

from bench.soak import LEAK_KIB, STAYED, Footprint, leaks, parse, unexpected
from bench.tenants import CALL_FAILED, ENDED_WELL, LOST_WORKER, WRONG_ANSWER

BEFORE = Footprint(descriptors=11, threads=3, resident_kib=2300)


@pytest.mark.parametrize(
    ("after", "said"),
    [
        (BEFORE, []),
        (Footprint(10, 2, 2000), []),
        (Footprint(11, 3, 2300 + LEAK_KIB), []),
        (Footprint(11, 3, 2301 + LEAK_KIB), ["1025 KiB more than at first"]),
        (Footprint(12, 5, 2300), ["1 descriptors more than at first", "2 threads more than at first"]),
    ],
)
def test_a_leak_is_what_has_grown(after: Footprint, said: list[str]) -> None:
    assert leaks(BEFORE, after) == said


def test_only_an_end_that_was_not_caused_is_a_loss() -> None:
    fates = {1: ENDED_WELL, 2: LOST_WORKER, 3: -signal.SIGKILL, 4: LOST_WORKER, 5: WRONG_ANSWER, 6: CALL_FAILED}
    allowed = {2: LOST_WORKER, 3: -signal.SIGKILL}
    assert unexpected(fates, allowed) == [
        "tenant 4 lost its worker", "tenant 5 got wrong bytes", "tenant 6 had a call that failed",
    ]  # fmt: skip
    assert unexpected({7: ENDED_WELL}, {7: LOST_WORKER}) == ["tenant 7 ended well"], "who was killed must notice"
    assert unexpected({8: STAYED, 9: 77}, {}) == ["tenant 8 did not end", "tenant 9 ended with 77"]


def test_the_command_line_has_sizes_and_paces() -> None:
    sizes = parse(
        ["--tenants", "5", "--together", "0", "--seconds", "1.5", "--pause-ms", "20", "--kill-every-ms", "300"]
    )
    assert (sizes.tenants, sizes.together, sizes.seconds, sizes.pause_s, sizes.kill_every_s) == (5, 0, 1.5, 0.02, 0.3)
