"""The stand-ins put together: a PATH with nothing else on it, a cluster behind it, and the product's command."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests.standins.kube_api import KubeApi

TOOLS = ("gcloud", "docker", "podman", "gke-gcloud-auth-plugin")
SCRIPT = Path(__file__).with_name("cloud_tools.py")


class Cloud:
    """One world for one test."""

    def __init__(self, directory: Path) -> None:
        self.home = directory / "standin"
        self.work = directory / "work"
        self.bin = directory / "bin"
        for path in (self.home, self.work / "docker", self.bin):
            path.mkdir(parents=True)
        (self.work / "docker/Dockerfile").write_text("FROM scratch\n")
        for tool in TOOLS:
            self.install(tool)
        self.api = KubeApi()
        (self.home / "kubeconfig").write_text(self.api.kubeconfig())

    def install(self, tool: str) -> None:
        path = self.bin / tool
        path.write_text(f'#!/bin/sh\nexec {sys.executable} -I {SCRIPT} {tool} "$@"\n')
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def without(self, tool: str) -> None:
        (self.bin / tool).unlink()

    def environment(self, **further: str) -> dict[str, str]:
        clean = {key: value for key, value in os.environ.items() if not key.startswith(("CLOUDSDK", "GOOGLE", "KUBE"))}
        return {
            **clean,
            "PATH": f"{self.bin}:/bin-none",
            "GPUTAX_STANDIN": str(self.home),
            "HOME": str(self.home),
            **further,
        }

    def gputax(self, *words: str, **further: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "gputax", *words],
            cwd=self.work,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=120,
            env=self.environment(**further),
        )

    def interrupted(self, *words: str, by: signal.Signals = signal.SIGINT) -> tuple[int, str]:
        """Start the command, wait until the stand-in hangs, and send one signal to gputax alone."""
        process = subprocess.Popen(
            [sys.executable, "-m", "gputax", *words],
            cwd=self.work,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            env=self.environment(),
        )
        deadline = time.monotonic() + 60
        while not (self.home / "hanging").exists() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)
        process.send_signal(by)
        if by is signal.SIGKILL:
            # Nobody is left to end the child, as after a crash.
            os.kill(int((self.home / "hanging").read_text()), signal.SIGKILL)
        output, _ = process.communicate(timeout=120)
        return process.returncode, output

    def fail(self, match: str, output: str = "ERROR: (gcloud) something broke", **further: Any) -> None:
        (self.home / "fail.json").write_text(json.dumps({"match": match, "output": output, **further}))

    def calls(self) -> list[str]:
        path = self.home / "calls.jsonl"
        return [" ".join(json.loads(line)) for line in path.read_text().splitlines()] if path.exists() else []

    def changing_calls(self) -> list[str]:
        """The calls that change something, without their flags."""
        reading = ("describe", "list", "get-value", "read")
        short = [" ".join(word for word in call.split() if not word.startswith("--")) for call in self.calls()]
        return [call for call in short if not any(word in call.split() for word in reading)]

    def violations(self) -> str:
        path = self.home / "violations.txt"
        return path.read_text() if path.exists() else ""

    def world(self) -> dict[str, Any]:
        path = self.home / "world.json"
        return dict(json.loads(path.read_text())) if path.exists() else {}

    def state(self, name: str = "baseline") -> dict[str, Any]:
        return dict(json.loads((self.work / f"results/{name}/deployment/state.json").read_text()))

    def close(self) -> None:
        self.api.close()
