"""Before the first measurement: look at the machine, and wait until it is quiet if the user asks for it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from gputax.environments.connection import WorkerConnection
from gputax.errors import PreflightError
from gputax.places import Places, environment_named
from gputax.plan.driver import DriverChoice
from gputax.plan.environment import BARE, CONTAINER, EnvironmentName
from gputax.plan.options import EnvironmentOptions
from gputax.text import duration
from gputax.worker.probes.disturbance import CELL_LIMITS
from gputax.worker.probes.facts import LOOK_S, Look, look

Say = Callable[[str], None]
# A gap between two jobs of another user is not yet quiet.
QUIET_LOOKS = 3
BETWEEN_LOOKS_S = 4.0


def look_before(
    environments: Iterable[str], wait_s: float, say: Say, show: Say, options: EnvironmentOptions | None = None
) -> None:
    """Look at the machine of every environment; warn in one line, or wait until it is quiet.

    A machine that is reached by ssh or a cluster is asked only if the user waits: it takes a worker of its own there.
    """
    names = tuple(dict.fromkeys(environments))
    far = [name for name in names if not _is_here(name, options)]
    if len(far) < len(names):
        await_quiet(look, wait_s, say, show)
    for name in far:
        if wait_s:
            with _worker_there(name, options or EnvironmentOptions(), say) as look_there:
                await_quiet(look_there, wait_s, say, show, f"{name}: ")


def await_quiet(
    look_now: Callable[[], Look],
    wait_s: float,
    say: Say,
    show: Say,
    where: str = "",
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Return when nothing disturbs: at once, or after a few quiet looks in a row; without a wait, with a warning.

    Waiting does not change a governor: that is a warning either way.
    """
    seen = look_now()
    if wait_s and _passing(seen):
        deadline_s, quiet, last = clock() + wait_s, 0, _passing(seen)
        while quiet < QUIET_LOOKS:
            left_s = deadline_s - clock()
            if left_s <= 0.0:
                raise _not_quiet(last, wait_s, where)
            show(f"waiting for a quiet machine, {duration(left_s)} left: {where}{_passing(seen) or 'quiet so far'}")
            sleep(min(BETWEEN_LOOKS_S, left_s))
            seen = look_now()
            quiet, last = (0, _passing(seen)) if _passing(seen) else (quiet + 1, last)
    troubles = "; ".join(trouble.text for trouble in seen.troubles(CELL_LIMITS))
    if troubles:
        say(f"warning: {where}not quiet: {troubles}")


def _passing(seen: Look) -> str:
    return "; ".join(trouble.text for trouble in seen.troubles(CELL_LIMITS) if trouble.passes)


def _not_quiet(last: str, wait_s: float, where: str) -> PreflightError:
    return PreflightError(
        f"the machine was not quiet within {duration(wait_s)}: {last}",
        where=where.rstrip(": ") or "this machine",
        next_step="stop these processes (ps -eo pid,pcpu,comm --sort=-pcpu | head), or use --accept-disturbed",
    )


def _is_here(name: str, options: EnvironmentOptions | None) -> bool:
    return EnvironmentName.parse(name).place in (BARE, CONTAINER) or bool(options and options.inside)


@contextmanager
def _worker_there(name: str, options: EnvironmentOptions, say: Say) -> Iterator[Callable[[], Look]]:
    """Start a worker in the environment that looks for us."""
    driver = DriverChoice("auto", needed=False)
    with Places(options, say) as places, WorkerConnection(environment_named(name, driver, places)) as connection:
        yield lambda: Look.from_dict(connection.describe(listen_s=LOOK_S).to_dict()["noise"])
