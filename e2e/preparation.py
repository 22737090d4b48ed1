"""What must be there before a cluster can start: packages, the Kubernetes binaries, the product's image. All cached."""

from __future__ import annotations

import os
import subprocess

from e2e import gvisor_runtime, images
from e2e.layout import REPOSITORY
from e2e.packages import install_command, missing_packages
from e2e.processes import ClusterError
from e2e.timings import Timings


def prepare(timings: Timings, product: images.Product = images.CPU) -> None:
    """Do what is not done yet; each part is printed with its time."""
    with timings.part("packages"):
        _install_packages()
    with timings.part("Kubernetes binaries"):
        done = subprocess.run([REPOSITORY / "e2e/kubernetes/build.sh"], stdout=subprocess.DEVNULL)
        if done.returncode != 0:
            raise ClusterError("the Kubernetes binaries cannot be built; the lines above say why")
    with timings.part("gVisor"):
        gvisor_runtime.runsc()
    with timings.part("pause image"):
        images.pause_archive()
    with timings.part("product image"):
        images.product_archive(product)


def _install_packages() -> None:
    packages = missing_packages()
    if not packages:
        return
    if os.geteuid() != 0:
        raise ClusterError(f"missing: {', '.join(packages)}. Next, as root: {install_command(packages)}")
    quiet = {"stdout": subprocess.DEVNULL, "env": {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}}
    subprocess.run(["apt-get", "update", "-qq"], check=True, **quiet)  # type: ignore[call-overload]
    subprocess.run(install_command(packages).split(), check=True, **quiet)  # type: ignore[call-overload]
