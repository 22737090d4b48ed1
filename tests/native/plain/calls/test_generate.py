"""The generator of the calls: good entries become C that compiles, bad ones are named, the output is stable."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

NATIVE = Path(__file__).parents[4] / "native"
CALLS = NATIVE / "calls"


def load(name: str) -> ModuleType:
    sys.path.insert(0, str(CALLS))  # the generator's modules import each other by name, as a script does
    try:
        spec = importlib.util.spec_from_file_location(name, CALLS / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module
    finally:
        sys.path.remove(str(CALLS))


table = load("table")
emit = load("emit")
generate = load("generate")


def entry(**changes: Any) -> dict[str, Any]:
    call: dict[str, Any] = {
        "name": "cuStreamGetFlags",
        "public": [{"name": "cuStreamGetFlags", "since": 5050}],
        "args": [
            {"name": "stream", "type": "CUstream", "kind": "stream"},
            {"name": "flags", "type": "unsigned int", "out": True},
        ],
    }
    call.update(changes)
    return {"call": [call]}


def message_of(document: dict[str, Any]) -> str:
    with pytest.raises(table.TableError) as caught:
        table.parse(document)
    return str(caught.value)


def test_the_real_table_has_the_calls_that_programs_need() -> None:
    calls = table.load(CALLS / "calls.toml")
    assert len(calls) > 60
    published = {(name, since) for call in calls for name, since, _ in call.public}
    assert {("cuCtxCreate", 3020), ("cuCtxCreate", 11040), ("cuCtxCreate", 12050)} <= published
    assert {("cuGetProcAddress", 11030), ("cuGetProcAddress", 12000)} <= published


ADDRESSES = (
    '{"cuStreamGetFlags", 5050, 1000000, (void *)(uintptr_t)cuStreamGetFlags, (void *)(uintptr_t)cuStreamGetFlags_ptsz}'
)


def test_a_good_entry_becomes_stub_message_dispatch_and_address() -> None:
    texts = generate.outputs(table.parse(entry()))
    assert "CUresult cuStreamGetFlags(CUstream stream, unsigned int *flags)" in texts["vgpu_stubs.c"]
    assert "struct cuStreamGetFlags_in {\n    uint64_t context;\n    uint64_t stream;\n};" in texts["calls.h"]
    assert "tenant_find(tenant, HANDLE_STREAM, in->stream" in texts["proxy_dispatch.c"]
    assert ADDRESSES in texts["vgpu_procs.c"]
    assert "__typeof__(&cuStreamGetFlags) cuStreamGetFlags;" in texts["backend_calls.h"]


def test_the_software_device_gets_the_prototype_and_the_address_from_the_same_entry() -> None:
    texts = generate.outputs(table.parse(entry()))
    assert "CUresult cuStreamGetFlags(CUstream stream, unsigned int *flags);" in texts["cuda_calls.h"]
    assert ADDRESSES in texts["device_procs.c"]
    texts = generate.outputs(table.parse(entry(software=False)))
    assert "cuStreamGetFlags" not in texts["device_procs.c"]
    assert ADDRESSES in texts["vgpu_procs.c"]


def test_a_look_up_answers_with_the_newest_form_that_the_version_knows(tmp_path: Path) -> None:
    program = """
#include <stdio.h>
#include "calls/procs.h"
#include "cuda_calls.h"
static int first, second;
const struct proc procs[] = {{"cuThing", 3020, 11000, &first, NULL}, {"cuThing", 11000, 12000, &second, NULL}};
const size_t procs_count = 2;
int procs_driver_version(void) { return 0; }
int main(void) {
    for (int version = 3000; version <= 12000; version += 3000) {
        void *found;
        CUdriverProcAddressQueryResult status;
        cuGetProcAddress_v2("cuThing", &found, version == 9000 ? 11000 : version, 0, &status);
        printf("%s %d\\n", found == &first ? "first" : found == &second ? "second" : "none", (int)status);
    }
    return 0;
}
"""
    source = tmp_path / "main.c"
    source.write_text(program, encoding="utf-8")
    assert generate.main([str(CALLS / "calls.toml"), str(tmp_path)]) == 0
    includes = [f"-I{NATIVE}", f"-I{NATIVE / 'include'}", f"-I{tmp_path}"]
    sources = [str(source), str(NATIVE / "calls/procs.c")]
    command = ["gcc", "-std=c11", *includes, "-o", str(tmp_path / "main"), *sources]
    subprocess.run(command, check=True)
    answers = subprocess.run([str(tmp_path / "main")], capture_output=True, text=True, check=True).stdout.split("\n")
    assert answers[:4] == ["none 2", "first 0", "second 0", "none 2"]


def test_the_output_is_the_same_every_time_and_untouched_if_nothing_changed(tmp_path: Path) -> None:
    source = str(CALLS / "calls.toml")
    assert generate.main([source, str(tmp_path)]) == 0
    before = {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in tmp_path.iterdir()}
    assert generate.main([source, str(tmp_path)]) == 0
    after = {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in tmp_path.iterdir()}
    assert before == after
    assert len(before) == 11


def test_the_fingerprint_follows_the_messages_and_nothing_else() -> None:
    plain = emit.fingerprint(table.parse(entry()))
    renamed = entry(public=[{"name": "cuStreamGetFlags", "since": 6000}])
    assert emit.fingerprint(table.parse(renamed)) == plain
    wider = entry()
    wider["call"][0]["args"][1]["type"] = "unsigned long long"
    assert emit.fingerprint(table.parse(wider)) != plain


def test_no_hidden_padding_travels() -> None:
    for call in table.load(CALLS / "calls.toml"):
        for out in (False, True):
            narrow = [kind for kind, _ in emit.fields(call, out) if "64" not in kind and "struct" not in kind]
            assert len(narrow) % 2 == 0, call.name


def test_one_more_entry_compiles_with_all_warnings(tmp_path: Path) -> None:
    text = (CALLS / "calls.toml").read_text(encoding="utf-8")
    text += """
[[call]]
name = "cuStreamGetAge"
capture = "refused"
public = [{ name = "cuStreamGetAge", since = 5050 }]
args = [{ name = "stream", type = "CUstream", kind = "stream" }, { name = "flags", type = "unsigned int", out = true }]

[[call]]
name = "cuDeviceGetPCIBusId"
mode = "cached"
public = [{ name = "cuDeviceGetPCIBusId", since = 4010 }]
args = [
  { name = "id", kind = "string", out = true, size = "capacity", most = 64 },
  { name = "capacity", type = "int" },
  { name = "device", type = "CUdevice", kind = "device" },
]

[[call]]
name = "cuMadeUp"
mode = "posted"
args = [
  { name = "to", type = "CUdeviceptr", kind = "memory", range = ["width", "height", 2] },
  { name = "width", type = "size_t" },
  { name = "height", type = "size_t" },
  { name = "label", kind = "string", most = 32 },
]
"""
    source = tmp_path / "calls.toml"
    source.write_text(text, encoding="utf-8")
    made = tmp_path / "generated"
    assert generate.main([str(source), str(made)]) == 0
    flags = ["-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Wshadow", "-Wconversion", "-Werror", "-fsyntax-only"]
    includes = [f"-I{NATIVE}", f"-I{NATIVE / 'include'}", f"-I{made}"]
    sources = [str(path) for path in sorted(made.glob("*.c"))]
    done = subprocess.run(["gcc", *flags, *includes, *sources], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"mode": "sometimes"}, "mode is 'sometimes', not one of answered, posted, cached, local"),
        ({"mode": "posted"}, "a posted call has no answer"),
        ({"mode": "cached"}, "must not be cached"),
        ({"mode": "local"}, "a local call never travels"),
        ({"mode": "local", "args": []}, "needs parameters"),
        ({"flush": True}, "flush is for posted calls"),
        ({"hand": "left"}, "hand is 'left'"),
        ({"capture": "always"}, "capture is 'always'"),
        ({"capture": "event"}, "is for calls with an event"),
        ({"capture": "node", "args": []}, "is for calls with a parameter CUstream stream"),
        ({"default_stream": True, "args": []}, "neither a stream nor a call cuStreamGetFlagsAsync"),
        ({"colour": "red"}, "unknown key 'colour'"),
        ({"name": "cu Stream"}, "is not a C name"),
        ({"context": "yes"}, "context is true or false"),
        ({"public": [{"name": "cuStreamGetFlags", "since": 5}]}, "driver versions such as 12050"),
        ({"public": [{"name": "cuStreamGetFlags", "since": 5050, "until": 5050}]}, "since before until"),
        ({"public": "cuStreamGetFlags"}, "public is a list"),
        ({"args": [{"name": "x", "type": "CUarray"}]}, "unknown type 'CUarray'"),
        ({"args": [{"name": "x", "type": "int"}, {"name": "x", "type": "int"}]}, "listed twice"),
        ({"args": [{"type": "int"}]}, "every argument needs a name"),
        ({"args": [{"name": "x", "kind": "bytes"}]}, "bytes needs size"),
        ({"args": [{"name": "x", "kind": "bytes", "size": "n"}]}, "size names 'n', which is not a value argument"),
        ({"args": [{"name": "x", "type": "int", "size": "n"}]}, "size is for string and bytes"),
        ({"args": [{"name": "x", "kind": "string", "most": 9000}]}, "most is between 1 and 7168"),
        ({"args": [{"name": "x", "kind": "string"}, {"name": "y", "kind": "string"}]}, "at most one string or bytes"),
        ({"args": [{"name": "p", "type": "CUdeviceptr", "kind": "memory"}]}, "memory without a range"),
        ({"args": [{"name": "p", "type": "CUdeviceptr", "kind": "memory", "range": ["n"]}]}, "range names 'n'"),
        ({"args": [{"name": "p", "type": "CUdeviceptr", "kind": "memory", "range": "n"}]}, "range is a list"),
        ({"args": [{"name": "s", "type": "int", "range": [4]}]}, "range is for memory"),
        ({"args": [{"name": "s", "type": "CUstream", "kind": "stream", "role": "create"}]}, "so out = true"),
        ({"args": [{"name": "s", "type": "CUstream", "kind": "river"}]}, "kind is 'river'"),
    ],
)
def test_a_bad_entry_is_named_with_its_reason(changes: dict[str, Any], words: str) -> None:
    message = message_of(entry(**changes))
    assert words in message
    if "name" not in changes:
        assert message.startswith("cuStreamGetFlags")


def test_a_table_is_checked_as_a_whole() -> None:
    assert "no [[call]]" in message_of({})
    assert "unknown key 'calls'" in message_of({"calls": []})
    twice = entry()
    twice["call"] *= 2
    assert "listed twice" in message_of(twice)
    other = entry()
    other["call"].append({"name": "cuOther", "public": other["call"][0]["public"]})
    assert "already published" in message_of(other)
    assert "call 1: needs a name" in message_of({"call": [{}]})


def test_the_command_says_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert generate.main([]) == 2
    assert "usage:" in capsys.readouterr().err
    bad = tmp_path / "bad.toml"
    bad.write_text("[[call]\n", encoding="utf-8")
    assert generate.main([str(bad), str(tmp_path)]) == 1
    assert "bad.toml" in capsys.readouterr().err
    assert generate.main([str(tmp_path / "none.toml"), str(tmp_path)]) == 1


def test_a_call_with_a_front_is_exported_by_it_and_has_a_per_thread_form() -> None:
    texts = generate.outputs(table.parse(entry(capture="node")))
    assert "*flags) CALLS_INNER(cuStreamGetFlags);" in texts["cuda_calls.h"]
    assert "CUresult captured_cuStreamGetFlags(CUstream stream, unsigned int *flags);" in texts["fronts.h"]
    front = texts["fronts.c"]
    assert "if (front_is_plain(stream))\n        return inner_cuStreamGetFlags(stream, flags);" in front
    assert "if (front_captures(&stream, &result))\n        return captured_cuStreamGetFlags(stream, flags);" in front
    assert "stream = CU_STREAM_PER_THREAD;\n    return cuStreamGetFlags(stream, flags);" in front
