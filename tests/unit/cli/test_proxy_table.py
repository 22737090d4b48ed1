from __future__ import annotations

import io
import os
from pathlib import Path

import pytest

from gputax.cli import proxy
from gputax.errors import PreflightError
from gputax.report.exporters.console_text import write_table
from gputax.report.machine_tables import tenants_table

TENANT = {
    "id": 3, "pid": 77, "uid": 1000, "transport": "shm", "memory_bytes": 3 << 20, "memory_limit_bytes": 512 << 20,
    "calls": {"cuMemAlloc_v2": 1200, "cuInit": 0, "cuMemFree_v2": 3, "cuLaunchKernel": 9, "cuCtxSynchronize": 2},
    "errors": 1,
}  # fmt: skip


def row_of(tenant: dict[str, object]) -> tuple[str, ...]:
    (row,) = tenants_table({"tenants": [tenant]}).rows
    return tuple(cell.text for cell in row)


def test_a_tenant_in_one_row() -> None:
    row = row_of(TENANT)
    assert row[:8] == ("3", "77", "1000", "shm", "3.0", "512", "1,214", "1")
    assert row[8] == "cuMemAlloc_v2 1,200, cuLaunchKernel 9, cuMemFree_v2 3"


def test_a_tenant_without_limit_or_calls() -> None:
    row = row_of({"id": 1, "pid": 2, "uid": 0, "transport": "unix-socket"})
    assert row[4:] == ("0.0", "all", "0", "0", "")


def test_a_tenant_in_a_xen_guest_is_known_by_its_domain() -> None:
    assert row_of({"id": 1, "pid": 2, "uid": 0, "transport": "xen", "domain": 7, "pod": "a"})[3] == "xen, domain 7"


@pytest.mark.parametrize("width", [40, 60, 80, 140])
def test_the_status_says_what_is_served_and_who_is_connected(width: int) -> None:
    status = {
        "pid": 5, "backend": "/native/libcuda.so.1", "device": "gputax software device", "transports": ["shm"],
        "wait_policy": "adaptive", "cores_free": 1.5, "tenants": [TENANT], "ended_tenants": [{}, {}],
        "confinement": ["no_new_privs", "seccomp"],
    }  # fmt: skip
    assert proxy.served(status) == [
        "GPU proxy 5: gputax software device, through /native/libcuda.so.1",
        "waiting: adaptive; free cores: 1.5; transports: shm",
        "workers are confined by: no_new_privs, seccomp",
    ]
    assert proxy.served({})[-1] == "workers are confined by: nothing"
    stream = io.StringIO()
    write_table(tenants_table(status), stream, width)
    assert "1 tenant connected, 2 ended" in " ".join(stream.getvalue().split())
    assert max(map(len, stream.getvalue().splitlines())) <= width


def test_the_default_socket_is_the_users_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert proxy.default_socket() == tmp_path / "gputax/proxy.sock"
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    assert str(os.getuid()) in proxy.default_socket().parent.name


def test_a_directory_that_others_can_write_to_is_refused(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir(mode=0o700)
    proxy._refuse_foreign(mine)
    mine.chmod(0o777)
    with pytest.raises(PreflightError, match="is not private"):
        proxy._refuse_foreign(mine)
    (tmp_path / "link").symlink_to(mine)
    with pytest.raises(PreflightError, match="is not private"):
        proxy._refuse_foreign(tmp_path / "link")
