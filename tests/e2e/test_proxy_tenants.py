"""Hostile tenants of the GPU proxy in real pods: what they ask for, what they see of others, whom they can keep out."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gputax.kubernetes.objects import PLACES, PROXY_NAMESPACE, PodPlan, Size, pod
from tests.e2e.node_proxy import installed_proxy, kubelet_restarted, operators_status, places_offered, proxy_pod
from tests.e2e.real_cluster import NAMESPACE, RealCluster, eventually

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("namespace")]
SMALL = Size(millicpus=200, memory="256Mi")

# A program that knows nothing of gputax: the loader's libcuda.so.1 is all it needs.
CUDA = """
import ctypes, glob, json, os, socket, sys, time
cuda = ctypes.CDLL("libcuda.so.1")
def call(name, *given):
    result = getattr(cuda, name)(*given)
    assert result == 0, (name, result)
def begin():
    device, context = ctypes.c_int(), ctypes.c_void_p()
    call("cuInit", 0)
    call("cuDeviceGet", ctypes.byref(device), 0)
    call("cuCtxCreate_v2", ctypes.byref(context), 0, device)
def status():
    with socket.socket(socket.AF_UNIX) as reader:
        reader.settimeout(20)
        reader.connect(os.environ["GPUTAX_PROXY_SOCKET"] + ".status")
        reader.sendall(b"\\n")
        return json.loads(b"".join(iter(lambda: reader.recv(65536), b"")))
"""


@pytest.fixture(scope="module")
def proxied(real_cluster: RealCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    with installed_proxy(real_cluster, tmp_path_factory.mktemp("proxy")) as cluster:
        yield cluster


def start(cluster: RealCluster, name: str, program: str) -> None:
    """Start a tenant's pod; its namespace is restricted, and all that it asks for is a place."""
    command = ("python", "-c", CUDA + program)
    cluster.apply(pod(PodPlan(name, "e2e", cluster.image, SMALL, command=command, tenant_of_proxy=True)))


def log(cluster: RealCluster, name: str) -> str:
    return cluster.try_kubectl("logs", name, "-n", NAMESPACE).stdout


def says(cluster: RealCluster, name: str, word: str) -> None:
    eventually(f"{name} says {word}", lambda: word in log(cluster, name), 60)


def output(cluster: RealCluster, name: str) -> Any:
    """Return what a tenant printed, once it has ended well."""
    phase = eventually(f"{name} ends", lambda: phase_of(cluster, name) in ("Succeeded", "Failed"), 90)
    assert phase
    text = log(cluster, name)
    assert phase_of(cluster, name) == "Succeeded", text
    return json.loads(text.splitlines()[-1])


def phase_of(cluster: RealCluster, name: str) -> str:
    return str(cluster.get("pod", name, "-n", NAMESPACE)["status"].get("phase"))


def end(cluster: RealCluster, *names: str) -> None:
    cluster.kubectl("delete", "pod", *names, "-n", NAMESPACE, "--grace-period=1", "--wait")


def restarts(cluster: RealCluster) -> int:
    return sum(each["restartCount"] for each in proxy_pod(cluster)["status"]["containerStatuses"])


def test_a_restricted_pod_reaches_the_device_with_nothing_but_a_place(proxied: RealCluster) -> None:
    program = """
begin()
def refused(path):
    try:
        open(path, "w")
    except OSError as error:
        return error.strerror
print(json.dumps({
    "visible": os.environ["NVIDIA_VISIBLE_DEVICES"],
    "nodes": glob.glob("/dev/nvidia*"),
    "files": sorted(os.listdir("/run/gputax-proxy")),
    "writes": [refused("/run/gputax-proxy/x"), refused("/opt/gputax-vgpu/libcuda.so.1")],
    "above": os.listdir("/run/gputax-proxy/.."),
    "library": [line.split()[-1] for line in open("/proc/self/maps") if "libcuda" in line][0],
}))
"""
    start(proxied, "tenant", program)
    seen = output(proxied, "tenant")
    assert seen["visible"] == "void"
    assert seen["nodes"] == []
    assert seen["files"] == ["proxy.sock", "proxy.sock.status"]
    assert seen["writes"] == ["Read-only file system"] * 2
    assert seen["library"] == "/opt/gputax-vgpu/libcuda.so.1"
    live = proxied.get("pod", "tenant", "-n", NAMESPACE)
    assert "hostPath" not in json.dumps(live["spec"])
    assert (
        proxied.get("namespace", NAMESPACE)["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    )
    end(proxied, "tenant")


def test_a_tenant_that_asks_for_the_proxys_directory_of_the_node_is_refused(proxied: RealCluster) -> None:
    manifest = pod(PodPlan("mounts", "e2e", proxied.image, SMALL, tenant_of_proxy=True))
    manifest["spec"]["volumes"].append({"name": "node", "hostPath": {"path": "/run/gputax-proxy"}})
    done = proxied.try_kubectl("create", "-f", "-", given=json.dumps(manifest))
    assert done.returncode != 0
    assert 'violates PodSecurity "restricted' in done.stderr
    assert "hostPath" in done.stderr


def test_the_role_of_the_manifests_gives_no_way_into_the_proxys_namespace(proxied: RealCluster, tmp_path: Path) -> None:
    least, _ = proxied.least_kubeconfig(tmp_path)
    name = proxy_pod(proxied)["metadata"]["name"]
    tries = (
        ("exec", name, "--", "id"),
        ("get", "pods"),
        ("delete", "pod", name),
        ("run", "mine", f"--image={proxied.image}"),
        ("debug", name, f"--image={proxied.image}"),
        ("logs", name),
    )
    for words in tries:
        done = proxied.try_kubectl(f"--kubeconfig={least}", "-n", PROXY_NAMESPACE, *words)
        assert done.returncode != 0, words
        assert "forbidden" in done.stderr.lower(), done.stderr


def test_a_tenant_reads_its_own_status_and_nothing_of_another_tenant(proxied: RealCluster) -> None:
    start(proxied, "other", "begin(); print('on', flush=True); time.sleep(600)")
    says(proxied, "other", "on")
    start(proxied, "spy", "begin(); print(json.dumps(status()), flush=True)")
    seen = output(proxied, "spy")
    (mine,) = seen["tenants"]
    assert seen["ended_tenants"] == []
    assert seen["totals"]["tenants"] == 1
    assert not {"active_tenants", "cores_free", "places"} & seen.keys()
    (other,) = operators_status(proxied)["tenants"]
    assert other["id"] != mine["id"]
    assert other["place"] != mine["place"]
    end(proxied, "other", "spy")


FLOOD = """
held, refused = [], 0
for _ in range(200):
    tenant = socket.socket(socket.AF_UNIX)
    tenant.connect(os.environ["GPUTAX_PROXY_SOCKET"])
    held.append(tenant)
print("flooded", flush=True)
while True:  # those that are dropped for their silence come again
    for at, tenant in enumerate(held):
        tenant.setblocking(False)
        try:
            if not tenant.recv(4096):
                raise ConnectionResetError
        except BlockingIOError:
            continue
        except OSError:
            held[at] = socket.socket(socket.AF_UNIX)
            held[at].connect(os.environ["GPUTAX_PROXY_SOCKET"])
    time.sleep(0.01)
"""
VICTIM = """
begin()
pointer, data, took = ctypes.c_uint64(), bytes(4096), []
call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(4096))
until = time.monotonic() + 10
while time.monotonic() < until:
    began = time.perf_counter()
    call("cuMemcpyHtoD_v2", pointer, data, ctypes.c_size_t(4096))
    call("cuCtxSynchronize")
    took.append(time.perf_counter() - began)
took.sort()
p50, p99 = (took[len(took) * percent // 100] * 1e6 for percent in (50, 99))
print(json.dumps({"calls": len(took), "p50_us": p50, "p99_us": p99}))
"""


def test_two_hundred_connections_of_one_tenant_leave_the_others_their_places(proxied: RealCluster) -> None:
    before = restarts(proxied)
    start(proxied, "alone", VICTIM)
    alone = output(proxied, "alone")
    start(proxied, "flood", FLOOD)
    says(proxied, "flood", "flooded")
    start(proxied, "victim", VICTIM)
    beside = output(proxied, "victim")
    assert phase_of(proxied, "flood") == "Running"
    assert restarts(proxied) == before
    assert places_offered(proxied) == PLACES
    print(f"a victim alone: {alone}; beside 200 connections: {beside}")
    end(proxied, "alone", "flood", "victim")


def test_two_places_are_refused_and_more_than_there_are_stay_pending(proxied: RealCluster) -> None:
    for name, count in (("two", "2"), ("many", str(PLACES + 1))):
        manifest = pod(PodPlan(name, "e2e", proxied.image, SMALL, command=("true",), tenant_of_proxy=True))
        for amounts in manifest["spec"]["containers"][0]["resources"].values():
            amounts["gputax.dev/vgpu"] = count
        proxied.apply(manifest)
    eventually("the node refuses two", lambda: phase_of(proxied, "two") == "Failed", 30)
    assert "a container can have one place, not 2" in proxied.get("pod", "two", "-n", NAMESPACE)["status"]["message"]
    many = proxied.get("pod", "many", "-n", NAMESPACE)["status"]
    assert "Insufficient gputax.dev/vgpu" in many["conditions"][0]["message"]
    end(proxied, "two", "many")


AGAIN = """
print("on", flush=True)
while True:
    child = os.fork()
    if child == 0:
        try:
            begin()
            os._exit(0)
        except BaseException:
            os._exit(1)
    print("served" if os.waitpid(child, 0)[1] == 0 else "not served", flush=True)
    time.sleep(0.5)
"""


def test_a_proxy_that_restarts_serves_the_pods_that_had_their_places_before(proxied: RealCluster) -> None:
    start(proxied, "stays", AGAIN)
    says(proxied, "stays", "served")
    name, before = proxy_pod(proxied)["metadata"]["name"], restarts(proxied)
    end_it = "import os, signal; os.kill(1, signal.SIGTERM)"
    # What sends the signal may be killed with the container: that the proxy restarts is what counts.
    proxied.try_kubectl("exec", "-n", PROXY_NAMESPACE, name, "-c", "gputax", "--", "python", "-c", end_it)
    eventually("the proxy restarts", lambda: restarts(proxied) == before + 1, 60)
    eventually("its places are offered again", lambda: places_offered(proxied) == PLACES, 60)
    served = log(proxied, "stays").count("\nserved")
    eventually("the same pod is served again", lambda: log(proxied, "stays").count("\nserved") > served, 60)
    said = proxied.kubectl("logs", "-n", PROXY_NAMESPACE, name, "-c", "plugin")
    assert f"0 of {PLACES} places" in said, "it reported them unhealthy meanwhile"
    end(proxied, "stays")


def test_a_kubelet_that_restarts_finds_the_places_again(proxied: RealCluster) -> None:
    name = proxy_pod(proxied)["metadata"]["name"]
    plugin = ("logs", "-n", PROXY_NAMESPACE, name, "-c", "plugin")
    before = proxied.kubectl(*plugin).count("registered")
    kubelet_restarted(proxied)
    eventually("it is registered again", lambda: proxied.try_kubectl(*plugin).stdout.count("registered") > before, 60)
    eventually("the node offers the places", lambda: places_offered(proxied) == PLACES, 60)
    start(proxied, "after", "begin(); print(json.dumps(1))")
    assert output(proxied, "after") == 1
    end(proxied, "after")
