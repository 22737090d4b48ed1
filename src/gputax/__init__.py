"""What each layer between a model and its GPU costs, measured and proven.

The public functions are those of `gputax.api`; they are imported when they are used, so `import gputax` stays light.
"""

import sys

# Nothing else is imported here: it would take time in which a program that imports gputax waits.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def _is_command() -> bool:
    """Whether this process is the command line: the installed script, or `python -m gputax` while it is looked up."""
    script, words = (sys.argv or [""])[0], sys.orig_argv
    return script.rpartition("/")[2] == "gputax" or (
        script == "-m" and "-m" in words and words[words.index("-m") + 1 : words.index("-m") + 2] == ["gputax"]
    )


def end_at_once(number: int, frame: object) -> None:
    """End at once: before main() there is nothing to tidy up, and a traceback would say nothing."""
    import posix

    posix.write(2, b"gputax: interrupted\n")
    posix._exit(130)


def _end_quietly_when_interrupted() -> None:
    """Handle Ctrl-C from the first line of ours on; main() puts its own handler in place of this one."""
    import _signal  # part of the interpreter; `signal` itself imports enum

    if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
        _signal.signal(_signal.SIGINT, end_at_once)


if _is_command():
    _end_quietly_when_interrupted()

ModuleType = type(sys)
__version__ = "0.1.0"
# As in __init__.pyi, which tells type checkers the same.
PUBLIC = (
    "advise",
    "collect",
    "compare",
    "cost",
    "deploy",
    "deploy_plan",
    "destroy",
    "duet",
    "load_plan",
    "own_model",
    "plan_like",
    "read_results",
    "report",
    "resolution",
    "run",
    "share",
    "share_plan",
    "status",
)


def __getattr__(name: "str") -> "Any":
    if name not in PUBLIC:
        raise AttributeError(f"module 'gputax' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module("gputax.api"), name)


def __dir__() -> list[str]:
    return [*PUBLIC, "__version__"]


class _Room(ModuleType):
    """A package that can be called: `gputax.compare` is the room and the function that it is there for."""

    def __call__(self, *words: "Any", **more: "Any") -> "Any":
        from importlib import import_module

        return getattr(import_module("gputax.api"), self.__name__.rpartition(".")[2])(*words, **more)


class _House(ModuleType):
    """Import sets a package as an attribute of its parent, which would hide the function of the same name."""

    def __setattr__(self, name: "str", value: "Any") -> "None":
        if name in PUBLIC and isinstance(value, ModuleType):
            value.__class__ = _Room
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _House
