from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from gputax.kubernetes.exec_pipe import EXIT_LOST, exit_code, refusal


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({"status": "Success"}, (0, "")),
        (
            {
                "status": "Failure",
                "reason": "NonZeroExitCode",
                "details": {"causes": [{"reason": "ExitCode", "message": "7"}]},
            },
            (7, ""),
        ),
        ({"status": "Failure", "message": "container not found"}, (EXIT_LOST, "container not found")),
    ],
)
def test_the_last_message_gives_the_exit_code(status: object, expected: tuple[int, str]) -> None:
    assert exit_code(json.dumps(status).encode()) == expected


def test_a_status_that_is_no_json_is_a_lost_program() -> None:
    assert exit_code(b"\xff")[0] == EXIT_LOST


def test_a_refusal_is_told_in_the_server_s_words() -> None:
    answer = SimpleNamespace(status_code=403, read=lambda: b'{"message": "pods \\"p\\" is forbidden"}')
    assert refusal(answer) == 'pods "p" is forbidden'
    assert "502" in refusal(SimpleNamespace(status_code=502, read=lambda: b"<html>"))
