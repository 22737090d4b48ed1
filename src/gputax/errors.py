"""Every way gputax can fail, as one tree.

GputaxError            1    what happened, where, what to do next
├── UsageError         2    the command line is invalid
├── PreflightError     3    a requirement is missing; nothing was measured
├── CellError          4    one cell failed; the others are kept
│   ├── EngineError    4    the workload raised during the measurement
│   └── WorkerError    4    the worker died, hung or broke the protocol
├── ResultsError       5    results on disk or from LoadGen are not valid
└── Interrupted      130    stopped by the user or the system
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any


class GputaxError(Exception):
    """What happened, where, and what to do next."""

    exit_code = 1

    def __init__(self, what: str, *, where: str = "", next_step: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.next_step = next_step

    def to_dict(self) -> dict[str, Any]:
        """Return the error as sent over the worker's pipe and printed by `--json`."""
        return {
            "kind": type(self).__name__,
            "what": self.what,
            "where": self.where,
            "next": self.next_step,
            "exit_code": self.exit_code,
        }


class UsageError(GputaxError):
    """The command line, a suite or a name in it is invalid."""

    exit_code = 2


class PreflightError(GputaxError):
    """A requirement of the run is missing; nothing was measured."""

    exit_code = 3


class CellError(GputaxError):
    """One cell could not be measured."""

    exit_code = 4


class EngineError(CellError):
    """The engine raised an exception while the workload ran."""


class WorkerError(CellError):
    """The worker process died, hung or broke the protocol."""


class ResultsError(GputaxError):
    """Results are missing, unreadable or not valid."""

    exit_code = 5


class Interrupted(GputaxError):
    """SIGINT or SIGTERM arrived; completed measurements are kept."""

    exit_code = 130


_KINDS: dict[str, type[GputaxError]] = {
    kind.__name__: kind
    for kind in (
        GputaxError,
        UsageError,
        PreflightError,
        CellError,
        EngineError,
        WorkerError,
        ResultsError,
        Interrupted,
    )
}


def error_from_dict(data: dict[str, Any]) -> GputaxError:
    """Rebuild the error that `to_dict` described; an unknown kind becomes the root."""
    kind = _KINDS.get(str(data.get("kind")), GputaxError)
    return kind(
        str(data.get("what", "unknown error")),
        where=str(data.get("where", "")),
        next_step=str(data.get("next", "")),
    )


def unknown_name(
    kind: str, name: str, known: Iterable[str], synonyms: Mapping[str, str] = MappingProxyType({})
) -> UsageError:
    """Return the error for a name that is not in `known`, with a suggestion if one is close."""
    names = list(known)
    meant = _meant(name.lower(), names, synonyms)
    hint = f"did you mean {meant!r}? " if meant else ""
    return UsageError(f"unknown {kind} {name!r}", next_step=f"{hint}known: {', '.join(names)}")


def _meant(name: str, names: list[str], synonyms: Mapping[str, str]) -> str:
    """Return a synonym, a completion or a near spelling of `name`; no hint is better than a wrong one."""
    if name in synonyms:
        return synonyms[name]
    longer = [each for each in names if name and each.lower().startswith(name)]
    near = longer or difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    if near:
        return near[0]
    # `kubernets` is nearer to the word that people use than to ours; a synonym is long, so it must be near indeed.
    misspelt = difflib.get_close_matches(name, synonyms, n=1, cutoff=0.8)
    return synonyms[misspelt[0]] if misspelt else ""
