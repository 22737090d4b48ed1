"""Reads the table of calls (calls.toml) and checks every entry, so that a mistake is reported before it is compiled."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MODES = ("answered", "posted", "cached", "local", "refused")
HANDS = ("none", "client", "server", "both")
HANDLES = ("context", "stream", "event", "module", "function", "graph")
KINDS = ("value", "string", "bytes", "memory", "device", *HANDLES)
ROLES = ("use", "create", "destroy")
CAPTURES = ("", "node", "refused", "any", "unsafe", "legacy", "event", "own")
BODY_MAX = 8192  # WIRE_BODY_MAX of wire.h; the generated code asserts that they are equal
NO_END = 1000000  # a driver version that never comes: this form of the function is the newest
VARIABLE_MAX = 7168  # leaves room for the fixed fields

# C types that may travel by value, and what they are on the wire. 8-byte types are laid out before 4-byte ones.
WIRE_TYPES = {
    "int": "int32_t",
    "unsigned int": "uint32_t",
    "unsigned char": "uint32_t",
    "unsigned short": "uint32_t",
    "float": "float",
    "size_t": "uint64_t",
    "unsigned long long": "uint64_t",
    "cuuint32_t": "uint32_t",
    "cuuint64_t": "uint64_t",
    "CUdevice": "int32_t",
    "CUdevice_attribute": "int32_t",
    "CUfunction_attribute": "int32_t",
    "CUfunc_cache": "int32_t",
    "CUlimit": "int32_t",
    "CUsharedconfig": "int32_t",
    "CUdeviceptr": "uint64_t",
    "CUcontext": "uint64_t",
    "CUstream": "uint64_t",
    "CUevent": "uint64_t",
    "CUmodule": "uint64_t",
    "CUfunction": "uint64_t",
    "CUgraphExec": "uint64_t",
    "CUuuid": "struct wire_uuid",
}


class TableError(Exception):
    """An entry of the table is wrong; the text says which and why."""


@dataclass(frozen=True)
class Argument:
    """One argument of a call, as it travels."""

    name: str
    type: str
    out: bool
    kind: str
    role: str
    size: str  # for string and bytes: the argument that holds the number of bytes ("" for a string that goes in)
    range: tuple[str | int, ...]  # for memory: factors whose product is the number of bytes that the call touches
    optional: bool
    most: int

    @property
    def variable(self) -> bool:
        """Whether its length differs from message to message."""
        return self.kind in ("string", "bytes")

    @property
    def wire_type(self) -> str:
        """Its type inside a message."""
        return WIRE_TYPES[self.type]

    @property
    def parameter(self) -> str:
        """Its declaration in C."""
        if self.variable:
            star = f"{self.type} *{self.name}"
            return star if self.out else f"const {star}"
        return f"{self.type} *{self.name}" if self.out else f"{self.type} {self.name}"


@dataclass(frozen=True)
class Call:
    """One function of the table."""

    name: str
    public: tuple[tuple[str, int, int], ...]
    mode: str
    hand: str
    context: bool
    always: bool
    flush: bool
    default_stream: bool
    parameters: str
    backend: bool
    software: bool
    capture: str
    arguments: tuple[Argument, ...]

    @property
    def sent(self) -> bool:
        """Whether it ever travels."""
        return self.mode not in ("local", "refused")

    @property
    def c_parameters(self) -> str:
        """The C parameter list."""
        return self.parameters or ", ".join(a.parameter for a in self.arguments) or "void"

    @property
    def c_names(self) -> list[str]:
        """The names of its C parameters, in order."""
        listed = [] if self.c_parameters == "void" else self.c_parameters.split(",")
        return [re.split(r"\W+", one.strip())[-1] for one in listed]

    @property
    def stream(self) -> str:
        """The C expression of the stream that it is given; empty if it takes none."""
        if "const CUlaunchConfig *config" in self.c_parameters:
            return "config->hStream"
        return "stream" if re.search(r"\bCUstream stream\b", self.c_parameters) else ""

    @property
    def ins(self) -> list[Argument]:
        """Fixed arguments to the proxy."""
        return [a for a in self.arguments if not a.out and not a.variable]

    @property
    def outs(self) -> list[Argument]:
        """Fixed arguments back."""
        return [a for a in self.arguments if a.out and not a.variable]

    @property
    def in_variable(self) -> Argument | None:
        """The one argument to the proxy whose length varies."""
        return next((a for a in self.arguments if not a.out and a.variable), None)

    @property
    def out_variable(self) -> Argument | None:
        """The one argument back whose length varies."""
        return next((a for a in self.arguments if a.out and a.variable), None)


def load(path: Path) -> list[Call]:
    """The whole table, checked."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise TableError(f"{path.name}: {error}") from error
    return parse(document)


def parse(document: dict[str, Any]) -> list[Call]:
    """The table of a parsed document."""
    _only(document, {"call"}, "the file")
    entries = document.get("call", [])
    if not isinstance(entries, list) or not entries:
        raise TableError("the table has no [[call]]")
    calls = [_call(entry, position) for position, entry in enumerate(entries, 1)]
    _check_per_thread(calls)
    seen: set[str] = set()
    published: set[tuple[str, int]] = set()
    for call in calls:
        if call.name in seen:
            raise TableError(f"{call.name}: listed twice")
        seen.add(call.name)
        for public, since, _ in call.public:
            if (public, since) in published:
                raise TableError(f"{call.name}: {public} since {since} is already published by another call")
            published.add((public, since))
    return calls


def _check_per_thread(calls: list[Call]) -> None:
    names = {call.name for call in calls}
    for call in calls:
        stem = call.name.removesuffix("_v2") + "Async"
        if call.default_stream and not call.stream and not names & {stem, f"{stem}_v2"}:
            raise TableError(f"{call.name}: default_stream, but neither a stream nor a call {stem}")


def _call(entry: Any, position: int) -> Call:
    if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
        raise TableError(f"call {position}: needs a name")
    name = entry["name"]
    if not re.fullmatch(r"[a-z][A-Za-z0-9_]*", name):
        raise TableError(f"call {position}: {name!r} is not a C name")
    known = {"name", "public", "mode", "hand", "context", "always", "flush", "default_stream", "parameters", "backend"}
    _only(entry, known | {"software", "capture", "args"}, name)
    mode = _choice(entry, "mode", MODES, "answered", name)
    hand = _choice(entry, "hand", HANDS, "both" if mode in ("local", "refused") else "none", name)
    arguments = tuple(_argument(a, name) for a in entry.get("args", []))
    call = Call(
        name=name,
        public=_public(entry.get("public", []), name),
        mode=mode,
        hand=hand,
        context=_flag(entry, "context", mode not in ("local", "cached", "refused"), name),
        always=_flag(entry, "always", False, name),
        flush=_flag(entry, "flush", False, name),
        default_stream=_flag(entry, "default_stream", any(a.kind == "stream" for a in arguments), name),
        parameters=entry.get("parameters", ""),
        backend=_flag(entry, "backend", name.startswith("cu") and mode not in ("local", "refused"), name),
        software=_flag(entry, "software", True, name),
        capture=_choice(entry, "capture", CAPTURES, "", name),
        arguments=arguments,
    )
    _check(call)
    return call


def _check(call: Call) -> None:
    names = [a.name for a in call.arguments]
    if len(set(names)) != len(names):
        raise TableError(f"{call.name}: an argument is listed twice")
    if not call.sent and call.arguments:
        raise TableError(f"{call.name}: a {call.mode} call never travels, so it has no args (use parameters)")
    if call.mode == "local" and not call.parameters:
        raise TableError(f"{call.name}: a local call has no args, so it needs parameters, its C parameter list")
    if call.mode == "posted" and any(a.out for a in call.arguments):
        raise TableError(f"{call.name}: a posted call has no answer, so it has no out argument")
    if call.capture in ("node", "refused", "any") and call.stream != "stream":
        raise TableError(f"{call.name}: capture = {call.capture} is for calls with a parameter CUstream stream")
    if call.capture == "event" and not any(a.kind == "event" for a in call.arguments):
        raise TableError(f"{call.name}: capture = event is for calls with an event")
    if call.flush and call.mode != "posted":
        raise TableError(f"{call.name}: flush is for posted calls")
    if call.mode == "cached" and any(a.kind not in ("value", "string", "bytes", "device") for a in call.arguments):
        raise TableError(f"{call.name}: an answer that depends on a handle or on memory must not be cached")
    for direction in (False, True):
        if sum(a.variable and a.out is direction for a in call.arguments) > 1:
            raise TableError(f"{call.name}: at most one string or bytes argument each way")
    values = {a.name for a in call.ins if a.kind == "value"}
    for argument in call.arguments:
        where = f"{call.name}, argument {argument.name}"
        if argument.size and argument.size not in values:
            raise TableError(f"{where}: size names {argument.size!r}, which is not a value argument to the proxy")
        for factor in argument.range:
            if isinstance(factor, str) and factor not in values:
                raise TableError(f"{where}: range names {factor!r}, which is not a value argument to the proxy")
        if argument.kind == "memory" and call.hand in ("none", "client") and (argument.out or not argument.range):
            raise TableError(f"{where}: memory without a range, or given back, needs a hand-written server side")
        if argument.role == "create" and not argument.out:
            raise TableError(f"{where}: what is created is given back, so out = true")


def _argument(entry: Any, call: str) -> Argument:
    if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
        raise TableError(f"{call}: every argument needs a name")
    where = f"{call}, argument {entry['name']}"
    _only(entry, {"name", "type", "out", "kind", "role", "size", "range", "optional", "most"}, where)
    kind = _choice(entry, "kind", KINDS, "value", where)
    out = _flag(entry, "out", False, where)
    variable = kind in ("string", "bytes")
    kind_type = entry.get("type", {"string": "char", "bytes": "void"}.get(kind))
    if not isinstance(kind_type, str) or (not variable and kind_type not in WIRE_TYPES):
        raise TableError(
            f"{where}: unknown type {kind_type!r} (add it to WIRE_TYPES in table.py if it travels by value)"
        )
    size = entry.get("size", "")
    if variable and not size and (out or kind == "bytes"):
        raise TableError(f"{where}: {kind} needs size, the name of the argument with its number of bytes")
    if size and not variable:
        raise TableError(f"{where}: size is for string and bytes")
    product = entry.get("range", [])
    if not isinstance(product, list) or not all(isinstance(f, str | int) for f in product):
        raise TableError(f"{where}: range is a list of argument names and numbers")
    if product and kind != "memory":
        raise TableError(f"{where}: range is for memory")
    most = entry.get("most", VARIABLE_MAX)
    if not isinstance(most, int) or not 0 < most <= VARIABLE_MAX:
        raise TableError(f"{where}: most is between 1 and {VARIABLE_MAX}; larger things travel as bulk (hand-written)")
    role = _choice(entry, "role", ROLES, "create" if out and kind in HANDLES else "use", where)
    return Argument(
        entry["name"], kind_type, out, kind, role, size, tuple(product), _flag(entry, "optional", False, where), most
    )


def _public(entry: Any, call: str) -> tuple[tuple[str, int, int], ...]:
    if not isinstance(entry, list):
        raise TableError(f"{call}: public is a list of {{ name, since, until }}")
    found = []
    for version in entry:
        if not isinstance(version, dict) or not isinstance(version.get("name"), str):
            raise TableError(f"{call}: public is a list of {{ name, since, until }}")
        _only(version, {"name", "since", "until"}, f"{call}, public")
        since, until = version.get("since"), version.get("until", NO_END)
        if not isinstance(since, int) or not isinstance(until, int) or not 1000 <= since < until <= NO_END:
            raise TableError(f"{call}: since and until are driver versions such as 12050, since before until")
        found.append((version["name"], since, until))
    return tuple(found)


def _choice(entry: dict[str, Any], key: str, allowed: tuple[str, ...], default: str, where: str) -> str:
    value = entry.get(key, default)
    if value not in allowed:
        raise TableError(f"{where}: {key} is {value!r}, not one of {', '.join(allowed)}")
    return str(value)


def _flag(entry: dict[str, Any], key: str, default: bool, where: str) -> bool:
    value = entry.get(key, default)
    if not isinstance(value, bool):
        raise TableError(f"{where}: {key} is true or false")
    return value


def _only(entry: dict[str, Any], known: set[str], where: str) -> None:
    unknown = sorted(set(entry) - known)
    if unknown:
        raise TableError(f"{where}: unknown key {unknown[0]!r}; known are {', '.join(sorted(known))}")
