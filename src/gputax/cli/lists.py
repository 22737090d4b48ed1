"""Parse the comma lists and the numbers of the command line."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, TypeVar

import click

from gputax.errors import UsageError, unknown_name


def names(text: str, kind: str, known: Iterable[str]) -> tuple[str, ...]:
    """Parse `a,b`; each must be known, and none may come twice."""
    known = tuple(known)
    values = tuple(part.strip() for part in text.split(",") if part.strip())
    if not values:
        raise UsageError(f"--{kind} names nothing", next_step=f"known: {', '.join(known)}")
    for value in values:
        if value not in known:
            raise unknown_name(kind, value, known)
    return _once(values, kind)


def counts(text: str, option: str, example: str = "1,8,32") -> tuple[int, ...]:
    """Parse `1,8,32`: whole numbers above zero, none twice."""
    try:
        values = tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise UsageError(
            f"--{option} {text!r} is not a list of whole numbers", next_step=f"e.g. --{option} {example}"
        ) from error
    if any(value < 1 for value in values):
        raise UsageError(f"--{option} {text!r} holds a number below 1", next_step=f"e.g. --{option} {example}")
    return _once(values, option)


class AtLeast(click.FloatRange):
    """A number from a least one on; neither NaN, which no range excludes, nor infinity, which no load reaches."""

    def __init__(self, least: float) -> None:
        super().__init__(min=least)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Parse and check it."""
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is no finite number.", param, ctx)
        return number


T = TypeVar("T")


def _once(values: tuple[T, ...], kind: str) -> tuple[T, ...]:
    if len(set(values)) != len(values):
        raise UsageError(f"--{kind} names {values!r}: each may come once")
    return values
