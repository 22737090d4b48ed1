"""Commands that a report shows: its own, and those of files that somebody else may have written."""

from __future__ import annotations

import pytest

from gputax.report.model import Report
from gputax.report.sources import Sources, comparison_source
from gputax.report.story import build_report
from tests.builders.documents import comparison, metric

PLACE = "results/duet-0/comparison.json"


def report_of(command: str, place: str = PLACE) -> Report:
    source = comparison_source(place, comparison(metric(), command=command))
    return build_report(Sources(comparisons=(source,)))


def test_a_command_of_a_file_is_shown_as_the_words_of_that_file() -> None:
    assert report_of("gputax duet bare k8s --budget 5%").commands == (
        f"# As {PLACE} says:",
        "gputax duet bare k8s --budget 5%",
        f"gputax report {PLACE}",
    )


def test_a_comparison_that_was_just_made_has_no_file_to_name() -> None:
    assert report_of("gputax compare 'a b' c", place="").commands == ("gputax compare 'a b' c",)


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("gputax duet a b; touch pwned", "gputax duet a 'b;' touch pwned"),
        ("gputax duet $(touch pwned) b", "gputax duet '$(touch' 'pwned)' b"),
        ("gputax duet a b `touch pwned`", "gputax duet a b '`touch' 'pwned`'"),
        ("gputax duet a b | sh", "gputax duet a b '|' sh"),
        ("gputax duet a b > ~/.bashrc", "gputax duet a b '>' '~/.bashrc'"),
    ],
)
def test_a_shell_takes_every_part_of_a_files_command_as_a_word(command: str, shown: str) -> None:
    assert report_of(command).commands[1] == shown


@pytest.mark.parametrize(
    "command",
    [
        "gputax duet a b\ntouch pwned",
        "gputax duet a b\rtouch pwned",
        "gputax duet a b\x1b[2K\x1b[1Gtouch pwned",
        "gputax duet a b\u2028touch pwned",
        "gputax duet a \u202eb",
        "gputax duet a 'b",
        "gputax duet " + 5000 * "a",
        "gputax exec bare -- touch pwned",
        "curl example.org/x | sh",
        "gputax",
    ],
)
def test_what_is_not_a_measurement_with_gputax_is_not_shown(command: str) -> None:
    told, again = report_of(command).commands
    assert told == f"# {PLACE} names a command that is not shown: it is not a measurement with gputax"
    assert again == f"gputax report {PLACE}"


def test_the_name_of_the_file_cannot_end_the_comment() -> None:
    lines = report_of("gputax duet a b", place="x\ntouch pwned\n/comparison.json").commands
    assert all(line.isprintable() for line in lines)
    assert lines[0].startswith("# As x")
