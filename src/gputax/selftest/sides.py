"""Ask a worker in one environment: a group of questions, or a model's outputs; a worker that dies is an answer too."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gputax.environments.connection import WorkerConnection
from gputax.environments.environment import Described
from gputax.errors import GputaxError, PreflightError
from gputax.places import environment_named
from gputax.plan.driver import DriverChoice
from gputax.selftest.checks import Reply

STALL_S = 120.0
MODEL_STALL_S = 900.0
KEPT_EVIDENCE = (
    "layer",
    "active",
    "reasons",
    "library",
    "backend",
    "device",
    "transport",
    "calls_by_worker",
    "cuda_runtime",
)
Say = Callable[[str], None]


class Side:
    """One environment with its driver; every request has a worker, and with it a context, of its own."""

    def __init__(self, environment: str, driver: DriverChoice, say: Say) -> None:
        self.environment = environment
        self._driver = driver
        self._say = say

    def described(self) -> Described:
        """Return what a worker says of its machine; where none can be started there is nothing to compare."""
        with WorkerConnection(environment_named(self.environment, self._driver)) as connection:
            return connection.describe(with_engines=True)

    def asked(self, group: str, images: Mapping[str, str], **more: Any) -> Reply:
        """Ask a group of questions."""
        return self._reply(STALL_S, lambda answer: answer["rows"], group=group, images=dict(images), **more)

    def outputs(self, setup: Mapping[str, Any], name: str) -> Reply:
        """Ask for the outputs of a model, which are one answer."""
        return self._reply(MODEL_STALL_S, lambda answer: [{"name": name, "answer": answer}], setup=dict(setup))

    def _reply(self, stall_s: float, rows: Callable[[dict[str, Any]], Any], **request: Any) -> Reply:
        last = ""

        def on_event(event: dict[str, Any]) -> None:
            nonlocal last
            last = str(event.get("text") or last)
            self._say(f"{self.environment}: {last}")

        try:
            with WorkerConnection(environment_named(self.environment, self._driver)) as connection:
                described = connection.describe()
                answer = connection.call(
                    "describe", about="selftest", stall_timeout_s=stall_s, on_event=on_event, **request
                )
                proven = connection.proven(described, uses_driver=True, stall_timeout_s=STALL_S)
                connection.close()
        except GputaxError as error:
            failure = f"{error.what} ({error.next_step})" if error.next_step else error.what
            return Reply(failure=failure, last=last, is_missing=isinstance(error, PreflightError))
        kept = {name: proven.evidence.fact(name) for name in KEPT_EVIDENCE}
        evidence = {name: value for name, value in kept.items() if value is not None}
        return Reply(tuple(rows(answer)), str(answer.get("device_name") or ""), evidence=evidence)
