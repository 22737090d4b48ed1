"""A path given to `compare`, read once: its bytes as text or JSON, or the reason why they are neither."""

from __future__ import annotations

import re
from functools import cached_property
from pathlib import Path
from typing import Any

from gputax.errors import ResultsError
from gputax.results.reading import parse_json, refuse_no_text
from gputax.text import printable

# A pod's whole log is some MB; anything larger is a model or a disk image.
LARGEST_BYTES = 256 * 1024 * 1024
# Line prefixes of kubectl --prefix, kubectl --timestamps, docker compose and a node's log files.
_PREFIXES = re.compile(
    r"^(?:\[pod/[^\]]{1,300}\] ?)?"
    r"(?:\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:?\d\d) ?)?"
    r"(?:std(?:out|err) [FP] )?"
)


class Place:
    """A file or a directory with its content."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = printable(str(path), 4096)
        try:
            path.stat()
        except (OSError, ValueError) as error:
            raise ResultsError(
                "no such file or directory" if isinstance(error, FileNotFoundError) else f"cannot be read: {error}",
                where=self.name,
                next_step="name a result directory or file",
            ) from error
        self.is_directory = path.is_dir()

    @cached_property
    def text(self) -> str:
        """The file's text, or an error for an empty, binary or too large one."""
        try:
            if not self.path.is_file():
                raise ResultsError("neither a file nor a directory", where=self.name)
            if self.path.stat().st_size > LARGEST_BYTES:
                raise ResultsError(f"larger than {LARGEST_BYTES >> 20} MB: not a result file", where=self.name)
            content = self.path.read_bytes()
        except OSError as error:
            raise ResultsError(f"cannot be read: {error.strerror or error}", where=self.name) from error
        refuse_no_text(content, self.name)
        return content.decode("utf-8-sig", errors="replace")

    @cached_property
    def plain_text(self) -> str:
        """The text without the line prefixes of log collectors."""
        return "\n".join(without_prefix(line) for line in self.text.splitlines())

    @cached_property
    def data(self) -> Any:
        """The file as JSON; None if it does not start like a JSON document."""
        if not self.text.lstrip().startswith("{"):
            return None
        return parse_json(self.text, self.name)


def without_prefix(line: str) -> str:
    """Return a log line as the program wrote it."""
    return _PREFIXES.sub("", line, count=1)
