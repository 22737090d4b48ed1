"""Check the host's CPUs, clocks, background load, memory and disk."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from gputax.doctor.finding import Disk, Finding
from gputax.worker.probes.disturbance import Limits
from gputax.worker.probes.facts import Look

# A ResNet-50 quick run stays below 1.5 GB; BERT-Large's weights are 1.3 GB and in memory twice while they load.
SMALL_RUN_MB, LARGE_RUN_MB = 1500, 4000
# Model files: ResNet-50 0.1 GB, YOLOS-small 0.1 GB, BERT-Large 1.4 GB.
SMALL_MODELS_MB, LARGE_MODELS_MB = 300, 1400
# The same limits as for the warnings after a run.
LIMITS = Limits()


def check_cpu(facts: Mapping[str, Any]) -> list[Finding]:
    """Check how many CPUs are usable, and whether a quota will affect latencies."""
    allowance = facts.get("cpu_allowance") or {}
    cpus, quota = len(allowance.get("affinity") or ()), allowance.get("quota_cpus")
    threads = allowance.get("threads")
    if not cpus:
        return []
    if quota is None or quota >= cpus:
        return [Finding("ok", f"{cpus} CPU{'s' * (cpus > 1)} usable", f"{threads} threads, no quota below that")]
    source = allowance.get("quota_source")
    detail = f"{cpus} CPUs visible, {threads} thread{'s' * (threads != 1)} used; set in {source}"
    if quota < 1:
        why = "Such a quota stops even a single thread in every period: it determines the tail latencies."
    elif quota != int(quota):
        why = f"The part above {threads} is not enough for a thread: it stays idle, or one more thread is throttled."
    else:
        why = "Libraries that count CPUs instead of reading the quota start too many threads and are throttled."
    return [Finding("warn", f"CPU quota of {quota:g} CPU{'s' * (quota != 1)}", detail, why, _quota_fix(facts, cpus))]


def check_governor(facts: Mapping[str, Any]) -> list[Finding]:
    """Check the CPU frequency governor; no finding if it cannot be read, as in most virtual machines."""
    governors = (facts.get("host") or {}).get("governors")
    if not governors:
        return []
    if set(governors) == {"performance"}:
        return [Finding("ok", "CPU governor performance")]
    why = "The clock follows the load, so sparse requests look slower than necessary and runs differ."
    fix = "sudo cpupower frequency-set --governor performance"
    return [Finding("warn", f"CPU governor {', '.join(governors)}", "", why, fix)]


def check_noise(facts: Mapping[str, Any]) -> list[Finding]:
    """Check what the worker saw while it was idle: CPU time that others used, steal, swapping."""
    if not facts.get("noise"):
        return []
    seen = Look.from_dict(facts["noise"])
    steal, others = seen.steal_percent, seen.others_percent_of_core
    observed = f"observed for {seen.seconds:g} s"
    findings = []
    if steal is not None and steal > LIMITS.steal_percent:
        why = "The hypervisor gives this CPU time to other guests; measurements wait in the meantime."
        findings.append(Finding("warn", f"{steal:.1f} % of the CPU time is stolen", observed, why, "vmstat 1 10"))
    if others is not None and others > LIMITS.others_percent_of_core:
        why = "Other processes take CPU time and cache from the measurement. Stop the busiest, or wait."
        named = [f"{each.name} (pid {each.pid}) {each.percent_of_core:.0f} %" for each in seen.busiest]
        detail = ", ".join((observed, *named))
        fix = "ps -eo pid,pcpu,comm --sort=-pcpu | head"
        findings.append(Finding("warn", f"Other processes use {others:.0f} % of a core", detail, why, fix))
    if seen.swapped_mb_per_s is not None and seen.swapped_mb_per_s > LIMITS.swapped_mb_per_s:
        why = "Memory is short: a measurement would wait for the disk."
        fix = "ps -eo pid,rss,comm --sort=-rss | head"
        findings.append(Finding("warn", f"The machine swaps {seen.swapped_mb_per_s:.0f} MB/s", observed, why, fix))
    if not findings and steal is not None and others is not None:
        findings.append(Finding("ok", "Quiet", f"steal {steal:.1f} %, other processes {others:.0f} % of a core"))
    return findings


def check_load(facts: Mapping[str, Any]) -> list[Finding]:
    """Check whether more threads are runnable than there are cores."""
    host = facts.get("host") or {}
    load, cores = host.get("load_1min"), host.get("cores_online")
    if load is None or not cores:
        return []
    if load <= cores:
        return [Finding("ok", f"Load {load:g} on {cores} cores")]
    why = "In the last minute more threads were runnable than there are cores; a run would have to wait for them."
    return [Finding("warn", f"Load {load:g} on {cores} cores", "", why, "ps -eo pid,pcpu,comm --sort=-pcpu | head")]


def check_memory(facts: Mapping[str, Any]) -> list[Finding]:
    """Check that the workloads fit into memory."""
    host = facts.get("host") or {}
    known = [host[key] for key in ("memory_available_mb", "memory_limit_mb") if host.get(key) is not None]
    if not known:
        return []
    usable_mb = min(known)
    title = f"{usable_mb / 1024:.1f} GB of memory usable"
    fix = "ps -eo pid,rss,comm --sort=-rss | head"
    if host.get("memory_limit_mb") == usable_mb:
        fix = "docker update --memory 4g --memory-swap 4g CONTAINER"
    if usable_mb < SMALL_RUN_MB:
        return [Finding("fail", title, "", "Even a ResNet-50 run needs 1.5 GB; the kernel would kill it.", fix)]
    if usable_mb < LARGE_RUN_MB:
        why = "BERT-Large needs about 4 GB while it loads; ResNet-50 and YOLOS-small fit."
        return [Finding("warn", title, "", why, fix)]
    return [Finding("ok", title)]


def check_disk(disk: Disk) -> list[Finding]:
    """Check that there is space for model files and that results can be written."""
    findings = []
    free_mb = disk.models_free_mb
    if free_mb is not None:
        title, fix = f"{free_mb / 1024:.1f} GB free for models", "export GPUTAX_MODELS=/path/with/free/space"
        if free_mb < SMALL_MODELS_MB:
            why = "ResNet-50 and YOLOS-small need 0.1 GB each, BERT-Large 1.4 GB."
            findings.append(Finding("fail", title, disk.models_dir, why, fix))
        elif free_mb < LARGE_MODELS_MB:
            why = "BERT-Large needs 1.4 GB; ResNet-50 and YOLOS-small fit."
            findings.append(Finding("warn", title, disk.models_dir, why, fix))
        else:
            findings.append(Finding("ok", title, disk.models_dir))
    if disk.results_problem:
        why = "Each cell is written when it ends; without a writable directory the run would be lost."
        place = shlex.quote(disk.results_dir)
        fix = f'sudo mkdir -p {place} && sudo chown "$USER" {place}'
        title = "The results directory is not writable"
        findings.append(Finding("fail", title, f"{disk.results_dir}: {disk.results_problem}", why, fix))
    else:
        findings.append(Finding("ok", "The results directory is writable", disk.results_dir))
    return findings


def _quota_fix(facts: Mapping[str, Any], cpus: int) -> str:
    hints = (facts.get("host") or {}).get("container_hints") or {}
    source = str((facts.get("cpu_allowance") or {}).get("quota_source") or "")
    if hints.get("kubernetes"):
        return f"kubectl set resources deployment NAME --limits=cpu={cpus} --requests=cpu={cpus}"
    if hints.get("docker"):
        return f"docker update --cpus {cpus} CONTAINER"
    return f"echo {'max' if source.endswith('cpu.max') else -1} | sudo tee {source}"
