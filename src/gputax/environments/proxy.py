"""The GPU proxy process: start it, read its status, stop it; and the evidence that all driver calls went through it."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from gputax.environments.driver import (
    LIBVGPU,
    PROXY_PROGRAM,
    driver_library,
    library_variables,
    native_part,
    refuse_without_runtime,
)
from gputax.environments.environment import Described, Evidence
from gputax.environments.process import ChildProcess, own_directory
from gputax.errors import GputaxError, PreflightError, UsageError, unknown_name
from gputax.plan.driver import DriverChoice
from gputax.plan.environment import PROXY

SOCKET_VARIABLE = "GPUTAX_PROXY_SOCKET"
TRANSPORT_VARIABLE = "GPUTAX_PROXY_TRANSPORT"
DEFAULT_TRANSPORT = "shm"
SPIN_VARIABLE = "GPUTAX_PROXY_SPIN"
SPIN = ("auto", "always", "never")
IDENTITIES = ("group", "process")
READY_TIMEOUT_S = 20.0
END_TIMEOUT_S = 5.0
STATUS_TIMEOUT_S = 10.0
KEPT_MESSAGE_BYTES = 4096
LAST_WORDS_S = 2.0
LONGEST_SOCKET_NAME = 107
MAX_STATUS_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True)
class ProxyOptions:
    """The proxy's command-line options; 0 and "" keep its defaults."""

    backend: Path
    memory_mb: int = 0
    streams: int = 0
    modules: int = 0
    launches_per_s: int = 0
    connections: int = 0
    idle_s: int = 0
    call_s: int = 0
    identity: str = ""
    spin: str = ""
    mode: str = ""
    places: int = 0
    shares: str = ""
    xen_socket: str = ""
    worker_uids: str = ""
    unconfined: str = ""

    def words(self, path: Path) -> list[str]:
        """Return the command line."""
        given = {
            "--memory-mb": self.memory_mb,
            "--streams": self.streams,
            "--modules": self.modules,
            "--launches-per-s": self.launches_per_s,
            "--connections": self.connections,
            "--idle-s": self.idle_s,
            "--call-s": self.call_s,
            "--identity": self.identity,
            "--spin": self.spin,
            "--mode": self.mode,
            "--places": self.places,
            "--shares": self.shares,
            "--xen-socket": self.xen_socket,
            "--worker-uids": self.worker_uids,
            "--unconfined": self.unconfined,
        }
        options = [word for name, value in given.items() if value for word in (name, str(value))]
        return [str(native_part(PROXY_PROGRAM)), "--socket", str(path), "--backend", str(self.backend), *options]


@dataclass(frozen=True)
class ProxyAddress:
    """A proxy that listens on a socket."""

    socket: Path

    @property
    def status_socket(self) -> Path:
        """The socket that serves its status."""
        return self.socket.with_name(self.socket.name + ".status")

    def place(self, number: int) -> ProxyAddress:
        """Return one of its places, from 1: its tenants have a share of their own."""
        return ProxyAddress(self.socket.parent / "places" / str(number) / self.socket.name)

    def status(self) -> dict[str, Any]:
        """Return its status document."""
        try:
            document = json.loads(_exchange(self.status_socket, b"\n"))
        except (OSError, ValueError) as error:
            raise self._silent(error) from error
        if not isinstance(document, dict):
            raise self._silent(ValueError("not a JSON object"))
        return document

    def prometheus(self) -> str:
        """Return its counters as Prometheus text."""
        try:
            answer = _exchange(self.status_socket, b"GET /metrics HTTP/1.0\r\n\r\n").decode(errors="replace")
        except OSError as error:
            raise self._silent(error) from error
        return answer.partition("\r\n\r\n")[2]

    def evict(self, tenant: int) -> None:
        """End a tenant: its worker is killed, and its next call is an error."""
        try:
            answer = json.loads(_exchange(self.status_socket, f"evict {tenant}\n".encode()))
        except (OSError, ValueError) as error:
            raise self._silent(error) from error
        if answer.get("evicted") != tenant:
            raise UsageError(
                f"tenant {tenant} was not evicted: {answer.get('error')}",
                where=str(self.status_socket),
                next_step="`gputax proxy status` lists the tenants",
            )

    def _silent(self, error: Exception) -> PreflightError:
        return PreflightError(
            f"no GPU proxy answers: {error}",
            where=str(self.status_socket),
            next_step="start one with `gputax proxy start`, or give its socket with --socket",
        )


def _exchange(path: Path, request: bytes) -> bytes:
    """Send one request and read the whole reply."""
    parts: list[bytes] = []
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(STATUS_TIMEOUT_S)
        connection.connect(str(path))
        connection.sendall(request)
        while sum(map(len, parts)) < MAX_STATUS_BYTES and (data := connection.recv(65536)):
            parts.append(data)
    return b"".join(parts)


@contextmanager
def own_proxy(options: ProxyOptions, environ: Mapping[str, str]) -> Iterator[ProxyAddress]:
    """Run a new proxy in a private directory; nothing is left afterwards."""
    with own_directory("proxy", _place_for_sockets()) as directory:
        address = ProxyAddress(directory / "s")
        # The coordinator may be killed, and an orphaned proxy would keep the device.
        process = ChildProcess(options.words(address.socket), dict(environ), ends_with_parent=True)
        drained = [Drain(process.stderr)]
        try:
            _wait_until_ready(process, drained[0])
            drained.append(Drain(process.stdout))
            yield address
        finally:
            _end_proxy(process, drained)


def _place_for_sockets() -> Path:
    """Return TMPDIR, or /tmp if a socket path below TMPDIR would be too long for the kernel (107 bytes)."""
    place = Path(tempfile.gettempdir())
    longest = place / "gputax-proxy-12345678/s.status"
    return place if len(os.fsencode(longest)) <= LONGEST_SOCKET_NAME else Path("/tmp")


class Drain:
    """Reads a pipe and keeps its last words: a tenant can make a proxy write, and a full pipe stops it."""

    def __init__(self, pipe: IO[bytes] | None) -> None:
        assert pipe is not None
        self._descriptor = pipe.fileno()
        self._kept = bytearray()
        self._thread = threading.Thread(target=self._read, name="proxy-messages", daemon=True)
        self._thread.start()

    def _read(self) -> None:
        with contextlib.suppress(OSError):
            while data := os.read(self._descriptor, 65536):
                self._kept += data
                del self._kept[:-KEPT_MESSAGE_BYTES]

    def last_words(self) -> str:
        """Wait until the pipe ends with its process, and return the last part of what was written."""
        self._thread.join(LAST_WORDS_S)
        return bytes(self._kept).decode(errors="replace")


def _wait_until_ready(process: ChildProcess, messages: Drain) -> dict[str, Any]:
    """Read the line that a proxy prints when it is ready; if it exits or times out, raise with its stderr."""
    assert process.stdout is not None
    deadline = time.monotonic() + READY_TIMEOUT_S
    line = b""
    while b"\n" not in line:
        ready, _, _ = select.select([process.stdout], [], [], max(0.0, deadline - time.monotonic()))
        data = os.read(process.stdout.fileno(), 4096) if ready else b""
        if not data:
            _end_process(process)
            raise not_ready(messages.last_words())
        line += data
    return read_ready(line.partition(b"\n")[0])  # what follows at once is the first of its messages


def read_ready(line: bytes) -> dict[str, Any]:
    """Check the line that reports that the proxy is ready."""
    try:
        ready = json.loads(line)
    except ValueError as error:
        raise not_ready(line.decode(errors="replace")) from error
    if not isinstance(ready, dict) or ready.get("ready") is not True:
        raise not_ready(line.decode(errors="replace"))
    return ready


def not_ready(words: str) -> PreflightError:
    """Return the error for a proxy that did not start."""
    return PreflightError(
        f"the GPU proxy did not start: {words.strip() or 'no output'}",
        where="gputax-proxy",
        next_step="check the backend: `gputax proxy start --backend PATH --foreground` shows more",
    )


def _end_proxy(process: ChildProcess, drained: Sequence[Drain]) -> None:
    """Stop it with SIGTERM, kill it if it does not exit in time, and close its pipes."""
    _end_process(process)
    for each in drained:
        each.last_words()
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()


def _end_process(process: ChildProcess) -> None:
    if process.poll() is None:
        os.kill(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(END_TIMEOUT_S)
    process.kill()
    process.wait()


def running_proxy(environ: Mapping[str, str]) -> ProxyAddress | None:
    """Return the proxy selected by the variable; if it does not answer, fail instead of starting another."""
    given = environ.get(SOCKET_VARIABLE)
    if not given:
        return None
    address = ProxyAddress(Path(given))
    address.status()
    return address


@dataclass(frozen=True)
class UsedProxy:
    """A proxy that local workers use: where it is, what they should see of it, and a note on its device."""

    address: ProxyAddress
    intended: Intended
    note: str = ""

    @contextmanager
    def surroundings(self) -> Iterator[dict[str, str]]:
        """Yield the environment variables with which a local program uses the proxy."""
        with library_variables(Path(self.intended.libvgpu), os.environ) as variables:
            yield {**variables, SOCKET_VARIABLE: str(self.address.socket)}

    def evidence(self, described: Described) -> Evidence:
        """Compare the worker's report on its driver with the proxy's status."""
        try:
            status = self.address.status()
        except GputaxError as error:
            return Evidence.of(PROXY, [error.what])
        return proxy_evidence(described.driver or {}, status, self.intended)


@contextmanager
def used_proxy(driver: DriverChoice, memory_mb: int = 0, *, same_pid_namespace: bool = True) -> Iterator[UsedProxy]:
    """Yield the proxy selected by the variable, else a new one that ends with this context."""
    refuse_without_runtime(driver, os.environ)
    libvgpu, transport = str(native_part(LIBVGPU).resolve()), transport_of(os.environ)
    running = running_proxy(os.environ)
    if running is not None:
        yield UsedProxy(running, Intended(libvgpu, transport, same_pid_namespace=same_pid_namespace))
        return
    library = driver_library(driver)
    # Its tenants are processes of one user who measures them, so that each has a quota of its own.
    options = ProxyOptions(library.path, memory_mb=memory_mb, identity="process", spin=spin_of(os.environ))
    with own_proxy(options, os.environ) as address:
        yield UsedProxy(address, Intended(libvgpu, transport, str(library.path), same_pid_namespace), library.note)


@contextmanager
def divided_proxy(driver: DriverChoice, percents: Sequence[float]) -> Iterator[tuple[UsedProxy, ...]]:
    """Yield a new proxy by its places, one for each share of the device; it ends with this context."""
    refuse_without_runtime(driver, os.environ)
    libvgpu, transport = str(native_part(LIBVGPU).resolve()), transport_of(os.environ)
    library = driver_library(driver)
    shares = ",".join(f"{percent:.2f}" for percent in percents)
    options = ProxyOptions(library.path, shares=shares, identity="process", spin=spin_of(os.environ))
    with own_proxy(options, os.environ) as address:
        intended = Intended(libvgpu, transport, str(library.path))
        numbers = range(1, len(percents) + 1)
        yield tuple(UsedProxy(address.place(number), intended, library.note) for number in numbers)


def spin_of(environ: Mapping[str, str]) -> str:
    """Return the wait policy of a new proxy and its tenants."""
    given = environ.get(SPIN_VARIABLE) or SPIN[0]
    if given not in SPIN:
        raise unknown_name(f"value of {SPIN_VARIABLE}", given, SPIN)
    return given


def transport_of(environ: Mapping[str, str]) -> str:
    """Return the transport that a program with these variables uses to reach the proxy."""
    return environ.get(TRANSPORT_VARIABLE) or DEFAULT_TRANSPORT


MOST_SHOWN = 3


@dataclass(frozen=True)
class Intended:
    """What the environment set up; empty values are decided by a proxy that was already running."""

    libvgpu: str
    transport: str
    backend: str = ""
    same_pid_namespace: bool = True
    """Whether worker and proxy share a process namespace; two pods do not."""


def proxy_evidence(driver: Mapping[str, Any], status: Mapping[str, Any], intended: Intended) -> Evidence:
    """Compare the worker's report with the proxy's status; `active` only if they agree."""
    if driver.get("program") is not None:
        return _program_evidence(driver["program"], status, intended)
    vgpu = driver.get("vgpu") or {}
    tenant = tenant_of(status, vgpu.get("tenant"))
    worker_calls, proxy_calls = _counts(vgpu.get("calls")), _counts((tenant or {}).get("calls"))
    reasons = [
        *_way(driver, vgpu, intended),
        *_tenant(driver, vgpu, tenant, intended),
        *(_calls(worker_calls, proxy_calls) if tenant is not None else []),
        *_backend(vgpu, status, intended),
    ]
    facts = {
        "library": driver.get("library"),
        "backend": status.get("backend"),
        "device": status.get("device"),
        "tenant": vgpu.get("tenant"),
        "transport": vgpu.get("transport"),
        "wait_policy": vgpu.get("wait_policy") or status.get("wait_policy"),
        "device_nodes": list(driver.get("device_nodes") or ()),
        "calls_by_worker": sum(worker_calls.values()),
        "calls_by_proxy": sum(proxy_calls.values()),
        "calls": proxy_calls,
        "confinement": list((tenant or {}).get("confinement") or ()),
        "proxy_pid": status.get("pid"),
        "pid": driver.get("pid"),
        **({"software": status["software"]} if status.get("software") else {}),
        **({"cuda_runtime": driver["cuda_runtime"]} if driver.get("cuda_runtime") else {}),
    }
    return Evidence.of(PROXY, reasons, facts, list_reasons=True)


def _program_evidence(program: Mapping[str, Any], status: Mapping[str, Any], intended: Intended) -> Evidence:
    """Return the evidence for a program of the user's: it reports no calls, so those that the proxy counted decide.

    A proxy that was started for this worker, and the place of a pod, show no other tenants; of any other proxy those
    with the program's process ids count.
    """
    alone = bool(intended.backend) or not intended.same_pid_namespace
    pids = set(program.get("pids") or ())
    every = (*(status.get("tenants") or ()), *(status.get("ended_tenants") or ()))
    tenants = [each for each in every if alone or each.get("pid") in pids]
    calls = sum(sum(_counts(each.get("calls")).values()) for each in tenants)
    reasons = _backend({}, status, intended)
    if not tenants:
        reasons.append("no process of the program is a tenant of the proxy: it did not call the driver")
    elif not calls:
        reasons.append("no call went through the proxy")
    if nodes := program.get("device_nodes"):
        reasons.append(f"the program itself opened {', '.join(nodes)}")
    facts = {
        "backend": status.get("backend"),
        "device": status.get("device"),
        "wait_policy": status.get("wait_policy"),
        "tenants": [each.get("id") for each in tenants],
        "calls_by_proxy": calls,
        "proxy_pid": status.get("pid"),
        "program_pids": sorted(pids),
    }
    return Evidence.of(PROXY, reasons, facts, list_reasons=True)


def tenant_of(status: Mapping[str, Any], number: Any) -> Mapping[str, Any] | None:
    """Return the proxy's record of a tenant, running or ended."""
    for tenant in (*(status.get("tenants") or ()), *(status.get("ended_tenants") or ())):
        if number is not None and tenant.get("id") == number:
            return dict(tenant)
    return None


def _way(driver: Mapping[str, Any], vgpu: Mapping[str, Any], intended: Intended) -> list[str]:
    reasons = []
    if driver.get("library") != intended.libvgpu:
        reasons.append(f"the worker loaded {driver.get('library') or 'no driver'}, not libvgpu ({intended.libvgpu})")
    if not vgpu:
        reasons.append("the worker's driver reports no connection to a proxy")
    nodes = driver.get("device_nodes") or ()
    if nodes:
        reasons.append(f"the worker itself opened {', '.join(nodes)}")
    if vgpu and vgpu.get("transport") != intended.transport:
        reasons.append(f"the transport is {vgpu.get('transport')}, not {intended.transport}")
    return reasons


def _tenant(
    driver: Mapping[str, Any], vgpu: Mapping[str, Any], tenant: Mapping[str, Any] | None, intended: Intended
) -> list[str]:
    if not vgpu:
        return []
    if tenant is None:
        return [f"the proxy has no tenant {vgpu.get('tenant')}"]
    if intended.same_pid_namespace and tenant.get("pid") != driver.get("pid"):
        return [f"the proxy's tenant is process {tenant.get('pid')}, but the worker is {driver.get('pid')}"]
    return []


def _calls(worker: Mapping[str, int], proxy: Mapping[str, int]) -> list[str]:
    if not sum(proxy.values()):
        return ["no call went through the proxy"]
    unequal = [name for name in sorted({*worker, *proxy}) if worker.get(name, 0) != proxy.get(name, 0)]
    shown = [f"{name}: {worker.get(name, 0)} made, {proxy.get(name, 0)} counted" for name in unequal[:MOST_SHOWN]]
    return [f"the proxy's counters differ from the worker's calls ({'; '.join(shown)})"] if unequal else []


def _backend(vgpu: Mapping[str, Any], status: Mapping[str, Any], intended: Intended) -> list[str]:
    reasons = []
    if intended.backend and status.get("backend") != intended.backend:
        reasons.append(f"the proxy's backend is {status.get('backend')}, not {intended.backend}")
    for name in ("backend", "device"):
        if vgpu and vgpu.get(name) != status.get(name):
            reasons.append(f"the worker reports {name} {vgpu.get(name)!r}, the proxy {status.get(name)!r}")
    return reasons


def _counts(calls: Any) -> dict[str, int]:
    """Return the non-zero counters: the two sides may list different names."""
    return {str(name): int(count) for name, count in calls.items() if count} if isinstance(calls, Mapping) else {}
