"""`bare` and `bare+proxy`: the worker is a local process, with the driver or with libvgpu and a GPU proxy."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from gputax.environments.driver import LIBVGPU, driver_library, library_variables, native_part
from gputax.environments.environment import Described, Evidence
from gputax.environments.process import ChildProcess, start_local_worker
from gputax.environments.proxy import (
    SOCKET_VARIABLE,
    Intended,
    ProxyAddress,
    ProxyOptions,
    own_proxy,
    proxy_evidence,
    running_proxy,
    spin_of,
    transport_of,
)
from gputax.errors import GputaxError, UsageError
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
        if not self._driver.needed:
            yield dict(os.environ)
            return
        library = driver_library(self._driver)
        self.note, self._library = library.note, str(library.path)
        if library.is_system:
            yield dict(os.environ)
            return
        with library_variables(library.path, os.environ) as variables:
            yield variables

    def evidence(self, described: Described) -> Evidence:
        """Show that no container is involved and that the worker loaded the intended driver, not a proxy's."""
        driver = described.driver or {}
        reasons = []
        if self._library and driver and driver.get("library") != self._library:
            reasons.append(f"the worker loaded {driver.get('library') or 'no driver'}, not {self._library}")
        if driver.get("vgpu") is not None and not self._driver.libcuda:
            reasons.append("the worker's calls went through a GPU proxy: check LD_LIBRARY_PATH")
        facts = {
            "pid": described.pid,
            "container_hints": described.host.get("container_hints"),
            "cgroup": described.cgroup,
            **({"library": driver.get("library")} if driver.get("library") else {}),
        }
        return Evidence.of("none", reasons, facts)


class BareProxy:
    """Starts a proxy and a worker that uses it; both end together."""

    name = "bare+proxy"

    def __init__(self, driver: DriverChoice | None = None) -> None:
        self._driver = driver or DriverChoice()
        self._address: ProxyAddress | None = None
        self._intended = Intended("", "")
        self.note = ""

    def start(self) -> ChildProcess:
        """Start a proxy, unless a running one is given, and a worker that loads libvgpu as its driver."""
        return start_local_worker(self.surroundings())

    @contextmanager
    def surroundings(self) -> Iterator[dict[str, str]]:
        """Yield the environment variables with which a local program uses the proxy."""
        libvgpu = native_part(LIBVGPU).resolve()
        with ExitStack() as stack:
            address = running_proxy(os.environ)
            backend = ""
            if address is None:
                library = driver_library(self._driver)
                self.note, backend = library.note, str(library.path)
                options = ProxyOptions(library.path, spin=spin_of(os.environ))
                address = stack.enter_context(own_proxy(options, os.environ))
            elif self._driver.libcuda:
                raise UsageError(
                    f"--libcuda sets the backend of a new proxy, but {SOCKET_VARIABLE} selects a running one",
                    next_step=f"unset {SOCKET_VARIABLE}, or start that proxy with --backend",
                )
            self._address = address
            self._intended = Intended(str(libvgpu), transport_of(os.environ), backend)
            variables = stack.enter_context(library_variables(libvgpu, os.environ))
            yield {**variables, SOCKET_VARIABLE: str(address.socket)}

    def evidence(self, described: Described) -> Evidence:
        """Compare the worker's report on its driver with the proxy's status."""
        if self._address is None:
            return Evidence.of(PROXY, ["no proxy was started"])
        try:
            status = self._address.status()
        except GputaxError as error:
            return Evidence.of(PROXY, [error.what])
        return proxy_evidence(described.driver or {}, status, self._intended)
