"""Read the results that a command line names, `FILE` or `k8s=FILE`; what cannot be read is set aside with a reason."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from gputax.errors import ResultsError, unknown_name
from gputax.places import ENVIRONMENTS
from gputax.plan.cells import StrPath
from gputax.plan.environment import environment_in
from gputax.plan.notices import Notice
from gputax.results.importers.detect import format_of, read_source
from gputax.results.importers.place import Place
from gputax.results.importers.source import Source
from gputax.text import printable


@dataclass(frozen=True)
class Misfit:
    """A result that is not compared."""

    name: str
    error: ResultsError

    @property
    def notice(self) -> Notice:
        """Why, as a warning."""
        where = f" ({self.error.where})" if self.error.where and self.name not in self.error.where else ""
        return Notice("skipped-file", f"{self.name} is skipped: {self.error.what}{where}")


def named_path(word: StrPath) -> tuple[str, Path]:
    """Return the environment ("" if not given) and the path of `FILE` or `k8s=FILE`."""
    name, equals, path = str(word).partition("=")
    if not equals or os.sep in name or Path(word).exists():
        return "", Path(word)
    environment = environment_in(name)
    if not environment:
        raise unknown_name("environment", name, ENVIRONMENTS)
    return environment, Path(path)


def is_foreign(word: StrPath) -> bool:
    """Whether this is a result of another tool, or a log: something to compare, and not a document of ours."""
    try:
        found = format_of(Place(named_path(word)[1]))
    except ResultsError:
        return False
    return found not in (None, "gputax")


def read_given(words: Iterable[StrPath]) -> tuple[list[Source], list[Misfit]]:
    """Read every result that can be read, in their order, and return the others with the reason."""
    sources: list[Source] = []
    misfits: list[Misfit] = []
    for environment, path in [named_path(word) for word in words]:
        try:
            sources.append(read_source(path, environment))
        except ResultsError as error:
            misfits.append(Misfit(printable(str(path)), error))
    return sources, misfits
