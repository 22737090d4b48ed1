from __future__ import annotations

import json
import subprocess
from collections.abc import Callable

Gputax = Callable[..., subprocess.CompletedProcess[str]]


def test_the_doctor_measures_it(gputax: Gputax) -> None:
    done = gputax("doctor", "--resolution", "--engine", "synthetic:latency_us=500", "--max-time", "3", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["pairs"] >= 2, "enough for an interval, also where the time is over when the workers have started"
    assert found["half_width_percent"] > 0
