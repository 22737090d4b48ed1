"""The plan, the script and the check list, letter by letter; set GPUTAX_WRITE_GOLDEN=1 to write them again."""

from __future__ import annotations

import datetime
import io
import os
from pathlib import Path

from gputax.deploy.cost import Bill, load_prices, spent
from gputax.deploy.plan import BenchmarkChoices, Plan
from gputax.deploy.providers.current import CurrentChoices, current_plan
from gputax.deploy.providers.gke import GkeChoices, default_image, gke_plan
from gputax.deploy.state import State, StepRecord
from gputax.deploy.status import PodLine, Standing, checklist_text
from gputax.report.deployments import script_text, write_cost, write_deployment_plan

FOLDER = Path("results/baseline/deployment")
HERE = Path(__file__).parent


def gke(spot: bool = False) -> Plan:
    choices = GkeChoices(project="my-project-1", spot=spot)
    benchmark = BenchmarkChoices(image=default_image(choices, "1.2.3"), memory="9Gi")
    return gke_plan(choices, benchmark, "r1", "results/baseline", load_prices(), build=True)


def current() -> Plan:
    return current_plan(CurrentChoices(), BenchmarkChoices(image="gputax:1.2.3"), "r1", "results/baseline")


def agree(name: str, text: str) -> None:
    path = HERE / name
    if os.environ.get("GPUTAX_WRITE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text()


def plan_text(plan: Plan) -> str:
    stream = io.StringIO()
    write_deployment_plan(plan, FOLDER, stream, width=80)
    return stream.getvalue()


def test_plan_of_gke() -> None:
    agree("deploy_plan_gke.txt", plan_text(gke()))


def test_plan_of_current() -> None:
    agree("deploy_plan_current.txt", plan_text(current()))


def test_script_of_gke() -> None:
    agree("deploy_commands_gke.sh", script_text(gke(spot=True), FOLDER))


def test_check_list() -> None:
    plan = gke()
    start = datetime.datetime(2026, 1, 1, 12, 23, tzinfo=datetime.UTC)

    def time(minutes: float) -> str:
        return (start + datetime.timedelta(minutes=minutes)).isoformat()

    steps = {
        "apis": StepRecord("done", ended_at=time(0), how="found"),
        "repository": StepRecord("done", time(0), time(0.3), True, "applied"),
        "build": StepRecord("done", time(0.3), time(4), True, "applied"),
        "push": StepRecord("done", time(4), time(6), True, "applied"),
        "cluster": StepRecord("done", time(6), time(12.5), True, "applied"),
        "gpu-pool": StepRecord("done", time(12.5), time(14), True, "applied"),
        "credentials": StepRecord("done", time(14), time(14.1), True, "applied"),
        "namespace": StepRecord("done", time(14.1), time(14.1), True, "applied"),
        "job": StepRecord("done", time(14.1), time(14.2), True, "applied"),
        "run": StepRecord("running", time(14.2), "", True),
    }
    events = [
        {"at": time(6), "event": "step-begun", "step": "cluster"},
        {"at": time(14.1), "event": "step-begun", "step": "job"},
    ]
    now = start + datetime.timedelta(minutes=20)
    standing = Standing(
        plan,
        State("gke", "1f2e3d4c", time(0), {}, 7200.0, steps),
        "results/baseline",
        now,
        spent(plan, events, now),
        pods=(PodLine("gpu-benchmark-baseline-x7k2p", "Running", "gke-gpu-1", "ready on gke-gpu-1"),),
        log=("2026-01-01T12:37:12.000+00:00 applies Job gpu-benchmark-baseline",),
        pod_log=("[2/7] resnet50 offline batch 8 (bare)",),
        last_event_at=time(14.2),
    )
    agree("deploy_status.txt", checklist_text(standing))
    for width in (40, 80, 140):
        stream = io.StringIO()
        write_cost(Bill(plan, standing.cost, {}), stream, width)
        assert "so far" in stream.getvalue()
        assert "0.7276" in stream.getvalue()
        assert max(map(len, stream.getvalue().splitlines())) <= width
