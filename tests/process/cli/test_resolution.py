from __future__ import annotations

import json
import subprocess
from collections.abc import Callable

Gputax = Callable[..., subprocess.CompletedProcess[str]]


def test_the_doctor_measures_it(gputax: Gputax) -> None:
    done = gputax("doctor", "--resolution", "--engine", "synthetic:latency_us=500", "--max-time", "3", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["pairs"] >= 10, "enough for an interval, also on a busy host"
