"""Options that are environment variables: set for the workers that one call starts."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from gputax.errors import unknown_name
from gputax.plan.options import VARIABLE_OPTIONS


@contextmanager
def variables_set(values: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables such as GPUTAX_SOFT_KERNEL_US for workers started inside this context."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def variables_named(names: Mapping[str, object]) -> dict[str, str]:
    """Return the environment variables for options such as {"soft_kernel_us": 125}; docs/variables.md lists them."""
    known = {option.keyword: option.variable for option in VARIABLE_OPTIONS.values()}
    for name in names:
        if name not in known:
            raise unknown_name("option", name, known)
    return {known[name]: setting(value) for name, value in names.items()}


def setting(value: object) -> str:
    """Return the text of a variable; a flag is 1 or 0."""
    return str(int(value)) if isinstance(value, bool) else str(value)
