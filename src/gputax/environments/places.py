"""What the environments of one command share and leave nothing of: the pods of its run."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from gputax.plan.environment_options import EnvironmentOptions

if TYPE_CHECKING:
    from gputax.cluster.pods import RunPods

Say = Callable[[str], None]


class Places:
    """Opened by a command that starts workers, closed when it ends; environments of this machine need nothing of it."""

    def __init__(self, options: EnvironmentOptions | None = None, say: Say = lambda text: None) -> None:
        self.options = options or EnvironmentOptions()
        self._say = say
        self._pods: dict[tuple[str, str], RunPods] = {}
        self._run_id = ""

    def pods(self, options: EnvironmentOptions) -> RunPods:
        """Return the run's pods in the cluster and namespace that the options name."""
        from gputax.cluster.pods import RunPods, new_run_id

        self._run_id = self._run_id or new_run_id()
        key = (options.context, options.namespace)
        if key not in self._pods:
            self._pods[key] = RunPods(options.context, options.namespace, self._say, self._run_id)
        return self._pods[key]

    def files(self) -> dict[str, str]:
        """Return the manifests and logs that came home, by their names in a result directory."""
        return {name: text for pods in self._pods.values() for name, text in pods.files().items()}

    def api_calls(self) -> int:
        """Return how many requests went to API servers."""
        return sum(pods.cluster.calls for pods in self._pods.values())

    def close(self) -> None:
        """Remove everything that was made; may be called twice."""
        for pods in self._pods.values():
            pods.close()

    def __enter__(self) -> Places:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
