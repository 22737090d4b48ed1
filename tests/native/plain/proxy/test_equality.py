"""The same programs give the same bytes on the device and behind the proxy, alone and beside seven others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

SUITE = Path(__file__).parents[2] / "programs" / "suite.py"


@pytest.mark.parametrize("transport", ["shm", "unix-socket"])
def test_the_whole_suite_is_byte_equal_direct_and_proxied(nursery: Any, transport: str) -> None:
    proxy = nursery.proxy()
    expected = nursery.run(SUITE, nursery.direct(), "5")
    assert len(expected.splitlines()) == 10
    assert nursery.run(SUITE, proxy.environment(transport), "5").splitlines() == expected.splitlines()
    ended = proxy.wait_for(lambda status: len(status["ended_tenants"]) == 1)["ended_tenants"][0]
    assert ended["transport"] == transport
    assert ended["ended"] == "left"
    assert ended["memory_bytes"] == 0


def test_eight_tenants_at_once_get_what_each_gets_alone(nursery: Any) -> None:
    proxy = nursery.proxy()
    cases = ("vectors", "sums_and_transposes", "copies_of_every_size", "streams_and_events", "mistakes")
    together = [nursery.start(SUITE, proxy.environment(), str(seed), *cases) for seed in range(8)]
    outputs = [process.communicate(timeout=120) for process in together]
    assert [process.returncode for process in together] == [0] * 8, outputs
    for seed, (output, _) in enumerate(outputs):
        assert output == nursery.run(SUITE, nursery.direct(), str(seed), *cases)
    proxy.wait_for(lambda status: len(status["ended_tenants"]) == 8 and status["totals"]["memory_bytes"] == 0)
    assert proxy.stop() == 0


@pytest.mark.parametrize(("transport", "maps"), [("shm", "1\n"), ("unix-socket", "0\n")])
def test_the_device_says_that_it_maps_host_memory_only_where_it_can(nursery: Any, transport: str, maps: str) -> None:
    proxy = nursery.proxy()
    program = (
        "import gpu; gpu.begin(); print(gpu.ok(gpu.driver.cuDeviceGetAttribute(gpu.driver.CUdevice_attribute(19), 0)))"
    )
    assert nursery.run(program, proxy.environment(transport)) == maps
