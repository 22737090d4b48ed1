"""The contract of environments that reach their worker through another program, played by a stand-in on PATH.

`k8s` passes the same suite on a real cluster, in tests/e2e.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gputax.cli.verify import collected
from gputax.doctor.mode import mode_of
from gputax.environments.connection import WorkerConnection
from gputax.environments.container import ready_runtime
from gputax.errors import PreflightError
from gputax.places import Places, environment_named
from gputax.plan.cells import Load, Setup
from gputax.plan.options import EnvironmentOptions
from gputax.worker.probes.limits import cpu_allowance
from gputax.worker.protocol import decode_array

# What a container engine does for us, without a container: the host's name and the number of CPUs are as asked for.
ENGINE = """
import json, os, sys
words = sys.argv[1:]
with open(os.environ["STAND_IN_LOG"], "a") as log:
    log.write(json.dumps([os.path.basename(sys.argv[0]), *words]) + "\\n")
# podman takes the runtime for all commands, docker for `run`.
asked = words[words.index("--runtime") + 1] if "--runtime" in words else ""
if words[0] == "--runtime":
    words = words[2:]
known = json.loads(os.environ.get("STAND_IN_RUNTIMES", "{}"))
if words[0] == "info":
    if asked:
        if asked not in known:
            sys.exit(125)
        runtime = {"name": asked, "path": "/usr/bin/" + asked, "version": known[asked]}
        print(json.dumps({"host": {"kernel": os.uname().release, "ociRuntime": runtime}}))
    else:
        paths = {name: {"path": "/nowhere/" + name} for name in known}
        print(json.dumps({"Runtimes": paths, "KernelVersion": os.uname().release}))
if words[0] == "image" and words[2] == os.environ["STAND_IN_IMAGE"]:
    print("[]")
if words[0] == "inspect":
    started = os.environ.get("STAND_IN_STARTS") or asked or os.environ.get("STAND_IN_RUNTIME", "runc")
    limit = {"NanoCpus": int(os.environ.get("STAND_IN_NANO_CPUS", "0")), "Runtime": started}
    print(json.dumps([{"Image": "sha256:0123", "OCIRuntime": started, "HostConfig": limit}]))
if words[0] != "run":
    sys.exit(0)
if os.environ.get("STAND_IN_FAILS"):
    code, _, text = os.environ["STAND_IN_FAILS"].partition(" ")
    print(text, file=sys.stderr)
    sys.exit(int(code))
os.environ["STAND_IN_HOSTNAME"] = words[words.index("--hostname") + 1]
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: int(words[words.index("--cpus") + 1])])
command = words[words.index(os.environ["STAND_IN_IMAGE"]) + 1 :]
assert command == ["python", "-m", "gputax.worker"], command
os.execv(sys.executable, [sys.executable, *command[1:]])
"""
SSH = """
import json, os, sys
words = sys.argv[1:]
with open(os.environ["STAND_IN_LOG"], "a") as log:
    log.write(json.dumps(["ssh", *words]) + "\\n")
assert words[0] == "-T" and "BatchMode=yes" in words
if os.environ.get("STAND_IN_FAILS"):
    code, _, text = os.environ["STAND_IN_FAILS"].partition(" ")
    print(text, file=sys.stderr)
    sys.exit(int(code))
print("Welcome to the machine")
sys.stdout.flush()
os.environ["PATH"] = os.pathsep.join([os.path.dirname(sys.executable), "/usr/bin", "/bin"])
os.execv("/bin/sh", ["sh", "-c", words[-1]])
"""
SITE = """
import os, platform
if os.environ.get("STAND_IN_HOSTNAME"):
    platform.node = lambda: os.environ["STAND_IN_HOSTNAME"]
    if os.environ.get("STAND_IN_KERNEL"):
        platform.release = lambda: os.environ["STAND_IN_KERNEL"]
"""
IMAGE = "gputax:test"
PLACES = {
    "container with docker": "container",
    "container with podman": "container",
    "another runtime with docker": "container:crun",
    "another runtime with podman": "container:crun",
    "ssh": "ssh:somewhere",
}


class StandIns:
    """The programs on PATH, and what they were called with."""

    def __init__(self, directory: Path) -> None:
        self.log = directory / "calls.jsonl"

    def calls(self, word: str = "") -> list[list[str]]:
        found = [json.loads(line) for line in self.log.read_text().splitlines()] if self.log.exists() else []
        return [call for call in found if word in call]


@pytest.fixture
def stand_ins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> StandIns:
    programs = tmp_path / "bin"
    programs.mkdir()
    (tmp_path / "site").mkdir()
    (tmp_path / "site/sitecustomize.py").write_text(SITE)
    kind = getattr(request, "param", "container with docker")
    engine = "podman" if "podman" in kind else "docker"
    for name, code in ((engine, ENGINE), ("ssh", SSH)):
        (programs / name).write_text(f"#!{sys.executable}\n{code}")
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    monkeypatch.setenv("STAND_IN_LOG", str(tmp_path / "calls.jsonl"))
    monkeypatch.setenv("STAND_IN_IMAGE", IMAGE)
    monkeypatch.setenv("STAND_IN_RUNTIMES", json.dumps({"crun": "crun version 1.8.1\nspec: 1.0.0"}))
    # docker's `inspect` names the runtime that `run` was told; the stand-in has no memory.
    monkeypatch.setenv("STAND_IN_RUNTIME", "crun" if "another" in kind else "runc")
    return StandIns(tmp_path)


@pytest.fixture
def places() -> Iterator[Places]:
    with Places(EnvironmentOptions(image=IMAGE)) as opened:
        yield opened


@pytest.mark.parametrize(("stand_ins", "name"), PLACES.items(), indirect=["stand_ins"], ids=list(PLACES))
class TestFarEnvironment:
    def test_runs_a_worker_from_description_to_measurement(
        self, stand_ins: StandIns, places: Places, name: str
    ) -> None:
        environment = environment_named(name, places=places)
        assert environment.name == name
        with WorkerConnection(environment) as connection:
            described = connection.describe()
            setup = Setup("resnet50", engine="synthetic:latency_us=300")
            connection.call("prepare", setup=setup.to_dict(), stall_timeout_s=30)
            answer = connection.call("measure", load=Load("saturate", min_queries=20).to_dict(), stall_timeout_s=30)
            assert len(decode_array(answer["columns"]["end_ns"])) == 20
            evidence = environment.evidence(described)
        assert evidence.active, evidence
        assert "reasons" not in evidence.to_dict()

    def test_has_as_many_threads_as_a_bare_worker(self, stand_ins: StandIns, places: Places, name: str) -> None:
        with WorkerConnection(environment_named(name, places=places)) as connection:
            described = connection.describe()
        assert described.to_dict()["cpu_allowance"]["threads"] == cpu_allowance().threads

    def test_two_workers_do_not_disturb_each_other(self, stand_ins: StandIns, places: Places, name: str) -> None:
        with (
            WorkerConnection(environment_named(name, places=places)) as one,
            WorkerConnection(environment_named(name, places=places)) as other,
        ):
            assert one.describe().pid != other.describe().pid

    def test_is_verified_from_inside_and_outside(self, stand_ins: StandIns, name: str) -> None:
        facts = collected(name, EnvironmentOptions(image=IMAGE))
        mode = mode_of(facts)
        assert mode.layers
        assert mode.problems == ()
        # Over ssh there is nothing to prove from outside.
        assert facts.evidence.active is (None if name == "ssh:somewhere" else True)

    def test_leaves_no_process_behind(self, stand_ins: StandIns, places: Places, name: str) -> None:
        connection = WorkerConnection(environment_named(name, places=places))
        pid = connection.pid
        connection.describe()
        connection.close()
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)

    def test_another_version_there_is_refused(
        self, stand_ins: StandIns, places: Places, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("gputax.environments.connection.__version__", "99.0")
        with (
            WorkerConnection(environment_named(name, places=places)) as connection,
            pytest.raises(PreflightError, match=r"this is gputax 99\.0"),
        ):
            connection.describe()


def refusal(name: str, places: Places) -> PreflightError:
    connection = WorkerConnection(environment_named(name, places=places))
    with pytest.raises(PreflightError) as raised:
        connection.describe()
    assert connection.ended
    return raised.value


@pytest.mark.parametrize(
    ("name", "failure", "step"),
    [
        ("ssh:somewhere", "255 Host key verification failed.", "ssh somewhere"),
        ("ssh:somewhere", "255 you@somewhere: Permission denied (publickey).", "ssh-copy-id somewhere"),
        ("ssh:somewhere", "255 ssh: Could not resolve hostname somewhere: Name or service not known", "~/.ssh/config"),
        ("ssh:somewhere", "255 ssh: connect to host somewhere port 22: Connection refused", "ssh -v somewhere true"),
        ("ssh:somewhere", "1 /usr/bin/python3: No module named gputax", "--remote-command"),
        ("ssh:somewhere", "1 (ModuleNotFoundError: No module named 'gputax')", "--remote-command"),
        ("container", "125 docker: Cannot connect to the Docker daemon at unix:///x.", "systemctl start docker"),
        (
            "container",
            "125 Unable to find image 'gputax:test' locally",
            "docker build -f docker/Dockerfile -t gputax:test",
        ),
        ("container", "125 could not select device driver with capabilities: [[gpu]]", "NVIDIA container toolkit"),
        ("container", "1 /usr/bin/python: No module named gputax", "docker/Dockerfile"),
    ],
)
def test_what_goes_wrong_is_told_with_its_next_step(
    stand_ins: StandIns, places: Places, monkeypatch: pytest.MonkeyPatch, name: str, failure: str, step: str
) -> None:
    monkeypatch.setenv("STAND_IN_FAILS", failure)
    error = refusal(name, places)
    assert step in error.next_step
    assert failure.split()[-1] in error.what


def test_a_container_is_removed_even_if_its_worker_was_killed(stand_ins: StandIns, places: Places) -> None:
    connection = WorkerConnection(environment_named("container", places=places))
    connection.describe()
    connection.end()
    (start,), (removal,) = stand_ins.calls("run"), stand_ins.calls("rm")
    assert removal == ["docker", "rm", "--force", start[start.index("--name") + 1]]


def test_without_any_engine_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PreflightError, match="neither docker nor podman") as raised:
        environment_named("container").start()
    assert "apt-get install" in raised.value.next_step


@pytest.mark.parametrize("stand_ins", ["container with docker", "container with podman"], indirect=True)
def test_a_runtime_that_is_not_there_is_refused(stand_ins: StandIns, places: Places) -> None:
    with pytest.raises(PreflightError, match="has no runtime 'runsc'") as raised:
        environment_named("container:runsc", places=places).start()
    assert "docs/runtimes.md" in raised.value.next_step
    assert not stand_ins.calls("run")


@pytest.mark.parametrize("stand_ins", ["container with podman"], indirect=True)
def test_a_runtime_whose_program_is_another_one_is_refused(
    stand_ins: StandIns, places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STAND_IN_RUNTIMES", json.dumps({"runsc": "runc version 1.1.5\ncommit: 1"}))
    with pytest.raises(PreflightError, match=r"runsc is runc, not gVisor: its program by its --version is runc"):
        environment_named("container:runsc", places=places).start()
    assert not stand_ins.calls("run")


@pytest.mark.parametrize("stand_ins", ["container with docker", "container with podman"], indirect=True)
def test_a_runtime_is_ready_if_engine_and_image_are_there(stand_ins: StandIns) -> None:
    assert ready_runtime("crun", IMAGE)
    assert not ready_runtime("runsc", IMAGE)
    assert not ready_runtime("crun", "other:image")


def evidence_of(name: str, places: Places) -> list[str]:
    environment = environment_named(name, places=places)
    with WorkerConnection(environment) as connection:
        return list(environment.evidence(connection.describe()).reasons)


@pytest.mark.parametrize("stand_ins", ["container with podman"], indirect=True)
def test_a_runtime_that_gives_no_kernel_of_its_own_is_not_gvisor(
    stand_ins: StandIns, places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STAND_IN_RUNTIMES", json.dumps({"runsc": "runsc version release-20260905"}))
    (reason,) = evidence_of("container:runsc", places)
    assert "under gVisor a program sees gVisor's kernel, but the worker sees 'Linux version" in reason


@pytest.mark.parametrize("stand_ins", ["another runtime with podman"], indirect=True)
def test_an_engine_that_started_another_runtime_is_found_out(
    stand_ins: StandIns, places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STAND_IN_STARTS", "runc")
    reasons = evidence_of("container:crun", places)
    assert "podman started the runtime runc, not crun" in reasons


def test_the_remote_command_is_the_users_own(stand_ins: StandIns) -> None:
    command = shlex.join([sys.executable, "-m", "gputax.worker"])
    with (
        Places(EnvironmentOptions(remote_command=command)) as places,
        WorkerConnection(environment_named("ssh:somewhere", places=places)) as connection,
    ):
        connection.describe()
    assert stand_ins.calls("ssh")[0][-1] == f"exec env PYTHONUNBUFFERED=1 {command}"
