"""How many CPUs a process may use, in every shape of cgroup tree and for real."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest


def run_python(code: str, join: Path | None = None) -> dict[str, object]:
    """Run the code in a new process, in the cgroup if one is given, and return the JSON that it prints."""
    enter = f"import os; open({str(join / 'cgroup.procs')!r}, 'w').write(str(os.getpid()))\n" if join else ""
    done = subprocess.run([sys.executable, "-c", enter + code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    result: dict[str, object] = json.loads(done.stdout)
    return result


ALLOWANCE = """
import json
from gputax.worker.probes.limits import cpu_allowance
print(json.dumps(cpu_allowance().to_dict()))
"""


def test_one_core_of_affinity_gives_one_thread() -> None:
    core = max(os.sched_getaffinity(0))
    found = run_python(f"import os; os.sched_setaffinity(0, {{{core}}})\n{ALLOWANCE}")
    assert found["affinity"] == [core]
    assert found["threads"] == 1


@pytest.fixture
def half_core() -> Iterator[Path]:
    """Make a real cgroup with a quota of half a CPU, and remove it again."""
    v1_base, v2_base = Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup")
    is_v1 = (v1_base / "cpu.cfs_quota_us").exists() or (v1_base / "cpu.cfs_period_us").exists()
    group = (v1_base if is_v1 else v2_base) / f"gputax-test-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"cgroups are not writable here: {error}")
    try:
        # Beside other busy processes it would not even reach its quota; inside a group of its own `nice` is no help.
        (group / ("cpu.shares" if is_v1 else "cpu.weight")).write_text("10000")
        if is_v1:
            (group / "cpu.cfs_period_us").write_text("100000")
            (group / "cpu.cfs_quota_us").write_text("50000")
        else:
            (group / "cpu.max").write_text("50000 100000")
        yield group
    except OSError as error:
        pytest.skip(f"no CPU quota can be set here: {error}")
    finally:
        group.rmdir()


THROTTLED = """
import json, time
from gputax.worker.probes.limits import cpu_allowance
from gputax.worker.probes.disturbance import disturbances
from gputax.worker.probes.telemetry import Telemetry
telemetry = Telemetry(interval_s=0.1)
telemetry.start()
end = time.monotonic() + 0.6
while time.monotonic() < end:
    pass
series = telemetry.stop()
codes = [notice.code for notice in disturbances(series)]
print(json.dumps({**cpu_allowance().to_dict(), "throttled": series["throttled_ms"], "codes": codes}))
"""


def test_a_real_quota_of_half_a_core_gives_one_thread_and_its_throttling_is_seen(half_core: Path) -> None:
    found = run_python(THROTTLED, join=half_core)
    assert found["quota_cpus"] == 0.5
    assert str(found["quota_source"]).startswith(str(half_core))
    assert found["threads"] == 1
    throttled = found["throttled"]
    assert isinstance(throttled, list)
    # A spinning thread loses 50 ms of every 100; the last period is only counted when it ends.
    assert throttled[0] == 0
    assert 50 < throttled[-1] < 600
    assert "cpu-throttled" in found["codes"]  # type: ignore[operator]
