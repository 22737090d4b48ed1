"""`gputax deploy gke` against stand-ins for gcloud, docker and the cluster: order, failures, resume, undo."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gputax.results.importers.pod_log import result_block
from tests.builders.documents import record as run_record
from tests.standins.cloud import Cloud

PROJECT = "--project=my-project-1"
DEPLOY = ("deploy", "gke", PROJECT, "--yes")
IMAGE = "us-central1-docker.pkg.dev/my-project-1/gputax/gputax:0.1.0"
IN_ORDER = [
    "gcloud services enable artifactregistry.googleapis.com container.googleapis.com",
    "gcloud artifacts repositories create gputax",
    "docker build .",
    "gcloud auth configure-docker us-central1-docker.pkg.dev",
    f"docker push {IMAGE}",
    "gcloud container clusters create gpu-benchmark-cluster",
    "gcloud container node-pools create gpu",
    "gcloud container clusters get-credentials gpu-benchmark-cluster",
]


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[Cloud]:
    cloud = Cloud(tmp_path)
    cloud.api.log = "Starting\n" + result_block(run_record())
    yield cloud
    cloud.close()
    assert cloud.violations() == "", "a call that the real tools would refuse"


def steps_of(cloud: Cloud) -> dict[str, str]:
    return {name: record["state"] for name, record in cloud.state()["steps"].items()}


def test_everything_from_nothing_to_results_and_away_again(cloud: Cloud) -> None:
    done = cloud.gputax(*DEPLOY)
    assert done.returncode == 0, done.stderr
    assert cloud.changing_calls() == IN_ORDER
    record = json.loads((cloud.work / "results/baseline/benchmark_results.json").read_text())
    assert record["benchmarks"]
    assert "gputax result begin" in (cloud.work / "results/baseline/pod.log").read_text()
    assert set(steps_of(cloud).values()) == {"done"}
    (job,) = [each for each in cloud.api.objects.values() if each["kind"] == "Job"]
    assert job["spec"]["template"]["spec"]["containers"][0]["image"] == IMAGE
    assert job["spec"]["activeDeadlineSeconds"] == 7200

    before = len(cloud.calls())
    again = cloud.gputax(*DEPLOY)
    assert again.returncode == 0
    assert "Already collected" in again.stdout
    assert not [call for call in cloud.calls()[before:] if "create" in call]

    status = cloud.gputax("status", "--json")
    document = json.loads(status.stdout)
    assert document["status"] == "DONE"
    assert document["cost"]["usd"] > 0
    assert json.loads(cloud.gputax("cost", "--json").stdout)["usd_per_hour_now"] > 0
    collected = cloud.gputax("collect", "--json")
    assert json.loads(collected.stdout)["results"] == 1, collected.stderr

    away = cloud.gputax("destroy", "--yes")
    assert away.returncode == 0, away.stderr
    assert cloud.changing_calls()[len(IN_ORDER) :] == [
        "gcloud container clusters delete gpu-benchmark-cluster",
        "gcloud artifacts repositories delete gputax",
    ]
    world = cloud.world()
    assert not world["clusters"]
    assert not world["pools"]
    assert not world["repositories"]
    assert not (cloud.work / "results/baseline/deployment/kubeconfig").exists()
    assert json.loads(cloud.gputax("cost", "--json").stdout)["usd_per_hour_now"] == 0
    assert cloud.gputax("destroy", "--yes").returncode == 0, "destroying twice is no error"


FAILURES = {
    "services enable": ("apis", "ERROR: PERMISSION_DENIED: Permission denied to enable service", "roles/"),
    "repositories create": (
        "repository",
        "ERROR: (gcloud) BILLING_DISABLED",
        "gcloud billing projects link my-project-1",
    ),
    "docker build": ("build", "Cannot connect to the Docker daemon at unix:///var/run/docker.sock", "start docker"),
    "configure-docker": ("push", "ERROR: something nobody has seen", "run the same command to resume"),
    "docker push": ("push", "denied: Permission missing", "gcloud auth configure-docker us-central1-docker.pkg.dev"),
    "clusters create": ("cluster", "ERROR: Quota 'CPUS' exceeded. Limit: 8.0 in region", "describe us-central1"),
    "node-pools create": ("gpu-pool", "ERROR: ZONE_RESOURCE_POOL_EXHAUSTED", "another --zone"),
    "get-credentials": ("credentials", "ERROR: invalid_grant: reauthentication required", "gcloud auth login"),
}


@pytest.mark.parametrize("match", FAILURES)
def test_a_step_that_fails_says_what_helps_and_the_next_deploy_goes_on(cloud: Cloud, match: str) -> None:
    step, output, next_step = FAILURES[match]
    cloud.fail(match, output)
    failed = cloud.gputax(*DEPLOY)
    assert failed.returncode == 1, failed.stderr
    assert output.removeprefix("ERROR: ")[:20] in failed.stderr
    assert next_step in failed.stderr.split("next:")[-1]
    assert "Traceback" not in failed.stderr
    assert steps_of(cloud)[step] == "failed"
    done_before = [name for name, state in steps_of(cloud).items() if state == "done"]

    calls = len(cloud.changing_calls())
    again = cloud.gputax(*DEPLOY)
    assert again.returncode == 0, again.stderr
    repeated = cloud.changing_calls()[calls:]
    for name in done_before:
        made = {"apis": "services enable", "repository": "repositories create", "build": "docker build"}.get(name)
        assert made is None or not any(made in call for call in repeated), f"{name} was done twice"
    assert set(steps_of(cloud).values()) == {"done"}


def test_a_step_that_failed_after_it_made_the_thing_is_ours_and_goes_with_destroy(cloud: Cloud) -> None:
    cloud.fail("clusters create", "ERROR: (gcloud) connection reset", moment="after")
    assert cloud.gputax(*DEPLOY).returncode == 1
    document = json.loads(cloud.gputax("status", "--json").stdout)
    assert document["status"] == "FAILED"
    assert document["cost"]["usd_per_hour_now"] > 0, "it is there, so it costs"
    again = cloud.gputax(*DEPLOY)
    assert again.returncode == 0, again.stderr
    assert sum("clusters create" in call for call in cloud.calls()) == 1
    assert cloud.gputax("destroy", "--yes").returncode == 0
    assert not cloud.world()["clusters"]


@pytest.mark.parametrize("match", ["docker build", "clusters create"])
def test_an_interrupt_in_the_middle_can_be_resumed(cloud: Cloud, match: str) -> None:
    cloud.fail(match, hang=True)
    code, output = cloud.interrupted(*DEPLOY)
    assert code == 130, output
    assert "run the same command to resume" in output
    assert "interrupted" in steps_of(cloud).values()
    assert json.loads(cloud.gputax("status", "--json").stdout)["status"] == "INTERRUPTED"
    again = cloud.gputax(*DEPLOY)
    assert again.returncode == 0, again.stderr
    assert sum("services enable" in call for call in cloud.calls()) == 1


@pytest.mark.parametrize("by", [signal.SIGTERM, signal.SIGKILL])
def test_a_deploy_that_was_ended_from_outside_can_be_resumed(cloud: Cloud, by: signal.Signals) -> None:
    cloud.fail("clusters create", hang=True)
    code, output = cloud.interrupted(*DEPLOY, by=by)
    assert code == (130 if by is signal.SIGTERM else -9), output
    document = json.loads(cloud.gputax("status", "--json").stdout)
    assert document["status"] == "INTERRUPTED"
    assert document["cost"]["usd_per_hour_now"] > 0, "the cloud may go on making it: count it until it is known"
    again = cloud.gputax(*DEPLOY)
    assert again.returncode == 0, again.stderr


def test_two_deploys_of_one_deployment_do_not_meet(cloud: Cloud) -> None:
    folder = cloud.work / "results/baseline/deployment"
    folder.mkdir(parents=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = cloud.gputax(*DEPLOY)
    assert done.returncode == 3
    assert "another gputax command is using" in done.stderr


def test_a_dry_run_touches_nothing(cloud: Cloud) -> None:
    done = cloud.gputax("deploy", "gke", "--dry-run")
    assert done.returncode == 0, done.stderr
    assert cloud.calls() == []
    assert cloud.api.requests == []
    folder = cloud.work / "results/baseline/deployment"
    written = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    assert written == ["commands.sh", "manifests/10-namespace.yaml", "manifests/20-job.yaml"]


def test_the_script_makes_the_same_calls_as_the_command(cloud: Cloud, tmp_path: Path) -> None:
    assert cloud.gputax("deploy", "gke", PROJECT, "--dry-run").returncode == 0
    kubectl = cloud.bin / "kubectl"
    kubectl.write_text('#!/bin/sh\necho "kubectl $*" >> "$GPUTAX_STANDIN/kubectl.txt"\n')
    kubectl.chmod(0o755)
    bash = shutil.which("bash")
    assert bash
    script = subprocess.run(
        [bash, "results/baseline/deployment/commands.sh"],
        cwd=cloud.work,
        env=cloud.environment(),
        capture_output=True,
        text=True,
    )
    assert script.returncode == 0, script.stderr
    assert cloud.changing_calls() == IN_ORDER
    by_script = cloud.calls()
    other = Cloud(tmp_path / "other")
    try:
        other.api.log = cloud.api.log
        assert other.gputax(*DEPLOY).returncode == 0
        assert [call for call in other.calls() if call in by_script] == by_script, "the same words in the same order"
    finally:
        other.close()
    assert (cloud.home / "kubectl.txt").read_text().splitlines()[0] == "kubectl get namespace gputax"


def test_consent_is_needed_where_nobody_can_be_asked(cloud: Cloud) -> None:
    done = cloud.gputax("deploy", "gke", PROJECT)
    assert done.returncode == 3
    assert "--yes" in done.stderr
    assert "0.7276" in done.stderr, "the plan with its price comes before the question"
    assert cloud.changing_calls() == []


@pytest.mark.parametrize(
    ("missing", "next_step"),
    [
        ("gcloud", "install the Google Cloud CLI"),
        ("docker", "--image REFERENCE"),
        ("gke-gcloud-auth-plugin", "gcloud components install gke-gcloud-auth-plugin"),
    ],
)
def test_a_missing_program_stops_before_anything_is_made(cloud: Cloud, missing: str, next_step: str) -> None:
    cloud.without(missing)
    done = cloud.gputax(*DEPLOY)
    assert done.returncode == 3
    assert next_step in done.stderr
    assert cloud.changing_calls() == []


def test_no_login_no_project_no_quota(cloud: Cloud) -> None:
    no_login = cloud.gputax(*DEPLOY, STANDIN_ACCOUNT="")
    assert (no_login.returncode, "gcloud auth login" in no_login.stderr) == (3, True)
    no_project = cloud.gputax("deploy", "gke", "--yes")
    assert (no_project.returncode, "gcloud config set project" in no_project.stderr) == (3, True)
    unknown = cloud.gputax(*DEPLOY, STANDIN_PROJECT_EXISTS="another-project")
    assert (unknown.returncode, "gcloud projects list" in unknown.stderr) == (3, True)
    quotas = json.dumps([{"metric": "NVIDIA_T4_GPUS", "limit": 0.0, "usage": 0.0}])
    no_quota = cloud.gputax(*DEPLOY, STANDIN_QUOTAS=quotas)
    assert (no_quota.returncode, "iam-admin/quotas" in no_quota.stderr) == (3, True)
    assert cloud.changing_calls() == []
    from_gcloud = cloud.gputax("deploy", "gke", "--yes", STANDIN_PROJECT="from-gcloud-1")
    assert from_gcloud.returncode == 0, from_gcloud.stderr
    assert all("--project=from-gcloud-1" in call for call in cloud.calls() if "clusters create" in call)


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("--zone", "us-centrall1-a"), "did you mean 'us-central1-a'"),
        (("--machine", "n1-standart-4"), "did you mean 'n1-standard-4'"),
        (("--accelerator", "nvidia-tesla-t44"), "did you mean 'nvidia-tesla-t4'"),
        (("--zone", "us-east1-b"), "--zone us-east1-c"),
        (("--accelerator", "L4", "--machine", "n1-standard-4"), "--machine g2-standard-4"),
        (("--suite", "quik"), "did you mean 'quick'"),
        (("--project", "Not A Project"), "gcloud projects list"),
        (("--deadline", "soon"), "2h"),
        (("--context", "mine"), "gputax deploy current"),
    ],
)
def test_what_cannot_be_is_refused_with_what_can(cloud: Cloud, words: tuple[str, ...], hint: str) -> None:
    done = cloud.gputax("deploy", "gke", *words, "--dry-run")
    assert done.returncode == 2, done.stderr
    assert hint in done.stderr


def test_what_was_there_before_is_not_removed(cloud: Cloud) -> None:
    (cloud.home / "world.json").write_text(
        json.dumps({"repositories": {"gputax": "DOCKER"}, "clusters": {"gpu-benchmark-cluster": "RUNNING"}})
    )
    done = cloud.gputax(*DEPLOY)
    assert done.returncode == 0, done.stderr
    assert "already exists" in done.stderr
    away = cloud.gputax("destroy", "--yes")
    assert away.returncode == 0, away.stderr
    assert "it existed before" in away.stderr
    world = cloud.world()
    assert world["clusters"]
    assert world["repositories"]
    assert not world["pushed"], "our image goes, the repository stays"
    assert not world["pools"]
    assert cloud.api.named("Job") == []


def test_destroy_is_safe_when_half_is_gone_and_goes_on_after_a_failure(cloud: Cloud) -> None:
    assert cloud.gputax(*DEPLOY).returncode == 0
    cloud.fail("clusters delete", "ERROR: (gcloud) 503 the backend is busy")
    failed = cloud.gputax("destroy", "--yes")
    assert failed.returncode == 1
    assert "503" in failed.stderr
    assert "gputax destroy --out results/baseline" in failed.stderr
    assert not cloud.world()["repositories"], "the rest was removed all the same"
    by_hand = cloud.world()
    by_hand["clusters"], by_hand["pools"] = {}, {}
    (cloud.home / "world.json").write_text(json.dumps(by_hand))
    again = cloud.gputax("destroy", "--yes")
    assert again.returncode == 0, again.stderr
    assert "already removed" in again.stderr


def test_scale_to_zero_ends_the_gpu_and_keeps_the_cluster(cloud: Cloud) -> None:
    assert cloud.gputax(*DEPLOY).returncode == 0
    done = cloud.gputax("destroy", "--scale-to-zero", "--yes")
    assert done.returncode == 0, done.stderr
    assert cloud.changing_calls()[-1] == "gcloud container clusters resize gpu-benchmark-cluster"
    cost = json.loads(cloud.gputax("cost", "--json").stdout)
    assert [line["running"] for line in cost["lines"]] == [True, True, False]
    assert cloud.api.named("Job") == []


def test_results_of_a_lost_pod_come_from_the_clouds_own_log(cloud: Cloud) -> None:
    assert cloud.gputax(*DEPLOY).returncode == 0
    for key in [key for key in cloud.api.objects if "/pods/" in key]:
        del cloud.api.objects[key]
    lost = cloud.gputax("collect")
    assert lost.returncode == 1
    assert "--rerun" in lost.stderr
    found = cloud.gputax("collect", STANDIN_CLOUD_LOG=cloud.api.log)
    assert found.returncode == 0, found.stderr
    assert "the cloud's own log" in found.stdout


def test_an_idle_deployment_is_told_of_and_taken_away_by_cron(cloud: Cloud) -> None:
    assert cloud.gputax(*DEPLOY, "--idle-limit", "1s").returncode == 0
    diary = cloud.work / "results/baseline/deployment/events.jsonl"
    assert cloud.gputax("destroy", "--if-idle", "2h").stdout.endswith("nothing was removed\n")
    assert cloud.world()["clusters"]
    old = [{**json.loads(line), "at": "2026-01-01T00:00:00+00:00"} for line in diary.read_text().splitlines()]
    diary.write_text("".join(json.dumps(event) + "\n" for event in old))
    any_verb = cloud.gputax("models", "list")
    assert "Warning: the deployment results/baseline has been idle" in any_verb.stderr
    cloud.api.objects["/apis/batch/v1/namespaces/gputax/jobs/gpu-benchmark-baseline"]["status"] = {}
    assert "nothing was removed" in cloud.gputax("destroy", "--if-idle", "2h").stdout, "a Job that runs is no idleness"
    cloud.api.objects["/apis/batch/v1/namespaces/gputax/jobs/gpu-benchmark-baseline"]["status"] = {
        "conditions": [{"type": "Complete", "status": "True"}]
    }
    away = cloud.gputax("destroy", "--if-idle", "2h")
    assert away.returncode == 0, away.stderr
    assert not cloud.world()["clusters"]


def test_other_choices_do_not_mix_with_a_deployment_that_lies_there(cloud: Cloud) -> None:
    cloud.fail("clusters create")
    assert cloud.gputax(*DEPLOY).returncode == 1
    other = cloud.gputax(*DEPLOY, "--zone", "us-central1-b")
    assert other.returncode == 2
    assert "zone 'us-central1-a', not 'us-central1-b'" in other.stderr
    assert "--out" in other.stderr


def test_nothing_secret_is_written(cloud: Cloud) -> None:
    token = "ya29.a0AfH6SMsecretsecret"
    cloud.fail("clusters create", f"DEBUG Authorization: Bearer {token}\nERROR: denied {token}")
    failed = cloud.gputax(*DEPLOY)
    assert failed.returncode == 1
    for path in (cloud.work / "results").rglob("*"):
        if path.is_file():
            assert "secretsecret" not in path.read_text(), path
    assert "secretsecret" not in failed.stderr


def test_deploy_sh_is_the_same_command(cloud: Cloud) -> None:
    script = Path(__file__).resolve().parents[2] / "deploy.sh"
    copied = cloud.work / "deploy.sh"
    shutil.copy(script, copied)
    bash, dirname = shutil.which("bash"), shutil.which("dirname")
    assert bash
    assert dirname
    (cloud.bin / "dirname").symlink_to(dirname)
    program = cloud.bin / "gputax"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m gputax "$@"\n')
    program.chmod(0o755)
    done = subprocess.run(
        [bash, str(copied), PROJECT, "--yes"],
        env=cloud.environment(GPUTAX="gputax"),
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stderr
    assert cloud.changing_calls() == IN_ORDER
    missing = subprocess.run(
        [bash, str(copied)], env=cloud.environment(GPUTAX="no-such-gputax"), capture_output=True, text=True
    )
    assert missing.returncode == 3
    assert "Next:" in missing.stderr


def test_on_a_terminal_it_asks_and_no_means_no(cloud: Cloud) -> None:
    ours, theirs = pty.openpty()
    try:
        os.write(ours, b"n\n")
        done = subprocess.run(
            [sys.executable, "-m", "gputax", "deploy", "gke", PROJECT],
            cwd=cloud.work,
            env=cloud.environment(),
            stdin=theirs,
            capture_output=True,
            text=True,
            timeout=40,
        )
    finally:
        os.close(ours)
        os.close(theirs)
    assert done.returncode == 3
    assert "Carry out this plan?" in done.stderr
    assert "nothing was changed" in done.stderr
    assert cloud.changing_calls() == []


def test_a_cpu_run_is_not_planned_on_gpu_nodes_that_cost(cloud: Cloud) -> None:
    planned = cloud.gputax("deploy", "gke", "--project", "my-project-1", "--device", "cpu", "--dry-run")
    assert planned.returncode == 2
    assert "gputax deploy current --device cpu" in planned.stderr
