"""`k8s`, `k8s:RUNTIMECLASS`, `k8s+proxy`, `k8s+xen`: the worker runs in its own pod, started through the exec API."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from gputax.environments.driver import refuse_without_runtime
from gputax.environments.environment import Described, Evidence
from gputax.environments.image import (
    NATIVE_VARIABLES,
    driver_variables,
    lacks_gputax,
    limit_reasons,
    local_cpus,
    runtime_setting,
    software_note,
)
from gputax.environments.process import ChildProcess
from gputax.environments.proxy import DEFAULT_TRANSPORT, Intended, proxy_evidence
from gputax.environments.runtime import SeenRuntime, hides_limits, kernel_reasons, program_reasons, told_reasons
from gputax.errors import GputaxError, PreflightError, UsageError, WorkerError
from gputax.kubernetes import exec_pipe
from gputax.kubernetes.client import Cluster, ForbiddenError
from gputax.kubernetes.nodes import quantity
from gputax.kubernetes.objects import (
    SOFTWARE_DIRECTORY,
    STATUS,
    TENANT_LIBRARY_DIRECTORY,
    XEN_RUNTIME_CLASS,
    PodPlan,
    Size,
)
from gputax.kubernetes.pods import ReadyPod, RunPods
from gputax.plan.driver import DriverChoice
from gputax.plan.environment import K8S, PROXY, XEN, EnvironmentName
from gputax.plan.options import EnvironmentOptions
from gputax.worker.probes.limits import TOLD_VARIABLE

# The watch learns of a pod's death at about the same time as its exec ends; wait a little longer for it.
DEATH_NEWS_S = 5.0
# The kubelet rounds a quota to whole microseconds of its period.
QUOTA_TOLERANCE = 0.01
WORKER = ("python", "-m", "gputax.worker.hold", "--worker")
SOFTWARE_BACKEND = f"{SOFTWARE_DIRECTORY}/libcuda.so.1"


class Kubernetes:
    """Starts workers in one pod; a pod that died is replaced when the next worker starts."""

    def __init__(
        self,
        name: str,
        pods: RunPods,
        options: EnvironmentOptions,
        driver: DriverChoice | None = None,
        shaped: Callable[[PodPlan], PodPlan] = lambda plan: plan,
    ) -> None:
        """Take the run's pods; `shaped` turns the general pod plan into the one for this environment."""
        self.name = name
        self._shaped = shaped
        self._pods = pods
        self._options = options
        self._driver = driver or DriverChoice(needed=False)
        parsed = EnvironmentName.parse(name)
        self._layers = parsed.layers
        self._runtime_class = runtime_class_of(parsed, options)
        self._seen_runtime: SeenRuntime | None = None
        self._pod: ReadyPod | None = None
        self._before: list[str] = []
        """Names of the workers started here: each new worker kills earlier ones that hung and lost their connection."""
        # Behind a proxy the proxy has chosen the device, and the evidence names it.
        self.note = "" if PROXY in self._layers else software_note(self._driver, self.plan().size.gpus)

    def start(self) -> ChildProcess:
        """Start a worker in the pod, which is created if needed."""
        variables = {"PYTHONUNBUFFERED": "1", **self._variables()}  # refuses before there is a pod
        if EnvironmentName.parse(self.name).runtime:
            refuse_runtime(self._runtime_class, self._pods.cluster)
        pod = self._pod = self._pods.ready(self.plan(), self._options.ready_timeout_s)
        name, ends = secrets.token_hex(4), [word for before in self._before for word in ("--end", before)]
        command = ["env", *(f"{key}={value}" for key, value in variables.items()), *WORKER, name, *ends]
        self._before = [*self._before[-9:], name]
        words = exec_pipe.words(self._options.context, self._options.namespace, pod.name, command)
        return ChildProcess(
            words, dict(os.environ), ends_with_parent=True, explain=lambda *end: self.explain(pod.name, *end)
        )

    def plan(self) -> PodPlan:
        """Return the plan of the pod, without a name."""
        plan = PodPlan(
            "",
            "",
            self._options.image,
            self._size(),
            self._options.namespace,
            node=self._options.node,
            runtime_class=self._runtime_class,
            pull_policy=self._options.pull_policy,
            pull_secret=self._options.pull_secret,
        )
        return self._shaped(plan)

    def evidence(self, described: Described) -> Evidence:
        """Compare what the worker sees with the API server's view of its pod."""
        if self._pod is None:
            return Evidence.of(K8S, ["no pod was started"])
        pod = self._pods.current(self._pod.name)
        reasons = [*pod_reasons(pod, described), *pod_limit_reasons(pod, described, self.plan().size)]
        if XEN in self._layers:
            reasons += xen_reasons(described)
        facts = pod_facts(pod, described)
        if EnvironmentName.parse(self.name).runtime:
            runtime = self._runtime_below(str(facts["node"] or ""))
            reasons += [*class_reasons(pod, runtime), *program_reasons(runtime), *kernel_reasons(runtime, described)]
            facts |= runtime.facts(described)
        return Evidence.of(self._layers[-1], reasons, facts)

    def _runtime_below(self, node: str) -> SeenRuntime:
        """Return what the cluster says of the RuntimeClass and of the node's kernel; asked once."""
        if self._seen_runtime is None:
            self._seen_runtime = runtime_in_cluster(self._pods.cluster, self._runtime_class, node)
        return self._seen_runtime

    def explain(self, name: str, code: int, words: str) -> GputaxError | None:
        """Explain a worker's exit by the fate of its pod."""
        where = f"environment {self.name}, pod {name}"
        if lacks_gputax(words):
            return PreflightError(
                f"gputax is missing in the image: {words}", where=where, next_step="build it from docker/Dockerfile"
            )
        if code == exec_pipe.EXIT_REFUSED and "forbidden" in words.lower():
            return PreflightError(
                f"not permitted: {words}",
                where=where,
                next_step="kubectl apply -k kubernetes/access grants the required permissions",
            )
        death = self._pods.death_within(name, DEATH_NEWS_S)
        if not death and code not in (exec_pipe.EXIT_LOST, exec_pipe.EXIT_REFUSED):
            return None
        return WorkerError(
            death or f"the connection to the worker broke: {words}",
            where=where,
            next_step="run the same command again: it measures this cell in a new pod",
        )

    def _size(self) -> Size:
        options = self._options
        gpus = 0 if PROXY in self._layers else options.gpu_count(self._driver.device)
        return Size(options.cpus or local_cpus(), options.memory, gpus)

    def _variables(self) -> dict[str, str]:
        return self._variables_for(self.plan().size.gpus)

    def _variables_for(self, gpus: int) -> dict[str, str]:
        size = self.plan().size
        told = {TOLD_VARIABLE: f"{cpus_of(size):g}"} if size.cpu_limited else {}
        return {**NATIVE_VARIABLES, **told, **driver_variables(self._driver, gpus)}


def runtime_class_of(name: EnvironmentName, options: EnvironmentOptions) -> str:
    """Return the RuntimeClass of the pods; refuse two different ones."""
    if name.runtime and options.runtime_class not in ("", name.runtime):
        raise UsageError(
            f"two RuntimeClasses: {name.runtime} and {options.runtime_class}",
            where=f"--env {name}",
            next_step="omit --runtime-class",
        )
    return name.runtime or options.runtime_class or (XEN_RUNTIME_CLASS if XEN in name.layers else "")


def refuse_runtime(name: str, cluster: Cluster) -> None:
    """Refuse a RuntimeClass that does not exist or whose handler is another runtime, before a pod waits for it.

    Whoever may not read RuntimeClasses learns the first from the API server, and the second from the evidence.
    """
    step = cluster.kubectl("get", "runtimeclass", namespaced=False)
    try:
        found = cluster.get("RuntimeClass", name)
    except ForbiddenError:
        return
    if found is None:
        raise PreflightError(f"the cluster has no RuntimeClass {name!r}", where=cluster.server, next_step=step)
    if reasons := program_reasons(SeenRuntime(name, str(found.get("handler") or ""))):
        raise PreflightError("; ".join(reasons), where=f"RuntimeClass {name}", next_step=step)


def runtime_in_cluster(cluster: Cluster, name: str, node: str) -> SeenRuntime:
    """Return the handler of the RuntimeClass and the release of the node's kernel, as far as the user may read them."""
    read: dict[str, Mapping[str, Any]] = {}
    for kind, which in (("RuntimeClass", name), ("Node", node)):
        with contextlib.suppress(GputaxError):
            read[kind] = (which and cluster.get(kind, which)) or {}
    info = (read.get("Node", {}).get("status") or {}).get("nodeInfo") or {}
    handler = str(read.get("RuntimeClass", {}).get("handler") or "")
    return SeenRuntime(name, handler, kernel=str(info.get("kernelVersion") or ""))


def class_reasons(pod: Mapping[str, Any], runtime: SeenRuntime) -> list[str]:
    """Report a pod that has another RuntimeClass than the environment's: an admission webhook may change it."""
    applied = (pod.get("spec") or {}).get("runtimeClassName")
    return [] if applied == runtime.name else [f"the pod's RuntimeClass is {applied}, not {runtime.name}"]


def pod_limit_reasons(pod: Mapping[str, Any], described: Described, size: Size) -> list[str]:
    """List why the pod's CPU limit does not seem to be enforced; in a sandbox that hides it, by the pod's status."""
    if not hides_limits(described):
        return size_reasons(described, size)
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    container: Mapping[str, Any] = next(iter(spec.get("containers") or ()), {})
    state: Mapping[str, Any] = next(iter(status.get("containerStatuses") or ()), {})
    # Newer kubelets report what the runtime has really set.
    for each in (state, container):
        limit = ((each.get("resources") or {}).get("limits") or {}).get("cpu")
        if limit is not None:
            return told_reasons(described, cpus_of(size), quantity(str(limit)))
    return told_reasons(described, cpus_of(size), None)


def cpus_of(size: Size) -> float:
    """Return the CPUs of a pod as a number."""
    return size.millicpus / 1000 if size.millicpus else float(size.cpus)


def size_reasons(described: Described, size: Size) -> list[str]:
    """List why the pod's CPU limit, in CPUs or millicpus, does not seem to be enforced."""
    if not size.millicpus:
        return limit_reasons(described, size.cpus)
    quota = described.quota_cpus
    if quota is not None and abs(quota * 1000 - size.millicpus) <= max(1.0, QUOTA_TOLERANCE * size.millicpus):
        return []
    return [f"the worker's CPU quota is {quota}, but the container's limit is {size.millicpus / 1000:g}"]


def pod_reasons(pod: Mapping[str, Any], described: Described) -> list[str]:
    """List why the worker does not seem to have run in this pod without interruption."""
    metadata, status = pod.get("metadata") or {}, pod.get("status") or {}
    reasons = []
    if described.hostname != metadata.get("name"):
        reasons.append(f"the worker's host is {described.hostname!r}, the pod is {metadata.get('name')!r}")
    if described.container_hints.get("own_pid_namespace") is False:
        reasons.append("the worker sees the node's processes: it is not in a container")
    if status.get("qosClass") != "Guaranteed":
        reasons.append(f"the pod's QoS class is {status.get('qosClass')}, not Guaranteed")
    for container in status.get("containerStatuses") or ():
        if container.get("restartCount"):
            reasons.append(f"the container was restarted {container['restartCount']} times")
    return [*reasons, *cgroup_reasons(str(metadata.get("uid") or ""), described)]


def cgroup_reasons(uid: str, described: Described) -> list[str]:
    """Report a worker whose cgroup is another pod's; in a cgroup namespace it is `/`, which proves nothing."""
    cgroup = described.cgroup or ""
    if "kubepods" in cgroup and uid not in cgroup.replace("_", "-"):
        return [f"the worker's cgroup {cgroup} is not that of pod {uid}"]
    return []


def xen_reasons(described: Described) -> list[str]:
    """List why the worker does not seem to have run in a Xen guest; dom0 is not a guest."""
    host = described.host
    kind, capabilities = host.get("hypervisor_type"), host.get("xen_capabilities")
    if kind != "xen":
        return [f"the node is not a Xen guest: /sys/hypervisor/type is {kind or 'missing'}"]
    if capabilities and "control_d" in capabilities:
        return ["the worker ran in Xen's control domain, not in a guest"]
    return []


def xen_facts(described: Described) -> dict[str, Any]:
    """Return what a Xen guest says of itself: its type, and that its hypervisor is emulated; nothing elsewhere."""
    return {key: described.host[key] for key in ("xen_guest_type", "emulated") if described.host.get(key)}


def pod_facts(pod: Mapping[str, Any], described: Described) -> dict[str, Any]:
    """Return the facts about the pod that are stored with every result."""
    metadata, spec, status = (pod.get(key) or {} for key in ("metadata", "spec", "status"))
    container: dict[str, Any] = next(iter(spec.get("containers") or ()), {})
    state: dict[str, Any] = next(iter(status.get("containerStatuses") or ()), {})
    host = described.host
    return {
        "pod": metadata.get("name"),
        "pod_uid": metadata.get("uid"),
        "namespace": metadata.get("namespace"),
        "node": spec.get("nodeName"),
        "qos_class": status.get("qosClass"),
        "runtime_class": spec.get("runtimeClassName"),
        "image": container.get("image"),
        "image_digest": state.get("imageID"),
        "container_id": state.get("containerID"),
        "restarts": state.get("restartCount"),
        "limits": (container.get("resources") or {}).get("limits"),
        "cpu_allowance": described.cpu_allowance,
        "memory_limit_mb": host.get("memory_limit_mb"),
        "cgroup": described.cgroup,
        "hypervisor_type": host.get("hypervisor_type"),
        **xen_facts(described),
        "device_ids": device_ids(described),
        "pid": described.pid,
        "taken_at": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        **({"resource_claims": claims} if (claims := resource_claims(pod)) else {}),
    }


def resource_claims(pod: Mapping[str, Any]) -> list[str]:
    """Return the names of the ResourceClaims that the pod holds; one made from a template is in its status."""
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    made = {each.get("name"): each.get("resourceClaimName") for each in status.get("resourceClaimStatuses") or ()}
    asked = spec.get("resourceClaims") or ()
    return [str(each.get("resourceClaimName") or made.get(each.get("name")) or each.get("name")) for each in asked]


def device_ids(described: Described) -> dict[str, Any]:
    """Return the device ids that the worker sees."""
    return {
        "visible": described.host.get("visible_devices"),
        "nodes": list(described.device_nodes),
        "uuids": [gpu.get("uuid") for gpu in described.gpus],
    }


class KubernetesProxy(Kubernetes):
    """Starts workers as tenants of a node's GPU proxy: the pod asks for a place, and gets socket and library."""

    def start(self) -> ChildProcess:
        """Start a worker in a pod with a place; the proxy decides which device is behind it, the evidence shows it."""
        if self._driver.libcuda:
            raise UsageError(
                "--libcuda is a local file, which is not visible in a pod",
                next_step="use --device software or cuda",
            )
        refuse_without_runtime(self._driver, os.environ)
        return super().start()

    def plan(self) -> PodPlan:
        """Return the tenant's pod: with a place behind a proxy, and without any device."""
        return replace(super().plan(), tenant_of_proxy=True)

    def evidence(self, described: Described) -> Evidence:
        """Compare the worker's report on its driver with what the proxy shows at the pod's place, and with the pod."""
        place = super().evidence(described)
        reasons = list(place.reasons)
        if described.device_nodes:
            reasons.append(f"the tenant's pod has its own device nodes: {', '.join(described.device_nodes)}")
        if described.driver is None or self._pod is None:
            return place.below(PROXY, [*reasons, "the worker was not asked about its driver"])
        try:
            # In the tenant's own pod: nobody needs the right to enter the proxy's, and a place shows nobody else.
            status = json.loads(self._pods.cluster.run_in_pod(self._pod.name, STATUS))
        except (GputaxError, ValueError) as error:
            return place.below(PROXY, [*reasons, f"the proxy does not answer: {error}"])
        device, library = self._driver.device, f"{TENANT_LIBRARY_DIRECTORY}/libcuda.so.1"
        backend = SOFTWARE_BACKEND if device == "software" else ""
        intended = Intended(library, DEFAULT_TRANSPORT, backend, same_pid_namespace=False)
        proxied = proxy_evidence(described.driver, status, intended)
        reasons += proxied.reasons
        if device == "cuda" and status.get("backend") == SOFTWARE_BACKEND:
            reasons.append("the node's proxy serves the software device, not a GPU")
        return place.below(PROXY, reasons, proxied.facts, list_reasons=True)

    def _variables(self) -> dict[str, str]:
        # The device plugin sets LD_LIBRARY_PATH and the socket for everything in the container.
        return {**NATIVE_VARIABLES, **runtime_setting(os.environ)}
