"""`gputax proxy`: the GPU proxy of this node, started and looked at."""

from __future__ import annotations

import json
import os
import shlex
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import click

from gputax.cli.options import Verb, as_json, options, own
from gputax.environments.driver import LIBVGPU, driver_library, native_part
from gputax.environments.proxy import (
    IDENTITIES,
    SOCKET_VARIABLE,
    SPIN,
    SPIN_VARIABLE,
    ProxyAddress,
    ProxyOptions,
    not_ready,
    read_ready,
)
from gputax.errors import GputaxError, PreflightError, UsageError
from gputax.kubernetes.objects import KUBELET_PLUGINS, LIBRARY_DIRECTORY
from gputax.plan.cells import DEVICES
from gputax.plan.driver import DriverChoice
from gputax.plan.options import MACHINE, OUTPUT, SETUP, TENANTS, declared

READY_TIMEOUT_S = 20.0
PLACES_MOST = 64


@click.group()
def proxy() -> None:
    """The GPU proxy on this node: it alone owns the device, and tenants reach it through libvgpu."""


@proxy.command(cls=Verb)
@options(
    own("socket", "Socket that tenants connect to. [default: in a private directory]", key="path", group=MACHINE),
    own("backend", "The driver it uses, as a file or its directory.", metavar="PATH", group=SETUP),
    declared("device", help="Without --backend: auto, cuda or software."),
    own("memory-mb", "Device memory of each tenant. [default: all]", 0, least=0, group=TENANTS),
    own("streams", "Streams of each tenant.", 0, least=0, group=TENANTS),
    own("modules", "Modules of each tenant.", 0, least=0, group=TENANTS),
    own("launches-per-s", "Launches per second of each tenant.", 0, least=0, group=TENANTS),
    own("connections", "Connections of each tenant. [default: 128]", 0, least=0, group=TENANTS),
    own("idle-s", "End a tenant that makes no call for N seconds. [default: never]", 0, least=0, group=TENANTS),
    own("call-s", "End a tenant whose call takes longer than N seconds. [default: never]", 0, least=0, group=TENANTS),
    own(
        "identity", "What counts as one tenant: a user in one control group (or pod), or a process.", "group",
        choices=IDENTITIES, show_default=True, group=TENANTS,
    ),
    own(
        "spin", "How client and proxy wait for each other.", "auto",
        choices=SPIN, variable=SPIN_VARIABLE, show_default=True, group=MACHINE,
    ),
    own("mode", "Permissions of the socket.", "0600", show_default=True, group=MACHINE),
    own(
        "places", "Also listen in so many directories beside the socket, each for one container. [default: none]", 0,
        least=0, most=PLACES_MOST, group=TENANTS,
    ),
    own("xen-socket", "Also listen here for xen-link: tenants in Xen guests. [default: none]", group=TENANTS),
    own(
        "shares", "Percent of the device for places 1, 2, …: its memory, and the software device's time, e.g. 30,70.",
        metavar="LIST", group=TENANTS,
    ),
    own(
        "worker-uids", "First of 256 users for the workers; 0 keeps the proxy's. [default: 60600 if it is root]",
        group=MACHINE,
    ),
    own("unconfined", "Leave out these confinements of workers (names of the status), or all.", group=MACHINE),
    own("foreground", "Run in the foreground.", False, group=OUTPUT),
)  # fmt: skip
def start(path: str, backend: str, device: str, foreground: bool, **limits: Any) -> int:
    """Start a proxy, and say how tenants connect and how it is stopped."""
    if device not in DEVICES or device == "cpu":
        raise UsageError(f"the proxy has no device {device!r}", next_step="use --device auto, cuda or software")
    address = ProxyAddress(Path(path).expanduser().absolute() if path else default_socket())
    _refuse_running(address)
    library = driver_library(DriverChoice(device, backend))
    if library.note:
        click.echo(f"gputax: {library.note}", err=True)
    address.socket.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    if not path:
        _refuse_foreign(address.socket.parent)
    words = ProxyOptions(library.path, **limits).words(address.socket)
    if foreground:
        click.echo("\n".join(_connecting(address)), err=True)
        sys.stderr.flush()
        os.execv(words[0], words)
    ready, log = _start_in_background(words, address)
    lines = [f"GPU proxy {ready.get('pid')} serves {ready.get('device')}, through {ready.get('backend')}"]
    lines += [*_connecting(address), f"Stop it:  kill {ready.get('pid')}", f"Its log:  {log}"]
    click.echo("\n".join(lines))
    return 0


@proxy.command(cls=Verb)
@options(
    own("socket", "Its socket. [default: $GPUTAX_PROXY_SOCKET, else that of `start`]", key="path", group=MACHINE),
    as_json("Write its status document."),
    own("prometheus", "Write its counters for Prometheus.", False, group=OUTPUT),
)
def status(path: str, as_json: bool, prometheus: bool) -> int:
    """Show who uses the device through the proxy, and what for."""
    if as_json and prometheus:
        raise UsageError("--json and --prometheus contradict each other", next_step="use one of them")
    address = _address(path)
    if prometheus:
        click.echo(address.prometheus(), nl=False)
    elif as_json:
        click.echo(json.dumps(address.status(), indent=2))
    else:
        from gputax.report.exporters.console_text import Screen
        from gputax.report.machine_tables import tenants_table

        found, screen = address.status(), Screen(sys.stdout)
        for line in served(found):
            screen.say(line)
        screen.table(tenants_table(found))
    return 0


@proxy.command(cls=Verb)
@options(
    own("socket", "Its socket. [default: $GPUTAX_PROXY_SOCKET, else that of `start`]", key="path", group=MACHINE),
    own(
        "library-directory", "Directory of the node that gets the tenants' library.", LIBRARY_DIRECTORY,
        show_default=True, group=MACHINE,
    ),
    own(
        "kubelet-directory", "Where the kubelet expects device plugins.", KUBELET_PLUGINS,
        show_default=True, group=MACHINE,
    ),
)  # fmt: skip
def plugin(path: str, library_directory: str, kubelet_directory: str) -> int:
    """Offer the places of a running proxy (`start --places`) to pods of this node, as gputax.dev/vgpu."""
    from gputax.kubernetes.device_plugin import DevicePlugin, Grant, grant, install_library

    given = path or os.environ.get(SOCKET_VARIABLE, "")
    address = ProxyAddress(Path(given).expanduser().absolute() if given else default_socket())
    kubelet = Path(kubelet_directory)
    if not kubelet.is_dir():
        raise PreflightError(
            "there is no kubelet on this node", where=str(kubelet), next_step="run it on a node, with this directory"
        )
    library = install_library(native_part(LIBVGPU), Path(library_directory).absolute())

    def places() -> int | None:
        try:
            return int(address.status().get("places") or 0)
        except GputaxError:
            return None

    def granted(identities: Iterable[str]) -> Grant:
        return grant(identities, str(library.parent), str(address.socket.parent))

    offered = DevicePlugin(places, granted, directory=kubelet, say=lambda text: click.echo(f"gputax: {text}", err=True))
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: offered.end())
    offered.run()
    return 0


@proxy.command(cls=Verb)
@click.argument("tenant", type=click.IntRange(1))
@options(
    own("socket", "Its socket. [default: $GPUTAX_PROXY_SOCKET, else that of `start`]", key="path", group=MACHINE),
)
def evict(tenant: int, path: str) -> int:
    """End a tenant. Its memory is freed, and its next call fails."""
    _address(path).evict(tenant)
    click.echo(f"tenant {tenant} evicted")
    return 0


def _address(path: str) -> ProxyAddress:
    given = path or os.environ.get(SOCKET_VARIABLE, "")
    return ProxyAddress(Path(given).expanduser() if given else default_socket())


def served(status: Mapping[str, Any]) -> list[str]:
    """Return what a proxy serves, how it waits, and what its workers have given up."""
    transports = ", ".join(map(str, status.get("transports") or ()))
    confinement = ", ".join(map(str, status.get("confinement") or ())) or "nothing"
    return [
        f"GPU proxy {status.get('pid')}: {status.get('device')}, through {status.get('backend')}",
        f"waiting: {status.get('wait_policy')}; free cores: {status.get('cores_free')}; transports: {transports}",
        f"workers are confined by: {confinement}",
    ]


def default_socket() -> Path:
    """Return the socket of the one proxy that a user has per node."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    directory = Path(runtime) / "gputax" if runtime else Path(tempfile.gettempdir()) / f"gputax-{os.getuid()}"
    return directory / "proxy.sock"


def _refuse_foreign(directory: Path) -> None:
    """Refuse a directory that somebody else made, or may write to: its name can be guessed."""
    facts = directory.lstat()
    if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.getuid() or facts.st_mode & 0o022:
        raise PreflightError(
            "this directory is not private: other users could replace the proxy's socket",
            where=str(directory),
            next_step="remove it, or choose another place with --socket",
        )


def _refuse_running(address: ProxyAddress) -> None:
    try:
        running = address.status()
    except PreflightError:
        return
    raise PreflightError(
        f"a proxy (pid {running.get('pid')}) serves this socket already",
        where=str(address.socket),
        next_step=f"use it, or end it with `kill {running.get('pid')}`, or choose another --socket",
    )


def _connecting(address: ProxyAddress) -> list[str]:
    """Return how a tenant comes to use the proxy: two variables, nothing else."""
    library = native_part(LIBVGPU).resolve().parent
    return [
        "Tenants connect with",
        f"  export LD_LIBRARY_PATH={shlex.quote(str(library))}",
        f"  export {SOCKET_VARIABLE}={shlex.quote(str(address.socket))}",
    ]


def _start_in_background(words: list[str], address: ProxyAddress) -> tuple[dict[str, Any], Path]:
    log = address.socket.with_name(address.socket.name + ".log")
    with log.open("wb") as stream:
        process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=stream, stderr=subprocess.STDOUT, start_new_session=True
        )
    deadline = time.monotonic() + READY_TIMEOUT_S
    while time.monotonic() < deadline:
        lines = [line for line in log.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]
        ready = next((line for line in lines if line.startswith(b"{")), None)
        if ready is not None:
            process.returncode = 0  # it outlives us on purpose; nobody waits for it
            return read_ready(ready), log
        if process.poll() is not None:
            break
        time.sleep(0.02)
    if process.poll() is None:
        process.kill()
        process.wait()
    raise not_ready(log.read_text(errors="replace"))
