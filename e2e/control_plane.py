"""The command line of each daemon, as a pure function of the run directory."""

from __future__ import annotations

from pathlib import Path

from e2e.layout import (
    API_PORT,
    API_URL,
    ETCD_CLIENT_PORT,
    ETCD_PEER_PORT,
    NODE_ADDRESS,
    NODE_NAME,
    SERVICE_SUBNET,
    Layout,
)

ETCD_URL, ETCD_PEER_URL = f"http://127.0.0.1:{ETCD_CLIENT_PORT}", f"http://127.0.0.1:{ETCD_PEER_PORT}"
GRACE_S = 20
"""How long a kubelet may be silent before its node counts as not ready: 50 s by default, and a busy one misses 10."""


def daemons(layout: Layout, binaries: Path, etcd: str) -> dict[str, list[str]]:
    """Return the command of each daemon."""
    keys, files = layout.certificates, layout.configuration
    return {
        "etcd": [
            etcd,
            "--name=e2e",
            f"--data-dir={layout.root}/etcd",
            f"--listen-client-urls={ETCD_URL}",
            f"--advertise-client-urls={ETCD_URL}",
            f"--listen-peer-urls={ETCD_PEER_URL}",
            f"--initial-advertise-peer-urls={ETCD_PEER_URL}",
            f"--initial-cluster=e2e={ETCD_PEER_URL}",
            "--unsafe-no-fsync",
        ],
        "containerd": [f"{binaries}/containerd", f"--config={files}/containerd.toml"],
        "kube-apiserver": [
            f"{binaries}/kube-apiserver",
            f"--etcd-servers={ETCD_URL}",
            f"--bind-address={NODE_ADDRESS}",
            f"--advertise-address={NODE_ADDRESS}",
            f"--secure-port={API_PORT}",
            f"--cert-dir={layout.root}/apiserver-certificates",
            f"--tls-cert-file={keys}/apiserver.crt",
            f"--tls-private-key-file={keys}/apiserver.key",
            f"--client-ca-file={keys}/ca.crt",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            "--allow-privileged",
            f"--service-cluster-ip-range={SERVICE_SUBNET}",
            f"--service-account-issuer={API_URL}",
            f"--service-account-signing-key-file={keys}/service-accounts.key",
            f"--service-account-key-file={keys}/service-accounts.pub",
            f"--kubelet-client-certificate={keys}/apiserver-to-kubelet.crt",
            f"--kubelet-client-key={keys}/apiserver-to-kubelet.key",
            f"--kubelet-certificate-authority={keys}/ca.crt",
            "--kubelet-preferred-address-types=InternalIP",
            f"--audit-policy-file={files}/audit.json",
            f"--audit-log-path={layout.audit_log}",
            "--profiling=false",
        ],
        "kube-controller-manager": [
            f"{binaries}/kube-controller-manager",
            f"--kubeconfig={layout.kubeconfig('controller-manager')}",
            f"--authentication-kubeconfig={layout.kubeconfig('controller-manager')}",
            f"--authorization-kubeconfig={layout.kubeconfig('controller-manager')}",
            "--bind-address=127.0.0.1",
            "--secure-port=0",
            "--leader-elect=false",
            "--use-service-account-credentials",
            f"--root-ca-file={keys}/ca.crt",
            f"--service-account-private-key-file={keys}/service-accounts.key",
            f"--node-monitor-grace-period={GRACE_S}s",
            "--node-monitor-period=1s",
            "--profiling=false",
        ],
        "kube-scheduler": [
            f"{binaries}/kube-scheduler",
            f"--kubeconfig={layout.kubeconfig('scheduler')}",
            "--secure-port=0",
            "--leader-elect=false",
        ],
        "kubelet": [
            f"{binaries}/kubelet",
            f"--config={files}/kubelet.json",
            f"--kubeconfig={layout.kubeconfig('kubelet')}",
            f"--root-dir={layout.root}/kubelet",
            f"--cert-dir={layout.root}/kubelet-certificates",
            f"--hostname-override={NODE_NAME}",
            f"--node-ip={NODE_ADDRESS}",
            # cAdvisor's own flag: with a socket elsewhere, /metrics/cadvisor has no per-container series without it.
            f"--containerd={layout.containerd_socket}",
        ],
    }
