"""Show what a verb has just measured, as `gputax report --format table` shows it later."""

from __future__ import annotations

import sys
from pathlib import Path


def show_results(directory: Path) -> None:
    """Write one screen of results from their directory, and where the rest is."""
    from gputax.errors import ResultsError
    from gputax.report.exporters.console_text import Screen, write_console
    from gputax.report.sources import read_sources
    from gputax.report.story import build_report

    screen = Screen(sys.stdout)
    try:
        write_console(build_report(read_sources([directory])), sys.stdout, "screen")
    except ResultsError as error:  # nothing was measured: the verb's exit code says what that means
        screen.say(error.what)
    saved, details = f"Saved: {directory}", f"Details: gputax report {directory}"
    if len(saved) + len(details) + 3 <= screen.width:
        screen.say(f"{saved} · {details}")
    else:
        screen.say(saved)
        screen.say(details)
