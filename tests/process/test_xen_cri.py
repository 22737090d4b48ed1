"""xen-cri as a process, with stand-ins for xl and for the carrier: lives of containers, pods, and what is left."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

NODE = Path(__file__).parents[2] / "node"
# A domain is a file with its number. `xl create` fails, or never ends, when a test asks for it.
XL = """#!/bin/sh
echo "$*" >> "$FAKE/xl.log"
case $1 in
create) [ -e "$FAKE/broken" ] && { echo "no memory" >&2; exit 1; }
  name=$(sed -n 's/^name = "\\(.*\\)"/\\1/p' "$3"); echo $$ > "$FAKE/domain-$name";;
domid) cat "$FAKE/domain-$2" 2>/dev/null;;
destroy) rm "$FAKE/domain-$2";;
esac
"""
# The carrier runs the request's words here: host DOMAIN --request FILE [--wait FIFO]
SESSION = """#!/bin/sh
[ "$5" = --wait ] && : < "$6"
grep -zqx s "$4" && exec sleep 1000
exec sh -c "$(grep -z '^a' "$4" | tail -z -n 1 | tr -d '\\0' | cut -c 2-)"
"""
DRIVER = """import sys; from pathlib import Path; from xen_cri import runtime
runtime.SETTINGS = Path(sys.argv[1]); sys.exit(runtime.main(sys.argv[2:]))"""


class Node:
    """A node with stand-ins in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name, text in (("xl", XL), ("xen-session", SESSION), ("mkfs.erofs", '#!/bin/sh\necho x > "$1"\n')):
            (folder / name).write_text(text)
            (folder / name).chmod(stat.S_IRWXU)
        settings = {"state": str(folder / "state"), "images": str(folder / "images"), "proxy_socket": "/none"}
        (folder / "settings.json").write_text(json.dumps(settings))

    def call(self, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "PATH": f"{self.folder}:{os.environ['PATH']}", "FAKE": str(self.folder)}
        # Carriers keep what they inherit, so it is files: a pipe would stay open.
        with (self.folder / "out").open("a") as out, (self.folder / "errors").open("w+") as errors:
            done = subprocess.run(
                [sys.executable, "-S", "-c", DRIVER, str(self.folder / "settings.json"), *words],
                env={**environment, "PYTHONPATH": str(NODE)}, stdout=subprocess.PIPE if words[0] == "state" else out,
                stderr=errors, stdin=subprocess.DEVNULL, text=True, timeout=60, check=False,
            )  # fmt: skip
        done.stderr = (self.folder / "errors").read_text()
        assert not check or done.returncode == 0, done.stderr
        return done

    def bundle(self, name: str, command: str, **annotations: str) -> str:
        (self.folder / name / "rootfs").mkdir(parents=True)
        notes = {f"io.kubernetes.cri.{key.replace('_', '-')}": value for key, value in annotations.items()}
        config: dict[str, Any] = {"process": {"args": ["sh", "-c", command]}, "annotations": notes}
        (self.folder / name / "config.json").write_text(json.dumps({**config, "root": {"path": "rootfs"}}))
        return str(self.folder / name)

    def create(self, name: str, command: str, **annotations: str) -> None:
        self.call(
            "create", "--bundle", self.bundle(name, command, **annotations), "--pid-file", self.pid_file(name), name
        )

    def pid_file(self, name: str) -> str:
        return str(self.folder / f"{name}.pid")

    def status(self, name: str) -> str:
        return str(json.loads(self.call("state", name).stdout)["status"])

    def until(self, name: str, status: str) -> None:
        until = time.monotonic() + 30
        while self.status(name) != status:
            assert time.monotonic() < until, f"{name} is {self.status(name)}"
            time.sleep(0.05)

    def domains(self) -> list[str]:
        return sorted(path.name.split("-")[2] for path in self.folder.glob("domain-*"))


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_a_container_is_created_started_killed_and_deleted(node: Node) -> None:
    node.create("first", "echo started; exec sleep 1000")
    assert node.status("first") == "created"
    assert "started" not in (node.folder / "out").read_text()
    pid = int(Path(node.pid_file("first")).read_text())
    assert json.loads(node.call("state", "first").stdout)["pid"] == pid
    node.call("start", "first")
    node.until("first", "running")
    assert "not stopped" in node.call("delete", "first", check=False).stderr
    assert node.domains() == ["first"]
    node.call("kill", "first", "KILL")
    node.until("first", "stopped")
    node.call("delete", "first")
    assert node.domains() == []
    assert list((node.folder / "state").glob("*/*")) == []
    assert "does not exist" in node.call("state", "first", check=False).stderr


def test_a_program_that_ends_by_itself_stops_its_container(node: Node) -> None:
    node.create("first", "exit 3")
    node.call("start", "first")
    node.until("first", "stopped")
    assert "cannot start" in node.call("start", "first", check=False).stderr
    assert "already finished" in node.call("kill", "first", "9", check=False).stderr
    node.call("kill", "--all", "first", "9")
    node.call("delete", "first")


def test_containers_of_a_pod_share_the_guest_of_their_sandbox(node: Node) -> None:
    node.create("box", "ignored", container_type="sandbox")
    node.create("one", "exec sleep 1000", container_type="container", sandbox_id="box")
    node.create("two", "exec sleep 1000", container_type="container", sandbox_id="box")
    assert node.domains() == ["box"]
    attached = [line for line in (node.folder / "xl.log").read_text().splitlines() if line.startswith("block-attach")]
    assert ["vdev=xvdb" in attached[0], "vdev=xvdc" in attached[1]] == [True, True]
    assert len(list((node.folder / "images").iterdir())) == 1
    node.call("delete", "--force", "one")
    assert node.domains() == ["box"]
    node.call("kill", "box", "KILL")
    assert node.domains() == []
    for name in ("two", "box", "box"):
        node.call("delete", "--force", name)
    assert list((node.folder / "state").glob("*/*")) == []


def test_a_guest_that_cannot_be_made_leaves_nothing(node: Node) -> None:
    (node.folder / "broken").touch()
    done = node.call("create", "--bundle", node.bundle("first", "true"), "first", check=False)
    assert done.returncode == 1
    assert "no memory" in done.stderr
    assert list((node.folder / "state").glob("*/*")) == []
    (node.folder / "broken").unlink()
    node.call("create", "--bundle", str(node.folder / "first"), "first")
    assert "exists already" in node.call("create", "--bundle", str(node.folder / "first"), "first", check=False).stderr
    assert node.domains() == ["first"], "a second create does not touch the first"
    node.call("delete", "--force", "first")


def test_a_further_process_needs_a_running_container(node: Node) -> None:
    node.create("first", "exec sleep 1000")
    (node.folder / "process.json").write_text(json.dumps({"args": ["sh", "-c", "exit 5"]}))
    words = ("exec", "--process", str(node.folder / "process.json"))
    assert "cannot run" in node.call(*words, "first", check=False).stderr
    node.call("start", "first")
    assert node.call(*words, "first", check=False).returncode == 5
    node.call(*words, "--detach", "--pid-file", node.pid_file("e"), "first")
    assert Path(node.pid_file("e")).read_text().isdigit()
    node.call("delete", "--force", "first")
    assert node.domains() == []
