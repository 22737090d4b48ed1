"""runc's command line, as containerd's shim writes it."""

from __future__ import annotations

from dataclasses import dataclass, field

from xen_cri.errors import Refused

# By verb: options with a value, and options without one.
GLOBAL = (
    frozenset({"root", "log", "log-format", "criu", "rootless"}),
    frozenset({"debug", "systemd-cgroup", "version", "v", "help", "h"}),
)
VERBS: dict[str, tuple[frozenset[str], frozenset[str]]] = {
    "create": (
        frozenset({"bundle", "b", "console-socket", "pid-file", "preserve-fds"}),
        frozenset({"no-pivot", "no-new-keyring"}),
    ),
    "start": (frozenset(), frozenset()),
    "state": (frozenset(), frozenset()),
    "kill": (frozenset(), frozenset({"all", "a"})),
    "delete": (frozenset(), frozenset({"force", "f"})),
    "exec": (
        frozenset({"process", "p", "console-socket", "pid-file", "preserve-fds"}),
        frozenset({"detach", "d", "tty", "t"}),
    ),
}
LONG = {"b": "bundle", "p": "process", "d": "detach", "t": "tty", "a": "all", "f": "force", "v": "version", "h": "help"}


@dataclass(frozen=True)
class Words:
    """A command: global options, the verb, its options and its arguments."""

    verb: str
    globals: dict[str, str] = field(default_factory=dict)
    options: dict[str, str] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()


def _options(
    words: list[str], known: tuple[frozenset[str], frozenset[str]], where: str
) -> tuple[dict[str, str], list[str]]:
    valued, plain = known
    found: dict[str, str] = {}
    rest = list(words)
    while rest and rest[0].startswith("-") and rest[0] != "-":
        word = rest.pop(0)
        if word == "--":
            break
        name, equals, value = word.lstrip("-").partition("=")
        if name in plain:
            found[LONG.get(name, name)] = value if equals else "true"
        elif name in valued and (equals or rest):
            found[LONG.get(name, name)] = value if equals else rest.pop(0)
        else:
            message = f"{where}: unknown option {word}, or its value is missing"
            raise Refused(message)
    return found, rest


def parse(words: list[str]) -> Words:
    """Read a command line; what runc has and we have not is refused by name."""
    common, rest = _options(words, GLOBAL, "xen-cri")
    if "version" in common or "help" in common:
        return Words("version" if "version" in common else "help", common)
    if not rest:
        return Words("help", common)
    verb = rest.pop(0)
    if verb not in VERBS:
        message = f"the command {verb} is not supported; there are {', '.join(sorted(VERBS))}"
        raise Refused(message)
    options, arguments = _options(rest, VERBS[verb], verb)
    if not arguments:
        message = f"{verb}: the container's id is missing"
        raise Refused(message)
    return Words(verb, common, options, tuple(arguments))
