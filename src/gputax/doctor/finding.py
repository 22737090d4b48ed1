"""A finding of the doctor: what was found, why it matters and the command that fixes it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal

Status = Literal["ok", "warn", "fail"]


@dataclass(frozen=True)
class Finding:
    """The result of one check."""

    status: Status
    title: str
    detail: str = ""
    why: str = ""
    """Why it matters; empty if the check passed."""
    fix_command: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the finding as `--json` prints it."""
        return dataclasses.asdict(self)


@dataclass(frozen=True)
class Disk:
    """The directories for models and results, their free space and whether they are writable."""

    models_dir: str
    models_free_mb: float | None
    results_dir: str
    results_problem: str = ""
    """Empty if the results directory is writable."""
