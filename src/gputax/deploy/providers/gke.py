"""The provider `gke`: a cluster with a GPU node pool on Google Kubernetes Engine, as gcloud commands; its checks."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gputax.deploy.cost import Prices
from gputax.deploy.plan import (
    Answer,
    BenchmarkChoices,
    Command,
    FileExists,
    Plan,
    RunCommands,
    Step,
    benchmark_steps,
    job_name,
)
from gputax.deploy.tools import Tools, require_program, useful_line
from gputax.errors import PreflightError, UsageError

APIS = ("artifactregistry.googleapis.com", "container.googleapis.com")
NO_PROJECT = "PROJECT_ID"
GPU_POOL = "gpu"
# System pods need a node without a GPU; otherwise the GPU pool could never scale to zero.
SYSTEM_MACHINE = "e2-standard-2"
SYSTEM_DISK_GB = 50
GPU_DISK_GB = 100
# GKE removes an unneeded node after 10 minutes (the cluster autoscaler's scale-down-unneeded-time).
LINGER_S = 600.0
# From a pending pod to a GPU node with its driver: 3 to 6 minutes according to GKE's documentation and users.
NODE_START_S = 300.0
PENDING_LIMIT_S = 1200.0
# The autoscaler checks every 10 seconds and reports by an event whether it will add a node.
UNSCHEDULABLE_S = 120.0


@dataclass(frozen=True)
class GkeChoices:
    """The cluster's location and machines."""

    project: str = NO_PROJECT
    zone: str = "us-central1-a"
    machine: str = "n1-standard-4"
    accelerator: str = "nvidia-tesla-t4"
    accelerator_count: int = 1
    spot: bool = False
    max_nodes: int = 2
    cluster: str = "gpu-benchmark-cluster"
    repository: str = "gputax"
    builder: str = "docker"

    @property
    def region(self) -> str:
        """The zone's region."""
        return self.zone.rsplit("-", 1)[0]


def registry(choices: GkeChoices) -> str:
    """Return the host of the project's Artifact Registry."""
    return f"{choices.region}-docker.pkg.dev"


def default_image(choices: GkeChoices, version: str) -> str:
    """Return the name under which our image is built and pushed."""
    return f"{registry(choices)}/{choices.project}/{choices.repository}/gputax:{version}"


def gke_plan(
    choices: GkeChoices, benchmark: BenchmarkChoices, run_id: str, results: str, prices: Prices, *, build: bool
) -> Plan:
    """Return the whole plan: images first, because building them costs nothing; machines last."""
    kubeconfig = f"{results}/deployment/kubeconfig"
    name = results.rstrip("/").rsplit("/", 1)[-1]
    last = benchmark_steps(
        benchmark,
        run_id,
        name,
        pending_s=PENDING_LIMIT_S,
        unschedulable_s=UNSCHEDULABLE_S,
        start_s=NODE_START_S,
        rates=("gpu-node",),
        within="cluster",
    )
    image = _image_steps(choices, benchmark.image) if build else ()
    gpu_node = prices.gpu_node(
        "gpu-node", choices.machine, choices.accelerator, choices.accelerator_count, GPU_DISK_GB, choices.spot
    )
    resize = f"container clusters resize {choices.cluster} --node-pool={GPU_POOL} --num-nodes=0 --zone={choices.zone}"
    return Plan(
        provider="gke",
        title=f"GKE cluster {choices.cluster} in {choices.zone}, project {choices.project}",
        steps=(
            _apis(choices),
            *image,
            _cluster(choices),
            _gpu_pool(choices),
            _credentials(choices, kubeconfig),
            *last,
        ),
        rates=(prices.cluster(), prices.node("system-node", SYSTEM_MACHINE, SYSTEM_DISK_GB), gpu_node),
        price_note=f"list prices of {prices.price_region} as of {prices.as_of}",
        notes=_notes(choices, prices, kubeconfig),
        linger_s=LINGER_S,
        scale_to_zero=(_gcloud(choices, f"{resize} --quiet"),),
        lost_log=(_cloud_log(choices, benchmark, name),),
        kubeconfig=kubeconfig,
    )


def _notes(choices: GkeChoices, prices: Prices, kubeconfig: str) -> tuple[str, ...]:
    notes = [
        f"Your own kubeconfig is not changed; the credentials of this cluster are in {kubeconfig}.",
        "The GPU node is added when the Job needs it and removed 10 minutes after it ends: the pool scales from 0 to "
        f"{choices.max_nodes}.",
    ]
    if choices.spot:
        notes.append("A Spot node can be preempted at any time: the Job then fails; run the same command to repeat it.")
    if prices.region_note(choices.region):
        notes.append(prices.region_note(choices.region))
    return tuple(notes)


def _gcloud(choices: GkeChoices, text: str, *words: str) -> Command:
    """Return a gcloud command with the project; no value contains spaces (checked on input)."""
    return Command(("gcloud", *text.split(), *words, f"--project={choices.project}"))


def _apis(choices: GkeChoices) -> Step:
    return Step(
        "apis",
        "Google APIs enabled",
        RunCommands((_gcloud(choices, "services enable", *APIS),)),
        Answer(_gcloud(choices, "services list --enabled --format=value(config.name)"), APIS),
        expected_s=30,
        note="they stay enabled: other parts of the project may need them",
    )


def _image_steps(choices: GkeChoices, image: str) -> tuple[Step, ...]:
    named = f"{choices.repository} --location={choices.region}"
    builder = choices.builder
    build = f"{builder} build --platform=linux/amd64 --target=cuda --file=docker/Dockerfile --tag={image} ."
    return (
        Step(
            "repository",
            f"Image repository {choices.repository}",
            RunCommands((_gcloud(choices, f"artifacts repositories create {named} --repository-format=docker"),)),
            Answer(_gcloud(choices, f"artifacts repositories describe {named} --format=value(format)"), ("DOCKER",)),
            expected_s=15,
            undo=(_gcloud(choices, f"artifacts repositories delete {named} --quiet"),),
        ),
        Step(
            "build",
            "Docker image build",
            RunCommands((Command(tuple(build.split())),)),
            None,
            expected_s=240,
            note="the local image is kept",
        ),
        Step(
            "push",
            "Docker image push",
            RunCommands(
                (
                    _gcloud(choices, f"auth configure-docker {registry(choices)} --quiet"),
                    Command((builder, "push", image)),
                )
            ),
            None,
            expected_s=120,
            undo=(_gcloud(choices, f"artifacts docker images delete {image} --delete-tags --quiet"),),
            within="repository",
        ),
    )


def _status(choices: GkeChoices, what: str) -> Answer:
    return Answer(
        _gcloud(choices, f"container {what} --zone={choices.zone} --format=value(status)"),
        done=("RUNNING",),
        under_way=("PROVISIONING", "RECONCILING"),
        going=("STOPPING",),
    )


def _cluster(choices: GkeChoices) -> Step:
    named = f"{choices.cluster} --zone={choices.zone}"
    nodes = f"--machine-type={SYSTEM_MACHINE} --num-nodes=1 --disk-size={SYSTEM_DISK_GB}"
    made = f"container clusters create {named} {nodes} --release-channel=regular --labels=managed-by=gputax --quiet"
    return Step(
        "cluster",
        "GKE cluster creation",
        RunCommands((_gcloud(choices, made),)),
        _status(choices, f"clusters describe {choices.cluster}"),
        expected_s=360,
        undo=(_gcloud(choices, f"container clusters delete {named} --quiet"),),
        rates=("control-plane", "system-node"),
    )


def _gpu_pool(choices: GkeChoices) -> Step:
    named = f"{GPU_POOL} --cluster={choices.cluster} --zone={choices.zone}"
    accelerator = f"type={choices.accelerator},count={choices.accelerator_count},gpu-driver-version=default"
    machine = f"--machine-type={choices.machine} --accelerator={accelerator} --disk-size={GPU_DISK_GB}"
    scaling = f"--num-nodes=0 --enable-autoscaling --min-nodes=0 --max-nodes={choices.max_nodes}"
    spot = " --spot" if choices.spot else ""
    return Step(
        "gpu-pool",
        f"GPU node pool, 0 to {choices.max_nodes} nodes, with GKE's own NVIDIA driver installer",
        RunCommands((_gcloud(choices, f"container node-pools create {named} {machine} {scaling}{spot} --quiet"),)),
        _status(choices, f"node-pools describe {GPU_POOL} --cluster={choices.cluster}"),
        expected_s=90,
        undo=(_gcloud(choices, f"container node-pools delete {named} --quiet"),),
        within="cluster",
    )


def _credentials(choices: GkeChoices, kubeconfig: str) -> Step:
    command = _gcloud(choices, f"container clusters get-credentials {choices.cluster} --zone={choices.zone}")
    return Step(
        "credentials",
        "Cluster credentials",
        RunCommands((Command(command.words, kubeconfig=kubeconfig),)),
        FileExists(kubeconfig),
        expected_s=5,
        within="cluster",
    )


def _cloud_log(choices: GkeChoices, benchmark: BenchmarkChoices, name: str) -> Command:
    """Return the command that reads a pod's log from Cloud Logging, which keeps it for 30 days without its node."""
    wanted = (
        'resource.type="k8s_container" '
        f'resource.labels.cluster_name="{choices.cluster}" '
        f'resource.labels.namespace_name="{benchmark.namespace}" '
        f'resource.labels.pod_name:"{job_name(name)}"'
    )
    return _gcloud(choices, "logging read --order=asc --format=value(textPayload) --freshness=7d", wanted)


_PROJECT = re.compile(r"([a-z0-9.-]+:)?[a-z][a-z0-9-]{4,28}[a-z0-9]")
_NAME = re.compile(r"[a-z]([a-z0-9-]{0,38}[a-z0-9])?")


def check_names(choices: GkeChoices) -> None:
    """Reject invalid names before a command is built from them."""
    if not _PROJECT.fullmatch(choices.project) and choices.project != GkeChoices.project:
        raise UsageError(f"{choices.project!r} is not a project id", next_step="gcloud projects list")
    for option, name in (("--cluster", choices.cluster), ("--repository", choices.repository)):
        if not _NAME.fullmatch(name):
            raise UsageError(
                f"{option} {name!r}: use lowercase letters, digits and dashes, at most 40, starting with a letter"
            )


def find_project(given: str, environ: Mapping[str, str], tools: Tools | None) -> str:
    """Return the project: as given, from the environment, or from gcloud's configuration; none is assumed."""
    named = given or environ.get("CLOUDSDK_CORE_PROJECT", "") or environ.get("GOOGLE_CLOUD_PROJECT", "")
    if named or tools is None:
        return named
    require_program("gcloud")
    found = tools.ask(Command(("gcloud", "config", "get-value", "project")))
    if found.exit_code != 0 or not found.output or found.output == "(unset)":
        raise PreflightError(
            "no Google Cloud project is set",
            where="gcloud config",
            next_step="gputax deploy gke --project PROJECT_ID, or gcloud config set project PROJECT_ID",
        )
    return found.output.split()[-1]


def check_account(choices: GkeChoices, tools: Tools) -> None:
    """Raise if nobody is logged in or the project cannot be used."""
    require_program("gcloud")
    account = tools.ask(Command(("gcloud", "auth", "list", "--filter=status:ACTIVE", "--format=value(account)")))
    if account.exit_code != 0 or not account.output:
        raise PreflightError("not logged in to Google Cloud", where="gcloud auth list", next_step="gcloud auth login")
    project = tools.ask(Command(("gcloud", "projects", "describe", choices.project, "--format=value(lifecycleState)")))
    if project.exit_code != 0 or project.output != "ACTIVE":
        raise PreflightError(
            f"the project {choices.project} cannot be used: {useful_line(project.output)}",
            where="gcloud projects describe",
            next_step="list your projects with gcloud projects list, and select one with --project",
        )


def check_programs(choices: GkeChoices, build: bool, source: Path) -> None:
    """Raise if programs or files of later steps are missing."""
    require_program("gke-gcloud-auth-plugin")
    if build:
        require_program(choices.builder)
        if not (source / "docker/Dockerfile").is_file():
            raise PreflightError(
                "docker/Dockerfile, from which the image is built, is not here",
                where=str(source.resolve()),
                next_step="run it in a clone of gputax, or use an existing image with --image REFERENCE",
            )


def check_quota(choices: GkeChoices, prices: Prices, tools: Tools) -> None:
    """Raise if the region's GPU quota is exhausted; skipped if the quota cannot be read."""
    words = ("compute", "regions", "describe", choices.region, "--format=json(quotas)", f"--project={choices.project}")
    found = tools.ask(Command(("gcloud", *words)))
    if found.exit_code != 0:
        return
    metric = ("PREEMPTIBLE_" if choices.spot else "") + prices.accelerators[choices.accelerator].quota
    try:
        quotas = {each["metric"]: each["limit"] - each["usage"] for each in json.loads(found.output)["quotas"]}
    except (ValueError, KeyError, TypeError):
        return
    free = quotas.get(metric)
    if free is not None and free < choices.accelerator_count:
        other = "use --spot, which has its own quota, " if not choices.spot else ""
        raise PreflightError(
            f"the quota {metric} of {choices.region} has {free:g} left, but {choices.accelerator_count} is needed",
            where=f"project {choices.project}",
            next_step=f"{other}use another --zone, or request more: console.cloud.google.com/iam-admin/quotas",
        )
