"""`bare+proxy`: a local worker whose driver is libvgpu; only the GPU proxy uses the device."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from gputax.environments.described import Described
from gputax.environments.driver import driver_library, library_variables
from gputax.environments.evidence import Evidence
from gputax.environments.native_parts import LIBVGPU, native_part
from gputax.environments.process import ChildProcess, start_local_worker
from gputax.environments.proxy.evidence import Intended, proxy_evidence
from gputax.environments.proxy.server import (
    SOCKET_VARIABLE,
    ProxyAddress,
    ProxyOptions,
    own_proxy,
    running_proxy,
    spin_of,
    transport_of,
)
from gputax.errors import GputaxError, UsageError
from gputax.plan.driver import DriverChoice
from gputax.plan.environment import PROXY


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
