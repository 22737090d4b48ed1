"""`gputax doctor` on this machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys


def test_the_real_doctor_examines_this_machine() -> None:
    code = "from gputax.cli.doctor import doctor; doctor()"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code, "--json"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "NO_COLOR": "1"},
    )
    assert done.returncode in (0, 3), done.stderr
    document = json.loads(done.stdout)
    titles = [finding["title"] for finding in document["findings"]]
    assert f"Python {sys.version.split()[0]}" in titles
    assert any(title.startswith("MLPerf LoadGen 6") for title in titles)
    failed = [finding for finding in document["findings"] if finding["status"] == "fail"]
    assert bool(failed) == (done.returncode == 3)
    assert all(finding["fix_command"] for finding in failed)
