"""The use of a program's processes, read from a /proc of the test's own."""

from __future__ import annotations

from pathlib import Path

from gputax.worker.probes.processes import ProgramTime, Use, program_facts, use_of


def process(root: Path, pid: int, threads: int = 1, children: str = "", cpu_ns: int = 1000) -> None:
    for number in range(threads):
        task = root / f"proc/{pid}/task/{pid + number}"
        task.mkdir(parents=True, exist_ok=True)
        (task / "schedstat").write_text(f"{cpu_ns} 30 4\n")
        (task / "children").write_text(children if not number else "")
        (task / "status").write_text("Name:\tx\nvoluntary_ctxt_switches:\t5\nnonvoluntary_ctxt_switches:\t2\n")


def test_threads_and_descendants_count(tmp_path: Path) -> None:
    process(tmp_path, 10, threads=2, children="20 ")
    process(tmp_path, 20, children="30 40")
    process(tmp_path, 30)
    assert use_of([10], tmp_path) == Use(4000, 120, 20, 8)
    assert use_of([99], tmp_path) == Use(), "one that has ended"


def test_a_kernel_that_counts_less_gives_what_it_has(tmp_path: Path) -> None:
    process(tmp_path, 10)
    (tmp_path / "proc/10/task/10/schedstat").unlink()
    (tmp_path / "proc/10/task/10/children").unlink()
    assert use_of([10], tmp_path) == Use(0, 0, 5, 2)


def test_a_block_has_the_difference_and_is_never_negative(tmp_path: Path) -> None:
    group = tmp_path / "sys/fs/cgroup"
    group.mkdir(parents=True)
    (group / "cgroup.controllers").write_text("cpu")
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("0::/\n")
    (tmp_path / "proc/self/mountinfo").write_text("30 23 0:26 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw\n")
    (group / "cpu.stat").write_text("usage_usec 5\nthrottled_usec 100\n")
    uses = iter([Use(100, 7, 3, 9), Use(350, 7, 5, 1)])
    time = ProgramTime(lambda: next(uses), tmp_path)
    with time:
        (group / "cpu.stat").write_text("usage_usec 9\nthrottled_usec 160\n")
    assert time.cpu_ns == 250
    assert time.run_wait_ns is None
    assert time.counters["voluntary_switches"] == 2
    assert time.counters["involuntary_switches"] == 0
    assert time.counters["throttled_us"] == 60


def test_what_a_program_has_loaded_and_opened(tmp_path: Path) -> None:
    process(tmp_path, 10)
    (tmp_path / "proc/10/maps").write_text(
        "00-10 r-xp 0 00:01 5    /lib/libcuda.so.1 (deleted)\n10-20 rw-p 0 0:0 0 \n20-30 rw-p 0 0:0 0    [heap]\n"
    )
    (tmp_path / "proc/10/fd").mkdir()
    (tmp_path / "proc/10/fd/3").symlink_to("/dev/nvidia0")
    assert program_facts([10], tmp_path) == {
        "pids": [10], "libraries": ["/lib/libcuda.so.1"], "device_nodes": ["/dev/nvidia0"],
    }  # fmt: skip
