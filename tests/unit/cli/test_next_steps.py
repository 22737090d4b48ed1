"""Commands that messages tell a user to type exist, with their options."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from gputax.cli.verbs import VERBS, app

SOURCE = Path(__file__).parents[3] / "src/gputax"
COMMAND = re.compile(r"gputax ((?:[a-z]+ )?[a-z]+)((?: (?:--[a-z-]+|[A-Za-z0-9{}_./…+-]+))*)")


def named_in_messages() -> set[tuple[str, str]]:
    found = set()
    for path in SOURCE.rglob("*.py"):
        for verbs, rest in COMMAND.findall(path.read_text()):
            found |= {(verbs.split()[0], option) for option in re.findall(r"--[a-z][a-z-]+", f"{verbs} {rest}")}
    return {(verb, option) for verb, option in found if verb in VERBS}


def options_of(command: click.Command) -> set[str]:
    own = {word for each in command.params for word in (*each.opts, *each.secondary_opts)}
    inner = command.commands.values() if isinstance(command, click.Group) else ()
    return own.union(*(options_of(each) for each in inner))


def test_there_are_commands_in_messages() -> None:
    assert {("deploy", "--rerun"), ("doctor", "--env")} <= named_in_messages()


@pytest.mark.parametrize(("verb", "option"), sorted(named_in_messages()))
def test_an_option_that_a_message_names_exists(verb: str, option: str) -> None:
    command = app.get_command(click.Context(app), verb)
    assert command is not None
    assert option in options_of(command) | {"--help"}
