"""A proxy that starts while somebody holds what it needs: it says so and ends."""

from __future__ import annotations

import fcntl
import os
import select
import signal
import subprocess
from pathlib import Path
from typing import Any

from tests.native.proxies import clean_environment

PATIENCE_S = 20


def start(nursery: Any, path: Path) -> subprocess.Popen[str]:
    backend = nursery.build / "software" / "libcuda.so.1"
    command = [str(nursery.build / "gputax-proxy"), "--socket", str(path), "--backend", str(backend)]
    process = subprocess.Popen(
        command, env=clean_environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    nursery.processes.append(process)
    return process


def test_a_tenant_that_locks_the_folder_does_not_keep_the_proxy_from_starting(nursery: Any, tmp_path: Path) -> None:
    """To lock a folder it is enough to be able to read it, as every tenant can."""
    folder = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        process = start(nursery, tmp_path / "proxy.sock")
        assert process.stdout is not None
        ready, _, _ = select.select([process.stdout], [], [], PATIENCE_S)
        assert ready, "it waits for the lock"
        assert '"ready": true' in process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0
    finally:
        os.close(folder)


def test_the_lock_is_a_file_that_only_the_proxys_user_can_open_and_it_does_not_stay(
    nursery: Any, tmp_path: Path
) -> None:
    proxy = nursery.proxy()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["proxy.sock", "proxy.sock.status"]
    assert proxy.stop() == 0
    assert list(tmp_path.iterdir()) == []


def test_a_proxy_that_another_one_keeps_from_starting_says_so_and_ends(nursery: Any, tmp_path: Path) -> None:
    path = tmp_path / "proxy.sock"
    lock = os.open(f"{path}.lock", os.O_WRONLY | os.O_CREAT, 0o200)
    try:
        fcntl.lockf(lock, fcntl.LOCK_EX)
        process = start(nursery, path)
        output, errors = process.communicate(timeout=PATIENCE_S)
    finally:
        os.close(lock)
    assert process.returncode == 1
    assert output == ""
    assert errors == f"gputax-proxy: {path}: another server is starting: it holds {path}.lock\n"
    assert not path.exists()


def test_a_lock_file_of_a_proxy_that_was_killed_is_taken_over(nursery: Any, tmp_path: Path) -> None:
    (tmp_path / "proxy.sock.lock").touch(0o200)
    proxy = nursery.proxy()
    proxy.process.send_signal(signal.SIGTERM)
    assert proxy.process.wait(PATIENCE_S) == 0


def test_a_link_in_place_of_the_lock_file_is_not_followed(nursery: Any, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    (tmp_path / "proxy.sock.lock").symlink_to(victim)
    process = start(nursery, tmp_path / "proxy.sock")
    _, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1
    assert "proxy.sock.lock" in errors
    assert not victim.exists()


def test_a_proxy_that_ends_leaves_its_successors_sockets(nursery: Any, tmp_path: Path) -> None:
    """Somebody removed the first one's sockets by hand, and another proxy serves the path by now."""
    first = nursery.proxy()
    for path in tmp_path.iterdir():
        path.unlink()
    second = nursery.proxy()
    assert first.stop() == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["proxy.sock", "proxy.sock.status"]
    nursery.run("import gpu; gpu.begin()", second.environment())
    assert second.stop() == 0
    assert list(tmp_path.iterdir()) == []
