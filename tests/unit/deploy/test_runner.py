"""The runner and the teardown against tools that a test plays, with a clock of their own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gputax.deploy.job import await_job
from gputax.deploy.plan import Answer, ApplyObjects, AwaitJob, Command, Plan, RunCommands, Step
from gputax.deploy.runner import Runner
from gputax.deploy.state import Deployment, State, StepRecord
from gputax.deploy.teardown import Teardown
from gputax.deploy.tools import TROUBLES, Finished, trouble_in
from gputax.errors import GputaxError
from gputax.kubernetes.objects import RUN_LABEL

NOT_FOUND = Finished(1, "ERROR: NOT_FOUND")


class PlayedTools:
    """Answers to `ask` come one after the other; the clock moves only by sleeping."""

    def __init__(
        self, *answers: Finished, job: dict[str, Any] | None = None, pod: dict[str, Any] | None = None
    ) -> None:
        self.answers = list(answers)
        self.called: list[str] = []
        self.clock_s = 0.0
        self.job, self.pod = job, pod
        self.events: list[dict[str, Any]] = []

    def call(self, command: Command, say: Callable[[str], None]) -> Finished:
        self.called.append(command.text())
        return Finished(0, "")

    def ask(self, command: Command) -> Finished:
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    def cluster(self) -> Any:
        return self

    def get(self, kind: str, name: str, *, namespace: str = "") -> dict[str, Any] | None:
        return self.job

    def list(self, kind: str, **_: Any) -> list[dict[str, Any]]:
        return self.events if kind == "Event" else [self.pod] if self.pod else []

    def sleep(self, seconds: float) -> None:
        self.clock_s += seconds

    def seconds(self) -> float:
        return self.clock_s


def thing(limit_s: float = 900.0) -> Plan:
    check = Answer(
        Command(("cloud", "describe")), ("RUNNING",), under_way=("PROVISIONING",), going=("STOPPING",), limit_s=limit_s
    )
    step = Step("thing", "A thing", RunCommands((Command(("cloud", "create")),)), check, 1.0)
    undo = (Command(("cloud", "delete")),)
    return Plan("played", "a played cloud", (Step(**{**vars(step), "undo": undo}),), (), "")


@pytest.fixture
def deployment(tmp_path: Path) -> Deployment:
    deployment = Deployment(tmp_path / "results/baseline")
    deployment.save(State("played", "r1", "2026-01-01T00:00:00+00:00", {}, 7200.0))
    return deployment


def execute(deployment: Deployment, tools: PlayedTools, plan: Plan | None = None) -> None:
    Runner(plan or thing(), deployment, tools, lambda _: None).execute()


def test_what_is_absent_is_made_and_awaited(deployment: Deployment) -> None:
    tools = PlayedTools(NOT_FOUND, Finished(0, "PROVISIONING"), Finished(0, "PROVISIONING"), Finished(0, "RUNNING"))
    execute(deployment, tools)
    assert tools.called == ["cloud create"]
    assert tools.clock_s == 20
    assert deployment.state.record("thing").ours


def test_what_an_interrupted_deploy_left_in_the_making_is_awaited_and_not_made_twice(deployment: Deployment) -> None:
    class Interrupting(PlayedTools):
        def call(self, command: Command, say: Callable[[str], None]) -> Finished:
            raise KeyboardInterrupt

    with pytest.raises(GputaxError, match="interrupted in step 1 of 1"):
        execute(deployment, Interrupting(NOT_FOUND))
    tools = PlayedTools(Finished(0, "PROVISIONING"), Finished(0, "RUNNING"))
    execute(deployment, tools)
    assert tools.called == []
    assert deployment.state.record("thing").ours, "we began it, so destroy removes it"


def test_what_somebody_else_is_making_stays_theirs(deployment: Deployment) -> None:
    execute(deployment, PlayedTools(Finished(0, "PROVISIONING"), Finished(0, "RUNNING")))
    assert not deployment.state.record("thing").ours
    tools = PlayedTools(Finished(0, "RUNNING"))
    Teardown(thing(), deployment, tools, lambda _: None).destroy()
    assert tools.called == []


def test_a_deletion_under_way_is_awaited_before_the_new_one(deployment: Deployment) -> None:
    tools = PlayedTools(Finished(0, "STOPPING"), Finished(0, "STOPPING"), NOT_FOUND, Finished(0, "RUNNING"))
    execute(deployment, tools)
    assert tools.called == ["cloud create"]


def test_what_never_comes_ends_with_its_own_question(deployment: Deployment) -> None:
    with pytest.raises(GputaxError, match="not ready after 60 s") as error:
        execute(deployment, PlayedTools(NOT_FOUND, Finished(0, "PROVISIONING")), thing(limit_s=60))
    assert "cloud describe" in error.value.next_step


def test_a_question_that_fails_for_another_reason_is_no_absence(deployment: Deployment) -> None:
    tools = PlayedTools(Finished(1, "ERROR: invalid_grant"))
    with pytest.raises(GputaxError, match="not logged in"):
        execute(deployment, tools)
    assert tools.called == [], "nothing is created while it is unknown what is there"


def test_destroy_waits_for_what_is_being_made_then_removes_it(deployment: Deployment) -> None:
    execute(deployment, PlayedTools(NOT_FOUND, Finished(0, "RUNNING")))
    tools = PlayedTools(Finished(0, "PROVISIONING"), Finished(0, "RUNNING"), Finished(0, "STOPPING"), NOT_FOUND)
    Teardown(thing(), deployment, tools, lambda _: None).destroy()
    assert tools.called == ["cloud delete"]
    assert deployment.state.destroyed_at


def test_what_is_still_there_after_its_removal_is_not_called_destroyed(deployment: Deployment) -> None:
    execute(deployment, PlayedTools(NOT_FOUND, Finished(0, "RUNNING")))
    with pytest.raises(GputaxError, match="still exists"):
        Teardown(thing(), deployment, PlayedTools(Finished(0, "RUNNING")), lambda _: None).destroy()
    assert not deployment.state.destroyed_at


class OneNamespace(PlayedTools):
    """A cluster with our namespace and perhaps a ConfigMap of somebody else in it."""

    def __init__(self, *config_maps: str) -> None:
        super().__init__(NOT_FOUND)
        self.config_maps = config_maps

    def get(self, kind: str, name: str, *, namespace: str = "") -> dict[str, Any] | None:
        return None if f"delete {kind} {name}" in self.called else {"metadata": {"name": name}}

    def list(self, kind: str, **_: Any) -> list[dict[str, Any]]:
        return [{"metadata": {"name": name}} for name in self.config_maps] if kind == "ConfigMap" else []

    def delete(self, kind: str, name: str, *, namespace: str = "") -> bool:
        self.called.append(f"delete {kind} {name}")
        return True


@pytest.mark.parametrize(("config_maps", "removed"), [((), ["delete Namespace ours"]), (("theirs",), [])])
def test_a_namespace_goes_only_if_it_holds_nothing_of_others(
    deployment: Deployment, config_maps: tuple[str, ...], removed: list[str]
) -> None:
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ours"}}
    step = Step("objects", "Objects", ApplyObjects("objects.yaml", (namespace,)), None, 1.0)
    deployment.save(deployment.state.with_record("objects", StepRecord(state="done", ours=True)))
    tools, said = OneNamespace(*config_maps), list[str]()
    Teardown(Plan("played", "a played cloud", (step,), (), ""), deployment, tools, said.append).destroy()
    assert tools.called == removed
    assert any("ConfigMap theirs, created by others" in line for line in said) == bool(config_maps)


def pending(reason: str, message: str) -> dict[str, Any]:
    condition = {"type": "PodScheduled", "status": "False", "reason": reason, "message": message}
    return {
        "metadata": {"name": "p", "labels": {RUN_LABEL: "r1"}},
        "status": {"phase": "Pending", "conditions": [condition]},
    }


def test_a_pod_that_no_node_takes_ends_soon_unless_a_node_was_promised() -> None:
    action = AwaitJob("gputax", "j", pending_limit_s=600, limit_s=7200, unschedulable_s=30)
    pod = pending("Unschedulable", "0/1 nodes are available: 1 Insufficient nvidia.com/gpu.")
    tools = PlayedTools(NOT_FOUND, job={"metadata": {}}, pod=pod)
    with pytest.raises(GputaxError, match=r"Insufficient nvidia\.com/gpu"):
        await_job(tools, action, "r1", lambda _: None)
    assert 30 < tools.clock_s < 40
    promised = PlayedTools(NOT_FOUND, job={"metadata": {}}, pod=pod)
    promised.events = [{"reason": "TriggeredScaleUp"}]
    with pytest.raises(GputaxError, match="cannot start"):
        await_job(promised, action, "r1", lambda _: None)
    assert 600 < promised.clock_s < 610


def test_an_image_that_cannot_be_pulled_ends_the_wait() -> None:
    waiting = {"state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such host"}}}
    pod = {"metadata": {"name": "p"}, "status": {"phase": "Pending", "containerStatuses": [waiting]}}
    tools = PlayedTools(NOT_FOUND, job={"metadata": {}}, pod=pod)
    with pytest.raises(GputaxError, match="ImagePullBackOff") as error:
        await_job(tools, AwaitJob("gputax", "j", 600, 7200, 30), "r1", lambda _: None)
    assert "--image" in error.value.next_step
    assert tools.clock_s < 60


@pytest.mark.parametrize(
    ("output", "what"),
    [
        (
            "ERROR: (gcloud.container.clusters.create) ResponseError: code=403, message=Required permission",
            "permission",
        ),
        ("Insufficient regional quota to satisfy request: resource NVIDIA_T4_GPUS", "quota"),
        ("ERROR: This API method requires billing to be enabled. BILLING_DISABLED", "billing"),
        ("The zone does not have enough resources available to fulfill the request", "no capacity for this machine"),
        ("dial tcp: lookup x: Temporary failure in name resolution", "network"),
    ],
)
def test_what_the_tools_say_is_understood(output: str, what: str) -> None:
    found = trouble_in(output)
    assert found is not None
    assert what in found.what


def test_every_trouble_has_a_next_step() -> None:
    assert all(each.next_step for each in TROUBLES)
    assert trouble_in("something nobody has seen") is None
