"""Turn the declared options into click's, group them in the help, and parse what click cannot."""

from __future__ import annotations

import dataclasses
import math
import re
import shlex
import sys
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from typing import Any, TypeVar

import click

from gputax.errors import UsageError, unknown_name
from gputax.plan.cells import absolute
from gputax.plan.language_models import is_language_model, with_parameters
from gputax.plan.options import (
    GROUPS,
    MODEL_OPTIONS,
    OUTPUT,
    PLACE_OPTIONS,
    PROGRAM_OPTIONS,
    SERVER_OPTIONS,
    VARIABLE_OPTIONS,
    EnvironmentOptions,
    Option,
    declared,
)
from gputax.plan.own_model import OwnModel
from gputax.plan.own_program import OwnProgram
from gputax.plan.servers import is_server, with_options
from gputax.text import printable

T = TypeVar("T")
FEW_OPTIONS = 10
CONTROLS = {"Cc", "Zl", "Zp"}
_UNITS_S = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


class Declared(click.Option):
    """A click option that knows its group and whether the short help shows it."""

    def __init__(self, option: Option) -> None:
        words = [f"--{option.name}" + (f"/--{option.negation}" if option.negation else ""), option.keyword]
        super().__init__(
            words,
            default=None if option.multiple else option.default,
            help=option.help + (f" [env: {option.variable}]" if option.variable else ""),
            type=_type(option),
            is_flag=option.value_type is bool or None,
            multiple=option.multiple,
            metavar=option.metavar or ("N" if option.value_type in (int, float) else None),
            show_default=option.show_default,
            envvar=option.variable or None,
            shell_complete=complete_environment if option.name == "env" else None,
        )
        self.group = option.group
        self.short = option.short


def complete_environment(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Complete the name of an environment, for the shell."""
    from gputax.places import ENVIRONMENTS

    return [name for name in ENVIRONMENTS if name.startswith(incomplete)]


def _type(option: Option) -> click.ParamType[Any] | None:
    if option.choices:
        return click.Choice(option.choices)
    if option.value_type is int:
        return click.IntRange(_whole(option.least), _whole(option.most))
    if option.value_type is float:
        return AtLeast(option.least or 0.0)
    return None if option.value_type is bool else OneLine()


def _whole(number: float | None) -> int | None:
    return None if number is None else int(number)


class OneLine(click.types.StringParamType):
    """A text without line breaks and other control characters: options end up in commands that we write down."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Check it; the message shows the text with these characters replaced."""
        text = super().convert(value, param, ctx)
        if any(unicodedata.category(character) in CONTROLS for character in text):
            self.fail(f"'{printable(text)}' contains a line break or another control character.", param, ctx)
        return text


class AtLeast(click.FloatRange):
    """A number from a least one on; neither NaN, which no range excludes, nor infinity, which no load reaches."""

    def __init__(self, least: float) -> None:
        super().__init__(min=least)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Parse and check it."""
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return number


class Verb(click.Command):
    """A command whose `--help` shows at most a dozen options and whose `--help-all` shows all of them, in groups."""

    def __init__(self, *words: Any, **more: Any) -> None:
        super().__init__(*words, **more)
        self.params.append(
            click.Option(
                ["--help-all"], is_flag=True, expose_value=False, is_eager=True, callback=_show_all,
                hidden=not self._hidden(), help="Show all options, in groups.",
            )
        )  # fmt: skip

    def _hidden(self) -> list[click.Parameter]:
        """Return what only `--help-all` shows; a verb with few options has nothing to hide."""
        own = [each for each in self.params if isinstance(each, Declared)]
        return [each for each in own if not each.short] if len(own) > FEW_OPTIONS else []

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options of the short help, or all of them by group."""
        if not ctx.meta.get("gputax.help-all"):
            hidden = self._hidden()
            _write_group(ctx, formatter, "Options", (each for each in self.get_params(ctx) if each not in hidden))
            return
        groups: dict[str, list[click.Parameter]] = {group: [] for group in (*GROUPS, "Help")}
        for each in self.get_params(ctx):
            groups[each.group if isinstance(each, Declared) else "Help"].append(each)
        for group, params in groups.items():
            _write_group(ctx, formatter, group, params)


def _write_group(
    ctx: click.Context, formatter: click.HelpFormatter, title: str, params: Iterable[click.Parameter]
) -> None:
    named = (each for each in params if isinstance(each, click.Option))
    records = [record for each in named if (record := each.get_help_record(ctx)) is not None]
    if records:
        with formatter.section(title):
            formatter.write_dl(records)


def _show_all(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        ctx.meta["gputax.help-all"] = True
        click.echo(ctx.get_help(), color=ctx.color)
        ctx.exit()


def options(*declared: Option) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add declared options to a verb."""

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(declared):
            params: list[click.Parameter] = command.__dict__.setdefault("__click_params__", [])
            params.append(Declared(option))
        return command

    return add


def place_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of a place, as one `options` for the verb; CPUs not named are the threads, if those are."""

    @wraps(command)
    def wrapped(*words: Any, **chosen: Any) -> Any:
        given = {name: chosen.pop(option.keyword) for name, option in PLACE_OPTIONS.items()}
        place = EnvironmentOptions(**given)
        if not place.cpus and chosen.get("threads"):
            place = dataclasses.replace(place, cpus=chosen["threads"])
        return command(*words, options=place, **chosen)

    return options(*PLACE_OPTIONS.values())(wrapped)


def model_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of a user's own model, as one `own` for the verb; a workload beside it is refused."""
    shared = [declared(name) for name in MODEL_OPTIONS]

    @wraps(command)
    def wrapped(*words: Any, **chosen: Any) -> Any:
        file, *rest = (chosen.pop(option.keyword) for option in shared)
        return command(*words, own=_own_model(file, *rest), **chosen)

    return options(*shared)(wrapped)


def _own_model(file: str, shapes: tuple[str, ...], ranges: tuple[str, ...], inputs: str) -> OwnModel:
    if not file:
        if shapes or ranges or inputs:
            option = "shape" if shapes else "input" if ranges else "inputs"
            raise UsageError(
                f"--{option} is for a model of yours", next_step="add --model FILE.onnx or PACKAGE.MODULE:FACTORY"
            )
        return OwnModel()
    if was_given("workload"):
        raise UsageError("--model and --workload both say what to run", next_step="use one of them")
    from gputax.api import own_model

    return own_model(file, shapes=shapes, ranges=ranges, inputs=inputs)


def server_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add what a server of language models is asked; it becomes part of the engine, so that a result names it."""
    shared = [declared(name) for name in SERVER_OPTIONS]

    @wraps(command)
    def wrapped(*words: Any, **chosen: Any) -> Any:
        given = {each.keyword: value for each in shared if (value := chosen.pop(each.keyword))}
        if "prompts" in given:
            given["prompts"] = absolute(given["prompts"])
        for name in ("engine", "engine_b"):
            if given and chosen.get(name):
                chosen[name] = with_options(chosen[name], given)
        if given and not chosen.get("engine"):
            option = next(iter(given)).replace("_", "-")
            raise UsageError(f"--{option} is for a server of language models", next_step="add --engine openai:URL")
        if is_server(chosen.get("engine") or "") and "workload" in chosen and was_given("workload"):
            raise UsageError("a server decides what it runs", next_step="drop --workload; name its model: ,model=NAME")
        return command(*words, **chosen)

    return options(*shared)(wrapped)


def program_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `-- COMMAND` and its options, as one `program` for the verb; what says what else to run is refused."""
    shared = [declared(name) for name in PROGRAM_OPTIONS]

    @wraps(command)
    def wrapped(*words: Any, **chosen: Any) -> Any:
        unit, by_process = (chosen.pop(option.keyword) for option in shared)
        program = _own_program(chosen.pop("program_words"), unit or "", by_process, chosen["stall_timeout"])
        return command(*words, program=program, **chosen)

    argument = click.argument("program_words", nargs=-1, type=click.UNPROCESSED, metavar="[-- COMMAND...]")
    return argument(options(*shared)(wrapped))


# They say what runs, or how a model does.
NOT_WITH_A_PROGRAM = (
    "workload", "model", "engine", "engine_b", "weights", "dataset", "precision", "batch", "scenario", "like",
)  # fmt: skip


def _own_program(words: tuple[str, ...], unit: str, by_process: bool, stall_timeout_s: float) -> OwnProgram:
    given = words_given()
    behind = tuple(given[given.index("--") + 1 :]) if "--" in given else ()
    if words != behind:
        raise UsageError(f"unexpected argument {words[0]!r}", next_step="a program of yours comes behind --")
    if not words:
        if unit or by_process:
            option = "unit" if unit else "repeat-by-process"
            raise UsageError(f"--{option} is for a program of yours", next_step="add -- COMMAND")
        if "--" in given:
            raise UsageError("-- is not followed by a command", next_step="e.g. gputax run -- ./benchmark")
        return OwnProgram()
    for name in NOT_WITH_A_PROGRAM:
        if name in click.get_current_context().params and was_given(name):
            raise UsageError(f"--{name.replace('_', '-')} does not apply to a program of yours", next_step="drop it")
    if unit and by_process:
        raise UsageError("--unit is for printed latencies; --repeat-by-process reads none", next_step="use one of them")
    # Less than the coordinator waits: the engine knows more about what went wrong.
    return OwnProgram(words, unit, by_process, 0.8 * stall_timeout_s)


def was_given(name: str) -> bool:
    """Whether the command line or a variable set the option."""
    return click.get_current_context().get_parameter_source(name) is not click.core.ParameterSource.DEFAULT


def variable_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that set environment variables while the verb runs."""

    @wraps(command)
    def wrapped(*words: Any, **chosen: Any) -> Any:
        from gputax.api.variables import setting, variables_set

        given = {each: chosen.pop(each.keyword) for each in VARIABLE_OPTIONS.values()}
        context = click.get_current_context()
        values = {}
        for option, value in given.items():
            # What the environment says is left as it is: whoever reads the variable checks it.
            if context.get_parameter_source(option.keyword) is click.core.ParameterSource.COMMANDLINE:
                values[option.variable] = _checked(option, setting(value))
        with variables_set(values):
            return command(*words, **chosen)

    return options(*VARIABLE_OPTIONS.values())(wrapped)


def _checked(option: Option, value: str) -> str:
    if option.least is None:
        return value
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not option.least < number < math.inf:
        raise UsageError(f"--{option.name} {value!r} is not a number above zero", next_step=f"e.g. --{option.name} 125")
    return value


def own(name: str, help_text: str, default: Any = "", **more: Any) -> Option:
    """Declare an option that only one verb has."""
    return Option(name, help_text, default, **more)


def as_json(help_text: str) -> Option:
    """Return `--json` with the words of one verb."""
    return Option("json", help_text, False, OUTPUT, short=True, key="as_json")


def names(text: str, kind: str, known: Iterable[str], synonyms: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """Parse `a,b`; each must be known, and none may come twice."""
    known = tuple(known)
    values = with_parameters(listed(text, kind, f"known: {', '.join(known)}"))
    for value in values:
        if value not in known and not is_language_model(value):  # its parameters are checked with the plan
            raise unknown_name(kind, value, known, synonyms or {})
    return once(values, kind)


def listed(text: str, kind: str, next_step: str = "") -> tuple[str, ...]:
    """Parse `a,b`; something must be there."""
    values = tuple(part.strip() for part in text.split(",") if part.strip())
    if not values:
        raise UsageError(f"--{kind} is empty", next_step=next_step)
    return values


def counts(text: str, option: str, example: str = "1,8,32") -> tuple[int, ...]:
    """Parse `1,8,32`: whole numbers above zero, none twice."""
    try:
        values = tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise UsageError(
            f"--{option} {text!r} is not a list of whole numbers", next_step=f"e.g. --{option} {example}"
        ) from error
    if any(value < 1 for value in values):
        raise UsageError(f"--{option} {text!r} contains a number below 1", next_step=f"e.g. --{option} {example}")
    return once(values, option)


def once(values: tuple[T, ...], kind: str) -> tuple[T, ...]:
    """Refuse a value that comes twice."""
    if len(set(values)) != len(values):
        raise UsageError(f"--{kind} names {values!r}: each may be given once")
    return values


def seconds(text: str, option: str, example: str = "2h, or 90m") -> float:
    """Return the seconds of `2h`, `90m`, `1h30m`, `45s` or a plain number of seconds."""
    parts = re.findall(r"(\d+(?:\.\d+)?)([smhd]?)", text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise UsageError(f"{option} {text!r} is not a time", next_step=f"e.g. {option} {example}")
    return sum(float(number) * _UNITS_S[unit or "s"] for number, unit in parts)


def percentage(text: str, option: str, example: str) -> float:
    """Return the number of `5%` or `5`, above zero."""
    try:
        found = float(text.rstrip("%"))
    except ValueError:
        found = math.nan
    if not 0.0 < found < math.inf:
        raise UsageError(f"{option} {text!r} is not a percentage above zero", next_step=f"e.g. {option} {example}")
    return found


def words_given() -> list[str]:
    """Return the command line of this call behind `gputax`, as it was typed."""
    context = click.get_current_context(silent=True)
    words = context.find_root().obj if context is not None else None
    return list(sys.argv[1:] if words is None else words)


def command_text() -> str:
    """Return the command that a result names as its origin."""
    return shlex.join(["gputax", *words_given()])
