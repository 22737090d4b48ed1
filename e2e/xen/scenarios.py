"""What dom0 does in each boot: shell texts whose marked lines a test reads, and the guests' files that they need."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from e2e.xen import archive, images
from e2e.xen.archive import Entry
from e2e.xen.base import Base

DIGEST = "/bin/byte_digest /lib/libcuda.so.1 /etc/gputax/vector.ptx"
OPERATIONS = "/bin/op_bench /lib/libcuda.so.1 /etc/gputax/micro.ptx {seconds} op,call"
PODS = tuple(f"{number}1111111-aaaa-4aaa-8aaa-00000000000{number}" for number in (1, 2, 3))


@dataclass(frozen=True)
class Guest:
    """One guest of a scenario."""

    name: str
    pod: str
    orders: tuple[str, ...]
    kind: str = "pv"

    def configuration(self) -> str:
        """Return its file for xl."""
        return (
            f'name = "{self.name}"\ntype = "{self.kind}"\n'
            f'kernel = "/boot/vmlinux"\nramdisk = "/boot/{self.name}.cpio"\n'
            'memory = 224\nvcpus = 1\nextra = "console=hvc0 quiet mitigations=off"\non_crash = "destroy"\n'
        )

    def files(self, base: Base, build: Path, folder: Path) -> Iterator[Entry]:
        """Return what dom0 needs to start it; its image is written to the folder."""
        image = folder / f"{self.name}.cpio"
        archive.write(image, images.guest(base, build, self.orders))
        yield Entry(f"boot/{self.name}.cpio", 0o100644, source=image)
        yield archive.text(f"etc/xen/{self.name}.cfg", self.configuration())


# create NAME POD: the guest runs and its link serves. log NAME: its console. gone NAME: waits until it has ended.
PRELUDE = r"""
mark() { while read -r line; do echo "@@ $1 $line"; done; }
until_ok() {
  n=$1; shift
  while [ "$n" -gt 0 ]; do "$@" >/dev/null 2>&1 && return 0; n=$((n-1)); sleep 0.5; done
  return 1
}
create() {
  xl create "/etc/xen/$1.cfg" 2>&1 | mark "create"
  id=$(xl domid "$1") || { echo "@@ failed create $1"; return 1; }
  echo "@@ domain $1 $id"
  follow "/var/log/xen/console/guest-$1.log" "$1" &
  xen-link host "$id" "$2" /run/proxy.xen >"/run/$1.link" 2>&1 &
  until_ok 600 xenstore-read "/local/domain/$id/data/gputax/ready" || echo "@@ failed ready $1"
}
follow() { until_ok 600 test -e "$1" && tail -f "$1" | mark "console-$2"; }
log() { cat "/var/log/xen/console/guest-$1.log" | mark "guest-$1"; }
ended() { ! xl domid "$1"; }
gone() { until_ok 1200 ended "$1" || echo "@@ failed gone $1"; }
status() { python3 -S /opt/gputax/status.py /run/proxy.sock.status | mark "status-$1"; }
gputax-proxy --socket /run/proxy.sock --xen-socket /run/proxy.xen --backend /opt/gputax/libcuda.so.1 --spin never \
  >/run/proxy.out 2>/run/proxy.err &
until_ok 200 test -S /run/proxy.xen || echo "@@ failed proxy"
"""

RING_GUESTS = (
    Guest("one", PODS[0], (DIGEST, OPERATIONS.format(seconds=2))),
    Guest("two", PODS[1], (OPERATIONS.format(seconds=600),)),
    Guest("three", PODS[2], (OPERATIONS.format(seconds=20), DIGEST)),
)
RING = (
    PRELUDE
    + rf"""
xl info | grep -E "xen_version|xen_caps" | mark info
byte_digest /opt/gputax/libcuda.so.1 /opt/gputax/vector.ptx 2>&1 | mark direct
create one {PODS[0]}
gone one
log one
sleep 1
status one
create two {PODS[1]}
create three {PODS[2]}
both() {{ status now | grep -q '"tenants": \[{{.*"pod".*"pod".*\], "ended'; }}
until_ok 200 both
status both
xl destroy two
gone three
log three
sleep 2
status end
xl list | mark list
cat /run/*.link /run/proxy.err | mark errors
"""
)
