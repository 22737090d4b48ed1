"""The command line as a function: `main(argv)` returns an exit code and turns every failure into one clear message."""

# Only what Python has loaded already, not even __future__: an interrupt during an import must meet main()'s handler.
import os
import sys

import gputax

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType
    from typing import Any

    import click

    from gputax.errors import GputaxError

RETRY_S, MOST_RETRIES = 0.01, 500


def main(argv: "Sequence[str] | None" = None) -> int:
    """Run a command line such as ["run", "--suite", "quick"]; without one, that of this process."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        with _Interrupts():
            if argv is None:  # a caller in Python keeps its streams as they are
                _never_fail_on_output()
            return _run(words)
    except KeyboardInterrupt:
        return _fail(_interrupted(), "--debug" in _own(words))
    except BrokenPipeError:
        # The reader of our output is gone (`| head`): that is not an error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _never_fail_on_output() -> None:
    from gputax.text import never_fails

    never_fails(sys.stdout)
    never_fails(sys.stderr)


def _own(words: list[str]) -> list[str]:
    """Return the arguments before `--`; the rest is the user's program and is not parsed."""
    return words[: words.index("--")] if "--" in words else words


def _run(words: list[str]) -> int:
    import click

    from gputax.cli.verbs import app
    from gputax.errors import GputaxError

    own = _own(words)
    debug = "--debug" in own
    arguments = [word for word in own if word != "--debug"] + words[len(own) :]
    try:
        result = app.main(args=arguments, prog_name="gputax", standalone_mode=False, obj=tuple(words))
        code = result if isinstance(result, int) else 0
        _warn_of_forgotten()
        sys.stdout.flush()
    except GputaxError as error:
        return _fail(error, debug)
    except click.exceptions.Exit as error:
        return error.exit_code
    except SystemExit as error:  # how click and rich answer when the reader of stdout is gone
        raise BrokenPipeError from error
    except click.Abort:
        return _fail(_interrupted(), debug)
    except click.ClickException as error:
        return _fail(_usage(error), debug)
    except BrokenPipeError:
        raise
    except Exception as error:
        unforeseen = GputaxError(
            f"{type(error).__name__}: {error}", next_step="run again with --debug and report the traceback"
        )
        unforeseen.__cause__ = error
        return _fail(unforeseen, debug)
    return code


def _warn_of_forgotten() -> None:
    """Warn, after any verb, of deployments that are idle beyond their limit: one glob (measured: below 1 ms)."""
    from pathlib import Path

    root = Path("results")
    if not any(root.glob("*/deployment/state.json")):
        return
    from gputax.deploy.state import forgotten, now
    from gputax.text import duration

    for deployment, idle_s in forgotten(root, now()):
        print(
            f"Warning: the deployment {deployment.results} has been idle for {duration(idle_s)} "
            f"and may cost money: gputax status --out {deployment.results}, gputax destroy --out {deployment.results}",
            file=sys.stderr,
        )


class _Interrupts:
    """SIGINT and SIGTERM as KeyboardInterrupt, but never inside an import.

    There Python may ignore it (in a callback of the import system: the command would go on) or turn it into another
    error (in `exec` of a dataclass); so it is raised when the import is done. A caller on another thread keeps its
    signals; one on the main thread gets its handlers back.
    """

    def __init__(self) -> None:
        self._before: dict[int, Any] = {}
        self._retries = 0
        self._pending = False

    def __enter__(self) -> None:
        import signal
        import threading

        if threading.current_thread() is not threading.main_thread():
            return
        numbers = [signal.SIGTERM, signal.SIGALRM]
        # A shell's background job ignores SIGINT, and a caller in Python may have a handler: both stay.
        if signal.getsignal(signal.SIGINT) in (signal.default_int_handler, gputax.end_at_once):
            numbers.append(signal.SIGINT)
        self._before = {number: signal.signal(number, self._handle) for number in numbers}

    def __exit__(self, kind: object, *_: object) -> None:
        import signal

        if self._before:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if self._pending and kind is None:  # every retry met another import, and then the command was done
            raise KeyboardInterrupt

    def _handle(self, number: int, frame: "FrameType | None") -> None:
        import signal

        if _importing(frame) and self._retries < MOST_RETRIES:
            self._retries += 1
            self._pending = True
            signal.setitimer(signal.ITIMER_REAL, RETRY_S)
            return
        self._pending = False
        raise KeyboardInterrupt


def _importing(frame: "FrameType | None") -> bool:
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


def _interrupted() -> "GputaxError":
    from gputax.errors import Interrupted

    return Interrupted("interrupted")


def _usage(error: "click.ClickException") -> "GputaxError":
    from gputax.errors import UsageError

    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "gputax"
    return UsageError(error.format_message(), next_step=f"{command} --help")


def _fail(error: "GputaxError", debug: bool) -> int:
    """Write the error as one object: what happened, where, what to do next."""
    if debug:
        import traceback

        traceback.print_exception(error)
    from gputax.text import hanging

    bold, reset = ("\x1b[1;31m", "\x1b[0m") if colour_wanted() else ("", "")
    width = _terminal_width()
    lines = [f"{bold}{hanging('gputax: ', error.what, width)}{reset}"]
    if error.where:
        lines.append(hanging("  where: ", error.where, width))
    if error.next_step:
        lines.append(hanging("  next:  ", error.next_step, width))
    print("\n".join(lines), file=sys.stderr, flush=True)
    return error.exit_code


def _terminal_width() -> int:
    """Return the columns of stderr's terminal; 0 elsewhere: a log is searched by line."""
    if not sys.stderr.isatty():
        return 0
    given = os.environ.get("COLUMNS", "")
    try:
        return int(given) if given.isdigit() else os.get_terminal_size(sys.stderr.fileno()).columns
    except (OSError, ValueError):
        return 0


def colour_wanted() -> bool:
    """Whether stderr is a terminal whose user did not say no."""
    return sys.stderr.isatty() and not os.environ.get("NO_COLOR")
