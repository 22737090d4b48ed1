"""The command line is a function: words in, an exit code out, and every failure is one message."""

from __future__ import annotations

import io
import json
import signal
import sys
import threading

import click
import pytest

from gputax.cli.main import main
from gputax.cli.options import command_text


def test_success_is_zero_and_goes_to_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--dry-run", "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)[0]["scenario"] == "offline"
    assert err == ""


@pytest.mark.parametrize("words", [[], ["--help"], ["-h"], ["run", "--help"], ["--version"]])
def test_help_and_version_are_zero(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 0
    assert "gputax" in capsys.readouterr().out


def test_a_wrong_word_is_two_with_what_and_next(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--no-such"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("gputax: No such option '--no-such'")
    assert "next:  gputax run --help" in err


def test_debug_is_read_before_the_double_dash_only(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--device", "gpux", "--debug"]) == 2
    assert "Traceback" in capsys.readouterr().err
    assert main(["run", "--device", "gpux"]) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_a_result_names_the_words_of_its_own_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["pytest", "elsewhere"])
    assert command_text() == "gputax elsewhere"
    with click.Context(click.Command("duet"), obj=("duet", "bare", "a b")):
        assert command_text() == "gputax duet bare 'a b'"


def test_the_callers_signal_handler_is_given_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    main(["--version"])
    assert signal.getsignal(signal.SIGTERM) is before


def test_it_runs_on_any_thread() -> None:
    codes: list[int] = []
    thread = threading.Thread(target=lambda: codes.append(main(["--version"])))
    thread.start()
    thread.join()
    assert codes == [0]


class Terminal(io.StringIO):
    """A stderr that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_an_error_fits_its_terminal_and_stays_one_line_in_a_log(monkeypatch: pytest.MonkeyPatch) -> None:
    def shown(stream: io.StringIO) -> list[str]:
        monkeypatch.setattr(sys, "stderr", stream)
        assert main(["run", "--workload", "resnet51"]) == 2
        return stream.getvalue().splitlines()

    monkeypatch.setenv("COLUMNS", "50")
    monkeypatch.setenv("NO_COLOR", "1")
    (_, in_log), wrapped = shown(io.StringIO()), shown(Terminal())
    assert len(in_log) > 50
    assert len(wrapped) > 2
    assert max(map(len, wrapped)) <= 50
    assert " ".join(line.strip() for line in wrapped[1:]) == in_log.strip()
