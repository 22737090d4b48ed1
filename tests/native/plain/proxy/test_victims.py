"""Every limit is exceeded by one tenant, with an error of CUDA for it, and another tenant beside it does not notice."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.native.plain.proxy.test_host_memory import BEGIN, Victim

# For a second: what goes over the limit, again and again.
AGAIN = """
import time
until, found = time.monotonic() + 1, set()
while time.monotonic() < until:
    found.add({call})
print(json.dumps(sorted(found)))
"""
FULL, GONE = "CUDA_ERROR_OUT_OF_MEMORY", "CUDA_ERROR_SYSTEM_NOT_READY"
LIMITS: dict[str, tuple[tuple[str, ...], str, Any]] = {
    "memory": (("--memory-mb", "32"), AGAIN.format(call="error(cu.cuMemAlloc(33 << 20))"), [FULL]),
    "streams": (
        ("--streams", "2"),
        "held = [ok(cu.cuStreamCreate(0)) for _ in range(2)]" + AGAIN.format(call="error(cu.cuStreamCreate(0))"),
        [FULL],
    ),
    "modules": (
        ("--modules", "1"),
        'held = module("vector")' + AGAIN.format(call='error(cu.cuModuleLoadData(image("vector")))'),
        [FULL],
    ),
    "module code": (
        ("--memory-mb", "8"),
        AGAIN.format(call="error(cu.cuModuleLoadData(b';' * (1 << 20) + b'\\0'))"),
        [FULL],
    ),
    "launches": (
        ("--launches-per-s", "50"),
        'made = kernel("ret;")' + AGAIN.format(call="attempt(made)"),
        ["CUDA_SUCCESS"],  # it waits instead
    ),
    "connections": (
        ("--connections", "4"),
        """
import os, socket
held = [socket.socket(socket.AF_UNIX) for _ in range(20)]
for each in held:
    each.settimeout(1)
    each.connect(os.environ["GPUTAX_PROXY_SOCKET"])
def refused(each):
    try:
        return b"all the connections that it may have" in each.recv(4096)
    except TimeoutError:
        return False
print(json.dumps(sum(map(refused, held))))
""",
        17,
    ),
    "idle time": (
        ("--idle-s", "1"),
        "import time; time.sleep(2.5); print(json.dumps(error(cu.cuCtxSynchronize())))",
        GONE,
    ),
    "time of a call": (
        ("--call-s", "1"),
        'print(json.dumps(attempt(kernel("again: bra again;"), threads=32)))',
        GONE,
    ),
}


@pytest.mark.parametrize("limit", list(LIMITS))
def test_beside_a_tenant_over_its_limit_a_victim_goes_on(nursery: Any, limit: str) -> None:
    options, program, expected = LIMITS[limit]
    proxy = nursery.proxy("--identity", "process", *options, device={"GPUTAX_SOFT_TIMEOUT_S": "60"})
    victim = Victim(nursery, proxy)
    assert json.loads(nursery.run(BEGIN + program, proxy.environment())) == expected
    victim.end_unharmed()
