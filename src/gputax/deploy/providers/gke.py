"""The provider `gke`: a cluster with a GPU node pool on Google Kubernetes Engine, planned as gcloud commands; pure."""

from __future__ import annotations

from dataclasses import dataclass

from gputax.deploy.benchmark_steps import BenchmarkChoices, benchmark_steps, job_name
from gputax.deploy.plan import Answer, Command, FileExists, Plan, RunCommands, Step
from gputax.deploy.prices import Prices

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
