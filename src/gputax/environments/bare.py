"""`bare` and `bare+proxy`: the worker is a local process, with the driver or with libvgpu and a GPU proxy."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from gputax.environments.driver import driver_library, is_native_part, library_variables, refuse_without_runtime
from gputax.environments.environment import Described, Evidence
from gputax.environments.process import ChildProcess, start_local_worker
from gputax.environments.proxy import SOCKET_VARIABLE, UsedProxy, used_proxy
from gputax.errors import UsageError
from gputax.plan.driver import DriverChoice
from gputax.plan.environment import PROXY


class Bare:
    """Starts the worker with the coordinator's own Python interpreter."""

    name = "bare"

    def __init__(self, driver: DriverChoice | None = None) -> None:
        self._driver = driver or DriverChoice(needed=False)
        self._library = ""
        self.note = ""

    def start(self) -> ChildProcess:
        """Start a worker as a child of this process."""
        return start_local_worker(self.surroundings())

    @contextmanager
    def surroundings(self) -> Iterator[dict[str, str]]:
        """Yield the environment variables with which a local program loads the requested driver."""
        if not self._driver.needed or self._finds_its_own:
            yield dict(os.environ)
            return
        library = driver_library(self._driver)
        self.note, self._library = library.note, str(library.path)
        if is_native_part(library.path):
            refuse_without_runtime(self._driver, os.environ)
        if library.is_system:
            yield dict(os.environ)
            return
        with library_variables(library.path, os.environ) as variables:
            yield variables

    @property
    def _finds_its_own(self) -> bool:
        """Whether the system's driver is meant and the engine says what is missing: its packages, or the driver."""
        return self._driver.runtime and self._driver.device == "cuda" and not self._driver.libcuda

    def evidence(self, described: Described) -> Evidence:
        """Show that no container is involved and that the worker loaded the intended driver, not a proxy's."""
        driver = described.driver or {}
        reasons = []
        program = driver.get("program")
        if self._library and program is not None:
            if program.get("libraries") and self._library not in program["libraries"]:
                reasons.append(f"the program did not load {self._library}")
        elif self._library and driver and driver.get("library") != self._library:
            reasons.append(f"the worker loaded {driver.get('library') or 'no driver'}, not {self._library}")
        if driver.get("vgpu") is not None and not self._driver.libcuda:
            reasons.append("the worker's calls went through a GPU proxy: check LD_LIBRARY_PATH")
        facts = {
            "pid": described.pid,
            "container_hints": described.host.get("container_hints"),
            "cgroup": described.cgroup,
            **{name: driver[name] for name in ("library", "software", "cuda_runtime") if driver.get(name)},
        }
        return Evidence.of("none", reasons, facts)


class BareProxy:
    """Starts a proxy and a worker that uses it; both end together."""

    name = "bare+proxy"

    def __init__(self, driver: DriverChoice | None = None, *, same_pid_namespace: bool = True) -> None:
        self._driver = driver or DriverChoice()
        self._same_pid_namespace = same_pid_namespace
        self._proxy: UsedProxy | None = None
        self.note = ""

    def start(self) -> ChildProcess:
        """Start a proxy, unless a running one is given, and a worker that loads libvgpu as its driver."""
        return start_local_worker(self.surroundings())

    @contextmanager
    def surroundings(self) -> Iterator[dict[str, str]]:
        """Yield the environment variables with which a local program uses the proxy."""
        if self._driver.libcuda and os.environ.get(SOCKET_VARIABLE):
            raise UsageError(
                f"--libcuda sets the backend of a new proxy, but {SOCKET_VARIABLE} selects a running one",
                next_step=f"unset {SOCKET_VARIABLE}, or start that proxy with --backend",
            )
        with (
            used_proxy(self._driver, same_pid_namespace=self._same_pid_namespace) as proxy,
            proxy.surroundings() as variables,
        ):
            self._proxy, self.note = proxy, proxy.note
            yield variables

    def evidence(self, described: Described) -> Evidence:
        """Compare the worker's report on its driver with the proxy's status."""
        return Evidence.of(PROXY, ["no proxy was started"]) if self._proxy is None else self._proxy.evidence(described)
