"""Signals that `gputax exec` hands on: none is lost, not even one that comes before the program is known."""

from __future__ import annotations

import signal
import subprocess

from gputax.cli.exec import SignalForwarder


def test_a_signal_before_the_program_is_known_reaches_it_afterwards() -> None:
    forwarder = SignalForwarder()
    forwarder.forward(signal.SIGTERM, None)
    with subprocess.Popen(["sleep", "30"]) as process:
        forwarder.to(process.pid)
        assert process.wait(timeout=10) == -signal.SIGTERM


def test_a_program_that_has_ended_is_no_error() -> None:
    with subprocess.Popen(["true"]) as process:
        process.wait()
    forwarder = SignalForwarder()
    forwarder.to(process.pid)
    forwarder.forward(signal.SIGTERM, None)
