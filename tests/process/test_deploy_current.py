"""`gputax deploy` to the cluster of a kubeconfig, played by a stand-in API server: GPUs, images, permissions, undo."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gputax.deploy import gpu_nodes
from gputax.results.importers.pod_log import result_block
from tests.builders.documents import record as run_record
from tests.standins.cloud import Cloud

JOB = "/apis/batch/v1/namespaces/gputax/jobs/gpu-benchmark-baseline"


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[Cloud]:
    cloud = Cloud(tmp_path)
    cloud.api.log = result_block(run_record())
    yield cloud
    cloud.close()
    assert cloud.calls() == [], "no program is called for a cluster that is there"


def deploy(cloud: Cloud, *words: str) -> tuple[int, str]:
    done = cloud.gputax("deploy", "--yes", *words, KUBECONFIG=str(cloud.home / "kubeconfig"))
    return done.returncode, done.stdout + done.stderr


def test_a_cluster_with_gpus_needs_no_plugin(cloud: Cloud) -> None:
    cloud.api.add_node("node-1", gpus=1)
    code, output = deploy(cloud)
    assert code == 0, output
    assert cloud.api.named("DaemonSet") == []
    away = cloud.gputax("destroy", "--yes", KUBECONFIG=str(cloud.home / "kubeconfig"))
    assert away.returncode == 0, away.stderr
    assert cloud.api.named("Job") == cloud.api.named("Namespace") == cloud.api.named("Pod") == []


def test_the_device_plugin_is_installed_where_a_gpu_node_advertises_nothing(cloud: Cloud) -> None:
    cloud.api.add_node("node-1", gpus=0, labels={"nvidia.com/gpu.present": "true"})
    code, output = deploy(cloud, "--no-device-plugin")
    assert code == 3
    assert "no device plugin runs there" in output
    cloud.work.joinpath("results/baseline/deployment/state.json").unlink()
    code, output = deploy(cloud)
    assert code == 0, output
    assert cloud.api.named("DaemonSet") == [gpu_nodes.PLUGIN_NAME]
    (plugin,) = [each for each in cloud.api.objects.values() if each["kind"] == "DaemonSet"]
    assert plugin["spec"]["template"]["spec"]["containers"][0]["image"].endswith(f":{gpu_nodes.PLUGIN_VERSION}")
    assert cloud.gputax("destroy", "--yes", KUBECONFIG=str(cloud.home / "kubeconfig")).returncode == 0
    assert cloud.api.named("DaemonSet") == [], "we installed it, so it goes"


def test_a_plugin_of_others_is_not_touched(cloud: Cloud) -> None:
    cloud.api.add_node("node-1", gpus=0, labels={"nvidia.com/gpu.present": "true"})
    theirs = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "nvidia-device-plugin", "namespace": "gpu-operator"},
        "spec": {
            "selector": {"matchLabels": {"a": "b"}},
            "template": {"spec": {"containers": [{"name": "c", "image": "x/k8s-device-plugin:v0.1"}]}},
        },
    }
    cloud.api.objects["/apis/apps/v1/namespaces/gpu-operator/daemonsets/nvidia-device-plugin"] = theirs
    code, output = deploy(cloud)
    assert code == 3
    assert "kubectl -n gpu-operator logs daemonset/nvidia-device-plugin" in output
    assert cloud.api.named("DaemonSet") == ["nvidia-device-plugin"]


def test_no_gpu_anywhere_says_so_and_the_cpu_is_never_taken_in_silence(cloud: Cloud) -> None:
    cloud.api.add_node("node-1", gpus=0)
    code, output = deploy(cloud)
    assert code == 3
    assert "--device cpu" in output
    assert cloud.api.named("Job") == []
    code, output = deploy(cloud, "--device", "cpu")
    assert code == 0, output


def test_a_failed_job_is_told_and_made_anew_by_the_same_command(cloud: Cloud) -> None:
    cloud.api.behaviour = "fail"
    code, output = deploy(cloud, "--device", "cpu")
    assert code == 1
    assert "exit code 3" in output
    assert "kubectl -n gputax logs job/gpu-benchmark-baseline" in output
    first = cloud.api.objects[JOB]["metadata"]["uid"]
    cloud.api.behaviour = "complete"
    code, output = deploy(cloud, "--device", "cpu")
    assert code == 0, output
    assert cloud.api.objects[JOB]["metadata"]["uid"] != first


def test_what_a_job_measured_comes_home_though_some_of_it_is_not_valid(cloud: Cloud) -> None:
    cloud.api.behaviour = "invalid"
    code, output = deploy(cloud, "--device", "cpu")
    assert code == 5
    assert "exit code 5" in output
    assert "gputax report results/baseline" in output
    record = cloud.work / "results/baseline/benchmark_results.json"
    assert json.loads(record.read_text())["benchmarks"]
    record.unlink()
    cloud.api.behaviour = "complete"
    code, output = deploy(cloud, "--device", "cpu")
    assert code == 0, "the same command measures again"
    assert record.exists()


def test_a_job_that_measured_nothing_says_so(cloud: Cloud) -> None:
    cloud.api.behaviour, cloud.api.log = "invalid", "Traceback"
    code, output = deploy(cloud, "--device", "cpu")
    assert code == 5
    assert "no results to collect" in output
    assert "kubectl -n gputax logs job/gpu-benchmark-baseline" in output


def test_a_namespace_that_is_being_deleted_is_waited_for(cloud: Cloud) -> None:
    path = "/api/v1/namespaces/gputax"
    going = {"name": "gputax", "deletionTimestamp": "2026-01-01T00:00:00Z"}
    cloud.api.objects[path] = {"apiVersion": "v1", "kind": "Namespace", "metadata": going}

    def drop_when_awaited() -> None:
        # Four questions about it: it is awaited. A fixed time would be over before a busy machine has started.
        deadline = time.monotonic() + 60
        while list(cloud.api.requests).count(f"GET {path}") < 4 and time.monotonic() < deadline:
            time.sleep(0.02)
        cloud.api.drop(path)

    threading.Thread(target=drop_when_awaited, daemon=True).start()
    code, output = deploy(cloud, "--device", "cpu")
    assert code == 0, output
    assert "waiting until the old one is deleted" in output
    assert cloud.state()["steps"]["namespace"]["ours"] is True


def test_destroy_is_done_when_the_namespace_is_gone(cloud: Cloud) -> None:
    assert deploy(cloud, "--device", "cpu")[0] == 0
    cloud.api.namespace_goes_after_s = 2.0
    begun = time.monotonic()
    away = cloud.gputax("destroy", "--yes", KUBECONFIG=str(cloud.home / "kubeconfig"))
    assert away.returncode == 0, away.stderr
    assert time.monotonic() - begun > 2
    assert cloud.api.named("Namespace") == []


def test_a_namespace_of_others_and_their_pods_stay(cloud: Cloud) -> None:
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "gputax"}}
    cloud.api.objects["/api/v1/namespaces/gputax"] = namespace
    assert deploy(cloud, "--device", "cpu")[0] == 0
    away = cloud.gputax("destroy", "--yes", KUBECONFIG=str(cloud.home / "kubeconfig"))
    assert away.returncode == 0, away.stderr
    assert "it existed before" in away.stderr
    assert cloud.api.named("Namespace") == ["gputax"]


def foreign_job(run_id: str) -> dict[str, Any]:
    labels = {"gputax.dev/run": run_id, "app.kubernetes.io/name": "gputax"} if run_id else {}
    metadata = {"name": "gpu-benchmark-baseline", "namespace": "gputax", "labels": labels, "uid": "theirs"}
    template = {"spec": {"containers": [{"name": "c", "image": "i"}]}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"template": template}}


@pytest.mark.parametrize(("run_id", "whose"), [("0badcafe", "another deployment"), ("", "not created by gputax")])
def test_a_job_of_others_is_neither_replaced_nor_removed(cloud: Cloud, run_id: str, whose: str) -> None:
    cloud.api.objects[JOB] = foreign_job(run_id)
    code, output = deploy(cloud, "--device", "cpu")
    assert code == 3, output
    assert whose in output
    assert "kubectl -n gputax delete job gpu-benchmark-baseline" in output
    away = cloud.gputax("destroy", "--yes", KUBECONFIG=str(cloud.home / "kubeconfig"))
    assert away.returncode == 0, away.stderr
    assert cloud.api.objects[JOB]["metadata"]["uid"] == "theirs"
    assert cloud.api.named("Namespace") == ["gputax"], "their Job is in it"


def test_a_job_that_a_colleague_put_in_our_place_stays(cloud: Cloud) -> None:
    assert deploy(cloud, "--device", "cpu")[0] == 0
    cloud.api.drop(JOB)
    cloud.api.objects[JOB] = foreign_job("0badcafe")
    away = cloud.gputax("destroy", "--yes", KUBECONFIG=str(cloud.home / "kubeconfig"))
    assert away.returncode == 0, away.stderr
    assert "keeping Job gpu-benchmark-baseline: another deployment created it" in away.stderr
    assert cloud.api.named("Job") == ["gpu-benchmark-baseline"]


def test_a_namespace_that_we_made_stays_while_others_keep_something_in_it(cloud: Cloud) -> None:
    assert deploy(cloud, "--device", "cpu")[0] == 0
    for name in ("kube-root-ca.crt", "theirs"):
        metadata = {"name": name, "namespace": "gputax"}
        path = f"/api/v1/namespaces/gputax/configmaps/{name}"
        cloud.api.objects[path] = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {}}
    away = cloud.gputax("destroy", "--yes", KUBECONFIG=str(cloud.home / "kubeconfig"))
    assert away.returncode == 0, away.stderr
    assert "keeping Namespace gputax: it contains ConfigMap theirs, created by others" in away.stderr
    assert cloud.api.named("Job") == []
    assert cloud.api.named("Namespace") == ["gputax"]


def test_every_kubectl_of_a_plan_names_the_context_that_was_chosen(cloud: Cloud) -> None:
    planned = cloud.gputax("deploy", "--device", "cpu", "--context", "other", "--dry-run")
    assert planned.returncode == 0, planned.stderr
    assert planned.stdout.startswith("Plan: the cluster of the context other")
    script = (cloud.work / "results/baseline/deployment/commands.sh").read_text()
    assert script.count("kubectl") == script.count("kubectl --context other") > 4
    assert "# kubectl --context other delete namespace gputax" in script


def test_manifests_of_another_plan_do_not_stay(cloud: Cloud) -> None:
    folder = cloud.work / "results/baseline/deployment/manifests"
    assert cloud.gputax("deploy", "--dry-run").returncode == 0
    assert (folder / "05-nvidia-device-plugin.yaml").exists()
    assert cloud.gputax("deploy", "--device", "cpu", "--dry-run").returncode == 0
    assert sorted(path.name for path in folder.iterdir()) == ["10-namespace.yaml", "20-job.yaml"]


def test_a_user_who_may_not_look_at_namespaces_can_deploy_into_one(cloud: Cloud) -> None:
    cloud.api.forbidden.add("/api/v1/namespaces/gputax")
    code, output = deploy(cloud, "--device", "cpu")
    assert code == 0, output


def test_another_cluster_behind_the_same_kubeconfig_is_refused(cloud: Cloud) -> None:
    assert deploy(cloud, "--device", "cpu")[0] == 0
    kubeconfig = json.loads((cloud.home / "kubeconfig").read_text())
    kubeconfig["clusters"][0]["cluster"]["server"] = "http://127.0.0.1:9"
    (cloud.home / "kubeconfig").write_text(json.dumps(kubeconfig))
    away = cloud.gputax("destroy", "--yes", KUBECONFIG=str(cloud.home / "kubeconfig"))
    assert away.returncode != 0
    assert "this deployment is on" in away.stderr
    status = cloud.gputax("status", KUBECONFIG=str(cloud.home / "kubeconfig"))
    assert status.returncode == 0
    assert "this deployment is on" in status.stdout


def test_rerun_replaces_the_results_and_others_are_never_overwritten(cloud: Cloud) -> None:
    assert deploy(cloud, "--device", "cpu")[0] == 0
    before = cloud.state()["run_id"]
    code, output = deploy(cloud, "--device", "cpu", "--rerun")
    assert code == 0, output
    assert cloud.state()["run_id"] != before
    strange = cloud.work / "results/strange"
    strange.mkdir()
    (strange / "benchmark_results.json").write_text("{}")
    code, output = deploy(cloud, "--device", "cpu", "--out", "results/strange")
    assert code == 2
    assert "already contains other results" in output


def test_a_log_without_a_result_block_is_kept_and_told(cloud: Cloud) -> None:
    cloud.api.log = "no result\n"
    code, output = deploy(cloud, "--device", "cpu")
    assert code == 5
    assert "no result block" in output
    assert (cloud.work / "results/baseline/pod.log").read_text() == "no result\n"
    assert not (cloud.work / "results/baseline/benchmark_results.json").exists()


def test_no_secret_of_a_pods_log_is_written_or_shown(cloud: Cloud) -> None:
    cloud.api.log = "fetching https://me:s3cr3t99@example.org/model with token=s3cr3t99\n"
    code, output = deploy(cloud, "--device", "cpu")
    assert code == 5, output
    shown = cloud.gputax("status", "--json", KUBECONFIG=str(cloud.home / "kubeconfig")).stdout
    assert "example.org/model" in shown
    assert "s3cr3t99" not in output + shown
    text = (cloud.work / "results/baseline/pod.log").read_text()
    assert text == "fetching https://(removed)@example.org/model with token=(removed)\n"


def test_no_kubeconfig(cloud: Cloud) -> None:
    done = cloud.gputax("deploy", "--yes")
    assert done.returncode == 3
    assert "export KUBECONFIG" in done.stderr
    none = cloud.gputax("status")
    assert none.returncode == 2
    assert "gputax deploy" in none.stderr
