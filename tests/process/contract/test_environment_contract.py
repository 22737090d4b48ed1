"""What every environment must do: start a worker, hold its pipes, leave nothing behind."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from gputax.environments.connection import WorkerConnection
from gputax.errors import UsageError
from gputax.places import LOCAL_ENVIRONMENTS, environment_named, local_environment
from gputax.plan.cells import Load, Setup
from gputax.plan.driver import DriverChoice, driver_choice
from gputax.plan.environment import EnvironmentName
from gputax.worker.protocol import decode_array

SOFTWARE = DriverChoice("software")
SYNTHETIC = Setup("resnet50", engine="synthetic:latency_us=300")
DRIVER = Setup("micro:operation", engine="driver", device="software")


def children() -> set[int]:
    listing = subprocess.run(["ps", "-o", "pid=,comm=", "--ppid", str(os.getpid())], capture_output=True, text=True)
    return {int(line.split()[0]) for line in listing.stdout.splitlines() if line.split()[1] != "ps"}


@pytest.mark.parametrize("name", LOCAL_ENVIRONMENTS)
class TestEnvironment:
    def test_bears_its_name(self, name: str) -> None:
        assert environment_named(name).name == name

    @pytest.mark.parametrize("setup", [SYNTHETIC, DRIVER], ids=lambda setup: setup.workload)
    def test_runs_a_worker_from_description_to_measurement(self, name: str, setup: Setup) -> None:
        environment = environment_named(name, driver_choice(setup))
        with WorkerConnection(environment) as connection:
            described = connection.describe()
            connection.call("prepare", setup=setup.to_dict(), stall_timeout_s=30)
            load = Load("saturate", min_queries=20)
            answer = connection.call("measure", load=load.to_dict(), stall_timeout_s=30)
            assert len(decode_array(answer["columns"]["end_ns"])) == 20
            evidence = connection.proven(described, uses_driver=True, stall_timeout_s=30).evidence
        # A layer that carries the driver's calls is proven by them: an engine that makes none leaves it unproven.
        unused = "proxy" in EnvironmentName.parse(name).layers and setup is SYNTHETIC
        assert evidence.active is not unused, evidence.reasons
        assert bool(evidence.reasons) is unused

    def test_two_workers_do_not_disturb_each_other(self, name: str) -> None:
        with (
            WorkerConnection(environment_named(name, SOFTWARE)) as one,
            WorkerConnection(environment_named(name, SOFTWARE)) as other,
        ):
            assert one.describe().pid != other.describe().pid

    def test_leaves_no_process_behind(self, name: str) -> None:
        before = children()
        connection = WorkerConnection(environment_named(name, SOFTWARE))
        connection.describe()
        assert connection.pid in children()
        connection.close()
        assert children() == before

    def test_leaves_no_file_behind(self, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        with WorkerConnection(environment_named(name, SOFTWARE)) as connection:
            connection.describe()
        assert list(tmp_path.iterdir()) == []

    def test_leads_any_other_program_to_its_driver(self, name: str) -> None:
        code = "import ctypes; print(ctypes.CDLL('libcuda.so.1').cuInit(0))"
        with local_environment(name, SOFTWARE).surroundings() as variables:
            done = subprocess.run([sys.executable, "-c", code], env=variables, capture_output=True, text=True)
        assert done.stdout == "0\n", done.stderr


def test_an_interrupt_in_the_middle_of_waiting_does_not_make_the_next_wait_hang(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    connection = WorkerConnection(environment_named("bare"))
    real = os.waitpid

    def interrupted(pid: int, options: int) -> tuple[int, int]:
        monkeypatch.setattr(os, "waitpid", real)
        real(pid, 0) if options == 0 else real(pid, options)
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "waitpid", interrupted)
    with pytest.raises(KeyboardInterrupt):
        _ = connection.ended
    connection.end()
    assert connection.ended


def test_an_exit_code_that_was_lost_to_an_interrupt_still_counts_as_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    connection = WorkerConnection(environment_named("bare"))
    os.kill(connection.pid, 9)
    os.waitpid(connection.pid, 0)
    connection.end()
    assert connection.ended


def test_an_unknown_environment_is_a_usage_error_that_names_the_known_ones() -> None:
    with pytest.raises(UsageError) as raised:
        environment_named("bear")
    assert "did you mean 'bare'?" in raised.value.next_step
