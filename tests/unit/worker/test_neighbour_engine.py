"""Each kind of neighbour really takes what its name says, and gives everything back."""

from __future__ import annotations

import contextlib
import ctypes
import resource
import threading
from pathlib import Path
from typing import Any

import pytest

from gputax.environments.driver import SOFTWARE_DEVICE, native_part
from gputax.errors import UsageError
from gputax.plan.engines import parse_engine
from gputax.worker.engines import load_engine
from gputax.worker.engines.engine import Engine, EngineRequest
from gputax.worker.engines.neighbour import LEAST_STREAM_BYTES, MOST_STREAM_BYTES, crashing, stream_bytes


def neighbour(kind: str, device: str = "cpu", threads: int = 2, **changes: Any) -> Engine:
    options = parse_engine(f"neighbour:kind={kind}").options
    workload = str(changes.get("workload", f"neighbour:{kind}"))
    return load_engine("neighbour", EngineRequest(workload, options, device, "fp32", threads, 1))


def open_files() -> set[tuple[str, str]]:
    """Return each descriptor with what it leads to; not that of this look, which is closed by then."""
    found = set()
    for descriptor in list(Path("/proc/self/fd").iterdir()):
        with contextlib.suppress(FileNotFoundError):
            found.add((descriptor.name, str(descriptor.readlink())))
    return found


@pytest.mark.parametrize("kind", ["compute", "memory", "copies", "launches"])
def test_it_works_with_its_threads_and_leaves_none_of_them(kind: str) -> None:
    threads, files = set(threading.enumerate()), open_files()
    engine = neighbour(kind)
    facts = engine.facts()
    assert (facts["engine"], engine.device, facts["threads"]) == ("neighbour", "cpu", 2)
    before = resource.getrusage(resource.RUSAGE_SELF)
    engine.run(0, 2)
    after = resource.getrusage(resource.RUSAGE_SELF)
    if kind == "launches":
        assert after.ru_nvcsw - before.ru_nvcsw > 100, "every task waits for its turn in another thread"
    else:
        assert after.ru_utime + after.ru_stime > before.ru_utime + before.ru_stime
    engine.close()
    # New ones only: what others in this process had before may end in between.
    assert set(threading.enumerate()) - threads == set()
    assert open_files() - files == set()


@pytest.mark.parametrize("kind", ["compute", "memory", "copies", "launches"])
def test_the_same_kinds_exist_behind_the_driver_and_give_their_memory_back(kind: str) -> None:
    ctypes.CDLL(str(native_part(SOFTWARE_DEVICE)), mode=ctypes.RTLD_GLOBAL)
    from gputax.worker.engines.driver_context import DriverContext

    context = DriverContext()
    before, _ = context.call("cuMemGetInfo")
    engine = neighbour(kind, "software")
    assert engine.device == "software"
    during, _ = context.call("cuMemGetInfo")
    assert int(during) < int(before)
    engine.run(0, 1)
    engine.close()
    after, _ = context.call("cuMemGetInfo")
    assert int(after) == int(before)
    context.close()


def test_it_passes_for_no_workload() -> None:
    with pytest.raises(UsageError, match="cannot run resnet50"):
        neighbour("compute", workload="resnet50")


@pytest.mark.parametrize(
    ("size", "expected"), [("4096K", LEAST_STREAM_BYTES), ("32M", 128 << 20), ("1G", MOST_STREAM_BYTES), ("", None)]
)
def test_it_streams_over_more_than_the_largest_cache(tmp_path: Path, size: str, expected: int | None) -> None:
    for index, text in enumerate(("32K", size)):
        folder = tmp_path / f"sys/devices/system/cpu/cpu0/cache/index{index}"
        folder.mkdir(parents=True)
        (folder / "size").write_text(text + "\n")
    assert stream_bytes(tmp_path) == (expected or LEAST_STREAM_BYTES)


def test_a_crash_comes_in_its_time_and_not_before() -> None:
    done: list[str] = []
    run = crashing(lambda: done.append("run"), 1, lambda: done.append("crash"))
    run()
    run()
    assert done == ["run", "crash", "run"]
    never = crashing(lambda: None, 0, lambda: pytest.fail("no time was given for a crash"))
    never()
    never()
