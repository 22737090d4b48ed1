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


# said NAME WORDS...: what a program writes and how it ends, marked with the name.
# create NAME POD: the guest runs and its link serves. log NAME: its console. gone NAME: waits until it has ended.
PRELUDE = r"""
mark() { while read -r line; do echo "@@ $1 $line"; done; }
until_ok() {
  n=$1; shift
  while [ "$n" -gt 0 ]; do "$@" >/dev/null 2>&1 && return 0; n=$((n-1)); sleep 0.5; done
  return 1
}
said() {
  name=$1; shift
  "$@" >"/run/$name.out" 2>"/run/$name.err"; code=$?
  mark "$name-out" <"/run/$name.out"; mark "$name-err" <"/run/$name.err"; echo "@@ $name-code $code"
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
    Guest("three", PODS[2], (OPERATIONS.format(seconds=60), DIGEST)),
)


def ring_files(base: Base, build: Path, folder: Path) -> Iterator[Entry]:
    """Return what dom0 needs to start the guests of the ring."""
    for guest in RING_GUESTS:
        yield from guest.files(base, build, folder)


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
both() {{ status now | sed 's/"ended_tenants".*//' | grep -q '"pod".*"pod"'; }}
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

SERVED = Guest("served", PODS[0], ())
SESSIONS = (
    PRELUDE
    + rf"""
create served {PODS[0]}
request() {{ printf "$1" >/run/request; said "$2" xen-session host "$id" --request /run/request; }}
byte_digest /opt/gputax/libcuda.so.1 /opt/gputax/vector.ptx 2>&1 | mark direct
said words xen-session host "$id" /bin/xen-session </dev/null
said missing xen-session host "$id" /bin/none </dev/null
request 'a/bin/byte_digest\0a/lib/libcuda.so.1\0a/etc/gputax/vector.ptx\0'\
'eGPUTAX_PROXY_SOCKET=/run/gputax/proxy.sock\0eGPUTAX_PROXY_TRANSPORT=xen\0' digest </dev/null
printf 's\0' >/run/hold
xen-session host "$id" --request /run/hold </dev/null & held=$!
sleep 3; kill -TERM $held; wait $held; echo "@@ term-code $?"
xen-session host "$id" --request /run/hold </dev/null & held=$!
said beside xen-session host "$id" /bin/none </dev/null
xl destroy served
wait $held; echo "@@ destroyed-code $?"
gone served
xl list | mark list
cat /run/*.link /run/proxy.err | mark errors
"""
)

CONTAINERD = 'version = 2\ndisabled_plugins = ["io.containerd.grpc.v1.cri"]\n'
SETTINGS = '{"session": "/opt/gputax/xen-session", "link": "/opt/gputax/xen-link", "proxy_socket": "/run/proxy.xen"}\n'
RUNTIME = ("errors", "image", "runtime", "spec", "store", "words", "__init__")


def pod_files(base: Base, build: Path, folder: Path) -> Iterator[Entry]:
    """Return what dom0 needs to make guests of containers: the runtime, a guest's image, a small root file system."""
    image = folder / "guest.cpio"
    archive.write(image, images.guest(base, build))
    yield Entry("boot/guest.cpio", 0o100644, source=image)
    yield from images.small_root(base, build)
    node = images.REPOSITORY / "node"
    yield archive.folder("opt/gputax/xen_cri")
    for name in ("xen-cri", "block-image", *(f"xen_cri/{each}.py" for each in RUNTIME)):
        yield archive.program(f"opt/gputax/{name}", node / name)
    yield from (archive.folder(name) for name in ("etc/containerd", "var/lib/containerd", "var/lib/gputax"))
    yield archive.text("etc/containerd/config.toml", CONTAINERD)
    yield archive.text("etc/gputax/xen-cri.json", SETTINGS)


CONTAINERS = (
    PRELUDE
    + r"""
mkdir -p /sys/fs/cgroup /var/lib/xen
mount -t cgroup2 cgroup2 /sys/fs/cgroup
containerd >/run/containerd.log 2>&1 &
until_ok 400 ctr version || echo "@@ failed containerd"
pod() { ctr run --rm --runc-binary /opt/gputax/xen-cri --rootfs "$@"; }
runs() { ctr task ls | grep -q "$1 .*RUNNING"; }
said version xen-cri --version
said first pod --env GREETING=hello /opt/root first /bin/sh -c \
  'echo $GREETING; hostname; id -u; echo below >&2; touch /tmp/written && ls /tmp; exit 7' </dev/null
xl list | mark list-first
said path pod --mount type=bind,src=/etc,dst=/host,options=rbind:ro /opt/root path /bin/true </dev/null
pod /opt/root stays /bin/sleep 3600 </dev/null >/run/stays.out 2>&1 & stays=$!
pod /opt/root ends /bin/sleep 3600 </dev/null >/run/ends.out 2>&1 & ends=$!
until_ok 600 runs stays || echo "@@ failed stays"
until_ok 600 runs ends || echo "@@ failed ends"
xl list | mark list-both
ls /var/lib/gputax/xen-images | mark images
said exec ctr task exec --exec-id e1 stays /bin/sh -c 'echo inside; ls /proc | grep -c "^[0-9]"; exit 5' </dev/null
said kill ctr task kill -s SIGKILL ends
wait $ends; echo "@@ ends-code $?"
said after ctr task exec --exec-id e2 stays /bin/echo goes on </dev/null
said state xen-cri --root /run/containerd/runc/default state stays
said stop ctr task kill -s SIGKILL stays
wait $stays; echo "@@ stays-code $?"
byte_digest /opt/gputax/libcuda.so.1 /opt/gputax/vector.ptx 2>&1 | mark direct
said digest pod /opt/root digest /bin/byte_digest /run/gputax/lib/libcuda.so.1 /vector.ptx </dev/null
said tasks ctr task ls
gone_all() { [ "$(xl list | wc -l)" = 2 ]; }
until_ok 60 gone_all
xl list | mark list
losetup -a | mark loops
ls -A /run/gputax/xen-cri/default | mark left
cat /run/stays.out /run/ends.out | mark output
grep -E "level=(error|fatal)" /run/containerd.log | tail -n 20 | mark log
"""
)
