"""What every environment must do: start a worker, hold its pipes, leave nothing behind."""

from __future__ import annotations

import os

import pytest

from gputax.environments import ENVIRONMENTS, environment_named
from gputax.environments.connection import WorkerConnection
from gputax.errors import UsageError
from gputax.plan.cells import Setup
from gputax.plan.load import Load
from gputax.worker.protocol import decode_array


@pytest.mark.parametrize("name", ENVIRONMENTS)
class TestEnvironment:
    def test_bears_its_name(self, name: str) -> None:
        assert environment_named(name).name == name

    def test_runs_a_worker_from_description_to_measurement(self, name: str) -> None:
        with WorkerConnection(environment_named(name)) as connection:
            described = connection.describe()
            setup = Setup("resnet50", engine="synthetic:latency_us=300")
            connection.call("prepare", setup=setup.to_dict(), stall_timeout_s=30)
            load = Load("saturate", min_queries=20)
            answer = connection.call("measure", load=load.to_dict(), stall_timeout_s=30)
            assert len(decode_array(answer["columns"]["end_ns"])) == 20
            assert environment_named(name).evidence(described)["active"] is True

    def test_two_workers_do_not_disturb_each_other(self, name: str) -> None:
        with (
            WorkerConnection(environment_named(name)) as one,
            WorkerConnection(environment_named(name)) as other,
        ):
            assert one.describe()["pid"] != other.describe()["pid"]

    def test_leaves_no_process_behind(self, name: str) -> None:
        connection = WorkerConnection(environment_named(name))
        pid = connection.pid
        connection.describe()
        connection.close()
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


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
