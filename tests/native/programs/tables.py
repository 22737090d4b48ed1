"""The tables behind cuGetExportTable as the CUDA runtime uses them, called slot by slot; one line per case."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable
from ctypes import CFUNCTYPE, POINTER, byref, c_int, c_uint32, c_uint64, c_void_p
from typing import Any

OK, INVALID_VALUE, INVALID_CONTEXT, INVALID_HANDLE, NOT_SUPPORTED = 0, 1, 201, 400, 801
RUNTIME, SELF_TEST = "6bd5fb6c5bf4e74a8987d93912fd9df9", "d4082055bde6704b8d34ba123c66e1f2"
STORAGE, HOOKS = "c693336e1121df11a8c368f355d89593", "a094798c2e742e7493f20800200c0a66"
THREAD, NUMBERS = "42d85a8123f6cb478298f6e78a3aecdc", "21318c60971432488ca641ff7324c8f2"
CHECKS, COMPILER = "263e88607cd2614392f6bbd5006dfa7e", "1734dc26800d47458726c0f1e7dd8bca"
SKIP_START, PROFILERS = "f8cff95121468b4eb9e2fb469e7c0dd9", "6e163fbeb958444d835ce182aff1991e"
KEY = bytes.fromhex("146addae53a9a752aa0841360bf55a9f")  # public, as docs/cuda-runtime.md says
DESTRUCTOR = CFUNCTYPE(None, c_void_p, c_void_p, c_void_p)
PCI_BUS, PCI_DEVICE, PCI_DOMAIN = 33, 34, 50

driver = ctypes.CDLL("libcuda.so.1")


def table(name: str) -> Any:
    found = POINTER(c_void_p)()
    assert driver.cuGetExportTable(byref(found), bytes.fromhex(name)) == OK, name
    return found


def slot(name: str, index: int, *kinds: Any) -> Callable[..., int]:
    return CFUNCTYPE(c_int, *kinds)(table(name)[index])


def current() -> int | None:
    context = c_void_p()
    assert driver.cuCtxGetCurrent(byref(context)) == OK
    return context.value


def active() -> int:
    flags, answer = ctypes.c_uint(), c_int(-1)
    assert driver.cuDevicePrimaryCtxGetState(0, byref(flags), byref(answer)) == OK
    return answer.value


def every_place_of_a_table_can_be_called() -> None:
    for name in (RUNTIME, SELF_TEST, HOOKS, THREAD, NUMBERS, CHECKS, COMPILER):
        found = table(name)
        size = found[0]
        assert size is not None
        assert size % 8 == 0
        assert all(found[index] for index in range(1, size // 8)), name
    assert all(table(STORAGE)[index] for index in range(4))
    assert slot(COMPILER, 4, c_void_p, c_void_p)(None, None) == NOT_SUPPORTED
    assert slot(RUNTIME, 1, c_void_p, c_void_p)(None, None) == NOT_SUPPORTED


def unknown_tables_are_not_supported() -> None:
    for name in (SKIP_START, PROFILERS, "00" * 16):
        found = c_void_p(1)
        assert driver.cuGetExportTable(byref(found), bytes.fromhex(name)) == NOT_SUPPORTED
        assert found.value is None


def a_handle_does_not_make_the_primary_context_active() -> None:
    handle, other = c_void_p(), c_void_p()
    assert active() == 0
    assert slot(RUNTIME, 2, c_void_p, c_int)(byref(handle), 0) == OK
    assert active() == 0
    assert driver.cuDevicePrimaryCtxRelease_v2(0) == INVALID_CONTEXT
    assert driver.cuDevicePrimaryCtxRetain(byref(other), 0) == OK
    assert active() == 1
    assert handle.value == other.value
    assert driver.cuDevicePrimaryCtxRelease_v2(0) == OK
    assert active() == 0


def tools_are_told_that_nobody_listens() -> None:
    for index, size in ((2, 65536), (6, 14)):
        buffer, found = POINTER(ctypes.c_ubyte)(), ctypes.c_size_t()
        assert slot(HOOKS, index, c_void_p, c_void_p)(byref(buffer), byref(found)) == OK
        assert found.value == size
        assert not any(buffer[:size])
        assert slot(HOOKS, index, c_void_p, c_void_p)(None, byref(found)) == INVALID_VALUE


def numbers_of_contexts_and_streams_differ() -> None:
    context, other, stream, found = c_void_p(), c_void_p(), c_void_p(), c_uint64()
    number = slot(NUMBERS, 51, c_void_p, c_void_p, c_void_p)
    seen = []
    assert driver.cuCtxCreate_v2(byref(context), 0, 0) == OK
    assert driver.cuStreamCreate(byref(stream), 0) == OK
    assert driver.cuCtxCreate_v2(byref(other), 0, 0) == OK
    for one, given in ((context, stream), (context, None), (other, None)):
        assert number(one, given, byref(found)) == OK
        seen.append(found.value)
    assert len(set(seen)) == 3
    assert slot(NUMBERS, 4, c_void_p, c_void_p)(context, byref(found)) == OK
    first = found.value
    assert slot(NUMBERS, 4, c_void_p, c_void_p)(other, byref(found)) == OK
    assert first != found.value
    thread = c_void_p()
    assert slot(THREAD, 2, c_void_p)(byref(thread)) == OK
    assert thread.value == other.value == current()
    forbidden = c_uint32(7)
    assert slot(CHECKS, 2, c_void_p, c_void_p, c_void_p)(context, byref(forbidden), None) == OK
    assert forbidden.value == 0
    assert driver.cuCtxDestroy_v2(other) == OK
    assert driver.cuCtxDestroy_v2(context) == OK


def values_stay_with_a_context_until_it_ends() -> None:
    put = slot(STORAGE, 0, c_void_p, c_void_p, c_void_p, c_void_p)
    delete, get = slot(STORAGE, 1, c_void_p, c_void_p), slot(STORAGE, 2, c_void_p, c_void_p, c_void_p)
    found, ended = c_void_p(), list[tuple[int, int]]()

    def destroy(context: int, key: int, value: int) -> None:
        pointer, inner = ctypes.c_uint64(), c_void_p()
        assert get(byref(inner), context, key) == INVALID_HANDLE, "it is out of the table"
        assert driver.cuCtxPushCurrent_v2(c_void_p(context)) == OK, "the context still lives"
        assert driver.cuMemAlloc_v2(byref(pointer), ctypes.c_size_t(64)) == OK
        assert driver.cuMemFree_v2(pointer) == OK
        assert driver.cuCtxPopCurrent_v2(byref(inner)) == OK
        ended.append((key, value))

    destructor = DESTRUCTOR(destroy)
    kept = ctypes.cast(destructor, c_void_p)
    assert current() is None
    assert put(None, 1, 2, kept) == INVALID_CONTEXT
    assert get(byref(found), None, 1) == INVALID_CONTEXT
    contexts = []
    for _ in range(2):
        context = c_void_p()
        assert driver.cuCtxCreate_v2(byref(context), 0, 0) == OK
        contexts.append(context)
    first, second = contexts
    assert put(first, 1, 11, kept) == OK
    assert put(first, 2, 12, None) == OK
    assert put(first, 3, 13, kept) == OK
    assert put(None, 1, 21, kept) == OK
    assert put(first, 1, 111, kept) == OK
    assert (get(byref(found), first, 1), found.value) == (OK, 111)
    assert (get(byref(found), None, 1), found.value) == (OK, 21)
    assert get(byref(found), second, 3) == INVALID_HANDLE
    assert (delete(first, 3), delete(first, 3), ended) == (OK, INVALID_HANDLE, [])
    assert driver.cuCtxDestroy_v2(first) == OK
    assert ended == [(1, 111)]
    assert get(byref(found), first, 1) == INVALID_CONTEXT
    assert driver.cuCtxDestroy_v2(second) == OK
    assert ended == [(1, 111), (1, 21)]
    for end in (driver.cuDevicePrimaryCtxRelease_v2, driver.cuDevicePrimaryCtxReset_v2):
        primary = c_void_p()
        ended.clear()
        assert driver.cuDevicePrimaryCtxRetain(byref(primary), 0) == OK
        assert driver.cuDevicePrimaryCtxRetain(byref(primary), 0) == OK
        assert put(primary, 5, 6, kept) == OK
        if end is driver.cuDevicePrimaryCtxRelease_v2:
            assert end(0) == OK
            assert ended == []
        assert end(0) == OK
        assert ended == [(5, 6)]


def pi_digits(count: int) -> str:
    """Return the first digits of pi, by Machin's formula."""

    def inverse_tangent(of: int, unity: int) -> int:
        power = total = unity // of
        divisor, sign = 3, -1
        while power:
            power //= of * of
            total += sign * (power // divisor)
            sign, divisor = -sign, divisor + 2
        return total

    unity = 10 ** (count + 10)
    return str(4 * (4 * inverse_tangent(5, unity) - inverse_tangent(239, unity)))[:count]


def permutation_of_pi() -> list[int]:
    """Return MD2's table: a shuffle whose random numbers are the digits of pi."""
    digits, values = iter(map(int, pi_digits(1000))), list(range(256))

    def below(count: int) -> int:
        while True:
            number, most = next(digits), 10
            for step in (10, 100):
                if count > step:
                    number, most = number * 10 + next(digits), most * 10
            if number < count * (most // count):
                return number % count

    for index in range(1, 256):
        other = below(index + 1)
        values[index], values[other] = values[other], values[index]
    return values


def md2(message: bytes, table_of_pi: list[int]) -> bytes:
    padding = 16 - len(message) % 16
    message += bytes([padding]) * padding
    checksum, last = bytearray(16), 0
    for start in range(0, len(message), 16):
        for index in range(16):
            checksum[index] ^= table_of_pi[message[start + index] ^ last]
            last = checksum[index]
    message, state = message + checksum, bytearray(48)
    for start in range(0, len(message), 16):
        block = message[start : start + 16]
        state[16:32] = block
        state[32:48] = bytes(a ^ b for a, b in zip(block, state[:16], strict=True))
        carry = 0
        for turn in range(18):
            for index in range(48):
                state[index] ^= table_of_pi[carry]
                carry = state[index]
            carry = (carry + turn) % 256
    return bytes(state[:16])


def the_self_test_is_answered_as_the_standards_say() -> None:
    table_of_pi = permutation_of_pi()
    assert md2(b"", table_of_pi).hex() == "8350e5a3e24c153df2275c9f80692773", "RFC 1319"
    assert md2(b"abcdefghijklmnopqrstuvwxyz", table_of_pi).hex() == "4e8ddff3650292ab5a4108c3aa47940b", "RFC 1319"
    answer = (c_uint64 * 2)()
    ask = slot(SELF_TEST, 1, c_uint32, c_uint64, c_void_p)
    assert ask(12040, 99, byref(answer)) == OK
    assert list(answer) == [0x3341181C03CB675C, 0x8ED383AA1F4CD1E8]
    assert ask(12041, 99, byref(answer)) == OK
    assert list(answer) == [0x1841181C03CB675C, 0x8ED383AA1F4CD1E8]
    assert ask(12042, 99, byref(answer)) == OK
    version, uuid, places = c_int(), (ctypes.c_char * 16)(), [c_int(), c_int(), c_int()]
    assert driver.cuDriverGetVersion(byref(version)) == OK
    assert driver.cuDeviceGetUuid_v2(uuid, 0) == OK
    for place, attribute in zip(places, (PCI_DOMAIN, PCI_BUS, PCI_DEVICE), strict=True):
        assert driver.cuDeviceGetAttribute(byref(place), attribute, 0) == OK
    tables = [ctypes.cast(table(name), c_void_p).value or 0 for name in (RUNTIME, SELF_TEST)]
    numbers = (version.value, 12042, os.getpid(), threading.get_ident() & 0xFFFFFFFF)
    message = b"".join(
        [
            *(number.to_bytes(4, "little") for number in numbers),
            *(number.to_bytes(8, "little") for number in (*tables, table(SELF_TEST)[1], 99)),
            bytes(uuid),
            *(place.value.to_bytes(4, "little", signed=True) for place in places),
        ]
    )
    inner = md2(bytes(each ^ 0x36 for each in KEY) + message, table_of_pi)
    assert bytes(answer) == md2(bytes(each ^ 0x5C for each in KEY) + inner, table_of_pi)
    assert ask(12042, 99, None) == INVALID_VALUE


CASES = (
    every_place_of_a_table_can_be_called,
    unknown_tables_are_not_supported,
    a_handle_does_not_make_the_primary_context_active,
    tools_are_told_that_nobody_listens,
    numbers_of_contexts_and_streams_differ,
    values_stay_with_a_context_until_it_ends,
    the_self_test_is_answered_as_the_standards_say,
)

if __name__ == "__main__":
    assert driver.cuInit(0) == OK
    for case in CASES:
        case()
        print(case.__name__)
