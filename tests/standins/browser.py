"""A real Chromium, headless, driven over its own pipe (`--remote-debugging-pipe`): JSON ended by a null byte."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

CHROMIUM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
)
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage", "--hide-scrollbars",
    "--remote-debugging-pipe",
)  # fmt: skip
# The protocol has fixed places: Chromium reads descriptor 3 and writes descriptor 4.
PLACED = """
import fcntl, os, sys
command, answer = (fcntl.fcntl(int(word), fcntl.F_DUPFD, 10) for word in sys.argv[1:3])
os.dup2(command, 3)
os.dup2(answer, 4)
os.execv(sys.argv[3], sys.argv[3:])
"""
START_S = 60
ANSWER_S = 30


class Browser:
    """One page of a headless Chromium."""

    def __init__(self, profile: Path) -> None:
        command_read, self._out = os.pipe()
        self._in, answer_write = os.pipe()
        self._process = subprocess.Popen(
            [sys.executable, "-c", PLACED, str(command_read), str(answer_write), str(CHROMIUM), *FLAGS,
             f"--user-data-dir={profile}", "about:blank"],
            pass_fds=(command_read, answer_write), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(command_read)
        os.close(answer_write)
        self._buffer = b""
        self._number = 0
        self._session = ""
        self.events: list[dict[str, Any]] = []
        target = self._page_target()
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def _page_target(self) -> str:
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            for target in self.call("Target.getTargets", wait_s=START_S)["targetInfos"]:
                if target["type"] == "page":
                    return str(target["targetId"])
            time.sleep(0.1)
        raise TimeoutError("chromium opened no page")

    def call(self, method: str, wait_s: float = ANSWER_S, **parameters: Any) -> dict[str, Any]:
        """Send one command and return its result; events that arrive meanwhile are kept."""
        self._number += 1
        number = self._number
        message = {"id": number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive(wait_s)
            if answer.get("id") == number:
                assert "error" not in answer, answer
                return dict(answer.get("result", {}))
            self.events.append(answer)

    def _receive(self, wait_s: float) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._in], [], [], wait_s)
            if not ready:
                raise TimeoutError(f"chromium was silent for {wait_s} s")
            read = os.read(self._in, 1 << 16)
            if not read:
                raise ConnectionError("chromium ended")
            self._buffer += read
        message, _, self._buffer = self._buffer.partition(b"\0")
        return dict(json.loads(message))

    def run(self, expression: str) -> Any:
        """Return the value of a JavaScript expression in the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def open(self, path: Path, *, width: int = 1200, height: int = 900, dark: bool = False) -> None:
        """Open a file at a size and in a colour scheme, and wait until it is loaded."""
        self.events.clear()
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1,
                  mobile=width < 600)  # fmt: skip
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", media="screen", features=[scheme])
        self.call("Page.navigate", url=path.resolve().as_uri())
        deadline = time.monotonic() + ANSWER_S
        while self.run("document.readyState + location.protocol") != "completefile:":
            assert time.monotonic() < deadline, "the page did not load"
            time.sleep(0.05)

    def press(self, key: str) -> None:
        """Press and release one key."""
        codes = {"Tab": 9, "Enter": 13, "ArrowDown": 40, "ArrowRight": 39, "Escape": 27}
        text: dict[str, Any] = {"text": "\r"} if key == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=codes[key], **text)

    def screenshot(self, path: Path, *, whole: bool = False) -> None:
        """Save what is seen, or the whole page."""
        answer = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole, wait_s=60)
        path.write_bytes(base64.b64decode(answer["data"]))

    def close(self) -> None:
        """End this Chromium."""
        try:
            self._session = ""
            self.call("Browser.close", wait_s=5)
        except (TimeoutError, ConnectionError, BrokenPipeError):
            pass
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._in)
        os.close(self._out)
