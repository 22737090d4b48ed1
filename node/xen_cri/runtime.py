"""What each command of runc's does with guests: xl makes them, a carrier in dom0 is the container's process."""

from __future__ import annotations

import datetime
import errno
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from xen_cri import image, spec, store, words
from xen_cri.errors import Refused
from xen_cri.spec import CONTAINER, SANDBOX, STANDALONE, Settings
from xen_cri.store import Known, Store
from xen_cri.words import Words

VERSION = "0.1.0"
OCI = "1.0.2"
SETTINGS = Path("/etc/gputax/xen-cri.json")
XL_S = 300.0  # an xl that hangs fails the command instead of holding containerd for ever
RELEASE_S = 60.0


def read_settings(path: Path) -> Settings:
    """Return the node's settings, the defaults where it has none."""
    try:
        return Settings(**json.loads(path.read_text()))
    except FileNotFoundError:
        return Settings()
    except (TypeError, ValueError) as wrong:
        message = f"{path}: {wrong}"
        raise Refused(message) from wrong


def _json(path: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError) as wrong:
        message = f"{path}: {wrong}"
        raise Refused(message) from wrong
    return found


def xl(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run xl; it must end in time."""
    try:
        return subprocess.run(
            ["xl", *arguments], capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=XL_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as wrong:
        message = f"xl {arguments[0]}: {wrong}"
        raise Refused(message) from wrong


def domain_of(guest: str) -> int:
    """Return a guest's number; 0: it does not run."""
    done = xl("domid", guest)
    return int(done.stdout) if done.returncode == 0 else 0


def destroy(guest: str) -> None:
    """Destroy a guest if it is there."""
    if domain_of(guest) and xl("destroy", guest).returncode != 0 and domain_of(guest):
        message = f"guest {guest} could not be destroyed"
        raise Refused(message)


def _start_link(domain: int, pod: str, settings: Settings) -> None:
    """Join the guest with the GPU proxy, where there is one; the link ends by itself with the guest."""
    if Path(settings.proxy_socket).exists():
        subprocess.Popen(
            [settings.link, "host", str(domain), pod, settings.proxy_socket], stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip


def _terminal(console: str) -> int:
    """Make a terminal, give its outer end to the shim and return the inner one."""
    outer, inner = os.openpty()
    with socket.socket(socket.AF_UNIX) as shim:
        shim.connect(console)
        socket.send_fds(shim, [os.ttyname(inner).encode()], [outer])
    os.close(outer)
    return inner


def _own_terminal() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def carry(domain: int, request: Path, gate: Path | None, options: dict[str, str], settings: Settings) -> int:
    """Start a carrier with this process' stdio, or with a terminal of its own, and return its pid."""
    command = [settings.session, "host", str(domain), "--request", str(request)]
    command += ["--wait", str(gate)] if gate else []
    console = options.get("console-socket")
    inner = _terminal(console) if console else None
    begin: Callable[[], None] | None = _own_terminal if console else None
    started = subprocess.Popen(
        command, stdin=inner, stdout=inner, stderr=inner, start_new_session=True, preexec_fn=begin
    )
    started.returncode = 0  # its parent is the shim once we have ended
    if options.get("pid-file"):
        unfinished = Path(options["pid-file"] + ".new")
        unfinished.write_text(str(started.pid))
        unfinished.rename(options["pid-file"])
    return started.pid


def _make_guest(known: Known, config: dict[str, Any], kept: Store, settings: Settings) -> int:
    root = _root_of(config, Path(known.bundle))
    disk = image.prepare(root, Path(settings.images)) if known.kind == STANDALONE else None
    text = kept.of(known.id) / "guest.cfg"
    text.write_text(spec.guest(config, known.guest, disk, settings))
    done = xl("create", "-q", str(text))
    domain = domain_of(known.guest)
    if done.returncode != 0 or not domain:
        message = f"xl create: {(done.stderr or done.stdout).strip()[-500:]}"
        raise Refused(message)
    _start_link(domain, spec.pod_of(config, known.id), settings)
    return domain


def _root_of(config: dict[str, Any], bundle: Path) -> Path:
    return bundle / str((config.get("root") or {}).get("path") or "rootfs")


def _attach(known: Known, config: dict[str, Any], settings: Settings) -> int:
    """Give the root file system of a further container to its pod's guest."""
    domain = domain_of(known.guest)
    if not domain:
        message = f"guest {known.guest} of this pod does not run"
        raise Refused(message)
    disk = image.prepare(_root_of(config, Path(known.bundle)), Path(settings.images))
    done = xl("block-attach", str(domain), spec.disk(disk, known.device, settings))
    if done.returncode != 0:
        message = f"xl block-attach: {done.stderr.strip()[-500:]}"
        raise Refused(message)
    return domain


def _first(known: Known, config: dict[str, Any], kept: Store) -> Known:
    """Return which guest and which disk a new container has."""
    if known.kind != CONTAINER:
        return replace(known, guest=spec.guest_name(kept.namespace, known.id), device="xvda")
    sandbox = kept.read(spec.sandbox_of(config))
    taken = {each.device for each in kept.in_guest(sandbox.guest)}
    free = next(name for number in range(27) if (name := spec.device_name(number)) not in taken)
    return replace(known, guest=sandbox.guest, device=free)


def create(asked: Words, kept: Store, settings: Settings) -> None:
    """Make the guest or attach to it, and leave a carrier that waits for `start`."""
    name, bundle = asked.arguments[0], Path(asked.options.get("bundle") or ".").resolve()
    config = _json(bundle / "config.json")
    spec.check(config, name)
    if kept.of(name).exists():
        message = f"container {name} exists already"
        raise Refused(message)
    now = datetime.datetime.now(datetime.UTC).isoformat()
    known = _first(Known(name, spec.kind_of(config), str(bundle), "", created=now), config, kept)
    proxy = Path(settings.proxy_socket).exists()
    request = spec.hold() if known.kind == SANDBOX else spec.container(config, name, known.device, proxy)
    kept.write(known)
    try:
        domain = (_attach if known.kind == CONTAINER else _of_store(kept))(known, config, settings)
        (kept.of(name) / "request").write_bytes(request)
        gate = kept.of(name) / "gate"
        os.mkfifo(gate)
        pid = carry(domain, kept.of(name) / "request", gate, asked.options, settings)
        kept.write(replace(known, pid=pid, started=store.ticks(pid)))
    except BaseException:
        if known.kind != CONTAINER:
            destroy(known.guest)
        kept.forget(name)
        raise


def _of_store(kept: Store) -> Callable[[Known, dict[str, Any], Settings], int]:
    return lambda known, config, settings: _make_guest(known, config, kept, settings)


def start(asked: Words, kept: Store) -> None:
    """Open the gate that the carrier waits at."""
    known = kept.read(asked.arguments[0])
    if known.status(known.lives()) != "created":
        message = f"cannot start a container in the state {known.status(known.lives())}"
        raise Refused(message)
    until = time.monotonic() + RELEASE_S
    while True:
        try:
            os.close(os.open(kept.of(known.id) / "gate", os.O_WRONLY | os.O_NONBLOCK))
            break
        except OSError as wrong:
            if wrong.errno != errno.ENXIO or not known.lives() or time.monotonic() > until:
                message = f"the carrier of {known.id} does not wait: {wrong}"
                raise Refused(message) from wrong
        time.sleep(0.02)
    kept.release(known)


def state(asked: Words, kept: Store) -> None:
    """Print OCI's state."""
    known = kept.read(asked.arguments[0])
    status = known.status(known.lives())
    document = {
        "ociVersion": OCI, "id": known.id, "pid": known.pid if status != "stopped" else 0, "status": status,
        "bundle": known.bundle, "rootfs": str(Path(known.bundle) / "rootfs"), "created": known.created,
        "annotations": {"gputax.xen/guest": known.guest},
    }  # fmt: skip
    print(json.dumps(document))


def signal_number(text: str) -> int:
    """Return the number of a signal: 9, KILL or SIGKILL."""
    if text.isdigit():
        return int(text)
    try:
        return int(signal.Signals[text.upper() if text.upper().startswith("SIG") else f"SIG{text.upper()}"])
    except KeyError as wrong:
        message = f"unknown signal {text}"
        raise Refused(message) from wrong


def kill(asked: Words, kept: Store) -> None:
    """Send a signal through the carrier. SIGKILL ends the carrier itself, and its session with it."""
    known = kept.read(asked.arguments[0])
    number = signal_number(asked.arguments[1] if len(asked.arguments) > 1 else "TERM")
    if not known.lives():
        if "all" in asked.options:
            return
        message = "process already finished"  # containerd looks for these words
        raise Refused(message)
    os.kill(known.pid, number)
    if number == signal.SIGKILL and known.kind == SANDBOX:
        destroy(known.guest)


def delete(asked: Words, kept: Store) -> None:
    """Remove a container that has stopped, and the guest with the one that it was made for."""
    forced = "force" in asked.options
    try:
        known = kept.read(asked.arguments[0])
    except Refused:
        if forced:
            return
        raise
    if known.lives():
        if not forced:
            message = f"cannot delete container {known.id} that is not stopped"
            raise Refused(message)
        os.kill(known.pid, signal.SIGKILL)
    if known.kind != CONTAINER:
        destroy(known.guest)
    elif domain := domain_of(known.guest):
        xl("block-detach", str(domain), known.device)
    kept.forget(known.id)


def execute(asked: Words, kept: Store, settings: Settings) -> int:
    """Run a further process in a container; without --detach wait for it."""
    known = kept.read(asked.arguments[0])
    if known.status(known.lives()) != "running" or known.kind == SANDBOX:
        message = f"cannot run a process in a {known.kind} in the state {known.status(known.lives())}"
        raise Refused(message)
    if "process" in asked.options:
        process = _json(Path(asked.options["process"]))
    else:
        process = {**(_json(Path(known.bundle) / "config.json").get("process") or {}), "args": asked.arguments[1:]}
        process["terminal"] = "tty" in asked.options
    request = kept.of(known.id) / f"exec-{os.getpid()}"
    request.write_bytes(spec.joined(process, known.id, Path(settings.proxy_socket).exists()))
    pid = carry(domain_of(known.guest), request, None, asked.options, settings)
    if "detach" in asked.options:
        return 0
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def run(asked: Words, kept: Store, settings: Settings) -> int:
    """Do one command and return its exit code."""
    if asked.verb == "version":
        print(f"xen-cri version {VERSION}\nspec: {OCI}")
    elif asked.verb == "help":
        print(f"usage: xen-cri [--root FOLDER] [--log FILE] {{{','.join(words.VERBS)}}} ID, as runc's")
    elif asked.verb == "create":
        create(asked, kept, settings)
    elif asked.verb == "exec":
        return execute(asked, kept, settings)
    else:
        {"start": start, "state": state, "kill": kill, "delete": delete}[asked.verb](asked, kept)
    return 0


def main(arguments: list[str]) -> int:
    """Do what the command line asks for; errors go to stderr and to the log that containerd reads."""
    log = ""
    try:
        asked = words.parse(arguments)
        log = asked.globals.get("log", "")
        namespace = Path(asked.globals.get("root", "/run/runc")).name or "runc"
        settings = read_settings(SETTINGS)
        return run(asked, Store(namespace, Path(settings.state)), settings)
    except (Refused, OSError) as wrong:
        print(f"xen-cri: {wrong}", file=sys.stderr)
        if log:
            with Path(log).open("a") as out:
                out.write(json.dumps({"level": "error", "msg": str(wrong), "time": ""}) + "\n")
        return 1
