"""A finding of the doctor: what was seen, why it matters and the command that mends it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal

Status = Literal["ok", "warn", "fail"]


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    status: Status
    title: str
    detail: str = ""
    why: str = ""
    """Why it matters; empty if all is well."""
    fix_command: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the finding as `--json` prints it."""
        return dataclasses.asdict(self)


@dataclass(frozen=True)
class Disk:
    """Where models and results will go, and whether they can."""

    models_dir: str
    models_free_mb: float | None
    results_dir: str
    results_problem: str = ""
    """Empty if the results directory can be written."""
