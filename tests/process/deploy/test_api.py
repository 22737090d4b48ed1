"""The functions deploy, status, collect, cost and destroy, against a stand-in API server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import gputax
from gputax.deploy.plan import Plan
from gputax.errors import GputaxError, PreflightError, UsageError
from gputax.results.importers.pod_log import result_block
from tests.builders.documents import record as run_record
from tests.standins.kube_api import KubeApi

OUT = "results/baseline"


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[KubeApi]:
    api = KubeApi()
    api.log = result_block(run_record())
    api.add_node("node-1", gpus=1)
    (tmp_path / "kubeconfig").write_text(api.kubeconfig())
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    monkeypatch.chdir(tmp_path)
    yield api
    api.close()


def test_the_life_of_a_deployment(cluster: KubeApi) -> None:
    lines: list[str] = []
    plans: list[Plan] = []
    done = gputax.deploy(suite="quick", price_per_hour=2.0, approve=plans.append, say=lines.append)
    assert (done.new, done.record) == (True, Path(OUT, "benchmark_results.json"))
    assert gputax.read_results(OUT) == run_record()
    assert [step.name for step in plans[0].steps] == ["gpus", "namespace", "job", "run", "collect"]
    assert lines[0].startswith("[1/5] ")

    found = gputax.status()
    assert (found.word, found.results_collected) == ("DONE", True)
    bill = gputax.cost()
    assert bill.cost.usd == pytest.approx(sum(line.hours for line in bill.cost.lines) * 2.0)
    assert bill.to_dict()["method"]

    again = gputax.deploy(suite="quick", price_per_hour=2.0, approve=lambda plan: pytest.fail("nothing to approve"))
    assert not again.new
    done.record.unlink()
    assert gputax.collect().record == done.record
    assert done.record.exists()

    kept = gputax.destroy(if_idle_s=3600.0)
    assert kept.outcome == "in use"
    assert kept.idle_s < 3600.0
    assert cluster.named("Job")
    assert gputax.destroy(say=lines.append).outcome == "destroyed"
    assert cluster.named("Job") == cluster.named("Namespace") == []
    assert gputax.destroy().outcome == "destroyed before"
    assert gputax.status().word == "DESTROYED"


def test_a_plan_that_is_not_approved_changes_nothing(cluster: KubeApi) -> None:
    def refuse(plan: Plan) -> None:
        raise PreflightError("too expensive")

    with pytest.raises(PreflightError, match="too expensive"):
        gputax.deploy(approve=refuse)
    assert cluster.named("Job") == cluster.named("Namespace") == []
    assert not Path(OUT, "deployment/state.json").exists()
    gputax.deploy()
    with pytest.raises(PreflightError, match="too expensive"):
        gputax.destroy(approve=refuse)
    assert cluster.named("Job")


def test_without_a_deployment_each_says_so(cluster: KubeApi) -> None:
    for function in (gputax.status, gputax.collect, gputax.cost, gputax.destroy):
        with pytest.raises(UsageError, match="no deployment"):
            function()
        with pytest.raises(GputaxError, match="no deployment here"):
            function("results/elsewhere")
