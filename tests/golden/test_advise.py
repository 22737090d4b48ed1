"""The whole output on the published table, word for word."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gputax.cli.advise import advise

GOLDEN = Path(__file__).parent


@pytest.mark.parametrize(
    ("file", "words"),
    [
        ("advise_a100_nos.txt", ["published:a100-nos", "--slo", "mean=200ms", "--price", "3.67", "--currency", "USD"]),
        ("advise_a100_nos_held_out.txt", ["--published", "a100-nos", "--slo", "mean=300ms", "--fit", "1,3"]),
        ("advise_a100_nos_rate.txt", ["published:a100-nos", "--slo", "mean=400ms", "--rate", "2"]),
        ("advise_a100_nos_up_to.txt", ["published:a100-nos", "--slo", "mean=400ms", "--up-to", "14"]),
    ],
)
def test_the_whole_output(
    file: str, words: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    advise.main(args=words, prog_name="gputax advise", standalone_mode=False)
    text = "\n".join(line.rstrip() for line in capsys.readouterr().out.splitlines()) + "\n"
    if os.environ.get("GPUTAX_WRITE_GOLDEN"):  # by hand, and then read what has changed
        (GOLDEN / file).write_text(text)
    assert text == (GOLDEN / file).read_text()
