"""One certificate authority and the few certificates of the cluster, by the openssl command."""

from __future__ import annotations

import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from e2e.layout import FIRST_SERVICE_ADDRESS, LANE_PARTS, NODE_ADDRESS, NODE_NAME

DAYS = "7"


@dataclass(frozen=True)
class Identity:
    """Whom a certificate speaks for."""

    file_name: str
    common_name: str
    organisation: str = ""
    alternative_names: str = ""


_API_NAMES = ("kubernetes", "kubernetes.default", "kubernetes.default.svc", "localhost")
_API_ADDRESSES = ("127.0.0.1", NODE_ADDRESS, FIRST_SERVICE_ADDRESS)

IDENTITIES = (
    Identity(
        "apiserver",
        "kube-apiserver",
        alternative_names=",".join([f"DNS:{n}" for n in _API_NAMES] + [f"IP:{a}" for a in _API_ADDRESSES]),
    ),
    Identity("apiserver-to-kubelet", "kube-apiserver-kubelet-client", "system:masters"),
    Identity("kubelet", f"system:node:{NODE_NAME}", "system:nodes", f"DNS:{NODE_NAME},IP:{NODE_ADDRESS}"),
    Identity("controller-manager", "system:kube-controller-manager"),
    Identity("scheduler", "system:kube-scheduler"),
    Identity("admin", "gputax-e2e-admin", "system:masters"),
    # The lane's own parts have names of their own, so that the audit log can leave them out.
    *(Identity(name, f"gputax-e2e-{name}", "system:masters") for name in LANE_PARTS),
)


def make_certificates(directory: Path) -> None:
    """Write the authority (ca), each identity's .crt and .key, and the key pair of the service accounts."""
    directory.mkdir(mode=0o700, parents=True)
    _key(directory / "ca.key")
    _openssl("req", "-x509", "-new", "-sha256", "-days", DAYS, "-subj", "/CN=gputax-e2e-ca",
             "-key", directory / "ca.key", "-out", directory / "ca.crt")  # fmt: skip
    with ThreadPoolExecutor(4) as pool:
        accounts = pool.submit(_service_account_keys, directory)
        list(pool.map(lambda identity: _issue(directory, identity), IDENTITIES))
        accounts.result()


def _issue(directory: Path, identity: Identity) -> None:
    path = directory / identity.file_name
    key, request, extensions = path.with_suffix(".key"), path.with_suffix(".csr"), path.with_suffix(".ext")
    _key(key)
    organisation = f"/O={identity.organisation}" if identity.organisation else ""
    _openssl("req", "-new", "-sha256", "-key", key, "-subj", f"{organisation}/CN={identity.common_name}",
             "-out", request)  # fmt: skip
    lines = ["keyUsage=critical,digitalSignature", "extendedKeyUsage=serverAuth,clientAuth"]
    if identity.alternative_names:
        lines.append(f"subjectAltName={identity.alternative_names}")
    extensions.write_text("\n".join(lines) + "\n")
    # A serial number of its own, so that the parallel calls share no serial file.
    serial = str(1 + IDENTITIES.index(identity))
    _openssl("x509", "-req", "-sha256", "-days", DAYS, "-in", request, "-CA", directory / "ca.crt",
             "-CAkey", directory / "ca.key", "-set_serial", serial, "-extfile", extensions,
             "-out", path.with_suffix(".crt"))  # fmt: skip


def _service_account_keys(directory: Path) -> None:
    _key(directory / "service-accounts.key")
    _openssl("ec", "-in", directory / "service-accounts.key", "-pubout", "-out", directory / "service-accounts.pub")


def _key(path: Path) -> None:
    # Elliptic keys: an RSA key takes openssl up to half a second here, these take 10 ms.
    _openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", path)
    path.chmod(0o600)


def _openssl(*arguments: str | Path) -> None:
    done = subprocess.run(["openssl", *arguments], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"openssl {arguments[0]}: {done.stderr.strip()}")
