"""How many CPUs a place gets where nobody says so: as many as a bare worker here uses, so that threads are equal."""

from __future__ import annotations

from gputax.worker.probes.cpu_allowance import cpu_allowance


def local_cpus() -> int:
    """Return the threads of a bare worker of this machine."""
    return cpu_allowance().threads
