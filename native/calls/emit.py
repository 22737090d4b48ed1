"""Turns the checked table of calls into C: messages, the tenant's stubs, the proxy's dispatch, the address table."""

from __future__ import annotations

import hashlib

from table import BODY_MAX, HANDLES, Argument, Call

NOTE = "/* Made by native/calls/generate.py from calls.toml; change that. */\n"


def fields(call: Call, out: bool) -> list[tuple[str, str]]:
    """The fixed part of a message as (type, name): 8-byte fields first, so that no hidden padding travels."""
    arguments = call.outs if out else call.ins
    found = [(a.wire_type, a.name) for a in arguments]
    if call.context and not out:
        found.insert(0, ("uint64_t", "context"))
    wide = [f for f in found if "64" in f[0] or f[0].startswith("struct")]
    narrow = [f for f in found if f not in wide]
    if len(narrow) % 2:
        narrow.append(("uint32_t", "padding"))
    return wide + narrow


def fingerprint(calls: list[Call]) -> str:
    """One number for the format of all messages: two builds with different ones refuse each other."""
    text = "\n".join(f"{c.name} {c.mode} {fields(c, False)} {fields(c, True)}" for c in calls if c.sent)
    return "0x" + hashlib.sha256(text.encode()).hexdigest()[:16]


def header(calls: list[Call]) -> str:
    """calls.h: numbers, messages and prototypes."""
    sent = [c for c in calls if c.sent]
    lines = [
        NOTE,
        "#ifndef GPUTAX_CALLS_H",
        "#define GPUTAX_CALLS_H",
        "#include <stddef.h>",
        "#include <stdint.h>",
        '#include "cuda_abi.h"',
        '#include "wire/wire.h"',
        f'_Static_assert(WIRE_BODY_MAX == {BODY_MAX}, "table.py and wire.h disagree");',
        f"#define CALLS_FINGERPRINT UINT64_C({fingerprint(calls)})",
        "struct wire_uuid { uint8_t bytes[16]; };",
        "enum call {",
        *[f"    CALL_{c.name} = {number}," for number, c in enumerate(sent)],
        f"    CALL_COUNT = {len(sent)},",
        "};",
        "extern const char *const call_names[CALL_COUNT];",
    ]
    for call in sent:
        for out, suffix in ((False, "in"), (True, "out")):
            members = fields(call, out)
            if members:
                lines.append(f"struct {call.name}_{suffix} {{")
                lines += [f"    {kind} {name};" for kind, name in members]
                lines.append("};")
    lines.append("#pragma GCC visibility push(default)")
    lines += [f"CUresult {c.name}({parameters(c)});" for c in calls if c.parameters or has_stub(c)]
    return "\n".join([*lines, "#pragma GCC visibility pop", "#endif", ""])


def names(calls: list[Call]) -> str:
    """call_names.c: the name of each number, for counters."""
    rows = [f'    "{c.name}",' for c in calls if c.sent]
    return "\n".join([NOTE, '#include "calls.h"', "const char *const call_names[CALL_COUNT] = {", *rows, "};", ""])


def parameters(call: Call) -> str:
    """The C parameter list."""
    return call.parameters or ", ".join(a.parameter for a in call.arguments) or "void"


def has_stub(call: Call) -> bool:
    """Whether the tenant's function is generated."""
    return call.sent and call.hand in ("none", "server") and not call.parameters


def stubs(calls: list[Call]) -> str:
    """vgpu_stubs.c: the tenant's functions."""
    head = [NOTE, "#include <string.h>", '#include "calls.h"', '#include "vgpu/vgpu.h"', ""]
    return "\n".join([*head, *[_stub(c) for c in calls if has_stub(c)]])


def _stub(call: Call) -> str:
    lines = [f"CUresult {call.name}({parameters(call)})", "{"]
    body: list[str] = []
    setup = [f".call = CALL_{call.name}"]
    flags = [f for f, on in _question_flags(call) if on]
    if flags:
        setup.append(f".flags = {' | '.join(flags)}")
    for argument in call.arguments:
        if argument.out and not argument.optional:
            body.append(f"    if ({argument.name} == NULL)\n        return CUDA_ERROR_INVALID_VALUE;")
        if argument.range:
            body.append(_range(argument, "", f"vgpu_owns({argument.name}, span)"))
    if fields(call, False):
        lines.append(f"    struct {call.name}_in in = {{0}};")
        setup.append(".in = &in, .in_bytes = sizeof in")
        body += [f"    in.{a.name} = {_to_wire(a)};" for a in call.ins]
    if fields(call, True):
        lines.append(f"    struct {call.name}_out out = {{0}};")
        setup.append(".out = &out, .out_bytes = sizeof out")
    body += _stub_variable(call, setup)
    body.append(f"    struct question question = {{{', '.join(setup)}}};")
    if not call.outs and call.out_variable is None:
        return "\n".join([*lines, *body, "    return vgpu_ask(&question);", "}", ""])
    body.append("    CUresult result = vgpu_ask(&question);")
    assign = [_from_wire(a) for a in call.outs]
    if assign:
        body.append("    if (result == CUDA_SUCCESS) {")
        body += [f"        {line}" for line in assign]
        body.append("    }")
    return "\n".join([*lines, *body, "    return result;", "}", ""])


def _question_flags(call: Call) -> list[tuple[str, bool]]:
    return [
        ("QUESTION_CONTEXT", call.context),
        ("QUESTION_POSTED", call.mode == "posted"),
        ("QUESTION_CACHED", call.mode == "cached"),
        ("QUESTION_FLUSH", call.flush),
    ]


def _stub_variable(call: Call, setup: list[str]) -> list[str]:
    body = []
    given, back = call.in_variable, call.out_variable
    if given is not None:
        if given.kind == "string":
            count = f"strnlen({given.name}, {given.most}) + 1"
            test = f"{given.name} == NULL || strnlen({given.name}, {given.most}) >= {given.most}"
        else:
            count = f"(size_t){given.size}"
            test = f"({given.name} == NULL && {given.size} != 0) || (uint64_t){given.size} > {given.most}"
        body.append(f"    if ({test})\n        return CUDA_ERROR_INVALID_VALUE;")
        setup.append(f".variable = {given.name}, .variable_bytes = {count}")
    if back is not None:
        body.append(f"    if ((int64_t){back.size} <= 0)\n        return CUDA_ERROR_INVALID_VALUE;")
        text = ", .text = true" if back.kind == "string" else ""
        setup.append(f".out_variable = {back.name}, .out_capacity = (size_t){back.size}{text}")
    return body


def _to_wire(argument: Argument) -> str:
    if argument.kind in HANDLES:
        return f"(uint64_t)(uintptr_t){argument.name}"
    return f"({argument.wire_type}){argument.name}"


def _from_wire(argument: Argument) -> str:
    name = argument.name
    if argument.type == "CUuuid":
        line = f"memcpy({name}, &out.{name}, sizeof out.{name});"
    elif argument.kind in HANDLES:
        line = f"*{name} = ({argument.type})(uintptr_t)out.{name};"
    else:
        line = f"*{name} = ({argument.type})out.{name};"
    return f"if ({name} != NULL) {line}" if argument.optional else line


def _range(argument: Argument, prefix: str, test: str) -> str:
    lines = ["    {", "        size_t span = 1;"]
    for factor in argument.range:
        value = str(factor) if isinstance(factor, int) else prefix + factor
        lines.append(f"        if (__builtin_mul_overflow(span, (size_t){value}, &span))")
        lines.append("            return CUDA_ERROR_INVALID_VALUE;")
    lines += [f"        if (!{test})", "            return CUDA_ERROR_INVALID_VALUE;", "    }"]
    return "\n".join(lines)


def procs(calls: list[Call]) -> str:
    """vgpu_procs.c: what cuGetProcAddress may answer, by public name and first driver version."""
    rows = sorted(((*version, c) for c in calls for version in c.public), key=lambda row: row[:2])
    lines = [NOTE, '#include "calls.h"', '#include "vgpu/procs.h"', "const struct proc procs[] = {"]
    for name, since, until, call in rows:
        per_thread = "true" if call.default_stream else "false"
        lines.append(f'    {{"{name}", {since}, {until}, {per_thread}, (void *)(uintptr_t){call.name}}},')
    return "\n".join([*lines, "};", "const size_t procs_count = sizeof procs / sizeof procs[0];", ""])


def backend(calls: list[Call]) -> str:
    """backend_calls.h: the backend's functions, as a structure and as a list of names."""
    rows = [c for c in calls if c.backend]
    lines = [NOTE, "#ifndef GPUTAX_BACKEND_CALLS_H", "#define GPUTAX_BACKEND_CALLS_H", '#include "calls.h"']
    lines += ["struct backend_calls {", *[f"    __typeof__(&{c.name}) {c.name};" for c in rows], "};"]
    lines.append("#define BACKEND_CALLS(CALL) \\")
    lines += [f"    CALL({c.name}) \\" for c in rows]
    return "\n".join([*lines, "", "#endif", ""])


def dispatch(calls: list[Call]) -> str:
    """proxy_dispatch.c: for each call the checks, the translation of handles, the backend's call and the answer."""
    sent = [c for c in calls if c.sent]
    head = [NOTE, "#include <string.h>", '#include "proxy/serve.h"', ""]
    hand = [f"CUresult serve_{c.name}(struct request *request);" for c in sent if c.hand in ("server", "both")]
    made = [_serve(c) for c in sent if c.hand in ("none", "client")]
    table = ["const struct call_entry call_entries[CALL_COUNT] = {"]
    for call in sent:
        in_bytes = f"sizeof(struct {call.name}_in)" if fields(call, False) else "0"
        out_bytes = f"sizeof(struct {call.name}_out)" if fields(call, True) else "0"
        most = call.in_variable.most if call.in_variable else 0
        flags = [f for f, on in (("ENTRY_CONTEXT", call.context), ("ENTRY_ALWAYS", call.always)) if on]
        sizes = f"{in_bytes}, {most}, {out_bytes}"
        table.append(f"    [CALL_{call.name}] = {{serve_{call.name}, {sizes}, {' | '.join(flags) or 0}}},")
    return "\n".join([*head, *hand, "", *made, *table, "};", ""])


def _serve(call: Call) -> str:
    lines = [f"static CUresult serve_{call.name}(struct request *request)", "{"]
    lines.append("    struct tenant *tenant = request->tenant;")
    if fields(call, False):
        lines.append(f"    const struct {call.name}_in *in = request->in;")
    if fields(call, True):
        lines.append(f"    struct {call.name}_out *out = request->out;")
    lines.append(f"    if (tenant->backend->calls.{call.name} == NULL)\n        return CUDA_ERROR_NOT_SUPPORTED;")
    if fields(call, False) == [("uint64_t", "context")]:
        lines.append("    (void)in;")
    given: list[str] = []
    after: list[str] = []
    back = call.out_variable
    if back is not None:
        lines += _capacity(back)
    for argument in call.arguments:
        if back is not None and argument.name == back.size:
            given.append(f"({argument.type}){back.name}_bytes")
        else:
            lines += _serve_argument(argument, given, after)
    lines.append(f"    CUresult result = tenant->backend->calls.{call.name}({', '.join(given)});")
    if after:
        lines.append("    if (result == CUDA_SUCCESS) {")
        lines += [f"        {line}" for line in after]
        lines.append("    }")
    return "\n".join([*lines, "    return result;", "}", ""])


def _serve_argument(argument: Argument, given: list[str], after: list[str]) -> list[str]:
    name, kind = argument.name, argument.kind
    if argument.variable:
        return _serve_variable(argument, given, after)
    if argument.out:
        given.append(f"&{name}")
        lines = [f"    {argument.type} {name};", f"    memset(&{name}, 0, sizeof {name});"]
        if argument.type == "CUuuid":
            after.append(f"memcpy(&out->{name}, &{name}, sizeof out->{name});")
        elif kind in HANDLES:
            lines.insert(0, f"    if (!tenant_room(tenant, {_kind(kind)}))\n        return CUDA_ERROR_OUT_OF_MEMORY;")
            after.append(f"out->{name} = tenant_add(tenant, {_kind(kind)}, {name});")
        else:
            after.append(f"out->{name} = ({argument.wire_type}){name};")
        return lines
    if kind in HANDLES:
        given.append(name)
        if argument.role == "destroy":
            after.append(f"tenant_remove(tenant, {_kind(kind)}, in->{name});")
        return [
            f"    {argument.type} {name};",
            f"    if (!tenant_find(tenant, {_kind(kind)}, in->{name}, (void **)&{name}))",
            "        return CUDA_ERROR_INVALID_HANDLE;",
        ]
    if kind == "device":
        given.append("tenant->backend->device")
        return [f"    if (in->{name} != 0)\n        return CUDA_ERROR_INVALID_DEVICE;"]
    given.append(f"({argument.type})in->{name}")
    return [_range(argument, "in->", f"tenant_owns(tenant, in->{name}, span)")] if argument.range else []


def _serve_variable(argument: Argument, given: list[str], after: list[str]) -> list[str]:
    name = argument.name
    if not argument.out:
        given.append(f"(const {argument.type} *)request->variable")
        if argument.kind == "string":
            return [
                "    if (request->variable_bytes == 0 || request->variable[request->variable_bytes - 1] != 0)",
                "        return CUDA_ERROR_INVALID_VALUE;",
            ]
        differs = f"(uint64_t)in->{argument.size} != request->variable_bytes"
        return [f"    if ({differs})\n        return CUDA_ERROR_INVALID_VALUE;"]
    given.append(f"({argument.type} *)request->out_variable")
    length = f"strnlen((const char *)request->out_variable, {name}_bytes - 1) + 1"
    after.append(f"request->out_variable_bytes = {length if argument.kind == 'string' else f'{name}_bytes'};")
    return []


def _capacity(argument: Argument) -> list[str]:
    return [
        f"    if ((int64_t)in->{argument.size} <= 0)\n        return CUDA_ERROR_INVALID_VALUE;",
        f"    size_t {argument.name}_bytes = (size_t)in->{argument.size};",
        f"    if ({argument.name}_bytes > {argument.most})\n        {argument.name}_bytes = {argument.most};",
    ]


def _kind(kind: str) -> str:
    return f"HANDLE_{kind.upper()}"
