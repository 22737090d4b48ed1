"""The runtime's tables and the reader of fat binaries with sanitizers, on the software device and behind a proxy."""

from __future__ import annotations

import pytest

from tests.native.plain.runtime.test_cudart import FATBIN, MINORS, libcudart
from tests.native.proxies import PROGRAMS, Nursery


@pytest.mark.parametrize("behind", ["device", "proxy"])
def test_a_program_on_the_runtime_passes(sanitized: Nursery, behind: str) -> None:
    proxy = sanitized.proxy() if behind == "proxy" else None
    environment = sanitized.direct() if proxy is None else proxy.environment()
    environment |= {"GPUTAX_CUDA_RUNTIME": "1"}
    assert len(sanitized.run(PROGRAMS / "tables.py", environment).split()) == 7
    assert sanitized.run(PROGRAMS / "fatbins.py", environment, str(FATBIN), "300") == "done\n"
    for minor in (MINORS[0], MINORS[-1]):
        sanitized.run(PROGRAMS / "runtime.py", environment, str(libcudart(minor)), str(FATBIN))
    assert proxy is None or proxy.stop() == 0
