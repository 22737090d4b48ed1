"""The make targets for a cluster: they say what they do, pin what they install, and touch nothing without a cluster."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable

import pytest
import yaml

from tests.process.manifests.built import OVERLAYS, REPOSITORY, built_from, one
from tests.process.manifests.site import Site

INSTALLS = (
    "install-cert-manager", "install-kube-prometheus", "install-gpu-operator", "install-nvidia-device-plugin",
    "install-nvidia-dra-driver",
)  # fmt: skip
DEPLOYS = ("deploy-ts", "deploy-mps", "deploy-mig", "deploy-cpu")
OTHERS = ("deploy-monitoring", "undeploy-sharing", "port-forward-prometheus", "port-forward-grafana")
TARGETS = ("install", *INSTALLS, *DEPLOYS, *OTHERS)
ASK_FOR_THE_CLUSTER = "kubectl --request-timeout=10s get --raw /version"


@pytest.mark.parametrize("target", TARGETS)
def test_without_a_cluster_a_target_says_so_with_the_next_step_and_touches_nothing(site: Site, target: str) -> None:
    site.settings = {}
    done = site.make(target)
    assert done.returncode != 0
    assert "No Kubernetes cluster answers; nothing was touched." in done.stderr
    assert "kubectl says: The connection to the server localhost:8080 was refused" in done.stderr
    assert "Next: kubectl config get-contexts" in done.stderr
    assert "Error 3" in done.stderr, "the code of a failed preflight"
    assert site.calls() == [ASK_FOR_THE_CLUSTER]


@pytest.mark.parametrize(
    ("target", "tool", "next_step"),
    [
        ("install", "helm", "https://helm.sh/docs/intro/install/"),
        ("install", "kubectl", "https://kubernetes.io/docs/tasks/tools/"),
        ("install", "curl", "package manager"),
        ("install-gpu-operator", "helm", "https://helm.sh/docs/intro/install/"),
        ("deploy-ts", "kubectl", "https://kubernetes.io/docs/tasks/tools/"),
    ],
)
def test_a_missing_tool_is_named_before_anything_is_touched(site: Site, target: str, tool: str, next_step: str) -> None:
    site.without(tool)
    done = site.make(target)
    assert done.returncode != 0
    assert f"{tool} is not installed here; nothing was touched." in done.stderr
    assert next_step in done.stderr
    assert site.changes() == []


@pytest.mark.parametrize("short", ["ts", "mps", "mig", "cpu"])
def test_deploy_applies_its_overlay_and_names_the_cluster(site: Site, short: str) -> None:
    done = site.make(f"deploy-{short}")
    assert done.returncode == 0, done.stderr
    assert site.changes() == [f"kubectl apply -k kubernetes/sharing/overlays/{short}"]
    assert "Kubernetes v1.36.1" in done.stdout
    assert f"Applies kubernetes/sharing/overlays/{short}: one tenant" in done.stdout
    assert "kubectl -n gputax scale deployment gputax-client --replicas 3" in done.stdout


def test_a_dry_run_of_make_shows_the_commands_and_runs_none(site: Site) -> None:
    done = site.make("-n", "deploy-ts", "deploy-mps", "deploy-mig", "undeploy-sharing", "port-forward-prometheus")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    for short in ("ts", "mps", "mig"):
        assert f"kubectl apply -k kubernetes/sharing/overlays/{short}" in lines
    assert "kubectl -n gputax delete deployment gputax-client --ignore-not-found --wait" in lines
    assert "kubectl -n monitoring port-forward service/prometheus-k8s 9090:9090" in lines
    assert site.calls() == []


@pytest.mark.parametrize(
    ("flavour", "short", "overlay"),
    [("gke", "ts", "gke-ts"), ("gke", "mps", "gke-mps"), ("gke", "mig", "gke-mig"), ("nos", "mps", "nos-mps"),
     ("nos", "ts", "ts"), ("nos", "mig", "mig"), ("operator", "mps", "mps"), ("device-plugin", "ts", "ts")],
)  # fmt: skip
def test_a_flavour_has_overlays_of_its_own_only_where_its_names_differ(
    site: Site, flavour: str, short: str, overlay: str
) -> None:
    assert overlay in OVERLAYS
    done = site.make(f"deploy-{short}", f"FLAVOUR={flavour}")
    assert done.returncode == 0, done.stderr
    assert site.changes() == [f"kubectl apply -k kubernetes/sharing/overlays/{overlay}"]


def test_an_unknown_flavour_is_refused(site: Site) -> None:
    done = site.make("deploy-ts", "FLAVOUR=gek")
    assert done.returncode != 0
    assert "FLAVOUR=gek is unknown. Next: one of device-plugin operator gke nos" in done.stderr
    assert site.changes() == []


def test_every_call_goes_to_the_context_that_was_asked_for(site: Site) -> None:
    done = site.make("install", "deploy-ts", "undeploy-sharing", "CONTEXT=lab")
    assert done.returncode == 0, done.stderr
    reached = [call for call in site.calls() if call.startswith(("kubectl ", "helm "))]
    assert all(" --context lab " in call for call in reached if call.startswith("kubectl"))
    assert all(" --kube-context lab " in call for call in reached if call.startswith("helm"))
    assert "Cluster: lab" in done.stdout


@pytest.mark.parametrize(
    ("image", "name"),
    [
        ("registry.example:5000/team/gputax:1.10", "registry.example:5000/team/gputax:1.10"),
        ("gputax@sha256:" + "a" * 64, "gputax@sha256:" + "a" * 64),
        ("registry.example:5000/gputax", "registry.example:5000/gputax:latest"),
    ],
)
def test_another_image_and_namespace_reach_the_pods_and_their_metrics(site: Site, image: str, name: str) -> None:
    if not shutil.which("kubectl"):
        pytest.skip("kubectl is not here to build kustomizations")
    done = site.make("deploy-ts", f"IMAGE={image}", "NAMESPACE=lab")
    assert done.returncode == 0, done.stderr
    assert site.changes() == ["kubectl apply -k build/kubernetes/sharing/overlays/ts"]
    manifests = built_from(site.directory / "build/kubernetes/sharing/overlays/ts")
    (container,) = one(manifests, "Deployment")["spec"]["template"]["spec"]["containers"]
    assert container["image"] == name
    assert {"name": "GPUTAX_IMAGE", "value": image} in container["env"]
    assert one(manifests, "Namespace")["metadata"]["name"] == "lab"
    assert {each["metadata"].get("namespace", "lab") for each in manifests} == {"lab"}


def test_monitoring_follows_the_namespace_and_the_dashboard_stays_with_grafana(site: Site) -> None:
    if not shutil.which("kubectl"):
        pytest.skip("kubectl is not here to build kustomizations")
    done = site.make("deploy-monitoring", "NAMESPACE=lab")
    assert done.returncode == 0, done.stderr
    manifests = built_from(site.directory / "build/kubernetes/monitoring")
    for kind in ("PodMonitor", "Role", "RoleBinding"):
        assert one(manifests, kind)["metadata"]["namespace"] == "lab"
    assert one(manifests, "RoleBinding")["subjects"][0]["namespace"] == "monitoring"
    assert one(manifests, "ConfigMap")["metadata"]["namespace"] == "monitoring"


def test_install_brings_all_parts_with_pinned_versions(site: Site) -> None:
    done = site.make("install")
    assert done.returncode == 0, done.stderr
    calls = "\n".join(site.calls())
    assert "github.com/cert-manager/cert-manager/releases/download/v1.21.2/cert-manager.yaml" in calls
    assert "github.com/prometheus-operator/kube-prometheus/archive/refs/tags/v0.18.0.tar.gz" in calls
    assert "kubectl apply --server-side -f build/kube-prometheus/manifests/setup" in calls
    assert "kubectl apply -k kubernetes/monitoring" in calls
    assert "kubectl -n gpu-operator apply -k kubernetes/sharing/device-plugin" in calls
    (chart,) = [call for call in site.calls() if call.startswith("helm upgrade")]
    assert "--version v26.7.0" in chart
    assert "devicePlugin.version=v0.20.0" in chart
    for line in (
        "Installs cert-manager v1.21.2",
        "Installs kube-prometheus v0.18.0",
        "Installs the GPU operator v26.7.0",
    ):
        assert line in done.stdout


def test_install_with_the_dra_driver_brings_no_device_plugin(site: Site) -> None:
    done = site.make("install", "FLAVOUR=dra")
    assert done.returncode == 0, done.stderr
    (chart,) = [call for call in site.calls() if call.startswith("helm upgrade")]
    assert "dra-driver-nvidia-gpu --repo https://helm.ngc.nvidia.com/nvidia --version 0.5.0" in chart
    assert "--values kubernetes/sharing/values/nvidia-dra-driver.yaml" in chart
    assert "Installs NVIDIA's DRA driver 0.5.0" in done.stdout
    assert "gputax share --env k8s --sharing-flavour dra" in done.stdout
    values = yaml.safe_load((REPOSITORY / "kubernetes/sharing/values/nvidia-dra-driver.yaml").read_text())
    assert values["featureGates"] == {"TimeSlicingSettings": True, "MPSSupport": True}
    assert "| 0.5.0 |" in (REPOSITORY / "docs/dra.md").read_text()


def test_the_pinned_device_plugin_is_the_one_that_deploy_brings() -> None:
    from gputax.deploy.gpu_nodes import PLUGIN_VERSION

    assert f"DEVICE_PLUGIN := {PLUGIN_VERSION.removeprefix('v')}\n" in (REPOSITORY / "Makefile").read_text()


def test_the_page_names_the_versions_that_are_installed() -> None:
    pins = dict(re.findall(r"^([A-Z_]+) := (v?[0-9.]+)$", (REPOSITORY / "Makefile").read_text(), flags=re.M))
    page = (REPOSITORY / "docs/sharing.md").read_text()
    documented = dict(re.findall(r"^\| `make install-([a-z-]+)` .* \| (v[0-9.]+) \|$", page, flags=re.M))
    assert documented == {
        "cert-manager": pins["CERT_MANAGER"],
        "kube-prometheus": pins["KUBE_PROMETHEUS"],
        "gpu-operator": pins["GPU_OPERATOR"],
        "nvidia-device-plugin": f"v{pins['DEVICE_PLUGIN']}",
    }
    assert f"device plugin v{pins['DEVICE_PLUGIN']}" in page


def test_the_adapter_that_would_take_over_metrics_is_left_out(site: Site) -> None:
    manifests = site.directory / "build/kube-prometheus/manifests"
    manifests.mkdir(parents=True)
    for name in ("prometheusAdapter-apiService.yaml", "prometheus-prometheus.yaml"):
        (manifests / name).write_text("")
    assert site.make("install-kube-prometheus").returncode == 0
    assert [path.name for path in manifests.iterdir()] == ["prometheus-prometheus.yaml"]


@pytest.mark.parametrize(
    ("target", "settings", "reason"),
    [
        ("install-gpu-operator", {"GKE_NODES": "node/gke-1"}, "GKE's own device plugin serves the GPU nodes here"),
        ("install-nvidia-device-plugin", {"GKE_NODES": "node/gke-1"}, "GKE's own device plugin"),
        (
            "install-gpu-operator",
            {"DAEMON_SETS": "kube-system nvidia-device-plugin-daemonset <none>\n"},
            "NVIDIA's device plugin runs here by itself (kube-system/nvidia-device-plugin-daemonset)",
        ),
        (
            "install-nvidia-device-plugin",
            {"POLICIES": "clusterpolicy.nvidia.com/cluster-policy"},
            "the GPU operator runs",
        ),
        ("install", {"DAEMON_SETS": "kube-system nvidia-device-plugin-daemonset <none>\n"}, "by itself"),
        (
            "install-nvidia-dra-driver",
            {"DAEMON_SETS": "kube-system nvidia-device-plugin-daemonset <none>\n"},
            "NVIDIA's device plugin runs here (kube-system/nvidia-device-plugin-daemonset)",
        ),
        (
            "install-nvidia-dra-driver",
            {"POLICIES": "clusterpolicy.nvidia.com/cluster-policy"},
            "NVIDIA's device plugin runs here (the GPU operator brings it)",
        ),
        (
            "install-gpu-operator",
            {"DEVICE_CLASSES": "deviceclass.resource.k8s.io/gpu.nvidia.com"},
            "NVIDIA's DRA driver serves the GPUs here",
        ),
    ],
)
def test_a_second_device_plugin_is_refused_before_anything_is_touched(
    site: Site, target: str, settings: dict[str, str], reason: str
) -> None:
    site.settings |= settings
    done = site.make(target)
    assert done.returncode != 0
    assert reason in done.stderr
    assert "Next: " in done.stderr
    assert site.changes() == []


def test_the_operator_s_own_plugin_does_not_stand_in_its_way(site: Site) -> None:
    site.settings["DAEMON_SETS"] = (
        "gpu-operator nvidia-device-plugin-daemonset ClusterPolicy\ngpu-operator nvidia-dcgm-exporter ClusterPolicy\n"
    )
    site.settings["POLICIES"] = "clusterpolicy.nvidia.com/cluster-policy"
    assert site.make("install-gpu-operator").returncode == 0


@pytest.fixture
def offered(site: Site) -> Callable[[str, str], str]:
    if not shutil.which("kubectl"):
        pytest.skip("kubectl is not here to build kustomizations")

    def ask(short: str, nodes: str) -> str:
        site.settings["NODES"] = nodes
        done = site.make(f"deploy-{short}")
        assert done.returncode == 0, done.stderr
        return done.stdout

    return ask


def test_deploy_says_which_node_offers_the_technique(offered: Callable[[str, str], str], site: Site) -> None:
    said = offered("ts", "gpu-1 7\ncpu-1 0\n")
    assert "nvidia.com/gpu.shared: gpu-1 offers 7\n" in said
    assert any("get nodes -l nvidia.com/gpu.sharing-strategy=time-slicing " in call for call in site.calls())


@pytest.mark.parametrize(
    ("short", "next_step"),
    [
        ("ts", "kubectl label nodes NODE nvidia.com/device-plugin.config=gputax-time-slicing-7 --overwrite"),
        ("mps", "kubectl label nodes NODE nvidia.com/device-plugin.config=gputax-mps-7 --overwrite"),
        ("mig", "kubectl label nodes NODE nvidia.com/mig.config=all-1g.10gb --overwrite"),
    ],
)
def test_deploy_says_what_switches_a_technique_on_that_no_node_offers(
    offered: Callable[[str, str], str], short: str, next_step: str
) -> None:
    said = offered(short, "cpu-1 0\n")
    assert "yet: the pods will wait." in said
    assert f"Next: {next_step}" in said


def test_a_tenant_on_the_cpu_needs_no_device_of_a_node(offered: Callable[[str, str], str]) -> None:
    assert "No node offers" not in offered("cpu", "")
