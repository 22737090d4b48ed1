from __future__ import annotations

import os
from pathlib import Path

from gputax.worker.probes import driver_library

MAPS = """\
55e0c0000000-55e0c0001000 r--p 00000000 fe:01 12 /usr/bin/python3.11
7f0000000000-7f0000010000 r-xp 00000000 fe:01 34 /opt/my libs/libmine.so
7f0000020000-7f0000030000 rw-p 00000000 00:00 0
7f0000040000-7f0000050000 r-xp 00000000 fe:01 35 /tmp/libcuda.so.1 (deleted)
7f0000060000-7f0000070000 rw-s 00000000 00:05 99 /dev/nvidia0
""".splitlines()


def test_the_file_is_that_of_the_mapping_that_holds_the_address() -> None:
    assert driver_library.mapped_file(MAPS, 0x7F0000000123) == "/opt/my libs/libmine.so"
    assert driver_library.mapped_file(MAPS, 0x7F0000040000) == "/tmp/libcuda.so.1"
    assert driver_library.mapped_file(MAPS, 0x7F0000020001) is None, "anonymous memory is no file"
    assert driver_library.mapped_file(MAPS, 0x1) is None


def test_nothing_is_loaded_by_looking() -> None:
    before = Path("/proc/self/maps").read_text().count("libcuda")
    facts = driver_library.driver_facts()
    assert facts["pid"] == os.getpid()
    assert Path("/proc/self/maps").read_text().count("libcuda") == before


def test_an_open_device_node_is_seen(tmp_path: Path, monkeypatch: object) -> None:
    assert driver_library.open_device_nodes() == []
    node = tmp_path / "nvidia0"
    node.touch()
    original = driver_library.DEVICE_NODES
    try:
        driver_library.DEVICE_NODES = str(node)
        with node.open():
            assert driver_library.open_device_nodes() == [str(node)]
        assert driver_library.open_device_nodes() == []
    finally:
        driver_library.DEVICE_NODES = original
