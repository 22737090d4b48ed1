"""The probes find what is there and nothing else, tried on real processes, real memory and the software device."""

from __future__ import annotations

import json
import subprocess
import sys

from gputax.environments.driver import SOFTWARE_DEVICE, native_part
from gputax.worker.isolation import HostWalls

SECRET = b"0123456789abcdef0123456789abcdef"
OTHER = """
import json, sys
from gputax.worker.isolation import HostWalls
walls = HostWalls()
print(json.dumps(walls.hold(bytes.fromhex(sys.argv[1]))), flush=True)
sys.stdin.read()
"""


def attempts(answer: dict[str, object]) -> dict[str, bool]:
    return {each["way"]: each["found"] for each in answer["attempts"]}  # type: ignore[attr-defined]


def test_another_process_of_the_same_user_is_readable_where_linux_allows_debugging() -> None:
    other = subprocess.Popen(
        [sys.executable, "-c", OTHER, SECRET.hex()], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert other.stdout is not None
        place = json.loads(other.stdout.readline())
        assert place["pid"] == other.pid
        answer = HostWalls().read(SECRET, place)
        found = attempts(answer)
        assert found["memory freshly allocated"] is False
        refused = [each for each in answer["attempts"] if each["outcome"].startswith("refused")]
        assert len(refused) == 2 or found["the system call process_vm_readv"] is found["the file /proc/PID/mem"] is True
        # Another secret is not there: the search does not find what it wants to find.
        assert set(attempts(HostWalls().read(b"x" * 32, place)).values()) == {False}
    finally:
        other.communicate()
    gone = HostWalls().read(SECRET, place)
    assert set(attempts(gone).values()) == {False}


def test_a_child_takes_memory_step_by_step_until_it_has_all_that_was_asked_for() -> None:
    answer = HostWalls().fill(12 << 20)
    assert answer["taken_bytes"] == 12 << 20
    assert answer["out_of_memory"] is False, "nothing refused it"


def test_a_child_that_is_refused_memory_tells_how_much_it_got() -> None:
    code = (
        "import json, resource; from gputax.worker.isolation import HostWalls;"
        "resource.setrlimit(resource.RLIMIT_AS, (256 << 20, 256 << 20)); print(json.dumps(HostWalls().fill(1 << 30)))"
    )
    answer = json.loads(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True).stdout)
    assert answer["out_of_memory"] is True
    assert 0 < answer["taken_bytes"] < 256 << 20


# In a process of its own: after the last probe its context is as broken as a context can be.
ON_THE_DEVICE = """
import ctypes, json, sys
ctypes.CDLL(sys.argv[1], mode=ctypes.RTLD_GLOBAL)
from gputax.worker.isolation import DriverWalls
secret = bytes.fromhex(sys.argv[2])
owner, other = DriverWalls(), DriverWalls()
taken = owner.fill(64 << 20)
owner.drop()
place = owner.hold(secret)
answer = {"taken": taken, "there": owner.check(secret), "inside": other.read(secret, place)}
place["address"] += 1 << 40
print(json.dumps({**answer, "outside": owner.read(secret, place)}))
"""


def test_the_probes_of_device_memory_see_an_open_door_and_a_closed_one() -> None:
    words = [sys.executable, "-c", ON_THE_DEVICE, str(native_part(SOFTWARE_DEVICE)), SECRET.hex()]
    answer = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
    assert answer["taken"]["taken_bytes"] >= 64 << 20
    assert answer["there"] == {"there": True}
    # Two walls of one process have one context: nothing stands between them, and the probes must see that.
    assert attempts(answer["inside"]) == {
        "memory freshly allocated": False,
        "a copy from the other's address": True,
        "a kernel that reads at the other's address": True,
    }
    _, copied, computed = answer["outside"]["attempts"]
    assert not copied["found"]
    assert "CUDA_ERROR_INVALID_VALUE" in copied["outcome"]
    assert not computed["found"]
    assert "CUDA_ERROR_ILLEGAL_ADDRESS" in computed["outcome"]
