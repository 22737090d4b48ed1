"""What a worker can still do that its tenant has taken over, asked from inside, with each layer alone and with none."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

SOURCE = Path(__file__).parents[2] / "backends/breakout.c"
WAITING = """
import sys
import gpu
from gpu import *
gpu.begin()
print(describe()["tenant"], flush=True)
sys.stdin.readline()
"""
BREAKS_OUT = """
import sys
import gpu
from gpu import *
from cuda.bindings import driver as cu
gpu.begin()
print(error(cu.cuMemAlloc(int(sys.argv[1]))))
"""
LIMITS = ("descriptor_limit", "memory_limit", "thread_limit")
LANDLOCK = ("landlock_files", "landlock_network", "landlock_scope")
ALL = (
    "no_new_privs", "not_dumpable", "no_core", *LIMITS, "no_capabilities", "own_user", *LANDLOCK, "seccomp",
)  # fmt: skip
ATTEMPTS = (
    "thread", "many_threads", "many_files", "huge_memory", "code_that_is_written", "read_file", "write_file", "tcp",
    "status_socket", "abstract_socket", "process", "signal_broker", "signal_worker", "memory_file_of_worker",
    "memory_of_worker", "trace_worker", "be_root", "namespace", "exec",
)  # fmt: skip
LIMITED = {"many_files": "EMFILE", "huge_memory": "ENOMEM", "many_threads": "EAGAIN"}
# What is refused when these measures alone are in force; all else succeeds.
LAYERS = {
    "none": ((), {}),
    "limits and user": (
        (*LIMITS, "no_new_privs", "no_capabilities", "own_user"),
        LIMITED
        | dict.fromkeys(("status_socket", "memory_file_of_worker"), "EACCES")
        | dict.fromkeys(
            ("signal_broker", "signal_worker", "memory_of_worker", "trace_worker", "be_root", "namespace"), "EPERM"
        ),
    ),
    "landlock": (
        ("no_new_privs", *LANDLOCK),
        dict.fromkeys(("read_file", "write_file", "memory_file_of_worker", "tcp", "exec"), "EACCES")
        | dict.fromkeys(
            ("abstract_socket", "signal_broker", "signal_worker", "memory_of_worker", "trace_worker"), "EPERM"
        ),
    ),
    "seccomp": (
        ("no_new_privs", "seccomp"),
        dict.fromkeys((each for each in ATTEMPTS if each not in ("thread", *LIMITED)), "EPERM"),
    ),
    "all": (
        ALL,
        LIMITED | dict.fromkeys((each for each in ATTEMPTS if each not in ("thread", *LIMITED)), "EPERM"),
    ),
}

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="users of their own need root")


@pytest.fixture(scope="session")
def backends(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The backend that breaks out, once as a software device and once as a driver."""
    folder = tmp_path_factory.mktemp("breakout")
    made = {}
    for kind, name in (("software", "gputax software device (breakout)"), ("driver", "a driver")):
        made[kind] = folder / f"{kind}.so"
        words = ["gcc", "-O1", "-D_GNU_SOURCE", f'-DDEVICE_NAME="{name}"', "-shared", "-fPIC", "-pthread"]
        subprocess.run([*words, "-o", str(made[kind]), str(SOURCE)], check=True)
    return made


@pytest.fixture
def listeners() -> Iterator[dict[str, str]]:
    """Sockets that anybody may connect to, as settings of the backend."""
    with socket.create_server(("127.0.0.1", 0)) as tcp, socket.socket(socket.AF_UNIX) as abstract:
        name = f"gputax-test-{os.getpid()}"
        abstract.bind(f"\0{name}")
        abstract.listen()
        yield {"GPUTAX_SOFT_TEST_PORT": str(tcp.getsockname()[1]), "GPUTAX_SOFT_TEST_ABSTRACT": name}


def attempts(nursery: Any, backend: Path, settings: dict[str, str], *options: str) -> tuple[list[str], dict[str, str]]:
    """What is in force, and what the kernel said to each attempt."""
    status = nursery.folder / "proxy.sock.status"
    device = settings | {
        "GPUTAX_SOFT_TEST_FILE": f"/tmp/gputax-test-{os.getpid()}",
        "GPUTAX_SOFT_TEST_STATUS": str(status),
    }
    proxy = nursery.proxy(*options, device=device, backend=backend)
    waiting = nursery.start(WAITING, proxy.environment())
    waiting.stdout.readline()
    (tenant,) = proxy.status()["tenants"]
    nursery.start(BREAKS_OUT, proxy.environment(), str(tenant["worker"])).communicate(timeout=60)
    proxy.process.kill()
    lines = proxy.process.communicate()[1].splitlines()
    Path(device["GPUTAX_SOFT_TEST_FILE"]).unlink(missing_ok=True)
    assert any(line.startswith("attempts ") for line in lines), lines
    (found,) = [json.loads(line.partition(" ")[2]) for line in lines if line.startswith("attempts ")]
    exec_said = [line.partition(" ")[2] for line in lines if line.startswith("exec ")]
    return tenant["confinement"], found | {"exec": exec_said[0] if exec_said else "ok"}


@pytest.mark.parametrize("layer", LAYERS)
def test_each_layer_refuses_what_it_is_for_and_nothing_without_it(
    nursery: Any, backends: dict[str, Path], listeners: dict[str, str], layer: str
) -> None:
    kept, refused = LAYERS[layer]
    off = [each for each in ALL if each not in kept]
    options = ["--unconfined", ",".join(off)] if off else []
    in_force, said = attempts(nursery, backends["software"], listeners, *options)
    assert in_force == [each for each in ALL if each in kept]
    assert said == {each: refused.get(each, "ok") for each in ATTEMPTS}


def test_a_driver_keeps_more_calls_but_no_programs_processes_or_network(
    nursery: Any, backends: dict[str, Path], listeners: dict[str, str]
) -> None:
    in_force, said = attempts(nursery, backends["driver"], listeners)
    assert {"seccomp", *LANDLOCK, "no_capabilities"} <= set(in_force)
    assert "own_user" not in in_force, "only where the operator asks for it"
    open_to_it = {each for each, answer in said.items() if answer == "ok"}
    assert open_to_it == {"thread", "many_threads", "many_files", "huge_memory", "read_file"}


def user_of(worker: int) -> int:
    """Its user, which it has in every respect, as its only group."""
    lines = Path(f"/proc/{worker}/status").read_text().splitlines()
    facts = {name: words.split() for name, _, words in (line.partition(":") for line in lines)}
    (user,) = {*facts["Uid"], *facts["Gid"]}
    assert facts["Groups"] == [] or user == "0"
    return int(user)


def test_users_can_be_asked_for_and_switched_off(nursery: Any) -> None:
    program = "import gpu, sys; gpu.begin(); print(flush=True); sys.stdin.readline()"

    def user_of_a_worker(*options: str, name: str) -> int:
        proxy = nursery.proxy(*options, name=name)
        nursery.start(program, proxy.environment()).stdout.readline()
        return user_of(proxy.status()["tenants"][0]["worker"])

    assert user_of_a_worker(name="chosen") == 60600
    assert user_of_a_worker("--worker-uids", "70000", name="asked") == 70000
    assert user_of_a_worker("--worker-uids", "0", name="own") == os.geteuid()


# Becomes another program, with the capabilities that a container has from which all were taken.
WITHOUT_CAPABILITIES = """
import ctypes, os, sys
libc = ctypes.CDLL(None)
PR_CAPBSET_DROP = 24
for capability in range(64):
    libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""


def test_root_without_capabilities_keeps_its_user_and_has_all_the_rest(nursery: Any) -> None:
    proxy = nursery.proxy(within=(sys.executable, "-c", WITHOUT_CAPABILITIES))
    assert "CapPrm:\t0000000000000000\n" in Path(f"/proc/{proxy.process.pid}/status").read_text()
    victim = nursery.start(WAITING, proxy.environment())
    tenant = int(victim.stdout.readline())
    (seen,) = proxy.status()["tenants"]
    assert seen["confinement"] == [each for each in ALL if each not in ("own_user", "thread_limit")]
    assert user_of(seen["worker"]) == 0
    assert json.loads(proxy.ask_status(f"evict {tenant}\n".encode())) == {"evicted": tenant}
    proxy.wait_for(lambda status: status["tenants"] == [])


def test_an_unknown_confinement_is_a_usage_error(nursery: Any) -> None:
    words = [nursery.build / "gputax-proxy", "--socket", "s", "--backend", "b", "--unconfined", "seccomp,walls"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "walls is not a confinement" in done.stderr


def test_two_workers_have_two_users(nursery: Any) -> None:
    proxy = nursery.proxy()
    for _ in range(2):
        nursery.start(WAITING, proxy.environment()).stdout.readline()
    workers = [each["worker"] for each in proxy.status()["tenants"]]
    assert {user_of(worker) for worker in workers} == {60600, 60601}
