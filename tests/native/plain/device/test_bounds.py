"""What a module or a kernel may take of the software device: time by the length of its text, and at most the limit."""

from __future__ import annotations

import json
from typing import Any

import pytest

BEGIN = """
import json, time
import numpy as np
from device import *
start()
HEAD = ".version 8.0\\n.target sm_80\\n.address_size 64\\n"
"""
TEXTS = {
    "registers": 'declared(n, ".reg .b32 a{0}x;", "mov.u32 a{0}x, 1;")',
    "ranges of registers": 'declared(n, ".reg .b32 a{0}x<2>;", "mov.u32 a{0}x1, 1;")',
    "functions": 'HEAD + each(n, ".func f{0}(){{}}") + ".entry k(){" + each(n, "call f{0};") + "}"',
}


@pytest.mark.parametrize("named", list(TEXTS))
def test_loading_takes_time_by_the_length_of_the_text(on_software: Any, named: str) -> None:
    program = f"""
def each(n, text):
    return "".join(text.format(i) for i in range(n))

def declared(n, first, second):
    return HEAD + ".entry k(){{" + each(n, first) + each(n, second) + "}}"

def cpu_seconds(n):
    text = ({TEXTS[named]}).encode() + b"\\0"
    begun = time.process_time()
    check(driver.cuModuleUnload(check(driver.cuModuleLoadData(text))))
    return time.process_time() - begun

print(json.dumps([min(cpu_seconds(n) for _ in range(3)) for n in (4000, 24000)]))
"""
    short, long = json.loads(on_software(BEGIN + program).stdout)
    assert long / short < 15, "six times the names: 6 if linear, 36 if quadratic"


def test_code_without_branches_stops_at_the_time_limit(on_software: Any) -> None:
    program = """
straight = "add.u32 %r1, %r1, %r2;" * 100_000
kernel = Module(HEAD + ".visible .entry k() { .reg .b32 %r<3>; " + straight + "}").kernel("k")
begun = time.process_time()
launch(kernel, (100_000,), (1024,))
print(json.dumps([error_of(driver.cuCtxSynchronize()), time.process_time() - begun]))
"""
    result, cpu_s = json.loads(on_software(BEGIN + program, GPUTAX_SOFT_TIMEOUT_S="2").stdout)
    assert result == "CUDA_ERROR_LAUNCH_TIMEOUT"
    assert cpu_s < 3


def test_a_text_that_would_load_for_minutes_stops_at_the_time_limit(on_software: Any) -> None:
    program = """
calls = "".join(f".func f{i}() {{ call f{i + 1}; call f{i + 1}; }}\\n" for i in reversed(range(20)))
text = HEAD + ".func f20() {" + "membar.gl;" * 1000 + "}\\n" + calls + ".entry k() { call f0; }\\0"
begun = time.process_time()
answer = driver.cuModuleLoadData(text.encode())
print(json.dumps([error_of(answer), time.process_time() - begun, error_of(driver.cuCtxSynchronize())]))
"""
    result, cpu_s, later = json.loads(on_software(BEGIN + program, GPUTAX_SOFT_TIMEOUT_S="0.3").stdout)
    assert result == "CUDA_ERROR_TIMEOUT"
    assert cpu_s < 1
    assert later == "CUDA_SUCCESS", "the context lives: nothing has run in it"
