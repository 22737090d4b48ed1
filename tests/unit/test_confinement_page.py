"""The page on security lists the system calls of a worker as the source does, call by call with the reason."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
ROW = re.compile(
    r'(?:ALLOW|ALLOW_IF)\((?P<call>\w+),[^"]*"(?P<why>[^"]*)"\)'
    r'|\{\.number = SYS_(?P<answered>\w+), \.error = (?P<error>\w+), \.why = "(?P<reason>[^"]*)"\}'
)


def rows_of(table: str) -> list[str]:
    """The rows of a table of the source, as the page has them."""
    source = (REPOSITORY / "native/proxy/allowed.c").read_text()
    body = source.partition(f"static const struct call_row {table}[]")[2].partition("\n};")[0]
    found = [
        f"| `{row['call']}` | {row['why']} |"
        if row["call"]
        else f"| `{row['answered']}` | answers {row['error']}: {row['reason']} |"
        for row in ROW.finditer(body)
    ]
    assert len(found) == len(re.findall(r"^    (?:ALLOW|\{)", body, re.M)), "a row that this test cannot read"
    return found


@pytest.mark.parametrize(("table", "least"), [("SOFTWARE", 30), ("LINKED", 2), ("DRIVER", 30)])
def test_every_call_of_the_list_is_on_the_page_with_its_reason(table: str, least: int) -> None:
    rows = rows_of(table)
    assert len(rows) >= least
    assert "\n".join(rows) in (REPOSITORY / "docs/security.md").read_text()


def test_what_a_confined_worker_must_not_have_is_in_neither_list() -> None:
    allowed = "".join(rows_of("SOFTWARE") + rows_of("LINKED") + rows_of("DRIVER"))
    for call in (
        "execve",
        "execveat",
        "fork",
        "vfork",
        "ptrace",
        "kill",
        "socket",
        "connect",
        "bind",
        "process_vm_readv",
    ):
        assert f"`{call}`" not in allowed
    for call in ("openat", "open", "ioctl", "read"):
        assert f"`{call}`" not in "".join(rows_of("SOFTWARE"))


def test_every_measure_is_explained_on_the_page() -> None:
    names = re.findall(r'MEASURE\(\w+, "(\w+)"\)', (REPOSITORY / "native/proxy/confine.h").read_text())
    page = (REPOSITORY / "docs/security.md").read_text()
    assert len(names) == 12
    assert [name for name in names if f"\n| `{name}` |" not in page] == []
