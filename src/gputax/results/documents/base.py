"""Common parts of the documents on disk: strictness, warnings and failures."""

from __future__ import annotations

from collections.abc import Iterable

from pydantic import BaseModel, ConfigDict

from gputax.plan.notices import Notice

DISTURBED = "why the machine was not quiet: each disturbance with its limit; empty if none was beyond it"


class Document(BaseModel):
    """Frozen, and strict about keys: a misspelt key in a file is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class WarningRecord(Document):
    """A warning that travels with its number."""

    code: str
    text: str
    value: float | None = None

    @classmethod
    def of(cls, notice: Notice) -> WarningRecord:
        """Return a notice in its stored form."""
        return cls(code=notice.code, text=notice.text, value=notice.value)

    @property
    def notice(self) -> Notice:
        """The warning as a notice."""
        return Notice(self.code, self.text, self.value)


def with_notices(before: tuple[WarningRecord, ...], notices: Iterable[Notice]) -> tuple[WarningRecord, ...]:
    """Return the warnings with these notices added, each once."""
    return tuple(dict.fromkeys((*before, *map(WarningRecord.of, notices))))


class Failure(Document):
    """A cell that could not be measured, and why."""

    cell: str
    kind: str
    what: str
    where: str = ""
    next: str = ""
