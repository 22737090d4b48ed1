"""The pure parts of xen-cri: runc's command line, guests and requests from a configuration, refusals, states."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from xen_cri import image, runtime, spec, store, words
from xen_cri.errors import Refused
from xen_cri.spec import Settings
from xen_cri.store import Known, Store

LINE = (
    "--root /run/containerd/runc/k8s.io --log /b/log.json --log-format json --systemd-cgroup "
    "create --bundle /b --pid-file /b/init.pid --console-socket /tmp/pty.sock first"
)


def config(**changes: Any) -> dict[str, Any]:
    made: dict[str, Any] = {
        "ociVersion": "1.0.2",
        "root": {"path": "rootfs"},
        "process": {"args": ["/bin/x", "one two"], "env": ["A=b"], "cwd": "/work", "user": {"uid": 5, "gid": 6}},
        "mounts": [{"destination": "/proc", "type": "proc", "source": "proc"}],
    }
    return {**made, **changes}


def pod(kind: str, **notes: str) -> dict[str, Any]:
    named = {f"{spec.CRI}{name.replace('_', '-')}": value for name, value in notes.items()}
    return config(annotations={f"{spec.CRI}container-type": kind, **named})


def items(request: bytes) -> list[str]:
    assert request.endswith(b"\0")
    return request[:-1].decode().split("\0")


def test_the_words_of_containerds_shim_are_read() -> None:
    asked = words.parse(LINE.split())
    assert (asked.verb, asked.arguments) == ("create", ("first",))
    assert asked.globals["root"] == "/run/containerd/runc/k8s.io"
    assert asked.options == {"bundle": "/b", "pid-file": "/b/init.pid", "console-socket": "/tmp/pty.sock"}
    assert words.parse(["kill", "--all", "first", "9"]).arguments == ("first", "9")
    assert words.parse(["delete", "--force", "first"]).options == {"force": "true"}
    assert words.parse(["exec", "-d", "--process=/p", "first"]).options == {"detach": "true", "process": "/p"}
    assert words.parse(["--version"]).verb == "version"


@pytest.mark.parametrize(
    "line", ["checkpoint x", "create --bundle", "create", "start --detach x", "--unknown state x", "state"]
)
def test_other_words_are_refused(line: str) -> None:
    with pytest.raises(Refused):
        words.parse(line.split())


def test_a_request_says_all_of_the_process() -> None:
    asked = config(hostname="pod", root={"path": "rootfs", "readonly": True})
    asked["process"] |= {"noNewPrivileges": True, "terminal": True, "user": {"uid": 5, "gid": 6, "additionalGids": [7]}}
    found = items(spec.container(asked, "first", "xvda", proxy=False))
    about = ["cfirst", "r/dev/xvda", "hpod", "o"]
    assert found == [*about, "a/bin/x", "aone two", "eA=b", "d/work", "u5", "g6", "G7", "n", "t"]
    assert items(spec.joined(asked["process"], "first", proxy=False))[:2] == ["xfirst", "a/bin/x"]
    assert items(spec.hold()) == ["s"]


def test_a_proxy_is_told_unless_the_pod_says_otherwise() -> None:
    asked = config()
    asked["process"]["env"] = ["GPUTAX_PROXY_TRANSPORT=mine"]
    found = items(spec.container(asked, "first", "xvda", proxy=True))
    assert f"eGPUTAX_PROXY_SOCKET={spec.PROXY_SOCKET}" in found
    assert [each for each in found if "TRANSPORT" in each] == ["eGPUTAX_PROXY_TRANSPORT=mine"]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"mounts": [{"destination": "/host", "type": "bind", "source": "/etc"}]}, "no path of the host"),
        ({"mounts": [{"destination": "/host", "source": "/etc"}]}, "no path of the host"),
        ({"linux": {"devices": [{"path": "/dev/nvidia0"}]}}, "/dev/nvidia0"),
        ({"hooks": {"prestart": [{"path": "/x"}]}}, "hooks"),
    ],
)
def test_what_a_guest_cannot_have_is_refused(changes: dict[str, Any], why: str) -> None:
    with pytest.raises(Refused, match=why):
        spec.check(config(**changes), "first")


@pytest.mark.parametrize("name", ["", "../up", ".hidden", "a/b", "x" * 101, 'a"\nkernel = "/x'])
def test_an_id_that_could_be_anything_else_is_refused(name: str) -> None:
    with pytest.raises(Refused, match="not a container id"):
        spec.check(config(), name)


def test_a_plain_container_is_allowed() -> None:
    shm = {"destination": "/dev/shm", "type": "bind", "source": "/run/x/shm"}
    spec.check(config(mounts=[shm], hooks={}), "first")


def test_requests_are_bounded_and_have_no_zero_bytes() -> None:
    asked = config()
    asked["process"]["args"] = ["x\0aevil"]
    with pytest.raises(Refused, match="zero byte"):
        spec.container(asked, "first", "xvda", proxy=False)
    asked["process"]["args"] = ["x" * spec.REQUEST_BYTES]
    with pytest.raises(Refused, match="of at most"):
        spec.container(asked, "first", "xvda", proxy=False)
    asked["process"]["args"] = []
    with pytest.raises(Refused, match="no arguments"):
        spec.container(asked, "first", "xvda", proxy=False)


def test_kinds_sandboxes_and_pods_come_from_the_annotations() -> None:
    assert spec.kind_of(config()) == spec.STANDALONE
    assert spec.kind_of(pod("sandbox")) == spec.SANDBOX
    assert spec.sandbox_of(pod("container", sandbox_id="abc")) == "abc"
    assert spec.pod_of(pod("sandbox", sandbox_uid="uid-1"), "first") == "uid-1"
    assert spec.pod_of(config(), "first") == "first"
    for wrong in (pod("container"), pod("container", sandbox_id="../x")):
        with pytest.raises(Refused, match="sandbox"):
            spec.sandbox_of(wrong)
    with pytest.raises(Refused, match="unknown container type"):
        spec.kind_of(pod("vm"))


@pytest.mark.parametrize(
    ("asked", "limits"),
    [
        (config(), (256, 1)),
        (config(linux={"resources": {"memory": {"limit": 100 * spec.MIB + 1}}}), (101 + 96, 1)),
        (config(linux={"resources": {"cpu": {"quota": 150_000, "period": 100_000}}}), (256, 2)),
        (config(linux={"resources": {"cpu": {"quota": -1, "period": 100_000}}}), (256, 1)),
        (config(linux={"resources": {"cpu": {"quota": 10**9, "period": 100_000}}}), (256, 64)),
        (pod("sandbox", sandbox_memory=str(64 * spec.MIB), sandbox_cpu_quota="200000"), (64 + 96, 2)),
    ],
)
def test_a_guest_is_as_large_as_its_pod(asked: dict[str, Any], limits: tuple[int, int]) -> None:
    assert spec.limits(asked, Settings()) == limits


def test_limits_that_are_no_numbers_are_refused() -> None:
    with pytest.raises(Refused, match="not a number"):
        spec.limits(pod("sandbox", sandbox_memory="much"), Settings())


def test_a_guests_file_has_its_disk_and_ends_with_the_guest() -> None:
    text = spec.guest(config(), spec.guest_name("default", "first"), Path("/i.erofs"), Settings())
    assert "'format=raw,vdev=xvda,access=ro,script=/opt/gputax/block-image,target=/i.erofs'" in text
    assert 'type = "pv"' in text
    assert text.count('"destroy"') == 3
    assert "disk = []" in spec.guest(config(), "x", None, Settings())
    assert spec.guest_name("default", "first") != spec.guest_name("k8s.io", "first")
    assert [spec.device_name(number) for number in (0, 25)] == ["xvda", "xvdz"]
    with pytest.raises(Refused, match="26"):
        spec.device_name(26)


def test_states_follow_the_carrier_and_the_start() -> None:
    new = Known("first", spec.STANDALONE, "/b", "guest")
    assert new.status(lives=False) == "creating"
    carried = replace(new, pid=7, started=9)
    assert [carried.status(lives) for lives in (True, False)] == ["created", "stopped"]
    assert [replace(carried, released=True).status(lives) for lives in (True, False)] == ["running", "stopped"]


def test_a_pid_that_another_process_has_is_not_the_carrier(tmp_path: Path) -> None:
    after_name = " ".join(["S", *(str(number) for number in range(4, 40))])
    (tmp_path / "7").mkdir()
    (tmp_path / "7/stat").write_text(f"7 (odd ) name) {after_name}\n")
    assert store.ticks(7, tmp_path) == 22
    (tmp_path / "7/stat").write_text(f"7 (x) Z{after_name[1:]}\n")
    assert store.ticks(7, tmp_path) == 0
    assert store.ticks(8, tmp_path) == 0
    assert not Known("first", spec.STANDALONE, "/b", "guest", pid=1, started=1 << 60).lives()


def test_what_is_known_outlives_the_process(tmp_path: Path) -> None:
    known = Known("first", spec.SANDBOX, "/b", "guest", pid=7, started=9, device="xvda")
    Store("default", tmp_path).write(known)
    again = Store("default", tmp_path)
    assert again.read("first") == known
    assert again.release(known).released
    assert again.read("first").released
    again.write(Known("second", spec.CONTAINER, "/c", "guest", device="xvdb"))
    again.write(Known("third", spec.SANDBOX, "/d", "other"))
    assert [each.id for each in again.in_guest("guest")] == ["first", "second"]
    again.forget("first")
    again.forget("first")
    with pytest.raises(Refused, match="does not exist"):
        again.read("first")
    with pytest.raises(Refused, match="does not exist"):
        Store("k8s.io", tmp_path).read("second")


def test_an_image_is_known_by_all_that_a_container_sees(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/x").write_bytes(b"1")
    first = image.digest(tmp_path)
    assert image.digest(tmp_path) == first
    (tmp_path / "bin/x").write_bytes(b"2")
    second = image.digest(tmp_path)
    (tmp_path / "bin/x").chmod(0o755)
    third = image.digest(tmp_path)
    (tmp_path / "link").symlink_to("bin/x")
    assert len({first, second, third, image.digest(tmp_path)}) == 4


@pytest.mark.parametrize(("text", "number"), [("9", 9), ("KILL", 9), ("SIGTERM", 15), ("term", 15)])
def test_signals_have_names_and_numbers(text: str, number: int) -> None:
    assert runtime.signal_number(text) == number


def test_an_unknown_signal_is_refused() -> None:
    with pytest.raises(Refused, match="unknown signal"):
        runtime.signal_number("NOPE")


def test_errors_go_to_stderr_and_to_containerds_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "log.json"
    assert runtime.main(["--root", str(tmp_path / "none"), "--log", str(log), "state", "no-such-container"]) == 1
    assert "does not exist" in capsys.readouterr().err
    assert json.loads(log.read_text())["msg"] == "container no-such-container does not exist"


def test_settings_of_a_node_replace_the_defaults(tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    assert runtime.read_settings(path) == Settings()
    path.write_text('{"type": "pvh", "memory_mib": 512}')
    assert runtime.read_settings(path) == Settings(type="pvh", memory_mib=512)
    path.write_text('{"memory": 512}')
    with pytest.raises(Refused, match="memory"):
        runtime.read_settings(path)
