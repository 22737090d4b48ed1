from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from gputax.kubernetes.exec_pipe import EXIT_LOST, EXIT_REFUSED, exit_code, refusal, words


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


def test_without_a_kubeconfig_it_says_so_and_ends(tmp_path: Path) -> None:
    command = words("", "gputax", "p", ["true"])
    assert command[0] == sys.executable
    done = subprocess.run(
        command, env={**os.environ, "KUBECONFIG": str(tmp_path / "none")}, capture_output=True, text=True, timeout=30
    )
    assert done.returncode == EXIT_REFUSED
    assert "there is no kubeconfig" in done.stderr


def test_a_server_that_is_not_there_is_no_traceback(tmp_path: Path) -> None:
    config = {
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:9"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": {}}],
        "current-context": "x",
    }
    (tmp_path / "config").write_text(json.dumps(config))
    done = subprocess.run(
        words("", "gputax", "p", ["true"]),
        env={**os.environ, "KUBECONFIG": str(tmp_path / "config")},
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.returncode == EXIT_REFUSED
    assert "the cluster cannot be reached" in done.stderr
    assert "Traceback" not in done.stderr
