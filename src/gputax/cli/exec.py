"""`gputax exec`: any program of the user's inside an environment, untouched."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import click

from gputax.cli.options import Verb, options, own, variable_options
from gputax.errors import UsageError, unknown_name
from gputax.places import LOCAL_ENVIRONMENTS, local_environment
from gputax.plan.cells import DEVICES, device_named
from gputax.plan.driver import DriverChoice
from gputax.plan.options import declared

EXIT_NOT_EXECUTABLE, EXIT_NOT_FOUND = 126, 127
# What a shell, a service or a scheduler sends to a program it started; the program decides, not we.
FORWARDED = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH, signal.SIGCONT)


@click.command(cls=Verb, context_settings={"ignore_unknown_options": True})
@options(
    own("env", "Where the program runs.", "bare+proxy", short=True, show_default=True, key="environment"),
    declared("device", help="auto, cuda or software; fails instead of falling back to another device."),
    declared("libcuda", help="Another driver library, as a file or its directory.", short=True),
)
@variable_options
@click.argument("command", nargs=-1, type=click.UNPROCESSED, required=True, metavar="-- COMMAND...")
def exec_(environment: str, device: str, libcuda: str, command: tuple[str, ...]) -> int:
    """Run any program of yours in an environment: a driver-API program behind the GPU proxy, for example.

    Its stdin, stdout, stderr, exit code and signals are its own. A proxy that is started for it ends with it.
    """
    if environment not in LOCAL_ENVIRONMENTS:
        raise unknown_name("environment of this machine", environment, LOCAL_ENVIRONMENTS)
    device_named(device, (name for name in DEVICES if name != "cpu"))
    if command[0].startswith("-"):
        raise UsageError(f"{command[0]!r} is not a command", next_step="gputax exec [OPTIONS] -- COMMAND...")
    path = str(Path(libcuda).expanduser().resolve()) if libcuda else ""
    place = local_environment(environment, DriverChoice(device, path))
    with place.surroundings() as variables:
        if place.note:
            click.echo(f"gputax: {place.note}", err=True)
        code = run_program(command, variables)
    if code < 0:
        _die_by(-code)
    return code


def run_program(command: tuple[str, ...], variables: Mapping[str, str]) -> int:
    """Run it on our own terminal and pipes; returns its exit code, negative for the signal that ended it."""
    try:
        with _signals_forwarded() as forwarder:
            process = subprocess.Popen(command, env=dict(variables))
            forwarder.to(process.pid)
            return process.wait()
    except FileNotFoundError:
        click.echo(f"gputax: {command[0]}: command not found", err=True)
        return EXIT_NOT_FOUND
    except PermissionError as error:
        click.echo(f"gputax: {command[0]}: {error.strerror}", err=True)
        return EXIT_NOT_EXECUTABLE


class SignalForwarder:
    """Forwards signals to a process; those that arrive before its start are queued."""

    def __init__(self) -> None:
        self._pid = 0
        self._early: list[int] = []

    def to(self, pid: int) -> None:
        """Set the process and send it the queued signals."""
        self._pid = pid
        while self._early:
            self.forward(self._early.pop(0), None)

    def forward(self, number: int, frame: FrameType | None) -> None:
        """Forward one signal."""
        if not self._pid:
            self._early.append(number)
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, number)

    def from_terminal(self, number: int, frame: FrameType | None) -> None:
        """Forward what did not reach the program itself: in the foreground of a terminal the whole group has got it."""
        if not in_foreground():
            self.forward(number, frame)


@contextmanager
def _signals_forwarded() -> Iterator[SignalForwarder]:
    forwarder = SignalForwarder()
    before = {number: signal.signal(number, forwarder.forward) for number in FORWARDED}
    before |= {number: signal.signal(number, forwarder.from_terminal) for number in (signal.SIGINT, signal.SIGQUIT)}
    try:
        yield forwarder
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def in_foreground() -> bool:
    """Whether Ctrl-C on our terminal, if we have one, reaches our whole process group."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)


def _die_by(number: int) -> None:
    """End as the program ended, so that whoever waits for us sees the same."""
    sys.stdout.flush()
    sys.stderr.flush()
    with contextlib.suppress(OSError, ValueError):
        signal.signal(number, signal.SIG_DFL)
    # A dump of our own memory would only be in the way of the program's.
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.kill(os.getpid(), number)
