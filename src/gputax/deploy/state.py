"""A deployment on disk: its state, event log and command log, with which any later command begins or continues."""

from __future__ import annotations

import datetime
import fcntl
import json
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from gputax.deploy.tools import redacted
from gputax.errors import GputaxError, PreflightError, ResultsError, UsageError
from gputax.results.files import disk_error, write_text

SCHEMA_VERSION = 1
FOLDER = "deployment"


@dataclass(frozen=True)
class StepRecord:
    """The state of one step. `ours`: this deployment created the resource, and so may delete it."""

    state: str = "to do"  # to do, running, done, failed, interrupted, undone
    begun_at: str = ""
    ended_at: str = ""
    ours: bool = False
    how: str = ""  # applied, found
    error: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class State:
    """Everything that a later command needs; no secrets."""

    provider: str
    run_id: str
    created_at: str
    choices: Mapping[str, Any]
    idle_limit_s: float
    steps: Mapping[str, StepRecord] = field(default_factory=dict)
    destroyed_at: str = ""
    earlier_runs: tuple[str, ...] = ()
    """Earlier runs of this deployment: objects with their ids are ours too."""
    schema_version: int = SCHEMA_VERSION

    def record(self, step: str) -> StepRecord:
        """Return the state of a step."""
        return self.steps.get(step, StepRecord())

    def made(self, run_id: str) -> bool:
        """Whether an object with this run id belongs to this deployment."""
        return run_id in (self.run_id, *self.earlier_runs)

    def with_record(self, step: str, record: StepRecord) -> State:
        """Return the state with one changed step."""
        return replace(self, steps={**self.steps, step: record})


class Deployment:
    """The directory `results/NAME/deployment` and its files."""

    def __init__(self, results: Path) -> None:
        self.results = results
        self.path = results / FOLDER
        self._state: State | None = None

    @property
    def state_path(self) -> Path:
        """The file with the state."""
        return self.path / "state.json"

    @property
    def log_path(self) -> Path:
        """The log of every command's output."""
        return self.path / "deployment.log"

    def exists(self) -> bool:
        """Whether a deployment was started here."""
        return self.state_path.exists()

    @property
    def state(self) -> State:
        """The state, read once from disk."""
        if self._state is None:
            self._state = _read_state(self.state_path)
        return self._state

    def hold(self, state: State) -> None:
        """Use this state; it is written with the first change."""
        self._state = state

    def save(self, state: State) -> None:
        """Write the state atomically."""
        self._state = state
        write_text(self.state_path, json.dumps(asdict(state), indent=2) + "\n")

    def event(self, kind: str, **details: Any) -> None:
        """Append one line to the event log."""
        self._append(self.path / "events.jsonl", json.dumps({"at": now_text(), "event": kind, **details}) + "\n")

    def log(self, text: str) -> None:
        """Append lines to the log, each with its time, without secrets."""
        stamp = now_text()
        self._append(self.log_path, "".join(f"{stamp} {line}\n" for line in redacted(text).splitlines()))

    def _append(self, path: Path, text: str) -> None:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            with path.open("a") as file:
                file.write(text)
        except OSError as error:
            raise disk_error(path, error) from error

    def events(self) -> list[dict[str, Any]]:
        """Read the event log; a line truncated by a crash is skipped."""
        path = self.path / "events.jsonl"
        found = []
        for line in path.read_text().splitlines() if path.exists() else []:
            with suppress(ValueError):
                found.append(json.loads(line))
        return found

    def log_tail(self, lines: int) -> list[str]:
        """Return the last lines of the log."""
        return self.log_path.read_text().splitlines()[-lines:] if self.log_path.exists() else []

    def at_work(self) -> bool:
        """Whether another command is using this deployment; the kernel releases the lock of a killed one."""
        try:
            descriptor = os.open(self.path / ".lock", os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock that lets only one command at a time change this deployment."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self.path / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise disk_error(self.path, error) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(descriptor)
            raise PreflightError(
                "another gputax command is using this deployment",
                where=str(self.path),
                next_step=f"gputax status --out {self.results} --watch",
            ) from error
        try:
            yield
        finally:
            os.close(descriptor)


def _read_state(path: Path) -> State:
    try:
        data = json.loads(path.read_text())
        if data.get("schema_version", 0) > SCHEMA_VERSION:
            raise ResultsError("this deployment was created by a newer gputax", where=str(path))
        steps = {name: StepRecord(**record) for name, record in data.pop("steps").items()}
        earlier = tuple(data.pop("earlier_runs", ()))
        return State(**data, steps=steps, earlier_runs=earlier)
    except FileNotFoundError as error:
        raise UsageError("no deployment here", where=str(path.parent), next_step="gputax deploy") from error
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise ResultsError(f"cannot read the deployment's state: {error}", where=str(path)) from error


def find_deployment(out: str, root: Path = Path("results")) -> Deployment:
    """Return the given deployment, or the only existing one."""
    if out:
        deployment = Deployment(Path(out))
        if not deployment.exists():
            raise UsageError("no deployment here", where=str(deployment.path), next_step="gputax deploy")
        return deployment
    found = [Deployment(path.parent.parent) for path in sorted(root.glob(f"*/{FOLDER}/state.json"))]
    alive = [deployment for deployment in found if not deployment.state.destroyed_at]
    chosen = alive or found
    if not chosen:
        raise UsageError("no deployment under results/", next_step="gputax deploy current, or gputax deploy gke")
    if len(chosen) > 1:
        names = ", ".join(str(deployment.results) for deployment in chosen)
        raise UsageError(f"there are {len(chosen)} deployments: {names}", next_step=f"--out {chosen[0].results}")
    return chosen[0]


def forgotten(root: Path, now: datetime.datetime) -> list[tuple[Deployment, float]]:
    """Return the deployments whose own cluster is idle for longer than the limit, with the idle seconds.

    An existing cluster costs the same with and without our Job, so it causes no warning.
    """
    found = []
    for path in sorted(root.glob(f"*/{FOLDER}/state.json")):
        deployment = Deployment(path.parent.parent)
        with suppress(GputaxError, ValueError, IndexError, KeyError):
            state = deployment.state
            last = datetime.datetime.fromisoformat(str(deployment.events()[-1]["at"]))
            idle_s = (now - last).total_seconds()
            ours = state.record("cluster").ours and not state.destroyed_at
            if ours and idle_s > state.idle_limit_s:
                found.append((deployment, idle_s))
    return found


def now() -> datetime.datetime:
    """Return the current time."""
    return datetime.datetime.now(datetime.UTC)


def now_text() -> str:
    """Return the current time in the format of the event log."""
    return now().isoformat(timespec="milliseconds")


# Steps of one run of the benchmark; all earlier steps set up the cluster.
RUN_STEPS = ("job", "run", "collect")


def begin_state(
    provider: str, choices: Mapping[str, Any], deployment: Deployment, idle_limit_s: float, rerun: bool
) -> State:
    """Return the state to continue with; it is written only after the user confirms."""
    out = deployment.results
    if not deployment.exists():
        if foreign_results(deployment):
            raise UsageError(
                "the directory already contains other results",
                where=str(out),
                next_step=f"choose another --out, not {out}",
            )
        return _take(deployment, State(provider, new_run_id(), now_text(), choices, idle_limit_s))
    state = deployment.state
    collected = is_collected(deployment, state.run_id)
    if collected and not rerun and not _place_differs(state, provider, choices):
        return state
    if state.destroyed_at:
        if collected and not rerun:
            raise UsageError(
                "the directory contains results of an earlier deployment",
                where=str(out),
                next_step="use another --out, or --rerun to replace them",
            )
        fresh_state = State(provider, new_run_id(), now_text(), choices, idle_limit_s, earlier_runs=_runs(state))
        return _take(deployment, fresh_state)
    if _place_differs(state, provider, choices):
        raise UsageError(
            f"the directory contains another deployment ({_differences(state, provider, choices)})",
            where=str(out),
            next_step=f"use another --out, or run gputax destroy --out {out} first",
        )
    if rerun or state.choices["benchmark"] != choices["benchmark"]:
        # A different benchmark or --rerun: a new run on the same cluster.
        kept = {name: record for name, record in state.steps.items() if name not in RUN_STEPS}
        job = state.record("job")
        fresh = {"job": StepRecord(ours=True)} if job.ours else {}
        again = replace(state, run_id=new_run_id(), earlier_runs=_runs(state), steps={**kept, **fresh})
        return _take(deployment, replace(again, choices=choices, idle_limit_s=idle_limit_s))
    return state


def _runs(state: State) -> tuple[str, ...]:
    return (*state.earlier_runs, state.run_id)


def _take(deployment: Deployment, state: State) -> State:
    deployment.hold(state)
    return state


def _place_differs(state: State, provider: str, choices: Mapping[str, Any]) -> bool:
    return state.provider != provider or any(
        state.choices.get(key) != choices.get(key) for key in (provider, "build") if key in choices
    )


def _differences(state: State, provider: str, choices: Mapping[str, Any]) -> str:
    if state.provider != provider:
        return f"provider {state.provider}, not {provider}"
    old, new = state.choices.get(provider) or {}, choices.get(provider) or {}
    changed = [f"{key} {old.get(key)!r}, not {value!r}" for key, value in new.items() if old.get(key) != value]
    return ", ".join(changed) or ("with an image built here" if state.choices.get("build") else "with a finished image")


def new_run_id() -> str:
    """Return a short id that is valid as a label."""
    return secrets.token_hex(4)


def is_collected(deployment: Deployment, run_id: str) -> bool:
    """Whether the complete record of this run is in the result directory."""
    try:
        marker = json.loads((deployment.path / "collected.json").read_text())
        return marker["run_id"] == run_id and not marker.get("job_failed") and record_path(deployment).exists()
    except (OSError, ValueError, KeyError):
        return False


def foreign_results(deployment: Deployment) -> bool:
    """Whether the result directory contains results that are not from a deployment."""
    return record_path(deployment).exists() and not (deployment.path / "collected.json").exists()


def record_path(deployment: Deployment) -> Path:
    """Return the path of the collected record."""
    return deployment.results / "benchmark_results.json"
