"""Options are declared once, ten of them in the short help, and every variable has its place."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from gputax.api.variables import variables_named
from gputax.cli.main import main
from gputax.cli.options import Declared, Verb, options, variable_options
from gputax.cli.verbs import GROUPED, VERBS, app
from gputax.plan.options import GROUPS, OPTIONS, OWN_VARIABLES, VARIABLE_OPTIONS, variables_page

REPOSITORY = Path(__file__).parents[3]
MEASURING = ("run", "duet", "share", "doctor")


def command(verb: str) -> click.Command:
    found = app.get_command(click.Context(app), verb)
    assert found is not None
    return found


def commands() -> Iterator[tuple[str, click.Command]]:
    """Every command that runs something: the verbs, and the verbs of `models` and `proxy`."""
    for verb in VERBS:
        found = command(verb)
        inner = found.commands if isinstance(found, click.Group) else {}
        yield from ((f"{verb} {name}", each) for name, each in inner.items()) if inner else ((verb, found),)


COMMANDS = dict(commands())


def words_of(text: str) -> set[str]:
    return set(re.findall(r"^  (?:-h, )?(--[a-z-]+)", text, flags=re.M))


@pytest.mark.parametrize("verb", COMMANDS)
def test_every_option_is_declared(verb: str) -> None:
    plain = {each.name for each in COMMANDS[verb].params if isinstance(each, click.Option)} - {
        each.name for each in COMMANDS[verb].params if isinstance(each, Declared)
    }
    assert plain == {"help_all"}


@pytest.mark.parametrize("verb", COMMANDS)
def test_the_short_help_has_about_ten_options(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*verb.split(), "--help"]) == 0
    text = capsys.readouterr().out
    shown = words_of(text) - {"--help", "--help-all"}
    assert len(shown) <= 12
    declared = {each.opts[0] for each in COMMANDS[verb].params if isinstance(each, Declared)}
    assert ("--help-all" in text) == (shown != declared), "it is named where it shows more"


@pytest.mark.parametrize("verb", COMMANDS)
def test_the_long_help_has_all_of_them_in_known_groups(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*verb.split(), "--help-all"]) == 0
    declared = [each for each in COMMANDS[verb].params if isinstance(each, Declared)]
    assert words_of(capsys.readouterr().out) - {"--help-all"} == {each.opts[0] for each in declared} | {"--help"}
    assert {each.group for each in declared} <= set(GROUPS)


def test_the_list_of_commands_is_grouped(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    headings = [text.index(f"{group}:\n") for group in GROUPED]
    assert headings == sorted(headings)
    assert [*GROUPED] == ["Measure", "Compare", "Share", "Cluster", "Maintain"]


@pytest.mark.parametrize("verb", MEASURING)
def test_verbs_that_measure_take_every_variable_as_an_option(verb: str) -> None:
    assert {f"--{name}" for name in VARIABLE_OPTIONS} <= {each.opts[0] for each in command(verb).params}


def test_every_variable_in_the_sources_is_declared() -> None:
    found: set[str] = set()
    for folder, endings in (("src", {".py"}), ("native", {".c", ".h", ".py"})):
        for path in (REPOSITORY / folder).rglob("*"):
            if path.suffix in endings and "build" not in path.parts:
                found |= set(re.findall(r"\bGPUTAX_[A-Z_]*[A-Z]\b", path.read_text()))
    guards = {name for name in found if name.endswith("_H")}
    options = {each.variable for each in (*OPTIONS.values(), *VARIABLE_OPTIONS.values()) if each.variable}
    assert found - guards == options | set(OWN_VARIABLES)


def test_the_page_of_variables_is_written_from_the_declarations() -> None:
    assert (REPOSITORY / "docs/variables.md").read_text() == variables_page()


@click.command(cls=Verb)
@options()
@variable_options
def probe() -> int:
    """Show what a worker would inherit."""
    click.echo(os.environ.get("GPUTAX_SOFT_KERNEL_US", "unset"))
    return 0


def asked(*words: str, capsys: pytest.CaptureFixture[str]) -> str:
    probe.main(args=list(words), standalone_mode=False)
    return capsys.readouterr().out.strip()


def test_an_option_sets_its_variable_while_the_verb_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("GPUTAX_SOFT_KERNEL_US", raising=False)
    assert asked("--soft-kernel-us", "125", capsys=capsys) == "125"
    assert asked(capsys=capsys) == "unset"
    monkeypatch.setenv("GPUTAX_SOFT_KERNEL_US", "7")
    assert asked(capsys=capsys) == "7"
    assert asked("--soft-kernel-us", "125", capsys=capsys) == "125"
    assert os.environ["GPUTAX_SOFT_KERNEL_US"] == "7"


def test_a_flag_sets_its_variable_to_one(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    @click.command(cls=Verb)
    @variable_options
    def ask() -> int:
        """Show what a worker would inherit."""
        click.echo(os.environ.get("GPUTAX_CUDA_RUNTIME", "unset"))
        return 0

    def seen(*words: str) -> str:
        ask.main(args=list(words), standalone_mode=False)
        return capsys.readouterr().out.strip()

    monkeypatch.delenv("GPUTAX_CUDA_RUNTIME", raising=False)
    assert (seen("--cuda-runtime"), seen()) == ("1", "unset")
    monkeypatch.setenv("GPUTAX_CUDA_RUNTIME", "0")
    assert (seen("--cuda-runtime"), seen()) == ("1", "0")
    assert variables_named({"cuda_runtime": True}) == {"GPUTAX_CUDA_RUNTIME": "1"}


@pytest.mark.parametrize("value", ["fast", "0", "-1", "nan", "inf"])
def test_a_setting_of_the_software_device_is_a_number_above_zero(
    value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "--dry-run", "--soft-kernel-us", value]) == 2
    assert f"--soft-kernel-us {value!r} is not a number above zero" in capsys.readouterr().err
