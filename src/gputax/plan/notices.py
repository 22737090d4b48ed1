"""A warning is data that travels with the number it is about."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Notice:
    """One thing that a reader of a number must know; the text stands on its own."""

    code: str
    text: str
    value: float | None = None
    """The measured size of it, in the unit that the text names; None where there is nothing to measure."""

    def to_dict(self) -> dict[str, Any]:
        """Return the notice as it is stored and as it travels over the worker's pipe."""
        return dataclasses.asdict(self)

    @staticmethod
    def from_dict(data: dict[str, Any]) -> Notice:
        """Rebuild a notice; keys that a newer version may have added are ignored."""
        value = data.get("value")
        return Notice(str(data["code"]), str(data["text"]), None if value is None else float(value))
