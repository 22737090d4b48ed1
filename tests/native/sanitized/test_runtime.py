"""What runs on the CUDA runtime, with AddressSanitizer and UndefinedBehaviorSanitizer, direct and behind a proxy.

The graphs, captures, mapped memory and questions of frameworks are in test_graphs.py, threads in test_threads.py.
"""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.native.plain.device import test_null_kernels as null_kernels
from tests.native.plain.runtime import test_fatbin as fatbin
from tests.native.plain.runtime.test_cudart import FATBIN, MINORS, libcudart
from tests.native.proxies import PROGRAMS, Nursery

ASKED_FOR = {"GPUTAX_CUDA_RUNTIME": "1"}
NULL = {"GPUTAX_SOFT_KERNELS": "null"}


@pytest.mark.parametrize("behind", ["device", "proxy"])
def test_the_tables_and_the_reader_of_fat_binaries_make_no_report(sanitized: Nursery, behind: str) -> None:
    proxy = sanitized.proxy() if behind == "proxy" else None
    environment = (sanitized.direct() if proxy is None else proxy.environment()) | ASKED_FOR
    assert len(sanitized.run(PROGRAMS / "tables.py", environment).split()) == 7
    assert sanitized.run(PROGRAMS / "fatbins.py", environment, str(FATBIN), "300") == "done\n"
    assert proxy is None or proxy.stop() == 0


@pytest.mark.parametrize("minor", MINORS)
def test_a_program_on_the_runtime_passes(sanitized: Nursery, minor: str) -> None:
    proxy = sanitized.proxy()
    for environment in (sanitized.direct(), proxy.environment()):
        sanitized.run(PROGRAMS / "runtime.py", environment | ASKED_FOR, str(libcudart(minor)), str(FATBIN))
    assert proxy.stop() == 0


@pytest.mark.parametrize(
    "test",
    [
        fatbin.test_a_tenants_wrapper_is_not_followed_by_the_proxy,
        fatbin.test_a_library_whose_image_the_program_keeps_travels_when_it_is_used,
        null_kernels.test_the_same_behind_the_proxy,
    ],
    ids=lambda test: test.__name__,
)
def test_the_plain_test_passes(sanitized: Nursery, test: Callable[[Nursery], None]) -> None:
    test(sanitized)


@pytest.mark.parametrize("behind", ["device", "proxy"])
def test_a_library_is_unloaded_from_every_context(sanitized: Nursery, behind: str) -> None:
    fatbin.test_a_library_is_unloaded_from_every_context(sanitized, behind)


def test_null_kernels_are_read_on_the_device(sanitized: Nursery) -> None:
    words = (str(null_kernels.IMAGE), *null_kernels.NAMES)
    null_kernels.check(json.loads(sanitized.run(PROGRAMS / "null_kernels.py", sanitized.direct() | NULL, *words)))
