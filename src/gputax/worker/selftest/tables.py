"""Questions to the tables behind cuGetExportTable: the places that the CUDA runtime and its libraries call."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import CFUNCTYPE, POINTER, byref, c_int, c_size_t, c_uint32, c_uint64, c_void_p
from functools import partial
from typing import Any

from gputax.worker.selftest.stage import SUCCESS, Questions, RefusedError, Stage

RUNTIME, SELF_TEST = "6bd5fb6c5bf4e74a8987d93912fd9df9", "d4082055bde6704b8d34ba123c66e1f2"
STORAGE, HOOKS = "c693336e1121df11a8c368f355d89593", "a094798c2e742e7493f20800200c0a66"
THREAD, NUMBERS = "42d85a8123f6cb478298f6e78a3aecdc", "21318c60971432488ca641ff7324c8f2"
CHECKS, COMPILER = "263e88607cd2614392f6bbd5006dfa7e", "1734dc26800d47458726c0f1e7dd8bca"
OTHERS = ("f8cff95121468b4eb9e2fb469e7c0dd9", "6e163fbeb958444d835ce182aff1991e", "00" * 16)
KEY, VALUE = 0x1234, 0x5678
COMPARED_BYTES = 14
VERSION = 12040


def _table(stage: Stage, name: str) -> Any:
    found = POINTER(c_void_p)()
    code = stage.driver.code("cuGetExportTable", byref(found), bytes.fromhex(name))
    if code:
        raise RefusedError(f"cuGetExportTable {name[:8]}", code)
    return found


def _slot(stage: Stage, name: str, index: int, *kinds: Any) -> Callable[..., int]:
    return CFUNCTYPE(c_int, *kinds)(_table(stage, name)[index])


def _there(stage: Stage, name: str) -> int:
    found = c_void_p()
    return stage.driver.code("cuGetExportTable", byref(found), bytes.fromhex(name))


def runtime(stage: Stage) -> Questions:
    """Ask the runtime's own table for the primary context, which must not become active by it."""
    yield "there", partial(_there, stage, RUNTIME)
    yield "[2] handle of the primary context", partial(_primary, stage)
    yield "[12] ready to compile", lambda: _slot(stage, RUNTIME, 12)()


def _primary(stage: Stage) -> list[Any]:
    handle, state, driver = c_void_p(), list[int](), stage.driver

    def active() -> int:
        flags, answer = c_uint32(), c_int()
        driver("cuDevicePrimaryCtxGetState", stage.device, byref(flags), byref(answer))
        return answer.value

    state.append(active())
    code = _slot(stage, RUNTIME, 2, c_void_p, c_int)(byref(handle), stage.device)
    state.append(active())
    same = driver.made("cuDevicePrimaryCtxRetain", stage.device) == handle.value
    state.append(active())
    driver("cuDevicePrimaryCtxRelease_v2", stage.device)
    return [code, same, state]


def self_test(stage: Stage) -> Questions:
    """Ask the self-test: two answers are constants, the third is of this process alone."""
    yield "there", partial(_there, stage, SELF_TEST)
    for last in range(2):
        yield f"[1] question {last}", partial(_answer, stage, VERSION + last)
    yield "[1] question 2 is answered", lambda: _answer(stage, VERSION + 2)[0]


def _answer(stage: Stage, version: int) -> list[Any]:
    answer = (c_uint64 * 2)()
    code = _slot(stage, SELF_TEST, 1, c_uint32, c_uint64, c_void_p)(version, 99, byref(answer))
    return [code, f"{answer[0]:016x}{answer[1]:016x}"]


def storage(stage: Stage) -> Questions:
    """Keep values with a context."""
    yield "there", partial(_there, stage, STORAGE)
    yield "[0] put, [1] delete, [2] get", partial(_kept, stage)


def _kept(stage: Stage) -> list[Any]:
    put = _slot(stage, STORAGE, 0, c_void_p, c_void_p, c_void_p, c_void_p)
    delete, get = _slot(stage, STORAGE, 1, c_void_p, c_void_p), _slot(stage, STORAGE, 2, c_void_p, c_void_p, c_void_p)
    context = stage.driver.made("cuDevicePrimaryCtxRetain", stage.device)
    stage.driver("cuCtxSetCurrent", context)
    found = c_void_p()
    answers: list[Any] = [get(byref(found), context, KEY), put(context, KEY, VALUE, None)]
    answers += [get(byref(found), context, KEY), found.value, get(byref(found), None, KEY), found.value]
    answers += [delete(context, KEY), get(byref(found), context, KEY)]
    stage.driver("cuDevicePrimaryCtxRelease_v2", stage.device)
    return answers


def hooks(stage: Stage) -> Questions:
    """Ask whether tools listen."""
    yield "there", partial(_there, stage, HOOKS)
    for index in (2, 6):
        yield f"[{index}] nobody listens", partial(_listeners, stage, index)


def _listeners(stage: Stage, index: int) -> list[Any]:
    buffer, size = POINTER(ctypes.c_ubyte)(), c_size_t()
    code = _slot(stage, HOOKS, index, c_void_p, c_void_p)(byref(buffer), byref(size))
    return [code, bool(buffer) and not any(buffer[: min(COMPARED_BYTES, size.value)])]


def thread(stage: Stage) -> Questions:
    """Ask for the thread's context."""
    yield "there", partial(_there, stage, THREAD)
    yield "[2] the current context", partial(_current, stage)


def _current(stage: Stage) -> list[Any]:
    context = stage.driver.made("cuDevicePrimaryCtxRetain", stage.device)
    stage.driver("cuCtxSetCurrent", context)
    found = c_void_p()
    code = _slot(stage, THREAD, 2, c_void_p)(byref(found))
    return [code, found.value == context]


def numbers(stage: Stage) -> Questions:
    """Ask for numbers of contexts and streams, which must differ."""
    yield "there", partial(_there, stage, NUMBERS)
    yield "[4] a context, [51] its streams", partial(_numbered, stage)


def _numbered(stage: Stage) -> list[Any]:
    context = stage.driver.made("cuDevicePrimaryCtxRetain", stage.device)
    stage.driver("cuCtxSetCurrent", context)
    streams = [0, *(stage.driver.made("cuStreamCreate", 1) for _ in range(2))]
    codes, found, number = list[int](), list[int](), c_uint64()
    of_context = _slot(stage, NUMBERS, 4, c_void_p, c_void_p)
    of_stream = _slot(stage, NUMBERS, 51, c_void_p, c_void_p, c_void_p)
    codes.append(of_context(context, byref(number)))
    for stream in streams:
        codes.append(of_stream(context, stream, byref(number)))
        found.append(number.value)
    return [codes, len(set(found)) == len(streams)]


def checks(stage: Stage) -> Questions:
    """Ask whether a context forbids anything."""
    yield "there", partial(_there, stage, CHECKS)
    yield "[2] nothing is forbidden", partial(_forbidden, stage)


def _forbidden(stage: Stage) -> list[int]:
    context = stage.driver.made("cuDevicePrimaryCtxRetain", stage.device)
    stage.driver("cuCtxSetCurrent", context)
    forbidden, more = c_uint32(7), c_void_p()
    code = _slot(stage, CHECKS, 2, c_void_p, c_void_p, c_void_p)(context, byref(forbidden), byref(more))
    return [code, forbidden.value]


def others(stage: Stage) -> Questions:
    """Ask for the tables that libvgpu has in name only, or not."""
    yield "1734dc26 there", partial(_there, stage, COMPILER)
    for name in OTHERS:
        yield f"{name[:8]} there", lambda name=name: _there(stage, name) == SUCCESS  # type: ignore[misc]
