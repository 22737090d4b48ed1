"""GPU proxies on the software device, and programs behind them."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PROGRAMS = Path(__file__).parent / "programs"
PATIENCE_S = 60
HANDLE_BYTES = 512  # what a stream, an event or a function counts with
CONTEXT_BYTES = 4096 + HANDLE_BYTES


def clean_environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GPUTAX_")}
    kept["PYTHONPATH"] = str(PROGRAMS)
    return kept | more


@dataclass
class Proxy:
    """A running proxy."""

    process: subprocess.Popen[str]
    socket: Path
    ready: dict[str, Any]
    library: Path

    def environment(self, transport: str = "shm") -> dict[str, str]:
        return clean_environment(
            LD_LIBRARY_PATH=str(self.library), GPUTAX_PROXY_SOCKET=str(self.socket), GPUTAX_PROXY_TRANSPORT=transport
        )

    def ask_status(self, request: bytes = b"") -> bytes:
        with socket.socket(socket.AF_UNIX) as reader:
            reader.settimeout(10)
            reader.connect(f"{self.socket}.status")
            if request:
                reader.sendall(request)
            else:
                reader.shutdown(socket.SHUT_WR)
            return b"".join(iter(lambda: reader.recv(65536), b""))

    def status(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.ask_status())
        return document

    def wait_for(self, condition: Callable[[dict[str, Any]], bool], seconds: float = 10) -> dict[str, Any]:
        """The first status that meets the condition."""
        until = time.monotonic() + seconds
        while True:
            document = self.status()
            if condition(document):
                return document
            assert time.monotonic() < until, document
            time.sleep(0.02)

    def stop(self) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE_S)


@dataclass
class Nursery:
    """Everything a test started, ended with it."""

    folder: Path
    build: Path
    programs: dict[str, str] = field(default_factory=dict)  # what every program's environment has beside the usual
    processes: list[subprocess.Popen[str]] = field(default_factory=list)

    def proxy(
        self,
        *options: str,
        name: str = "proxy",
        device: dict[str, str] | None = None,
        backend: Path | None = None,
        within: Sequence[str] = (),
    ) -> Proxy:
        """A proxy; `within` are the words of a program that starts it."""
        path = self.folder / f"{name}.sock"
        backend = backend or self.build / "software" / "libcuda.so.1"
        program = str(self.build / "gputax-proxy")
        command = [*within, program, "--socket", str(path), "--backend", str(backend), *options]
        process = self._start(command, clean_environment(**(device or {})))
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, process.communicate()[1]
        return Proxy(process, path, json.loads(line), self.build / "vgpu")

    def direct(self) -> dict[str, str]:
        """The environment of a program on the software device itself."""
        return clean_environment(LD_LIBRARY_PATH=str(self.build / "software"))

    def start(self, code: str | Path, environment: dict[str, str], *arguments: str) -> subprocess.Popen[str]:
        what = ["-c", code] if isinstance(code, str) else [str(code)]
        return self._start([sys.executable, *what, *arguments], environment | self.programs)

    def run(self, code: str | Path, environment: dict[str, str], *arguments: str) -> str:
        """The output of a program that must succeed."""
        process = self.start(code, environment, *arguments)
        output, errors = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0, errors
        return output

    def end(self) -> None:
        for process in reversed(self.processes):
            if process.poll() is None:
                process.kill()
            process.communicate()

    def _start(self, command: list[str], environment: dict[str, str]) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.folder,
        )
        self.processes.append(process)
        return process
