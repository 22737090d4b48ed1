"""python -m e2e prepare | up | down | status | image | start NAME | stop NAME: the tests' cluster by hand."""

from __future__ import annotations

import argparse
import os
import signal
import sys

from e2e import cluster, images
from e2e.layout import LANE_PARTS, Layout, run_directory
from e2e.preparation import prepare
from e2e.processes import ClusterError, pid_of
from e2e.timings import Timings

FRAMEWORKS_TEXT = "with PyTorch, ONNX Runtime for CUDA and NVIDIA's libraries from the package index"


def main() -> int:
    """Parse and do one thing."""
    parser = argparse.ArgumentParser(prog="python -m e2e", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    for verb, text in (
        ("prepare", "packages (as root), Kubernetes binaries, images: what is not there yet"),
        ("image", "build the product's image and hand it to the cluster"),
    ):
        verbs.add_parser(verb, help=text).add_argument("--frameworks", action="store_true", help=FRAMEWORKS_TEXT)
    up = verbs.add_parser("up", help="start a cluster (root, seconds)")
    up.add_argument("--gpus", type=int, default=4, help="stand-in GPUs that the node offers")
    verbs.add_parser("down", help="end it and put the host back")
    verbs.add_parser("status", help="which daemons run")
    for verb, text in (("start", "start one daemon again"), ("stop", "stop one daemon, as a fault would")):
        verbs.add_parser(verb, help=text).add_argument("name", choices=(*cluster.START_ORDER, *LANE_PARTS))
    options = parser.parse_args()
    layout = Layout(run_directory())
    product = images.FRAMEWORKS if getattr(options, "frameworks", False) else images.CPU
    try:
        match options.verb:
            case "prepare":
                return _prepare(product)
            case "up":
                return _up(options.gpus)
            case "down":
                return _report(cluster.down())
            case "status":
                return _status(layout)
            case "image":
                images.import_archive(layout, images.product_archive(product))
                print(f"{product.image} is in the cluster")
            case "start":
                cluster.start_daemon(layout, options.name)
            case "stop":
                cluster.stop_daemon(layout, options.name)
    except ClusterError as error:
        print(f"e2e: {error}", file=sys.stderr)
        return 1
    return 0


def _cluster_is_given() -> bool:
    given = os.environ.get("KUBECONFIG")
    if not given or given == str(Layout(run_directory()).kubeconfig()):
        return False
    print(f"KUBECONFIG is {given}: that cluster is used, none is made")
    return True


def _prepare(product: images.Product) -> int:
    # A build that is told to end unmounts its working containers.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if not _cluster_is_given():
        if product is images.FRAMEWORKS:
            print(f"Makes {product.image}: {FRAMEWORKS_TEXT}", file=sys.stderr)
        timings = Timings()
        prepare(timings, product)
        print(f"Prepared in {timings.line()}", file=sys.stderr)
    return 0


def _up(gpus: int) -> int:
    if _cluster_is_given():
        return 0
    layout, timings = cluster.up(gpus)
    print(f"Ready in {timings.line()}", file=sys.stderr)
    print(f"export KUBECONFIG={layout.kubeconfig()}")
    return 0


def _status(layout: Layout) -> int:
    names = cluster.running(layout)
    for name in (*cluster.START_ORDER, *LANE_PARTS):
        pid = pid_of(layout, name)
        print(f"{name:<24} {f'pid {pid}' if pid else '-'}")
    if not names:
        return 1
    print(cluster.kubectl(layout, "get", "nodes", "-o", "wide").stdout, end="")
    return 0


def _report(problems: list[str]) -> int:
    for problem in problems:
        print(f"e2e: {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
