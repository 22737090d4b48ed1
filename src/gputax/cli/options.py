"""What verbs take from the command line."""

from __future__ import annotations

import shlex
import sys

import click


def words_given() -> list[str]:
    """Return the command line of this call behind `gputax`, as it was typed."""
    context = click.get_current_context(silent=True)
    words = context.find_root().obj if context is not None else None
    return list(sys.argv[1:] if words is None else words)


def command_text() -> str:
    """Return the command that a result names as its origin."""
    return shlex.join(["gputax", *words_given()])
